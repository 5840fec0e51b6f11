"""What a code object names: globals, attributes, modules that it imports, and what it finds by names that it computes.

It reads the bytecode alone, and knows no values.
"""
from __future__ import annotations

import dis
import functools
import os
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR", "DELETE_ATTR")
# Instructions that only make room or note something for the interpreter.
_NOTHING = ("CACHE", "PRECALL", "EXTENDED_ARG", "RESUME", "PUSH_NULL", "NOP", "COPY_FREE_VARS")
_CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION", "CALL_FUNCTION_KW", "CALL_FUNCTION_EX", "CALL_METHOD")
# Of calls before Python 3.11: what they take from the stack beside their arguments.
_TAKEN_BY_CALLS = {"CALL_FUNCTION": 1, "CALL_FUNCTION_KW": 2, "CALL_METHOD": 2}
# Handlers of these take an attribute that is missing for an answer.
_TAKES_MISSING = ("AttributeError", "Exception", "BaseException")
_OF_PYTHON = ("getattr", "hasattr", "setattr", "delattr", "vars")
_BY_NAME = (*_OF_PYTHON, "__getattribute__", "__getattr__", "__setattr__", "__delattr__", "attrgetter", "methodcaller")
# What goes through all fields of an object.
_ALL_FIELDS = ("asdict", "astuple", "fields")
_FILLS_TEXTS = ("format", "format_map", "vformat")
# Methods that find what the object has not, or all that it has.
_FINDS = ("__getattr__", "__getattribute__")
_PUTS_TOGETHER = ("BUILD_STRING", "FORMAT_", "BINARY_OP", "BINARY_ADD", "BINARY_MODULO")
_MAKES_TEXTS = ("format", "replace", "lower", "upper", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "join", "split")
# Functions that take names: another one that calls them hides which.
NAMERS = ("getattr", "hasattr", "setattr", "delattr", "vars", "globals", "locals", "import_module", "__import__")
_SUBSCRIPTS = ("BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR", "BINARY_OP")
_COMPUTES = ("BINARY_", "COMPARE_OP", "UNARY_NEGATIVE")
_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "@": "matmul", "**": "pow",
              "<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge", "&": "and", "|": "or", "^": "xor"}
_OLD_OPERATORS = {"BINARY_ADD": "+", "BINARY_SUBTRACT": "-", "BINARY_MULTIPLY": "*", "BINARY_TRUE_DIVIDE": "/",
                  "BINARY_MATRIX_MULTIPLY": "@", "BINARY_POWER": "**", "BINARY_FLOOR_DIVIDE": "//", "BINARY_MODULO": "%"}


def steps_of(code: types.CodeType) -> list[Any]:
    """Its instructions, without those that do nothing."""
    return [step for step in dis.get_instructions(code) if step.opname not in _NOTHING]


def line_of(step: Any, before: int) -> int:
    """The line of an instruction; that of the one before where it tells none."""
    position = step.positions.lineno if hasattr(step, "positions") and step.positions else step.starts_line
    return position if isinstance(position, int) and position > 1 else before


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
        # Of these, and of getattr() and hasattr(), those that are asked of `self`, and of other objects.
        self.asked_of_self: dict[str, str] = {}
        self.asked: dict[str, str] = {}
        # Parts of names of attributes that it puts together, as in getattr(o, f"k{i}"); "": any attribute. Of `self`, and of others.
        self.whole_of_self: dict[str, str] = {}
        self.whole: dict[str, str] = {}
        # Where the name of an attribute is a value, as in getattr(o, name); where all fields of a dataclass are read.
        self.by_strings, self.all_fields = "", ""
        # Where it finds globals, and modules, by names that it computes.
        self.any_global, self.any_module = "", ""
        self.operators: set[str] = set()
        # Names whose value it calls at once; and those whose value it takes, with the line.
        self.called: set[str] = set()
        self.passed: dict[str, str] = {}
        self._read(code)
        # Attributes that may not be there, or that are named by a string.
        self.strings_of_attributes: dict[str, str] = {}
        for name in _BY_NAME:
            if where := self.globals.get(name, self.attributes.get(name, "") if name not in _OF_PYTHON else ""):
                parts = (part for text in self.strings for part in text.split("."))
                self.strings_of_attributes.update((part, where) for part in parts if part.isidentifier())
        # Where it fills texts, whose fields may name attributes.
        self.fills_texts = next((self.attributes[name] for name in _FILLS_TEXTS if name in self.attributes), "")
        for text in list(self.strings) if self.fills_texts else ():
            self.strings_of_attributes.update(dict.fromkeys(fields_of(text), self.fills_texts))
        # Whether a handler of its own takes a missing attribute for an answer.
        self.catches = bool(self.caught) or any(name in self.globals for name in _TAKES_MISSING)
        if "suppress" in self.globals or "suppress" in self.attributes:
            self.caught.update(self.attributes if self.catches else {})
            self.asked.update(self.caught)
        self.all_fields = next((where for name in _ALL_FIELDS
                                if (where := self.globals.get(name, self.attributes.get(name, "")))), "")

    def _read(self, code: types.CodeType) -> None:
        file, line = os.path.basename(code.co_filename), code.co_firstlineno
        has_self = code.co_varnames[:1] == ("self",)
        steps = steps_of(code)
        caught = _caught_ranges(code, steps)
        if code.co_name in _FINDS:
            self.by_strings = f"{file}:{line}"
            self.whole_of_self.update({"": self.by_strings} if _puts_names_together(steps) else {})
        where = f"{file}:{line}"
        for index, step in enumerate(steps):
            before, line = line, line_of(step, line)
            if line != before:
                where = f"{file}:{line}"
            name = step.opname
            if name.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD")) and not _leads_on(steps, index):
                if is_called(steps, index):
                    self.called.add(str(step.argval))
                else:
                    self.passed.setdefault(str(step.argval), where)
            if name in _GLOBALS:
                self.globals.setdefault(step.argval, where)
                self._global(steps, index, where)
            elif name in _ATTRIBUTES and step.argval:
                self.attributes.setdefault(str(step.argval), where)
                if any(begin <= step.offset < end for begin, end in caught):
                    self.caught.setdefault(str(step.argval), where)
                    of_self = has_self and _is_self(steps[index - 1])
                    (self.asked_of_self if of_self else self.asked).setdefault(str(step.argval), where)
                if step.argval == "modules" and _is_global(steps[index - 1], "sys") and _named_item(steps, index + 1) is None:
                    self.any_module = self.any_module or where
                if step.argval == "import_module" and not _is_constant_text(steps, index + 1):
                    self.any_module = self.any_module or where
                if step.argval in ("attrgetter", "methodcaller") and not _is_constant_text(steps, index + 1):
                    self.by_strings = self.by_strings or where
                if step.argval == "__dict__":
                    self._of_a_dict(steps, index + 1, where, _is_self(steps[index - 1]))
            elif name == "IMPORT_NAME":
                self.imports.setdefault((step.argval, steps[index - 2].argval or 0), where)
            elif name == "IMPORT_FROM":
                self.attributes.setdefault(step.argval, where)
            elif name == "MATCH_CLASS":
                for text in ("__match_args__", *_strings_in((steps[index - 1].argval,))):
                    self.attributes.setdefault(text, where)
                    self.caught.setdefault(text, where)
                    self.asked.setdefault(text, where)
            else:
                self._operator(step)

    def _operator(self, step: Any) -> None:
        if not step.opname.startswith(_COMPUTES):
            return
        text = "" if step.opname == "UNARY_NEGATIVE" else _OLD_OPERATORS.get(step.opname, str(step.argrepr))
        text = text.removeprefix("bool(").removesuffix(")") if hasattr(str, "removeprefix") else text
        if step.opname == "BINARY_SUBSCR" or text == "[]":
            self.operators.add("__getitem__")
        elif name := _OPERATORS.get(text[:-1] if text.endswith("=") and text not in _OPERATORS else text):
            self.operators.update((f"__{name}__", f"__r{name}__", f"__i{name}__"))
        elif step.opname == "UNARY_NEGATIVE":
            self.operators.add("__neg__")

    def _global(self, steps: list[Any], index: int, where: str) -> None:
        name, after = steps[index].argval, index + 1
        while after < len(steps) and steps[after].opname in _ATTRIBUTES[:2]:
            after += 1
        if after > index + 1:
            self.chains.setdefault((name, *(str(step.argval) for step in steps[index + 1:after])), where)
            return
        following = steps[after:]
        call = next((at for at, step in enumerate(following) if step.opname in _CALLS), None)
        if call is None:
            if name in ("getattr", "hasattr", "delattr", "vars"):
                self.whole.setdefault("", where)
            return
        if name in ("attrgetter", "methodcaller") and not _is_constant_text(steps, after):
            self.by_strings = self.by_strings or where
        if name == "import_module" and not _is_constant_text(steps, after):
            self.any_module = self.any_module or where
        if name == "globals" and call == 0:
            named = _named_item(steps, after + 1)
            if named is None and not _is(steps, after + 1, "CONTAINS_OP"):
                self.any_global = where
        elif name == "vars" and call > 0:
            self._of_a_dict(steps, after + call + 1, where, _is_self(following[0]))
        elif name in ("getattr", "hasattr", "delattr"):
            self._by_name(following[:call], where)

    def _of_a_dict(self, steps: list[Any], after: int, where: str, of_self: bool) -> None:
        """Of vars(o) or o.__dict__ one item may be named, or all may be looked at."""
        name = _named_item(steps, after)
        if name is not None:
            for known in (self.attributes, self.caught, self.asked):
                known.setdefault(name, where)
        elif not (_is(steps, after, "LOAD_ATTR", "LOAD_METHOD") and steps[after].argval == "update"):
            (self.whole_of_self if of_self else self.whole).setdefault("", where)

    def _by_name(self, arguments: list[Any], where: str) -> None:
        """getattr(): with a constant, with a name that is a value, or with one that is put together of parts."""
        texts = [step.argval for step in arguments if step.opname == "LOAD_CONST" and isinstance(step.argval, str)]
        of_self = bool(arguments) and _is_self(arguments[0])
        if any(step.opname.startswith(_PUTS_TOGETHER) for step in arguments) or sum(step.opname == "LOAD_GLOBAL" for step in arguments[1:]):
            (self.whole_of_self if of_self else self.whole).update((text, where) for text in texts or [""])
        elif texts:
            (self.asked_of_self if of_self else self.asked).setdefault(texts[0], where)
        else:
            self.by_strings = self.by_strings or where


def _is_global(step: Any, name: str) -> bool:
    return bool(step.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME")) and step.argval == name)


def _is_constant_text(steps: list[Any], index: int) -> bool:
    return _is(steps, index, "LOAD_CONST") and isinstance(steps[index].argval, str)


def _leads_on(steps: list[Any], index: int) -> bool:
    """Whether what it loads is only the way to an attribute."""
    return _is(steps, index + 1, "LOAD_ATTR", "LOAD_METHOD")


def is_called(steps: list[Any], index: int) -> bool:
    """Whether what it loads is called, by its place on the stack: from Python 3.11 on room for `self` is made beside what will be called."""
    step = steps[index]
    if step.opname == "LOAD_METHOD" or sys.version_info >= (3, 12) and step.opname == "LOAD_ATTR":
        return step.opname == "LOAD_METHOD" or bool(step.arg & 1)
    if sys.version_info >= (3, 11) and step.opname.startswith("LOAD_GLOBAL"):
        return bool(step.arg & 1)
    depth = 1
    for following in steps[index + 1:]:
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


def _is_self(step: Any) -> bool:
    return bool(step.opname.startswith("LOAD_FAST") and step.argval == "self")


def _puts_names_together(steps: list[Any]) -> bool:
    """Whether __getattr__() makes other names, and not only the text of an error."""
    fails = False
    for step in steps:
        if step.opname == "LOAD_GLOBAL" and str(step.argval).endswith("Error"):
            fails = True
        elif step.opname == "RAISE_VARARGS":
            fails = False
        elif not fails and (step.opname.startswith(_PUTS_TOGETHER) and "[]" not in str(step.argrepr)
                            or step.opname in _ATTRIBUTES and step.argval in _MAKES_TEXTS):
            return True
    return False


def _is(steps: list[Any], index: int, *names: str) -> bool:
    return index < len(steps) and steps[index].opname in names


def _named_item(steps: list[Any], after: int) -> str | None:
    """The constant by which an item of a dict is taken, as d["k"] or d.get("k") does."""
    if _is(steps, after, "LOAD_ATTR", "LOAD_METHOD") and steps[after].argval in ("get", "pop", "setdefault", "__getitem__"):
        return steps[after + 1].argval if _is(steps, after + 1, "LOAD_CONST") and isinstance(steps[after + 1].argval, str) else None
    if _is(steps, after, "LOAD_CONST") and isinstance(steps[after].argval, str) and _is(steps, after + 1, *_SUBSCRIPTS):
        return str(steps[after].argval)
    return None


def _strings_in(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, (tuple, frozenset)):
            yield from _strings_in(value)


def fields_of(text: str) -> list[str]:
    """Names of attributes in the fields of a text, as in ``"{0.k}"``."""
    return [name for field in re.findall(r"\{[^{}]*\}", text) for name in re.findall(r"\.([^\W\d]\w*)", field)]


def _caught_ranges(code: types.CodeType, steps: list[Any]) -> list[tuple[int, int]]:
    """Where the code goes on when an attribute is missing: in the blocks of its try statements."""
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


@functools.lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> Names:
    return Names(code)
