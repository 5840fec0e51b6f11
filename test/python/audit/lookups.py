"""How Python finds an attribute or an item: which places it looks at. A method or a property of the program shows its frame.

A look is told to the call (places.py) place by place: the class of the object, the classes above it that have not got the name, the one that
has, and the object's own dict.
"""
from __future__ import annotations

import collections
import types
from typing import Any

import torch

from overdrive.values.same import is_number

from places import MADE_IN_PYTHON, MISSING, Call, End, content, dict_behind, dict_of, is_changeable

# Attributes of C that stay as long as the object is the same one, or that its own content is made of, which is looked at where it is used.
_FIXED = {word for word in """
    __name__ __qualname__ __module__ __doc__ __class__ __globals__ __closure__ __annotations__ __type_params__ __kwdefaults__ __defaults__ __code__
    __builtins__ __func__ __self__ __text_signature__ __mro__ __bases__ __base__ __flags__ __abstractmethods__ __basicsize__ __wrapped__
    __isabstractmethod__ __objclass__ __thisclass__ __self_class__ __origin__ __args__ __parameters__ __traceback__ __cause__ __context__
    __suppress_context__ __callback__ __bound__ __constraints__ co_name co_filename co_varnames co_argcount co_flags co_freevars co_cellvars co_names
    co_consts co_firstlineno co_kwonlyargcount co_posonlyargcount co_code co_qualname co_nlocals func args keywords fget fset fdel start stop step
    f_back f_code f_locals f_globals f_lineno f_builtins f_lasti tb_next tb_frame tb_lineno tb_lasti gi_frame gi_code gi_running gi_yieldfrom value
    name obj path msg code errno strerror filename real imag numerator denominator year month day hour minute second microsecond tzinfo fold days
    seconds microseconds pattern flags groups groupindex string re pos endpos lastindex lastgroup default_factory maxlen nin nout ntypes format
    size encoding errors mode shape dtype ndim itemsize nbytes strides T flat""".split()}
_FUNCTIONS = (types.FunctionType, classmethod, staticmethod, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
              types.BuiltinFunctionType)


def in_class(kind: type, name: str) -> Any:
    return next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), MISSING)


def is_python(kind: type, name: str) -> bool:
    """Whether a method is code that a frame shows."""
    found = in_class(kind, name)
    found = getattr(found, "__func__", found) if isinstance(found, (classmethod, staticmethod)) else found
    return isinstance(found, (types.FunctionType, property)) or bool(
        type(found).__flags__ & MADE_IN_PYTHON and isinstance(in_class(type(found), "__call__"), types.FunctionType))


def see_class(call: Call, kinds: tuple[type, ...], name: str, hidden: bool = False) -> None:
    """The classes of Python that are asked for the name; ``hidden``: what the class has is not taken."""
    for each in kinds:
        is_here = name in vars(each)
        if each.__flags__ & MADE_IN_PYTHON and not (is_here and hidden):
            call.see_entry(dict_behind(vars(each)), name, each)
        if is_here:
            return


def attribute(call: Call, value: Any, name: str) -> None:
    """``value.name``"""
    kind = type(value)
    if isinstance(value, types.ModuleType):
        call.see_entry(vars(value), name, value)
    elif isinstance(value, type):
        meta = in_class(kind, name)
        if meta is MISSING or not hasattr(type(meta), "__set__"):
            see_class(call, value.__mro__, name)
    elif kind is super:
        above = value.__self_class__.__mro__
        see_class(call, above[above.index(value.__thisclass__) + 1:], name)
    elif not is_number(value) or kind.__flags__ & MADE_IN_PYTHON:
        if is_python(kind, "__getattribute__"):
            see_class(call, kind.__mro__, "__getattribute__")
        else:
            of_object(call, value, name)


def of_object(call: Call, value: Any, name: str) -> None:
    kind, found = type(value), in_class(type(value), name)
    own = None if kind is collections.OrderedDict else dict_of(value)
    is_asked = call.see_kind(value)
    if name in ("__dict__", "__class__"):
        see_dict(call, value)
        return
    is_data = found is not MISSING and hasattr(type(found), "__set__")
    # What the object has itself hides what its class has, and of a slot the guard asks for the attribute.
    see_class(call, kind.__mro__, name, hidden=type(found) is types.MemberDescriptorType or not is_data and own is not None and name in own)
    if is_data:
        _by_descriptor(call, value, name, found)
    elif own is not None and (found is MISSING or not isinstance(value, torch.Tensor)):
        if is_asked or isinstance(value, types.FunctionType):
            call.see("dict", value, None, own)
        call.see_entry(own, name, value)


def see_dict(call: Call, value: Any) -> None:
    """``vars(value)``"""
    own = dict_of(value)
    if own is not None:
        call.own(own, value)
        if is_changeable(type(value)) or isinstance(value, types.FunctionType):
            call.see("dict", value, None, own)


def _by_descriptor(call: Call, value: Any, name: str, found: Any) -> None:
    kind = type(value)
    if isinstance(found, property):
        if not isinstance(found.fget, types.FunctionType) and not kind.__module__.startswith("torch"):
            raise End(f"a property of C, {kind.__module__}.{kind.__name__}.{name}")
    elif not is_python(type(found), "__get__") and type(found).__name__ != "_tuplegetter":
        owner = found.__objclass__
        if (owner.__name__, name) == ("cell", "cell_contents"):
            call.see("cell", value, None, content(value))
        elif type(found) is types.MemberDescriptorType and is_changeable(owner):
            call.see("slot", value, name, getattr(value, name, MISSING))
        elif name not in _FIXED and not owner.__module__.startswith(("torch", "pybind11")):
            raise End(f"an attribute of C, {owner.__module__}.{owner.__name__}.{name}")


def store(call: Call, value: Any, name: str, plainly: bool = False) -> None:
    """``value.name = new`` or ``del value.name``; ``plainly``: as object.__setattr__() does it."""
    kind, own = type(value), dict_of(value)
    if isinstance(value, (type, types.ModuleType)):
        call.write_entry(dict_behind(vars(value)), name, value)
        return
    if not plainly and kind.__flags__ & MADE_IN_PYTHON and is_python(kind, "__setattr__"):
        see_class(call, kind.__mro__, "__setattr__")
        return
    found = in_class(kind, name)
    if found is MISSING or not hasattr(type(found), "__set__"):
        if own is not None:  # or it is an error
            call.write_entry(own, name, value)
    elif name in ("__class__", "__dict__"):
        call.write(name.strip("_"), value, None, kind if name == "__class__" else own)
    elif not isinstance(found, property) and not is_python(type(found), "__set__") and not isinstance(value, torch.Tensor):
        call.write("slot", value, name, getattr(value, name, MISSING))


def item(call: Call, value: Any, key: Any) -> None:
    """``value[key]``"""
    kind = type(value)
    call.deep(key)
    if kind.__flags__ & MADE_IN_PYTHON and is_python(kind, "__getitem__"):
        see_class(call, kind.__mro__, "__getitem__")
    elif isinstance(value, dict) or kind is types.MappingProxyType:
        entry(call, value, key)
    elif isinstance(value, (list, tuple)):
        if isinstance(key, slice):
            call.deep(value)
        elif hasattr(type(key), "__index__"):
            _of_list(call, value, key.__index__())
    elif not is_number(value) and not isinstance(value, (torch.Tensor, type)):
        call.deep(value)


def _of_list(call: Call, value: Any, index: int) -> None:
    if index < 0 or index >= len(value):
        call.size(value)
        index += len(value) if index < 0 else 0
    if isinstance(value, list) and index < len(value):
        call.see("item", value, index, list.__getitem__(value, index))


def entry(call: Call, entries: Any, key: Any) -> None:
    """A dict's entry, or that there is none."""
    call.deep(key)
    entries = dict_behind(entries)
    if not is_hashable(key) or call.is_written(entries) and not dict.__contains__(entries, key):
        return
    call.see_entry(entries, key)
    if type(entries).__name__ == "defaultdict" and not dict.__contains__(entries, key):
        call.write_entry(entries, key)


def has(call: Call, inside: Any, key: Any) -> None:
    """``key in inside``"""
    call.deep(key)
    inside = dict_behind(inside)
    if not isinstance(inside, dict) or is_python(type(inside), "__contains__"):
        call.deep(inside)
    elif not call.is_written(inside) and is_hashable(key):
        there = dict.__contains__(inside, key)
        call.see("has" if there else "absent", inside, key, there or MISSING)


def is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:  # which is the program's
        return False
    return True


def store_item(call: Call, value: Any, key: Any, deletes: bool = False) -> None:
    """``value[key] = new`` or ``del value[key]``"""
    kind, name = type(value), "__delitem__" if deletes else "__setitem__"
    if kind.__flags__ & MADE_IN_PYTHON and is_python(kind, name):
        call.deep(key)
        see_class(call, kind.__mro__, name)
    elif isinstance(value, dict):
        store_entry(call, value, key, deletes)
    elif isinstance(value, list) and isinstance(key, int) and not deletes and -len(value) <= key < len(value):
        call.deep(key)
        call.write("item", value, key % len(value), value[key])
    elif not isinstance(value, torch.Tensor):
        call.deep(key)
        call.deep(value)
        call.write_all(value)


def store_entry(call: Call, entries: dict[Any, Any], key: Any, deletes: bool = False) -> None:
    call.deep(key)
    if is_hashable(key):
        call.write_entry(entries, key)
        if deletes:
            call.write_all(entries)
