"""Places of a program that a call reads and writes, and what the call has made itself.

A value that an instruction takes from a place is used, whatever becomes of it. What a call makes is fresh, and has no places.
"""
from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from overdrive.effects.assigned import _Float, _Whole
from overdrive.numbers.tracked import Tracked, TrackedWhole
from overdrive.values.reads import Held
from overdrive.values.same import is_number

from value_stack import is_held_by

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()
MADE_IN_PYTHON, _IMMUTABLE = 1 << 9, 1 << 8
_DEEPEST = 12
_VIEWS = ("dict_keys", "dict_values", "dict_items", "odict_keys", "odict_values", "odict_items", "mappingproxy")
_BYTES = ("ndarray", "bytearray", "array", "memoryview")
# Objects of C that have no content, or one that no instruction and no function in the table changes.
_SEALED = (type(None), type(Ellipsis), type(NotImplemented), type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.CodeType, types.FrameType,
           types.TracebackType, types.GeneratorType, types.WrapperDescriptorType, types.MethodDescriptorType, types.MethodWrapperType, types.GetSetDescriptorType,
           types.MemberDescriptorType, types.ClassMethodDescriptorType, types.GenericAlias, types.UnionType, weakref.ref, property, super, range, BaseException, torch.Tensor)
_SEALED_NAMES = ("lock", "RLock", "TextIOWrapper", "PyCapsule", "Context", "ContextVar", "Token", "Pattern", "Match", "Struct", "attrgetter", "itemgetter", "methodcaller",
                 "_lru_cache_wrapper", "TypeVar", "date", "datetime", "timedelta", "time", "timezone", "Decimal", "EncodedFile", "StringIO", "BytesIO", "Random")


class End(Exception):
    """The auditor does not know what an instruction, a function or an object of C does."""


class Gone:
    """An object that is kept no longer."""

    __slots__ = ("address", "kind")

    def __init__(self, value: Any) -> None:
        self.address, self.kind = id(value), type(value)

    def __repr__(self) -> str:
        return f"<{self.kind.__name__}>"


class Kept:
    """An object that a call keeps, and that dies as it would after it."""

    __slots__ = ("_held", "_weak")

    def __init__(self, value: Any) -> None:
        # Held is how Overdrive knows that nobody of the program holds an object.
        self._held, self._weak = Held([value]), None

    def __call__(self) -> Any:
        return self._weak() if self._weak is not None else self._held[0]

    def let_go(self, owner: Kept | None) -> None:
        """What is the dict of an object is found by it."""
        value = self._held[0]
        if owner is not None and dict_of(owner()) is value:
            self._weak = lambda: dict_of(owner())
        else:
            self._weak = _weakly(value)
        if self._weak is not None or is_held_by(value):
            self._held[0] = None


class Place:
    """One place, what stood there, the line that read or wrote it, and whether PyTorch's code did. The owner is the object whose dict or list the holder
    is. The kinds: entry, has, absent, keys, size, contents, item, cell, slot, class, dict, bytes, context, code, iterator, cache."""

    __slots__ = ("kind", "key", "value", "where", "by_torch", "number", "kept", "kept_owner")

    def __init__(self, kind: str, kept: Kept, key: Any, value: Any, kept_owner: Kept, where: str, by_torch: bool) -> None:
        self.kind, self.key, self.where, self.by_torch, self.number = kind, key, where, by_torch, id(kept())
        self.kept, self.kept_owner = kept, kept_owner
        # Numbers that Overdrive follows may not be kept.
        self.value = int.__int__(value) if isinstance(value, (TrackedWhole, _Whole)) else float.__float__(value) if isinstance(value, (Tracked, _Float)) else value

    @property
    def holder(self) -> Any:
        return self.kept()

    @property
    def owner(self) -> Any:
        return self.kept_owner()

    def forget(self) -> None:
        """What stood there dies as it would."""
        if not is_number(self.value) and self.value is not MISSING:
            self.value = Gone(self.value)

    def is_alive(self) -> bool:
        return self.owner is not None and id(self.holder) == self.number

    def was(self, value: Any) -> bool:
        """Whether the very object stood there."""
        return self.value is value or isinstance(self.value, Gone) and self.value.address == id(value)

    def told(self) -> str:
        named = isinstance(self.owner, (type, types.ModuleType, types.FunctionType))
        owner = self.owner.__name__ if named else type(self.owner).__name__
        key = "" if self.key is None else f"[{self.key!r}]" if is_number(self.key) else f"[<{type(self.key).__name__}>]"
        value = repr(self.value) if is_number(self.value) or self.value is MISSING or isinstance(self.value, Gone) else f"<{type(self.value).__name__}>"
        return f"{self.where}: {self.kind} {owner}{key} = {value[:60]}"


def dict_of(value: Any) -> dict[str, Any] | None:
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def dict_behind(value: Any) -> Any:
    """Of a view of a dict the dict."""
    while type(value).__name__ in _VIEWS:
        value = gc.get_referents(value)[0]
    return value


def content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def is_changeable(kind: type) -> bool:
    """A class of Python, whose objects may get another one. Of those that C makes, as functools.partial, Python notes the module by __module__."""
    return bool(kind.__flags__ & MADE_IN_PYTHON) and not kind.__flags__ & _IMMUTABLE and kind.__module__ not in (
        "functools", "_functools", "types", "_thread", "_io", "collections", "itertools", "_random", "ctypes")


def _weakly(value: Any) -> Any:
    if isinstance(value, torch.Tensor):  # swap_tensors() wants none with weak references
        return None if value.is_leaf else lambda: None
    try:
        return weakref.ref(value)
    except TypeError:
        return None


def is_iterator(value: Any) -> bool:
    """Of C's own: one of the program's class shows its frames."""
    return hasattr(type(value), "__next__") and not type(value).__flags__ & MADE_IN_PYTHON


class Call:
    """What one call reads, writes and makes."""

    def __init__(self) -> None:
        self.read: dict[tuple[str, int, Any], Place] = {}
        self.written: dict[tuple[str, int, Any], Place] = {}
        self._fresh: dict[int, Any] = {}
        # Of containers that are attributes of objects, the objects.
        self._owners: dict[int, Any] = {}
        self._kept: dict[int, Kept] = {}
        self.where, self.by_torch = "", False

    def close(self) -> None:
        """What was kept for the call is let go of."""
        self._fresh.clear()
        self._owners.clear()
        owners = {}
        for place in (*self.read.values(), *self.written.values()):
            place.forget()
            if place.kept is not place.kept_owner:
                owners[place.number] = place.kept_owner
        for number, kept in self._kept.items():
            kept.let_go(owners.get(number))
        self._kept.clear()

    def make(self, value: Any) -> None:
        """It is the call's own, with the containers that it alone holds."""
        if not is_number(value):
            weak = weakref.ref(value) if isinstance(value, torch.Tensor) else _weakly(value)
            self._fresh[id(value)] = weak if weak is not None else Kept(value)
        if isinstance(value, types.GeneratorType) and value.gi_frame is not None:
            self.make(value.gi_frame)
        for item in dict.values(value) if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
            if isinstance(item, (list, tuple, dict)) and is_held_by(item):
                self.make(item)

    def is_fresh(self, value: Any) -> bool:
        known = self._fresh.get(id(value))
        return known is not None and known() is value

    def own(self, container: Any, owner: Any) -> None:
        self._owners.setdefault(id(container), owner)

    def is_own(self, holder: Any, owner: Any = None) -> bool:
        owner = self._owners.get(id(holder)) if owner is None else owner
        return self.is_fresh(holder) or owner is not None and self.is_fresh(owner)

    def see(self, kind: str, holder: Any, key: Any, value: Any, owner: Any = None) -> None:
        """A value is taken from a place."""
        owner = self._owners.get(id(holder)) if owner is None else owner
        known = kind, id(holder), key
        if self.is_own(holder, owner) or known in self.read or known in self.written:
            return
        if isinstance(value, (dict, list, set)):
            self.own(value, holder if owner is None else owner)
        self.read[known] = self._place(kind, holder, key, value, owner)

    def write(self, kind: str, holder: Any, key: Any, before: Any, owner: Any = None) -> None:
        owner = self._owners.get(id(holder)) if owner is None else owner
        if not self.is_own(holder, owner):
            self.written.setdefault((kind, id(holder), key), self._place(kind, holder, key, before, owner))

    def _place(self, kind: str, holder: Any, key: Any, value: Any, owner: Any) -> Place:
        kept, above = (self._kept.setdefault(id(each), Kept(each)) for each in (holder, holder if owner is None else owner))
        return Place(kind, kept, key, value, above, self.where, self.by_torch)

    def see_entry(self, entries: dict[Any, Any], key: Any, owner: Any = None) -> None:
        """That of a dict, or that there is none."""
        value = dict.get(entries, key, MISSING)
        self.see("absent" if value is MISSING else "entry", entries, key, value, owner)

    def write_entry(self, entries: dict[Any, Any], key: Any, owner: Any = None) -> None:
        self.write("entry", entries, key, dict.get(entries, key, MISSING), owner)

    def see_kind(self, value: Any) -> bool:
        """Whether the class of the object may become another one, which is a place, too."""
        asks = is_changeable(type(value)) and not isinstance(value, (type, torch.Tensor))
        if asks:
            self.see("class", value, None, type(value))
        return asks

    def see_kinds(self, given: list[Any]) -> None:
        for value in given:
            self.see_kind(value)

    def write_all(self, container: Any) -> None:
        """From here on the content is the call's own."""
        self.write("contents", container, None, len(container) if hasattr(container, "__len__") else MISSING)

    def is_written(self, container: Any) -> bool:
        return ("contents", id(container), None) in self.written

    # --- what C looks at

    def size(self, container: Any) -> None:
        container = dict_behind(container)
        if isinstance(container, dict):
            self.keys(container)
        elif not self.is_written(container) and (isinstance(container, (list, set)) or type(container).__name__ == "deque"):
            self.see("size", container, None, len(container))

    def keys(self, entries: Any) -> None:
        entries = dict_behind(entries)
        if not self.is_written(entries):
            self.see("keys", entries, None, len(entries))

    def items(self, value: Any) -> list[Any]:
        """Which items it has, in their order, as a loop asks: those that it goes over."""
        value = dict_behind(value)
        if isinstance(value, dict):
            self.keys(value)
            return self._seen("entry", value, list(dict.items(value)))
        if isinstance(value, list):
            self.size(value)
            return self._seen("item", value, list(enumerate(value)))
        if isinstance(value, tuple):
            return self._seen("item", value, list(enumerate(value))) if self.is_fresh(value) else list(value)
        if isinstance(value, (set, frozenset)) or type(value).__name__ == "deque":
            if not isinstance(value, frozenset):
                self.see("contents", value, None, len(value))
            return list(value)
        if type(value).__name__ in _BYTES:
            self.see("bytes", value, None, MISSING)
        elif is_iterator(value):
            self.see("iterator", value, None, MISSING)
        elif isinstance(value, types.MethodType):
            return [value.__self__]
        elif isinstance(value, slice):
            return [value.start, value.stop, value.step]
        elif type(value).__name__ == "partial":
            return [value.func, value.args, value.keywords]
        elif isinstance(value, types.SimpleNamespace):
            self.own(value.__dict__, value)
            return self._seen("entry", value.__dict__, list(value.__dict__.items()))
        elif isinstance(value, types.CellType):
            self.see("cell", value, None, content(value))
        elif not self._is_sealed(value):
            raise End(f"C is given an object of {type(value).__module__}.{type(value).__qualname__}")
        return []

    def _seen(self, kind: str, holder: Any, items: Iterable[tuple[Any, Any]]) -> list[Any]:
        for key, item in items:
            self.see(kind, holder, key, item)
        return [item for _, item in items]

    def _is_sealed(self, value: Any) -> bool:
        kind = type(value)
        return (bool(kind.__flags__ & MADE_IN_PYTHON) or isinstance(value, _SEALED) or kind.__name__ in _SEALED_NAMES
                or kind.__module__.partition(".")[0] in ("torch", "pybind11_builtins", "numpy", "typing"))

    def deep(self, value: Any, depth: int = 0) -> None:
        """All that C may find in it: containers by their content, other objects by which they are."""
        if is_number(value) or isinstance(value, (torch.Tensor, type)):
            return
        if depth > _DEEPEST:
            raise End("C is given what is nested deeper than the auditor goes")
        for item in self.items(value):
            self.deep(item, depth + 1)
