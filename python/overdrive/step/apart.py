"""What code that runs apart changes of the values that a captured function looks at, or gives a value itself.

Note [Values changed apart]
Such code runs in replays too, so what it changes there is changed already, and is no change of the function's that a replay makes up
for. The function must find what it would find: a number before it, as the call's own (numbers/call_numbers.py); afterwards nothing, for a
replay goes on as it was recorded. A run that sees such a change is not recorded where that cannot be told, and a replay that
sees one is taken back: the function runs with the values of before, and ``apart()`` in it leaves those that its function has left.
"""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from overdrive.effects.places import ALSO_APART
from overdrive.native.recording import _refuse
from overdrive.numbers.counters import is_counted, is_used, is_written, looks_into
from overdrive.step.learn import Learner
from overdrive.step.variant import _Variant
from overdrive.values.read import ENTRY, IN_CONTAINERS, ITEM, VALUES, Alike, Read
from overdrive.values.same import is_all_numbers, is_number, same_value
from overdrive.values.slots import Change, can_be_put, can_be_put_back, copy_of, put_back, refill

_CHANGED_APART = ("Code that runs apart changes {}, which the function looks at, and a replay goes on as if it had not; let it return a tensor, "
                  "or look outside of the function.")
_INSIDE = (*IN_CONTAINERS, VALUES, ITEM)


def _is_same(before: Any, now: Any) -> bool:
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_is_same, before, now))
    return before is now or (is_number(now) or is_all_numbers(now)) and same_value(before, now)


def _goes_on(read: Read) -> bool:
    """Whether it is a whole number, which tells what the function makes of it."""
    return type(read.now()) is int and is_counted(read.expected, read.now()) and can_be_put(read)


def _is_in_a_container(read: Read) -> bool:
    """And no attribute of an object or variable of a module, whose names are in a dict, too."""
    return read.kind in _INSIDE or read.kind == ENTRY and read.name.endswith("]")


def _has_same(container: Any, copy: Any) -> bool:
    if isinstance(container, dict):
        return list(container) == list(copy) and all(map(_is_same, container.values(), copy.values()))
    return len(container) == len(copy) and (container == copy if isinstance(container, set) else all(map(_is_same, container, copy)))


class Apart:
    """Around such code, in runs of one captured function and in replays. Owned by its step; effects/apart.py calls it on the thread that is in the
    call. Hands to the learner what becomes a change of the function's."""

    def __init__(self, learner: Learner) -> None:
        self._learner, self._subject, self._changes, self._chooser = learner, learner.subject, learner.changes, learner.chooser
        self._is_running = self.has_run = False

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """In a run of the function."""
        variant = self._chooser.variant
        if variant is None or not self._subject.guarded or self._is_running:
            yield
            return
        self._is_running = self.has_run = True
        numbers = variant.numbers
        found = [] if numbers is None else numbers.enter_apart()
        # Places whose looks alone count are among those that are given values.
        guards = [read for read in variant.reads.all() if not isinstance(read, Alike)]
        reads = [*guards, *self._changes.given(), *(counter.read for counter in self._changes.counters.values())]
        before = [read.now() for read in reads]
        options = self._subject.optimizers.options_unscheduled()
        try:
            yield
        finally:
            self._changes.apart.update((read.place, read) for read, value in zip(reads, before) if not _is_same(value, read.now()))
            self._subject.optimizers.note_changed_apart(options)
            if numbers is not None:
                numbers.leave_apart(found)
            self._is_running = False

    def around_replayed(self) -> Callable[[], tuple[list[Change], bool]]:
        """Before such code runs in a replay. Afterwards: what it has changed, and whether the replay may go on."""
        variant = self._chooser.variant
        assert variant is not None
        counters = list(self._changes.counters.values())
        reads = [*self._changes.given(), *(counter.read for counter in counters)]
        before = [read.now() for read in reads]
        copies = [(container, copy_of(container)) for container in self._looked_into(variant)]
        options = self._subject.optimizers.options_unscheduled()

        def changes() -> tuple[list[Change], bool]:
            refilled = [(container, copy) for container, copy in copies if not _has_same(container, copy)]
            made: list[Change] = [(functools.partial(refill, container), copy, copy_of(container)) for container, copy in refilled]
            guarded = variant.reads.other_values()
            given = [(read, value) for read, value in zip(reads, before) if not _is_same(value, read.now())]
            both = [*((read, read.expected) for read in guarded if not any(read.holder is container for container, _ in refilled)), *given]
            made += [(functools.partial(put_back, read), value, read.now()) for read, value in both
                     if read.kind not in IN_CONTAINERS and can_be_put_back(read)]
            changed = self._subject.optimizers.options_changed(options)
            made += changed
            known = [counter.read for counter in counters if counter.is_apart]
            is_known = all(any(read is one for one in known) for read, _ in given)
            self._learn_of_changes([read for read, _ in both])
            return made, is_known and not (refilled or changed or self._changes.given_by_both or any(map(self.matters, guarded)))

        return changes

    def _looked_into(self, variant: _Variant) -> list[Any]:
        """Containers of the program that the function looks into."""
        if variant.looked_into is None or variant.looked_into[0] != len(variant.reads):
            found = {id(read.holder): read.holder for read in variant.reads.all()
                     if _is_in_a_container(read) and copy_of(read.holder) is not None and self.matters(read)}
            variant.looked_into = len(variant.reads), list(found.values())
        return variant.looked_into[1]

    def _learn_of_changes(self, reads: list[Read]) -> None:
        """That such code was seen to make in a replay."""
        for read in reads:
            if read.kind not in IN_CONTAINERS and is_written(read, self._learner.codes) and not _goes_on(read):
                self._changes.note_given_by_both(read)
        for counter in self._changes.counters.values():
            if not counter.is_apart and any(counter.read is read for read in reads):
                counter.is_apart = self._learner.is_outdated = True

    def matters(self, read: Read) -> bool:
        """Whether the function uses the value, as far as its code tells."""
        return looks_into(read, self._learner.codes) if read.kind in _INSIDE else is_used(read, self._learner.codes)

    def take_changed(self, changed: dict[Any, Read]) -> dict[Any, Read]:
        """Takes out what is no change of the function's, but for containers that it does not look into."""
        apart = {place: read for place, read in changed.items()
                 if place in self._changes.apart and (read.kind not in IN_CONTAINERS or self.matters(read))}
        for place in apart:
            del changed[place]
        return apart

    def note_changed(self, apart: dict[Any, Read]) -> None:
        """The same, and places at which no guard looks."""
        changes = self._changes
        changes.ever_apart.update(changes.apart)
        for read in changes.given():
            if read.place in self._changes.apart:
                self._changes.note_given_by_both(read)
                _refuse(self._changes.given_by_both)
        known = [counter for place, counter in changes.counters.items() if place in self._changes.apart and not counter.is_apart]
        # What the function has changed before, and such code back.
        back = {place: read for place, read in self._changes.apart.items()
                if place not in changes.counters and read.kind not in IN_CONTAINERS and is_written(read, self._learner.codes)}
        for place, read in {**back, **apart}.items():
            is_given = read.kind not in IN_CONTAINERS and is_written(read, self._learner.codes)
            if _goes_on(read) and (is_given or self.matters(read)):
                changes.own[place] = read
                self._learner.count(read)
                known.append(changes.counters[place])
            elif is_given:
                self._changes.note_given_by_both(read)
                self._learner.refuse_change(read, ALSO_APART)
            elif not self.matters(read):
                changes.own[place] = read
            else:
                self._learner.refuse_change(read, _CHANGED_APART)
        for counter in known:
            counter.is_apart = True
            self._chooser.drop_all()
