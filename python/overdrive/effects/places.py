"""What one call does with places that some call of a captured step gives a tensor: it may write there, or leave them alone."""
from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from overdrive.effects.left import Left, has_numbers_alone, tensors_in
from overdrive.values.forms import filled, form_of
from overdrive.values.read import NOTHING, Read
from overdrive.values.same import is_number

_Place = tuple[int, int, Any]


class Before:
    """What stands at the places before a call. Nothing is kept alive, because a call drops what it replaces."""

    def __init__(self, reads: Iterable[Read]) -> None:
        self._values = {read.place: _seen(read.now()) for read in reads}

    def is_still_at(self, read: Read) -> bool:
        seen, now = self._values.get(read.place), read.now()
        if seen is None:
            return False
        if len(seen) == 1:
            return now is seen[0]
        # Another object may have come to the place in memory of one that has died.
        address, tensors, numbers = seen
        if is_number(now) or id(now) != address:
            return False
        return _numbers_in(now) == numbers if numbers is not None else bool(tensors) and _are_those(tensors_in(now), tensors)


def _seen(value: Any) -> tuple[Any, ...]:
    if is_number(value) or value is NOTHING:
        return (value,)
    return id(value), [weakref.ref(tensor) for tensor in tensors_in(value)], _numbers_in(value)


def _numbers_in(value: Any) -> Any:
    """Of a container of numbers alone: its structure."""
    return form_of(value, [], []) if has_numbers_alone(value) else None


def _are_those(tensors: Sequence[Any], weak: Sequence[weakref.ref[Any]]) -> bool:
    return len(tensors) == len(weak) and all(tensor is one() for tensor, one in zip(tensors, weak))


class Places:
    """Of the calls of one recording."""

    def __init__(self, reads: Iterable[Read], before: Before, results: list[Any], inputs: Sequence[Any]) -> None:
        self.left: list[Left] = []
        self._alone: set[_Place] = set()
        # None or an equal number before and afterwards: was it written? Where another value stands before a call, nobody knows.
        self._unsure: dict[_Place, tuple[Read, Any]] = {}
        for read in reads:
            if not before.is_still_at(read):
                self.left.append(Left(read, results, inputs))
            elif is_number(read.now()) or has_numbers_alone(read.now()):
                self._unsure[read.place] = read, read.now()
            else:
                self._alone.add(read.place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places) and self.left == other.left

    __hash__ = None  # type: ignore[assignment]

    def unsure(self) -> list[tuple[Read, Any]]:
        return list(self._unsure.values())

    def join(self, known: Places) -> bool:
        """Adds what earlier calls have shown. False: they do something else."""
        mine = {left.read.place: left for left in self.left}
        for left in known.left:
            place = left.read.place
            if place in mine:
                if mine[place] != left:
                    return False
            elif place in self._unsure and _puts(left, self._unsure[place][1]):
                self.left.append(left)
            else:
                return False
        for place, (read, value) in known._unsure.items():
            if place in mine and not _puts(mine[place], value):
                return False
            if self._unsure.setdefault(place, (read, value))[1] is not value:
                self._alone.add(place)  # two values, and each has stayed
        self._alone |= known._alone
        written = {left.read.place for left in self.left}
        for place in self._alone | written:
            self._unsure.pop(place, None)
        return not self._alone & written


def _puts(left: Left, value: Any) -> bool:
    """Whether it is this value in each call."""
    return not left.sources and filled(left.form, iter(())) is value
