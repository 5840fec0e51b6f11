"""What is captured: a function, with what it was seen to use."""
from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import torch

from overdrive.effects.schedulers import Schedulers, is_scheduler
from overdrive.native.recording import _refuse
from overdrive.optimizers.all import Optimizers
from overdrive.optimizers.one import NOT_UNDERSTOOD
from overdrive.optimizers.rules import is_understood
from overdrive.reads.optimizers import is_of_the_program
from overdrive.reads.reachable import named_in
from overdrive.values.facts import Facts
from overdrive.values.modules import is_scripted, structure_of
from overdrive.values.read import ENTRY, Read
from overdrive.values.reads import Reads

# Calls in turn that step an optimizer which no call before has.
_MOST_FINDS = 4
_MADE_IN_EACH_CALL = ("The function steps another optimizer or scheduler ({}) in each call, and a captured step knows those that live on; make it "
                      "outside of the function.")


class Subject:
    """A function with its modules, tensors and optimizers, and the structure of these. Owned by a captured step, and used by the thread that is in
    its call. Runs add what they show; knows no recordings."""

    def __init__(self, function: Callable[..., Any], optimizers: Sequence[Any], roots: Iterable[Any], constant_numbers: bool, guarded: bool,
                 is_part: bool) -> None:
        self.function, self.guarded, self.is_part = function, guarded, is_part
        # Options that no tensor carries to a replay are looked at, or promised.
        known = [optimizer for optimizer in optimizers if is_part or not is_of_the_program(optimizer)]
        self.optimizers = Optimizers(known, function, constant_numbers or guarded)
        # Those whose step() the function has called, although nobody has named them, and schedulers.
        self.found: dict[Any, None] = {}
        self.schedulers = Schedulers()
        # Of the last time that there were some: how many replays there had been, and how many times in turn without another one.
        self._finds = 0, 0
        # While it records: whether a step() of another optimizer is to be refused.
        self.looks_at_steps = True
        self.roots = list(roots)
        self.modules = self._named_modules()
        # Tensors that the function names, in its last run.
        self.named: dict[int, Any] = {}
        self.facts = Facts(is_part)
        self.structure: Reads | None = None
        # The modules, optimizers and dicts of hooks that it was made of.
        self._structure_of: list[Any] = []

    def _named_modules(self) -> dict[Any, None]:
        """Those that were given, and those that the function names now."""
        values = [value for _, value in named_in(self.function)]
        named = [item for value in values for item in (value if issubclass(type(value), (list, tuple)) else [value])
                 if issubclass(type(item), torch.nn.Module) and "_modules" in vars(item)]  # of a copy that is being made nothing is there yet
        return dict.fromkeys(module for root in [*self.roots, *named] for module in root.modules() if not is_scripted(module))

    def training(self, own: Container[tuple[int, int, Any]]) -> list[Read]:
        """Whether the modules train; none that the function changes, which is in `own`."""
        return [Read(ENTRY, module.__dict__, "training", f"training of {type(module).__name__}")
                for module in self.modules if (ENTRY, id(module.__dict__), "training") not in own]

    def lasting_tensors(self) -> list[Any]:
        """Tensors that an operator may see through a passing copy, as ``data`` makes it, and whose gradients the function may take
        away without an operator, as ``zero_grad()`` does."""
        tensors = list(self.named.values())
        for module in self.modules:
            tensors += [*module._parameters.values(), *module._buffers.values()]
        return [tensor for tensor in [*tensors, *self.optimizers.parameters()] if tensor is not None]

    def changed_structure(self) -> list[Read]:
        """What is another one in the structure that is known."""
        return [] if self.structure is None or self.structure.changed() is None else list(self.structure.others())

    def note_structure(self, is_known: bool, left: Container[tuple[int, int, Any]]) -> None:
        """What modules and optimizers are made of now. Hooks of a tensor come with their dict; whatever else changes, the structure sees."""
        parts = [*self.modules, *self.optimizers.all()]
        for tensor in self.lasting_tensors():
            parts += tensor._backward_hooks, tensor._post_accumulate_grad_hooks
        if not (is_known and len(parts) == len(self._structure_of) and all(map(operator.is_, parts, self._structure_of))):
            self._structure_of = parts
            self.structure = Reads([*structure_of(self.modules, left), *self.optimizers.structure()])

    def note_stepping(self, optimizer: Any) -> None:
        """An optimizer of PyTorch's has made a step, or a scheduler. The next call knows it, where none was named."""
        may_be_found = self.guarded and not self.is_part
        if is_scheduler(optimizer):
            if may_be_found and optimizer not in self.schedulers:
                self.found[optimizer] = None
            return
        if not self.looks_at_steps:
            return
        if self.optimizers.knows(optimizer):
            self.optimizers.note_update(optimizer)
            return
        if may_be_found and is_understood(optimizer):
            self.found[optimizer] = None
        refuse_optimizer(optimizer)

    def take_found(self, replayed: int) -> str:
        """Those that the function was seen to step are the step's from here on, as if they had been named, with their schedulers. Why it cannot be
        captured, where it finds others in call after call, without a replay in between; ""."""
        found, self.found = list(self.found), {}
        before, times = self._finds
        self._finds = replayed, times + 1 if replayed == before else 1
        if self._finds[1] > _MOST_FINDS:
            self.optimizers.let_go_of_found()
            return _MADE_IN_EACH_CALL.format(type(found[0]).__name__)
        for scheduler in filter(is_scheduler, found):
            self.schedulers.add(scheduler)
        self.optimizers.add([each for each in found if not is_scheduler(each)], self.function, are_found=True)
        return ""

    def forget(self) -> None:
        self.structure = None
        self._structure_of.clear()
        self.modules = self._named_modules()


def refuse_optimizer(optimizer: Any) -> None:
    if not is_understood(optimizer):
        _refuse(NOT_UNDERSTOOD.format(type(optimizer).__name__))
        return
    _refuse(f"The function calls step() of an optimizer ({type(optimizer).__name__}) that the step does not know; give it by optimizer=, "
            "which takes a list of several, too.")
