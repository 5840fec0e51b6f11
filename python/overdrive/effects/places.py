"""Places to which a captured function gives values: what one call does with them, and what is known of them from call to call."""
from __future__ import annotations

import itertools
import sys
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import torch

from overdrive.effects.assigned import Assigned
from overdrive.effects.left import Left, has_numbers_alone, tensors_in
from overdrive.native.library import call
from overdrive.numbers.counters import Counter, may_be_read_first, stores_of
from overdrive.numbers.executed import Executed, Place
from overdrive.optimizers.all import Optimizers
from overdrive.optimizers.one import Optimizer
from overdrive.values.forms import filled, form_of
from overdrive.values.read import NOTHING, Alike, Read, as_it_is_now
from overdrive.values.same import is_number

_Place = tuple[int, int, Any]
ALSO_APART = ("The function gives {} a value, and so does code that runs apart, which a replay cannot tell apart; give the values two names.")
# Calls in which a tensor that the program has put at a place is another one, after which it is an input, with so many replays between two of them.
_TIMES_ELSEWHERE, _MOST_REPLAYS_BETWEEN = 2, 16


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
        without_graph: list[Any] = []
        for read in reads:
            if not before.is_still_at(read):
                self.left.append(Left(read, results, inputs, without_graph))
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


class LeftPlaces:
    """Places to which some call gives a tensor, as replays do. Owned by the changes of a step. Says which guards a recording needs there; what one
    call does with them is in Places."""

    def __init__(self) -> None:
        self.reads: dict[_Place, Read] = {}
        # What stood there before the recorded call under way.
        self._looks: dict[_Place, Alike] = {}
        # The tensors there, by their addresses; where its code gives the places values, and those to which it may have, be it what stood there.
        self._tensors: dict[_Place, list[int]] = {}
        self._stores: dict[_Place, list[Place]] = {}
        self._stored: set[_Place] = set()
        # Those that are buffers of modules, and those that some recorded call has left alone.
        self.buffers: set[_Place] = set()
        self.alone: set[_Place] = set()
        # Whether code finds the attribute otherwise than by its name. The learner's.
        self.is_found_otherwise: Callable[[Read], bool] = lambda read: False

    def begin_recording(self) -> None:
        self._looks = {place: Alike(read) for place, read in self.reads.items()}
        tensors = {place: tensors_in(read.now()) for place, read in self.reads.items()}
        call("Recording.keep_addresses", [tensor for each in tensors.values() for tensor in each])
        self._tensors = {place: [tensor._cdata for tensor in each] for place, each in tensors.items()}

    def that_may_be_read_first(self, ran: Collection[types.CodeType]) -> list[Read]:
        """Places at which a call may go on with what the one before has left."""
        return [read for read in self.reads.values() if self._may_be_read_first(read, ran)]

    def _may_be_read_first(self, read: Read, ran: Collection[types.CodeType]) -> bool:
        return self.is_found_otherwise(read) or may_be_read_first(read, ran, read.place not in self.alone)

    def made_of_the_old(self, before: Before, carried: Sequence[Any], ran: Collection[types.CodeType]) -> list[Read]:
        """Places whose tensor the recorded call has given to an operator, and replaced, or has put at another place. One that is `carried`, an input
        of the call, it may have given to an operator by the name of another place."""
        changed = {place for place, read in self.reads.items() if not before.is_still_at(read)}
        moved = {tensor._cdata for place in changed for tensor in tensors_in(self.reads[place].now())}
        inputs = {tensor._cdata for tensor in carried}
        read_first = {read.place for read in self.that_may_be_read_first(ran)} if inputs else set()
        return [self.reads[place] for place, tensors in self._tensors.items() if not moved.isdisjoint(tensors)
                or place in changed and any(call("Recording.knew", each) for each in tensors)
                or place in read_first and not inputs.isdisjoint(tensors)]

    def find_stores(self, codes: Collection[types.CodeType]) -> Iterator[Place]:
        """Before a recorded call, for who looks which of them run."""
        self._stores = {place: stores_of(read, codes) for place, read in self.reads.items()}
        return itertools.chain.from_iterable(self._stores.values())

    def note_stores(self, executed: Executed) -> None:
        """After a recorded call. What no code names is written by other means."""
        self._stored = {place for place, stores in self._stores.items() if not stores or any(map(executed.may_have_run, stores))}

    def add(self, read: Read) -> None:
        """The call under way has given the place a tensor."""
        if read.place not in self.reads:
            self._looks[read.place] = Alike(read, read.expected)
        self.reads[read.place] = read

    def guards(self, only_read: Collection[_Place], ran: Collection[types.CodeType], carried: Collection[_Place]) -> list[Read]:
        """Of a recorded call that has left `only_read` alone: tensors there that an operator was given, or that the call may have written there
        again, with the other places that have them, and what is not there. What the other places look like before: by that a call may decide whether
        it makes another tensor. Of buffers nobody else looks."""
        again = {id(tensor) for place in only_read if place in self._stored and place in self.reads for tensor in tensors_in(self.reads[place].now())}
        used = [as_it_is_now(read) for place, read in self.reads.items() if place not in carried
                and (any(id(tensor) in again for tensor in tensors_in(read.now()))
                     or place in only_read and (read.now() is NOTHING or any(call("Recording.uses", tensor) for tensor in tensors_in(read.now()))))]
        return used + [self._looks[place] for place, read in self.reads.items() if place in self._looks and (
            place in self.buffers or place in carried or place not in only_read and self._may_be_read_first(read, ran))]


class Changes:
    """All such places of one captured function. Owned by its step, and used by the thread that is in its call. What is `left`, `assigned` or
    counted goes on in replays. Does not know recordings: the step drops them where a place comes that they do not know."""

    def __init__(self) -> None:
        # What the function was seen to change: no guard looks there.
        self.own: dict[_Place, Read] = {}
        self.left = LeftPlaces()
        # Those of them whose tensors are inputs of the recordings, beside the arguments: each call makes them of those that it finds.
        self.carried: dict[_Place, Read] = {}
        # Of the recorded call under way: a place at which it leaves a graph that the next call goes on with.
        self.with_graph = ""
        # Whether the library still has the recordings of before, which took one of them for a tensor that stays.
        self.carries_anew = False
        # Numbers that it writes and never reads.
        self.assigned = Assigned()
        # Numbers that go on in replays; those that are options of optimizers, with their indices.
        self.counters: dict[_Place, Counter] = {}
        self.written_ahead: list[tuple[Optimizer, list[tuple[int, str, int]]]] = []
        # Flags and texts.
        self.settings: dict[_Place, Read] = {}
        # Values of tensors that changed between two calls, which the function may write before it reads them; how often they did with few replays in
        # between, and how many replays there were the last time.
        self.written_elsewhere: dict[_Place, Read] = {}
        self.times_elsewhere: dict[_Place, tuple[int, int]] = {}
        # Containers of which an answer is known that the program has them still.
        self.held: set[_Place] = set()
        # How often a call has made a value, or taken it away.
        self.appearances: dict[_Place, int] = {}
        # What stood before the run under way at places that some run gives values.
        self.before = Before(())
        # Whether the run under way may not be recorded, since it changes what a replay would not.
        self.has_refused = False
        # What code that runs apart has changed in the run under way, and ever: a run whose replay came first leaves that alone.
        self.apart: dict[_Place, Read] = {}
        self.ever_apart: set[_Place] = set()
        # Why no call may be recorded, once one has changed a setting of PyTorch's: another may find it as it leaves it.
        self.of_settings = ""
        # A parameter or a buffer that the last recorded call has given another tensor or other memory, and what to write.
        self.moved = ""
        # Why nothing may be recorded, once the function and such code were seen to give one place values.
        self.given_by_both = ""

    def begin_run(self) -> None:
        self.apart, self.has_refused, self.with_graph = {}, False, ""
        self.before = Before([*self.left.reads.values(), *(read for place, read in self.own.items() if place not in self.counters)])

    def begin_recording(self) -> None:
        self.assigned.begin()
        self.left.begin_recording()

    def only_read(self) -> dict[_Place, Read]:
        """Places that other runs give values, and that this one has left alone: they have guards in its recording."""
        return {place: read for place, read in {**self.own, **self.left.reads}.items() if self.before.is_still_at(read)
                and not (place in self.counters or place in self.assigned or place in self.carried or place in self.ever_apart)}

    def note_written_elsewhere(self, read: Read, replayed: int) -> None:
        self.written_elsewhere[read.place] = read
        times, before = self.times_elsewhere.get(read.place, (0, replayed))
        self.times_elsewhere[read.place] = (times if replayed - before <= _MOST_REPLAYS_BETWEEN else 0) + 1, replayed

    def is_fed(self, place: _Place) -> bool:
        """Whether the program puts another tensor there from call to call. An input is copied in each call, which does not pay for one that stays."""
        return self.times_elsewhere[place][0] >= _TIMES_ELSEWHERE

    def told_carried(self) -> str:
        return ", ".join(f"`{read.name}`" for read in self.carried.values())

    def carried_tensors(self, arguments: Sequence[Any]) -> list[Any] | None:
        """Those that the call begins with; None: one is at two places, or an argument, or part of a graph."""
        found = [tensor for read in self.carried.values() for tensor in tensors_in(read.now())]
        known = {id(tensor) for tensor in (*arguments, *found)}
        return None if len(known) < len(arguments) + len(found) or any(tensor.requires_grad for tensor in found) else found

    def given(self) -> list[Read]:
        """What replays give a value without a guard, but for counters."""
        return [*self.assigned.reads(), *self.left.reads.values()]

    def not_in_replays(self) -> Read | None:
        """One that may be another number later, since no replay changes it."""
        return next((read for place, read in self.own.items() if not (place in self.left.reads or place in self.counters or place in self.assigned)
                     and not isinstance(read.now(), torch.Tensor)), None)

    def note_given_by_both(self, read: Read) -> None:
        """A call in which such code gives the place what stands there already does not show that it does."""
        if read.place not in self.counters:
            self.given_by_both = self.given_by_both or ALSO_APART.format(f"`{read.name}`")

    def told(self) -> str:
        """One value that the function changes, and a replay does not; "" where it was seen to change none."""
        return next((read.told() for place, read in [*self.own.items(), *self.settings.items()] if place not in self.left.reads), "")

    def count(self, read: Read, optimizers: Optimizers) -> None:
        """From here on it goes on in replays."""
        self.counters[read.place] = Counter(read)
        self.written_ahead = optimizers.places_of(list(self.counters.values()))

    def drop_nobodys(self) -> None:
        """Places in what the program has dropped."""
        for place in [place for place, read in self.own.items() if sys.getrefcount(read.holder) <= 2]:
            del self.own[place]

    def forget(self) -> None:
        """Whether buffers are replaced and places left alone stays known: that is the function's way."""
        known: Any
        for known in (self.own, self.left.reads, self.carried, self.assigned, self.counters, self.written_ahead, self.settings,
                      self.written_elsewhere, self.times_elsewhere, self.held, self.appearances, self.ever_apart):
            known.clear()
        self.of_settings = ""
