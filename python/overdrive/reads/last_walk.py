"""The last walk of a captured step, which need not be made again as long as it would find the same."""
from __future__ import annotations

import itertools
from collections.abc import Container, Iterable
from typing import Any

from overdrive.reads.code import Met, Watcher
from overdrive.reads.walk import Walk
from overdrive.reads.walk_names import KnownNames
from overdrive.values.read import ATTRIBUTE, CELL, CONTEXT, ENTRY, ITEM, NOTHING, Read, as_it_is_now
from overdrive.values.reads import Reads
from overdrive.values.same import has_attributes, is_number, same_value

_Place = tuple[int, int, Any]
# One value at one place.
_SINGLE = (ENTRY, ITEM, CELL, ATTRIBUTE, CONTEXT)
_numbers = itertools.count(1)


class LastWalk:
    """``walk`` to what stays from call to call, and the code that had run."""

    def __init__(self, watcher: Watcher, left: Iterable[_Place], own: Iterable[_Place], known: KnownNames | None, function: Any,
                 roots: Iterable[Any]) -> None:
        self.number = next(_numbers)
        self._watcher, self._left = watcher, set(left)
        self.walk = Walk(watcher, self._left, set(own), known)
        self.walk.lasting(function, roots)
        self._reads = Reads(self.reads())
        self._laid_out = self._found()
        # What the objects of the program had then, whether code names it or not.
        self._had = [(entries, name, {key: value for key, value in entries.items() if is_number(value)})
                     for entries, name in self.walk.attributes_met()]

    def moved(self, own: Container[_Place]) -> list[str]:
        """Attributes of these objects that are others now, but those that the function changes itself."""
        return [f"`{name}.{key}` ({value!r}, then {entries.get(key, NOTHING)!r})" for entries, name, had in self._had for key, value in had.items()
                if not same_value(entries.get(key, NOTHING), value) and (ENTRY, id(entries), key) not in own]

    def reads(self) -> list[Read]:
        return [*self.walk.reads.values(), *self.walk.of_torch.values()]

    def of_one_call(self, met: Met, found: Iterable[Any]) -> Walk:
        walk = self.walk.of_one_call(met, found)
        self.walk.take_names(walk)
        if self._found() != self._laid_out:
            self._reads.add(self.reads())
            self._laid_out = self._found()
        return walk

    def _found(self) -> int:
        """How many values the walk has found, which is none fewer when it goes on."""
        return len(self.walk.reads) + len(self.walk.of_torch)

    def look(self, watcher: Watcher, left: Iterable[_Place]) -> list[Read] | None:
        """None: another walk may find more. Else it would find the same, apart from these numbers that are others now."""
        if not (self._covers(watcher) and self._left == set(left) and self.walk.notes.hold()):
            return None
        changed = []
        for read in self._reads.drop_changed().values() if self._reads.changed() is not None else ():
            now = as_it_is_now(read)
            if not is_one_number(read) or not is_one_number(now) or self.walk.goes_by_strings() and isinstance(now.expected, str):
                return None
            changed.append(now)
            self.walk.change(now)
        self._reads.add(changed)
        return changed

    def _covers(self, watcher: Watcher) -> bool:
        """Whether no other code ran. Less code is no matter, unless more of it had been in the way."""
        return watcher.saw_no_more_than(self._watcher) and (not self.walk.refusals or self._watcher.saw_no_more_than(watcher))


def is_one_number(read: Read) -> bool:
    """Whether a walk goes no further from what was read."""
    return read.kind in _SINGLE and is_number(read.expected) and not has_attributes(read.expected)
