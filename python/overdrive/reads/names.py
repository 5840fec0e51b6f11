"""What a code object names: globals, attributes, modules that it imports. Of names that are values `finds.py` knows.

It reads the bytecode alone, and knows no values.
"""
from __future__ import annotations

import dis
import functools
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

from overdrive.reads.finds import MODULES, fields_of, finds_of
from overdrive.reads.steps import Step, line_of, steps_of

_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR", "DELETE_ATTR")
# Of calls before Python 3.11: what they take from the stack beside their arguments.
_TAKEN_BY_CALLS = {"CALL_FUNCTION": 1, "CALL_FUNCTION_KW": 2, "CALL_METHOD": 2}
# Handlers of these take an attribute that is missing for an answer.
_TAKES_MISSING = ("AttributeError", "ImportError", "Exception", "BaseException")
# Attributes of functions and frames that lead to all globals.
_ALL_GLOBALS = ("__globals__", "__builtins__", "f_globals", "f_builtins")
_FILLS_TEXTS = ("format", "format_map", "vformat")
# Functions that take names: another one that calls them hides which.
NAMERS = ("getattr", "hasattr", "setattr", "delattr", "vars", "globals", "locals", "import_module", "__import__")
_VARIABLES = ("LOAD_FAST", "LOAD_DEREF")
_SUBSCRIPTS = ("BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR")
_OF_ONE_OPERATOR = {"UNARY_NEGATIVE": "__neg__", "CONTAINS_OP": "__contains__", "FORMAT_": "__format__"}
_COMPUTES = ("BINARY_", "COMPARE_OP", *_OF_ONE_OPERATOR)
_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "@": "matmul", "**": "pow",
              "<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge", "&": "and", "|": "or", "^": "xor"}


# Rooms for the interpreter's notes, and the room beside what is called.
_CACHE, _PUSH_NULL = dis.opmap.get("CACHE", 0), dis.opmap.get("PUSH_NULL", -1)


class Names:
    """What a code object names: each with the line of its first use."""

    def __init__(self, code: types.CodeType) -> None:
        self.globals: dict[str, str] = {}
        self.attributes: dict[str, str] = {}
        self.strings = set(_strings_in(code.co_consts))
        # Modules that it imports, with the level of a relative import.
        self.imports: dict[tuple[str, int], str] = {}
        # A global and the attributes that are taken of it at once, as F.linear.
        self.chains: dict[tuple[str, ...], str] = {}
        # Attributes whose absence the code, or a caller, takes for an answer.
        self.caught: dict[str, str] = {}
        # Of these, those that are asked of `self`, and of other objects.
        self.asked_of_self: dict[str, str] = {}
        self.asked: dict[str, str] = {}
        # Where it finds globals by names that it computes.
        self.any_global = ""
        # Where it takes items by keys that it computes, but of `param_groups`.
        self.by_keys = ""
        self.operators: set[str] = set()
        # Attributes that it puts into texts.
        self.formatted: set[str] = set()
        # Names whose value it takes, and does not call at once, with the line.
        self.passed: dict[str, str] = {}
        self.passed_chains: set[tuple[str, ...]] = set()
        # Variables on both sides of `is`, "" for anything else, with the line.
        self.compared: dict[tuple[str, str], str] = {}
        # Where it asks whether a value is a sequence or a mapping, which a class may become.
        self.matches = ""
        self._read(code)
        # Whether a handler of its own takes a missing attribute for an answer.
        self.catches = bool(self.caught) or any(name in self.globals for name in _TAKES_MISSING)
        if "suppress" in self.globals or "suppress" in self.attributes:
            self.caught.update(self.attributes if self.catches else {})
            self.asked.update(self.caught)

    def _read(self, code: types.CodeType) -> None:
        file, line = os.path.basename(code.co_filename), code.co_firstlineno
        has_self = code.co_varnames[:1] == ("self",)
        steps = steps_of(code)
        caught = _caught_ranges(code, steps)
        where = f"{file}:{line}"
        for index, step in enumerate(steps):
            before, line = line, line_of(step, line)
            if line != before:
                where = f"{file}:{line}"
            name = step.opname
            is_last = name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD") and not _leads_on(steps, index)
            if is_last and not _is_called(code, steps, index):
                self.passed.setdefault(str(step.argval), where)
            if name in _GLOBALS:
                self.globals.setdefault(step.argval, where)
                self._global(code, steps, index, where)
            elif (name in _ATTRIBUTES or name == "IMPORT_FROM") and step.argval:
                self.attributes.setdefault(str(step.argval), where)
                if step.argval in _ALL_GLOBALS:
                    self.any_global = self.any_global or where
                # What is deleted is there in one call, and is not in the next.
                if name == "DELETE_ATTR" or any(begin <= step.offset < end for begin, end in caught):
                    self.caught.setdefault(str(step.argval), where)
                    of_self = has_self and _is_self(steps[index - 1])
                    (self.asked_of_self if of_self else self.asked).setdefault(str(step.argval), where)
            elif name == "IMPORT_NAME":
                self.imports.setdefault((step.argval, steps[index - 2].argval or 0), where)
            elif name in ("MATCH_SEQUENCE", "MATCH_MAPPING"):
                self.matches = self.matches or where
            elif name == "IS_OP":
                self.compared.setdefault(_sides_of(steps, index), where)
            elif name == "MATCH_CLASS":
                for text in ("__match_args__", *_strings_in((steps[index - 1].argval,))):
                    self.attributes.setdefault(text, where)
                    self.caught.setdefault(text, where)
                    self.asked.setdefault(text, where)
            else:
                computes = name == "BINARY_SUBSCR" and steps[index - 1].opname not in ("LOAD_CONST", "BUILD_SLICE")
                if computes and steps[index - 2].argval != "param_groups":
                    self.by_keys = self.by_keys or where
                self._operator(steps, index)

    def _operator(self, steps: list[Step], index: int) -> None:
        step, before = steps[index], steps[index - 1]
        if not step.opname.startswith(_COMPUTES):
            return
        if step.opname.startswith("FORMAT_") and before.opname == "LOAD_ATTR":
            self.formatted.add(before.argval)
            return
        text = step.argrepr
        if step.opname == "BINARY_SUBSCR":
            self.operators.add("__getitem__")
        elif name := _OPERATORS.get(text[:-1] if text.endswith("=") and text not in _OPERATORS else text):
            self.operators.update((f"__{name}__", f"__r{name}__", f"__i{name}__"))
        else:
            self.operators.update(name for kind, name in _OF_ONE_OPERATOR.items() if step.opname.startswith(kind))

    def _global(self, code: types.CodeType, steps: list[Step], index: int, where: str) -> None:
        name, after = steps[index].argval, index + 1
        while after < len(steps) and steps[after].opname in _ATTRIBUTES[:2]:
            after += 1
        if after > index + 1:
            chain = name, *(str(step.argval) for step in steps[index + 1:after])
            self.chains.setdefault(chain, where)
            if not _is_called(code, steps, after - 1):
                self.passed_chains.add(chain)
            return
        is_written = _is(steps, after + 1, "CONTAINS_OP") or (
            _is(steps, after + 1, "LOAD_CONST") and isinstance(steps[after + 1].argval, str) and _is(steps, after + 2, *_SUBSCRIPTS))
        if name == "globals" and _is(steps, after, "CALL") and not is_written:
            self.any_global = where


def _leads_on(steps: list[Step], index: int) -> bool:
    """Whether what it loads is only the way to an attribute."""
    return _is(steps, index + 1, "LOAD_ATTR", "LOAD_METHOD")


def _is_called(code: types.CodeType, steps: list[Step], index: int) -> bool:
    """Whether what it loads is called: since Python 3.11 there is room on the stack beside what will be, which stands before the first name
    of ``a.b.c(x)`` until 3.12, and behind the last one since then."""
    step = steps[index]
    if step.opname == "LOAD_METHOD":
        return True
    while sys.version_info < (3, 13) and index > 0 and steps[index].opname == "LOAD_ATTR":
        index -= 1
    if steps[index].opname == "LOAD_GLOBAL" and sys.version_info >= (3, 11) and steps[index].arg & 1:
        return True
    if sys.version_info >= (3, 11):
        return steps[index].offset in _beside_room(code)
    depth = 1
    for following in dis.get_instructions(code):
        if following.offset <= step.offset:
            continue
        if following.opname in _TAKEN_BY_CALLS:
            taken = _TAKEN_BY_CALLS[following.opname] + (following.arg or 0)
            if taken >= depth:
                return taken == depth
            depth -= taken - 1
        else:
            depth += dis.stack_effect(following.opcode, following.arg, jump=False)
        if depth < 1:
            return False
    return False


@functools.lru_cache(maxsize=64)
def _beside_room(code: types.CodeType) -> frozenset[int]:
    """Offsets of instructions beside which a PUSH_NULL stands, on the side where this Python has it."""
    words = code.co_code
    raw = [offset for offset in range(0, len(words), 2) if words[offset] not in (_CACHE, dis.EXTENDED_ARG)]
    pairs = zip(raw, raw[1:]) if sys.version_info >= (3, 13) else zip(raw[1:], raw)
    return frozenset(offset for offset, beside in pairs if words[beside] == _PUSH_NULL)


def _sides_of(steps: list[Step], index: int) -> tuple[str, str]:
    """Of a comparison by ``is``: the variables on its sides, or that what stands there begins with. A constant has none beside it."""
    right = _begin_of_chain(steps, index - 1)
    if steps[index - 1].opname == "LOAD_CONST":
        return "", ""
    if not steps[right].opname.startswith("LOAD_"):  # it begins somewhere above
        right = next((above for above in range(index - 2, max(index - 12, 0), -1)
                      if steps[above].opname in _VARIABLES and steps[above + 1].opname.startswith("LOAD_") and not _leads_on(steps, above)), 0) + 1
    left = _begin_of_chain(steps, right - 1)
    if not steps[left].opname.startswith("LOAD_"):
        left = next((above for above in range(left, max(left - 12, -1), -1) if steps[above].opname in _VARIABLES), left)
    return tuple(steps[at].argval if steps[at].opname in _VARIABLES else "" for at in (left, right))  # type: ignore[return-value]


def _begin_of_chain(steps: list[Step], index: int) -> int:
    """Where ``a.b.c`` begins that ends there."""
    while index > 0 and steps[index].opname == "LOAD_ATTR":
        index -= 1
    return index


def _is_self(step: Step) -> bool:
    return bool(step.opname == "LOAD_FAST" and step.argval == "self")


def _is(steps: list[Step], index: int, *names: str) -> bool:
    return index < len(steps) and steps[index].opname in names


def _strings_in(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, (tuple, frozenset)):
            yield from _strings_in(value)


def _caught_ranges(code: types.CodeType, steps: list[Step]) -> list[tuple[int, int]]:
    """Where the code goes on when an attribute is missing: in the blocks of its try statements."""
    if not getattr(code, "co_exceptiontable", True):
        return []
    takes = any(name in code.co_names for name in _TAKES_MISSING)
    entries = getattr(dis.Bytecode(code), "exception_entries", None)
    if entries is None:  # before Python 3.11
        return [(0, len(code.co_code))] if takes and any(step.opname == "SETUP_FINALLY" for step in steps) else []
    places = {step.offset: index for index, step in enumerate(steps)}
    ranges = []
    for entry in entries:
        handler = steps[places[entry.target]:][:16] if entry.target in places else []
        if not handler or handler[0].opname != "PUSH_EXC_INFO" or handler[1].opname == "WITH_EXCEPT_START":
            continue
        if handler[1].opname == "POP_TOP" or takes and any(step.opname == "CHECK_EXC_MATCH" for step in handler):
            ranges.append((entry.start, entry.end + 2))
    return ranges


class Asked:
    """Attributes that code asks for by strings, or whose absence it takes for an answer. PyTorch's own code is not asked for them."""

    def __init__(self, code: types.CodeType) -> None:
        names = names_of(code)
        self.of_self, self.of_others = dict(names.asked_of_self), dict(names.asked)
        self.by_strings: dict[str, str] = {}
        for find in finds_of(code):
            if find.name[0] == "const" and isinstance(find.name[1], str) and find.of != MODULES:
                of_self = find.of == ("local", "self") and code.co_varnames[:1] == ("self",)
                for name in find.name[1].split("."):
                    self.by_strings.setdefault(name, find.where)
                    (self.of_self if of_self else self.of_others).setdefault(name, find.where)
        # Where it fills texts, whose fields may name attributes.
        if where := next((names.attributes[name] for name in _FILLS_TEXTS if name in names.attributes), ""):
            self.by_strings.update(dict.fromkeys((name for text in names.strings for name in fields_of(text)), where))


@functools.lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> Names:
    return Names(code)


@functools.lru_cache(maxsize=4096)
def asked_by(code: types.CodeType) -> Asked:
    return Asked(code)
