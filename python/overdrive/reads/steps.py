"""Instructions of code, as Python 3.11 has them: whoever reads them knows one version."""
from __future__ import annotations

import dis
import functools
import sys
import types
from typing import Any, NamedTuple

# Instructions that only make room or note something for the interpreter.
_NOTHING = frozenset(("CACHE", "PRECALL", "EXTENDED_ARG", "RESUME", "PUSH_NULL", "NOP", "POP_BLOCK", "NOT_TAKEN", "COPY_FREE_VARS"))
# Of other versions than 3.11, what its name there is.
_NAMES_OF_3_11 = {
    "CALL_FUNCTION": "CALL", "CALL_METHOD": "CALL",  # 3.10
    "LOAD_FAST_CHECK": "LOAD_FAST", "LOAD_FAST_AND_CLEAR": "LOAD_FAST", "LOAD_FROM_DICT_OR_GLOBALS": "LOAD_NAME",  # since 3.12
    "LOAD_FROM_DICT_OR_DEREF": "LOAD_CLASSDEREF",
    "LOAD_FAST_BORROW": "LOAD_FAST", "LOAD_SMALL_INT": "LOAD_CONST"}  # since 3.14
# Instructions of two locals, since 3.13.
_OF_TWO = {"LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"), "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST", "LOAD_FAST"),
           "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"), "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST")}
# Before 3.11 each operator has an instruction of its own.
_OLD_OPERATORS = {"ADD": "+", "SUBTRACT": "-", "MULTIPLY": "*", "TRUE_DIVIDE": "/", "MATRIX_MULTIPLY": "@", "POWER": "**", "FLOOR_DIVIDE": "//",
                  "MODULO": "%", "AND": "&", "OR": "|", "XOR": "^", "LSHIFT": "<<", "RSHIFT": ">>"}


class Step(NamedTuple):
    """An instruction, as Python 3.11 has it."""

    opname: str
    arg: int
    argval: Any
    argrepr: str
    offset: int
    line: int


@functools.lru_cache(maxsize=64)
def steps_of(code: types.CodeType) -> list[Step]:
    """Its instructions, without those that do nothing. What other versions of Python put into one is several, so that whoever reads them
    knows one version."""
    steps: list[Step] = []
    for one in dis.get_instructions(code):
        name = one.opname
        if name in _NOTHING:
            continue
        positions = getattr(one, "positions", None)
        position = positions.lineno if positions else one.starts_line
        step = _step((name, one.arg or 0, one.argval, one.argrepr, one.offset, position if type(position) is int else 0))
        if name in _ALWAYS_THE_SAME:
            steps.append(step)
        else:
            steps.extend(_as_of_3_11(step, steps))
    return steps


_step = functools.partial(tuple.__new__, Step)
# Most instructions, in every version.
_ALWAYS_THE_SAME = frozenset(("LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL", "STORE_FAST", "POP_TOP", "LOAD_METHOD", "STORE_ATTR", "LOAD_DEREF", "CALL",
                              "RETURN_VALUE", "KW_NAMES", "COPY", "SWAP", "BUILD_TUPLE", "JUMP_FORWARD", "CONTAINS_OP", "IS_OP",
                              "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_FORWARD_IF_NOT_NONE",
                              "POP_JUMP_FORWARD_IF_NONE", "JUMP_BACKWARD", "FOR_ITER", "GET_ITER", "BUILD_LIST", "BINARY_SUBSCR"))


def _as_of_3_11(step: Step, before: list[Step]) -> list[Step]:
    name = step.opname
    if name in _OF_TWO:
        return [step._replace(opname=each, argval=local, argrepr=local) for each, local in zip(_OF_TWO[name], step.argval)]
    if name in ("CALL_KW", "CALL_FUNCTION_KW"):  # the names of arguments lie above them
        names = before.pop()
        return [names._replace(opname="KW_NAMES", offset=step.offset), step._replace(opname="CALL")]
    if name == "LOAD_ATTR" and sys.version_info >= (3, 12) and step.arg & 1:
        return [step._replace(opname="LOAD_METHOD")]
    if name == "LOAD_SUPER_ATTR":
        return [step._replace(opname="CALL", arg=2, argval=2, argrepr=""), step._replace(opname="LOAD_METHOD" if step.arg & 1 else "LOAD_ATTR")]
    if name == "RETURN_CONST":
        return [step._replace(opname="LOAD_CONST"), step._replace(opname="RETURN_VALUE", arg=0, argval=None, argrepr="")]
    if name in ("BINARY_SLICE", "STORE_SLICE"):
        return [step._replace(opname="BUILD_SLICE", arg=2, argval=2), step._replace(opname=name.replace("SLICE", "SUBSCR"))]
    if name == "BINARY_OP" and step.argrepr == "[]":
        return [step._replace(opname="BINARY_SUBSCR", arg=0, argval=None, argrepr="")]
    if name == "COMPARE_OP":
        return [step._replace(argrepr=step.argrepr.removeprefix("bool(").removesuffix(")"))]
    kind, _, operator = name.partition("_")
    if kind in ("BINARY", "INPLACE") and operator in _OLD_OPERATORS:
        return [step._replace(opname="BINARY_OP", argrepr=_OLD_OPERATORS[operator] + "=" * (kind == "INPLACE"))]
    return [step] if name not in _NAMES_OF_3_11 else [step._replace(opname=_NAMES_OF_3_11[name])]


def line_of(step: Step, before: int) -> int:
    """The line of an instruction; that of the one before where it tells none."""
    return step.line if step.line > 1 else before
