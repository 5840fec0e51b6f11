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
from typing import Any, NamedTuple

from overdrive.reads.owners import is_the_programs

_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR", "DELETE_ATTR")
# Instructions that only make room or note something for the interpreter.
_NOTHING = ("CACHE", "PRECALL", "EXTENDED_ARG", "RESUME", "PUSH_NULL", "NOP", "NOT_TAKEN", "COPY_FREE_VARS")
# Of other versions than 3.11, what its name there is.
_NAMES_OF_3_11 = {
    "CALL_FUNCTION": "CALL", "CALL_METHOD": "CALL",  # 3.10
    "LOAD_FAST_CHECK": "LOAD_FAST", "LOAD_FAST_AND_CLEAR": "LOAD_FAST", "LOAD_FROM_DICT_OR_GLOBALS": "LOAD_NAME",  # since 3.12
    "LOAD_FROM_DICT_OR_DEREF": "LOAD_CLASSDEREF",
    "LOAD_FAST_BORROW": "LOAD_FAST", "LOAD_SMALL_INT": "LOAD_CONST"}  # since 3.14
# Instructions of two locals, since 3.13.
_OF_TWO = {"LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"), "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST", "LOAD_FAST"),
           "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"), "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST")}
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
_PUTS_TOGETHER = ("BUILD_STRING", "FORMAT_", "BINARY_OP")
_MAKES_TEXTS = ("format", "replace", "lower", "upper", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "join", "split", "rsplit",
                "partition", "rpartition", "splitlines", "title", "capitalize", "casefold", "swapcase", "translate", "decode", "sub", "zfill")
# Functions that take names: another one that calls them hides which.
NAMERS = ("getattr", "hasattr", "setattr", "delattr", "vars", "globals", "locals", "import_module", "__import__")
_SUBSCRIPTS = ("BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR")
_COMPUTES = ("BINARY_", "COMPARE_OP", "UNARY_NEGATIVE")
_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "@": "matmul", "**": "pow",
              "<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge", "&": "and", "|": "or", "^": "xor"}
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


def steps_of(code: types.CodeType) -> list[Step]:
    """Its instructions, without those that do nothing. What other versions of Python put into one is several, so that whoever reads them
    knows one version."""
    steps: list[Step] = []
    for one in dis.get_instructions(code):
        if one.opname not in _NOTHING:
            position = one.positions.lineno if getattr(one, "positions", None) else one.starts_line  # type: ignore[union-attr]
            line = position if type(position) is int else 0
            steps.extend(_as_of_3_11(Step(one.opname, one.arg or 0, one.argval, one.argrepr, one.offset, line), steps))
    return steps


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
    return [step._replace(opname=_NAMES_OF_3_11.get(name, name))]


def line_of(step: Step, before: int) -> int:
    """The line of an instruction; that of the one before where it tells none."""
    return step.line if step.line > 1 else before


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
        # Whether it puts texts together.
        self.makes_texts = False
        # Where it takes items by keys that it computes, but of `param_groups`.
        self.by_keys = ""
        self.operators: set[str] = set()
        # Names whose value it takes, and does not call at once, with the line.
        self.passed: dict[str, str] = {}
        self.passed_chains: set[tuple[str, ...]] = set()
        # An installed library's may go by more names than a walk can follow.
        self._is_the_programs = is_the_programs(code.co_filename)
        self._read(code)
        if self.by_strings and self.makes_texts and self._is_the_programs:
            self.whole.setdefault("", self.by_strings)
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
            self.makes_texts |= name == "BUILD_STRING" or name == "BINARY_OP" and step.argrepr in ("+", "%", "+=") or (
                name == "LOAD_METHOD" and step.argval in _MAKES_TEXTS) or name == "BUILD_SLICE"
            is_last = name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD") and not _leads_on(steps, index)
            if is_last and not _is_called(code, steps, index):
                self.passed.setdefault(str(step.argval), where)
            if name in _GLOBALS:
                self.globals.setdefault(step.argval, where)
                self._global(code, steps, index, where)
            elif name in _ATTRIBUTES and step.argval:
                self.attributes.setdefault(str(step.argval), where)
                # What is deleted is there in one call, and is not in the next.
                if name == "DELETE_ATTR" or any(begin <= step.offset < end for begin, end in caught):
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
                computes = name == "BINARY_SUBSCR" and steps[index - 1].opname not in ("LOAD_CONST", "BUILD_SLICE")
                if computes and steps[index - 2].argval != "param_groups":
                    self.by_keys = self.by_keys or where
                self._operator(step)

    def _operator(self, step: Step) -> None:
        if not step.opname.startswith(_COMPUTES):
            return
        text = step.argrepr
        if step.opname == "BINARY_SUBSCR":
            self.operators.add("__getitem__")
        elif name := _OPERATORS.get(text[:-1] if text.endswith("=") and text not in _OPERATORS else text):
            self.operators.update((f"__{name}__", f"__r{name}__", f"__i{name}__"))
        elif step.opname == "UNARY_NEGATIVE":
            self.operators.add("__neg__")

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
        following = steps[after:]
        call = next((at for at, step in enumerate(following) if step.opname == "CALL"), None)
        if call is None:
            if name in ("getattr", "hasattr", "delattr", "vars", "dir"):
                self.whole.setdefault("", where)
            return
        if name in ("attrgetter", "methodcaller") and not _is_constant_text(steps, after):
            self.by_strings = self.by_strings or where
        if name in ("import_module", "__import__") and not _is_constant_text(steps, after):
            self.any_module = self.any_module or where
        if name == "globals" and call == 0:
            named = _named_item(steps, after + 1)
            if named is None and not _is(steps, after + 1, "CONTAINS_OP"):
                self.any_global = where
        elif name == "dir":
            self.whole.setdefault("", where)
        elif name == "vars" and call > 0:
            self._of_a_dict(steps, after + call + 1, where, _is_self(following[0]))
        elif name in ("getattr", "hasattr", "delattr"):
            self._by_name(following[:call], where)

    def _of_a_dict(self, steps: list[Step], after: int, where: str, of_self: bool) -> None:
        """Of vars(o) or o.__dict__ one item may be named, or all may be looked at."""
        name = _named_item(steps, after)
        if name is not None:
            for known in (self.attributes, self.caught, self.asked):
                known.setdefault(name, where)
        elif not (_is(steps, after, "LOAD_ATTR", "LOAD_METHOD") and steps[after].argval == "update"):
            (self.whole_of_self if of_self else self.whole).setdefault("", where)

    def _by_name(self, arguments: list[Step], where: str) -> None:
        """getattr(): with a constant, with a name that is a value, or with one that is put together of parts."""
        texts = [step.argval for step in arguments if step.opname == "LOAD_CONST" and isinstance(step.argval, str)]
        of_self = bool(arguments) and _is_self(arguments[0])
        if self._is_the_programs and any(step.opname == "LOAD_METHOD" or step.opname in _SUBSCRIPTS for step in arguments):
            (self.whole_of_self if of_self else self.whole).setdefault("", where)  # what a call gives is any name
        elif any(step.opname.startswith(_PUTS_TOGETHER) for step in arguments) or sum(step.opname == "LOAD_GLOBAL" for step in arguments[1:]):
            (self.whole_of_self if of_self else self.whole).update((_longest_piece(text), where) for text in texts or [""])
        elif texts:
            (self.asked_of_self if of_self else self.asked).setdefault(texts[0], where)
        else:
            self.by_strings = self.by_strings or where


def _is_global(step: Step, name: str) -> bool:
    return step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval == name


def _is_constant_text(steps: list[Step], index: int) -> bool:
    return _is(steps, index, "LOAD_CONST") and isinstance(steps[index].argval, str)


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
    raw = [one for one in dis.get_instructions(code) if one.opname not in ("CACHE", "EXTENDED_ARG")]
    pairs = zip(raw, raw[1:]) if sys.version_info >= (3, 13) else zip(raw[1:], raw)
    return frozenset(one.offset for one, beside in pairs if beside.opname == "PUSH_NULL")


def _is_self(step: Step) -> bool:
    return bool(step.opname == "LOAD_FAST" and step.argval == "self")


def _puts_names_together(steps: list[Step]) -> bool:
    """Whether __getattr__() makes other names, and not only the text of an error."""
    fails = False
    for step in steps:
        if step.opname == "LOAD_GLOBAL" and str(step.argval).endswith("Error"):
            fails = True
        elif step.opname == "RAISE_VARARGS":
            fails = False
        elif not fails and (step.opname.startswith(_PUTS_TOGETHER) or step.opname in _ATTRIBUTES and step.argval in _MAKES_TEXTS):
            return True
    return False


def _is(steps: list[Step], index: int, *names: str) -> bool:
    return index < len(steps) and steps[index].opname in names


def _named_item(steps: list[Step], after: int) -> str | None:
    """The constant by which an item of a dict is taken, as d["k"] or d.get("k") does."""
    if _is(steps, after, "LOAD_ATTR", "LOAD_METHOD") and steps[after].argval in ("get", "pop", "setdefault", "__getitem__"):
        is_whole = _is_constant_text(steps, after + 1) and not _leads_on(steps, after + 1) and not _is(steps, after + 2, *_SUBSCRIPTS, "BINARY_OP")
        return steps[after + 1].argval if is_whole else None
    if _is(steps, after, "LOAD_CONST") and isinstance(steps[after].argval, str) and _is(steps, after + 1, *_SUBSCRIPTS):
        return str(steps[after].argval)
    return None


def _strings_in(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, (tuple, frozenset)):
            yield from _strings_in(value)


def _longest_piece(text: str) -> str:
    """Of what stands between the fields of ``"a_%d"``."""
    return max(re.split(r"%[-+#0 .\d]*[a-z]", text), key=len)


def fields_of(text: str) -> list[str]:
    """Names of attributes in the fields of a text, as in ``"{0.k}"``."""
    return [name for field in re.findall(r"\{[^{}]*\}", text) for name in re.findall(r"\.([^\W\d]\w*)", field)]


def _caught_ranges(code: types.CodeType, steps: list[Step]) -> list[tuple[int, int]]:
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
