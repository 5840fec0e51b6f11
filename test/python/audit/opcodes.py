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
from places import MADE_IN_PYTHON, MISSING, End
from value_stack import NULL

Row = Callable[[Any, Any, "list[Any]"], "str | None"]
ROWS: dict[str, Row] = {}


def _row(names: str) -> Callable[[Row], Row]:
    def add(function: Row) -> Row:
        ROWS.update(dict.fromkeys(names.split(), function))
        return function
    return add


@_row("""
    POP_TOP PUSH_NULL NOP RESUME CACHE LOAD_CONST JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT COPY_FREE_VARS LOAD_BUILD_CLASS
    LOAD_ASSERTION_ERROR SETUP_ANNOTATIONS POP_EXCEPT RERAISE MAKE_CELL RETURN_GENERATOR DELETE_NAME END_FOR END_SEND LOAD_LOCALS RETURN_CONST
    CHECK_EXC_MATCH WITH_EXCEPT_START LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_FAST_AND_CLEAR STORE_FAST STORE_FAST_STORE_FAST
    STORE_FAST_LOAD_FAST STORE_FAST_MAYBE_NULL DELETE_FAST LOAD_CLOSURE IS_OP PUSH_EXC_INFO RAISE_VARARGS COPY SWAP PRECALL BUILD_TUPLE BUILD_LIST
    BUILD_SET BUILD_MAP BUILD_CONST_KEY_MAP LIST_APPEND SET_ADD MAP_ADD MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE FOR_ITER MATCH_MAPPING MATCH_SEQUENCE
    POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_IF_NONE
    POP_JUMP_IF_NOT_NONE SEND YIELD_VALUE""")
def _moves(frame: Any, step: Any, values: list[Any]) -> None:
    """No place is taken from: variables of the frame, its stack, and what it makes."""


def _deep(count: Callable[[Any], int]) -> Row:
    """The upper entries are used with all that is in them."""
    def used(frame: Any, step: Any, values: list[Any]) -> None:
        number = count(step)
        for value in values[len(values) - number:]:
            frame.call.deep(value)
    return used


ROWS.update(dict.fromkeys(("COMPARE_OP", "MATCH_KEYS", "CALL_INTRINSIC_2"), _deep(lambda step: 2)))
ROWS.update(dict.fromkeys(("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", "CALL_INTRINSIC_1", "FORMAT_SIMPLE", "CONVERT_VALUE"), _deep(lambda step: 1)))
ROWS.update(dict.fromkeys(("BUILD_STRING", "BUILD_SLICE"), _deep(lambda step: int(step.arg))))
ROWS["FORMAT_VALUE"] = _deep(lambda step: 2 if step.arg & 4 else 1)
ROWS["FORMAT_WITH_SPEC"] = _deep(lambda step: 2)
ROWS["BINARY_SLICE"] = _deep(lambda step: 3)


# --- variables


@_row("LOAD_DEREF LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF")
def _load_deref(frame: Any, step: Any, values: list[Any]) -> None:
    cell = frame.stack.slot(step.arg)
    frame.call.see("cell", cell, None, _content(cell), frame.frame.f_globals)


@_row("STORE_DEREF DELETE_DEREF")
def _store_deref(frame: Any, step: Any, values: list[Any]) -> None:
    cell = frame.stack.slot(step.arg)
    frame.call.write("cell", cell, None, _content(cell))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


@_row("LOAD_GLOBAL LOAD_NAME LOAD_FROM_DICT_OR_GLOBALS")
def _load_global(frame: Any, step: Any, values: list[Any]) -> None:
    name, variables, builtins = step.argval, frame.frame.f_globals, frame.frame.f_builtins
    if step.opname != "LOAD_GLOBAL" and frame.frame.f_locals is not variables and name in frame.frame.f_locals:
        return
    if name in variables:
        frame.call.see("entry", variables, name, variables[name])
    else:
        frame.call.see("absent", variables, name, MISSING)
        frame.call.see("entry", builtins, name, builtins.get(name, MISSING))


@_row("STORE_NAME STORE_GLOBAL DELETE_GLOBAL")
def _store_name(frame: Any, step: Any, values: list[Any]) -> None:
    variables = frame.frame.f_globals
    if step.opname != "STORE_NAME" or frame.frame.f_locals is variables:
        frame.call.write("entry", variables, step.argval, variables.get(step.argval, MISSING))


@_row("IMPORT_NAME")
def _import_name(frame: Any, step: Any, values: list[Any]) -> None:
    frame.call.see("entry", sys.modules, step.argval, sys.modules.get(step.argval, MISSING))


# --- attributes and items


@_row("LOAD_ATTR LOAD_METHOD IMPORT_FROM")
def _load_attr(frame: Any, step: Any, values: list[Any]) -> None:
    lookups.attribute(frame.call, values[-1], step.argval)


@_row("LOAD_SUPER_ATTR")
def _load_super(frame: Any, step: Any, values: list[Any]) -> None:
    lookups.attribute(frame.call, super(values[-2], values[-1]), step.argval)


@_row("STORE_ATTR DELETE_ATTR")
def _store_attr(frame: Any, step: Any, values: list[Any]) -> None:
    lookups.store(frame.call, values[-1], step.argval)


@_row("BINARY_SUBSCR")
def _subscript(frame: Any, step: Any, values: list[Any]) -> None:
    lookups.item(frame.call, values[-2], values[-1])


@_row("STORE_SUBSCR DELETE_SUBSCR")
def _store_subscript(frame: Any, step: Any, values: list[Any]) -> None:
    lookups.store_item(frame.call, values[-2], values[-1], step.opname == "DELETE_SUBSCR")


@_row("STORE_SLICE")
def _store_slice(frame: Any, step: Any, values: list[Any]) -> None:
    lookups.store_item(frame.call, values[-3], slice(values[-2], values[-1]))


# --- what is computed


@_row("BINARY_OP")
def _operator(frame: Any, step: Any, values: list[Any]) -> None:
    left, right = values[-2:]
    frame.call.deep(left)
    frame.call.deep(right)
    if step.argrepr.endswith("=") and not is_number(left) and not isinstance(left, (torch.Tensor, tuple)) and not type(left).__flags__ & MADE_IN_PYTHON:
        frame.call.write_all(left)


@_row("CONTAINS_OP")
def _contains(frame: Any, step: Any, values: list[Any]) -> None:
    lookups.has(frame.call, values[-1], values[-2])


@_row("""
    UNARY_NOT TO_BOOL GET_LEN POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE
    POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP""")
def _truth(frame: Any, step: Any, values: list[Any]) -> None:
    value, kind = values[-1], type(values[-1])
    name = next((name for name in ("__bool__", "__len__") if in_class(kind, name) is not MISSING), "__len__")
    if is_number(value) or isinstance(value, (torch.Tensor, type)):
        return
    if kind.__flags__ & MADE_IN_PYTHON and (is_python(kind, name) or in_class(kind, name) is MISSING):
        if lookups.is_changeable(kind):
            frame.call.see("class", value, None, kind)
        see_class(frame.call, kind.__mro__, "__bool__")
        see_class(frame.call, kind.__mro__, "__len__")
    else:
        frame.call.size(value)


# --- containers


@_row("LIST_EXTEND SET_UPDATE DICT_MERGE DICT_UPDATE GET_ITER GET_YIELD_FROM_ITER UNPACK_SEQUENCE UNPACK_EX LIST_TO_TUPLE")
def _iterate(frame: Any, step: Any, values: list[Any]) -> None:
    iterate(frame.call, values[-1])


@_row("MATCH_CLASS")
def _match_class(frame: Any, step: Any, values: list[Any]) -> None:
    value, kind, names = values[-3:]
    if isinstance(value, kind):
        for name in (*getattr(kind, "__match_args__", ())[:step.arg], *names):
            lookups.attribute(frame.call, value, name)


# --- calls


@_row("KW_NAMES")
def _kw_names(frame: Any, step: Any, values: list[Any]) -> None:
    frame.keyword_names = frame.frame.f_code.co_consts[step.arg]


@_row("CALL CALL_KW")
def _call(frame: Any, step: Any, values: list[Any]) -> str:
    names, frame.keyword_names = frame.keyword_names, ()
    if step.opname == "CALL_KW":
        names, values = values[-1], values[:-1]
    at = len(values) - step.arg
    args = values[at:]
    # A function and the object that it is bound to, or nothing beside the one that is called.
    function, bound = values[at - 2:at]
    if function is NULL:
        function = bound
    elif bound is not NULL:
        args = [bound, *args]
    frame.calls_c = not isinstance(function, (types.FunctionType, types.MethodType))
    by_place = args[:len(args) - len(names)]
    return call_function(frame.call, frame, function, by_place, dict(zip(names, args[len(by_place):])))


@_row("CALL_FUNCTION_EX")
def _call_ex(frame: Any, step: Any, values: list[Any]) -> str:
    named = bool(step.arg & 1)
    given, keywords = values[-2 if named else -1], values[-1] if named else {}
    function = next(value for value in (values[-3 if named else -2], values[-4 if named else -3]) if value is not NULL)
    args = frame.call.items(given) if isinstance(given, (list, tuple)) else None
    if args is None or not isinstance(keywords, dict):
        raise End("a call with *iterator or **mapping")
    if named:
        frame.call.items(keywords)
    frame.calls_c = not isinstance(function, (types.FunctionType, types.MethodType))
    return call_function(frame.call, frame, function, args, keywords)


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
