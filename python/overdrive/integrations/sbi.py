"""sbi: the batches of an inference's epochs as one captured step each, as soon as ``train()`` has made net and optimizer."""
from __future__ import annotations

from typing import Any

from overdrive.step.api import CapturedStep, capture
from overdrive.step.part import captured as captured_target


def captured(inference: Any, **options: Any) -> Any:
    """The inference (``NPE``, ``NLE``, ``NRE``), whose ``train()`` replays a batch's loss, backward, clipping and update as one step, and the losses
    of validation. Where the step cannot be replayed, loss and update are, as parts. ``options`` are those of :func:`overdrive.captured`."""
    plain = inference._train_epoch
    # Of the last epoch: what its step is made of, and the step; None where it runs in parts.
    last: list[Any] = [(), None]

    def train_epoch(train_loader: Any, clip_max_norm: Any, loss_args: Any) -> Any:
        net, optimizer = inference._neural_net, inference.optimizer
        made_of = net, optimizer, clip_max_norm, loss_args
        if not last[0] or any(a is not b for a, b in zip(last[0], made_of)):
            if not last[0] or net is not last[0][0]:
                net.loss = captured_target(net.loss, **options)
            last[:] = made_of, _step_of(inference, *made_of, options)
        if last[1] is not None and last[1].refused_for_good():
            captured_target(optimizer, **options)
            last[1] = None
        if (step := last[1]) is None:
            return plain(train_loader, clip_max_norm, loss_args)
        total = 0.0
        for batch in train_loader:
            total += step(*batch).item()
        return total / (len(train_loader) * train_loader.batch_size)

    inference._train_epoch = train_epoch
    return inference


def _step_of(inference: Any, net: Any, optimizer: Any, clip_max_norm: Any, loss_args: Any, options: dict[str, Any]) -> CapturedStep:
    import torch

    arguments = {} if loss_args is None else {"loss_args": loss_args}

    def update(*batch: Any) -> Any:
        optimizer.zero_grad()
        losses = inference._get_losses(batch=batch, **arguments)
        total = losses.sum().detach()
        torch.mean(losses).backward()
        if clip_max_norm is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=clip_max_norm)
        optimizer.step()
        return total

    return capture(update, optimizer=optimizer, **options)
