"""What stands on the value stack and in the variables of a frame that runs, as CPython 3.11 and 3.13 keep them.

A trace function cannot ask for it. The frame's memory is read, and never written.
"""
from __future__ import annotations

import ctypes
import dis
import functools
import sys
from typing import Any, NamedTuple

# Of PyFrameObject the frame of the interpreter; of that the height of its stack, and where its variables begin.
_FRAME, _HEIGHT, _VARIABLES = 24, 64, 72
_KNOWN = ((3, 11), (3, 13))
_WORD = ctypes.sizeof(ctypes.c_void_p)
NULL: Any = type("Null", (), {"__repr__": lambda self: "NULL"})()


def is_known() -> bool:
    return sys.implementation.name == "cpython" and sys.version_info[:2] in _KNOWN


class Code(NamedTuple):
    """Instructions by their offsets, those with a longer argument also by that of the first part; how many variables lie below the stack;
    which of them are cells of the frame's own."""

    steps: dict[int, dis.Instruction]
    variables: int
    cells: tuple[int, ...]


@functools.lru_cache(maxsize=None)
def table_of(code: Any) -> Code:
    steps, first = {}, None
    for step in dis.get_instructions(code):
        if step.opname == "EXTENDED_ARG":
            first = step.offset if first is None else first
            continue
        steps[step.offset] = step
        if first is not None:
            steps[first], first = step, None
    names = [*code.co_varnames, *(name for name in code.co_cellvars if name not in code.co_varnames)]
    cells = tuple(index for index, name in enumerate(names) if name in code.co_cellvars)
    return Code(steps, len(names) + len(code.co_freevars), cells)


class Stack:
    """Of one frame."""

    __slots__ = ("_begin", "_height", "_variables")

    def __init__(self, frame: Any, variables: int) -> None:
        inner = ctypes.c_void_p.from_address(id(frame) + _FRAME).value or 0
        self._begin, self._variables = inner + _VARIABLES, variables
        self._height = ctypes.c_int.from_address(inner + _HEIGHT)

    def slot(self, index: int) -> Any:
        try:
            return ctypes.py_object.from_address(self._begin + _WORD * index).value
        except ValueError:
            return NULL

    def values(self) -> list[Any]:
        return [self.slot(index) for index in range(self._variables, self._height.value)]
