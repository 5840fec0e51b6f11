"""Places of a program that a call reads and writes, and what the call has made itself.

A *source* is None, for what is computed or known otherwise, or the Place that a value came from and that nothing has used yet: a move is
no use. What a call makes is fresh, and has no places; what was put into it keeps its source until somebody takes it out.
"""
from __future__ import annotations

import gc
import types
import weakref
from typing import Any

import torch

from overdrive._assigned import _Float, _Whole
from overdrive._guards import Held, is_number
from overdrive._tracked import Tracked, TrackedWhole

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()
_DEEPEST = 12
_CONTAINERS = (dict, list, set)


class Place:
    """One place, what stood there, the line that read or wrote it, and whether PyTorch's code did. The kinds: entry, absent, keys, size, contents, item, cell, slot,
    class, dict, bytes, context, code, tensor, iterator, cache, state."""

    __slots__ = ("kind", "key", "value", "where", "by_torch", "number", "_holder", "_owner", "_is_dict")

    def __init__(self, kind: str, holder: Any, key: Any, value: Any, owner: Any = None, where: str = "", by_torch: bool = False) -> None:
        self.kind, self.key, self.where, self.by_torch, self.number = kind, key, where, by_torch, id(holder)
        # Held is how Overdrive knows that nobody of the program holds an object. The owner is the object whose dict it is.
        self._holder: Any = Held([holder])
        self._owner: Any = self._holder if owner is None else Held([owner])
        # Whether the holder is found by the owner alone.
        self._is_dict = False
        # Numbers that Overdrive follows may not be kept.
        self.value = int.__int__(value) if isinstance(value, (TrackedWhole, _Whole)) else float.__float__(value) if isinstance(value, (Tracked, _Float)) else value

    @property
    def identity(self) -> tuple[str, int, Any]:
        return self.kind, self.number, self.key

    @property
    def holder(self) -> Any:
        if self._is_dict:
            return dict_of(self.owner)
        return self._holder[0] if isinstance(self._holder, Held) else self._holder()

    @property
    def owner(self) -> Any:
        return self._owner[0] if isinstance(self._owner, Held) else self._owner()

    def forget(self) -> None:
        """What stood there, and the holder, die as they would."""
        if not is_number(self.value) and self.value is not MISSING:
            self.value = Gone(self.value)
        owner, same = self._owner[0], self._owner is self._holder
        self._is_dict = not same and dict_of(owner) is self._holder[0]
        self._owner = _weakly(owner) or self._owner
        if self._is_dict or same:
            self._holder = self._owner
        else:
            self._holder = _weakly(self._holder[0]) or self._holder

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


def _weakly(value: Any) -> Any:
    if isinstance(value, torch.Tensor):  # swap_tensors() wants none with weak references
        return None if value.is_leaf else lambda: None
    try:
        return weakref.ref(value)
    except TypeError:
        return None


class Gone:
    """An object that is kept no longer."""

    __slots__ = ("address", "kind")

    def __init__(self, value: Any) -> None:
        self.address, self.kind = id(value), type(value)

    def __repr__(self) -> str:
        return f"<{self.kind.__name__}>"


class End(Exception):
    """The auditor does not know what an instruction or a function does."""


def entries_of_class(kind: type) -> dict[str, Any]:
    found: dict[str, Any] = gc.get_referents(vars(kind))[0]
    return found


class Call:
    """What one call reads, writes and makes. What it keeps alive it lets go of with ``close()``, apart from holders of places."""

    def __init__(self) -> None:
        self.read: dict[tuple[str, int, Any], Place] = {}
        self.written: dict[tuple[str, int, Any], Place] = {}
        self._fresh: dict[int, Any] = {}
        self._inside: dict[tuple[str, int, Any], Place | None] = {}
        # Of dicts that are attributes of objects, the objects.
        self.owners: dict[int, Any] = {}
        self.where, self.by_torch = "", False

    def close(self) -> None:
        self._fresh.clear()
        self._inside.clear()
        self.owners.clear()
        for place in (*self.read.values(), *self.written.values()):
            place.forget()

    # --- what the call makes

    def make(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):  # kept by nobody here, so that memory goes as it would
            self._fresh[id(value)] = weakref.ref(value)
        elif not is_number(value) and not isinstance(value, type):
            self._fresh[id(value)] = value

    def make_class(self, value: Any) -> None:
        self._fresh[id(value)] = value

    def make_all(self, value: Any) -> None:
        """With the containers in it."""
        self.make(value)
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
            if isinstance(item, (list, tuple, dict)):
                self.make_all(item)

    def is_fresh(self, value: Any) -> bool:
        known = self._fresh.get(id(value), MISSING)
        return (known() if isinstance(known, weakref.ref) and not isinstance(value, weakref.ref) else known) is value

    # --- reading

    def source(self, kind: str, holder: Any, key: Any, value: Any, owner: Any = None) -> Place | None:
        """Of a value that is taken from a place."""
        inside = kind, id(holder), key
        if inside in self._inside:
            return self._inside[inside]
        owner = self.owners.get(id(holder)) if owner is None else owner
        if self.is_fresh(holder) or owner is not None and self.is_fresh(owner):
            return None
        if isinstance(value, _CONTAINERS):
            self.owners.setdefault(id(value), holder if owner is None else owner)
        return Place(kind, holder, key, value, owner, self.where, self.by_torch)

    def use(self, source: Any) -> None:
        """More than a move."""
        if isinstance(source, Place) and source.identity not in self.read:
            self.read[source.identity] = source

    def see(self, kind: str, holder: Any, key: Any, value: Any, owner: Any = None) -> None:
        self.use(self.source(kind, holder, key, value, owner))

    # --- writing

    def write(self, kind: str, holder: Any, key: Any, value: Any, source: Any, before: Any = MISSING, owner: Any = None) -> None:
        owner = self.owners.get(id(holder)) if owner is None else owner
        fresh = self.is_fresh(holder) or owner is not None and self.is_fresh(owner)
        if not fresh:
            place = Place(kind, holder, key, before, owner, self.where)
            self.written.setdefault(place.identity, place)
        self._inside[kind, id(holder), key] = source

    def change(self, container: Any) -> None:
        """Its content, by C. What was put into it may lie elsewhere in it now."""
        self.deep(container)
        self.written_whole(container)

    def written_whole(self, container: Any) -> None:
        for key in [key for key in self._inside if key[1] == id(container)]:
            self.use(self._inside.pop(key))
        if not self.is_fresh(container):
            # From here on the content is the call's own.
            place = Place("contents", container, None, len(container) if hasattr(container, "__len__") else MISSING, None, self.where)
            self.written.setdefault(place.identity, place)

    def is_written(self, container: Any) -> bool:
        return ("contents", id(container), None) in self.written

    # --- what C looks at

    def size(self, container: Any) -> None:
        if not self.is_written(container) and not isinstance(container, (tuple, frozenset, str, bytes, range)):
            self.see("size", container, None, len(container))

    def deep(self, value: Any, source: Any = None, depth: int = 0) -> None:
        """All that C may find in it: numbers by value, containers by their content, other objects by which they are."""
        self.use(source)
        if is_number(value) or depth > _DEEPEST or isinstance(value, (torch.Tensor, type)):
            return
        fresh = self.is_fresh(value)
        if isinstance(value, dict):
            if not fresh and not self.is_written(value):
                self.see("keys", value, None, len(value))
            for key, item in list(dict.items(value)):
                self.deep(item, self.source("entry", value, key, item), depth + 1)
        elif isinstance(value, (list, tuple)):
            if not fresh:
                self.size(value)
            for index, item in enumerate(list(value)):
                self.deep(item, None if isinstance(value, tuple) and not fresh else self.source("item", value, index, item), depth + 1)
        elif type(value).__name__ in ("set", "frozenset", "deque"):
            if type(value) is not frozenset:
                self.see("contents", value, None, len(value))
            for item in list(value):
                self.deep(item, None, depth + 1)
        elif is_of_bytes(value):
            self.see("bytes", value, None, MISSING)
        elif type(value).__name__ in VIEWS:
            self.deep(next(each for each in gc.get_referents(value) if isinstance(each, dict)), None, depth + 1)
        elif type(value).__name__ == "mappingproxy":
            self.deep(gc.get_referents(value)[0], None, depth + 1)
        elif is_iterator(value):
            self.iterator(value)

    def shallow(self, value: Any) -> None:
        """Which items it has, in their order, as a loop asks."""
        fresh = self.is_fresh(value)
        if isinstance(value, dict):
            if not fresh and not self.is_written(value):
                self.see("keys", value, None, len(value))
            for key, item in list(dict.items(value)):
                self.use(self.source("entry", value, key, item))
        elif isinstance(value, (list, tuple)) and (fresh or isinstance(value, list)):
            if not fresh:
                self.size(value)
            for index, item in enumerate(list(value)):
                self.use(self.source("item", value, index, item))
        elif isinstance(value, tuple):
            pass
        elif type(value).__name__ in VIEWS:
            self.shallow(next(each for each in gc.get_referents(value) if isinstance(each, dict)))
        else:
            self.deep(value)

    def iterator(self, value: Any) -> None:
        if not self.is_fresh(value):
            self.see("iterator", value, None, MISSING)


VIEWS = ("dict_keys", "dict_values", "dict_items", "odict_keys", "odict_values", "odict_items")


def is_of_bytes(value: Any) -> bool:
    return type(value).__name__ in ("ndarray", "bytearray", "array", "memoryview", "matrix", "MaskedArray")


def is_iterator(value: Any) -> bool:
    """Of C's own: one of the program's class shows its frames."""
    return hasattr(type(value), "__next__") and not type(value).__flags__ & 1 << 9
