"""How Python finds an attribute: which places it looks at, and from which of them the value comes.

A look is told to the call (places.py) place by place: the class of the object, the classes above it that have not got the name, the one that
has, and the object's own dict.
"""
from __future__ import annotations

import collections
import gc
import types
from typing import Any

import torch

from overdrive._guards import is_number

from c_functions import FIXED_ATTRIBUTES, STATES
from places import MISSING, Call, End, dict_of, entries_of_class, is_of_bytes

# What a frame that the interpreter has entered meanwhile returned; and something that is new.
CHILD, NEW = object(), object()
MADE_IN_PYTHON, _IMMUTABLE = 1 << 9, 1 << 8
_FUNCTIONS = (types.FunctionType, classmethod, staticmethod, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
              types.BuiltinFunctionType)
# Of tensors, what no operator looks at.
_OF_TENSORS = ("grad", "requires_grad", "is_leaf", "_version", "_backward_hooks", "_post_accumulate_grad_hooks", "retains_grad")


def is_changeable(kind: type) -> bool:
    """A class of Python, whose objects may get another one."""
    return bool(kind.__flags__ & MADE_IN_PYTHON) and not kind.__flags__ & _IMMUTABLE and not _is_of_c(kind)


def _is_of_c(kind: type) -> bool:
    """Made in C, as functools.partial is: Python notes the module by __module__, and no function lies in it."""
    return kind.__module__ in ("functools", "_functools", "types", "_thread", "_io", "collections", "itertools", "_random")


def in_class(kind: type, name: str) -> tuple[Any, type | None, list[type]]:
    """What a class has under a name, the class that has it, and those of Python that were asked before."""
    below = []
    for each in kind.__mro__:
        if name in vars(each):
            return vars(each)[name], each, below
        if each.__flags__ & MADE_IN_PYTHON:
            below.append(each)
    return MISSING, None, below


def is_python(kind: type, name: str) -> bool:
    """Whether a method is code that a frame shows."""
    found = in_class(kind, name)[0]
    found = getattr(found, "__func__", found) if isinstance(found, (classmethod, staticmethod)) else found
    return isinstance(found, (types.FunctionType, property)) or type(found) not in _FUNCTIONS and is_python_object(found)


def is_python_object(value: Any) -> bool:
    return type(value).__flags__ & MADE_IN_PYTHON != 0 and isinstance(in_class(type(value), "__call__")[0], types.FunctionType)


def see_class(call: Call, kind: type, name: str, owner: type | None, below: list[type]) -> None:
    if name in ("__dict__", "__class__"):
        return
    for each in below:
        call.see("absent", entries_of_class(each), name, MISSING, each)
    if owner is not None and owner.__flags__ & MADE_IN_PYTHON:
        call.see("entry", entries_of_class(owner), name, vars(owner)[name], owner)


def attribute(call: Call, value: Any, name: str) -> Any:
    """The source of ``value.name``; CHILD, where a frame shows it."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return _of_tensor(call, value, name)
    if isinstance(value, types.ModuleType):
        return _of_module(call, value, name)
    if isinstance(value, type):
        return _of_class(call, value, name)
    if kind is super:
        return _of_super(call, value, name)
    if is_number(value) and not kind.__flags__ & MADE_IN_PYTHON:
        return None
    if is_python(kind, "__getattribute__"):
        return CHILD
    return _of_object(call, value, name)


def _of_tensor(call: Call, value: Any, name: str) -> Any:
    found = in_class(type(value), name)[0]
    if isinstance(found, property) or found is not MISSING and is_python_object(found):
        return CHILD
    own = value.__dict__
    if found is MISSING:
        return call.source("entry", own, name, own[name], value) if name in own else (call.see("absent", own, name, MISSING, value), CHILD)[1]
    if name in _OF_TENSORS and not call.is_fresh(value):
        return call.source("tensor", value, name, getattr(value, name, MISSING))
    return NEW if isinstance(found, _FUNCTIONS) else None


def _of_module(call: Call, value: Any, name: str) -> Any:
    own = vars(value)
    if name in own:
        return call.source("entry", own, name, own[name], value)
    call.see("absent", own, name, MISSING, value)
    return CHILD


def _of_class(call: Call, value: type, name: str) -> Any:
    meta, owner, below = in_class(type(value), name)
    if meta is not MISSING and hasattr(type(meta), "__set__"):
        return CHILD if isinstance(meta, property) or is_python_object(meta) else None
    found, owner, below = in_class(value, name)
    see_class(call, value, name, owner, below)
    if found is MISSING:
        return CHILD  # of the metaclass, or an error
    if is_python(type(found), "__get__"):
        return CHILD
    if isinstance(found, classmethod):
        return NEW
    return call.source("entry", entries_of_class(owner), name, found, owner) if owner is not None else None


def _of_super(call: Call, value: Any, name: str) -> Any:
    kind = value.__self_class__
    above = kind.__mro__[kind.__mro__.index(value.__thisclass__) + 1:]
    for each in above:
        if name in vars(each):
            if each.__flags__ & MADE_IN_PYTHON:
                call.see("entry", entries_of_class(each), name, vars(each)[name], each)
            return CHILD if isinstance(vars(each)[name], property) else NEW
        if each.__flags__ & MADE_IN_PYTHON:
            call.see("absent", entries_of_class(each), name, MISSING, each)
    return CHILD


def _of_object(call: Call, value: Any, name: str) -> Any:
    kind = type(value)
    found, owner, below = in_class(kind, name)
    fresh = call.is_fresh(value)
    if is_changeable(kind) and not fresh:
        call.see("class", value, None, kind)
    if found is not MISSING and hasattr(type(found), "__set__"):
        # Of a slot the guard asks for the attribute.
        see_class(call, kind, name, None if type(found) is types.MemberDescriptorType else owner, below)
        return _by_descriptor(call, value, name, found)
    own = None if fresh and not kind.__flags__ & MADE_IN_PYTHON or kind is collections.OrderedDict else dict_of(value)
    # What the object has itself hides what its class has.
    see_class(call, kind, name, None if own is not None and name in own else owner, below)
    if own is not None:
        if not fresh and (is_changeable(kind) or isinstance(value, types.FunctionType)):
            call.see("dict", value, None, own)
        if name in own:
            return call.source("entry", own, name, own[name], value)
        call.see("absent", own, name, MISSING, value)
    if found is MISSING or is_python(type(found), "__get__"):
        return CHILD
    if isinstance(found, _FUNCTIONS):
        return NEW
    return call.source("entry", entries_of_class(owner), name, found, owner) if owner is not None else None


def _by_descriptor(call: Call, value: Any, name: str, found: Any) -> Any:
    kind = type(value)
    if isinstance(found, property):
        if not isinstance(found.fget, types.FunctionType):
            raise End(f"a property of C, {kind.__module__}.{kind.__name__}.{name}")
        return CHILD
    if is_python(type(found), "__get__"):
        return CHILD
    if type(found).__name__ == "_tuplegetter":
        return call.source("item", value, found.__reduce__()[1][0], getattr(value, name)) if call.is_fresh(value) else None
    owner = found.__objclass__
    if type(found) is types.MemberDescriptorType and is_changeable(owner):
        return call.source("slot", value, name, getattr(value, name, MISSING))
    if name == "__dict__":
        own = dict_of(value)
        if call.is_fresh(value) and own is not None:
            call.make(own)
        call.owners[id(own)] = value
        return call.source("dict", value, None, own) if is_changeable(kind) or kind is types.FunctionType else None
    known = (owner.__name__, name)
    if name in FIXED_ATTRIBUTES.get(owner.__name__, ()) or owner.__module__.startswith(("torch", "pybind11")) or name in ("__class__", "__doc__", "__module__"):
        return None
    if known in STATES:
        return call.source("slot", value, name, getattr(value, name, MISSING))
    if is_of_bytes(value):
        return None if name not in ("T", "flat", "real", "imag") else (call.deep(value), NEW)[1]
    raise End(f"an attribute of C, {owner.__module__}.{owner.__name__}.{name}")


def store(call: Call, value: Any, name: str, new: Any, source: Any) -> None:
    """``value.name = new``; of MISSING, ``del``. Methods of the program's show their frames."""
    kind = type(value)
    if isinstance(value, type):
        entries = entries_of_class(value)
        call.write("entry", entries, name, new, source, entries.get(name, MISSING), value)
        return
    if isinstance(value, types.ModuleType):
        call.write("entry", vars(value), name, new, source, vars(value).get(name, MISSING), value)
        return
    if kind.__flags__ & MADE_IN_PYTHON and is_python(kind, "__setattr__"):
        call.use(source)
        return
    found = in_class(kind, name)[0]
    if found is not MISSING and hasattr(type(found), "__set__"):
        _store_by_descriptor(call, value, name, new, source, found)
        return
    own = dict_of(value)
    if own is None:
        return  # an error
    call.write("entry", own, name, new, source, own.get(name, MISSING), value)


def _store_by_descriptor(call: Call, value: Any, name: str, new: Any, source: Any, found: Any) -> None:
    if isinstance(found, property) or is_python(type(found), "__set__"):
        call.use(source)
    elif isinstance(value, torch.Tensor):
        call.use(source)
        if not call.is_fresh(value):
            call.write("tensor", value, name, new, source, getattr(value, name, MISSING))
    elif name == "__class__":
        call.write("class", value, None, new, source, type(value))
    elif name == "__dict__":
        call.write("dict", value, None, new, source, dict_of(value))
    else:
        call.write("slot", value, name, new, source, getattr(value, name, MISSING))


def item(call: Call, value: Any, key: Any, source_of_key: Any) -> Any:
    """The source of ``value[key]``."""
    kind = type(value)
    call.use(source_of_key)
    if kind.__flags__ & MADE_IN_PYTHON and is_python(kind, "__getitem__"):
        return CHILD
    if isinstance(value, torch.Tensor):
        call.deep(key)
        return NEW
    if isinstance(value, dict):
        factory = getattr(value, "default_factory", None) if kind.__name__ == "defaultdict" else None
        is_made = factory in (list, dict, set) and not dict.__contains__(value, key)
        return _made_by_default(call, value, key) if is_made else entry(call, value, key)
    if isinstance(value, (list, tuple)) or kind.__name__ == "deque":
        if kind.__name__ == "deque":
            call.deep(value)
            return None
        if isinstance(key, slice):
            call.deep(key)
            call.deep(value)
            return NEW
        try:
            index = key.__index__()
        except (AttributeError, TypeError):
            return CHILD
        if index < 0:
            call.size(value)
            index += len(value)
        if not 0 <= index < len(value):
            call.size(value)
            return CHILD  # an error
        if isinstance(value, tuple) and not call.is_fresh(value):
            return None
        return call.source("item", value, index, list.__getitem__(value, index) if isinstance(value, list) else value[index])
    if kind is types.MappingProxyType:
        return entry(call, gc.get_referents(value)[0], key)
    if is_of_bytes(value):
        call.deep(key)
        call.deep(value)
        return NEW
    if is_number(value) or isinstance(value, (type, range, types.GenericAlias)):
        call.deep(key)
        return CHILD
    if kind.__module__.startswith(("torch", "numpy", "typing", "re", "_ctypes", "ctypes")):
        call.deep(key)
        call.deep(value)
        if kind.__module__.startswith(("_ctypes", "ctypes")):
            call.see("bytes", value, None, MISSING)
        return CHILD
    raise End(f"[] of {kind.__module__}.{kind.__name__}")


def _made_by_default(call: Call, value: Any, key: Any) -> Any:
    call.use(entry(call, value, key))
    call.write("entry", value, key, None, None)
    return NEW


def entry(call: Call, entries: dict[Any, Any], key: Any) -> Any:
    try:
        found = dict.get(entries, key, MISSING)
    except TypeError:
        return CHILD
    call.deep(key)
    if found is not MISSING:
        return call.source("entry", entries, key, found)
    if not call.is_written(entries):
        call.see("absent", entries, key, MISSING)
    return CHILD  # __missing__(), or an error


def store_item(call: Call, value: Any, key: Any, new: Any, source: Any, source_of_key: Any) -> None:
    kind = type(value)
    call.use(source_of_key)
    if kind.__flags__ & MADE_IN_PYTHON and is_python(kind, "__setitem__" if new is not MISSING else "__delitem__") or isinstance(value, torch.Tensor):
        call.use(source)
        call.deep(key)
        call.deep(new)
    elif isinstance(value, dict):
        call.write("entry", value, key, new, source, dict.get(value, key, MISSING))
    elif isinstance(value, list) and isinstance(key, int) and new is not MISSING:
        index = key if key >= 0 else key + len(value)
        call.write("item", value, index, new, source, value[index] if 0 <= index < len(value) else MISSING)
    else:
        call.deep(key)
        call.deep(new, source)
        call.deep(value)
        call.written_whole(value)


