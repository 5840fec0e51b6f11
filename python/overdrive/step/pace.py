"""When recordings are made, by what they cost and bring, and why calls are eager meanwhile."""
from __future__ import annotations

from typing import Any

from overdrive.native.library import call
from overdrive.native.recording import STILL_RECORDED, Refusal, refusal_of
from overdrive.numbers.call_numbers import Shared
from overdrive.step.budget import TIMED, Budget

_SHORT = "A call takes so little time that a replay gains nothing."
_COUNTS = ("calls", "eager", "recorded", "checked", "replayed", "undone", "outdated", "backwards", "again", "weighed")
# Resets, and sets of values, after which there have to be replays.
_MOST_RESETS = 8
# Runs of the function in turn after which the way through the library is left out for a while.
_MOST_RUNS = 8
# Eager calls after a watched one that takes so little time, unless so many in turn take more.
_CALLS_OF_SHORT, _NOT_SHORT = 4096, 3
# Eager calls after values that were others in each call, the first time and at most: each time there are four times as many.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 64, 4096
# Runs after which plain calls are timed: before, two recordings are on their way to their first replays.
_RUNS_UNTIMED = 8
# Replays after which plain calls are timed beside them: a short program has no more.
_REPLAYS_UNTIMED = 24


class Pace:
    """Of one captured function. Owned by its step, and used by the thread that is in its call. Knows counts and times, and no values: the chooser
    asks whether another set of them may begin."""

    def __init__(self, capture: Any, shared: Shared, eager_calls: int, always: bool, is_part: bool) -> None:
        self._capture, self._shared, self._always, self._is_part = capture, shared, always, is_part
        # Before each recording.
        self._eager_calls = eager_calls
        self.budget = Budget(always)
        # Calls that run eagerly from now on, and how often there were such.
        self.rest = self.rests = 0
        # Runs of the function without a replay or a recording between them, and how many of these there were.
        self._runs_in_turn = self._progress = 0
        # How often all was recorded anew, or a set of values began because of another value; the last reason.
        self._resets = self._new_variants = 0
        self.reset_reason = ""
        self._pause = _SHORTEST_PAUSE
        # Whether the calls of the rest are timed by themselves, since they take so little, and how many in turn have taken more.
        self.is_short, self._longer = False, 0
        # Why every call is eager until reset(), and why the last one was. Where captured steps are switched off, the library says so at once.
        self._switched_off = refusal_of("Capture.refusal", capture).text
        self.given_up = self._switched_off
        self.eager_reason = Refusal()
        # Calls that have not come to the library.
        self.python_calls = 0

    def stats(self) -> dict[str, int]:
        result: dict[str, int] = dict(zip(_COUNTS, call("Capture.stats", self._capture)))
        result["calls"] += self.python_calls
        result["eager"] += self.python_calls
        result["outdated"] += self._resets
        return result

    def reason(self) -> Refusal:
        """Why calls are not replayed."""
        if self.given_up:
            return Refusal(self.given_up)
        of_python = self.eager_reason._replace(rest=self.rest if self.eager_reason.rest else 0)
        waits = self.rest or self._shared.closed & 2 and self._runs_in_turn
        if reason := of_python if waits else refusal_of("Capture.refusal", self._capture):
            return reason
        counts = self.stats()
        return of_python or self._reason_of_last_call() if counts["replayed"] == 0 and counts["calls"] > 4 else reason

    def _reason_of_last_call(self) -> Refusal:
        if reason := refusal_of("Capture.last_reason", self._capture):
            return reason
        if self._new_variants or self._resets:
            return Refusal(f"Nearly every call is recorded anew: {self.reset_reason}.")
        return Refusal("Calls are still recorded: each set of sizes, modes and values takes four calls before its first replay; where sizes "
                       "differ in every call, pad batches to a few.", kind=STILL_RECORDED)

    def refused_for_good(self) -> str:
        text = self.given_up or refusal_of("Capture.refusal", self._capture).text
        return "" if not text or self.stats()["replayed"] else text

    def note_reset(self, reason: str) -> None:
        """Every recording was forgotten."""
        self._resets += 1
        self.reset_reason = reason
        if self._resets >= _MOST_RESETS and self.stats()["replayed"] < 2 * self._resets:
            self._take_a_pause(f"In nearly every call {reason}.")

    def note_variant(self, reason: str, why_not_open: str) -> None:
        """A set of values begins; ``reason``: because of another value of this."""
        if not reason:
            return
        self._new_variants += 1
        self.reset_reason = f"another value of {reason}"
        if self._new_variants >= _MOST_RESETS and self.stats()["replayed"] < 2 * self._new_variants:
            self._take_a_pause(f"In nearly every call there is another value of {reason}{why_not_open}. Give it as an argument that is a tensor, "
                               "change it outside of the function, or promise by guards=\"promised\" that it does not matter.")

    def _take_a_pause(self, reason: str) -> None:
        """What has changed in every call may have come to rest afterwards."""
        self._begin_rest(Refusal(reason), self._pause)
        self._pause = min(4 * self._pause, _LONGEST_PAUSE)
        self._resets = self._new_variants = _MOST_RESETS - 2

    def close(self, state: int) -> None:
        """Tells the library which recordings may begin (Budget.state), and how many rests there were."""
        self._shared.closed = state | self.rests << 2

    def is_closed(self) -> bool:
        """Whether no set of values that is unproven may begin."""
        return bool(self._shared.closed & 3)

    def may_begin(self, reason: str, is_proven: bool) -> bool:
        """Whether the time of recordings so far allows another set of values. Note [A budget of time]."""
        budget = self.budget
        if budget.is_off or budget.slow < _RUNS_UNTIMED + self._eager_calls - 1:
            return True
        if not budget.eager:
            self._time_plain_calls()
            return False
        owed = self._owed()
        state = budget.state(owed)
        if state <= is_proven:
            return True
        self.close(state)
        self._pay_off(owed, reason)
        return False

    def _owed(self) -> float:
        return self.budget.owed(self.stats()["replayed"])

    def _time_plain_calls(self) -> None:
        """This call is plain, and so are the next ones, which are timed."""
        of_last = Refusal() if self.stats()["replayed"] else self._reason_of_last_call()
        self.eager_reason = (self.reason() or of_last)._replace(rest=0)
        self.rest = TIMED
        self.budget.time_calls()

    def _pay_off(self, owed: float, reason: str) -> None:
        """Recordings have cost more than was paid. Where replays do not come in between, calls run eagerly until it is."""
        self._runs_in_turn += 1
        self.eager_reason = self._of_no_gain(reason)
        if self._runs_in_turn > _MOST_RUNS:
            self._begin_rest(self.eager_reason, self.budget.rest(owed, self.rests))

    def _of_no_gain(self, reason: str) -> Refusal:
        refusal = Refusal() if self.stats()["replayed"] else refusal_of("Capture.refusal", self._capture)
        return refusal or Refusal(
            "Recordings are made so often, and fit so seldom, that nothing is gained, and no more are made for now. The last reason: "
            f"{reason or self.reset_reason or 'other arguments'}.")

    def _begin_rest(self, reason: Refusal, calls: int) -> None:
        self.rest, self.is_short = calls, False
        self.rests += 1
        self.close(min(self.budget.state(self._owed()), 1) if self.budget.eager else 0)
        if self._shared.closed & 3:
            self._runs_in_turn = _MOST_RUNS - 1  # the first look may begin a recording, and the second shows it
        self.eager_reason = reason._replace(rest=calls)

    def note_watched(self, took: int) -> None:
        """An eager run that was watched is over."""
        if self.budget.is_short(took):
            self._begin_rest(Refusal(_SHORT), _CALLS_OF_SHORT)
            self.is_short, self._longer = True, 0
        elif self._is_part and self.budget.may_be_short(took):
            self._time_plain_calls()

    def note_short(self, took: int) -> None:
        """A call of a rest was plain. A function that returned at once until it has data enough does not any more."""
        self._longer = 0 if self.budget.is_short(took) else self._longer + 1
        if self._longer == _NOT_SHORT:
            self.rest, self.is_short = 0, False

    def note_run(self) -> None:
        """The call under way has run the function, and no replay."""
        budget = self.budget
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
        budget.is_in_vain = not (made["replayed"] or made["checked"]) and bool(refusal_of("Capture.refusal", self._capture))
        if self._runs_in_turn <= _MOST_RUNS:
            state = budget.state(owed)
            self.close(state)
            self.eager_reason = self._of_no_gain("") if state > 1 else self.eager_reason
            return
        reason = self.reason() or self._reason_of_last_call()
        if reason.kind == STILL_RECORDED and budget.state(owed):
            reason = self._of_no_gain("")
        self._begin_rest(reason, budget.rest(owed, self.rests))

    def note_replay(self) -> None:
        """The call under way was one. It takes a look where it has found its values anew before, or is timed."""
        self._runs_in_turn = 0
        budget = self.budget
        if budget.is_off or not (budget.timing or budget.is_begun):
            return
        budget.end(False)
        if budget.timing == 1 and budget.wants_plain_calls():
            if self.stats()["replayed"] < _REPLAYS_UNTIMED:
                budget.time_calls()
            else:
                self._time_plain_calls()
        elif budget.timing == 1:
            self.compare_times()

    def compare_times(self) -> None:
        if self._is_part and self.budget.is_short_plainly() and not self.stats()["recorded"]:
            self.run_plainly(_SHORT)
            return
        made = self.stats()
        # The time from one call to the next has a backward in it, where one comes.
        is_whole = made["backwards"] == 0 or made["backwards"] * 4 >= made["replayed"] * 3
        if is_whole and self.budget.is_slower():
            self.run_plainly(f"Replays are not faster here: {self.budget.told()}.")
        elif self.budget.wants_plain_calls() and not self.budget.timing:
            self._time_plain_calls()

    def run_plainly(self, reason: str) -> None:
        """From here on, until reset()."""
        self.given_up = f"{reason}{RUN_PLAINLY}"

    def reset(self) -> None:
        self.given_up, self.is_short, self._pause = self._switched_off, False, _SHORTEST_PAUSE
        self._resets = self._new_variants = self.rest = self.rests = self._shared.closed = 0
        self.budget = Budget(self._always)


RUN_PLAINLY = " Calls run eagerly. always=True or OVERDRIVE_CAPTURE_ALWAYS=1 replays them nevertheless."
