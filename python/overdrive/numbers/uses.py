"""Where code may use a float of which a number tells nothing, and no event of Python either."""
from __future__ import annotations

import functools
import os
import types
from collections.abc import Collection

from overdrive.numbers.tracked import ARITHMETIC, COMPARISONS
from overdrive.reads.names import names_of
from overdrive.reads.steps import line_of, steps_of


_OPERATORS = {f"__{prefix}{name}__" for prefix in ("", "r") for name, *_ in (*ARITHMETIC, *COMPARISONS)}


def asks_for_type(code: types.CodeType) -> str:
    """A tracked number has another one."""
    names = names_of(code)
    for name, where in (("type()", names.globals.get("type", "")), ("__class__", names.attributes.get("__class__", ""))):
        if where:
            return f"the function asks for {name} ({where})"
    return ""


@functools.lru_cache(maxsize=8192)
def may_tell_it_apart(code: types.CodeType) -> str:
    """Where the code may find that a tracked number is no plain one; "" nowhere: it asks for classes, or compares objects."""
    steps = steps_of(code)
    compares = any(step.opname == "IS_OP" and before.opname != "LOAD_CONST" for before, step in zip(steps, steps[1:]))
    return "is" if compares else asks_for_type(code)


def below_a_float(code: types.CodeType, told: Collection[tuple[types.CodeType, int]]) -> str:
    """What the function does there; "": nothing. ``told``: operators that have met a number of the call: code, and where in it."""
    names = names_of(code)
    if "complex" in names.globals:  # reads a float below its methods since Python 3.14
        return f"the function calls complex() of it ({names.globals['complex']})"
    if slot := next((chain for chain in names.chains if chain[0] in ("float", "int") and chain[1].startswith("__")), None):
        return f"the function calls {'.'.join(slot)}() of it ({names.chains[slot]})"
    if operator := next((name for name in names.attributes if name in _OPERATORS), ""):
        return f"the function names {operator}(), which may read it ({names.attributes[operator]})"
    where = next((line for at, line in _remainders(code).items() if (code, at) not in told), "")
    return f"the function may format it by % ({where})" if where else ""


@functools.lru_cache(maxsize=8192)
def _remainders(code: types.CodeType) -> dict[int, str]:
    """Of what a text may stand on the left of."""
    file, line = os.path.basename(code.co_filename), code.co_firstlineno
    found: dict[int, str] = {}
    steps = steps_of(code)
    for earlier, before, step in zip(steps, steps[1:], steps[2:]):
        line = line_of(step, line)
        # A constant is the other one of two, as in `"%f" % (rate or 0.0)`.
        is_constant = before.opname == "LOAD_CONST" and "JUMP" not in earlier.opname and earlier.opname != "POP_TOP"
        if step.opname == "BINARY_OP" and step.argrepr in ("%", "%=") and not is_constant:
            found[step.offset] = f"{file}:{line}"
    return found
