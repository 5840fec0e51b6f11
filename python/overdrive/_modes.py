"""Modes of Python that see operators before a recording does."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


def counts_of_modes() -> tuple[Callable[[], int], ...]:
    """Python's own modes, torch.func's transforms and traces; last, whether parametrizations keep tensors."""
    import torch
    import torch.nn.utils.parametrize as parametrize

    return (torch._C._len_torch_dispatch_stack, _other_function_modes, torch._C._functorch.maybe_current_level,
            torch._C._get_tracing_state, lambda: int(parametrize._cache_enabled))


def _other_function_modes() -> int:
    """``set_default_device("cpu")`` makes a mode, which gives factories the device that they have without it."""
    import torch

    count = torch._C._len_torch_function_stack()
    return count and sum(not _is_cpu(torch._C._get_function_stack_at(i)) for i in range(count))


def _is_cpu(mode: Any) -> bool:
    from torch.utils._device import DeviceContext

    return type(mode) is DeviceContext and bool(mode.device.type == "cpu")
