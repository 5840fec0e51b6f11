"""The table of instructions: what each takes from places, and puts into them. An instruction without a row ends the audit.

A row is a function of the frame, the instruction and the values on the stack before it. It says what becomes of the result (calls.py), or nothing: what
an instruction leaves on the stack is the call's own if nobody else holds it.
"""
from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from overdrive.values.same import is_number

import lookups
from calls import TAKEN, call_function, iterate
from lookups import in_class, is_python, see_class
from places import MADE_IN_PYTHON, MISSING, End, content
from value_stack import NULL

Row = Callable[[Any, Any, "list[Any]"], "str | None"]
ROWS: dict[str, Row] = {}


def _rows(names: str, function: Row) -> None:
    ROWS.update(dict.fromkeys(names.split(), function))


def _row(names: str) -> Callable[[Row], Row]:
    def add(function: Row) -> Row:
        _rows(names, function)
        return function
    return add


def _deep(count: Callable[[Any], int]) -> Row:
    """The upper entries are used with all that is in them."""
    def used(frame: Any, step: Any, values: list[Any]) -> None:
        for value in values[len(values) - count(step):]:
            frame.call.deep(value)
    return used


# No place is taken from: variables of the frame, its stack, and what it makes.
_rows("""
    POP_TOP PUSH_NULL NOP RESUME CACHE LOAD_CONST JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT COPY_FREE_VARS LOAD_BUILD_CLASS
    LOAD_ASSERTION_ERROR SETUP_ANNOTATIONS POP_EXCEPT RERAISE MAKE_CELL RETURN_GENERATOR DELETE_NAME END_FOR END_SEND LOAD_LOCALS RETURN_CONST
    CHECK_EXC_MATCH WITH_EXCEPT_START LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_FAST_AND_CLEAR STORE_FAST STORE_FAST_STORE_FAST
    STORE_FAST_LOAD_FAST STORE_FAST_MAYBE_NULL DELETE_FAST LOAD_CLOSURE IS_OP PUSH_EXC_INFO RAISE_VARARGS COPY SWAP PRECALL BUILD_TUPLE BUILD_LIST
    BUILD_SET BUILD_MAP BUILD_CONST_KEY_MAP LIST_APPEND SET_ADD MAP_ADD MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE FOR_ITER MATCH_MAPPING MATCH_SEQUENCE
    POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_IF_NONE
    POP_JUMP_IF_NOT_NONE SEND YIELD_VALUE""", lambda frame, step, values: None)
_rows("UNARY_NEGATIVE UNARY_POSITIVE UNARY_INVERT CALL_INTRINSIC_1 FORMAT_SIMPLE CONVERT_VALUE", _deep(lambda step: 1))
_rows("COMPARE_OP MATCH_KEYS CALL_INTRINSIC_2 FORMAT_WITH_SPEC", _deep(lambda step: 2))
_rows("BINARY_SLICE", _deep(lambda step: 3))
_rows("BUILD_STRING BUILD_SLICE", _deep(lambda step: int(step.arg)))
_rows("FORMAT_VALUE", _deep(lambda step: 2 if step.arg & 4 else 1))
_rows("LIST_EXTEND SET_UPDATE DICT_MERGE DICT_UPDATE GET_ITER GET_YIELD_FROM_ITER UNPACK_SEQUENCE UNPACK_EX LIST_TO_TUPLE",
      lambda frame, step, values: iterate(frame.call, values[-1]))
_rows("IMPORT_NAME", lambda frame, step, values: frame.call.see("entry", sys.modules, step.argval, sys.modules.get(step.argval, MISSING)))
_rows("LOAD_ATTR LOAD_METHOD IMPORT_FROM", lambda frame, step, values: lookups.attribute(frame.call, values[-1], step.argval))
_rows("LOAD_SUPER_ATTR", lambda frame, step, values: lookups.attribute(frame.call, super(values[-2], values[-1]), step.argval))
_rows("STORE_ATTR DELETE_ATTR", lambda frame, step, values: lookups.store(frame.call, values[-1], step.argval))
_rows("BINARY_SUBSCR", lambda frame, step, values: lookups.item(frame.call, values[-2], values[-1]))
_rows("STORE_SUBSCR", lambda frame, step, values: lookups.store_item(frame.call, values[-2], values[-1]))
_rows("DELETE_SUBSCR", lambda frame, step, values: lookups.store_item(frame.call, values[-2], values[-1], deletes=True))
_rows("STORE_SLICE", lambda frame, step, values: lookups.store_item(frame.call, values[-3], slice(values[-2], values[-1])))
_rows("CONTAINS_OP", lambda frame, step, values: lookups.has(frame.call, values[-1], values[-2]))


# --- variables


@_row("LOAD_DEREF LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF")
def _load_deref(frame: Any, step: Any, values: list[Any]) -> None:
    cell = frame.stack.slot(step.arg)
    frame.call.see("cell", cell, None, content(cell), frame.frame.f_globals)


@_row("STORE_DEREF DELETE_DEREF")
def _store_deref(frame: Any, step: Any, values: list[Any]) -> None:
    cell = frame.stack.slot(step.arg)
    frame.call.write("cell", cell, None, content(cell))


@_row("LOAD_GLOBAL LOAD_NAME LOAD_FROM_DICT_OR_GLOBALS")
def _load_global(frame: Any, step: Any, values: list[Any]) -> None:
    name, variables, builtins = step.argval, frame.frame.f_globals, frame.frame.f_builtins
    if step.opname != "LOAD_GLOBAL" and frame.frame.f_locals is not variables and name in frame.frame.f_locals:
        return
    frame.call.see_entry(variables, name)
    if name not in variables:
        frame.call.see("entry", builtins, name, builtins.get(name, MISSING))


@_row("STORE_NAME STORE_GLOBAL DELETE_GLOBAL")
def _store_name(frame: Any, step: Any, values: list[Any]) -> None:
    variables = frame.frame.f_globals
    if step.opname != "STORE_NAME" or frame.frame.f_locals is variables:
        frame.call.write_entry(variables, step.argval)


# --- what is computed


@_row("BINARY_OP")
def _operator(frame: Any, step: Any, values: list[Any]) -> None:
    left, right = values[-2:]
    frame.call.deep(left)
    frame.call.deep(right)
    if step.argrepr.endswith("=") and not is_number(left) and not isinstance(left, (torch.Tensor, tuple)) and not type(left).__flags__ & MADE_IN_PYTHON:
        frame.call.write_all(left)


@_row("""
    UNARY_NOT TO_BOOL GET_LEN POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE
    POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP""")
def _truth(frame: Any, step: Any, values: list[Any]) -> None:
    value, kind = values[-1], type(values[-1])
    if is_number(value) or isinstance(value, (torch.Tensor, type)):
        return
    name = next((name for name in ("__bool__", "__len__") if in_class(kind, name) is not MISSING), "__len__")
    if kind.__flags__ & MADE_IN_PYTHON and (is_python(kind, name) or in_class(kind, name) is MISSING):
        frame.call.see_kind(value)
        see_class(frame.call, kind.__mro__, "__bool__")
        see_class(frame.call, kind.__mro__, "__len__")
    else:
        frame.call.size(value)


@_row("MATCH_CLASS")
def _match_class(frame: Any, step: Any, values: list[Any]) -> None:
    value, kind, names = values[-3:]
    if isinstance(value, kind):
        for name in (*getattr(kind, "__match_args__", ())[:step.arg], *names):
            lookups.attribute(frame.call, value, name)


# --- calls


def _called(frame: Any, function: Any, args: list[Any], keywords: dict[str, Any]) -> str:
    frame.calls_c = not isinstance(function, (types.FunctionType, types.MethodType))
    return call_function(frame, function, args, keywords)


@_row("KW_NAMES")
def _kw_names(frame: Any, step: Any, values: list[Any]) -> None:
    frame.keyword_names = frame.frame.f_code.co_consts[step.arg]


@_row("CALL CALL_KW")
def _call(frame: Any, step: Any, values: list[Any]) -> str:
    names, frame.keyword_names = frame.keyword_names, ()
    if step.opname == "CALL_KW":
        names, values = values[-1], values[:-1]
    at = len(values) - step.arg
    # A function and the object that it is bound to, or nothing beside the one that is called.
    function, *args = (value for value in values[at - 2:] if value is not NULL)
    by_place = args[:len(args) - len(names)]
    return _called(frame, function, by_place, dict(zip(names, args[len(by_place):])))


@_row("CALL_FUNCTION_EX")
def _call_ex(frame: Any, step: Any, values: list[Any]) -> str:
    keywords = values.pop() if step.arg & 1 else {}
    given = values.pop()
    function = next(value for value in values[:-3:-1] if value is not NULL)
    if not isinstance(given, (list, tuple)) or not isinstance(keywords, dict):
        raise End("a call with *iterator or **mapping")
    frame.call.items(keywords)
    return _called(frame, function, frame.call.items(given), keywords)


@_row("RETURN_VALUE")
def _return(frame: Any, step: Any, values: list[Any]) -> None:
    if frame.is_root:
        frame.call.deep(values[-1])


@_row("BEFORE_WITH")
def _with(frame: Any, step: Any, values: list[Any]) -> str:
    kind = type(values[-1])
    for name in ("__enter__", "__exit__"):
        see_class(frame.call, kind.__mro__, name)
    if not (is_python(kind, "__enter__") or kind.__module__.partition(".")[0] in ("torch", "pybind11_builtins") or kind.__name__ in ("lock", "RLock", "TextIOWrapper")):
        raise End(f"with an object of {kind.__module__}.{kind.__name__}")
    return TAKEN
