"""Adapters for libraries whose loops need more than a line. None of the libraries is a dependency: an adapter is imported when
it is named first, as ``overdrive.integrations.deepxde``."""
from __future__ import annotations

import importlib
from typing import Any

__all__ = ["deepxde", "lightning", "pyro", "sbi", "stable_baselines3", "torchrl"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"overdrive.integrations has no adapter {name!r}; there are {', '.join(__all__)}")
    return importlib.import_module(f"overdrive.integrations.{name}")
