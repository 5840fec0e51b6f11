"""What a captured step is made of, and how it forgets."""
from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from overdrive.effects.places import Changes
from overdrive.native import signals
from overdrive.native.dynamo import tell_dynamo
from overdrive.native.library import OverdriveError, address_of, call, check_python, function as function_of, text as text_of
from overdrive.native.modes import let_higher_order_through, looks_at_modes
from overdrive.native.quick import Quick
from overdrive.native.recording import Refusal
from overdrive.numbers.call_numbers import Shared
from overdrive.step.apart import Apart
from overdrive.step.choice import Chooser
from overdrive.step.explain import Texts
from overdrive.step.learn import Learner
from overdrive.step.pace import Pace
from overdrive.step.reasons import steps
from overdrive.step.run import Runner
from overdrive.step.subject import Subject
from overdrive.step.variant import Forms, _Variant


class Step:
    """A subject, what is known of it, and who makes its calls: a chooser finds the recordings of a call, a runner runs the function where there are
    none, and a learner sees what it reads and changes. None of these knows the step, so that they die with it. While a thread is in a call,
    which holds the lock, all of them are its own."""

    # What a part has of its own kind.
    _pace_of: Callable[..., Any] = Pace
    _learner_of: Callable[..., Any] = Learner
    _runner_of: Callable[..., Any] = Runner

    def __init__(self, function: Callable[..., Any], optimizers: Sequence[Any], modules: Iterable[Any],
                 watch: Callable[[], Any] | None, constant_numbers: bool, constant_modes: bool, programs: int,
                 check_every: int, guarded: bool = True, is_part: bool = False, name: str = "", passes: bool = True,
                 lanes: int = 1, eager_calls: int = 1, always: bool = False, warns: bool = True) -> None:
        check_python()
        tell_dynamo()
        let_higher_order_through()
        self._function, self._watch = function, watch
        subject = self._subject = Subject(function, optimizers, modules, constant_numbers, guarded, is_part)
        itself = weakref.ref(self)
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: itself()._runner._run())  # type: ignore[union-attr]
        # Modes and flags that the function reads are looked at in every call.
        modes = constant_modes or guarded or bool(subject.modules)
        # The library reads it in every call.
        shared = self._shared = Shared()
        self._capture = call("Capture.make", address_of(self._callback), ctypes.addressof(shared), constant_numbers, modes,
                             programs, check_every, passes, lanes, eager_calls, always, is_part)
        weakref.finalize(self, call, "Capture.free", self._capture)
        changes = self._changes = Changes()
        self._pace: Pace = self._pace_of(self._capture, shared, eager_calls, always, is_part)
        self._chooser = Chooser(shared, self._pace, subject.facts, changes, programs, guarded and not is_part)
        self._forms = Forms()
        self._texts = Texts(function, name, self._capture, self._pace, changes, warns)
        self._learner: Learner = self._learner_of(self._capture, subject, changes, self._chooser, self._forms)
        self._apart = Apart(self._learner)
        self._runner: Runner = self._runner_of(self._capture, self._pace, self._learner, self._apart, self._forms, self._texts)
        self._is_in_a_mode, self._keeps_parametrizations = looks_at_modes()
        self._call = function_of("Capture.call")
        # While a thread is in a call.
        self._busy, self._is_called = threading.Lock(), False
        self._quick = Quick(self._capture, self._busy)
        self._quick_call = self._quick.call
        # Of an optimizer that is captured: it. Its gradients are the inputs, and nothing else is given.
        self._updated: Callable[[], Any] | None = None
        steps.add(self)
        let_go_before_swaps()

    def takes_closures(self) -> bool:
        return self._subject.optimizers.takes_closures()

    def title(self) -> str:
        return self._texts.title()

    def stats(self) -> dict[str, int]:
        """How many calls were what: "calls", "eager", "recorded", "checked", "replayed", "undone", "outdated". Of a part
        also the replayed "backwards", and those that ran the function "again". "weighed" of the eager ones were timed beside
        replays."""
        return self._pace.stats()

    def refusal(self) -> str:
        """Why calls are not replayed: a reason that stays, or, while nothing was replayed, that of the last call.
        "" when calls are replayed or recorded."""
        return self._texts.refusal()

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
        return self._texts.explain(self._chooser.variants)

    def note_beside(self, reason: str) -> None:
        """A call that runs past it, as if it were not captured."""
        self._pace.python_calls += 1
        self._pace.eager_reason = Refusal(reason)

    def changes_of_its_own(self) -> str:
        """One value that the function changes, and a replay does not; "" where it was seen to change none."""
        return self._changes.told()

    def _find_variant(self, key: tuple[Any, ...]) -> _Variant | None:
        signals.begin(self._runner)
        optimizers = self._subject.optimizers
        if optimizers.rebind():
            self._forget()
            self._pace.given_up = optimizers.write_numbers()
            key = (*key[:2], optimizers.gradients(), key[3])
        return self._chooser.find(key, lambda: self._subject.training(self._changes.own))

    def _look_for_changes(self) -> None:
        """Of what all recordings were made with, and at places where no call has shown yet whether it leaves None."""
        if self._changes.carries_anew:
            self._changes.carries_anew = False
            call("Capture.reset", self._capture)
        structure = self._subject.structure
        if structure is not None and (changed := structure.changed()) is not None:
            self._start_again(changed.told() if changed.where else f"{changed.name} was changed")
        if (changed := next((read for read, value in self._forms.unsure if read.now() is not value), None)) is not None:
            self._start_again(f"{changed.told()} has a value, and calls that found none there left none")

    def _start_again(self, reason: str) -> None:
        self._forget()
        self._pace.note_reset(reason)

    def let_go(self) -> None:
        """Before tensors are swapped, which must have no weak references, as recordings hold them."""
        if self._runner.thread:
            raise OverdriveError("torch.utils.swap_tensors() was called while a captured step was under way; call it outside of "
                                 f"the function. The step: {self.title()}.")
        if self._chooser.variants:
            self._start_again("tensors are swapped (torch.utils.swap_tensors)")

    def _forget(self) -> None:
        self._quick.disarm()
        call("Capture.reset", self._capture)
        self._chooser.drop_all()
        self._forms.forget()
        self._changes.forget()
        self._texts.gradients.clear()
        self._learner.last_walk = self._learner.known_names = None
        self._subject.forget()

    def reset(self) -> None:
        """Forgets every recording: for changes that nothing looks at."""
        self._forget()
        self._chooser.reset()
        self._pace.reset()
        self._changes.given_by_both = ""

    def give_up(self, reason: str) -> None:
        """From here on every call is eager, until reset()."""
        self._pace.given_up = reason


def let_go_before_swaps() -> None:
    """Once: from here on torch.utils.swap_tensors() tells the captured steps first. PyTorch exchanges the content of two tensors only if nothing has
    a weak reference to them, as recordings have. Modules call it by this name, too."""
    swap = torch.utils.swap_tensors
    if getattr(swap, "_tells_captured_steps", False):
        return

    @functools.wraps(swap)
    def swap_tensors(t1: Any, t2: Any) -> Any:
        for step in list(steps):
            step.let_go()
        return swap(t1, t2)

    swap_tensors._tells_captured_steps = True  # type: ignore[attr-defined]
    torch.utils.swap_tensors = swap_tensors
