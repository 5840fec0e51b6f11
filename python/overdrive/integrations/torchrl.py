"""torchrl and tensordict: a captured step whose arguments are TensorDicts."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from overdrive.step.api import capture as capture_function


def capture(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """:func:`overdrive.capture` for a function of one TensorDict. Entries that the function adds to the TensorDict, as ``td_error``, stay
    out of the caller's: return what you need. Another set of keys has a step of its own. ``options`` are those of ``overdrive.capture``."""
    from tensordict import TensorDict

    steps: dict[Any, Any] = {}

    def step_of(keys: tuple[Any, ...], size: Any) -> Any:
        def update(*tensors: Any) -> Any:
            return function(TensorDict(dict(zip(keys, tensors)), size))

        return capture_function(update, **options)

    def step(batch: Any) -> Any:
        entries = dict(batch.items(include_nested=True, leaves_only=True))
        key = tuple(entries), batch.batch_size
        if key not in steps:
            steps[key] = step_of(*key)
        return steps[key](*entries.values())

    step.steps = steps  # type: ignore[attr-defined]
    return step
