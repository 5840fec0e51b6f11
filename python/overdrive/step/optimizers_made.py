"""Every optimizer of ``torch.optim`` that a program makes, captured where PyTorch makes it: ``install(optimizers=True)``.

The last thing that a class of PyTorch's has in common with the others is ``Optimizer.__init__``, which is replaced. Any
thread may make an optimizer.
"""
from __future__ import annotations

import functools
import weakref
from typing import Any

# So many calls are PyTorch's: recording pays for an optimizer that lives on, and not for one that is made for a few steps.
CALLS_FIRST = 16
# Those captured here, which nobody has given to captured() since.
_made: weakref.WeakSet[Any] = weakref.WeakSet()
_is_on = False


def capture_made(kind: Any) -> None:
    """From here on. ``kind``: torch.optim.Optimizer. May be called twice."""
    global _is_on
    _is_on = True
    plain = kind.__init__
    if hasattr(plain, "_overdrive_plain"):
        return

    @functools.wraps(plain)
    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        plain(self, *arguments, **keywords)
        if _is_on:
            _capture(self)

    init._overdrive_plain = plain  # type: ignore[attr-defined]
    kind.__init__ = init


def leave_made(kind: Any) -> None:
    """Undoes it: optimizers made later are PyTorch's, and those of before are again."""
    global _is_on
    _is_on = False
    # A program that has replaced it since keeps its own, which leads through this one.
    if (plain := getattr(vars(kind)["__init__"], "_overdrive_plain", None)) is not None:
        kind.__init__ = plain
    if _made:
        from overdrive.step.optimizer_part import release

        for optimizer in list(_made):
            release(optimizer)
        _made.clear()


def forget(optimizer: Any) -> None:
    """It was given to captured(), and stays captured."""
    _made.discard(optimizer)


def _capture(optimizer: Any) -> None:
    import torch

    # A class of the program's own has a step() that nothing is known of, or more to do around that of PyTorch's.
    kind = type(optimizer)
    if getattr(torch.optim, kind.__name__, None) is not kind:
        return
    from overdrive.step.optimizer_part import captured_optimizer

    options = {"programs": 4096, "check_every": 0, "guarded": True, "passes": True, "always": False}  # captured()'s own
    captured_optimizer(optimizer, options, calls_first=CALLS_FIRST)
    _made.add(optimizer)
