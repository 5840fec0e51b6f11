"""What stands on the value stack and in the variables of a frame that runs, and which of it nobody else holds.

A trace function cannot ask for it. The frame's memory is read, and never written. How high the stack is before an instruction says the bytecode:
CPython 3.13 notes it in the frame no more.
"""
from __future__ import annotations

import ctypes
import dis
import functools
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

# Of PyFrameObject the frame of the interpreter; of that, where its variables begin.
_FRAME, _VARIABLES = 24, 72
_KNOWN = ((3, 11), (3, 13))
_WORD = ctypes.sizeof(ctypes.c_void_p)
_ENDS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
NULL: Any = type("Null", (), {"__repr__": lambda self: "NULL"})()


def is_known() -> bool:
    return sys.implementation.name == "cpython" and sys.version_info[:2] in _KNOWN


class Code(NamedTuple):
    """Instructions by their offsets, those with a longer argument also by that of the first part; how many variables lie below the stack; how high it
    is before each instruction."""

    steps: dict[int, dis.Instruction]
    variables: int
    depths: dict[int, int]


@functools.lru_cache(maxsize=None)
def table_of(code: Any) -> Code:
    steps, depths, first = {}, _depths(code), None
    for step in dis.get_instructions(code):
        if step.opname == "EXTENDED_ARG":
            first = step.offset if first is None else first
            continue
        steps[step.offset] = step
        if first is not None:
            steps[first], depths[step.offset], first = step, depths.get(first, 0), None
    names = {*code.co_varnames, *code.co_cellvars}
    return Code(steps, len(names) + len(code.co_freevars), depths)


def _depths(code: Any) -> dict[int, int]:
    """By all ways that lead through the code: from its begin, and from the handlers of its errors."""
    steps = {step.offset: step for step in dis.get_instructions(code)}
    after = dict(zip(steps, [*list(steps)[1:], -1]))
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    found: dict[int, int] = {}
    ways = [(0, 0), *((entry.target, entry.depth + entry.lasti + 1) for entry in entries)]
    while ways:
        at, depth = ways.pop()
        while at in steps and at not in found:
            found[at], step = depth, steps[at]
            if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
                ways.append((step.argval, depth + _effect(step, True)))
            if step.opname in _ENDS:
                break
            depth += _effect(step, False)
            at = after[at]
    return found


def _effect(step: dis.Instruction, jumps: bool) -> int:
    if "PRECALL" in dis.opmap and step.opname in ("PRECALL", "CALL"):  # dis has both, but that the first one takes what the other one does
        return 0 if step.opname == "PRECALL" else -1 - int(step.arg or 0)
    if step.opname == "RETURN_GENERATOR":  # what the generator is sent first
        return 1
    return dis.stack_effect(step.opcode, step.arg, jump=jumps)


class Stack:
    """Of one frame."""

    __slots__ = ("_begin", "_code")

    def __init__(self, frame: Any, code: Code) -> None:
        inner = ctypes.c_void_p.from_address(id(frame) + _FRAME).value or 0
        self._begin, self._code = inner + _VARIABLES, code

    def slot(self, index: int) -> Any:
        try:
            return ctypes.py_object.from_address(self._begin + _WORD * index).value
        except ValueError:
            return NULL

    def values(self, offset: int) -> list[Any]:
        below = self._code.variables
        return [self.slot(index) for index in range(below, below + self._code.depths[offset])]

    def held_by_none(self, first: int) -> Iterator[Any]:
        """Of the variables, from the first on, those that only this frame holds, and all of its own cells."""
        for index in range(self._code.variables):
            value = self.slot(index)
            if (index >= first or type(value).__name__ == "cell") and is_held_by(value):
                yield value


def is_held_by(value: Any, places: int = 1) -> bool:
    """Whether so many places hold it, beside a variable of the function that asks."""
    return sys.getrefcount(value) == _ONE + places


def _calibrated() -> int:
    return next(sys.getrefcount(value) - 1 for value in [object()])


# Of a variable of the function that asks, one of the function above, and an argument.
_ONE = _calibrated() + 1
