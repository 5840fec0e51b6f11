"""One value of a program that a recording depends on: where it is found, and what it was."""
from __future__ import annotations

import gc
from collections import OrderedDict
from typing import Any, NamedTuple

from overdrive.values.forms import form_of, others_in
from overdrive.values.same import bytes_of, is_all_numbers, is_number, same_value, size_of

# Kinds of python/bindings/values.cpp, then those that Python looks at.
ENTRY, VALUES, SIZE, ITEM, CELL, KIND, ATTRIBUTE, CONTENTS, BYTES, CONTEXT, KEYS, CODE, ANSWER, ABSENT, DICT, ALIKE = range(16)
NOTHING: Any = type("Nothing", (), {"__repr__": lambda self: "nothing"})()
# Of what a container has, beside single items.
IN_CONTAINERS = (SIZE, KEYS, CONTENTS, BYTES)


class Read:
    """One value, where it is found, and what it was."""

    __slots__ = ("kind", "holder", "key", "expected", "name", "where", "place")

    def __init__(self, kind: int, holder: Any, key: Any, name: str = "", where: str = "") -> None:
        self.kind, self.holder, self.key, self.name, self.where = kind, holder, key, name, where
        self.place: tuple[int, int, Any] = (kind, id(holder), key)
        self.expected = dict.get(holder, key, NOTHING) if kind == ENTRY else self.now()

    def now(self) -> Any:
        kind, holder, key = self.kind, self.holder, self.key
        if kind == ENTRY:
            return dict.get(holder, key, NOTHING)
        if kind == VALUES:
            return list(dict.values(holder))
        if kind == SIZE:
            return size_of(holder)
        if kind == ITEM:
            return list.__getitem__(holder, key) if key < list.__len__(holder) else NOTHING
        if kind == CELL:
            try:
                return holder.cell_contents
            except ValueError:
                return NOTHING
        if kind == KIND:
            return type(holder)
        if kind == DICT:
            return holder.__dict__
        if kind == CONTEXT:
            return holder.get(NOTHING)
        if kind == CONTENTS:
            return list(holder)
        if kind == BYTES:
            return bytes_of(holder)
        if kind == KEYS:
            return list(OrderedDict.keys(holder) if isinstance(holder, OrderedDict) else dict.keys(holder))
        if kind == CODE:
            return holder.__code__
        if kind == ANSWER:
            return holder()
        return getattr(holder, key, NOTHING)

    def accepts(self, now: Any) -> bool:
        if self.expected is NOTHING:
            return now is NOTHING
        if self.kind in (CONTENTS, KEYS):
            return len(now) == len(self.expected) and all(map(same_value, now, self.expected))
        if self.kind == VALUES:
            return len(now) == len(self.expected) and all(a is b for a, b in zip(now, self.expected))
        if self.kind in (BYTES, CODE):
            return bool(now == self.expected)
        return now is self.expected or (is_number(now) or is_all_numbers(now)) and same_value(now, self.expected)

    def holds(self) -> bool:
        return self.accepts(self.now())

    def told(self) -> str:
        """The name as a program writes it, its values and its line."""
        now = self.now()
        text = f"`{self.name}`"
        if is_number(now) and is_number(self.expected):
            text += f" ({self.expected!r}, then {now!r})"
        return text + (f", read at {self.where}" if self.where else "")


class Alike(Read):
    """A place at which some calls leave another tensor, and whose tensor no operator of this call is given: only what Python asks of it counts."""

    __slots__ = ()

    def __init__(self, read: Read, *before: Any) -> None:
        """With what stood there before, where it is not what stands there now."""
        super().__init__(read.kind, read.holder, read.key, read.name, read.where)
        self.place = (ALIKE, id(read.holder), read.key)
        self.expected = _look_of(before[0] if before else super().now())

    def now(self) -> Any:
        return _look_of(super().now())

    def accepts(self, now: Any) -> bool:
        if type(now) is type(self.expected) is _Look:
            return bool(now == self.expected)
        return same_value(self.expected, now)


class _Look(NamedTuple):
    """Of what is made of tensors: its structure, and the looks of these."""

    form: Any
    tensors: list[Any]


def _look_of(value: Any) -> Any:
    if value is NOTHING or is_number(value):
        return value
    tensors: list[Any] = []
    form = form_of(value, tensors, [])
    return value if others_in(form) is not None else _Look(form, [*map(looks_of, tensors)])


def looks_of(tensor: Any) -> Any:
    """Without its graph, which what replays leave has not."""
    return type(tensor), tensor.dtype, tensor.device, tuple(tensor.shape), tensor.requires_grad and tensor.is_leaf


def as_it_is_now(read: Read) -> Read:
    return Read(read.kind, read.holder, read.key, read.name, read.where)


def entries_of(kind: type) -> dict[str, Any]:
    """The dict of a class behind the view of it that Python gives."""
    found: dict[str, Any] = gc.get_referents(vars(kind))[0]
    return found
