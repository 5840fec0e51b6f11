"""What a function can reach by name."""
from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any


def named_in(step: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What a function can reach by name: its closure, defaults, globals it names, and the object it belongs to."""
    if inspect.ismethod(step):
        owner = step.__self__
        yield "self", owner
        yield from getattr(owner, "__dict__", {}).items()
        step = step.__func__
    if not inspect.isfunction(step):  # an object with __call__
        yield "step", step
        yield from getattr(step, "__dict__", {}).items()
        return
    for name, cell in zip(step.__code__.co_freevars, step.__closure__ or ()):
        with contextlib.suppress(ValueError):  # a variable without a value yet
            yield name, cell.cell_contents
    for name in step.__code__.co_names:
        if name in step.__globals__:
            yield name, step.__globals__[name]
    yield from (step.__kwdefaults__ or {}).items()
    parameters = [p for p in inspect.signature(step).parameters.values() if p.default is not p.empty]
    yield from ((p.name, p.default) for p in parameters)
