"""Places to which a captured function gives values: what is known of them from call to call, and what a recording must find there."""
from __future__ import annotations

import sys
import types
from collections.abc import Collection, Iterable
from typing import Any

import torch

from overdrive.effects.assigned import Assigned
from overdrive.effects.left import tensors_in
from overdrive.effects.places import Before
from overdrive.native.library import call
from overdrive.numbers.counters import Counter, may_be_read_first
from overdrive.optimizers.all import Optimizers
from overdrive.optimizers.one import Optimizer
from overdrive.values.read import NOTHING, Alike, Read, as_it_is_now

_Place = tuple[int, int, Any]


class LeftPlaces:
    """Places to which some call gives a tensor, as replays do. Owned by the changes of a step. Says which guards a recording needs there; what one
    call does with them is in Places."""

    def __init__(self) -> None:
        self.reads: dict[_Place, Read] = {}
        # What stood there before the recorded call under way.
        self._looks: dict[_Place, Alike] = {}
        # Those that are buffers of modules, and those that some recorded call has left alone.
        self._buffers: set[_Place] = set()
        self._alone: set[_Place] = set()

    def __contains__(self, place: object) -> bool:
        return place in self.reads

    def begin_recording(self) -> None:
        self._looks = {place: Alike(read) for place, read in self.reads.items()}

    def add(self, read: Read) -> None:
        """The call under way has given the place a tensor."""
        if read.place not in self.reads:
            self._looks[read.place] = Alike(read, read.expected)
        self.reads[read.place] = read

    def note_buffer(self, read: Read) -> None:
        self._buffers.add(read.place)

    def note_alone(self, only_read: Iterable[_Place]) -> None:
        self._alone.update(only_read)

    def guards(self, only_read: Collection[_Place], ran: Collection[types.CodeType]) -> list[Read]:
        """Of a recorded call that has left `only_read` alone: tensors there that an operator was given, and what is not there. What the other
        places look like before: by that a call may decide whether it makes another tensor. Of buffers nobody else looks."""
        used = [as_it_is_now(read) for place in only_read if (read := self.reads.get(place)) is not None
                and (read.now() is NOTHING or any(call("Recording.uses", tensor) for tensor in tensors_in(read.now())))]
        return used + [self._looks[place] for place, read in self.reads.items() if place in self._looks and (place in self._buffers or (
            place not in only_read and may_be_read_first(read, ran, place not in self._alone)))]


class Changes:
    """All such places of one captured function. Owned by its step, and used by the thread that is in its call. What is `left`, `assigned` or
    counted goes on in replays. Does not know recordings: the step drops them where a place comes that they do not know."""

    def __init__(self) -> None:
        # What the function was seen to change: no guard looks there.
        self.own: dict[_Place, Read] = {}
        self.left = LeftPlaces()
        # Numbers that it writes and never reads.
        self.assigned = Assigned()
        # Numbers that go on in replays; those that are options of optimizers, with their indices.
        self.counters: dict[_Place, Counter] = {}
        self.written_ahead: list[tuple[Optimizer, list[tuple[int, str, int]]]] = []
        # Flags and texts.
        self.settings: dict[_Place, Read] = {}
        # Values of tensors that changed between two calls, which the function may write before it reads them.
        self.written_elsewhere: dict[_Place, Read] = {}
        # Containers of which an answer is known that the program has them still.
        self.held: set[_Place] = set()
        # How often a call has made a value, or taken it away.
        self.appearances: dict[_Place, int] = {}
        # What stood before the run under way at places that some run gives values.
        self.before = Before(())

    def begin_run(self) -> None:
        self.before = Before([*self.left.reads.values(), *(read for place, read in self.own.items() if place not in self.counters)])

    def only_read(self, others: Collection[_Place]) -> dict[_Place, Read]:
        """Places that other runs give values, and that this one has left alone: they have guards in its recording. None of `others`."""
        return {place: read for place, read in {**self.own, **self.left.reads}.items()
                if not (place in self.counters or place in self.assigned or place in others) and self.before.is_still_at(read)}

    def given(self) -> list[Read]:
        """What replays give a value without a guard, but for counters."""
        return [*self.assigned.reads(), *self.left.reads.values()]

    def not_in_replays(self) -> Read | None:
        """One that may be another number later, since no replay changes it."""
        return next((read for place, read in self.own.items() if not (place in self.left or place in self.counters or place in self.assigned)
                     and not isinstance(read.now(), torch.Tensor)), None)

    def told(self) -> str:
        """One value that the function changes, and a replay does not; "" where it was seen to change none."""
        return next((read.told() for place, read in [*self.own.items(), *self.settings.items()] if place not in self.left), "")

    def count(self, read: Read, optimizers: Optimizers | None) -> None:
        """From here on it goes on in replays."""
        self.counters[read.place] = Counter(read)
        self.written_ahead = [] if optimizers is None else optimizers.places_of(list(self.counters.values()))

    def drop_nobodys(self) -> None:
        """Places in what the program has dropped."""
        for place in [place for place, read in self.own.items() if sys.getrefcount(read.holder) <= 2]:
            del self.own[place]

    def clear(self) -> None:
        """Whether buffers are replaced and places left alone stays known: that is the function's way."""
        known: Any
        for known in (self.own, self.left.reads, self.assigned, self.counters, self.written_ahead, self.settings, self.written_elsewhere,
                      self.held, self.appearances):
            known.clear()
