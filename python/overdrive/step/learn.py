"""What a captured function reads and changes, seen while it runs."""
from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from overdrive.effects.assigned import is_empty_container
from overdrive.effects.places import Changes
from overdrive.effects.left import Setting, can_be_left, has_tensors_or_numbers, tensors_in
from overdrive.native.library import call
from overdrive.native.recording import _refuse
from overdrive.numbers.call_numbers import CallNumbers
from overdrive.numbers.counters import is_counted, is_only_written, is_written
from overdrive.numbers.tracked import Tracked, TrackedWhole
from overdrive.reads.code import Found, Met, Watcher
from overdrive.reads.last_walk import LastWalk
from overdrive.reads.walk import Walk
from overdrive.reads.walk_names import FoundOtherwise, KnownNames
from overdrive.step.choice import Chooser
from overdrive.step.subject import Subject
from overdrive.step.variant import Forms, _Variant
from overdrive.values.arguments import Nested
from overdrive.values.forms import classes_in, form_of, others_in
from overdrive.values.read import ATTRIBUTE, CONTENTS, ENTRY, IN_CONTAINERS, KEYS, NOTHING, SIZE, VALUES, Alike, Read, as_it_is_now
from overdrive.values.reads import Held
from overdrive.values.same import bytes_of, is_all_numbers, is_array, is_number
from overdrive.values.slots import can_be_put


_Place = tuple[int, int, Any]
NOT_CHANGED_BY_REPLAYS = "The function changes {}, which a replay would not; change it outside of the function."
ANOTHER_TENSOR = "The function gives {}, another tensor in each call; keep one tensor, and copy values into it (copy_)."
# Py_TPFLAGS_HAVE_GC. A dict that has nothing but objects of other classes, as arrays of NumPy's, is not tracked, and nobody finds it as their holder.
_IN_CYCLES = 1 << 14
# Attributes of libraries that are written in each call before they are read: tensordict's operation that leaves a context.
_WRITTEN_FIRST = {"_last_op": "tensordict"}
# Calls that make or take away one value, after which that is a refusal.
_MOST_APPEARANCES = 3


class Learner:
    """What runs of the function show: values that guards look at, and those that it changes itself. Owned by its step, and told by the runner, on
    the thread that is in the call. Gives guards to the set of values of the call, and drops recordings that do not know what is known now. Parts
    have one of their own kind (note_own, _classes_of_arguments)."""

    def __init__(self, capture: Any, subject: Subject, changes: Changes, chooser: Chooser, forms: Forms) -> None:
        self._capture, self.subject, self.changes, self.chooser, self._forms = capture, subject, changes, chooser, forms
        # Code of all runs of the function that were watched, and of the last one, in the order in which it first returned.
        codes = self.codes = set[types.CodeType]()
        if not subject.is_part:
            chooser.may_write = lambda read: is_written(read, codes)
        chooser.may_count = lambda read: is_written(read, codes) and not self._is_only_written(read)
        self.ran: list[types.CodeType] = []
        self.met = Met()
        self._met_functions = Met()
        self.last_walk: LastWalk | None = None
        # Attributes that the code of these runs finds by other means than their names.
        otherwise = self._otherwise = FoundOtherwise(set(), {})
        changes.left.is_found_otherwise = otherwise.has
        self.known_names: KnownNames | None = None
        # Places whose tensors are inputs from the next call on.
        self._fed: list[Read] = []
        # Whether a replay has seen a change that no recording knows.
        self.is_outdated = False

    def tell_refusal(self, numbers: CallNumbers, recorded: bool) -> None:
        """No value of a counter comes again, so that a recording for each would gain nothing."""
        if recorded and numbers.refusal and numbers.counters:
            names = ", ".join(counter.told() for counter in numbers.counters)
            _refuse(f"The function counts in {names}, and a replay cannot tell what it makes of that: {numbers.refusal}. Count outside of the "
                    "function, and give it what depends on the count as an argument.")

    def note_written(self, before: Sequence[Any]) -> None:
        """What the function gives a new value in each call need not be the same before the call, if it does not read it. What the program gives
        one, and the function leaves alone, is to be an input of the recordings."""
        written = []
        changes = self.changes
        for (place, read), value in zip(list(changes.written_elsewhere.items()), before):
            if read.now() is not value and can_be_left(read):
                written.append(read)
                changes.own[place] = changes.left.reads[place] = read
                del changes.written_elsewhere[place]
            elif (changes.is_fed(place) and place not in changes.left.reads and self._can_be_carried(read)
                  and not any(tensor.requires_grad for tensor in tensors_in(value))):
                self._fed.append(read)
                del changes.written_elsewhere[place]
        self._forget_expected(written)

    def carry_what_is_fed(self) -> None:
        """At the end of a run, since no recording lasts."""
        fed, self._fed = self._fed, []
        for read in fed:
            self._carry(read)

    def _forget_expected(self, reads: Sequence[Read]) -> None:
        """Of guards whose values may die."""
        for read in reads:
            read.expected = NOTHING
        self.chooser.drop_others_with(reads)

    def note_own(self, changed: dict[Any, Read]) -> None:
        """What the function has changed while it ran. A tensor that it gives a name anew stays the recorded one in replays."""
        self._take_settings(changed)
        self.changes.own.update(changed)
        self._refuse_lost_changes(changed)
        for read in changed.values():
            if is_counted(read.expected, read.now()):
                self._begin_to_count(read)
                continue
            had_more = has_tensors_or_numbers(read.expected)
            if not had_more and (type(read.now()) in (int, float) or is_all_numbers(read.now()) or is_empty_container(read.now())):
                self._begin_to_assign(read)
                self._refuse_kept_container(read)
                if read.expected is NOTHING and read.place not in self.changes.assigned:
                    self._look_from_now_on(read)
                continue
            is_tensor = isinstance(read.now(), torch.Tensor) and isinstance(read.expected, torch.Tensor)
            if not self._is_made_of_the_old(read):
                if can_be_left(read) or had_more and is_number(read.now()) and can_be_put(read):
                    self.begin_to_leave(read)
                elif read.kind not in IN_CONTAINERS:
                    self._note_object(read)
            elif self._note_graph(read):
                continue
            elif self._can_be_carried(read):
                self._carry(read)
            elif is_tensor:
                _refuse(ANOTHER_TENSOR.format(read.told()))
        self._take_written()
        self._let_go_of_old(changed)

    def _note_object(self, read: Read) -> None:
        """What has no tensors, and does not go on as a number does."""
        before, now = read.expected, read.now()
        if _WRITTEN_FIRST.get(read.key) in sys.modules:
            return
        if before is NOTHING or now is NOTHING or is_number(before) != is_number(now):
            self._look_from_now_on(read)
        elif _is_another_object(before, now):
            self.refuse_change(read, "The function gives {}, another object in each call, which a replay cannot make; keep one object, and "
                               "change the tensors and numbers in it.")
        else:
            self._guard_later_calls(read)

    def _look_from_now_on(self, read: Read) -> None:
        """At what a call has made or taken away, as an attribute that hides that of the class. The recordings so far have no guard there."""
        appearances = self.changes.appearances
        appearances[read.place] = appearances.get(read.place, 0) + 1
        if appearances[read.place] > _MOST_APPEARANCES:
            self.refuse_change(read, "The function makes {}, or takes it away, in each call; keep it, and change what is in it.")
            return
        self.changes.own.pop(read.place, None)
        self.chooser.drop_all()

    def refuse_change(self, read: Read, reason: str) -> None:
        """The call under way may not be recorded. One that does not change it may be, and is good for what it finds there."""
        self.changes.has_refused = True
        self._guard_later_calls(read)
        _refuse(reason.format(read.told()))

    def _guard_later_calls(self, read: Read) -> None:
        self.changes.own.pop(read.place, None)
        if self.chooser.variant is not None:
            self._guard_changed(self.chooser.variant, read)

    def _guard_changed(self, variant: _Variant, read: Read) -> None:
        """At a place that the run under way has changed. Recordings that there are, of other sizes, say, were made with what was before: they are
        only good for that. What is recorded from now on finds what it is now, and so does what cannot tell the two apart."""
        self._drop_what_met(read)
        is_for_before = variant.recordings and self.chooser.variant is variant and _is_value(read.expected)
        variant.reads.add([read if is_for_before else as_it_is_now(read)])

    def _drop_what_met(self, read: Read) -> None:
        """Recordings that there are may have met the object or the tensors that the run under way has taken from a place. Nobody may keep them, and
        what comes in their place may look as they do. A cache that is cleared nobody has met."""
        variant, before = self.chooser.variant, read.expected
        if variant is not None and variant.recordings and not _is_value(before) and (
                not is_empty_container(read.now()) or self._has_met_content(variant, before)):
            self.chooser.drop(variant)

    def _has_met_content(self, variant: _Variant, container: Any) -> bool:
        tensors: list[Any] = []
        return (others_in(form_of(container, tensors, [])) is not None or any(read.holder is container for read in variant.reads.all())
                or bool(call("Capture.has_met_one_of", self._capture, tensors)))

    def _refuse_kept_container(self, read: Read) -> None:
        """An empty container that the function also reads stays the same in replays, where the program has the one before."""
        before = read.expected
        if (read.place not in self.changes.assigned and is_empty_container(before) and before is not read.now()
                and call("Recording.is_active") and self._is_held(before)):
            _refuse(f"The function gives {read.told()}, another {type(before).__name__} in each call, and the program keeps the one before, which "
                    "would be the same one in replays; clear() it, or make it outside of the function.")

    def _refuse_lost_changes(self, changed: dict[Any, Read]) -> None:
        """What the function adds to containers of the program or takes from them, and gradients that it assigns to tensors which need
        none. A replay puts back what it leaves under a name."""
        states = self.subject.optimizers.states()
        for place, read in changed.items():
            if read.kind not in IN_CONTAINERS and (read.kind, read.key) != (ATTRIBUTE, "grad") or place in self.changes.apart:
                continue
            if any(read.holder is state for state in states) or not self._is_held_in_call(read):
                continue
            come = sum(each.kind == ENTRY and each.holder is read.holder and each.expected is NOTHING and can_be_left(each)
                       for each in changed.values())
            if read.kind in (SIZE, KEYS) and isinstance(read.holder, dict) and come and come == _length(read.now()) - _length(read.expected):
                self._guard_later_calls(read)  # what comes by a call with these keys may be there before another
                continue
            self.refuse_change(read, NOT_CHANGED_BY_REPLAYS)

    def _is_held_in_call(self, read: Read) -> bool:
        """To ask takes milliseconds, and what an eager call has found needs no answer in each that follows."""
        if read.place in self.changes.held and not call("Recording.is_active"):
            return True
        is_held = self._is_held(read.holder)
        if is_held:
            self.changes.held.add(read.place)
        return is_held

    def _is_held(self, container: Any) -> bool:
        """Whether the program has it still, and not another one in its place, as a cache has that is cleared."""
        if not type(container).__flags__ & _IN_CYCLES:
            return True
        ours = [] if self.last_walk is None else self.last_walk.walk.keeps()
        return any(not (isinstance(holder, (Read, Held, Found, types.FrameType)) or any(holder is one for one in ours))
                   for holder in gc.get_referrers(container))

    def _take_written(self) -> None:
        """Numbers that are made of the call's own go on as counters do, and a tensor in the place of one is left."""
        assigned = self.changes.assigned
        for place, value in list(assigned.written.items()):
            if isinstance(value, (Tracked, TrackedWhole)):
                self.count(assigned.drop(place))
            elif has_tensors_or_numbers(value) and not is_all_numbers(value):
                self.begin_to_leave(assigned.drop(place))

    def _begin_to_count(self, read: Read) -> None:
        """It goes on in replays, where it is no constant that the function gives it. No recording so far knows what it makes of it."""
        if not self.subject.guarded or read.place in self.changes.counters:
            return
        if not can_be_put(read):
            if read.kind not in IN_CONTAINERS:
                self.refuse_change(read, NOT_CHANGED_BY_REPLAYS)
            return
        if not isinstance(read.now(), (Tracked, TrackedWhole)) and self._is_only_written(read):
            self._begin_to_assign(read)
        else:
            self.count(read)

    def begin_to_leave(self, read: Read) -> None:
        """Recordings that there are do not know what they leave there, and no guard looks at the place from now on."""
        left = self.changes.left
        if read.place not in left.reads:
            if self._forms.known:
                self.chooser.drop_all()
        elif (variant := self.chooser.variant) is not None and variant.recordings and _is_value(read.expected):
            variant.reads.add([read])  # recordings that left the place alone have met it
        else:
            self._drop_what_met(read)
        left.add(read)

    def _note_graph(self, read: Read) -> bool:
        """Notes, and says, whether what comes of the old tensors has a graph, on which the next call goes on. Replays leave none."""
        if not any(tensor.requires_grad for tensor in tensors_in(read.now())):
            return False
        self.changes.with_graph = self.changes.with_graph or read.told()
        return True

    def _can_be_carried(self, read: Read) -> bool:
        """Whether the tensors of the place may be inputs of the recordings, and what the call makes of them is left there."""
        return (self.subject.guarded and not self.subject.is_part and read.place not in self.changes.apart and can_be_left(read)
                and not any(tensor.is_inference() for tensor in tensors_in(read.now())))

    def _carry(self, read: Read) -> None:
        """No recording so far takes them."""
        self.begin_to_leave(read)
        self.changes.carried[read.place] = read
        self.changes.carries_anew = True
        self.chooser.drop_all()

    def refuse_second_names(self, variant: _Variant, carried: Sequence[Any]) -> None:
        """A recording has one input for a tensor that it finds, and another name of it may lead to another one later."""
        if not carried:
            return
        known = {id(tensor) for tensor in carried}
        of_buffers = {id(tensor) for place in self.changes.left.buffers for tensor in tensors_in(self.changes.left.reads[place].now())}
        second = next((read.told() for read in variant.reads.all() if not known.isdisjoint(map(id, _tensors_expected(read)))), "")
        if not second and any(id(tensor) in known - of_buffers for tensor in self.subject.lasting_tensors()):
            second = "a parameter or a buffer"
        if second:
            _refuse(f"The function finds other tensors in {self.changes.told_carried()} from call to call, and this one is also {second}; make a "
                    "clone() of it.")

    def carry_what_is_made_of_the_old(self, carried: Sequence[Any]) -> None:
        """`carried`: tensors that the recorded call was given."""
        if self.subject.is_part:
            return
        changes = self.changes
        for read in changes.left.made_of_the_old(changes.before, carried, self.ran):
            if not self._note_graph(read) and read.place not in changes.carried and self._can_be_carried(read):
                self._carry(read)
        for read in [*changes.carried.values(), *changes.left.that_may_be_read_first(self.ran)]:
            if not changes.before.is_still_at(read):
                self._note_graph(read)

    def _begin_to_assign(self, read: Read) -> None:
        if read.place in self.changes.assigned:
            return
        if can_be_put(read) and self._is_only_written(read):
            self.changes.assigned.add(read.place, read)
            self.chooser.drop_all()
        elif read.kind not in IN_CONTAINERS and not is_empty_container(read.now()):  # which _refuse_kept_container() looks at
            self._guard_later_calls(read)

    def count_options(self) -> None:
        """Options of optimizers that the function writes before its step() are numbers of the call, which replays need before they begin."""
        for read in self.subject.optimizers.written_inside():
            self.changes.own[read.place] = read
            if read.place not in self.changes.counters:
                self.count(read)

    def count(self, read: Read) -> None:
        self.changes.count(read, self.subject.optimizers)
        self.chooser.drop_all()

    def _take_settings(self, changed: dict[Any, Read]) -> None:
        """Takes out flags, texts and tuples of numbers: a call leaves one in the place of another, and its recording is for that other one."""
        variant = self.chooser.variant
        assert variant is not None
        for place, read in list(changed.items()):
            now = read.now()
            if can_be_put(read) and self._is_setting(read, now):
                del changed[place]
                self.changes.settings[place] = read
                variant.settings.setdefault(place, Setting(read))
                variant.reads.add([read])

    def _is_only_written(self, read: Read) -> bool:
        """Whether no code takes the number from there, by its name or otherwise."""
        return is_only_written(read, self.codes) and not self._otherwise.has(read)

    def _is_setting(self, read: Read, now: Any) -> bool:
        if is_all_numbers(now) and is_all_numbers(read.expected):
            return not self._is_only_written(read)
        return is_number(now) and is_number(read.expected) and not is_counted(read.expected, now)

    def note_settings(self, variant: _Variant) -> None:
        for place, setting in variant.settings.items():
            if place in self.changes.apart:
                continue  # it is refused
            if not setting.note(variant.recordings == 0):
                _refuse(f"The function changes {setting.before.told()}, and leaves another value in each call; change it outside of the function.")
        variant.recordings += not self.changes.has_refused

    def _let_go_of_old(self, changed: dict[Any, Read]) -> None:
        """What the program has dropped must die as it would: a recording looks at what is held."""
        self._forget_expected([read for read in changed.values() if not is_number(read.expected)])
        self.changes.drop_nobodys()

    def _is_made_of_the_old(self, read: Read) -> bool:
        """Whether the call that is recorded has used what was there before."""

        return any(call("Recording.knows", tensor) for tensor in tensors_in(read.expected))

    def tell_numbers(self) -> None:
        """A number is written in the code, or comes from a value that is looked at in every call, or may change unseen."""
        read = self.changes.not_in_replays()
        call("Recording.unseen_numbers", "" if read is None else (
            f"the function changes {read.told()}, and a replay does not, so that the number may be another one later"))

    def note_code(self, watcher: Watcher) -> None:
        """Of a run that was watched."""
        self.ran = [code for code, _ in watcher.codes]
        self.codes.update(watcher.nn_codes, self.ran)
        self._look_at_assigned()

    def has_met_one_of(self, containers: Iterable[Any]) -> bool:
        return self.last_walk is not None and any(map(self.last_walk.walk.has_met, containers))

    def _look_at_assigned(self) -> None:
        """Code that has not run before may read a number that no other code reads."""
        changes = self.changes
        for read in [read for read in changes.assigned.reads() if not self._is_only_written(read)]:
            changes.assigned.drop(read.place)
            changes.own.pop(read.place, None)
            self.is_outdated = True
            _refuse(f"The function gives {read.told()} in some calls and reads it in others; the next calls are recorded with its value.")

    def _classes_of_arguments(self, template: Any) -> Iterable[type]:
        """What stands in them is read through arguments, which have guards of their own."""
        return dict.fromkeys(kind for part in template if isinstance(part, Nested) for kind in classes_in(part.form))

    def learn(self, variant: _Variant, watcher: Watcher, only_read: Mapping[_Place, Read], objects: Iterable[Any], recorded: bool) -> Walk:
        """What the run has read. `objects`: those that the call was given."""
        last = self.last_walk
        own, given = self.changes.own.keys() - only_read.keys(), self.changes.left.reads.keys() - only_read.keys()
        new = None if last is None else last.look(watcher, given)
        if last is None or new is None:
            last = self.last_walk = LastWalk(watcher, given, own, self.known_names, self.subject.function, self.subject.roots)
        if new is None or variant.walk_number != last.number:
            variant.walk_number, new = last.number, last.reads()
        walk = last.of_one_call(self._met_functions, [*watcher.found(), *objects, *self._classes_of_arguments(variant.key[0])])
        self._otherwise.add(walk.found_otherwise())
        if recorded:
            variant.reads.add(self.changes.left.guards(only_read, self.ran, self.changes.carried))
        self.known_names = last.walk.known_names()
        new += walk.beyond()
        for reason in walk.refusals:
            _refuse(reason)
        self.subject.modules.update(dict.fromkeys(walk.modules))
        variant.generators = walk.generators
        self.subject.facts.ask(walk.names())
        self.subject.named = walk.leaves
        self.subject.facts.ask_for_gradients_of(self.subject.lasting_tensors())
        self.subject.optimizers.note_names(new)
        new += self.subject.optimizers.options_read()
        variant.reads.add(Alike(read) if place in self.changes.left.reads and isinstance(read.expected, torch.Tensor) else read
                          for read in new if (place := read.place) not in own)
        variant.reads.leave_out(own)
        return walk


def _tensors_expected(read: Read) -> list[Any]:
    values = read.expected if read.kind in (VALUES, CONTENTS) else [] if isinstance(read, Alike) else [read.expected]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _is_value(value: Any) -> bool:
    """Whether it is nothing but its value, which a guard sees."""
    return value is NOTHING or is_number(value) or is_all_numbers(value)


def _is_another_object(before: Any, now: Any) -> bool:
    """Whether both are objects that nobody looks into, and the program sees a difference: arrays, dates, instances of its classes."""
    if is_empty_container(now) or _is_value(before) or _is_value(now):
        return False
    if is_array(before) and is_array(now):
        return bytes_of(before) != bytes_of(now)
    try:
        return bool(form_of(before, [], []) != form_of(now, [], []))
    except Exception:  # noqa: BLE001 - objects of the program that cannot be compared
        return True


def _length(value: Any) -> int:
    return value if isinstance(value, int) else len(value)
