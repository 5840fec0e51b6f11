"""sbi: the density estimator and the optimizer of an inference are captured as soon as ``train()`` has made them."""
from __future__ import annotations

from typing import Any

from overdrive._part import captured as captured_target


def captured(inference: Any, **options: Any) -> Any:
    """The inference (``NPE``, ``NLE``), whose ``train()`` replays losses, backwards and updates. ``options`` are those of
    :func:`overdrive.captured`."""
    plain = inference._train_epoch
    last: list[Any] = [None, None]

    def train_epoch(*inputs: Any, **keywords: Any) -> Any:
        net, optimizer = inference._neural_net, inference.optimizer
        if net is not last[0]:
            net.loss = captured_target(net.loss, **options)
        if optimizer is not last[1]:
            captured_target(optimizer, **options)
        last[:] = net, optimizer
        return plain(*inputs, **keywords)

    inference._train_epoch = train_epoch
    return inference
