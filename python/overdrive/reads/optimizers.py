"""Whose the code of an optimizer is."""
from __future__ import annotations

import os
import types
from typing import Any

import torch


def kind_of_optimizer(optimizer: Any) -> Any:
    """Its class. A captured optimizer has a class of its own above it."""
    return getattr(type(optimizer), "_overdrive_base", type(optimizer))


def is_of_the_program(optimizer: Any) -> bool:
    """Whether its class has another step() than PyTorch's optimizers: code that is recorded as other code is."""
    return is_pytorchs(kind_of_optimizer(optimizer).step) is False


def is_of_optimizers(code: types.CodeType) -> bool:
    """Whether it is that of PyTorch's optimizers and schedulers."""
    return os.path.dirname(code.co_filename) == os.path.dirname(str(torch.optim.__file__))


def is_pytorchs(step: Any) -> bool | None:
    """Whether the code of a step(), behind what wraps it, is that of PyTorch's optimizers; None: it has no code."""
    while hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    code = getattr(step, "__code__", None)
    return None if code is None else is_of_optimizers(code)
