"""torch.utils.swap_tensors() and captured steps.

PyTorch exchanges the content of two tensors only if nothing has a weak reference to them. Recordings have such references
to all tensors that they know. So every captured step forgets its recordings before PyTorch looks.
"""
from __future__ import annotations

import functools
from typing import Any

import torch

from overdrive.step.reasons import steps


def let_go_before_swaps() -> None:
    """Once: from here on torch.utils.swap_tensors() tells the captured steps first. Modules call it by this name, too."""
    swap = torch.utils.swap_tensors
    if getattr(swap, "_tells_captured_steps", False):
        return

    @functools.wraps(swap)
    def swap_tensors(t1: Any, t2: Any) -> Any:
        for step in list(steps):
            step.let_go()
        return swap(t1, t2)

    swap_tensors._tells_captured_steps = True  # type: ignore[attr-defined]
    torch.utils.swap_tensors = swap_tensors
