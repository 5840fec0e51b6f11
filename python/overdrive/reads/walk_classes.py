"""What stands in classes, and what objects of a class have or have not."""
from __future__ import annotations

import sys
import types
from collections.abc import Container
from typing import Any, NamedTuple

from overdrive.reads.code import file_of
from overdrive.reads.owners import module_of
from overdrive.reads.walk_globals import Globals
from overdrive.reads.walk_places import NOT_FOLLOWED, is_pythons_own
from overdrive.values.read import ATTRIBUTE, DICT, ENTRY, KEYS, SIZE, VALUES, Read, entries_of
from overdrive.values.same import MADE_IN_PYTHON, is_torchs

# Py_TPFLAGS_IMMUTABLETYPE.
_IMMUTABLE = 1 << 8
# Attributes of an object, and items of a container, that are looked at.
MOST_ITEMS = 1024
# Attributes of a class that are compared in each call; of more, as torch.Tensor has, how many there are.
_MOST_KEYS = 256
# Functions of a class that no code names where it calls them.
_CALLED = ("forward", "__call__")
_KEPT_BY_C = (types.MemberDescriptorType, types.GetSetDescriptorType)
# Of each class, beside its attributes and its order, which are looked at by themselves.
_KEPT_BY_TYPES = frozenset(name for name, each in vars(type).items() if isinstance(each, _KEPT_BY_C)) - {"__dict__", "__mro__"}
_METHODS_OF_C = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
_FUNCTIONS_OF_C = (*_METHODS_OF_C, types.BuiltinFunctionType)
# Modules of classes that add no attribute to an object.
_OF_NO_OBJECT = ("builtins", "abc", "typing", "collections.abc", "_collections_abc")
_OF_EACH_CLASS = ("__dict__", "__weakref__", "__module__", "__doc__", "__slots__", "_abc_impl")
_OF_TYPE = frozenset({*vars(type), *vars(object)})
_NO_FUNCTIONS = (types.FunctionType, str, int, float, bool, type(None), tuple, dict)


class _Members(NamedTuple):
    """What one class has, apart from what C made: names, and the code of functions."""

    names: tuple[str, ...]
    codes: tuple[types.CodeType | None, ...]


class Classes(Globals):
    """Each class is looked at once for as many names as are known."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # What every class has, with the code of its functions.
        self._members: dict[type, _Members] = {}
        self._slots: dict[type, list[str]] = {}
        # Names in a class and in those above it, for as long as the walk goes on.
        self._in_kinds: dict[type, frozenset[str]] = {}
        self._names_known: set[str] = set()
        self._count_of_names = 0
        # What is found in a class, as long as no more code or names are known.
        self._in_classes: dict[type, dict[str, str]] = {}
        self._of_owner: dict[type, dict[str, str]] = {}
        self._of_own_object: dict[tuple[type, int], dict[str, str]] = {}
        self._not_in_classes: dict[tuple[type, int], dict[str, str]] = {}
        self._names_of_kind: dict[type, dict[str, str]] = {}
        self._asked_of_kind: dict[type, dict[str, str]] = {}
        self._torchs_functions: dict[type, dict[str, str]] = {}

    def _asked_of(self, kind: type) -> dict[str, str]:
        """Attributes that code asks of a module of the class, and that it may not have."""
        found = self._asked_of_kind.get(kind)
        if found is None:
            found = self._asked_of_kind[kind] = {**self._asked, **self._of_methods(kind, self._asked_of_self)}
        return found

    def _functions_of_torch(self, kind: type) -> dict[str, str]:
        """Functions of PyTorch's classes that code names, and that an object may get for itself."""
        found = self._torchs_functions.get(kind)
        if found is None:
            has = {key for each in kind.__mro__ if is_torchs(each.__module__) for key, value in vars(each).items()
                   if isinstance(value, types.FunctionType)}
            found = self._torchs_functions[kind] = {key: where for key, where in self._nn_attributes.items() if key in has and key != "forward"}
        return found

    def _slots_of(self, kind: type) -> list[str]:
        """What C keeps of an object by name."""
        found = self._slots.get(kind)
        if found is None:
            found = self._slots[kind] = [key for each in kind.__mro__ for key, member in vars(each).items()
                                         if isinstance(member, _KEPT_BY_C) and key not in _OF_EACH_CLASS]
        return found

    def _names_for(self, kind: type) -> dict[str, str]:
        """What the code names that may ask an object of the class."""
        found = self._names_of_kind.get(kind)
        if found is None:
            found = self._names_of_kind[kind] = self._names_for_kind(kind)
        return found

    def _names_for_kind(self, kind: type) -> dict[str, str]:
        if is_torchs(kind.__module__):
            return self._nn_attributes
        names = self._attributes
        if any(is_torchs(each.__module__) for each in kind.__mro__):
            names = self._nn_attributes
        if kind.__module__ == "logging":  # what it does with a message is no reason
            return self._attributes
        if any(_is_of_the_library(each.__module__) for each in kind.__mro__):
            names = {**names, **self._standard_attributes}
        for key in getattr(kind, "__match_args__", ()) if "__match_args__" in names else ():
            self._note_optional(key, names["__match_args__"])
        return names

    def _same_dict(self, value: Any, name: str) -> None:
        """That no other dict comes in the place of an object's own."""
        kind = type(value)
        found = next((vars(each)["__dict__"] for each in kind.__mro__ if "__dict__" in vars(each)), None)
        if isinstance(found, types.GetSetDescriptorType):  # and no property
            read = Read(DICT, value, None, f"the attributes of {name}")
            self.reads.setdefault(read.place, read)

    def _whole_of(self, entries: dict[str, Any], own: Container[str], pieces: dict[str, str], name: str, depth: int) -> None:
        """All attributes of an object, or those with a part of a name, where code finds them by names that are values."""
        if not pieces:
            return
        self._whole.setdefault(id(entries), set()).update(pieces)
        if len(entries) > MOST_ITEMS:
            self.refusals.append(f"The function finds attributes of `{name}` by names that it computes, of which it has more than {MOST_ITEMS}; "
                                 "write the names, or promise by guards=\"promised\" that they do not change.")
            return
        self.notes.kinds(entries)
        # An iterator or a file that no code names is no reason to doubt a number.
        keys = [key for key, value in entries.items() if key not in own and not hasattr(type(value), "__next__")]
        found = {key: where for piece, where in pieces.items() for key in keys if piece in key}
        self._read(KEYS, entries, None, f"the attributes of {name}", next(iter(pieces.values())), NOT_FOLLOWED)
        self._entries(entries, found, name, depth)

    def _absent(self, kind: type, own: dict[str, Any], names: dict[str, str], name: str, depth: int) -> None:
        """Attributes that the object may not have: neither it nor its classes may get them."""
        for key in names.keys() & own.keys():
            self._read(ENTRY, own, key, f"{name}.{key}", names[key], depth)
        self._absent_in(own).add_table(names, name)
        self._absent_in_classes(kind, names)

    def _absent_in_classes(self, kind: type, names: dict[str, str]) -> None:
        """Those that none of the classes has."""
        if (kind, id(names)) in self._not_in_classes:
            return
        found = {key: names[key] for key in names.keys() - self._names_in(kind)}
        # Kept with the names, so that no others come to their place in memory.
        self._not_in_classes[kind, id(names)] = names
        for each in kind.__mro__ if found else ():
            if each.__flags__ & MADE_IN_PYTHON:
                self._absent_in(entries_of(each)).add_table(found, each.__name__)

    def _class(self, kind: type, name: str, depth: int) -> None:
        self._class_values(kind, None, name, depth)
        if not kind.__flags__ & MADE_IN_PYTHON:
            return
        self._class_values(type(kind), entries_of(kind), name, depth)
        for each in (kind, type(kind)):
            self._whole_of_classes(each, self._found.pieces_of(kind), depth)
        self._absent_in_classes(kind, {key: self._optional[key] for key in self._optional.keys() - self._names_in(kind) if not _has(kind, key)})

    def _whole_of_classes(self, kind: type, pieces: dict[str, str], depth: int) -> None:
        """What a class and those above it have."""
        for each in kind.__mro__ if pieces else ():
            if not each.__flags__ & MADE_IN_PYTHON:
                continue
            if is_torchs(each.__module__) or _is_of_the_library(each.__module__):
                self._read(VALUES, entries_of(each), None, f"what {each.__name__} has", next(iter(pieces.values())), NOT_FOLLOWED)
            else:
                self._whole_of(entries_of(each), _OF_EACH_CLASS, pieces, each.__name__, depth)

    def _names_in(self, kind: type) -> frozenset[str]:
        """What the class and those above it have."""
        found = self._in_kinds.get(kind)
        if found is None:
            found = self._in_kinds[kind] = frozenset().union(*(vars(each) for each in kind.__mro__))
        return found

    def _class_values(self, kind: type, own: dict[str, Any] | None, name: str, depth: int) -> None:
        """Values and functions of a class and of those above it. ``own``: what the instance has itself."""
        found = self._in_classes.get(kind)
        if found is None:
            found = self._in_classes[kind] = self._values_of_class(kind, name, depth)
        if own is not None:
            self._absent_in(own).add_table(found, name)

    def _values_of_class(self, kind: type, name: str, depth: int) -> dict[str, str]:
        """The names of what the class has, each with its line."""
        names: dict[str, str] = {}
        below: list[type] = []
        is_known = is_torchs(kind.__module__) or _is_of_the_library(kind.__module__)
        if kind.__flags__ & MADE_IN_PYTHON and kind.__bases__ != (object,) and not is_known:
            self._read(ATTRIBUTE, kind, "__mro__", f"the classes above {kind.__name__}", "", NOT_FOLLOWED)
        for owner in kind.__mro__:
            if not is_pythons_own(owner):
                found = self._of_owner.get(owner)
                if found is None:
                    found = self._of_owner[owner] = self._values_of_owner(owner, name, depth)
                # The instance and the classes below may get the name for themselves.
                for each in below:
                    self._absent_in(entries_of(each)).add_table(found, each.__name__)
                names.update(found)
            if owner.__flags__ & MADE_IN_PYTHON:
                below.append(owner)
        return names

    def _values_of_owner(self, owner: type, name: str, depth: int) -> dict[str, str]:
        """Those that stand in one class."""
        members, entries = self._members_of(owner), entries_of(owner)
        # Python asks for methods that nobody names, as __len__ and __eq__, which a class may get.
        self._read(KEYS if len(entries) <= _MOST_KEYS else SIZE, entries, None, f"the attributes of {owner.__name__}", "", NOT_FOLLOWED)
        named = {**self._nn_attributes, **self._attributes}
        for key in sorted(_KEPT_BY_TYPES & named.keys()) if owner.__flags__ & MADE_IN_PYTHON else ():
            if key != "__annotations__" or key in entries or "__annotations_cache__" in entries:  # else it would be made
                self._read(ATTRIBUTE, owner, key, f"{owner.__name__}.{key}", named[key], depth)
        ours, others, ran = self._attributes, self._standard_attributes, self._names_of_codes()
        found = [key for key, code in zip(members.names, members.codes)
                 if key in ours or key in others or key in _CALLED or code is not None and code.co_name in ran and (
                     code in self._codes or code in self._watcher.standard_codes)]
        for key in members.names if _can_be_changed(owner) else ():  # Python calls those of its protocols
            if key.startswith("__") and isinstance(entries[key], _FUNCTIONS_OF_C):
                self._read(ENTRY, entries, key, f"{owner.__name__}.{key}", "", NOT_FOLLOWED)
        names = {key: self._attributes.get(key, "") or self._standard_attributes.get(key, "") for key in found}
        for key, where in names.items():
            value = entries[key]
            self._read(ENTRY, entries, key, f"{owner.__name__}.{key}", where, depth)
            function = _function_in(value)
            # Of pybind11's classes in PyTorch a method is no value of the program's.
            if function is not value and not (is_torchs(owner.__module__) and isinstance(function, types.BuiltinFunctionType)):
                self._into(function, f"{name}.{key}", where, depth + 1)
        return names

    def _names_of_codes(self) -> set[str]:
        """Of all code: what a code is compared for whose name is among them, since Python compares whole codes."""
        if self._count_of_names != len(self._codes):
            self._names_known = {code.co_name for codes in (self._codes, self._watcher.standard_codes) for code in codes}
            self._count_of_names = len(self._codes)
        return self._names_known

    def _members_of(self, owner: type) -> _Members:
        found = self._members.get(owner)
        if found is None:
            of_c = _KEPT_BY_C if _can_be_changed(owner) else (*_KEPT_BY_C, *_METHODS_OF_C)
            members = {key: value for key, value in list(vars(owner).items()) if not isinstance(value, of_c)}
            codes = [getattr(_function_in(value), "__code__", None) for value in members.values()]
            self.notes.members(owner, (key for key, code in zip(members, codes) if code is not None))
            found = self._members[owner] = _Members(tuple(members), tuple(code if isinstance(code, types.CodeType) else None for code in codes))
        return found

    def _of_methods(self, kind: type, names_of_code: dict[types.CodeType, dict[str, str]]) -> dict[str, str]:
        """What the methods of a class ask of their own object."""
        if not names_of_code:
            return {}
        found = self._of_own_object.get((kind, id(names_of_code)))
        if found is None:
            found = self._of_own_object[kind, id(names_of_code)] = {}
            names = {code.co_name for code in names_of_code}
            for each in kind.__mro__:
                for code in self._members_of(each).codes:
                    if code is not None and code.co_name in names and code in names_of_code:
                        found.update(names_of_code[code])
        return found


def _can_be_changed(kind: type) -> bool:
    """Whether a program may give the class another attribute, as none of C's own."""
    return bool(kind.__flags__ & MADE_IN_PYTHON) and not kind.__flags__ & _IMMUTABLE


def _is_of_the_library(name: str) -> bool:
    """Whether a module, by its name, is of Python's library, and its objects have attributes of their own."""
    return name not in _OF_NO_OBJECT and bool(module_of(file_of(sys.modules.get(name))))


def _has(kind: type, key: str) -> bool:
    """Of a name that neither the class nor those above it have: whether its metaclass has or makes it."""
    return (type(kind) is not type or key in _OF_TYPE) and hasattr(kind, key)


def _function_in(value: Any) -> Any:
    """Of what a class has under a name: the function that runs, if it is one."""
    if type(value) in _NO_FUNCTIONS:
        return value
    for name in ("fget", "__func__", "func", "dispatcher"):
        if not isinstance(value, types.FunctionType) and (function := getattr(value, name, None)) is not None:
            return getattr(function, "dispatch", function) if name == "dispatcher" and not callable(function) else function
    return value
