"""Which recordings a call belongs to, and when new ones are made."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from overdrive.effects.left import Setting, tensors_in
from overdrive.effects.schedulers import is_scheduler
from overdrive.native import signals
from overdrive.native.library import OverdriveError, call
from overdrive.native.recording import STILL_RECORDED, Refusal, refusal_of
from overdrive.numbers.call_numbers import CallNumbers, opened
from overdrive.optimizers.all import Optimizers
from overdrive.step.budget import TIMED, Budget
from overdrive.step.explain import StepTexts
from overdrive.step.variant import _Variant
from overdrive.values.keys import other_number
from overdrive.values.read import CELL, ENTRY, as_it_is_now
from overdrive.values.same import is_number, same_value

_MOST_RESETS = 8
SHORT = "A call takes so little time that a replay gains nothing."
_MANY_WAYS = "The function goes many ways by numbers that it counts itself, and this is another one; count outside of the function."
# Runs of the function in turn after which the way through the library is left out for a while.
_MOST_RUNS = 8
# Runs after which plain calls are timed: before, two recordings are on their way to their first replays.
_RUNS_UNTIMED = 8
# Replays after which plain calls are timed beside them: a short program has no more.
_REPLAYS_UNTIMED = 24
# Sets of values without recordings that are remembered, to see whether they come again.
_MOST_SEEN = 64
# Recordings with open numbers for the ways that the function goes by them, and by what it counts.
_MOST_BRANCHES, _MOST_WAYS = 4, 16
# Of values that the function read.
_MOST_SETS = 64


def _same_form(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Of sets of values: the key, and the value that is another one than before."""
    return one[0] == other[0] and same_value(one[1], other[1])


class StepChoice(StepTexts):
    """Sets of values, and what recordings cost."""

    def _find_variant(self, key: tuple[Any, ...]) -> _Variant | None:
        """The values that the call has: known ones, or new ones. None: it is made eagerly, since the function has gone many ways
        by what it counts."""
        signals.begin(self)
        if self._optimizer is not None and self._optimizer.rebind():
            self._forget()
            self._given_up = self._optimizer.write_numbers()
            key = (*key[:2], self._optimizer.gradients(), key[3])
        before, reason, value = self._variant, "", None
        if before is not None and before.key == key and (changed := before.reads.changed()) is not None:
            reason, value = changed.told(), changed.now()
            value = changed.place, value if is_number(value) else id(value)
            if changed.kind in (ENTRY, CELL) and tensors_in(changed.now()):
                self._changes.written_elsewhere[changed.place] = changed
        elif before is not None and before.key[0] != key[0]:
            reason = other_number(before.key[0], key[0])
        elif before is not None and before.key[1] != key[1]:
            reason = "what watch= returns"
        elif before is not None and before.key[3] != key[3]:
            reason = self._facts.told()
        self._shared.count = 0
        variant = self._known_variant(key)
        if variant is not None:
            self._variants.remove(variant)
            self._variants.append(variant)  # the last used one comes last
        else:
            numbers = self._open_numbers(key)
            if numbers is not None:
                key = (numbers.template, *key[1:])
            elif self._changes.counters:
                self._eager_reason = Refusal(_MANY_WAYS)
                return None
            if not self._may_begin(reason, reason == "" or numbers is not None or self._comes_again(key, value)):
                return None
            self._close(0)
            if len(self._variants) >= min(self._programs, _MOST_SETS):
                del self._variants[0]
            training = [] if not self._modules else self._training()
            settings = [as_it_is_now(read) for read in self._changes.settings.values()]
            variant = _Variant(next(self._numbers), key, [*training, *settings])
            variant.settings = {read.place: Setting(read) for read in settings}
            variant.numbers = numbers
            self._variants.append(variant)
            self._new_variants += bool(reason)
            if reason:
                self._reset_reason = f"another value of {reason}"
            if self._new_variants >= _MOST_RESETS and self.stats()["replayed"] < 2 * self._new_variants and reason:
                self._given_up = (
                    f"In nearly every call there is another value of {reason}{self._why_not_open()}. Give it as an argument that is a tensor, "
                    "change it outside of the function, or promise by guards=\"promised\" that it does not matter.")
        self._variant = variant
        self._shared.variant = variant.number
        return variant

    def _known_variant(self, key: tuple[Any, ...]) -> _Variant | None:
        """One whose recordings are those of the call: the surest, and the one that was used last. To look at all of them takes long."""
        unsure = []
        for variant in reversed(self._variants):
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
        if not self._guarded or self._is_part:
            return None
        counters = list(self._changes.counters.values())
        for template in [*self._opened(key), *([key[0]] if counters else [])]:
            numbers = CallNumbers(template, counters, self._shared)
            alike = sum(other.numbers is not None and other.numbers.places == numbers.places and other.reads.changed() is None
                        for other in self._variants)
            most = _MOST_WAYS if counters else _MOST_BRANCHES
            if numbers.places not in self._not_open and alike < most and numbers.take(key[0]):
                return numbers
        return None

    def _opened(self, key: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """Templates with the floats left open that differ from those of an earlier call, the last one first."""
        for known in reversed(self._variants):
            if key[0] and known.key[1:] == key[1:] and (template := opened(known.key[0], key[0])) is not None:
                yield template

    def _why_not_open(self) -> str:
        return "".join(f", which has a recording for each value since {reason}" for reason in list(self._not_open.values())[-1:])

    def _drop_open(self, variant: _Variant) -> None:
        assert variant.numbers is not None
        self._not_open[variant.numbers.places] = variant.numbers.refusal
        self._drop(variant)

    def _drop(self, variant: _Variant) -> None:
        if variant in self._variants:
            self._variants.remove(variant)
        if self._variant is variant:
            self._variant = None

    def _drop_all(self) -> None:
        """What is known now, no recording so far knows."""
        self._variants.clear()
        self._variant = None

    def _comes_again(self, key: tuple[Any, ...], value: Any) -> bool:
        """Whether a call had these values before, and another call, a replay or a rest came in between."""
        form = key, value
        if self._last_seen is None or not _same_form(self._last_seen, form):
            self._last_seen, self._turns = form, self._turns + 1
        mark = self._turns, self._rests, self.stats()["replayed"]
        known = next((had for each, had in self._seen if _same_form(each, form)), None)
        if known is None:
            self._seen = [*self._seen[-_MOST_SEEN:], (form, mark)]
        return known is not None and known != mark

    def _close(self, state: int) -> None:
        """Tells the library which recordings may begin (Budget.state), and how many rests there were."""
        self._shared.closed = state | self._rests << 2

    def _may_begin(self, reason: str, is_proven: bool) -> bool:
        """Whether the time of recordings so far allows another set of values. Note [A budget of time]."""
        budget = self._budget
        if budget.is_off or budget.slow < _RUNS_UNTIMED + self._eager_calls - 1:
            return True
        if not budget.eager:
            self._time_plain_calls()
            return False
        owed = self._owed()
        state = budget.state(owed)
        if state <= is_proven:
            return True
        self._close(state)
        self._pay_off(owed, reason)
        return False

    def _owed(self) -> float:
        made = self.stats()
        return self._budget.owed(made["replayed"])

    def _time_plain_calls(self) -> None:
        """This call is plain, and so are the next ones, which are timed."""
        self._eager_reason = (self._reason() or self._reason_of_last_call())._replace(rest=0)
        self._rest = TIMED
        self._budget.time_calls()

    def _pay_off(self, owed: float, reason: str) -> None:
        """Recordings have cost more than was paid. Where replays do not come in between, calls run eagerly until it is."""
        self._runs_in_turn += 1
        self._eager_reason = self._of_no_gain(reason)
        if self._runs_in_turn > _MOST_RUNS:
            self._begin_rest(self._eager_reason, self._budget.rest(owed, self._rests))

    def _of_no_gain(self, reason: str) -> Refusal:
        refusal = Refusal() if self.stats()["replayed"] else refusal_of("Capture.refusal", self._capture)
        return refusal or Refusal(
            "Recordings are made so often, and fit so seldom, that nothing is gained, and no more are made for now. The last reason: "
            f"{reason or self._reset_reason or 'other arguments'}.")

    def _begin_rest(self, reason: Refusal, calls: int) -> None:
        self._rest = calls
        self._rests += 1
        self._close(min(self._budget.state(self._owed()), 1) if self._budget.eager else 0)
        if self._shared.closed & 3:
            self._runs_in_turn = _MOST_RUNS - 1  # the first look may begin a recording, and the second shows it
        self._eager_reason = reason._replace(rest=calls)

    def _note_run(self) -> None:
        """The call under way has run the function, and no replay."""
        budget = self._budget
        if budget.is_off:
            return
        budget.end(True)
        self._runs_in_turn += 1
        made = self.stats()
        asked = min(made["eager"], self._eager_calls * (1 + made["recorded"] // 2))
        progress = made["recorded"] + made["checked"] + made["weighed"] + asked
        if progress != self._progress:
            self._progress, self._runs_in_turn = progress, 0
        if not budget.eager:
            if budget.slow >= _RUNS_UNTIMED + self._eager_calls - 1:
                self._time_plain_calls()
            else:
                budget.time_calls()
            return
        budget.time_calls()
        owed = self._owed()
        if self._runs_in_turn <= _MOST_RUNS:
            state = budget.state(owed)
            self._close(state)
            self._eager_reason = self._of_no_gain("") if state > 1 else self._eager_reason
            return
        reason = self._reason() or self._reason_of_last_call()
        if reason.kind == STILL_RECORDED and budget.state(owed):
            reason = self._of_no_gain("")
        self._begin_rest(reason, budget.rest(owed, self._rests))

    def _note_replay(self) -> None:
        """The call under way has found its values anew before the replay, or is timed."""
        budget = self._budget
        budget.end(False)
        if budget.timing == 1 and budget.wants_plain_calls():
            if self.stats()["replayed"] < _REPLAYS_UNTIMED:
                budget.time_calls()
            else:
                self._time_plain_calls()
        elif budget.timing == 1:
            self._compare_times()

    def _compare_times(self) -> None:
        if self._is_part and self._budget.is_short_plainly() and not self.stats()["recorded"]:
            self._run_plainly(SHORT)
        elif self._is_timed_whole() and self._budget.is_slower():
            self._run_plainly(f"Replays are not faster here: {self._budget.told()}.")

    def _is_timed_whole(self) -> bool:
        """Whether the time from one call to the next has a backward in it, where one comes."""
        made = self.stats()
        return made["backwards"] == 0 or made["backwards"] * 4 >= made["replayed"] * 3

    def _run_plainly(self, reason: str) -> None:
        """From here on, until reset()."""
        self._given_up = f"{reason} Calls run eagerly. always=True or OVERDRIVE_CAPTURE_ALWAYS=1 replays them nevertheless."

    def _take_found_optimizers(self) -> None:
        """Those that the function was seen to step are the step's from here on, as if they had been named, with their schedulers."""
        if self._optimizer is None:
            self._optimizer = Optimizers([], self._function, self._with_constants)
        for scheduler in filter(is_scheduler, self._found_optimizers):
            self._schedulers.add(scheduler)
        self._optimizer.add([each for each in self._found_optimizers if not is_scheduler(each)], self._function)
        self._found_optimizers.clear()
        self._forget()

    def _start_again(self, reason: str) -> None:
        self._resets += 1
        self._reset_reason = reason
        self._forget()
        if self._resets >= _MOST_RESETS and self.stats()["replayed"] < 2 * self._resets:
            self._given_up = f"In nearly every call {reason}."

    def _look_at_unsure(self) -> None:
        changed = next((read for read, value in self._unsure if read.now() is not value), None)
        if changed is not None:
            self._start_again(f"{changed.told()} has a value, and calls that found none there left none")

    def let_go(self) -> None:
        """Before tensors are swapped, which must have no weak references, as recordings hold them."""
        if self._running:
            raise OverdriveError("torch.utils.swap_tensors() was called while a captured step was under way; call it outside of "
                                 f"the function. The step: {self.title()}.")
        if self._variants:
            self._start_again("tensors are swapped (torch.utils.swap_tensors)")

    def _forget(self) -> None:
        self._quick.disarm()
        call("Capture.reset", self._capture)
        self._structure = self._variant = self._one_form = None
        self._structure_of.clear()
        self._variants.clear()
        self._forms.clear()
        self._gradients.clear()
        self._changes.clear()
        self._changes_setting = ""
        self._unsure.clear()
        self._ever_apart.clear()
        self._last_walk = self._known_names = None
        self._modules = self._named_modules()

    def reset(self) -> None:
        """Forgets every recording: for changes that nothing looks at."""
        self._forget()
        self._not_open.clear()
        self._given_by_both = ""
        self._given_up = ""
        self._resets = self._new_variants = self._rest = self._rests = self._shared.closed = 0
        self._seen.clear()
        self._budget = Budget(self._always)

    def give_up(self, reason: str) -> None:
        """From here on every call is eager, until reset()."""
        self._given_up = reason
