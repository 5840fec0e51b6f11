"""What a call uses: by a frame that will follow, by a row of the table, or by one of the few functions that find places by a name or a key."""
from __future__ import annotations

import builtins
import functools
import operator
import os
import types
from collections.abc import Callable
from typing import Any

import torch

import overdrive

import lookups
from c_functions import is_torchs, name_of, owner_of, row_of, state_of
from lookups import CHILD, MADE_IN_PYTHON, NEW, in_class, is_python
from places import MISSING, Call, End, dict_of, is_iterator

_GENERATORS = 0x2A0
_CACHED = type(functools.lru_cache(int))
_GETTERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)
_NO_READS = ("append", "appendleft", "extend", "extendleft", "add", "insert", "update", "clear", "__setitem__", "__init__", "__ior__", "__iadd__")
_OURS = os.path.dirname(overdrive.__file__) + os.sep
Argument = tuple[Any, Any]


class Target:
    """A function of Python whose frame may come next, and what it is given."""

    def __init__(self, function: Any, args: list[Argument], keywords: dict[str, Argument]) -> None:
        self.function, self.args, self.keywords = function, args, keywords

    def variables(self, call: Call) -> dict[str, Any]:
        """The sources of the variables that the frame begins with."""
        function, code = self.function, self.function.__code__
        names, count = code.co_varnames, code.co_argcount
        found = {name: source for name, (_, source) in zip(names[:count], self.args)}
        known = names[code.co_posonlyargcount:count + code.co_kwonlyargcount]
        for name, (value, source) in self.keywords.items():
            if name in known:
                found[name] = source
            else:
                call.deep(value, source)
        for value, source in self.args[count:]:
            call.deep(value, source)
        missing = [name for name in names[:count + code.co_kwonlyargcount] if name not in found]
        for key in ("__defaults__", "__kwdefaults__") if missing else ():
            if (default := getattr(function, key)) is not None:
                call.see("slot", function, key, default)
        return found


def call_function(call: Call, frame: Any, function: Any, args: list[Argument], keywords: dict[str, Argument]) -> Any:
    """The source of the result, CHILD, NEW, or a function of the result that gives it."""
    kind = type(function)
    if kind is types.MethodType:
        return call_function(call, frame, function.__func__, [(function.__self__, None), *args], keywords)
    if kind is types.FunctionType:
        return _of_python(call, frame, function, args, keywords)
    if isinstance(function, functools.partial):
        if not call.is_fresh(function):
            call.deep(function.args)
            call.deep(function.keywords)
        return call_function(call, frame, function.func, [*((value, None) for value in function.args), *args],
                             {**{key: (value, None) for key, value in function.keywords.items()}, **keywords})
    if kind is _CACHED:
        _use_all(call, args, keywords)
        call.see("cache", function, None, MISSING)
        frame.targets = [Target(function.__wrapped__, args, keywords)] if isinstance(function.__wrapped__, types.FunctionType) else []
        return CHILD
    if kind in _GETTERS:
        return _getter(call, frame, function, args, keywords)
    if isinstance(function, type):
        return _of_class(call, frame, function, args, keywords)
    if kind.__flags__ & MADE_IN_PYTHON and is_python(kind, "__call__"):
        lookups.see_class(call, kind, "__call__", *in_class(kind, "__call__")[1:])
        found = in_class(kind, "__call__")[0]
        frame.targets = [Target(found, [(function, None), *args], keywords)] if isinstance(found, types.FunctionType) else []
        return CHILD
    if isinstance(getattr(function, "__self__", None), types.FunctionType) and function.__name__ == "__call__":
        return call_function(call, frame, function.__self__, args, keywords)
    return _of_c(call, frame, function, args, keywords)


def _of_python(call: Call, frame: Any, function: Any, args: list[Argument], keywords: dict[str, Argument]) -> Any:
    code = function.__code__
    call.see("code", function, None, code)
    if frame.tracer.is_opaque(code):
        if code.co_filename.startswith(_OURS):
            for _, source in [*args, *keywords.values()]:  # what code that runs apart reads is not looked at
                call.use(source)
        else:
            _use_all(call, args, keywords)
        # What a module of Python's library makes of a text is new.
        return lambda result: call.make_all(result) if isinstance(result, (list, dict)) else None
    target = Target(function, args, keywords)
    if code.co_flags & _GENERATORS:
        def made(result: Any) -> None:
            inner = next((found for key in ("gi_frame", "cr_frame", "ag_frame") if (found := getattr(result, key, None)) is not None), None)
            if inner is not None:
                frame.tracer.generators[id(inner)] = inner, target.variables(call)
            call.make(result)
        return made
    frame.targets = [target]
    return CHILD


def _of_class(call: Call, frame: Any, kind: type, args: list[Argument], keywords: dict[str, Argument],
              through_meta: bool = False) -> Any:
    if kind is type:
        _kinds(call, args)
        return call.make_class if len(args) == 3 else None
    meta = in_class(type(kind), "__call__")[0]
    if isinstance(meta, types.FunctionType) and not through_meta:
        _use_all(call, args, keywords)
        return CHILD
    if (row := row_of(kind)) is not None:
        if state := state_of(kind, kind.__name__):
            call.see("state", kind, state, MISSING)
        return _by_row(call, frame, kind, row, args, keywords)
    if not kind.__flags__ & MADE_IN_PYTHON:
        raise End(f"a class of C, {name_of(kind)}()")
    new, new_owner, below_new = in_class(kind, "__new__")
    init, init_owner, below_init = in_class(kind, "__init__")
    lookups.see_class(call, kind, "__new__", new_owner, below_new)
    lookups.see_class(call, kind, "__init__", init_owner, below_init)
    new = getattr(new, "__func__", new)
    for function in (new, init):
        owner = getattr(function, "__objclass__", None) or getattr(function, "__self__", None)
        if not isinstance(function, types.FunctionType) and owner is not object and row_of(function) is None and row_of(owner or object) is None:
            raise End(f"{name_of(function)}() makes an object of {name_of(kind)}")
    frame.targets = [Target(function, [(MISSING, None), *args], keywords) for function in (new, init) if isinstance(function, types.FunctionType)]
    if not frame.targets or not isinstance(init, types.FunctionType) and not isinstance(new, types.FunctionType):
        _use_all(call, args, keywords)
    frame.making = None if isinstance(new, types.FunctionType) else kind

    def made(result: Any) -> Any:
        if type(result) is kind and not isinstance(new, types.FunctionType):
            call.make(result)
            return None
        return frame.of_child(result)
    return made


def _of_c(call: Call, frame: Any, function: Any, args: list[Argument], keywords: dict[str, Argument]) -> Any:
    name = name_of(function)
    if (special := _SPECIAL.get(name)) is not None:
        return special(call, frame, function, args, keywords)
    if (by_key := _by_key(name)) is not None and isinstance(bound := _bound(function, args), dict):
        return by_key(call, bound, args if getattr(function, "__self__", None) is bound else args[1:])
    if function is builtins.__build_class__:
        return call.make_class
    row = row_of(function)
    if row is None:
        raise End(f"a function of C, {name}()")
    if state := state_of(function, name):
        call.see("state", getattr(function, "__self__", None) or function, state, MISSING)
    return _by_row(call, frame, function, row, args, keywords)


def _bound(function: Any, args: list[Argument]) -> Any:
    """The object whose method it is."""
    bound = getattr(function, "__self__", None)
    if bound is not None and not isinstance(bound, (types.ModuleType, type)):
        return bound
    return args[0][0] if args and owner_of(function) is not None else None


def _by_row(call: Call, frame: Any, function: Any, row: Any, args: list[Argument], keywords: dict[str, Argument]) -> Any:
    bound = _bound(function, args)
    name = getattr(function, "__name__", "")
    if row.looks_at == "all":
        if bound is not None and not (row.changes and name in _NO_READS):
            call.deep(bound)
        rest = args[1:] if row.changes and args and args[0][0] is bound else args
        if row.changes and name == "append" and call.is_fresh(bound) and isinstance(bound, list) and rest:
            call.write("item", bound, len(bound), rest[0][0], rest[0][1])
            return None
        _use_all(call, rest, keywords)
    elif row.looks_at == "kinds":
        _kinds(call, [*args, *keywords.values()])
    elif row.looks_at == "size":
        for value, source in args:
            call.use(source)
            if isinstance(value, (list, dict, set)) or type(value).__name__ == "deque":
                call.size(value)
            elif type(value).__name__.endswith(("_keys", "_values", "_items")):
                call.deep(value)
    else:
        for _, source in [*args, *keywords.values()]:
            call.use(source)
    if row.changes:
        call.written_whole(bound)
    if row.gives != "new":
        return CHILD
    given = {id(value) for value, _ in args}
    makes = call.make_all if is_torchs(function) else call.make
    return lambda result: frame.of_child(result) if frame.is_of_child(result) or id(result) in given else makes(result)


def _use_all(call: Call, args: list[Argument], keywords: dict[str, Argument]) -> None:
    for value, source in [*args, *keywords.values()]:
        call.deep(value, source)
        function = getattr(value, "func", value) if isinstance(value, functools.partial) else value
        if isinstance(function, (types.BuiltinFunctionType, types.MethodDescriptorType, types.MethodWrapperType, types.WrapperDescriptorType, *_GETTERS)):
            items = [item for each, _ in args if each is not value for item in (each if isinstance(each, (list, tuple)) else ())]
            _given_to_c(call, function, items)


def _given_to_c(call: Call, function: Any, items: list[Any]) -> None:
    """C may call it, for each of the items, and no instruction shows that."""
    name = name_of(function)
    if isinstance(function, (operator.attrgetter, operator.itemgetter)) and items:
        for item in items:
            call.use(_getter(call, None, function, [(item, None)], {}))
        return
    if call.is_fresh(getattr(function, "__self__", None)):
        call.written_whole(function.__self__)
        return
    row = row_of(function)
    if isinstance(function, _GETTERS) or name in _SPECIAL or row is None or row.changes or row.looks_at != "all":
        if not (row is not None and row.looks_at in ("kinds", "size", "nothing")):
            raise End(f"{name}() is given to a function of C")
    bound = getattr(function, "__self__", None)
    if bound is not None and not isinstance(bound, types.ModuleType):
        call.deep(bound)


def _kinds(call: Call, args: list[Argument]) -> None:
    for value, source in args:
        call.use(source)
        if lookups.is_changeable(type(value)) and not isinstance(value, type) and not call.is_fresh(value):
            call.see("class", value, None, type(value))


def _getter(call: Call, frame: Any, function: Any, args: list[Argument], keywords: dict[str, Argument]) -> Any:
    names = function.__reduce__()[1]
    value, source = args[0]
    call.use(source)
    if isinstance(function, operator.itemgetter):
        found = [lookups.item(call, value, key, None) for key in names]
        return found[0] if len(found) == 1 else _all_used(call, found)
    if isinstance(function, operator.methodcaller):
        lookups.attribute(call, value, names[0])
        call.deep(value)
        return CHILD
    sources = []
    for name in names:
        at, parts = value, name.split(".")
        for part in parts[:-1]:
            call.use(lookups.attribute(call, at, part))
            at = getattr(at, part)
        sources.append(lookups.attribute(call, at, parts[-1]))
    return sources[0] if len(sources) == 1 else _all_used(call, sources)


def _all_used(call: Call, sources: list[Any]) -> Any:
    for source in sources:
        call.use(source)
    return NEW


# --- functions that find places by names and keys


def _getattr(call: Call, frame: Any, function: Any, args: list[Argument], keywords: dict[str, Argument]) -> Any:
    for _, source in args[:2]:
        call.use(source)
    (value, _), (name, _) = args[0], args[1]
    if not isinstance(name, str):
        return CHILD
    found = lookups.attribute(call, value, name)
    if function.__name__ == "hasattr":
        call.use(found)
        return CHILD
    if len(args) > 2:
        default, source = args[2]
        return lambda result: source if result is default and found is CHILD else frame.resolve(found, result)
    return found


def _plain(call: Call, frame: Any, function: Any, args: list[Argument], keywords: dict[str, Argument]) -> Any:
    """object.__getattribute__(), bound or not."""
    if len(args) == 1:
        args = [(function.__self__, None), *args]
    value, name = args[0][0], args[1][0]
    call.use(args[1][1])
    return lookups.attribute(call, value, name) if isinstance(value, (type, types.ModuleType, torch.Tensor)) else lookups._of_object(call, value, name)


def _setattr(call: Call, frame: Any, function: Any, args: list[Argument], keywords: dict[str, Argument]) -> Any:
    if getattr(function, "__self__", None) is not None and not isinstance(function.__self__, types.ModuleType):
        args = [(function.__self__, None), *args]
    (value, _), (name, source_of_name) = args[0], args[1]
    call.use(args[0][1])
    call.use(source_of_name)
    new, source = args[2] if len(args) > 2 else (MISSING, None)
    if function.__name__ in ("__setattr__", "__delattr__") and not isinstance(value, (type, types.ModuleType)):
        own = dict_of(value)
        found = in_class(type(value), name)[0]
        if own is not None and not hasattr(type(found), "__set__"):
            call.write("entry", own, name, new, source, own.get(name, MISSING), value)
            return None
        lookups._store_by_descriptor(call, value, name, new, source, found)
        return CHILD
    lookups.store(call, value, name, new, source)
    return CHILD


def _make(call: Call, frame: Any, function: Any, args: list[Argument], keywords: dict[str, Argument]) -> Any:
    """type.__call__(), which a metaclass calls."""
    bound = getattr(function, "__self__", None)
    kind, args = (bound, args) if isinstance(bound, type) and bound is not type else (args[0][0], args[1:])
    return _of_class(call, frame, kind, args, keywords, through_meta=True)


def _namespace(call: Call, frame: Any, function: Any, args: list[Argument], keywords: dict[str, Argument]) -> Any:
    if not args:
        return None
    value, source = args[0]
    call.use(source)
    own = dict_of(value)
    if function.__name__ == "dir":
        if own is not None and not call.is_fresh(value):
            call.see("keys", own, None, len(own), value)
        return NEW
    if own is not None and call.is_fresh(value):
        call.make(own)
    call.owners[id(own)] = value
    return call.source("dict", value, None, own) if lookups.is_changeable(type(value)) or isinstance(value, types.FunctionType) else None


def _next(call: Call, frame: Any, function: Any, args: list[Argument], keywords: dict[str, Argument]) -> Any:
    call.use(args[0][1])
    if is_iterator(args[0][0]):
        call.iterator(args[0][0])
    return CHILD


def _iter(call: Call, frame: Any, function: Any, args: list[Argument], keywords: dict[str, Argument]) -> Any:
    call.use(args[0][1])
    value = args[0][0]
    if is_iterator(value):
        return CHILD
    if not is_python(type(value), "__iter__"):
        call.shallow(value)
    return lambda result: frame.of_child(result) if frame.is_of_child(result) else call.make(result)


def _get(call: Call, entries: dict[Any, Any], args: list[Argument]) -> Any:
    (key, source), default = args[0], args[1][1] if len(args) > 1 else None
    call.use(source)
    found = lookups.entry(call, entries, key)
    return default if found is CHILD else found


def _pop(call: Call, entries: dict[Any, Any], args: list[Argument]) -> Any:
    found = _get(call, entries, args)
    if dict.__contains__(entries, args[0][0]):
        call.use(found)
        call.write("entry", entries, args[0][0], MISSING, None, dict.get(entries, args[0][0]))
        call.written_whole(entries)
    return found


def _setdefault(call: Call, entries: dict[Any, Any], args: list[Argument]) -> Any:
    found = _get(call, entries, args)
    if not dict.__contains__(entries, args[0][0]):
        call.write("entry", entries, args[0][0], args[1][0] if len(args) > 1 else None, args[1][1] if len(args) > 1 else None)
    return found


def _set(call: Call, entries: dict[Any, Any], args: list[Argument]) -> Any:
    lookups.store_item(call, entries, args[0][0], args[1][0], args[1][1], args[0][1])
    return None


def _has(call: Call, entries: dict[Any, Any], args: list[Argument]) -> Any:
    call.deep(args[0][0], args[0][1])
    has(call, entries, args[0][0])
    return CHILD


def has(call: Call, entries: dict[Any, Any], key: Any) -> None:
    """Whether a dict has a key: that its value is there, or that none is."""
    if not call.is_written(entries) and not call.is_fresh(entries):
        there = dict.__contains__(entries, key)
        call.see("has" if there else "absent", entries, key, there if there else MISSING)


_BY_KEY: dict[str, Callable[..., Any]] = {"get": _get, "__getitem__": _get, "pop": _pop, "setdefault": _setdefault, "__setitem__": _set, "__contains__": _has}
_SPECIAL: dict[str, Callable[..., Any]] = {
    "builtins.getattr": _getattr, "builtins.hasattr": _getattr, "object.__getattribute__": _plain, "type.__getattribute__": _plain,
    "module.__getattribute__": _plain, "builtins.setattr": _setattr, "builtins.delattr": _setattr, "object.__setattr__": _setattr,
    "object.__delattr__": _setattr, "type.__setattr__": _setattr, "type.__delattr__": _setattr, "builtins.vars": _namespace, "builtins.globals": _namespace,
    "builtins.locals": _namespace, "builtins.dir": _namespace, "builtins.next": _next, "builtins.iter": _iter, "type.__call__": _make}


def _by_key(name: str) -> Callable[..., Any] | None:
    owner, _, method = name.rpartition(".")
    return _BY_KEY.get(method) if owner in ("dict", "OrderedDict", "defaultdict", "Counter") else None

