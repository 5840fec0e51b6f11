"""Which of one and all threads, of stock, switched and captured, a step is fastest with."""
from __future__ import annotations

import dataclasses
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

from overdrive.step.api import capture
from overdrive.tools.compare import _Saved, _state_of
from overdrive.tools.engine import installed, switch_off, switch_on

_ROUNDS = 3
# Calls before a captured step is on the clock: its first four are eager, and an optimizer that is found, and a parameter without a gradient, cost
# one more each.
_WARM_UP = 8
# Less than this is noise.
_WORTH_IT = 0.97


@dataclasses.dataclass
class Advice:
    """What :func:`advise` measured: of each way and number of threads the wall time of a step in seconds."""

    times: dict[tuple[str, int], float]
    refusal: str
    way: str
    threads: int

    def __str__(self) -> str:
        counts = sorted({threads for _, threads in self.times})
        lines = ["a step, wall time     " + "".join(f"{threads:4} thread{'s' if threads > 1 else ' '} " for threads in counts)]
        for way in ("stock", "switched", "captured"):
            made = [self.times.get((way, threads)) for threads in counts]
            lines.append(f"  {way:18}" + "".join("            –" if one is None else f"{one * 1e3:10.3f} ms" for one in made))
        if self.refusal:
            lines.append(f"capture() is refused: {self.refusal}")
        todo = {"stock": [], "switched": ["overdrive.install()"],
                "captured": ["step = overdrive.capture(step, optimizer=optimizer)"]}[self.way]
        if len(counts) > 1:
            todo.insert(0, f"torch.set_num_threads({self.threads})")
        return "\n".join([*lines, "fastest: " + ("; ".join(todo) or "as it is")])


def advise(step: Callable[..., Any], *inputs: Any, optimizer: Any = None, steps: int = 20, state: Iterable[Any] | None = None) -> Advice:
    """Times ``step(*inputs)`` with one thread and with all that PyTorch uses now, on stock, switched and captured, and says what to set.

    The step is one that :func:`capture` takes, and ``optimizer`` that which it steps, if it is not to be found. Everything that
    it trains is put back, as :func:`compare` does, and so are the number of threads and the engine. Small tensors are often faster with one
    thread than with many. Threads change bits: compare runs of equal numbers.

    >>> import overdrive, torch
    >>> model = torch.nn.Linear(8, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> def train(x):
    ...     optimizer.zero_grad()
    ...     loss = model(x).square().mean()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> overdrive.advise(train, torch.randn(4, 8), steps=5).way
    'captured'
    """
    if steps < 1:
        raise ValueError(f"advise was given steps={steps}, and takes 1 and more")
    named = _state_of(step) if state is None else {f"state[{index}]": item for index, item in enumerate(state)}
    saved, was_installed, threads = _Saved(named), installed(), torch.get_num_threads()
    refusal = ""
    made: dict[tuple[str, int], list[float]] = {}

    def run(way: str, count: int) -> None:
        nonlocal refusal
        saved.restore()
        torch.set_num_threads(count)
        switch_off() if way == "stock" else switch_on()
        captured = capture(step, optimizer=optimizer) if way == "captured" else None
        call = captured or step
        for _ in range(_WARM_UP):
            call(*inputs)
        if captured is not None and not captured.stats()["replayed"]:
            refusal = captured.refusal() or "nothing was replayed"
            return
        begin = time.perf_counter()
        for _ in range(steps):
            call(*inputs)
        made.setdefault((way, count), []).append((time.perf_counter() - begin) / steps)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(_ROUNDS):
                for count in dict.fromkeys((1, threads)):
                    for way in ("stock", "switched", "captured"):
                        run(way, count)
    finally:
        torch.set_num_threads(threads)
        switch_on() if was_installed else switch_off()
        saved.restore()
    times = {key: statistics.median(those) for key, those in made.items()}
    best = ("stock", threads)
    for key, seconds in times.items():
        if seconds < _WORTH_IT * times[best]:
            best = key
    return Advice(times, refusal, *best)
