"""Captured steps in files: written here, trained in Python or in C++ without the function that they were captured from."""
from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from overdrive.native.dynamo import around, tell_dynamo
from overdrive.native.library import OverdriveError, call, function as function_of, text, whole_number
from overdrive.reads.reachable import named_in
from overdrive.step.state import Step
from overdrive.values.keys import Number


class LoadedStep:
    """What :func:`load_step` returns. Called by one thread at a time, with the function's tensors."""

    def __init__(self, path: str, check: bool, accept_other_bits: bool, most_memory: int) -> None:
        self._step = call("Step.load", path, check, accept_other_bits, most_memory)
        weakref.finalize(self, call, "Step.free", self._step)
        tell_dynamo()
        self._call = function_of("Step.call")
        self.functions: list[str] = call("Step.functions", self._step)

    @around
    def __call__(self, *inputs: Any) -> Any:
        """The results of the first function: one tensor, or a tuple."""
        return self.call(self.functions[0], *inputs)

    def call(self, function: str, *inputs: Any) -> Any:
        """The results of a function by its name."""
        for index, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"input {index} of {function} is {type(value).__name__}, and a loaded step takes tensors")
        results = self._call(self._step, function, list(inputs))
        return results[0] if len(results) == 1 else tuple(results)

    def named_tensors(self) -> dict[str, Any]:
        """Every tensor of the step. They are its own: what is copied into them is seen."""
        names, tensors = call("Step.named_tensors", self._step)
        return dict(zip(names, tensors))

    def parameters(self) -> list[Any]:
        """Those that required a gradient."""
        found: list[Any] = call("Step.parameters", self._step)
        return found

    def optimizer_numbers(self) -> dict[str, float]:
        """Learning rates and other numbers: "0.lr" is that of the first group."""
        names, values = call("Step.optimizer_numbers", self._step)
        return dict(zip(names, values))

    def set_optimizer_number(self, name: str, value: float) -> None:
        call("Step.set_optimizer_number", self._step, name, _real(name, value))

    def set_learning_rate(self, rate: float) -> None:
        """That of every group."""
        call("Step.set_learning_rate", self._step, _real("lr", rate))

    def restore_generator(self) -> None:
        """Sets PyTorch's random generator as it was when the file was written."""
        call("Step.restore_generator", self._step)

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Tensors, step counts and random generators, as a dict for ``torch.load()``."""
        call("Step.save_state", self._step, os.fspath(path))

    def load_state(self, path: str | os.PathLike[str]) -> tuple[list[str], list[str]]:
        """From :meth:`save_state`, from a dict of ``torch.save()``, or from a step file. Returns the names that the file does
        not have, and those that the step does not have."""
        missing, unexpected = call("Step.load_state", self._step, os.fspath(path))
        return missing, unexpected

    def describe(self) -> str:
        """What is in the file."""
        return text("Step.describe", self._step)


def _real(name: str, value: Any) -> float:
    if not hasattr(value, "__float__"):
        raise TypeError(f"{name} is {value!r}, and an optimizer's number is a float")
    return float(value)


def load_step(path: str | os.PathLike[str], *, check: bool = True, accept_other_bits: bool = False, most_memory: int = 16 << 30) -> LoadedStep:
    """Reads a step that :meth:`CapturedStep.save` wrote. Nothing of it runs before it was checked, and with ``check`` the call
    that the file holds is made, on copies, and compared bit by bit. ``accept_other_bits``: a difference is a warning.
    """
    return LoadedStep(os.fspath(path), check, accept_other_bits, whole_number("load_step", "most_memory", most_memory, least=0))


def save_steps(path: str | os.PathLike[str], functions: Mapping[str, Step], *, names: dict[str, Any] | None = None, values: bool = True) -> None:
    """Several captured steps in one file, each a function under its name. Tensors that they share are shared in the file."""
    named = _Names()
    for name, value in (names or {}).items():
        named.add_value(name, value)
    for function, step in functions.items():
        if not isinstance(step, Step):
            raise TypeError(f"{function}: save_steps() was given {type(step).__name__} and takes captured steps")
        _check(step)
        named.add_step(step, function if len(functions) > 1 else "")
    call("Step.save", os.fspath(path), [step._capture for step in functions.values()], list(functions), list(named.tensors),
         list(named.tensors.values()), values)


def _check(step: Step) -> None:
    variant = step._chooser.variant
    if step._pace.given_up or variant is None:
        raise OverdriveError(f"The step cannot be saved: {step.refusal() or 'it was not called yet.'}")
    if any(isinstance(part, Number) for part in variant.key[0]):
        raise OverdriveError("The step cannot be saved: it was called with a number, which is a constant of the recording; give it as a tensor.")
    if variant.key[0] and not all(isinstance(part, int) for part in variant.key[0]):
        raise OverdriveError("The step cannot be saved: it was called with keywords or containers; give its tensors one by one.")
    if counters := step._changes.counters:
        told = ", ".join(counter.told() for counter in counters.values())
        raise OverdriveError(f"The step cannot be saved: the function counts in {told}, which no file goes on with; count outside of the function.")
    if told := step._changes.told_carried():
        raise OverdriveError(f"The step cannot be saved: the function finds other tensors in {told} from call to call, which no file does; take them "
                             "as arguments, and return what it makes of them.")
    if reason := step._subject.optimizers.write_numbers():
        raise OverdriveError(f"The step cannot be saved: {reason}")


class _Names:
    """A name for each tensor: the first that it is given."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self._known: dict[int, str] = {}

    def add(self, name: str, tensor: Any) -> None:
        if id(tensor) in self._known or name in self.tensors:
            return
        self.tensors[name] = tensor
        self._known[id(tensor)] = name

    def add_value(self, name: str, value: Any) -> None:
        if isinstance(value, torch.nn.Module):
            for key, tensor in value.state_dict(keep_vars=True).items():
                if isinstance(tensor, torch.Tensor):
                    self.add(f"{name}.{key}" if name else key, tensor)
        elif isinstance(value, torch.Tensor):
            self.add(name, value)
        else:
            raise TypeError(f"names= has {type(value).__name__} under {name!r}, and takes tensors and modules")

    def add_step(self, step: Step, function: str) -> None:
        roots = list(_roots(step))
        for name, module in roots:
            self.add_value("" if len(roots) == 1 else name, module)
        for name, value in named_in(step._function):
            if isinstance(value, torch.Tensor):
                self.add(name, value)
        optimizers = step._subject.optimizers.all()
        for index, optimizer in enumerate(optimizers):
            name = "optimizer" if len(optimizers) == 1 else f"optimizer.{index}"
            self._add_optimizer(optimizer, f"{function}.{name}" if function else name)

    def _add_optimizer(self, optimizer: Any, prefix: str) -> None:
        for index, numbers in enumerate(optimizer._numbers):
            self.add(f"{prefix}.numbers.{index}", numbers)
        parameters = [parameter for group in optimizer.optimizer.param_groups for parameter in group["params"]]
        for index, parameter in enumerate(parameters):
            self.add(f"{prefix}.parameter.{index}", parameter)
            for key, tensor in optimizer.optimizer.state.get(parameter, {}).items():
                if isinstance(tensor, torch.Tensor):
                    self.add(f"{prefix}.{key}.{self._known[id(parameter)]}", tensor)


def _roots(step: Step) -> Iterator[tuple[str, Any]]:
    """The modules that are in no other, with the names that the function has for them."""
    given: Iterable[tuple[str, Any]] = [(str(index), root) for index, root in enumerate(step._subject.roots)]
    candidates: dict[Any, str] = {}
    for name, value in [*named_in(step._function), *given]:
        items = list(enumerate(value)) if isinstance(value, (list, tuple)) else [(None, value)]
        for index, item in items:
            if isinstance(item, torch.nn.Module):
                candidates.setdefault(item, name if index is None else f"{name}.{index}")
    for index, module in enumerate(step._subject.modules):
        candidates.setdefault(module, str(index))
    inner = {child for module in candidates for child in module.modules() if child is not module}
    for module, name in candidates.items():
        if module not in inner and next(iter(module.state_dict()), None) is not None:
            yield name, module
