"""The table of functions in C: what each looks at in what it is given, what it gives, and what it changes. A function without a row ends the audit
of a program.

Looks at: "nothing"; "kinds", classes and identities; "size"; "all", numbers by value and containers by their content. Gives: "plain", a number or an
object that was there; "new". Changes: "" or "first", the container that it belongs to.
"""
from __future__ import annotations

import types
import weakref
from typing import Any, NamedTuple

import torch


class Row(NamedTuple):
    looks_at: str
    gives: str = "plain"
    changes: str = ""


_PURE, _MAKES, _ASKS, _QUIET = Row("all"), Row("all", "new"), Row("kinds"), Row("nothing")
_CHANGES = Row("all", "plain", "first")
_BY_NAME = (
    (_PURE, """
     builtins: abs all any ascii bin chr divmod format hash hex max min oct ord pow print repr round sum compile eval exec __build_class__ __import__
     functools: reduce  _functools: reduce  _abc: _abc_instancecheck _abc_subclasscheck _abc_init _abc_register get_cache_token
     _collections: _count_elements  _bisect: bisect_left bisect_right bisect  _heapq: nlargest nsmallest
     time: time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time clock_gettime clock_gettime_ns sleep
     sys: intern getsizeof audit  _warnings: warn warn_explicit _filters_mutated  copyreg: __newobj__  _weakref: proxy
     _imp: lock_held acquire_lock release_lock  _io: open  posix: fspath stat lstat  io: open  _struct: pack calcsize  _json: encode_basestring_ascii
     encode_basestring
     _typing: _idfunc  _string: formatter_parser formatter_field_name_split  gc: collect"""),
    (_MAKES, """
     builtins: sorted  _operator: countOf indexOf concat  _struct: unpack unpack_from  copy: copy  _codecs: encode decode  _locale: setlocale
     _contextvars: copy_context  _json: make_encoder scanner  sys: exc_info  binascii: hexlify  _sre: compile template"""),
    (_ASKS, """
     builtins: isinstance issubclass callable id  _thread: get_ident allocate_lock RLock get_native_id  _weakref: getweakrefcount
     sys: _getframe getrefcount is_finalizing getrecursionlimit  gc: isenabled get_referents  posix: getpid"""),
    (Row("size"), "builtins: len"),
)
# Of methods, by the class that has them.
_OF_CLASSES = (
    (_PURE, """
     list: index count __contains__ __len__ __getitem__ __eq__ __add__ __mul__  tuple: index count __contains__ __len__ __getitem__ __eq__
     __hash__ __add__
     dict: __contains__ __len__ __eq__ __repr__  OrderedDict: __contains__ __len__ __eq__  set: __contains__ __len__ issubset issuperset
     isdisjoint __eq__
     frozenset: __contains__ __len__ issubset issuperset __hash__  mappingproxy: __contains__ __len__  deque: index count __contains__ __len__
     range: index count __contains__ __len__  slice: indices  object: __eq__ __ne__ __repr__ __str__ __format__ __reduce_ex__ __reduce__
     __dir__ __sizeof__
     type: __instancecheck__ __subclasscheck__ mro __subclasses__ __repr__ __dir__  BaseException: with_traceback add_note __str__ __repr__ __reduce__
     Random: random getrandbits seed  PyCapsule:  property: getter setter  Logger:  Struct: pack unpack  ContextVar: get set reset
     code: co_lines co_positions replace  scanner: __call__  cell:  lock: locked  Size: numel index count __len__"""),
    (_MAKES, """
     list: copy __iter__ __reversed__  tuple: __iter__ __new__  dict: copy keys values items __iter__ __reversed__ fromkeys __or__ __new__
     OrderedDict: copy keys values items __iter__ __reversed__ fromkeys __new__  defaultdict: copy keys values items __iter__ __copy__
     mappingproxy: copy keys values items __iter__ get  set: copy union intersection difference symmetric_difference __iter__ __new__ __or__
     __and__ __sub__
     frozenset: copy union intersection difference __iter__ __new__ __or__ __and__  deque: copy __iter__ __copy__  object: __new__ type: __prepare__
     chain: from_iterable  int: __new__ from_bytes  float: __new__ fromhex  str: __new__ maketrans  complex: __new__  BaseException: __new__
     Size: __new__ __add__ __iter__  Generic:  function: __get__  partial: __new__"""),
    (_QUIET, """
     object: __init__ __init_subclass__ __subclasshook__ __delattr__  BaseException: __init__  lock: acquire release __enter__ __exit__ acquire_lock
     RLock: acquire release __enter__ __exit__ _is_owned  generator: close send throw __next__  type: __init__  Context: run  TextIOWrapper:
     write flush isatty
     EncodedFile: write flush  _io: write  module: __init__  StringIO: write getvalue flush  BytesIO: write getvalue read seek tell"""),
    (_CHANGES, """
     list: append extend insert remove pop clear sort reverse __setitem__ __delitem__ __iadd__ __init__  dict: update clear popitem __init__ __ior__
     OrderedDict: update clear popitem move_to_end __init__  defaultdict: update clear popitem __init__
     set: add discard remove pop clear update difference_update intersection_update symmetric_difference_update __ior__ __isub__ __iand__ __init__
     deque: append appendleft pop popleft extend extendleft clear remove rotate insert reverse __init__ bytearray: append extend clear pop
     insert remove
     array: append extend fromlist pop insert remove byteswap reverse"""),
)
# All functions of these: of PyTorch, what a recording sees or asks; else what they are given.
_MODULES = {"math": _PURE, "cmath": _PURE, "_operator": _MAKES, "itertools": _MAKES, "_sre": _MAKES, "_random": _PURE, "numpy": _MAKES, "_collections_abc": _PURE,
            "torch": _MAKES, "pybind11_builtins": _MAKES, "_datetime": _MAKES, "datetime": _MAKES, "unicodedata": _PURE, "zlib": _MAKES}
# Methods of numbers, texts and their like.
_VALUES = ("str", "int", "float", "complex", "bytes", "bool", "NoneType", "Pattern", "Match", "date", "datetime", "timedelta", "time", "timezone", "Decimal", "Fraction",
           "_tuplegetter", "ellipsis")
# Classes that C makes objects of.
_CLASSES = {**dict.fromkeys("str int float complex bool bytes range slice list tuple dict set frozenset OrderedDict deque defaultdict enumerate zip map filter reversed "
                            "property staticmethod classmethod chain repeat product islice count combinations permutations accumulate starmap zip_longest takewhile dropwhile "
                            "groupby cycle partial bytearray array Random attrgetter itemgetter methodcaller method function cell SimpleNamespace Struct pairwise lock RLock "
                            "compress filterfalse tee mappingproxy partialmethod ContextVar Counter code member_descriptor GenericAlias UnionType Decimal".split(), _MAKES),
            **dict.fromkeys("object ReferenceType weakref KeyedRef WeakMethod super local".split(), Row("kinds", "new"))}
# Functions and classes with a value that lies in no place of the program: a guard must look at them by other means.
STATES_OF_C = {"random": "random", "getrandbits": "random", "time": "clock", "time_ns": "clock", "perf_counter": "clock", "perf_counter_ns": "clock", "monotonic": "clock",
               "monotonic_ns": "clock", "process_time": "clock", "clock_gettime": "clock", "clock_gettime_ns": "clock", "stat": "file", "lstat": "file", "now": "clock", "today": "clock", "utcnow": "clock", "getpid": "process", "open": "file", "get": ""}
# Attributes of C: those that stay as long as the object is the same one.
FIXED_ATTRIBUTES: dict[str, list[str]] = {}
for _word in """
     function: __name__ __qualname__ __globals__ __closure__ __annotations__ __type_params__ __kwdefaults__ __defaults__ __code__
     __builtins__  method: __func__ __self__ __code__  builtin_function_or_method: __self__ __name__ __qualname__ __text_signature__  type:
     __mro__ __name__ __qualname__ __bases__ __base__ __flags__ __dict__ __abstractmethods__ __basicsize__ __subclasshook__  code: co_name
     co_filename co_varnames co_argcount co_flags co_freevars co_cellvars co_names co_consts co_firstlineno co_kwonlyargcount
     co_posonlyargcount co_code co_qualname co_nlocals  partial: func args keywords  property: fget fset fdel __isabstractmethod__  slice:
     start stop step  range: start stop step  staticmethod: __func__ __wrapped__ __isabstractmethod__  classmethod: __func__ __wrapped__
     __isabstractmethod__  frame: f_back f_code f_locals f_globals f_lineno f_builtins f_lasti f_trace f_trace_lines f_trace_opcodes
     traceback: tb_next tb_frame tb_lineno tb_lasti  generator: gi_frame gi_code gi_running gi_yieldfrom  BaseException: args __traceback__
     __cause__ __context__ __suppress_context__  StopIteration: value  AttributeError: name obj  NameError: name  ImportError: name path msg
     weakref: __callback__  ReferenceType: __callback__  GenericAlias: __origin__ __args__ __parameters__  defaultdict: default_factory
     deque: maxlen  wrapper_descriptor: __objclass__ __name__ __qualname__  method_descriptor: __objclass__ __name__ __qualname__ __self__
     getset_descriptor: __objclass__ __name__  member_descriptor: __objclass__ __name__  method-wrapper: __objclass__ __name__ __self__
     classmethod_descriptor: __objclass__ __name__  _lru_cache_wrapper: __wrapped__  float: real imag  int: real imag numerator denominator
     complex: real imag  bool: real imag  date: year month day  datetime: hour minute second microsecond tzinfo fold  timedelta: days
     seconds microseconds  super: __self__ __thisclass__ __self_class__  Pattern: pattern flags groups groupindex  Match: string re pos
     endpos lastindex lastgroup  SystemExit: code  OSError: errno strerror filename  TextIOWrapper: name encoding errors mode closed
     ContextVar: name  UnionType: __args__  ufunc: nin nout ntypes  module: __dict__ __annotations__  TypeVar: __name__ __bound__
     __constraints__  Struct: format size""".split():
    if _word.endswith(":"):
        _names = FIXED_ATTRIBUTES[_word[:-1]] = []
    else:
        _names.append(_word)
STATES = (("cell", "cell_contents"), ("function", "__dict__"))


def _table(groups: Any) -> dict[str, Row]:
    found = {}
    for row, text in groups:
        owner = ""
        for word in text.split():
            if word.endswith(":"):
                owner = word[:-1]
            else:
                found[f"{owner}.{word}"] = row
    return found


_FUNCTIONS, _METHODS = _table(_BY_NAME), _table(_OF_CLASSES)
_KINDS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType)


def owner_of(function: Any) -> Any:
    """Of a method of C its class; None: a function of a module."""
    owner = getattr(function, "__objclass__", None)
    if owner is None and (bound := getattr(function, "__self__", None)) is not None and not isinstance(bound, types.ModuleType):
        owner = bound if isinstance(bound, type) else next((kind for kind in type(bound).__mro__ if function.__name__ in vars(kind)), type(bound))
    return owner


def name_of(function: Any) -> str:
    if isinstance(function, type):
        return f"{function.__module__}.{function.__qualname__}"
    if not isinstance(function, _KINDS):
        return f"an object of {type(function).__module__}.{type(function).__qualname__}"
    owner = owner_of(function)
    return f"{owner.__name__ if owner is not None else function.__module__}.{function.__name__}"


def row_of(function: Any) -> Row | None:
    """None: there is none."""
    if isinstance(function, type):
        return _row_of_class(function)
    if not isinstance(function, _KINDS):
        module = type(function).__module__
        return _MAKES if _top(module) in ("torch", "pybind11_builtins", "numpy", "operator") or type(function).__name__ == "PyCapsule" or isinstance(function, weakref.ref) else None
    owner = owner_of(function)
    if owner is None:
        return _FUNCTIONS.get(name_of(function)) or _MODULES.get(_top(function.__module__ or ""))
    for kind in owner.__mro__ if isinstance(owner, type) else ():
        if (found := _METHODS.get(f"{kind.__name__}.{function.__name__}")) is not None:
            return found
        if kind.__name__ in _VALUES and kind.__module__ in ("builtins", "re", "datetime", "decimal", "fractions", "collections"):
            return _MAKES
        if _top(kind.__module__) in ("torch", "numpy", "pybind11_builtins") or issubclass(kind, torch._C.TensorBase):
            return _MAKES
    return _MODULES.get(_top(owner.__module__)) if owner.__module__ != "builtins" else None


def _row_of_class(kind: type) -> Row | None:
    if issubclass(kind, BaseException) or _top(kind.__module__) in ("torch", "numpy", "pybind11_builtins") and not kind.__flags__ & 1 << 9:
        return _MAKES
    return _CLASSES.get(kind.__name__) if not kind.__flags__ & 1 << 9 or kind.__module__ in ("collections", "functools", "weakref", "operator") else None


def is_torchs(function: Any) -> bool:
    return _top(getattr(owner_of(function), "__module__", "") or getattr(function, "__module__", "") or "") in ("torch", "pybind11_builtins")


def _top(module: str) -> str:
    return module.partition(".")[0]


def state_of(function: Any, name: str) -> str:
    """What lies outside of all places: a clock, random numbers, the process, a file."""
    short = name.rpartition(".")[2]
    owner = owner_of(function) if isinstance(function, _KINDS) else None
    top = _top(getattr(owner, "__module__", "") or getattr(function, "__module__", "") or "") if not isinstance(function, type) else ""
    return STATES_OF_C.get(short, "") if top in ("time", "random", "_random", "datetime", "posix", "_io", "io", "numpy") else ""
