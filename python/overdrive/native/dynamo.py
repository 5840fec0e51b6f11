"""torch.compile() goes around captured steps: Dynamo neither traces them nor compiles what runs inside of them."""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import TypeVar

_REASON = "it is a captured step of Overdrive, which is recorded and replayed"
# Of functions that Dynamo has not been told of.
_codes: list[types.CodeType] = []
_F = TypeVar("_F", bound=Callable[..., object])


def around(function: _F) -> _F:
    """Where a program, or the library, comes into a captured step. A trace ends before it, and goes on behind it."""
    function._torchdynamo_disable, function._torchdynamo_disable_msg = True, _REASON  # type: ignore[attr-defined]
    _codes.append(function.__code__)
    return function


def tell_dynamo() -> None:
    """Frames of these functions, and all that they call, are none of Dynamo's. That costs a call nothing."""
    if _codes:
        import torch._C._dynamo.eval_frame as frames

        skip = frames._FrameAction.SKIP
        while _codes:
            frames.set_code_exec_strategy(_codes.pop(), frames._FrameExecStrategy(skip, skip))
