"""DeepXDE: the training step of a compiled ``deepxde.Model`` as one captured step."""
from __future__ import annotations

from typing import Any

from overdrive._capture import capture


def captured(model: Any) -> Any:
    """The model, whose ``train()`` replays its steps. Call it after each ``model.compile()``.

    DeepXDE's own step stays for L-BFGS, which decides by values how often it evaluates, for learning rates that decay, for mixed
    precision, and for nets of several inputs.
    """
    import torch

    from deepxde import config

    optimizer = model.opt
    if type(optimizer) not in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW) or model.lr_scheduler or config.mixed:
        return model

    def update(points: Any, targets: Any, others: Any) -> Any:
        # The points require a gradient, and an input of a captured step has none.
        total = torch.sum(model.outputs_losses_train(points.detach(), targets, others)[1])
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        return total

    own, step = model.train_step, capture(update, optimizer=optimizer)

    def train_step(points: Any, targets: Any, others: Any) -> None:
        if isinstance(points, tuple):
            own(points, targets, others)
        else:
            step(*(None if given is None else torch.as_tensor(given) for given in (points, targets, others)))

    model.train_step = train_step
    return model
