"""What a captured step says of itself: its counts, why it is not replayed, its programs."""
from __future__ import annotations

import functools
import sys
import warnings

from overdrive.native.library import text as text_of
from overdrive.native.recording import DIED, GRADIENT_REPLACED, HELD, REPLACED, Refusal
from overdrive.step.reasons import HELD_GRADIENT, in_python, levels_to_caller, with_lines
from overdrive.step.state import MOST_SILENT, StepState

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
        return self._pace.stats()

    def refusal(self) -> str:
        """Why calls are not replayed: a reason that stays, or, while nothing was replayed, that of the last call.
        "" when calls are replayed or recorded."""
        reason = self._pace.reason()
        told = with_lines(reason, self.reasons.get(reason.text, {}), self.lines)
        if self._moved and reason.kind in _OF_MOVED:
            told = f"{self._moved} {told}"
        elif self._holds_gradient and reason.kind == HELD:
            told = f"{told} {HELD_GRADIENT}"
        if not reason.rest:
            return told
        return f"{told if told.endswith('.') else f'{told}.'} The next {reason.rest} calls run eagerly."

    def refused_for_good(self) -> str:
        """Why no call is ever replayed; "" as long as one is or may be."""
        return self._pace.refused_for_good()

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
        pace, variants = self._pace, self._chooser.variants
        guards = sum(len(variant.reads) for variant in variants)
        text += f"{len(variants)} sets of values that the function reads, {guards} values in all\n"
        if pace.reset_reason:
            text += f"recorded anew the last time because of {pace.reset_reason}\n"
        if pace.eager_reason and not pace.given_up:
            text += f"the last call that Python made eagerly: {pace.eager_reason.text}\n"
        refusal = self.refusal()
        return text + (f"refused: {refusal}\n" if refusal and f"refused: {refusal}\n" not in text else "")

    def note_beside(self, reason: str) -> None:
        """A call that runs past it, as if it were not captured."""
        self._pace.python_calls += 1
        self._pace.eager_reason = Refusal(reason)

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
