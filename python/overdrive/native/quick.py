"""Calls without Python: Note [A quick call] in python/bindings/calls.h."""
from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from overdrive.native.library import call, function, under_the_gil

# Python does the call; the call is open, and Python finishes it.
NOT_TAKEN, OPEN = NotImplemented, Ellipsis
_CALL, _STEP, _ZERO_GRAD = range(3)
# How many calls go through Python before another try, at most, where none went without it.
_MOST_WAITS = 64
# How many calls go without Python until one goes through it again.
_ALL = 1 << 62


class Look(ctypes.Structure):
    """Values that C looks at (python/bindings/values.h)."""

    _fields_ = [("begin", ctypes.c_void_p), ("count", ctypes.c_int64), ("is_whole", ctypes.c_int64)]


class Armed(ctypes.Structure):
    """What a quick call goes by (python/bindings/calls.h)."""

    _fields_ = [("is_armed", ctypes.c_int64), ("own", Look), ("structure", ctypes.c_void_p), ("reads", ctypes.c_void_p),
                ("inputs", ctypes.c_int64), ("form", ctypes.c_int64), ("outputs", ctypes.c_int64), ("parameters", ctypes.c_void_p),
                ("count", ctypes.c_int64), ("hits", ctypes.c_int64)]


def not_taken(*_: Any) -> Any:
    """In the place of a quick call where there is none."""
    return NOT_TAKEN


class Quick:
    """The quick calls of one captured function. ``lock``: is held by whoever is in a call."""

    def __init__(self, capture: Any, lock: Any) -> None:
        self.call: Any = not_taken
        self.step: Any = not_taken
        self.zero_grad: Any = not_taken
        self.is_there = _is_known()
        # What `armed` names by its address.
        self._kept: Any = None
        # Calls until it is armed again, and how many these were the last time.
        self._waits = self._waited = 0
        if not self.is_there:
            self.armed = Armed()
            return
        bindings = under_the_gil()
        quick = bindings.overdrive_python_quick(call("QuickCalls.of", capture), lock.acquire, (False,), lock.release)
        self._address = bindings.overdrive_python_quick_address(quick)
        self.armed = Armed.from_address(self._address)
        self.call, self.step, self.zero_grad = (bindings.overdrive_python_quick_function(quick, which) for which in (_CALL, _STEP, _ZERO_GRAD))

    def results(self) -> Any:
        """Of the call that is open; or its error."""
        return function("QuickCalls.take_results")(self._address)

    def disarm(self) -> int:
        """How many calls have gone without Python since it was armed."""
        hits: int = 0 if self._kept is None else self.armed.hits
        self.armed.is_armed = 0
        self._kept = None
        return hits

    def may_arm(self, is_timed: bool) -> bool:
        """Whether it is worth it: not in each call of a program that changes something in each."""
        if not self.is_there:
            return False
        if self.armed.hits or is_timed:
            self._waited = 0
        elif self._waits:
            self._waits -= 1
            return False
        self._waited = self._waits = min(2 * self._waited + 1, _MOST_WAITS)
        self.armed.hits = 0
        return True

    def arm(self, kept: Any, calls: int) -> None:
        """``kept``: all that `armed` names. ``calls``: so many go without Python; 0: all."""
        self._kept = kept
        self.armed.is_armed = calls or _ALL


_probing = threading.Lock()
_known: list[bool] = []


def _is_known() -> bool:
    """Whether objects of this Python, and tensors of this PyTorch, are laid out as C reads them."""
    with _probing:
        if not _known:
            _known.append(_probe())
        return _known[0]


def _probe() -> bool:
    bindings = under_the_gil()
    # With 3.11 attributes lie beside the object, and come into a dict when it is asked for; with 3.12, too; else there is a dict or none.
    attributes = {(3, 11): 2, (3, 12): 3}.get(sys.version_info[:2], 1)
    if object.__basicsize__ != 2 * ctypes.sizeof(ctypes.c_void_p):
        return False
    if not bindings.overdrive_python_quick_begin(torch.Tensor, None, NOT_TAKEN, OPEN, attributes):
        return False
    return all(_is_read_well(_plain_tensor(), attributes, begins_with_dict) for begins_with_dict in (False, True))


def _is_read_well(probe: Any, attributes: int, begins_with_dict: bool) -> bool:
    """Whether C finds the tensor in its object, and sees its attributes come and go."""
    bindings = under_the_gil()
    if bindings.overdrive_python_tensor_in(probe) != probe._cdata:
        return False
    changes: list[Callable[[], Any]] = [
        lambda: probe.__dict__ if begins_with_dict else None, lambda: setattr(probe, "_overdrive", 1),
        lambda: delattr(probe, "_overdrive"), lambda: probe.__dict__, lambda: probe.__dict__.update(_overdrive=1),
        lambda: probe.__dict__.clear()]
    seen = []
    for change in changes:
        change()
        seen.append(bindings.overdrive_python_has_attributes(probe, attributes))
    return seen == [0, 1, 0, 0, 1, 0]


def _plain_tensor() -> Any:
    """Without a word to modes, or to a recording."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        return torch.Tensor()
