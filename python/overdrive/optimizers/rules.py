"""PyTorch's optimizers whose update is an operator of the library: its state, its numbers, and PyTorch's own function."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from overdrive.reads.optimizers import kind_of_optimizer

# The operator reads these out of a tensor, in the order of the rule.
Numbers = Callable[[dict[str, Any]], "tuple[Any, ...]"]


@dataclass(frozen=True)
class Rule:
    operator: str
    # How many lists of state tensors _init_group() fills.
    states: int
    numbers: Numbers
    # Options in the numbers; every other one is a guard.
    carried: tuple[str, ...]
    # Which of the numbers, zero or not, choose the operators that write in place: buffers and versions depend on them.
    switches: tuple[int, ...]
    # PyTorch's update by (group, parameters, gradients, lists of states).
    update: Callable[..., None]
    # Whether foreach=True has the same bits in every step.
    foreach: bool = True
    # The operator of fused=True; "": there is none.
    fused: str = ""


def rule_of(kind: Any) -> Rule | None:
    import torch

    return {torch.optim.SGD: _SGD, torch.optim.Adam: _ADAM, torch.optim.AdamW: _ADAM, torch.optim.Adagrad: _ADAGRAD,
            torch.optim.Adamax: _ADAMAX, torch.optim.NAdam: _NADAM, torch.optim.RAdam: _RADAM}.get(kind)


def has_constants(kind: Any) -> bool:
    """Whether its update has no number that changes with the steps: PyTorch's own is recorded, and its options are guards."""
    import torch

    return kind in (torch.optim.RMSprop, torch.optim.Adadelta, torch.optim.Rprop)


def is_understood(optimizer: Any) -> bool:
    kind = kind_of_optimizer(optimizer)
    return rule_of(kind) is not None or has_constants(kind)


def _shared(group: dict[str, Any]) -> dict[str, Any]:
    return {"lr": group["lr"], "weight_decay": group["weight_decay"], "foreach": group["foreach"], "maximize": group["maximize"]}


def _moments(group: dict[str, Any]) -> dict[str, Any]:
    beta1, beta2 = group["betas"]
    return {"beta1": beta1, "beta2": beta2, "eps": group["eps"], **_shared(group)}


def _sgd_numbers(group: dict[str, Any]) -> tuple[Any, ...]:
    return (group["lr"], group["momentum"], group["dampening"], group["weight_decay"], group["nesterov"])


def _sgd(group: dict[str, Any], parameters: list[Any], gradients: list[Any], states: list[list[Any]]) -> None:
    from torch.optim.sgd import sgd

    buffers = states[0] or [None] * len(parameters)
    sgd(parameters, gradients, buffers, fused=False, momentum=group["momentum"], dampening=group["dampening"],
        nesterov=group["nesterov"], **_shared(group))


def _moment_numbers(group: dict[str, Any]) -> tuple[Any, ...]:
    beta1, beta2 = group["betas"]
    return (group["lr"], beta1, beta2, group["eps"], group["weight_decay"], group.get("decoupled_weight_decay", False))


def _adam(group: dict[str, Any], parameters: list[Any], gradients: list[Any], states: list[list[Any]]) -> None:
    from torch.optim.adam import adam

    adam(parameters, gradients, *states, fused=bool(group.get("fused")), amsgrad=group["amsgrad"],
         decoupled_weight_decay=group.get("decoupled_weight_decay", False), **_moments(group))


def _adagrad_numbers(group: dict[str, Any]) -> tuple[Any, ...]:
    return (group["lr"], group["lr_decay"], group["eps"], group["weight_decay"])


def _adagrad(group: dict[str, Any], parameters: list[Any], gradients: list[Any], states: list[list[Any]]) -> None:
    from torch.optim.adagrad import adagrad

    adagrad(parameters, gradients, *states, fused=False, lr_decay=group["lr_decay"], eps=group["eps"], **_shared(group))


def _adamax_numbers(group: dict[str, Any]) -> tuple[Any, ...]:
    return (group["lr"], *group["betas"], group["eps"], group["weight_decay"])


def _adamax(group: dict[str, Any], parameters: list[Any], gradients: list[Any], states: list[list[Any]]) -> None:
    from torch.optim.adamax import adamax

    adamax(parameters, gradients, *states, **_moments(group))


def _nadam_numbers(group: dict[str, Any]) -> tuple[Any, ...]:
    return (*_moment_numbers(group), group["momentum_decay"])


def _nadam(group: dict[str, Any], parameters: list[Any], gradients: list[Any], states: list[list[Any]]) -> None:
    from torch.optim.nadam import nadam

    nadam(parameters, gradients, *states, momentum_decay=group["momentum_decay"],
          decoupled_weight_decay=group["decoupled_weight_decay"], **_moments(group))


def _radam(group: dict[str, Any], parameters: list[Any], gradients: list[Any], states: list[list[Any]]) -> None:
    from torch.optim.radam import radam

    radam(parameters, gradients, *states, decoupled_weight_decay=group["decoupled_weight_decay"], **_moments(group))


_OF_MOMENTS = ("lr", "betas", "eps", "weight_decay", "decoupled_weight_decay")
_SGD = Rule("sgd_", 1, _sgd_numbers, ("lr", "momentum", "dampening", "weight_decay", "nesterov"), (1,), _sgd)
_ADAM = Rule("adam_", 4, _moment_numbers, _OF_MOMENTS, (4, 5), _adam, fused="fused_adam_")
_ADAGRAD = Rule("adagrad_", 2, _adagrad_numbers, ("lr", "lr_decay", "eps", "weight_decay"), (), _adagrad)
_ADAMAX = Rule("adamax_", 3, _adamax_numbers, ("lr", "betas", "eps", "weight_decay"), (), _adamax)
_NADAM = Rule("nadam_", 4, _nadam_numbers, (*_OF_MOMENTS, "momentum_decay"), (4, 5), _nadam, foreach=False)
_RADAM = Rule("radam_", 3, _moment_numbers, _OF_MOMENTS, (4, 5), _radam, foreach=False)
