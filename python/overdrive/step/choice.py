"""Which recordings a call belongs to."""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from overdrive.effects.places import Changes
from overdrive.effects.left import Setting, tensors_in
from overdrive.native.recording import Refusal
from overdrive.numbers.call_numbers import CallNumbers, Shared, opened
from overdrive.numbers.counters import is_counted
from overdrive.step.pace import Pace
from overdrive.step.variant import _Variant
from overdrive.values.facts import Facts
from overdrive.values.keys import other_number
from overdrive.values.read import CELL, ENTRY, ITEM, Alike, Read, as_it_is_now
from overdrive.values.same import is_number, same_value

_MANY_WAYS = ("The function goes many ways by numbers that it counts itself ({}), and this is another one; count outside of the function, or keep in "
              "a tensor what is made of others, as an average is.")
# Sets of values without recordings that are remembered, to see whether they come again.
_MOST_SEEN = 64
# Recordings with open numbers for the ways that the function goes by them, and by what it counts.
_MOST_BRANCHES, _MOST_WAYS = 4, 16
# Of values that the function read.
_MOST_SETS = 64


def _same_form(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Of sets of values: the key, and the value that is another one than before."""
    return one[0] == other[0] and same_value(one[1], other[1])


class Chooser:
    """The sets of values that the function read, each with recordings of its own. Owned by its step, and used by the thread that is in its call.
    Asks the pace whether another set may begin; does not know what a recording is made of."""

    def __init__(self, shared: Shared, pace: Pace, facts: Facts, changes: Changes, programs: int, opens_numbers: bool) -> None:
        self._shared, self._pace, self._facts, self._changes = shared, pace, facts, changes
        self._programs, self._opens_numbers = max(1, programs), opens_numbers
        self._numbers = itertools.count()
        # The last used one comes last, and is that of the call under way.
        self.variants: list[_Variant] = []
        self.variant: _Variant | None = None
        # Whether the function gives a place values, and whether it reads them, too, as far as its code is known. The learner's.
        self.may_write: Callable[[Read], bool] = lambda read: False
        self.may_count: Callable[[Read], bool] = lambda read: False
        # Sets of values that calls had and no recording is for, with the turn of the first such call; the last one, and how many turns there were.
        self._seen: list[tuple[Any, tuple[int, int, int]]] = []
        self._last_seen: Any = None
        self._turns = 0
        # Of open numbers by their places in the arguments: why each value has a recording of its own.
        self._not_open: dict[tuple[int, ...], str] = {}

    def find(self, key: tuple[Any, ...], begins_with: Callable[[], Iterable[Read]]) -> _Variant | None:
        """The values that the call has: known ones, or new ones, with guards to begin with. None: it is made eagerly, since the function has
        gone many ways by what it counts, or recordings have cost too much."""
        reason, value, is_its_own = self._note_change(key)
        self._shared.count = 0
        variant = self._known(key)
        if variant is not None:
            self.variants.remove(variant)
        else:
            numbers = self._open_numbers(key)
            if numbers is not None:
                key = (numbers.template, *key[1:])
            elif self._changes.counters:
                self._pace.eager_reason = Refusal(_MANY_WAYS.format(", ".join(counter.told() for counter in self._changes.counters.values())))
                return None
            if not self._pace.may_begin(reason, reason == "" or is_its_own or numbers is not None or self._comes_again(key, value)):
                return None
            self._pace.close(0)
            variant = self._begin(key, numbers, begins_with())
            self._pace.note_variant(reason, self._why_not_open())
        self.variants.append(variant)
        self.variant = variant
        self._shared.variant = variant.number
        return variant

    def _note_change(self, key: tuple[Any, ...]) -> tuple[str, Any, bool]:
        """Why the call does not go on with the values of the last one, the value that is another one, and whether the function gives it."""
        before = self.variant
        if before is None:
            return "", None, False
        if before.key == key and (changed := before.reads.changed()) is not None:
            now = changed.now()
            for read in before.reads.other_values():
                if read.kind in (ENTRY, CELL, ITEM) and tensors_in(read.now()):
                    self._changes.note_written_elsewhere(read, self._pace.stats()["replayed"])
            # A count of which no run that was watched has shown yet that it goes on.
            is_its_own = is_counted(changed.expected, now) and self.may_count(changed)
            value = now if is_number(now) else repr(now) if isinstance(changed, Alike) else id(now)
            return changed.told(), (changed.place, value), is_its_own
        if before.key[0] != key[0]:
            return other_number(before.key[0], key[0]), None, False
        if before.key[1] != key[1]:
            return "what watch= returns", None, False
        return self._facts.told() if before.key[3] != key[3] else "", None, False

    def _begin(self, key: tuple[Any, ...], numbers: CallNumbers | None, begins_with: Iterable[Read]) -> _Variant:
        if len(self.variants) >= min(self._programs, _MOST_SETS):
            del self.variants[0]
        settings = [as_it_is_now(read) for read in self._changes.settings.values()]
        looks = map(Alike, self._changes.carried.values())
        variant = _Variant(next(self._numbers), key, [*begins_with, *self._written_by_the_function(), *settings, *looks])
        variant.settings = {read.place: Setting(read) for read in settings}
        variant.numbers = numbers
        return variant

    def _written_by_the_function(self) -> Iterator[Read]:
        """What it has read and the function writes: the first run with other values shows whether numbers go on, and tensors are given anew."""
        for read in () if self.variant is None else self.variant.reads.all():
            if type(read.expected) in (int, float):
                goes_on = self.may_count(read)
            else:
                goes_on = (read.expected is None or isinstance(read.expected, torch.Tensor)) and self.may_write(read)
            if goes_on:
                yield as_it_is_now(read)

    def _known(self, key: tuple[Any, ...]) -> _Variant | None:
        """One whose recordings are those of the call: the surest, and the one that was used last. To look at all of them takes long."""
        unsure = []
        for variant in reversed(self.variants):
            if variant.key != key or variant.reads.changed() is not None:
                continue
            if variant.doubt > 1:
                unsure.append(variant)
            elif variant.takes(key[0]):
                return variant
        return next((variant for variant in sorted(unsure, key=lambda each: each.doubt) if variant.takes(key[0])), None)

    def _open_numbers(self, key: tuple[Any, ...]) -> CallNumbers | None:
        """Floats that differ from those of an earlier call become values of a program, which takes whatever they are; so do the
        function's own counters."""
        if not self._opens_numbers:
            return None
        counters = list(self._changes.counters.values())
        for template in [*self._opened(key), *([key[0]] if counters else [])]:
            numbers = CallNumbers(template, counters, self._shared)
            alike = sum(other.numbers is not None and other.numbers.places == numbers.places and other.reads.changed() is None
                        for other in self.variants)
            most = _MOST_WAYS if counters else _MOST_BRANCHES
            if numbers.places not in self._not_open and alike < most and numbers.take(key[0]):
                return numbers
        return None

    def _opened(self, key: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """Templates with the floats left open that differ from those of an earlier call, the last one first."""
        for known in reversed(self.variants):
            if key[0] and known.key[1:] == key[1:] and (template := opened(known.key[0], key[0])) is not None:
                yield template

    def _why_not_open(self) -> str:
        return "".join(f", which has a recording for each value since {reason}" for reason in list(self._not_open.values())[-1:])

    def _comes_again(self, key: tuple[Any, ...], value: Any) -> bool:
        """Whether a call had these values before, and another call, a replay or a rest came in between."""
        form = key, value
        if self._last_seen is None or not _same_form(self._last_seen, form):
            self._last_seen, self._turns = form, self._turns + 1
        mark = self._turns, self._pace.rests, self._pace.stats()["replayed"]
        known = next((had for each, had in self._seen if _same_form(each, form)), None)
        if known is None:
            self._seen = [*self._seen[-_MOST_SEEN:], (form, mark)]
        return known is not None and known != mark

    def drop(self, variant: _Variant) -> None:
        if variant in self.variants:
            self.variants.remove(variant)
        if self.variant is variant:
            self.variant = None

    def drop_open(self, variant: _Variant) -> None:
        assert variant.numbers is not None
        self._not_open[variant.numbers.places] = variant.numbers.refusal
        self.drop(variant)

    def drop_all(self) -> None:
        """What is known now, no recording so far knows."""
        self.variants.clear()
        self.variant = None

    def drop_others_with(self, reads: Sequence[Read]) -> None:
        """Guards of which no value is expected any more: other sets of values share them, and a call never fits those again."""
        self.variants = [each for each in self.variants if each is self.variant or not any(map(each.reads.has, reads))]

    def reset(self) -> None:
        self._not_open.clear()
        self._seen.clear()
