"""Pyro: the step of an ``SVI`` with ``Trace_ELBO``, its loss and gradients as one captured step, its optimizers captured."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from overdrive.step.api import capture
from overdrive.step.part import captured as captured_target


@contextmanager
def _losses_as_tensors() -> Iterator[None]:
    """Trace_ELBO adds the loss as numbers, which a recording cannot follow: here as tensors of the same precision."""
    import pyro.infer.trace_elbo as module

    plain = module.torch_item
    module.torch_item = lambda x: x.detach().double() if hasattr(x, "detach") else plain(x)
    try:
        yield
    finally:
        module.torch_item = plain


def captured(svi: Any, **options: Any) -> Any:
    """The SVI, whose ``step(tensors)`` replays. The model must be made of the same sites in each call, each of them reparametrized.
    ``options`` are those of :func:`overdrive.capture`."""
    import torch

    from pyro import poutine

    parameters: dict[Any, None] = {}
    optimizers: set[Any] = set()

    def update(*inputs: Any) -> Any:
        for parameter in parameters:
            parameter.grad.zero_()
        with poutine.trace(param_only=True) as seen, _losses_as_tensors():
            loss = svi.loss_and_grads(svi.model, svi.guide, *inputs)
        found.append([site["value"].unconstrained() for site in seen.trace.nodes.values()])
        return loss

    found: list[Any] = []
    replay = capture(update, **options)

    def step(*inputs: Any) -> float:
        loss = replay(*inputs)
        if found:
            parameters.update(dict.fromkeys(found.pop()))
            found.clear()
        svi.optim(list(parameters))
        for optimizer in svi.optim.optim_objs.values():
            if optimizer not in optimizers and isinstance(optimizer, torch.optim.Optimizer):
                optimizers.add(captured_target(optimizer))
        return float(loss)

    svi.step = step
    return svi
