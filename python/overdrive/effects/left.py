"""What a captured function leaves in attributes and variables: tensors that it makes, alone or in objects, which a replay
makes again and puts there."""
from __future__ import annotations

import collections
import gc
import types
from collections.abc import Callable, Sequence
from typing import Any

from overdrive.values.forms import filled, form_of, others_in
from overdrive.values.read import ATTRIBUTE, CELL, ENTRY, ITEM, NOTHING, Read, same_value

# Where a tensor comes from: a result of the recording, what it is without a graph, an argument of the call.
_RESULT, _DETACHED, _INPUT = range(3)


class Left:
    """One place, and how its value is made of the results."""

    __slots__ = ("read", "form", "sources", "_put")

    def __init__(self, read: Read, results: list[Any], inputs: Sequence[Any]) -> None:
        """Results that only this place has go to the others."""
        tensors: list[Any] = []
        self.read, self._put = read, putter_of(read)
        self.form = form_of(read.now(), tensors, [])
        self.sources = [_source_of(tensor, results, inputs) for tensor in tensors]

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Left) and self.read.place == other.read.place and bool(self.form == other.form)
                and self.sources == other.sources)

    __hash__ = None  # type: ignore[assignment]

    def put_in_a_recording(self, results: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Recorded calls return copies, and share memory with what they leave as replays do. What has a graph keeps it."""
        if self.sources and not any(tensor.requires_grad for tensor in tensors_in(self.read.now())):
            self.put(results, inputs)

    def put(self, results: Sequence[Any], inputs: Sequence[Any]) -> None:
        tensors = []
        for kind, index in self.sources:
            tensor = (inputs if kind == _INPUT else results)[index]
            tensors.append(tensor.detach() if kind == _DETACHED else tensor)
        self._put(filled(self.form, iter(tensors)))


def _source_of(tensor: Any, results: list[Any], inputs: Sequence[Any]) -> tuple[int, int]:
    for kind, known in ((_RESULT, results), (_INPUT, inputs)):
        for index, one in enumerate(known):
            if one is tensor:
                return kind, index
    for index, one in enumerate(results):
        if not tensor.requires_grad and _are_same_elements(tensor, one):
            return _DETACHED, index
    results.append(tensor)
    return _RESULT, len(results) - 1


def _are_same_elements(a: Any, b: Any) -> bool:
    import torch

    return bool(a.layout == b.layout == torch.strided and a.device == b.device and a.dtype == b.dtype and a.shape == b.shape
                and a.stride() == b.stride() and a.numel() > 0 and a.data_ptr() == b.data_ptr())


def can_be_put(read: Read) -> bool:
    if read.kind == ATTRIBUTE:
        return isinstance(getattr(type(read.holder), read.key, None), types.MemberDescriptorType)
    return read.kind in (ENTRY, CELL, ITEM)


def putter_of(read: Read) -> Callable[[Any], None]:
    """Gives the place another value."""
    holder, key = read.holder, read.key
    if read.kind == CELL:
        return lambda value: setattr(holder, "cell_contents", value)
    if read.kind == ATTRIBUTE:
        return lambda value: setattr(holder, key, value)
    if read.kind == ENTRY and (kind := _class_of(holder)) is not None:
        return lambda value: setattr(kind, key, value)
    return lambda value: holder.__setitem__(key, value)


def can_be_put_back(read: Read) -> bool:
    return can_be_put(read) and (read.kind != ITEM or read.now() is not NOTHING and read.expected is not NOTHING)


def put_back(read: Read, value: Any) -> None:
    """Gives the place what it had, or takes away what it had not."""
    if value is not NOTHING:
        putter_of(read)(value)
    elif read.kind == CELL:
        del read.holder.cell_contents
    elif read.kind == ATTRIBUTE:
        delattr(read.holder, read.key)
    elif (kind := _class_of(read.holder)) is not None:
        delattr(kind, read.key)
    else:
        dict.pop(read.holder, read.key, None)


def copy_of(container: Any) -> Any:
    """Of one that ``refill()`` can fill again; None: it cannot."""
    kinds: Any = (list, dict, set, collections.deque)
    kind = next((kind for kind in kinds if isinstance(container, kind)), None)
    return None if kind is None else kind.copy(container)


def refill(container: Any, contents: Any) -> None:
    if isinstance(container, list):
        container[:] = contents
        return
    kind: Any = next(kind for kind in (dict, set, collections.deque) if isinstance(container, kind))
    kind.clear(container)
    (kind.extend if kind is collections.deque else kind.update)(container, contents)


def _class_of(entries: dict[Any, Any]) -> type | None:
    """The class whose own dict it is: what is put there past the class, lookups that Python keeps do not see."""
    if "__module__" not in entries:
        return None
    return next((kind for kind in gc.get_referrers(entries) if isinstance(kind, type) and gc.get_referents(vars(kind))[0] is entries), None)


def tensors_in(value: Any) -> list[Any]:
    """Those of a value that is made of tensors, numbers and plain objects; none of another."""
    tensors: list[Any] = []
    form = form_of(value, tensors, [])
    return tensors if others_in(form) is None else []


class Setting:
    """A flag or a text that the function changes: where it was `before`, a recorded call leaves another one."""

    __slots__ = ("before", "after", "_put")

    def __init__(self, before: Read) -> None:
        self.before, self.after, self._put = before, before.expected, putter_of(before)

    def note(self, is_first: bool) -> bool:
        """After a recorded call. Whether it leaves what those before have left, which their replays go on to leave."""
        now = self.before.now()
        if is_first:
            self.after = now
        return same_value(self.after, now)

    def put(self) -> None:
        self._put(self.after)


def can_be_left(read: Read) -> bool:
    return read.kind in (ENTRY, CELL, ITEM) and has_tensors_or_numbers(read.now())


def has_tensors_or_numbers(value: Any) -> bool:
    """Whether it is made of tensors, or a container of numbers, and a replay can make another one."""
    return bool(tensors_in(value)) or has_numbers_alone(value)


def has_numbers_alone(value: Any) -> bool:
    """Whether it is a container without tensors, and a replay can make another one with the same numbers. An empty one may be a cache that
    the function fills and clears."""
    tensors: list[Any] = []
    return type(value) in (list, dict, tuple) and bool(value) and others_in(form_of(value, tensors, [])) is None and not tensors
