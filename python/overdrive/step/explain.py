"""What a captured step says of itself: why it is not replayed, its programs."""
from __future__ import annotations

import functools
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from overdrive.effects.places import Changes
from overdrive.native.library import text as text_of
from overdrive.native.recording import DIED, GRADIENT_REPLACED, HELD, REPLACED
from overdrive.step.pace import Pace
from overdrive.step.reasons import HELD_GRADIENT, gradients_of, in_python, is_one_held, levels_to_caller, with_lines
from overdrive.step.variant import _Variant

# Calls without a replay after which a warning tells why.
MOST_SILENT = 20
# What the recorder sees where the program gives a parameter or a buffer another tensor.
_OF_MOVED = (DIED, REPLACED, GRADIENT_REPLACED, HELD)


class Texts:
    """Of one captured step, its owner. Written by the thread that is in a call, read by any. Runs add lines and gradients, which refusals tell."""

    def __init__(self, function: Callable[..., Any], name: str, capture: Any, pace: Pace, changes: Changes, warns: bool) -> None:
        self._function, self._name, self._capture, self._pace, self._changes = function, name, capture, pace, changes
        # Of each refusal those of the same recording, with their lines.
        self.reasons: dict[str, dict[str, str]] = {}
        # Of the last recording each operator with the lines that called it.
        self.lines: dict[str, dict[str, None]] = {}
        # That the last recording made, and whether the program held one until the next.
        self.gradients: list[weakref.ref[Any]] = []
        self._holds_gradient = False
        self.runs = 0
        # Parts, and optimizers that nobody has given to captured(), are silent: that their calls are plain is no surprise.
        self._warns, self._silent_runs = warns, MOST_SILENT

    def title(self) -> str:
        if self._name:
            return self._name
        function = self._function
        while isinstance(function, functools.partial):
            function = function.func
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        name = getattr(function, "__qualname__", type(function).__name__)
        return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name

    def refusal(self) -> str:
        reason = self._pace.reason()
        told = with_lines(reason, self.reasons.get(reason.text, {}), self.lines)
        if self._changes.moved and reason.kind in _OF_MOVED:
            told = f"{self._changes.moved} {told}"
        elif self._holds_gradient and reason.kind == HELD:
            told = f"{told} {HELD_GRADIENT}"
        if not reason.rest:
            return told
        return f"{told if told.endswith('.') else f'{told}.'} The next {reason.rest} calls run eagerly."

    def explain(self, variants: Iterable[_Variant]) -> str:
        pace, made, guards = self._pace, self._pace.stats(), [len(variant.reads) for variant in variants]
        text = ", ".join(f"{made[name]} {name}" for name in ("replayed", "recorded", "checked", "eager", "undone"))
        text = f"{made['calls']} calls: {text}\n" + in_python(text_of("Capture.explain", self._capture))
        text += f"{len(guards)} sets of values that the function reads, {sum(guards)} values in all\n"
        if pace.reset_reason:
            text += f"recorded anew the last time because of {pace.reset_reason}\n"
        if pace.eager_reason and not pace.given_up:
            text += f"the last call that Python made eagerly: {pace.eager_reason.text}\n"
        refusal = self.refusal()
        return text + (f"refused: {refusal}\n" if refusal and f"refused: {refusal}\n" not in text else "")

    def note_gradients(self, tensors: Iterable[Any]) -> None:
        """Of a recorded call. `tensors`: which may have one."""
        self._holds_gradient |= is_one_held(self.gradients, tensors)
        self.gradients = gradients_of(tensors)

    def count_run(self) -> None:
        if self._warns:
            self.runs += 1
            if self.runs == self._silent_runs + 1:
                self._warn()

    def _warn(self) -> None:
        made = self._pace.stats()
        if made["replayed"]:
            return
        if made["checked"] and self._silent_runs == MOST_SILENT and not self._pace.refused_for_good():
            self._silent_runs *= 2  # some recordings are compared already, others wait for them
            return
        try:
            warnings.warn(f"The captured step {self.title()} has run {self._silent_runs} calls and replayed none. "
                          f"{self.refusal()}", stacklevel=levels_to_caller() + 1)
        except Warning as told:  # where warnings are errors: the call goes on
            sys.stderr.write(f"{told}\n")
