"""Modes of Python that see operators before a recording does."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def looks_at_modes() -> tuple[Callable[[], bool], Callable[[], bool]]:
    """Two functions: whether any such mode is active, which each call asks, and whether parametrizations keep tensors, which is one."""
    import torch.nn.utils.parametrize as parametrize

    dispatch, functions = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
    level, trace = torch._C._functorch.maybe_current_level, torch._C._get_tracing_state

    def is_any() -> bool:
        return bool(dispatch() or functions() and _has_another_function_mode() or level() or trace() or parametrize._cache_enabled)

    return is_any, lambda: bool(parametrize._cache_enabled)


def let_higher_order_through() -> None:
    """A recording has a dispatch key of its own (engine/operators/keys.h), for which cond(), scan() and their kind have no function and
    would throw. What they do by operators is recorded."""
    key = torch._C._parse_dispatch_key("Fake")
    if key not in torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS:
        torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(key)
        for operator in torch._ops._higher_order_ops.values():
            operator.fallthrough(key)


def _has_another_function_mode() -> bool:
    """``set_default_device("cpu")`` makes a mode, which gives factories the device that they have without it."""
    return any(not _is_cpu(torch._C._get_function_stack_at(i)) for i in range(torch._C._len_torch_function_stack()))


def _is_cpu(mode: Any) -> bool:
    from torch.utils._device import DeviceContext

    return type(mode) is DeviceContext and bool(mode.device.type == "cpu")
