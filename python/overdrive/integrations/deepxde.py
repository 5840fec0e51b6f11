"""DeepXDE: the training step of a compiled ``deepxde.Model`` as one captured step."""
from __future__ import annotations

from typing import Any

from overdrive.step.api import capture


def captured(model: Any) -> Any:
    """The model, whose ``train()`` replays its steps. Call it after each ``model.compile()``.

    DeepXDE's own step stays for L-BFGS, which decides by values how often it evaluates, for learning rates that decay, for mixed
    precision, and for nets of several inputs.
    """
    import torch

    from deepxde import config

    optimizer, data = model.opt, model.data
    if type(optimizer) not in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW) or model.lr_scheduler or config.mixed:
        return model

    def update(points: Any, targets: Any, others: Any) -> Any:
        # The points require a gradient, and an input of a captured step has none.
        total = torch.sum(model.outputs_losses_train(points.detach(), targets, others)[1])
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        return total

    # DeepXDE's caches keep tensors of a call, and its arrays of points may be large, so that the guards are our own.
    own, step = model.train_step, capture(update, optimizer=optimizer, guards="promised")
    last: list[Any] = []

    def points_and_weights() -> list[Any]:
        """Points that are drawn anew are other arrays, and conditions at them have other values."""
        weights = model.loss_weights
        return [getattr(data, "train_x", None), getattr(data, "train_x_bc", None), None if weights is None else list(weights)]

    def train_step(points: Any, targets: Any, others: Any) -> None:
        if isinstance(points, tuple):
            own(points, targets, others)
            return
        now = points_and_weights()
        if last and (now[0] is not last[0] or now[1] is not last[1] or now[2] != last[2]):
            step.reset()
        last[:] = now
        step(*(None if given is None else torch.as_tensor(given) for given in (points, targets, others)))

    model.train_step = train_step
    return model
