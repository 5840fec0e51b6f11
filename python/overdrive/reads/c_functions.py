"""C functions that a captured function may call: a closed table. A recording refuses what is not in it, because nobody sees what C reads.

Each row says what its functions read of what they are given, what they return, what they change, and whom they call:

  reads    "-": which objects these are, and numbers by their methods, which a tracked number has (numbers/tracked.py). "number": a number, unseen by
           one that is tracked. "inside": what is in a container or an object, which has guards where a name leads to it.
  returns  "-": nothing of use. "new": made of what it was given. "item": one of the objects that it was given, or that are in them.
  changes  "-": nothing. "self": what it is a method of, which the walk compares with what was there. "given": an argument, likewise.
  calls    "-": nobody. "methods": of classes of the program, by protocols. "given": a function that it was given. Their code is seen;
           a C function among them is looked at where the walk meets it (reads/walk_objects.py).
"""
from __future__ import annotations

import functools
import os
import types
from typing import Any, NamedTuple

import torch

from overdrive.reads.c_calls import CALLED_BY, PURE

_NOBODY = ("\0",)


class Row(NamedTuple):
    reads: str
    returns: str
    changes: str
    calls: str


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names as name_of() has them; "*": all of a module or a class. test/python/c_functions_test.py changes what each one reads.
_ROWS = """
- - - -                   | _thread.allocate_lock _thread.lock.* _thread.RLock.* _multiprocessing.SemLock.* sys.intern
- - - -                   | builtins.BaseException.with_traceback gc.collect gc.enable gc.disable
- - - -                   | builtins.generator.close builtins.generator.throw builtins.frame.clear sys.is_finalizing sys.audit _weakref.proxy
- new - -                 | builtins.id builtins.callable posix.fspath posix._path_normpath _contextvars.ContextVar.get _abc._abc_init
- new - -                 | _typing._idfunc builtins.globals builtins.locals
- new - methods           | builtins.isinstance builtins.issubclass builtins.hash _abc._abc_instancecheck _abc._abc_subclasscheck
- new - methods           | builtins.type.__new__ builtins.type.__init__ builtins.type.__call__ builtins.type.__repr__ builtins.type.__getattribute__
- new - methods           | builtins.type.__setattr__ builtins.type.__delattr__ builtins.type.__or__ builtins.type.__ror__ builtins.type.mro
- new - methods           | builtins.type.__prepare__ builtins.type.__instancecheck__ builtins.type.__subclasscheck__
- new - methods           | builtins.__import__ builtins.__build_class__ builtins.compile builtins.exec builtins.eval
- item - methods          | builtins.getattr builtins.hasattr builtins.iter builtins.property.* builtins.function.* builtins.method.* builtins.vars
- - given methods         | builtins.setattr builtins.delattr builtins.object.__setattr__ builtins.object.__delattr__
- new - -                 | builtins.code.*
inside new - methods      | builtins.object.* builtins.dir builtins.len builtins.any builtins.all builtins.repr builtins.ascii
inside item - given       | builtins.sorted builtins.min builtins.max
inside item self methods  | builtins.next builtins.generator.send
inside item self methods  | builtins.list.* builtins.dict.* builtins.set.* collections.OrderedDict.* collections.deque.* collections.defaultdict.*
inside item - methods     | builtins.tuple.* builtins.frozenset.* builtins.mappingproxy.* builtins.dict_keys.* builtins.dict_values.*
inside item - methods     | builtins.dict_items.*
inside item - methods     | builtins.enumerate.* builtins.reversed.* builtins.zip.* builtins.map.* builtins.filter.* builtins.slice.*
inside item - methods     | builtins.range.*
inside item given methods | _bisect.* _heapq.* _collections._count_elements
inside item - given       | _functools.reduce _functools.cmp_to_key itertools.*
inside new self -         | builtins.bytearray.* builtins.memoryview.* array.array.*
- new - methods           | builtins.abs builtins.divmod builtins.pow builtins.round builtins.sum builtins.bin builtins.hex builtins.oct
- new - methods           | builtins.chr builtins.ord
- new - methods           | builtins.format builtins.str.* builtins.bytes.* builtins.bool.*
number new - methods      | builtins.int.* builtins.float.* builtins.complex.* _operator.mod _operator.imod
- new - methods           | _operator.*
number new - methods      | math.* cmath.* _struct.* _json.* _statistics.*
- new - given             | _sre.* re.* unicodedata.* _string.* _codecs.* zlib.* binascii.*
number new - -            | datetime.time.* datetime.timedelta.* datetime.timezone.*
- - - given               | builtins.print _warnings.warn _warnings.warn_explicit _warnings._filters_mutated
- - self -                | _contextvars.ContextVar.set _contextvars.ContextVar.reset
- - self -                | _io.TextIOWrapper.write _io.TextIOWrapper.flush _io.StringIO.write _io.BytesIO.write _io.BufferedWriter.write
- - self -                | _io.BufferedWriter.flush
"""
# Methods of dates that know no clock and no time zone of the system.
_OF_DATES = _names("""
__add__ __eq__ __format__ __ge__ __gt__ __hash__ __le__ __lt__ __ne__ __new__ __radd__ __reduce__ __reduce_ex__ __repr__ __rsub__ __str__ __sub__
combine ctime date dst fromisocalendar fromisoformat fromordinal isocalendar isoformat isoweekday replace strftime time timetuple timetz toordinal
tzname utcoffset utctimetuple weekday
""")
# Functions of NumPy that read what they are given alone, whichever of its modules or classes has them.
_OF_NUMPY = _names("""
__array__ __array_finalize__ __array_function__ __array_namespace__ __array_ufunc__ __array_wrap__ __class_getitem__ __complex__ __copy__
__deepcopy__ __dlpack__ __dlpack_device__ __enter__ __exit__ __format__ __new__ __reduce__ __reduce_ex__ __setstate__ __sizeof__
_discover_array_parameters _get_castingimpl _get_implementing_args _make_extobj _monotonicity _place _reconstruct _unique_hash _vec_string
accumulate all any arange argmax argmin argpartition argsort array as_integer_ratio asanyarray asarray ascontiguousarray asfortranarray astype at
bincount busday_count busday_offset byteswap c_einsum can_cast choose clip close compare_chararrays compress concatenate conj conjugate copy copyto
correlate correlate2 count_nonzero cumprod cumsum datetime_as_string datetime_data diagonal dot dragon4_positional dragon4_scientific empty
empty_like enable_external_loop fill flatten format_longfloat from_dlpack frombuffer fromiter frompyfunc fromstring getfield inner interp
interp_complex is_busday is_integer item iternext lexsort max may_share_memory mean min min_scalar_type nested_iters newbyteorder nonzero
normalize_axis_index outer packbits partition prod promote_types ptp put putmask ravel ravel_multi_index reduce reduceat remove_axis
remove_multi_index repeat reset reshape resize resolve_dtypes result_type round scalar searchsorted setfield setflags shares_memory sort squeeze std
sum swapaxes take to_device tobytes tolist trace transpose unpackbits unravel_index var vdot view where zeros
""")
# Called by PyTorch's own Python and Python's library, which ask for what a recording knows by other means, or nothing that a tensor depends on. None
# is in a row, though its class may be.
_OF_LIBRARIES = _names("""
_sre.SRE_Scanner.match _sre.SRE_Scanner.search
_thread.RLock._acquire_restore _thread.RLock._is_owned _thread.RLock._recursion_count _thread.RLock._release_save _thread.RLock.acquire
builtins.object.__dir__ builtins.object.__getstate__ builtins.object.__reduce__ builtins.object.__reduce_ex__ sys.exc_info
_contextvars.Context.run _contextvars.copy_context _imp.acquire_lock _imp.lock_held _imp.release_lock _queue.SimpleQueue.put
_thread.get_ident _thread.get_native_id _weakref._remove_dead_weakref _weakref.getweakrefcount gc.isenabled posix.getcwd posix.getpid
sys._current_frames sys._getframe sys.getprofile sys.getrecursionlimit sys.getrefcount sys.gettrace
""")
# Functions of PyTorch that are no operators: they ask for what a recording looks at by other means, or change it for a block.
_OF_TORCH = _names("""
__enter__ __exit__ __init__ __setstate__ _accelerator_getAccelerator _accelerator_isAllocatorInitialized _are_functorch_transforms_active _can_cast
_current_autograd_node _current_graph_task_id _dispatch_key_set _dispatch_keys _dispatch_tls_is_dispatch_key_excluded
_dispatch_tls_is_dispatch_key_included _enter_dual_level _exit_dual_level _get_accelerator _get_creation_meta
_get_cudnn_deterministic _get_cudnn_enabled _get_cudnn_sdp_enabled _get_default_device _get_deterministic_algorithms
_get_deterministic_algorithms_warn_only _get_deterministic_fill_uninitialized_memory _get_flash_sdp_enabled _get_fp32_precision_getter
_get_math_sdp_enabled _get_mem_efficient_sdp_enabled _get_mkldnn_enabled _get_nnpack_enabled _get_overrideable_sdp_enabled
_get_privateuse1_backend_name _get_sequence_nr _get_tracing_state _group_tensors _group_tensors_by_device_and_dtype _has_mkldnn _has_storage
_has_torch_function _has_torch_function_unary _has_torch_function_variadic _increment_version _is_alias_of _is_any_autocast_enabled
_is_autocast_available _is_fwd_grad_enabled _is_mkldnn_enabled _is_torch_function_all_disabled _is_torch_function_enabled
_is_torch_function_mode_enabled _is_tracing _is_view _jit_is_in_scripting _len_torch_dispatch_stack
_len_torch_function_stack _log_api_usage_metadata _log_api_usage_once _make_dual _make_saved_tensor _parse_to _pop_saved_tensors_default_hooks
_profiler_enabled _push_saved_tensors_default_hooks _register_hook_dict _rev_view_func_unsafe _saved_tensors_hooks_disable
_saved_tensors_hooks_enable _saved_tensors_hooks_get_disabled_error_message _saved_tensors_hooks_is_enabled _saved_tensors_hooks_set_tracing
_sequence_nr _set_backward _set_creation_meta _set_fwd_grad_enabled _set_grad_enabled _set_multithreading_enabled _set_view_replay_enabled
_should_allow_numbers_as_tensors _top_saved_tensors_default_hooks _unpack_dual _unsafe_set_version_counter _view_func _view_func_unsafe
_will_engine_execute_node apply as_subclass as_tensor asarray autocast_decrement_nesting autocast_increment_nesting bfloat16 bool byte can_cast
cdouble cfloat char clear_autocast_cache cpu cuda double dsmm element_size enter_dual_level exit_dual_level fallthrough float from_numpy frombuffer
get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype get_default_dtype get_device get_num_threads half has_torch_function
has_torch_function_unary has_torch_function_variadic hsmm int is_anomaly_check_nan_enabled is_anomaly_enabled is_autocast_available
is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled is_deterministic_algorithms_warn_only_enabled is_grad_enabled
is_inference_mode_enabled is_warn_always_enabled long mark_dirty mark_non_differentiable maybe_current_level metadata name ndimension nelement
nested_tensor new new_tensor numel promote_types queue_callback register_hook register_multi_grad_hook register_prehook result_type run_backward
saddmm save_for_backward save_for_forward set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype
set_autocast_enabled set_autocast_gpu_dtype set_grad_enabled set_materialize_grads short spmm tensor type unpack unpack_dual
""")
# Classes of PyTorch in C whose methods are all of that kind, and modules of torch.func.
_CLASSES_OF_TORCH = ("torch._C._autograd.SavedTensor.", "torch._C.DisableTorchFunction", "torch._C._DisableTorch", "torch._C._Disable",
                     "torch._C._AutoDispatch", "torch._C._functorch.", "torch._C.Size.", "torch.Size.", "torch._C._ExcludeDispatch",
                     "torch._C._IncludeDispatch", "torch._C._SetExclude", "torch._C._ForceDispatch", "torch.dtype.", "torch.device.",
                     "torch.finfo.", "torch.iinfo.", "torch._C._RecordFunctionFast", "torch._C._Inference", "torch.utils._pytree",
                     "torch._C._autograd.DeviceType", "torch._C._profiler._RecordFunctionFast", "torch._C._monitor")
# By the first part of a name.
_REASON = {
    "time": "asks for the time", "datetime": "asks for the time", "posix": "asks the system or changes it",
    "_io": "reads or writes a file", "io": "reads or writes a file", "_socket": "uses the network", "_sqlite3": "asks a database",
    "_pickle": "reads whole objects",
    "_random": "draws random numbers of Python",
    "numpy.random": "draws random numbers of NumPy, or asks for their state",
    "sys": "asks for the state of Python or changes it"}


_MADE_BY_C = (types.MethodDescriptorType, types.ClassMethodDescriptorType, types.WrapperDescriptorType, types.BuiltinFunctionType, staticmethod)


def name_of(function: Any) -> str:
    """The module or the class of a C function, and its own name."""
    itself, name = getattr(function, "__self__", None), str(getattr(function, "__name__", ""))
    module = str(getattr(function, "__module__", None) or "")
    if itself is None or isinstance(itself, types.ModuleType) or type(itself).__module__ == "pybind11_builtins":
        return f"{module or getattr(itself, '__name__', '')}.{name}"
    kind = itself if isinstance(itself, type) else type(itself)
    kinds = [*kind.mro(), *type.mro(type(kind))]
    owner = next((each for each in kinds if type(vars(each).get(name)) in _MADE_BY_C), kind)
    return f"{owner.__module__}.{owner.__qualname__}.{name}"


@functools.lru_cache(maxsize=1)
def rows() -> dict[str, Row]:
    """The table, a row for each name."""
    found: dict[str, Row] = {}
    for line in _ROWS.strip().splitlines():
        columns, names = line.split("|")
        reads, returns, changes, calls = columns.split()
        found.update(dict.fromkeys(names.split(), Row(reads, returns, changes, calls)))
    return found


@functools.lru_cache(maxsize=1)
def _operators() -> frozenset[str]:
    return frozenset(name.partition("::")[2].partition(".")[0] for name in torch._C._dispatch_get_all_op_names())


# In PyTorch's list of operators, and yet no function of tensors.
_NO_OPERATORS = ("from_file", "_use_count")
_OPERATOR = Row("-", "new", "self", "-")
_ASKS = Row("-", "new", "-", "-")
_COMPUTES = Row("number", "new", "-", "methods")


def row_of(function: Any) -> Row | None:
    """What is known of a C function; None: it is in no row."""
    name = name_of(function)
    if name in PURE:
        return _ASKS
    if name in _OF_LIBRARIES:
        return None
    known = rows()
    owner, _, short = name.rpartition(".")
    if owner.startswith("numpy") and not owner.startswith("numpy.random"):
        return _COMPUTES if short in _OF_NUMPY else None
    if owner in ("datetime.date", "datetime.datetime"):
        return _COMPUTES if short in _OF_DATES else None
    found = known.get(name) or known.get(f"{owner}.*") or known.get(f"{name.partition('.')[0]}.*")
    return found or (_row_of_torch(name) if name.startswith("torch") or _is_of_a_node(function) else None)


def _is_of_a_node(function: Any) -> bool:
    return isinstance(getattr(function, "__self__", None), torch.autograd.graph.Node)


def _row_of_torch(name: str) -> Row | None:
    """An operator is recorded whoever calls it. A name of Python's protocols is one of a tensor's operators, too."""
    owner, _, short = name.rpartition(".")
    if short in _NO_OPERATORS:
        return None
    is_protocol = owner in ("torch._C.TensorBase", "torch.Tensor") and short.startswith("__") and short.endswith("__")
    if short in _operators() or is_protocol or owner.startswith("torch._ops"):
        return _OPERATOR
    return _ASKS if short in _OF_TORCH or name.startswith(_CLASSES_OF_TORCH) else None


def may_call(file: str, function: Any) -> bool:
    """Whether a library calls it for what no tensor depends on."""
    return is_called_by(file, name_of(function))


def is_called_by(file: str, name: str) -> bool:
    return file.replace(os.sep, "/").endswith(CALLED_BY.get(name, _NOBODY))


def is_for_libraries(function: Any) -> bool:
    """Whether PyTorch and Python's library may call it, and the program may not. PyTorch's Python goes on in PyTorch's C, which a recording knows."""
    name = name_of(function)
    return name in _OF_LIBRARIES or name.startswith("torch._C.")


def refusal_of(function: Any) -> str:
    """Why no recording calls a function that is in no row."""
    name = name_of(function)
    return refusal_to_call(name, next((reason for module, reason in _REASON.items() if name.startswith(f"{module}.")),
                                      "may read what no guard looks at, because it is C"))


def refusal_to_call(name: str, reason: str) -> str:
    return (f"The function calls {name}(), which {reason}; call it outside and give what it returns as an argument, or by watch=, or promise "
            "by guards=\"promised\" that it does not matter.")
