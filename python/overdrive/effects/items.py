"""``return loss.item() / n``: numbers of tensors that a captured function only returns. A replay reads them when it has run."""
from __future__ import annotations

import contextlib
import functools
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import torch

from overdrive.native.recording import _Unrecorded
from overdrive.reads.code import unwatched
from overdrive.reads.steps import steps_of
from overdrive.values.forms import Item

# What an Item does.
_ARITHMETIC = ("+", "-", "*", "/", "//")
# How many values an instruction takes from the stack, for the one that it leaves there; a call its arguments, too.
_TAKEN = {"LOAD_ATTR": 1, "LOAD_METHOD": 1, "CALL": 1, "BINARY_OP": 2, "COMPARE_OP": 2, "BINARY_SUBSCR": 2, "UNARY_NEGATIVE": 1}
_LOADS = ("LOAD_CONST", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME")


class _Recorded(threading.local):
    # The code that calls the function which is recorded on this thread.
    caller: types.CodeType | None = None


_recorded = _Recorded()
_lock = threading.Lock()
# Threads that record, while torch.Tensor has an item() of ours.
_users = [0]


def _item(tensor: Any) -> Any:
    """Of all threads, as long as one records."""
    frame, usual = sys._getframe(1), torch._C.TensorBase.item
    around = frame.f_back
    if _recorded.caller is None or around is None or around.f_code is not _recorded.caller or not _is_returned(frame.f_code, frame.f_lasti):
        return usual(tensor)
    with unwatched():
        with _Unrecorded():
            usual(tensor)  # its error, where it has one
        return Item([tensor.detach().clone()])


@contextlib.contextmanager
def returned_items(caller: types.CodeType) -> Iterator[None]:
    """Inside, ``item()`` in the function that this code calls gives an Item where the function only returns it."""
    if "item" in vars(torch.Tensor) and torch.Tensor.item is not _item:  # the program's own
        yield
        return
    before, _recorded.caller = _recorded.caller, caller
    with _lock:
        _users[0] += 1
        torch.Tensor.item = _item
    try:
        yield
    finally:
        _recorded.caller = before
        with _lock:
            _users[0] -= 1
            if _users[0] == 0:
                del torch.Tensor.item


@functools.lru_cache(maxsize=1024)
def _is_returned(code: types.CodeType, at: int) -> bool:
    """Whether what the call at this place gives goes to the caller alone."""
    steps = steps_of(code)
    # Of a call of Python's, the last of its caches.
    first = max((index for index, step in enumerate(steps) if step.offset <= at), default=-1)
    return first >= 0 and steps[first].opname == "CALL" and _goes_out(steps, first, set())


def _goes_out(steps: list[Any], first: int, locals_known: set[str]) -> bool:
    """Follows the value that ``steps[first]`` leaves on the stack: how many others lie above it."""
    above, is_after_number = 0, _is_number(steps, _begin_of(steps, first) - 1)
    for step in steps[first + 1:first + 60]:
        name = step.opname
        if name == "RETURN_VALUE":
            return above == 0
        if name in _LOADS:
            above += 1
        elif name in ("LOAD_ATTR", "LOAD_METHOD") and above > 0:
            continue
        elif name == "CALL" and above > step.arg:
            above -= step.arg
        elif name in ("BINARY_OP", "COMPARE_OP", "BINARY_SUBSCR") and above >= 2:
            above -= 1
        elif name == "BINARY_OP" and step.argrepr.rstrip("=") in _ARITHMETIC and (above == 1 or above == 0 and is_after_number):
            above, is_after_number = 0, False  # what stands at the left is asked first: the item, or a number
        elif name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP"):
            taken = step.arg * 2 if name == "BUILD_MAP" else step.arg + (name == "BUILD_CONST_KEY_MAP")
            above = above - taken + 1 if taken <= above else 0
        elif name == "STORE_FAST" and above == 0:
            if step.argval in locals_known:
                return True
            locals_known.add(step.argval)
            loads = [index for index, load in enumerate(steps) if load.opname == "LOAD_FAST" and load.argval == step.argval]
            others = any(load.argval == step.argval and load.opname not in ("LOAD_FAST", "STORE_FAST") for load in steps
                         if "FAST" in load.opname or "DEREF" in load.opname or "CLOSURE" in load.opname)
            return not others and all(_goes_out(steps, index, locals_known) for index in loads)
        elif name in ("STORE_FAST", "POP_TOP") and above > 0:
            above -= 1
        else:
            return False
    return False


def _is_number(steps: list[Any], index: int) -> bool:
    """Whether the instruction leaves a number on the stack: a constant, or what item() gives."""
    if index < 1 or steps[index].opname == "LOAD_CONST":
        return index >= 0 and type(steps[index].argval) in (int, float)
    return bool(steps[index].opname == "CALL" and steps[index - 1].opname == "LOAD_METHOD" and steps[index - 1].argval == "item")


def _begin_of(steps: list[Any], last: int) -> int:
    """Where the expression begins whose value ``steps[last]`` leaves on the stack; 0: nobody knows."""
    missing = 1
    for index in range(last, -1, -1):
        step = steps[index]
        taken = _TAKEN.get(step.opname, 0 if step.opname in _LOADS else None)
        if taken is None:
            return 0
        missing += taken - 1 + (step.arg if step.opname == "CALL" else 0)
        if missing == 0:
            return index
    return 0
