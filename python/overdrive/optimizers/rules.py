"""PyTorch's optimizers whose update is an operator of the library: its state, its numbers, and PyTorch's own function."""
from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from overdrive.reads.optimizers import kind_of_optimizer

# An optimizer that an older PyTorch has written may have none of these.
_MAY_BE_MISSING = ("decoupled_weight_decay", "fused")


@dataclass(frozen=True)
class Rule:
    # Of PyTorch's function, and of its module. The operator has it with a _ behind it.
    name: str
    # How many lists of state tensors _init_group() fills.
    states: int
    # Options that the operator reads out of a tensor, in this order; every other one is a guard.
    carried: tuple[str, ...]
    # Which of the numbers, zero or not, choose the operators that write in place: buffers and versions depend on them.
    switches: tuple[int, ...]
    # Options that PyTorch's function takes besides.
    others: tuple[str, ...] = ()
    # Whether foreach=True has the same bits in every step.
    foreach: bool = True
    # The operator of fused=True; "": there is none.
    fused: str = ""

    @property
    def operator(self) -> str:
        return f"{self.name}_"

    def numbers(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(_options(group, self.carried).values())

    def module(self) -> Any:
        return importlib.import_module(f"torch.optim.{self.name}")

    def function(self) -> Callable[..., None]:
        """PyTorch's own, of lists of parameters, gradients and states."""
        found: Callable[..., None] = getattr(self.module(), self.name)
        return found

    def functions(self) -> dict[str, Any]:
        """That one, and those that it calls."""
        return {key: value for key, value in vars(self.module()).items() if key.endswith(f"_{self.name}") or key == self.name}

    def options(self, group: dict[str, Any]) -> dict[str, Any]:
        return _options(group, (*self.carried, *self.others, "foreach", "maximize"))


def _options(group: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """By the names that PyTorch's functions have for them."""
    found: dict[str, Any] = {}
    for key in keys:
        if key == "betas":
            found["beta1"], found["beta2"] = group["betas"]
        else:
            found[key] = group.get(key, False) if key in _MAY_BE_MISSING else group[key]
    return found


def rule_of(kind: Any) -> Rule | None:
    return {torch.optim.SGD: _SGD, torch.optim.Adam: _ADAM, torch.optim.AdamW: _ADAM, torch.optim.Adagrad: _ADAGRAD,
            torch.optim.Adamax: _ADAMAX, torch.optim.NAdam: _NADAM, torch.optim.RAdam: _RADAM}.get(kind)


def has_constants(kind: Any) -> bool:
    """Whether its update has no number that changes with the steps: PyTorch's own is recorded, and its options are guards."""
    return kind in (torch.optim.RMSprop, torch.optim.Adadelta, torch.optim.Rprop)


def is_understood(optimizer: Any) -> bool:
    kind = kind_of_optimizer(optimizer)
    return rule_of(kind) is not None or has_constants(kind)


_OF_MOMENTS = ("lr", "betas", "eps", "weight_decay", "decoupled_weight_decay")
_SGD = Rule("sgd", 1, ("lr", "momentum", "dampening", "weight_decay", "nesterov"), (1,), ("fused",))
_ADAM = Rule("adam", 4, _OF_MOMENTS, (4, 5), ("fused", "amsgrad"), fused="fused_adam_")
_ADAGRAD = Rule("adagrad", 2, ("lr", "lr_decay", "eps", "weight_decay"), (), ("fused",))
_ADAMAX = Rule("adamax", 3, ("lr", "betas", "eps", "weight_decay"), ())
_NADAM = Rule("nadam", 4, (*_OF_MOMENTS, "momentum_decay"), (4, 5), foreach=False)
_RADAM = Rule("radam", 3, _OF_MOMENTS, (4, 5), foreach=False)
