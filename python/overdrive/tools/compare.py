"""One training step under both engines, from the same state: are the bits equal, and what is gained?"""
from __future__ import annotations

import copy
import dataclasses
import inspect
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from overdrive.reads.reachable import named_in
from overdrive.tools.engine import installed, switch_off, switch_on


@dataclasses.dataclass
class Comparison:
    """What :func:`compare` found. Times are seconds of a step; a ratio below 1 means that Overdrive took less."""

    steps: int
    equal: bool
    differences: list[str]
    stock_cpu: float
    overdrive_cpu: float
    cpu_ratio: float
    cpu_interval: tuple[float, float]
    stock_wall: float
    overdrive_wall: float
    wall_ratio: float
    wall_interval: tuple[float, float]

    def __str__(self) -> str:
        def row(what: str, stock: float, ours: float, ratio: float, interval: tuple[float, float]) -> str:
            return (f"  {what:9} {stock * 1e3:9.3f} ms {ours * 1e3:9.3f} ms   {ratio:.3f} "
                    f"[{interval[0]:.3f}, {interval[1]:.3f}]")

        lines = [f"{self.steps} steps under both engines, from the same state",
                 "  bits      " + ("equal" if self.equal else f"DIFFER in {len(self.differences)} places")]
        lines += [f"    {difference}" for difference in self.differences[:10]]
        lines += ["  a step       on stock  on Overdrive   ratio [of the middle rounds]",
                  row("CPU time", self.stock_cpu, self.overdrive_cpu, self.cpu_ratio, self.cpu_interval),
                  row("wall time", self.stock_wall, self.overdrive_wall, self.wall_ratio, self.wall_interval)]
        return "\n".join(lines)


def interval(ratios: Iterable[float]) -> tuple[float, float]:
    """Where the median of what these are a sample of lies, 95 times of 100. All of it when there are few."""
    ordered = sorted(ratios)
    spread = 0.98 * len(ordered) ** 0.5
    low = max(0, int(len(ordered) / 2 - spread))
    high = min(len(ordered) - 1, int(len(ordered) / 2 + spread))
    return ordered[low], ordered[high]


def _state_of(step: Callable[..., Any]) -> dict[str, Any]:
    """Objects with a state (modules, optimisers, schedulers, scalers) that the step can reach by name."""
    state: dict[str, Any] = {}
    for name, value in named_in(step):
        items = enumerate(value) if isinstance(value, (list, tuple)) else [(None, value)]
        for index, item in items:
            label = name if index is None else f"{name}[{index}]"
            has_state = hasattr(item, "state_dict") and hasattr(item, "load_state_dict") and not inspect.isclass(item)
            if has_state or isinstance(item, torch.Tensor):
                state.setdefault(label, item)
    return state


class _Saved:
    """A copy of everything that training changes, and the way back to it."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state
        self._dicts = {name: copy.deepcopy(o.state_dict()) for name, o in state.items() if hasattr(o, "state_dict")}
        tensors = [tensor for _, tensor in self._named_tensors()]
        self._values = [(t, t.detach().clone()) for t in tensors]
        self._gradients = [(t, None if t.grad is None else t.grad.detach().clone()) for t in tensors if t.is_leaf]
        self._modes = [(m, m.training) for o in state.values() if isinstance(o, torch.nn.Module) for m in o.modules()]
        numpy = sys.modules.get("numpy")
        self._random = (torch.get_rng_state(), random.getstate(), None if numpy is None else numpy.random.get_state())
        self._accelerator = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None

    def _named_tensors(self) -> Iterator[tuple[str, Any]]:
        for name, item in self._state.items():
            if isinstance(item, torch.Tensor):
                yield name, item
            elif isinstance(item, torch.nn.Module):
                for inner, tensor in [*item.named_parameters(), *item.named_buffers()]:
                    yield f"{name}.{inner}", tensor

    def restore(self) -> None:
        for name, saved in self._dicts.items():
            self._state[name].load_state_dict(copy.deepcopy(saved))
        with torch.no_grad():
            for tensor, value in self._values:
                if not torch.equal(tensor, value):
                    tensor.copy_(value)
        for tensor, gradient in self._gradients:
            tensor.grad = None if gradient is None else gradient.clone()
        for module, training in self._modes:
            module.training = training
        torch.set_rng_state(self._random[0])
        random.setstate(self._random[1])
        if self._random[2] is not None:
            sys.modules["numpy"].random.set_state(self._random[2])
        if self._accelerator is not None:
            torch.cuda.set_rng_state_all(self._accelerator)

    def picture(self) -> dict[str, Any]:
        """Every tensor and gradient as it is now, copied."""
        now: dict[str, Any] = {}
        for name, tensor in self._named_tensors():
            now[name] = tensor.detach().clone()
            if tensor.is_leaf and tensor.grad is not None:
                now[name + ".grad"] = tensor.grad.detach().clone()
        return now


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{name}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _flat(item, f"{name}[{index}]")
    else:
        yield name, value


def _same_bits(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and (a == b or (a != a and b != b))
    if a.shape != b.shape or a.dtype != b.dtype or a.layout != b.layout:
        return False
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    a, b = a.detach().contiguous().cpu(), b.detach().contiguous().cpu()
    return bool(torch.equal(a.view(-1).view(torch.uint8), b.view(-1).view(torch.uint8))) if a.numel() else True


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def compare(
    step: Callable[[], Any],
    steps: int = 20,
    *,
    rounds: int = 7,
    state: Iterable[Any] | dict[str, Any] | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Trains ``step`` under stock and under Overdrive from the same state, and says whether the bits are equal.

    ``step()`` is one training step; what it returns is compared after each call. Modules, optimisers, schedulers and
    tensors that it reaches by name are put back before each run; ``state`` names them where it reaches them in
    another way. At the end everything is as it was before. A round is ``steps`` steps under each; the ratio is the
    median over ``rounds``, with its interval. ``progress`` prints a line per round; unless told, on a terminal.

    >>> import overdrive, torch
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> x = torch.randn(16, 4)
    >>> def step():
    ...     optimizer.zero_grad()
    ...     loss = (model(x) - 1).square().mean()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> overdrive.compare(step, steps=3, rounds=2).equal
    True
    """
    if steps < 1 or rounds < 1:
        raise ValueError(f"compare was given steps={steps} and rounds={rounds}; it takes 1 and more of each")
    if state is None:
        named = _state_of(step)
    elif isinstance(state, dict):
        named = dict(state)
    else:
        named = {f"state[{index}]": item for index, item in enumerate(state)}
    saved = _Saved(named)
    progress = sys.stderr.isatty() if progress is None else progress
    was_installed = installed()
    differences: dict[str, None] = {}
    cpu: dict[bool, list[float]] = {False: [], True: []}
    wall: dict[bool, list[float]] = {False: [], True: []}

    def run(ours: bool) -> dict[str, Any]:
        saved.restore()
        switch_on() if ours else switch_off()
        results = []
        begin_wall, begin_cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            results.append(step())
        cpu[ours].append((time.process_time() - begin_cpu) / steps)
        wall[ours].append((time.perf_counter() - begin_wall) / steps)
        outcome = {f"step {i}: {name}": _copied(v) for i, r in enumerate(results) for name, v in _flat(r, "result")}
        outcome.update((f"after {steps} steps: {name}", value) for name, value in saved.picture().items())
        return outcome

    try:
        for number in range(rounds):
            order = (False, True) if number % 2 == 0 else (True, False)
            outcomes = {ours: run(ours) for ours in order}
            for name, value in outcomes[False].items():
                if name not in outcomes[True]:
                    differences[f"{name} is missing with Overdrive"] = None
                elif not _same_bits(value, outcomes[True][name]):
                    differences[f"{name} differs"] = None
            differences.update((f"{n} is missing with stock", None) for n in outcomes[True] if n not in outcomes[False])
            if progress:
                ratio = cpu[True][-1] / cpu[False][-1]
                print(f"overdrive: round {number + 1} of {rounds}: CPU time {ratio:.3f} of stock's", file=sys.stderr)
    finally:
        switch_on() if was_installed else switch_off()
        saved.restore()
    cpu_ratios = [a / b for a, b in zip(cpu[True], cpu[False])]
    wall_ratios = [a / b for a, b in zip(wall[True], wall[False])]
    return Comparison(
        steps=steps, equal=not differences, differences=list(differences),
        stock_cpu=statistics.median(cpu[False]), overdrive_cpu=statistics.median(cpu[True]),
        cpu_ratio=statistics.median(cpu_ratios), cpu_interval=interval(cpu_ratios),
        stock_wall=statistics.median(wall[False]), overdrive_wall=statistics.median(wall[True]),
        wall_ratio=statistics.median(wall_ratios), wall_interval=interval(wall_ratios))
