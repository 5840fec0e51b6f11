"""Where code finds attributes by names that are values, as ``getattr(o, name)`` does: of which object, and by which name.

Most objects and names are values of variables that have one value while the code runs: what they are is seen when it returns. Of what is not seen, an
object may be any, and a name may be any attribute.
"""
from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import types
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from overdrive.reads.owners import is_installed, is_the_programs, kind_of
from overdrive.reads.steps import Step, line_of, steps_of
from overdrive.values.same import is_number

# What stands on the stack: ("const", value), ("local", name), ("global", name), ("attribute", of, name), ("dict", number, of),
# ("text", a part of it), ("items", constants), ("item", constants), ("method", of, name), ("function", number, name).
Tree = tuple[Any, ...]
OTHER: Tree = ("other",)
NOTHING: Any = object()
# Of a variable that has got no value, so that nothing was asked of it.
UNSET: Any = object()
# What takes an object and a name, or finds all of an object; getters take names alone.
_OF_OBJECTS = ("getattr", "hasattr", "setattr", "delattr")
_ALL = ("dir",)
GETTERS = ("attrgetter", "methodcaller")
_IMPORTERS = ("import_module", "__import__")
_FUNCTIONS = (*_OF_OBJECTS, *_ALL, *GETTERS, *_IMPORTERS, "vars", "super")
# All modules, as if they were attributes of one object.
MODULES: Tree = ("modules",)
# Methods with the number of their arguments beside the object.
METHODS = {"__getattribute__": 1, "__getattr__": 1, "__delattr__": 1, "__setattr__": 2}
_OF_DICTS = ("get", "pop", "setdefault", "__getitem__", "__contains__")
# Attributes that lead to all of an object.
_WHOLE = ("__dict__", "__reduce__", "__reduce_ex__", "__getstate__")
_FILLS = ("format", "format_map", "vformat")
_PUSHES = ("LOAD_CONST", "LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_CLOSURE", "LOAD_BUILD_CLASS",
           "LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT", "IMPORT_FROM", "GET_LEN", "PUSH_EXC_INFO", "WITH_EXCEPT_START", "LOAD_LOCALS",
           "MATCH_KEYS")
# Others: how many they take, and how many they put there.
_EFFECTS = {
    **dict.fromkeys(("POP_TOP", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF", "LIST_APPEND", "SET_ADD", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE",
                     "DICT_MERGE", "DELETE_ATTR", "POP_EXCEPT", "POP_ITER"), (1, 0)),
    **dict.fromkeys(("STORE_ATTR", "DELETE_SUBSCR", "MAP_ADD"), (2, 0)), "STORE_SUBSCR": (3, 0),
    **dict.fromkeys(("UNARY_NOT", "UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_POSITIVE", "FORMAT_SIMPLE", "CONVERT_VALUE", "TO_BOOL", "YIELD_VALUE",
                     "LIST_TO_TUPLE", "CALL_INTRINSIC_1", "CHECK_EXC_MATCH"), (1, 1)),
    **dict.fromkeys(("BINARY_OP", "BINARY_SUBSCR", "COMPARE_OP", "IS_OP", "CONTAINS_OP", "FORMAT_WITH_SPEC", "IMPORT_NAME", "CALL_INTRINSIC_2",
                     "SET_FUNCTION_ATTRIBUTE"), (2, 1)), "BEFORE_WITH": (1, 2), **dict.fromkeys(("KW_NAMES", "DELETE_FAST", "COPY_FREE_VARS",
                     "MAKE_CELL", "END_FOR", "DELETE_DEREF", "DELETE_GLOBAL", "DELETE_NAME", "GET_YIELD_FROM_ITER"), (0, 0))}
_BUILDS = ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_SLICE", "BUILD_MAP", "BUILD_CONST_KEY_MAP")
_ENDS = ("RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")


class Find(NamedTuple):
    of: Tree
    name: Tree
    where: str


class _Finder:
    """Goes through code once, with what it can tell of the stack."""

    def __init__(self, code: types.CodeType) -> None:
        self._code = code
        self._stack: list[Tree] = []
        self._saved: dict[int, list[Tree]] = {}
        self._stores: dict[str, list[Tree]] = {}
        self._loops: list[tuple[int, int]] = []
        self._store_places: dict[str, list[int]] = {}
        # Functions and dicts of objects of which it is not known yet what becomes of them.
        self._open: list[list[Find]] = []
        self.finds: list[Find] = []
        self._where = ""
        self._go()

    def _go(self) -> None:
        file, line = os.path.basename(self._code.co_filename), self._code.co_firstlineno
        before = ""
        for step in steps_of(self._code):
            line = line_of(step, line)
            self._where = f"{file}:{line}"
            for target in sorted(each for each in self._saved if each <= step.offset):
                self._join(self._saved.pop(target), before in _ENDS)
            if not (before == "END_FOR" and step.opname in ("POP_TOP", "POP_ITER")):
                self._step(step)
            before = step.opname
        self.finds += itertools.chain.from_iterable(self._open)

    def _join(self, other: list[Tree], is_alone: bool) -> None:
        if is_alone:
            self._stack = other
            return
        count = min(len(self._stack), len(other))
        pairs = zip(self._stack[len(self._stack) - count:], other[len(other) - count:])
        self._stack = [a if a == b else OTHER for a, b in pairs]

    def _pop(self, count: int = 1) -> list[Tree]:
        """The last one comes last."""
        taken = [self._stack.pop() if self._stack else OTHER for _ in range(count)]
        return taken[::-1]

    def _add(self, of: Tree, name: Tree) -> None:
        self.finds.append(Find(of, name, self._where))

    def _begin(self, kind: str, part: Any) -> Tree:
        """Of what is on its way: unless it is seen what becomes of it, it may find anything."""
        self._open.append([] if part == "super" else [Find(part if kind == "dict" else OTHER, OTHER, self._where)])
        return kind, len(self._open) - 1, part

    def _step(self, step: Step) -> None:
        name, stack = step.opname, self._stack
        if name in _PUSHES:
            stack.append(self._loaded(step))
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            self._attribute(step)
        elif name == "STORE_FAST":
            self._stores.setdefault(step.argval, []).append(*self._pop())
            self._store_places.setdefault(step.argval, []).append(step.offset)
        elif name == "CALL":
            self._call(step.arg)
        elif name == "CALL_FUNCTION_EX":
            self._pop(2 + (step.arg & 1))
            stack.append(OTHER)
        elif name == "BUILD_STRING":
            stack.append(_text_of(self._pop(step.arg)))
        elif name == "BINARY_OP" and step.argrepr in ("+", "+="):
            stack.append(_text_of(self._pop(2)))
        elif name == "FORMAT_VALUE":
            self._pop(1 + bool(step.arg & 4))
            stack.append(OTHER)
        elif name in _BUILDS:
            self._pop(step.arg * 2 if name == "BUILD_MAP" else step.arg + (name == "BUILD_CONST_KEY_MAP"))
            stack.append(OTHER)
        elif name == "MAKE_FUNCTION":
            self._pop(1 + bin(step.arg).count("1"))
            stack.append(OTHER)
        elif name == "UNPACK_SEQUENCE":
            self._pop()
            stack.extend([OTHER] * step.arg)
        elif name == "COPY":
            stack.append(stack[-step.arg] if step.arg <= len(stack) else OTHER)
        elif name == "DUP_TOP":
            stack.append(stack[-1] if stack else OTHER)
        elif name == "SWAP" and step.arg <= len(stack):
            stack[-1], stack[-step.arg] = stack[-step.arg], stack[-1]
        elif name == "GET_ITER":
            of = self._pop()[0]
            stack.append(("items", of[1]) if of[0] == "const" and _are_texts(of[1]) else OTHER)
        elif name == "FOR_ITER":
            of = stack[-1] if stack else OTHER
            self._saved[step.argval] = stack[:-1]
            stack.append(("item", of[1]) if of[0] == "items" else OTHER)
        elif "JUMP" in name:
            self._jump(step)
        elif name in ("BINARY_SUBSCR", "CONTAINS_OP", "STORE_SUBSCR", "DELETE_SUBSCR"):
            self._item(name)
        elif name in _EFFECTS:
            taken, put = _EFFECTS[name]
            self._pop(taken)
            stack.extend([OTHER] * put)
        else:  # an end, or what is not known
            stack.clear()

    def _loaded(self, step: Step) -> Tree:
        name = step.opname
        if name == "LOAD_CONST":
            return "const", step.argval
        if name in ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            return "local", step.argval
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            return self._begin("function", step.argval) if step.argval in _FUNCTIONS else ("global", step.argval)
        return OTHER

    def _attribute(self, step: Step) -> None:
        of = self._pop()[0]
        if of[0] == "instance":
            of = of[1]
        if step.argval == "__dict__":
            self._stack.append(self._begin("dict", of))
        elif step.argval == "modules" and of == ("global", "sys"):
            self._stack.append(self._begin("dict", MODULES))
        elif step.argval in (*GETTERS, *_IMPORTERS) or of == ("global", "builtins") and step.argval in _FUNCTIONS:
            self._stack.append(self._begin("function", step.argval))
        elif step.opname == "LOAD_METHOD" or step.argval in METHODS:
            self._stack.append(("method", of, step.argval))
        else:
            self._stack.append(("attribute", of, step.argval))

    def _call(self, count: int) -> None:
        function, *given = self._pop(count + 1)
        result = OTHER
        if function[0] == "getter" and given:
            self._open[function[1]] = [find._replace(of=given[0]) for find in self._open[function[1]]]
        elif function[0] == "function":
            result = self._call_of(function, given)
        elif function[0] == "method":
            of, name = function[1:]
            if name in METHODS and len(given) >= METHODS[name]:
                is_bound = len(given) == METHODS[name]
                self._add(of if is_bound else given[0], given[0 if is_bound else 1])
            elif name == "__get__" and given:  # of a descriptor, which may be that of any attribute
                self._add(given[0], OTHER)
            elif of[0] == "dict" and name in _OF_DICTS and given:
                self._open[of[1]] = []
                self._add(of[2], given[0])
            elif name in _FILLS and of[0] != "const":
                for each in given:
                    self._add(each, ("fields", of))
        self._stack.append(result)

    def _call_of(self, function: Tree, given: list[Tree]) -> Tree:
        number, name = function[1:]
        if name in _OF_OBJECTS and len(given) < 2:
            return OTHER
        self._open[number] = []
        if name in _OF_OBJECTS:
            self._add(given[0], given[1])
        elif name in _ALL and given:
            self._add(given[0], OTHER)
        elif name in _IMPORTERS:
            self._add(MODULES, given[0] if given else OTHER)
        elif name in GETTERS:
            self._open[number] = [Find(OTHER, each, self._where) for each in (given if name == "attrgetter" else given[:1])]
            return "getter", number
        elif name == "vars" and given:
            return self._begin("dict", given[0])
        elif name == "super":
            first = self._code.co_varnames[:1]
            return ("instance", ("local", first[0]) if first else OTHER)
        return OTHER

    def _item(self, name: str) -> None:
        values = self._pop(3 if name == "STORE_SUBSCR" else 2)
        of, key = values[-2:] if name != "CONTAINS_OP" else values[::-1]
        if of[0] == "dict":
            self._open[of[1]] = []
            self._add(of[2], key)
        self._stack.extend([OTHER] * (name in ("BINARY_SUBSCR", "CONTAINS_OP")))

    def _jump(self, step: Step) -> None:
        name = step.opname
        if type(step.argval) is int and step.argval <= step.offset:
            self._loops.append((step.argval, step.offset))
        if name in _ENDS:
            if type(step.argval) is int and step.argval > step.offset:
                self._saved.setdefault(step.argval, list(self._stack))
            self._stack.clear()
            return
        keeps = name.endswith("OR_POP")
        if not keeps:
            self._pop()
        if type(step.argval) is int and step.argval > step.offset:
            self._saved.setdefault(step.argval, list(self._stack))
        if keeps:
            self._pop()

    def resolved(self) -> Iterator[Find]:
        """With constants of loops, and without variables that have several values."""
        for find in self.finds:
            name = OTHER if find.name[0] == "const" and find.name[1] in _WHOLE else self._resolve(find.name)
            if name[0] == "item":
                yield from (find._replace(of=self._resolve(find.of), name=("const", text)) for text in name[1])
            else:
                yield find._replace(of=self._resolve(find.of), name=name)

    def _resolve(self, tree: Tree) -> Tree:
        kind = tree[0]
        if kind == "instance":
            return self._resolve(tree[1])
        if kind in ("attribute", "fields"):
            of = self._resolve(tree[1])
            return OTHER if of == OTHER and kind == "attribute" else (kind, of, *tree[2:])
        if kind != "local":
            return tree if kind in ("const", "global", "text", "item", "modules") else OTHER
        stores, name = self._stores.get(tree[1], []), tree[1]
        code = self._code
        if name in code.co_freevars or name in code.co_cellvars:
            inner = [code, *(each for each in code.co_consts if isinstance(each, types.CodeType))]
            is_given = any(step.opname == "STORE_DEREF" and step.argval == name for each in inner for step in steps_of(each))
            return OTHER if is_given and name not in code.co_freevars or is_given and len(inner) > 1 else tree
        is_argument = name in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount + _count_of_rests(code)]
        is_deleted = any(step.opname == "DELETE_FAST" and step.argval == name for step in steps_of(code)) if stores else False
        if not stores and is_argument:
            return tree
        if all(store[0] == "item" for store in stores) and stores and not is_argument:
            return ("item", tuple(text for store in stores for text in store[1]))
        in_loop = any(begin <= at <= end for at in self._store_places.get(name, ()) for begin, end in self._loops)
        return tree if len(stores) == 1 and not (is_argument or is_deleted or in_loop) else OTHER


def _count_of_rests(code: types.CodeType) -> int:
    """Of ``*args`` and ``**keywords``."""
    return bool(code.co_flags & 4) + bool(code.co_flags & 8)


def _are_texts(value: Any) -> bool:
    return isinstance(value, (tuple, frozenset)) and all(isinstance(each, str) for each in value)


def _text_of(parts: Sequence[Tree]) -> Tree:
    """A text that is put together has each of its parts in it."""
    pieces = [str(part[1]) for part in parts if part[0] == "text" or part[0] == "const" and isinstance(part[1], str)]
    return ("text", max(pieces, key=len)) if pieces else OTHER


@functools.lru_cache(maxsize=4096)
def finds_of(code: types.CodeType) -> tuple[Find, ...]:
    return tuple(dict.fromkeys(_Finder(code).resolved()))


class Found:
    """By names that are values: what was found in the frames of a call."""

    def __init__(self) -> None:
        # Names, and parts of names of any object, with their lines.
        self.names: dict[str, str] = {}
        self.anywhere: dict[str, str] = {}
        # Modules, and where nobody knows which; whether the program's own code asks for such.
        self.modules: dict[str, str] = {}
        self.any_module, self.is_refused = "", False
        # Where an installed library's code asks objects that nobody knows for what nobody knows.
        self.by_strings = ""
        # Of single objects, by their addresses: a weak reference, where there is one, and parts of names. What a call makes must die as it would.
        self._of_objects: dict[int, tuple[Any, dict[str, str]]] = {}
        self._has_tensors = False

    def note(self, find: Find, frame: Any) -> None:
        of, kind = value_of(find.of, frame), find.name[0]
        text = value_of(find.name[1] if kind == "fields" else find.name, frame)
        if of is UNSET or text is UNSET:
            return
        if find.of == MODULES:
            if isinstance(text, str):
                self.modules.setdefault(text, find.where)
            else:
                self.any_module = self.any_module or find.where
                self.is_refused |= is_the_programs(frame.f_code.co_filename)
        elif isinstance(text, str):
            names = fields_of(text) if kind == "fields" else text.split(".")
            self.names.update((name, find.where) for name in names if name not in self.names)
        elif of is not NOTHING:
            if not (kind == "fields" and is_number(of)):
                self.note_object(of, find.name[1] if kind == "text" else "", find.where)
        elif is_installed(frame.f_code.co_filename):
            self.by_strings = self.by_strings or find.where
        elif kind_of(frame.f_code.co_filename) == "user":
            self.anywhere.setdefault(find.name[1] if kind == "text" else "", find.where)

    def pieces_of(self, value: Any) -> dict[str, str]:
        """Parts of the names of attributes that are found of it; "": any attribute."""
        weak, pieces = self._of_objects.get(id(value), (None, {}))
        return {**self.anywhere, **pieces} if pieces and (weak is None or weak() is value) else self.anywhere

    def has_tensors(self) -> bool:
        """Whether any attribute is found of a tensor."""
        return self._has_tensors or bool(self.anywhere)

    def is_no_more_than(self, other: Found) -> bool:
        return (self.names.keys() <= other.names.keys() and self.modules.keys() <= other.modules.keys()
                and bool(self.any_module) <= bool(other.any_module) and self.is_refused <= other.is_refused
                and self.anywhere.keys() <= other.anywhere.keys() and bool(self.by_strings) <= bool(other.by_strings)
                and self._has_tensors <= other._has_tensors
                and all(number in other._of_objects and pieces.keys() <= other._of_objects[number][1].keys() and _are_one(
                    weak, other._of_objects[number][0]) for number, (weak, pieces) in self._of_objects.items() if weak is None or weak() is not None))

    def note_object(self, value: Any, piece: str, where: str) -> None:
        """Any attribute with the piece in its name is found of it."""
        if type(value) in weakref.ProxyTypes:
            with contextlib.suppress(ReferenceError):
                value = value.__init__.__self__
        self._has_tensors |= isinstance(value, torch.Tensor)
        try:
            weak = weakref.ref(value)
        except TypeError:
            weak = None
        known = self._of_objects.get(id(value))
        if known is None or not _are_one(known[0], weak):
            known = self._of_objects[id(value)] = (weak, {})
        known[1].setdefault(piece, where)


def _are_one(weak: Any, other: Any) -> bool:
    return (weak and weak()) is (other and other())


def fields_of(text: str) -> list[str]:
    """Names of attributes in the fields of a text, as in ``"{0.k}"``."""
    return [name for field in re.findall(r"\{[^{}]*\}", text) for name in re.findall(r"\.([^\W\d]\w*)", field)]


def value_of(tree: Tree, frame: Any) -> Any:
    """What it is in a frame that returns; NOTHING: nobody knows. No code of the program is called."""
    kind = tree[0]
    if kind == "const":
        return tree[1]
    if kind == "local":
        return frame.f_locals.get(tree[1], UNSET)
    if kind == "global":
        return frame.f_globals.get(tree[1], frame.f_builtins.get(tree[1], NOTHING))
    if kind == "attribute":
        of = value_of(tree[1], frame)
        return of if of is NOTHING or of is UNSET else _own_attribute(of, tree[2])
    return NOTHING


def _own_attribute(of: Any, name: str) -> Any:
    entries = dict_of(of)
    if entries is None:
        return NOTHING
    places = [entries, *(entries[key] for key in ("_modules", "_parameters", "_buffers") if isinstance(entries.get(key), dict))]
    return next((place[name] for place in places if name in place), NOTHING)


def dict_of(value: Any) -> dict[str, Any] | None:
    """The attributes of an object of its own. No code of the program is called."""
    try:
        entries = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return entries if isinstance(entries, dict) else None
