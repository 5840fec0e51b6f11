"""Numbers and empty containers that a captured function gives to attributes and variables and never reads, as
``self.batch_size = len(x)`` and ``self.log = []``. A replay gives them what its recording has, and a new container each time."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from overdrive.values.read import Read
from overdrive.values.same import is_all_numbers, same_value
from overdrive.values.slots import putter_of

_Place = tuple[int, int, Any]


class _Whole(int):
    """Stands at a place during a recorded call, to tell whether the call writes there."""


class _Float(float):
    """The same for a float."""


def is_empty_container(value: Any) -> bool:
    """Whether a program may fill it, so that each call leaves another one."""
    return type(value) in (list, dict, set) and not value


def _equal_to(value: Any) -> Any:
    """Another object, where there may be one."""
    if is_all_numbers(value):
        return (*value,)
    return _Whole(value) if type(value) is int else _Float(value) if type(value) is float else value


class Assigned:
    """Of one captured step."""

    def __init__(self) -> None:
        self._reads: dict[_Place, Read] = {}
        self._puts: dict[_Place, Callable[[Any], None]] = {}
        # Of the recorded call under way: what stands at a place, and what had stood there.
        self._marks: dict[_Place, tuple[Any, Any]] = {}
        # What the last recorded call has written.
        self.written: dict[_Place, Any] = {}

    def reads(self) -> Iterable[Read]:
        return self._reads.values()

    def __contains__(self, place: _Place) -> bool:
        return place in self._reads

    def add(self, place: _Place, read: Read) -> None:
        """The call under way has written there."""
        self._reads[place], self._puts[place] = read, putter_of(read)
        self.written[place] = read.now()

    def drop(self, place: _Place) -> Read:
        del self._puts[place]
        self.written.pop(place, None)
        return self._reads.pop(place)

    def clear(self) -> None:
        self._reads.clear()
        self._puts.clear()
        self.written = {}

    def begin(self) -> None:
        """Before a recorded call. An equal number that is written there could not be told from the one before."""
        self.written = {}
        for place, read in self._reads.items():
            before = read.now()
            mark = _equal_to(before)
            self._marks[place] = mark, before
            if mark is not before:
                self._puts[place](mark)

    def end(self) -> None:
        marks, self._marks = self._marks, {}
        for place, (mark, before) in marks.items():
            now = self._reads[place].now()
            if now is not mark:
                self.written[place] = now
            elif mark is not before:
                self._puts[place](before)

    def names_of_others(self, now: Mapping[_Place, Any], before: Mapping[_Place, Any]) -> str:
        """Where the two differ."""
        places = [place for place in {**before, **now} if place not in now or place not in before or not same_value(now[place], before[place])]
        return ", ".join(f"`{self._reads[place].name}`" for place in places if place in self._reads) or "a variable"

    def put(self, values: Mapping[_Place, Any]) -> None:
        """After a replay."""
        for place, value in values.items():
            self._puts[place](type(value)() if is_empty_container(value) else value)
