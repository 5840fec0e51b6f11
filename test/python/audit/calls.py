"""What a call uses: by a frame that will follow, by the table of C's functions, or by one of the few functions that find places by a name or a key."""
from __future__ import annotations

import builtins
import contextvars
import functools
import operator
import types
from collections.abc import Callable
from typing import Any

import lookups
from c_functions import KINDS, NO_READS, QUIET, TAKES_OUT, changed_by, is_known, name_of
from lookups import in_class, is_python, see_class
from places import MADE_IN_PYTHON, MISSING, Call, End, dict_of

_CACHED = type(functools.lru_cache(int))
_GETTERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)
_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_OF_C = (types.BuiltinFunctionType, types.MethodWrapperType, *_DESCRIPTORS)
# Classes of C whose objects hold what they are given, and look at nothing that is in it.
_HOLDERS = (object, functools.partial, types.MethodType, staticmethod, classmethod, property)
# What becomes of the result: it is the call's own, if nobody else holds it; it is in any case; it is not.
IF_ALONE, MADE, TAKEN = "if alone", "made", "taken"


def call_function(frame: Any, function: Any, args: list[Any], keywords: dict[str, Any]) -> str:
    kind, call = type(function), frame.call
    if kind is types.MethodType:
        return call_function(frame, function.__func__, [function.__self__, *args], keywords)
    if kind is types.FunctionType:
        _of_python(frame, function, args, keywords)
    elif isinstance(function, functools.partial):
        call.items(function)
        return call_function(frame, function.func, [*function.args, *args], {**function.keywords, **keywords})
    elif kind is _CACHED:
        call.see("cache", function, None, MISSING)
        _use_all(call, [*args, *keywords.values()])
    elif kind in _GETTERS:
        _getter(call, function, args[0])
    elif isinstance(function, type):
        return _of_class(frame, function, args, keywords)
    elif kind.__flags__ & MADE_IN_PYTHON and is_python(kind, "__call__"):
        see_class(call, kind.__mro__, "__call__")
    elif isinstance(getattr(function, "__self__", None), types.FunctionType) and function.__name__ == "__call__":
        return call_function(frame, function.__self__, args, keywords)
    else:
        return _of_c(frame, function, args, keywords)
    return IF_ALONE


def _of_python(frame: Any, function: Any, args: list[Any], keywords: dict[str, Any]) -> None:
    code = function.__code__
    frame.call.see("code", function, None, code)
    if len(args) + len(keywords) < code.co_argcount + code.co_kwonlyargcount:
        for key in ("__defaults__", "__kwdefaults__"):
            if (default := getattr(function, key)) is not None:
                frame.call.see("slot", function, key, default)
    if frame.tracer.is_opaque(code) and not frame.tracer.is_ours(code):  # what our own code reads is not looked at
        _use_all(frame.call, [*args, *keywords.values()])


def _of_class(frame: Any, kind: type, args: list[Any], keywords: dict[str, Any], through_meta: bool = False) -> str:
    call, given = frame.call, [*args, *keywords.values()]
    if kind is type:
        call.see_kinds(args)
        return MADE if len(args) == 3 else IF_ALONE
    if isinstance(in_class(type(kind), "__call__"), types.FunctionType) and not through_meta:
        _use_all(call, given)
    elif is_known(kind, frame.by_library):
        if kind not in _HOLDERS:
            _use_all(call, given)
    elif not kind.__flags__ & MADE_IN_PYTHON:
        raise End(f"a class of C, {kind.__module__}.{kind.__qualname__}()")
    else:
        makers = []
        for name in ("__new__", "__init__"):
            see_class(call, kind.__mro__, name)
            maker = in_class(kind, name)
            makers.append(getattr(maker, "__func__", maker))
            owner = getattr(makers[-1], "__objclass__", None) or getattr(makers[-1], "__self__", None)
            if not isinstance(makers[-1], types.FunctionType) and owner is not object and not is_known(owner, True):
                raise End(f"{name_of(maker)}() makes an object of {kind.__module__}.{kind.__qualname__}")
        if not any(isinstance(maker, types.FunctionType) for maker in makers):
            _use_all(call, given)
    return IF_ALONE


def _of_c(frame: Any, function: Any, args: list[Any], keywords: dict[str, Any]) -> str:
    if isinstance(function, _DESCRIPTORS) and args:
        function, args = function.__get__(args[0]), args[1:]
    call, name, short = frame.call, name_of(function), getattr(function, "__name__", "")
    bound = getattr(function, "__self__", None)
    bound = None if isinstance(bound, (types.ModuleType, type)) else bound
    if (special := _SPECIAL.get(name)) is not None:
        special(frame, function, *_with_object(function, args))
        return IF_ALONE
    if isinstance(bound, dict) and (by_key := _BY_KEY.get(short)) is not None:
        by_key(call, bound, args[0])
        return TAKEN if short in TAKES_OUT else IF_ALONE
    if not is_known(function, frame.by_library):
        raise End(f"a function of C, {name}()")
    changed = changed_by(function, bound, args)
    if name in KINDS:
        call.see_kinds(args)
    elif name == "builtins.len":
        _size(call, args[0])
    elif name not in QUIET:
        if bound is not None and not (changed is bound and short in NO_READS):
            call.deep(bound)
        _use_all(call, [*args, *keywords.values()])
    if changed is not None:
        call.write_all(changed)
    return MADE if function is builtins.__build_class__ else TAKEN if short in TAKES_OUT else IF_ALONE


def _use_all(call: Call, given: list[Any]) -> None:
    for value in given:
        call.deep(value)
        function = value.func if isinstance(value, functools.partial) else value
        if isinstance(function, (*_OF_C, *_GETTERS)):
            _given_to_c(call, function, [item for each in given if each is not value and isinstance(each, (list, tuple)) for item in each])


def _given_to_c(call: Call, function: Any, items: list[Any]) -> None:
    """C may call it, for each of the items, and no instruction shows that."""
    bound = getattr(function, "__self__", None)
    if isinstance(function, (operator.attrgetter, operator.itemgetter)) and items:
        for item in items:
            _getter(call, function, item)
    elif call.is_fresh(bound):
        call.write_all(bound)
    elif isinstance(function, _GETTERS) or name_of(function) in _SPECIAL or changed_by(function, bound, items) is not None or not is_known(function, False):
        raise End(f"{name_of(function)}() is given to a function of C")
    elif bound is not None and not isinstance(bound, types.ModuleType):
        call.deep(bound)


def _size(call: Call, value: Any) -> None:
    if is_python(type(value), "__len__"):
        see_class(call, type(value).__mro__, "__len__")
    elif isinstance(value, (list, dict, set)) or type(value).__name__ in ("deque", "mappingproxy"):
        call.size(value)
    else:
        call.deep(value)


def _getter(call: Call, function: Any, value: Any) -> None:
    is_method = isinstance(function, operator.methodcaller)
    for name in function.__reduce__()[1][:1 if is_method else None]:
        if isinstance(function, operator.itemgetter):
            lookups.item(call, value, name)
            continue
        at = value
        for part in name.split("."):
            lookups.attribute(call, at, part)
            at = getattr(at, part, None)
    if is_method:
        call.deep(value)


def iterate(call: Call, value: Any) -> None:
    name = next((name for name in ("__iter__", "__next__") if is_python(type(value), name)), "")
    if name:
        see_class(call, type(value).__mro__, name)
    else:
        call.items(value)


# --- functions that find places by names and keys


def _with_object(function: Any, args: list[Any]) -> list[Any]:
    """Of a method that is bound the object as well."""
    bound = getattr(function, "__self__", None)
    return args if bound is None or isinstance(bound, types.ModuleType) else [bound, *args]


def _getattr(frame: Any, function: Any, value: Any, name: Any, *default: Any) -> None:
    if function.__name__ == "__getattribute__" and not isinstance(value, (type, types.ModuleType)):
        lookups.of_object(frame.call, value, name)
    elif isinstance(name, str):
        lookups.attribute(frame.call, value, name)


def _setattr(frame: Any, function: Any, value: Any, name: Any, *new: Any) -> None:
    lookups.store(frame.call, value, name, plainly=function.__name__.startswith("__"))


def _make(frame: Any, function: Any, kind: type, *args: Any) -> None:
    """type.__call__(), which a metaclass calls."""
    _of_class(frame, kind, list(args), {}, through_meta=True)


def _namespace(frame: Any, function: Any, value: Any = None, *protocol: Any) -> None:
    """The dict of an object; of dir() its names; of what copies an object all that is in it."""
    lookups.see_dict(frame.call, value)
    own = dict_of(value)
    if function.__name__ == "dir" and own is not None:
        frame.call.see("keys", own, None, len(own), value)
    elif function.__name__.startswith("__"):
        frame.call.deep(own)


def _context(frame: Any, function: Any, variable: Any, *default: Any) -> None:
    frame.call.see("context", variable, None, variable.get(*default) if variable in contextvars.copy_context() else MISSING)


def _pop(call: Call, entries: dict[Any, Any], key: Any) -> None:
    lookups.entry(call, entries, key)
    if dict.__contains__(entries, key):
        lookups.store_entry(call, entries, key, deletes=True)


def _setdefault(call: Call, entries: dict[Any, Any], key: Any) -> None:
    lookups.entry(call, entries, key)
    if not dict.__contains__(entries, key):
        lookups.store_entry(call, entries, key)


_BY_KEY: dict[str, Callable[[Call, Any, Any], None]] = {
    "get": lookups.entry, "__getitem__": lookups.entry, "__contains__": lookups.has, "__setitem__": lookups.store_entry, "pop": _pop, "setdefault": _setdefault}
_SPECIAL: dict[str, Callable[..., Any]] = {
    **dict.fromkeys((f"builtins.{name}" for name in "getattr hasattr object.__getattribute__ type.__getattribute__ module.__getattribute__".split()), _getattr),
    **dict.fromkeys((f"builtins.{name}" for name in "setattr delattr object.__setattr__ object.__delattr__ type.__setattr__ type.__delattr__".split()), _setattr),
    **dict.fromkeys((f"builtins.{name}" for name in "vars globals locals dir object.__reduce_ex__ object.__reduce__ object.__getstate__ object.__dir__".split()), _namespace),
    **dict.fromkeys(("builtins.next", "builtins.iter"), lambda frame, function, value, *more: iterate(frame.call, value)),
    "builtins.type.__call__": _make, "_contextvars.ContextVar.get": _context}
