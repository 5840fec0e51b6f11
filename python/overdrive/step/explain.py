"""What a captured step says of itself: its counts, why it is not replayed, its programs."""
from __future__ import annotations

import functools
import sys
import warnings

from overdrive.native.library import call, text as text_of
from overdrive.step.reasons import HELD_GRADIENT, in_python, levels_to_caller, with_lines
from overdrive.step.state import MOST_SILENT, StepState

_COUNTS = ("calls", "eager", "recorded", "checked", "replayed", "undone", "outdated", "backwards", "again", "weighed")
# What the recorder sees where the program gives a parameter or a buffer another tensor.
_OF_MOVED = ("that was there before the call and died in it", "that was there before the call, another one in each call",
             "is still held after the next")


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
        waits = self._rest or self._shared.closed & 2 and self._runs_in_turn
        text = self._given_up or (self._eager_reason if waits else text_of("Capture.refusal", self._capture))
        if not text:
            counts = self.stats()
            if counts["replayed"] == 0 and counts["calls"] > 4:
                text = self._eager_reason or self._reason_of_last_call()
        told = with_lines(text, self.reasons.get(text, {}), self.lines)
        if self._moved and any(sign in text for sign in _OF_MOVED):
            return f"{self._moved} {told}"
        return f"{told} {HELD_GRADIENT}" if self._holds_gradient and "is still held after the next" in text else told

    def refused_for_good(self) -> str:
        """Why no call is ever replayed; "" as long as one is or may be."""
        text = self._given_up or text_of("Capture.refusal", self._capture)
        return "" if not text or self.stats()["replayed"] else text

    def _reason_of_last_call(self) -> str:
        for line in text_of("Capture.explain", self._capture).splitlines():
            for start in ("the last call that was eager for another reason: ", "recorded anew the last time because: "):
                if line.startswith(start):
                    return line[len(start):]
        if self._new_variants or self._resets:
            return f"Nearly every call is recorded anew: {self._reset_reason}."
        return ("Calls are still recorded: each set of sizes, modes and values takes four calls before its first replay; where sizes "
                "differ in every call, pad batches to a few.")

    def lanes_page(self, path: str) -> None:
        """Writes a page that draws the lanes of the programs (`lanes=`): where each operator ran, where lanes wait, and
        schedules for more lanes."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(text_of("Capture.lanes_page", self._capture, self.title()))

    def explain(self) -> str:
        """The programs, their operators and memory, and why they were recorded anew."""
        lines = text_of("Capture.explain", self._capture).splitlines(keepends=True)[1:]
        made = self.stats()
        text = ", ".join(f"{made[name]} {name}" for name in ("replayed", "recorded", "checked", "eager", "undone"))
        text = f"{made['calls']} calls: {text}\n" + in_python("".join(lines))
        guards = sum(len(variant.reads) for variant in self._variants)
        text += f"{len(self._variants)} sets of values that the function reads, {guards} values in all\n"
        if self._reset_reason:
            text += f"recorded anew the last time because of {self._reset_reason}\n"
        if self._eager_reason and not self._given_up:
            text += f"the last call that Python made eagerly: {self._eager_reason}\n"
        refusal = self.refusal()
        return text + (f"refused: {refusal}\n" if refusal and f"refused: {refusal}\n" not in text else "")

    def note_beside(self, reason: str) -> None:
        """A call that runs past it, as if it were not captured."""
        self._python_calls += 1
        self._eager_reason = reason

    def changes_of_its_own(self) -> str:
        """One value that the function changes, and a replay does not; "" where it was seen to change none."""
        return next((read.told() for place, read in [*self._own.items(), *self._settings.items()] if place not in self._left), "")

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
