"""What a captured step says of itself: its counts, why it is not replayed, its programs."""
from __future__ import annotations

import functools
import sys
import warnings

from overdrive.native.library import call, text as text_of
from overdrive.native.recording import DIED, GRADIENT_REPLACED, HELD, REPLACED, STILL_RECORDED, Refusal, refusal_of
from overdrive.step.reasons import HELD_GRADIENT, in_python, levels_to_caller, with_lines
from overdrive.step.state import MOST_SILENT, StepState

_COUNTS = ("calls", "eager", "recorded", "checked", "replayed", "undone", "outdated", "backwards", "again", "weighed")
# What the recorder sees where the program gives a parameter or a buffer another tensor.
_OF_MOVED = (DIED, REPLACED, GRADIENT_REPLACED, HELD)


class StepTexts(StepState):
    """Texts and counts."""

    def takes_closures(self) -> bool:
        return self._optimizer is not None and self._optimizer.takes_closures()

    def title(self) -> str:
        if self._name:
            return self._name
        function = self._function
        while isinstance(function, functools.partial):
            function = function.func
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        name = getattr(function, "__qualname__", type(function).__name__)
        return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name

    def stats(self) -> dict[str, int]:
        """How many calls were what: "calls", "eager", "recorded", "checked", "replayed", "undone", "outdated". Of a part
        also the replayed "backwards", and those that ran the function "again". "weighed" of the eager ones were timed beside
        replays."""
        result: dict[str, int] = dict(zip(_COUNTS, call("Capture.stats", self._capture)))
        result["calls"] += self._python_calls
        result["eager"] += self._python_calls
        result["outdated"] += self._resets
        return result

    def refusal(self) -> str:
        """Why calls are not replayed: a reason that stays, or, while nothing was replayed, that of the last call.
        "" when calls are replayed or recorded."""
        reason = self._reason()
        told = with_lines(reason, self.reasons.get(reason.text, {}), self.lines)
        if self._moved and reason.kind in _OF_MOVED:
            told = f"{self._moved} {told}"
        elif self._holds_gradient and reason.kind == HELD:
            told = f"{told} {HELD_GRADIENT}"
        if not reason.rest:
            return told
        return f"{told if told.endswith('.') else f'{told}.'} The next {reason.rest} calls run eagerly."

    def _reason(self) -> Refusal:
        if self._given_up:
            return Refusal(self._given_up)
        of_python = self._eager_reason._replace(rest=self._rest if self._eager_reason.rest else 0)
        waits = self._rest or self._shared.closed & 2 and self._runs_in_turn
        if reason := of_python if waits else refusal_of("Capture.refusal", self._capture):
            return reason
        counts = self.stats()
        return of_python or self._reason_of_last_call() if counts["replayed"] == 0 and counts["calls"] > 4 else reason

    def refused_for_good(self) -> str:
        """Why no call is ever replayed; "" as long as one is or may be."""
        text = self._given_up or refusal_of("Capture.refusal", self._capture).text
        return "" if not text or self.stats()["replayed"] else text

    def _reason_of_last_call(self) -> Refusal:
        if reason := refusal_of("Capture.last_reason", self._capture):
            return reason
        if self._new_variants or self._resets:
            return Refusal(f"Nearly every call is recorded anew: {self._reset_reason}.")
        return Refusal("Calls are still recorded: each set of sizes, modes and values takes four calls before its first replay; where sizes "
                       "differ in every call, pad batches to a few.", kind=STILL_RECORDED)

    def lanes_page(self, path: str) -> None:
        """Writes a page that draws the lanes of the programs (`lanes=`): where each operator ran, where lanes wait, and
        schedules for more lanes."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(text_of("Capture.lanes_page", self._capture, self.title()))

    def explain(self) -> str:
        """The programs, their operators and memory, and why they were recorded anew."""
        made = self.stats()
        text = ", ".join(f"{made[name]} {name}" for name in ("replayed", "recorded", "checked", "eager", "undone"))
        text = f"{made['calls']} calls: {text}\n" + in_python(text_of("Capture.explain", self._capture))
        guards = sum(len(variant.reads) for variant in self._variants)
        text += f"{len(self._variants)} sets of values that the function reads, {guards} values in all\n"
        if self._reset_reason:
            text += f"recorded anew the last time because of {self._reset_reason}\n"
        if self._eager_reason and not self._given_up:
            text += f"the last call that Python made eagerly: {self._eager_reason.text}\n"
        refusal = self.refusal()
        return text + (f"refused: {refusal}\n" if refusal and f"refused: {refusal}\n" not in text else "")

    def note_beside(self, reason: str) -> None:
        """A call that runs past it, as if it were not captured."""
        self._python_calls += 1
        self._eager_reason = Refusal(reason)

    def changes_of_its_own(self) -> str:
        """One value that the function changes, and a replay does not; "" where it was seen to change none."""
        return self._changes.told()

    def _count_run(self) -> None:
        self._runs_of_python += 1
        if self._runs_of_python == self._silent_runs + 1:
            self._warn()

    def _warn(self) -> None:
        made = self.stats()
        if made["replayed"]:
            return
        if made["checked"] and self._silent_runs == MOST_SILENT and not self.refused_for_good():
            self._silent_runs *= 2  # some recordings are compared already, others wait for them
            return
        try:
            warnings.warn(f"The captured step {self.title()} has run {self._silent_runs} calls and replayed none. "
                          f"{self.refusal()}", stacklevel=levels_to_caller() + 1)
        except Warning as told:  # where warnings are errors: the call goes on
            sys.stderr.write(f"{told}\n")
