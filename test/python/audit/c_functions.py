"""What a function of C looks at and changes, by modules and by rules of the auditor's own. Overdrive's table (overdrive/reads/c_functions.py) is not asked:
what both took for harmless, nobody would find. A function that no rule knows ends the audit of a program. What is given to a known one counts as used with
all that is in it, but for the few of these lists.
"""
from __future__ import annotations

import functools
import types
import weakref
from typing import Any

import torch

from places import MADE_IN_PYTHON

# What these modules have looks at what it is given and at what it is a method of, and changes no other thing than that.
_MODULES = set("""builtins math cmath _operator itertools _functools functools _collections collections _bisect _heapq _struct _sre re _json _statistics
               _string unicodedata zlib binascii array _abc _typing typing types operator""".split())
# But these, which ask Python, the system, or what no place is.
_ASK = set("open input breakpoint cache_info cache_clear __subclasses__ __sizeof__ _abc_register get_cache_token _get_dump".split())
# Functions of other modules that look at nothing of a program.
_OTHERS = set("""_thread.lock.acquire _thread.lock.release _thread.lock.__enter__ _thread.lock.__exit__ _thread.RLock.acquire _thread.RLock.release
              _thread.RLock.__enter__ _thread.RLock.__exit__ _thread.allocate_lock gc.collect gc.enable gc.disable sys.exc_info sys.intern sys.audit
              sys.is_finalizing posix.fspath _codecs.encode _codecs.decode _contextvars.ContextVar.set _contextvars.ContextVar.reset _weakref.proxy
              _warnings.warn _io.TextIOWrapper.write _io.TextIOWrapper.flush _io.StringIO.write _io.BytesIO.write""".split())
# And those that PyTorch's Python and Python's library may ask.
_OF_LIBRARIES = set("""_contextvars.Context.run _contextvars.copy_context _weakref.getweakrefcount _weakref._remove_dead_weakref _thread.get_ident
                    _thread.get_native_id _thread.RLock._is_owned gc.isenabled posix.getpid posix.getcwd sys._getframe sys.getprofile sys.gettrace
                    sys.getrecursionlimit sys.getrefcount _imp.acquire_lock _imp.release_lock _imp.lock_held _warnings.warn_explicit""".split())
_CLOCK = set("now today utcnow fromtimestamp utcfromtimestamp timestamp astimezone".split())
_OF_NUMPY = set("random fromfile tofile dump dumps load seterr geterr seterrobj geterrobj _get_extobj_dict _set_extobj".split())
# Operators of PyTorch are a recording's own. What a program asks of PyTorch beside them is what the library compares for each call.
_OPERATORS = ("torch._C.TensorBase.", "torch.Tensor.", "torch._C._VariableFunctions", "torch._VariableFunctions", "torch._C._nn.", "torch._C._linalg.", "torch._C._special.",
              "torch._C._fft.", "torch._C._sparse.", "torch._C._nested.", "torch._ops.", "torch.Size.", "torch.dtype.", "torch.device.", "torch.finfo.", "torch.iinfo.")
_SETTINGS = set("""is_grad_enabled set_grad_enabled _set_grad_enabled is_inference_mode_enabled get_default_dtype get_num_threads is_autocast_enabled
                get_autocast_dtype is_autocast_cache_enabled set_autocast_enabled set_autocast_dtype is_anomaly_enabled is_warn_always_enabled
                _get_deterministic_algorithms is_deterministic_algorithms_warn_only_enabled _get_mkldnn_enabled _get_nnpack_enabled
                _has_torch_function _log_api_usage_once _functorch.maybe_current_level _get_tracing_state is_autocast_cpu_enabled
                tensor as_tensor from_numpy frombuffer""".split())
# They ask which objects these are, and of which class.
KINDS = {f"builtins.{name}" for name in ("isinstance", "issubclass", "callable", "id")} | {"_abc._abc_instancecheck", "_abc._abc_subclasscheck"}
# They look at nothing.
QUIET = {f"builtins.{name}" for name in (
    "print", "object.__init__", "object.__init_subclass__", "object.__subclasshook__", "object.__new__", "type.__init__", "BaseException.__init__",
    "BaseException.__new__", "generator.close", "generator.throw", "generator.send")}
# Methods that change no container.
_STAYS = set("""index count copy get keys values items fromkeys isdisjoint issubset issuperset union intersection difference symmetric_difference tolist
             tobytes __contains__ __len__ __getitem__ __eq__ __ne__ __lt__ __gt__ __le__ __ge__ __add__ __mul__ __or__ __and__ __sub__ __xor__ __iter__
             __reversed__ __repr__ __str__ __format__ __hash__ __new__ __reduce__ __reduce_ex__ __sizeof__ __dir__ __copy__ __class_getitem__
             __missing__""".split())
# Functions that change what they are given first.
_CHANGES = {*(f"_operator.{name}" for name in "setitem delitem iadd iand iconcat ilshift imatmul imod imul ior ipow irshift isub itruediv ixor ifloordiv".split()),
            *(f"_heapq.{name}" for name in "heappush heappop heapify heapreplace heappushpop _heapify_max _heappop_max _heapreplace_max".split()),
            "_bisect.insort_left", "_bisect.insort_right", "_collections._count_elements"}
# They change a container and look at nothing that is in it.
NO_READS = {"append", "appendleft", "extend", "extendleft", "add", "insert", "update", "clear", "__setitem__", "__init__", "__ior__", "__iadd__"}
# They give what lay in a container, and lies there no more: that nobody else holds it does not make it the call's own.
TAKES_OUT = {"pop", "popitem", "popleft", "popright"}
# Classes of C that a program makes objects of.
_CLASSES = set("""str int float complex bool bytes range slice list tuple dict set frozenset OrderedDict deque defaultdict enumerate zip map filter reversed
               property staticmethod classmethod chain repeat product islice count combinations permutations accumulate starmap zip_longest takewhile dropwhile
               groupby cycle partial bytearray array attrgetter itemgetter methodcaller method function cell SimpleNamespace Struct pairwise lock RLock
               compress filterfalse tee mappingproxy partialmethod ContextVar Counter code member_descriptor GenericAlias UnionType Decimal object
               ReferenceType weakref KeyedRef WeakMethod super local timedelta date datetime""".split())
_OF_LIBRARY = ("torch", "numpy", "pybind11_builtins")


@functools.lru_cache(maxsize=None)
def _is_known_class(kind: type) -> bool:
    of_c = not kind.__flags__ & MADE_IN_PYTHON
    return issubclass(kind, BaseException) or of_c and kind.__module__.partition(".")[0] in _OF_LIBRARY or (
        kind.__name__ in _CLASSES and (of_c or kind.__module__ in ("collections", "functools", "weakref", "operator")))


def name_of(function: Any) -> str:
    """Its module, the class that has it, and its name."""
    short, bound = str(getattr(function, "__name__", "")), getattr(function, "__self__", None)
    owner = getattr(function, "__objclass__", None)
    if owner is None and bound is not None and not isinstance(bound, types.ModuleType):
        kinds = (*bound.__mro__, *type(bound).__mro__) if isinstance(bound, type) else type(bound).__mro__
        owner = next((kind for kind in kinds if short in vars(kind)), kinds[0])
    return f"{getattr(function, '__module__', '')}.{short}" if owner is None else f"{owner.__module__}.{owner.__qualname__}.{short}"


def is_known(function: Any, by_library: bool) -> bool:
    if isinstance(function, type):
        return _is_known_class(function)
    if isinstance(function, weakref.ref) or type(function).__module__.partition(".")[0] in _OF_LIBRARY:
        return True
    name = name_of(function)
    module, short = name.partition(".")[0], name.rpartition(".")[2]
    if module in ("torch", "pybind11_builtins"):
        is_operator = name.startswith(_OPERATORS) or hasattr(torch.ops.aten, short)
        return by_library or is_operator or short in _SETTINGS or isinstance(getattr(function, "__self__", None), torch.autograd.graph.Node)
    if module == "numpy":
        return not _OF_NUMPY & set(name.split("."))
    if module == "datetime":
        return short not in _CLOCK
    return name in _OTHERS or by_library and name in _OF_LIBRARIES or module in _MODULES and short not in _ASK


def changed_by(function: Any, bound: Any, given: list[Any]) -> Any:
    """The container that it changes, or None."""
    if isinstance(function, type) or function.__name__ in _STAYS:
        return None
    changed = given[0] if given and name_of(function) in _CHANGES else bound
    return changed if isinstance(changed, (list, dict, set, bytearray)) or type(changed).__name__ in ("deque", "array", "ContextVar") else None
