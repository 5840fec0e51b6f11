"""What a call of a C function is given, as far as its code and the variables of its frame tell: an event of Python names the function alone."""
from __future__ import annotations

import types
from typing import Any

import torch

from overdrive.reads.finds import NOTHING, UNSET, dict_of, value_of
from overdrive.reads.steps import Step, steps_of

# Numbers of a call are of classes of their own, and no container.
_PLAIN = frozenset((int, float, bool, str, type(None), torch.Size, torch.dtype, torch.device, torch.Tensor, torch.nn.Parameter))
_LOADS = {"LOAD_CONST": "const", "LOAD_FAST": "local", "LOAD_DEREF": "local", "LOAD_GLOBAL": "global"}
# Functions that make nothing but of what they are given, as those of math do, and methods of tensors.
_OF_OPERANDS = (len, abs, min, max)
_EXPRESSION = (*_LOADS, "LOAD_ATTR", "LOAD_METHOD", "CALL", "BINARY_OP", "BINARY_SUBSCR", "UNARY_NEGATIVE")
# An operand that is plain, whatever it is, and one of which nothing is known.
_ANY_PLAIN: Any = 0
_UNKNOWN: Any = object()


def may_be_given_a_number(frame: types.FrameType) -> bool:
    """Whether the C function that the frame calls now may be given a number of the call, or something that has one."""
    steps = steps_of(frame.f_code)
    at = next((index for index in range(len(steps) - 1, -1, -1) if steps[index].offset <= frame.f_lasti), -1)
    if at < 0 or steps[at].opname != "CALL":
        return True
    first = at
    while first > 0 and steps[first - 1].opname in _EXPRESSION:
        first -= 1
    stack: list[Any] = []
    for step in steps[first:at]:
        _run(step, stack, frame)
    # With the function below its operands, no jump ends among them.
    count = len(stack) - steps[at].arg
    return count < 1 or not all(map(_is_plain, stack[count:]))


def _run(step: Step, stack: list[Any], frame: types.FrameType) -> None:
    """What the instruction leaves of an expression, of which the first operands may lie below."""
    name = step.opname
    if name in _LOADS:
        value = value_of((_LOADS[name], step.argval), frame)
        stack.append(_UNKNOWN if value is NOTHING or value is UNSET else value)
        return
    taken = [stack.pop() if stack else _UNKNOWN for _ in range({"CALL": step.arg + 1, "BINARY_OP": 2, "BINARY_SUBSCR": 2}.get(name, 1))]
    if name in ("LOAD_ATTR", "LOAD_METHOD"):
        stack.append(_attribute_of(taken[0], str(step.argval)))
    elif name == "CALL":
        stack.append(_ANY_PLAIN if _is_of_its_operands(taken.pop()) and all(map(_is_plain, taken)) else _UNKNOWN)
    else:
        stack.append(_ANY_PLAIN if all(map(_is_plain, taken)) else _UNKNOWN)


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN


def _is_of_its_operands(function: Any) -> bool:
    is_of_math = isinstance(function, types.BuiltinFunctionType) and function.__module__ == "math"
    return is_of_math or isinstance(function, types.MethodDescriptorType) or any(function is each for each in _OF_OPERANDS)


def _attribute_of(value: Any, name: str) -> Any:
    """Without a call of the program's code."""
    kind = type(value)
    if isinstance(value, types.ModuleType):
        return vars(value).get(name, _UNKNOWN)
    if kind in (torch.Tensor, torch.nn.Parameter, torch.Size):
        found = getattr(kind, name, None)
        if name in getattr(value, "__dict__", ()):
            return _UNKNOWN
        if isinstance(found, types.MethodDescriptorType):
            return found
        return _ANY_PLAIN if name == "shape" and isinstance(found, types.GetSetDescriptorType) else _UNKNOWN
    if type(kind.__getattribute__) is not types.WrapperDescriptorType or any(name in vars(each) for each in kind.__mro__):
        return _UNKNOWN
    return (dict_of(value) or {}).get(name, _UNKNOWN)
