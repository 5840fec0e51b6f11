"""The optimizers of one captured step, as one."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from overdrive.native.recording import _refuse
from overdrive.numbers.counters import Counter
from overdrive.optimizers.one import Optimizer
from overdrive.reads.code import name_of
from overdrive.values.read import Read
from overdrive.values.same import same_value


class Optimizers:
    """As many as there are. One thread at a time."""

    def __init__(self, optimizers: Iterable[Any], function: Any, with_constants: bool) -> None:
        self._with_constants = with_constants
        self._all: list[Optimizer] = []
        # Under which names the function has them.
        self._names: list[Read | None] = []
        # Whether a scheduler has stepped apart in the call.
        self._is_scheduled = False
        # What each step of a scheduler has left in the call, in turn.
        self._left_in_turn: list[list[tuple[Optimizer, list[dict[str, Any]]]]] = []
        self.add(optimizers, function)

    def add(self, optimizers: Iterable[Any], function: Any, are_found: bool = False) -> None:
        new = [Optimizer(optimizer, self._with_constants, are_found) for optimizer in optimizers if not self.knows(optimizer)]
        self._names += [name_of(function, one.optimizer) for one in new]
        self._all += new

    def let_go_of_found(self) -> None:
        """They may be made in each call, and die with it."""
        kept = [(one, name) for one, name in zip(self._all, self._names) if not one.is_found]
        self._all, self._names = [one for one, _ in kept], [name for _, name in kept]

    def all(self) -> list[Optimizer]:
        return self._all

    def begin_call(self) -> str:
        """A refusal, or ""."""
        if self._is_scheduled:
            self._is_scheduled = False
            self._left_in_turn.clear()
            for one in self._all:
                one.scheduled = one.left_by_scheduler = None
        return self.write_numbers()

    def carries_options_of(self, optimizer: Any) -> bool:
        """Whether a change of its options asks for no other recording."""
        return any(one.optimizer is optimizer and one.carries_options() for one in self._all)

    def _scheduled(self, optimizer: Any) -> list[Optimizer]:
        """That one; all of them for None."""
        return [one for one in self._all if optimizer is None or one.optimizer is optimizer]

    def note_scheduler(self, optimizer: Any) -> None:
        """The function that is recorded steps one of this optimizer now."""
        for one in self._scheduled(optimizer):
            one.is_scheduled_here = True

    def keep_options(self, optimizer: Any) -> None:
        """A scheduler is about to step, maybe in a replay which the function runs after."""
        self._is_scheduled = True
        for one in self._scheduled(optimizer):
            one.scheduled = one.scheduled or one.options()

    def note_options_left(self, optimizer: Any) -> None:
        left = [(one, one.options()) for one in self._scheduled(optimizer)]
        for one, options in left:
            one.left_by_scheduler = options
        self._left_in_turn.append(left)

    def put_options_of_the_call(self) -> None:
        """The function runs, maybe after a replay in which a scheduler has stepped, and which was taken back."""
        for one in self._all if self._is_scheduled else ():
            if one.scheduled is not None:
                one.put_options(one.scheduled)

    def put_options_left(self) -> None:
        """The function has come to a step of a scheduler that the replay has made."""
        for one, options in self._left_in_turn.pop(0) if self._left_in_turn else ():
            one.put_options(options)

    def options_unscheduled(self) -> list[tuple[Optimizer, list[dict[str, Any]]]]:
        """Before code that runs apart: those of optimizers which no scheduler of the function has."""
        return [(one, one.options()) for one in self._all if one.scheduled is None]

    def options_changed(self, before: Iterable[tuple[Optimizer, list[dict[str, Any]]]]) -> list[tuple[Any, Any, Any]]:
        """How to put back what such code has changed in a replay, with the values of before and of now."""
        return [(one.put_options, options, one.options()) for one, options in before
                if one.scheduled is None and not same_value(one.options(), options)]

    def note_changed_apart(self, before: Iterable[tuple[Optimizer, list[dict[str, Any]]]]) -> None:
        for one, options in before:
            one.is_changed_apart |= one.scheduled is None and not same_value(one.options(), options)

    def write_numbers(self) -> str:
        return next((reason for one in self._all if (reason := one.write_numbers())), "")

    def written_inside(self) -> list[Read]:
        """Options that the recorded function has given other floats."""
        return [read for one in self._all for read in one.written_inside]

    def places_of(self, counters: Sequence[Counter]) -> list[tuple[Optimizer, list[tuple[int, str, int]]]]:
        return [(one, places) for one in self._all if (places := one.places_of(counters))]

    def take_crossed(self) -> bool:
        """Whether one of them has another kind of update since the last look."""
        crossed = [one for one in self._all if one.crossed]
        for one in crossed:
            one.crossed = False
        return bool(crossed)

    def rebind(self) -> bool:
        """Takes other optimizers under the names of these, as a cell of a notebook makes them. Whether there were any."""
        found = False
        for one, name in list(zip(self._all, self._names)):
            now = None if name is None else name.now()
            if not isinstance(now, torch.optim.Optimizer) or now is one.optimizer:
                continue
            found = True
            index = self._all.index(one)
            if self.knows(now):  # it was found beside
                del self._all[index], self._names[index]
            else:
                self._all[index] = Optimizer(now, self._with_constants, one.is_found)
        return found

    def knows(self, optimizer: Any) -> bool:
        return any(one.optimizer is optimizer for one in self._all)

    def note_names(self, reads: Iterable[Read]) -> None:
        for read in reads:
            for index, one in enumerate(self._all):
                if read.expected is one.optimizer:
                    self._names[index] = read

    def gradients(self) -> tuple[bool, ...]:
        return tuple(missing for one in self._all for missing in one.gradients())

    def note_idle(self) -> None:
        for one in self._all:
            one.note_idle()

    def structure(self) -> list[Read]:
        return [read for one in self._all for read in one.structure()]

    def options_read(self) -> list[Read]:
        return [read for one in self._all for read in one.options_read()]

    def entries_of_options(self) -> list[tuple[dict[str, Any], str, Any]] | None:
        found = [one.entries_of_options() for one in self._all]
        return None if None in found else [entry for entries in found for entry in entries]  # type: ignore[union-attr]

    def parameters(self) -> list[Any]:
        return [parameter for one in self._all for group in one.optimizer.param_groups for parameter in group["params"]]

    def states(self) -> list[Any]:
        return [one.optimizer.state for one in self._all]

    def takes_closures(self) -> bool:
        return bool(self._all) and all(one.takes_closures() for one in self._all)

    def refusal(self) -> str:
        return next((reason for one in self._all if (reason := one.refusal())), "")

    def begin(self, counts: bool) -> None:
        """Before a recorded function runs."""
        for one in self._all:
            one.begin(counts)

    def end(self) -> None:
        for one in reversed(self._all):
            one.end()

    def note_update(self, optimizer: Any) -> None:
        """PyTorch's own step() has run."""
        for one in self._all:
            if one.optimizer is optimizer and not one.runs_pytorchs:
                _refuse(f"The function calls step() of {type(optimizer).__name__} past the optimizer, as its class's function; call "
                        "optimizer.step().")

    def check_steps(self, all_step: bool) -> None:
        """After it has run. Where nothing sees that an update is made past the optimizers, all of them must step."""
        for one in self._all:
            if one.steps == 0 and all_step:
                _refuse(f"The function does not call step() of the optimizer that was given ({type(one.optimizer).__name__}); call it, or "
                        "leave it out of optimizer=.")
            elif not one.has_left_options():
                _refuse(CHANGED_OPTIONS)


CHANGED_OPTIONS = ("The function changes the optimizer's options after its step(), as a scheduler's step(epoch) does; change them before "
                   "step(), or outside of the function.")
