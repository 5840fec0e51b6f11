"""Settings of Python and of PyTorch's Python that a function may change, and that a replay leaves as they are."""
from __future__ import annotations

import contextlib
import contextvars
import gc
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch


class _Objects(dict[Any, Any]):
    """Others are another where one has another object."""

    def __ne__(self, other: object) -> bool:
        return not (isinstance(other, _Objects) and self.keys() == other.keys() and all(value is other[key] for key, value in self.items()))


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """A walk makes many objects and leaves no cycles; Python would look for them in the whole heap, again and again. In a call that is watched what
    a finalizer does would look like the function's. Not by gc.disable(), which the function may call itself."""
    thresholds = gc.get_threshold()
    gc.set_threshold(0, *thresholds[1:])
    try:
        yield
    finally:
        if gc.get_threshold()[0] == 0:
            gc.set_threshold(*thresholds)


def surroundings() -> dict[str, Any]:
    """Each by how a program changes it. Copies, because most are changed in place."""
    printing = vars(sys.modules["torch._tensor_str"].PRINT_OPTS)
    return {"gc.disable()": gc.isenabled(), "the filters of warnings": list(warnings.filters), "os.environ": dict(os.environ),
            "os.chdir()": _folder(), "sys.setrecursionlimit()": sys.getrecursionlimit(), "torch.set_printoptions()": dict(printing),
            "ContextVar.set()": _Objects(contextvars.copy_context()),
            "anomaly mode": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())}


def changed_since(before: dict[str, Any]) -> str:
    """The first that is another one now, as a reason; "": none is."""
    now = surroundings()
    name = next((name for name in before if now[name] != before[name]), "")
    return name and f"The function changes a setting of the process ({name}), which a replay does not; change it outside of the function."


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""
