"""A chain of layers whose activations are computed again in the backward, on schedules of ours."""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from overdrive.native.library import call

Layer = Callable[[Any], Any]


def _run(layers: Sequence[Layer], x: Any) -> Any:
    for layer in layers:
        x = layer(x)
    return x


def checkpoint_sequential(
    layers: Sequence[Layer] | torch.nn.Sequential,
    x: Any,
    *,
    segments: int | None = None,
    revolve: int | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """``layers[-1](... layers[0](x))``, keeping less for the backward. By ``torch.utils.checkpoint``, on either engine.

    ``segments``: the chain is cut into so many pieces of about the same length, and a piece runs again when the
    backward comes to it; one extra forward in all. The square root of the number of layers keeps least, and is
    taken when nothing is told.

    ``revolve``: at most so many inputs of layers are kept at a time, and layers run again as often as that takes, by
    the schedule with the fewest repetitions. For chains that one extra forward does not make small enough.

    >>> import torch
    >>> layers = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(9)])
    >>> x = torch.ones(2, 4)
    >>> torch.equal(checkpoint_sequential(layers, x, revolve=3), layers(x))
    True
    """
    chain = list(layers)
    if segments is not None and revolve is not None:
        raise ValueError("checkpoint_sequential takes segments or revolve, not both")
    for name, value in (("segments", segments), ("revolve", revolve)):
        if value is not None and value < 1:
            raise ValueError(f"checkpoint_sequential was given {name}={value}; it takes 1 and more")
    from torch.utils.checkpoint import checkpoint

    kept = functools.partial(checkpoint, use_reentrant=False, preserve_rng_state=preserve_rng_state)

    def pieces(x: Any) -> Any:
        count = min(segments or max(1, math.isqrt(len(chain))), max(1, len(chain)))
        ends = [len(chain) * (piece + 1) // count for piece in range(count)]
        begin = 0
        for end in ends:
            x = kept(_run, chain[begin:end], x)
            begin = end
        return x

    def binomial(part: Sequence[Layer], states: int, x: Any) -> Any:
        while len(part) > 1:
            split = len(part) - 1 if states == 1 else call("Schedule.next_snapshot", len(part), states)
            x = kept(binomial, part[:split], states, x)
            part, states = part[split:], max(1, states - 1)
        return _run(part, x)

    if not chain:
        return x
    return pieces(x) if revolve is None else kept(binomial, chain, revolve, x)
