"""What a call of a C function is given, as far as its code and the variables of its frame tell: an event of Python names the function alone."""
from __future__ import annotations

import types
from typing import Any

import torch

from overdrive.reads.steps import Step, steps_of

# Numbers of a call are of classes of their own, and no container.
_PLAIN = frozenset((int, float, bool, str, type(None), torch.Size, torch.dtype, torch.device, torch.Tensor, torch.nn.Parameter))
_LOADS = ("LOAD_CONST", "LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME")
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
        stack.append(_value_of(step, frame))
        return
    taken = [stack.pop() if stack else _UNKNOWN for _ in range({"CALL": step.arg + 1, "BINARY_OP": 2, "BINARY_SUBSCR": 2}.get(name, 1))]
    if name in ("LOAD_ATTR", "LOAD_METHOD"):
        stack.append(_attribute_of(taken[0], str(step.argval)))
    elif name == "CALL":
        is_of_c = isinstance(taken.pop(), (types.BuiltinFunctionType, types.MethodDescriptorType))
        stack.append(_ANY_PLAIN if is_of_c and all(map(_is_plain, taken)) else _UNKNOWN)
    else:
        stack.append(_ANY_PLAIN if all(map(_is_plain, taken)) else _UNKNOWN)


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN


def _value_of(step: Step, frame: types.FrameType) -> Any:
    if step.opname == "LOAD_CONST":
        return step.argval
    places = (frame.f_locals,) if step.opname in ("LOAD_FAST", "LOAD_DEREF") else (frame.f_locals, frame.f_globals, frame.f_builtins)
    return next((place[step.argval] for place in places if step.argval in place), _UNKNOWN)


def _attribute_of(value: Any, name: str) -> Any:
    """Without a call of the program's code."""
    if isinstance(value, types.ModuleType):
        return vars(value).get(name, _UNKNOWN)
    if type(value) in (torch.Tensor, torch.nn.Parameter, torch.Size):
        found = getattr(type(value), name, None)
        is_of_c = isinstance(found, (types.MethodDescriptorType, types.GetSetDescriptorType)) and name not in getattr(value, "__dict__", ())
        return found if is_of_c and isinstance(found, types.MethodDescriptorType) else _ANY_PLAIN if is_of_c and name == "shape" else _UNKNOWN
    own = getattr(value, "__dict__", None)
    if type(own) is not dict or hasattr(type(value), name):
        return _UNKNOWN
    return own.get(name, _UNKNOWN)
