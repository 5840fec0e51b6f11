"""Numbers that a captured step changes itself, as ``self.steps += 1`` does, and where its code uses them."""
from __future__ import annotations

import functools
import os
import re
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from overdrive.numbers.executed import Place
from overdrive.numbers.tracked import plain
from overdrive.reads.steps import line_of, steps_of
from overdrive.reads.optimizers import is_of_optimizers
from overdrive.reads.owners import is_the_programs
from overdrive.values.read import CELL, ITEM, Read
from overdrive.values.slots import putter_of

# What loads and stores a name: an attribute's, or an item's; that of a global, which is an attribute of its module; that of a closure.
_OF_ATTRIBUTES, _OF_GLOBALS, _OF_CELLS = ("ATTR",), ("ATTR", "GLOBAL", "NAME"), ("DEREF", "CLASSDEREF")
_LOADS, _STORES = (tuple(f"{kind}_{end}" for end in (*_OF_GLOBALS, *_OF_CELLS)) for kind in ("LOAD", "STORE"))
# What brings another value, and nothing more.
_OTHERS = ("LOAD_CONST", "LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME")
_MOVES = ("SWAP", "ROT_TWO", "ROT_THREE", "COPY", "DUP_TOP", "DUP_TOP_TWO")
_JUMPS = ("TO_BOOL", "UNARY_NOT", "POP_JUMP", "JUMP_IF")
# What makes a text of a value by its own method.
_FORMATS = ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE")
_CALLED = (("LOAD_FAST", "CALL_FUNCTION_EX"), ("LOAD_FAST", "BUILD_MAP", "LOAD_FAST", "DICT_MERGE", "CALL_FUNCTION_EX"))
_WORDS = re.compile(r"\w+")
# Instructions and functions that look into a container.
_LOOKS = ("GET_ITER", "TO_BOOL", "UNARY_NOT", "POP_JUMP", "JUMP_IF", "CONTAINS_OP", "COMPARE_OP")
_ADDS = ("append", "appendleft", "add", "extend", "extendleft", "insert", "update", "clear", "discard", "remove")
_LOOKERS = ("len", "sum", "min", "max", "any", "all", "bool", "sorted", "reversed", "list", "tuple", "set", "dict", "zip", "enumerate", "iter",
            "next", "str", "repr", "mean")
# What follows a key, and what takes one otherwise.
_SUBSCRIPTS = ("BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR", *_MOVES)
_BY_KEYS = {"get", "pop", "setdefault", "__getitem__", "attrgetter", "itemgetter", "methodcaller"}
# Attributes of tensors whose items are no counters.
_SIZES = ("shape", "stride", "size")
# What a dict or an object gives whole, or by names that are values.
_ALL_OF_AN_OBJECT = {"vars", "asdict", "astuple"}
_WHOLE = ("vars", "__dict__", "asdict", "astuple", "locals", "globals", "eval", "exec")
# What becomes of a number that the code loads: it goes to a place, which is a value of its own, as what is computed of it or as it is; a
# tracked number tells it; it becomes a float, which tells it; neither.
_PUT, _KEPT, _TOLD, _FLOAT, _OTHER = range(5)
# A use that no single instruction makes.
SOMEWHERE = -1


def is_counted(before: Any, now: Any) -> bool:
    """Whether it is a number that goes on, and not a flag."""
    return type(plain(before)) in (int, float) and type(plain(now)) in (int, float)


class Counter:
    """One place that has a number, before and after each call."""

    def __init__(self, read: Read) -> None:
        self.read = read
        # Whether code that runs apart changes it, too.
        self.is_apart = False
        self.put: Callable[[Any], None] = putter_of(read)

    def now(self) -> Any:
        return self.read.now()

    def is_at(self, holder: Any, key: Any) -> bool:
        return self.read.holder is holder and bool(self.read.key == key)

    def told(self) -> str:
        return f"`{self.read.name}`"

    def operators(self, codes: Iterable[types.CodeType]) -> dict[Place, str]:
        """Those of this code that may be given a whole number without a word, as a tensor's and a float's are, each with its line."""
        if type(plain(self.now())) is not int:
            return {}
        return {(code, site): where for code in _that_may_use(self.read, codes) for site, where in _use_of(code, _key_of(self.read)).sites.items()}

    def uses_that_do_not_tell(self, codes: Collection[types.CodeType]) -> dict[Place, str]:
        """Where the function uses a whole number that it counts in another way than in arithmetic that ends in a comparison, in a
        float, or in a place: instructions, each with its line. An index tells nobody what it was made of."""
        if type(plain(self.now())) is not int:
            return {}
        cells = {name for code in codes for name in code.co_cellvars}
        found: dict[Place, str] = {}
        for code in _that_may_use(self.read, codes):
            use = _use_of(code, _key_of(self.read))
            found.update(((code, at), where) for at, where in use.others.items())
            if not cells.isdisjoint(use.cells):
                found[code, SOMEWHERE] = use.where
        found.update(((code, SOMEWHERE), where) for code, where in self._uses_of_all(codes))
        return found

    def _uses_of_all(self, codes: Iterable[types.CodeType]) -> Iterator[tuple[types.CodeType, str]]:
        """Where code takes what the container has without the key: by a loop, a method, a key that it computes, or another function."""
        container = self.read.name.rpartition("[")[0] if self.read.name.endswith("]") else ""
        words = _WORDS.findall(container) if not container.endswith("]") else []
        ours = (code for code in codes if words and is_the_programs(code.co_filename))
        return ((code, where) for code in ours if (where := _takes_all(code, words[-1])))

    def makes_a_float(self, codes: Iterable[types.CodeType]) -> bool:
        return type(plain(self.now())) is float or any(_use_of(code, _key_of(self.read)).worst == _FLOAT for code in _that_may_use(self.read, codes))


def is_used(read: Read, codes: Iterable[types.CodeType]) -> bool:
    """Whether these load what has the name, and not only write it or make a closure of it."""
    name = _key_of(read)
    return not isinstance(name.key, str) or any(_loads(code, name) or _names(code, name.key) for code in _that_may_use(read, codes))


def looks_into(read: Read, codes: Iterable[types.CodeType]) -> bool:
    """Whether these look into a container, and do not only pass it on or call a method that adds to it."""
    words = _WORDS.findall(read.name.rpartition("[")[0] if read.kind == ITEM else read.name)
    return not words or any(_looks_into(code, words[-1]) for code in codes)


@functools.lru_cache(maxsize=8192)
def _names(code: types.CodeType, key: str) -> bool:
    """Whether it calls what has the name, or gives the name to a function, as `get()` and `hasattr()` take one."""
    steps = _steps_naming(code, key)
    return any(step.opname == "LOAD_METHOD" and step.argval == key or _is_constant(step, key) and not following.opname.startswith("STORE_SUBSCR")
               for step, following in zip(steps, steps[1:]))


def _that_may_use(read: Read, codes: Iterable[types.CodeType]) -> Iterable[types.CodeType]:
    """PyTorch's optimizers have no attributes that count, but a state["step"], and its schedulers step apart. A list of the program's comes to
    library code by a name that is passed, whose items are all guarded; an index there is one of another list."""
    is_attribute, is_of_a_list = read.name.endswith(f".{read.key}"), type(read.key) is int
    return (code for code in codes
            if not (is_attribute and is_of_optimizers(code)) and not (is_of_a_list and not is_the_programs(code.co_filename)))


def is_written(read: Read, codes: Iterable[types.CodeType]) -> bool:
    name = _key_of(read)
    codes = (code for code in codes if name.key in _stored_in(code))
    return any(_writes(code, name) for code in _that_may_use(read, codes))


def is_only_written(read: Read, codes: Collection[types.CodeType]) -> bool:
    """Whether these write the number by its name, and never read it. What stands in a container has other names: get(), values()."""
    name = _key_of(read)
    return any(_stores(code, name) for code in codes) and not any(_loads(code, name) or _has_constant(code, name.key) for code in codes)


@functools.lru_cache(maxsize=8192)
def _stores(code: types.CodeType, name: _Key) -> bool:
    return any(map(name.is_stored, _steps_naming(code, name.key)))


def stores_of(read: Read, codes: Iterable[types.CodeType]) -> list[Place]:
    """Where this code gives the place a value by its name."""
    name = _key_of(read)
    return [(code, offset) for code in codes for offset in _offsets_of_stores(code, name)]


@functools.lru_cache(maxsize=8192)
def _stored_in(code: types.CodeType) -> frozenset[Any]:
    """Names and constant keys."""
    steps = steps_of(code)
    keys = {before.argval for before, step in zip(steps, steps[1:]) if step.opname == "STORE_SUBSCR" and before.opname == "LOAD_CONST"}
    return frozenset(keys.union(step.argval for step in steps if step.opname.startswith("STORE_")))


@functools.lru_cache(maxsize=8192)
def _offsets_of_stores(code: types.CodeType, name: _Key) -> list[int]:
    steps = _steps_naming(code, name.key)
    return [step.offset for index, step in enumerate(steps)
            if name.is_stored(step) or step.opname == "STORE_SUBSCR" and _is_constant(steps[index - 1], name.key)]


def may_be_read_first(read: Read, codes: Collection[types.CodeType], is_always_written: bool) -> bool:
    """Whether the call may have read the value before it gave the place another one. ``codes``: its code, in the order in which it first returned.
    What stands in a container has other names than its key."""
    name = _key_of(read)
    if not any(_stores(code, name) for code in codes):
        return True
    first = next((code for code in codes if _loads_first(code, name) or is_always_written and _stores(code, name)), None)
    return first is not None and _loads_first(first, name)


@functools.lru_cache(maxsize=8192)
def _loads_first(code: types.CodeType, name: _Key) -> bool:
    """By its name, and has not stored it in a line before; where it takes all that an object has, nobody knows when."""
    if not _loads(code, name) or _may_be_in_all(code, name.key):
        return _loads(code, name)
    steps = _steps_naming(code, name.key)
    first = next((step for step in steps if name.is_stored(step) or name.is_loaded(step)), None)
    return first is None or name.is_loaded(first)


@functools.lru_cache(maxsize=8192)
def _writes(code: types.CodeType, name: _Key) -> bool:
    return bool(_offsets_of_stores(code, name))


def _steps_naming(code: types.CodeType, key: Any) -> list[Any]:
    """The steps of code that may name the key; none of other code."""
    return steps_of(code) if _may_name(code, key) else []


def _may_name(code: types.CodeType, key: Any) -> bool:
    return any(key in names for names in (code.co_names, code.co_freevars, code.co_cellvars)) or _has_constant(code, key)


def _has_constant(code: types.CodeType, key: Any) -> bool:
    """Small numbers are in the instructions alone since Python 3.14."""
    return (any(type(constant) is type(key) and constant == key or isinstance(constant, tuple) and isinstance(key, str) and key in constant
                for constant in code.co_consts)
            or type(key) is int and any(_is_constant(step, key) for step in steps_of(code)))


def _is_constant(step: Any, key: Any) -> bool:
    return bool(step.opname == "LOAD_CONST" and type(step.argval) is type(key) and step.argval == key)


@functools.lru_cache(maxsize=8192)
def _loads(code: types.CodeType, name: _Key) -> bool:
    if _may_be_in_all(code, name.key):
        return True
    steps = _steps_naming(code, name.key)
    return any(name.is_loaded(step) or _is_item(steps, index, name.key) and steps[index - 2].argval not in _SIZES
               for index, step in enumerate(steps))


def _may_be_in_all(code: types.CodeType, key: Any) -> bool:
    """Names are strings: no list gives an item by one."""
    return isinstance(key, str) and any(name in code.co_names for name in ("getattr", *_WHOLE)) and _has_constant(code, key)


class _Key(NamedTuple):
    """A name or an index, and the ends of the instructions that take it."""

    key: Any
    ends: tuple[str, ...]

    def is_loaded(self, step: Any) -> bool:
        return bool(step.argval == self.key and step.opname.startswith("LOAD_") and step.opname[5:] in self.ends)

    def is_stored(self, step: Any) -> bool:
        return bool(step.argval == self.key and step.opname.startswith("STORE_") and step.opname[6:] in self.ends)


def _key_of(read: Read) -> _Key:
    if read.kind == CELL:
        return _Key(read.name.rpartition(".")[2], _OF_CELLS)
    return _Key(read.key, _OF_GLOBALS if isinstance(read.holder, dict) and "__builtins__" in read.holder else _OF_ATTRIBUTES)


class _Use(NamedTuple):
    """What becomes of a number in a function, in which line, operators that are given it, each with its line, cells of other functions that may
    get it, a place, or a variable of a call, and instructions that load it for a use of which it does not tell."""

    worst: int
    where: str
    sites: dict[int, str]
    others: dict[int, str]
    cells: frozenset[str] = frozenset()


@functools.lru_cache(maxsize=8192)
def _use_of(code: types.CodeType, name: _Key) -> _Use:
    """Of the number with this name or key."""
    key, file, line = name.key, os.path.basename(code.co_filename), code.co_firstlineno
    if isinstance(key, str) and (unnamed := _takes_unnamed(code, key)):
        return _Use(_OTHER, f"{file}:{unnamed}", {}, {SOMEWHERE: f"{file}:{unnamed}"})
    if not _may_name(code, key):
        return _Use(_PUT, "", {}, {})
    steps, worst, worst_line, uses_it = steps_of(code), _PUT, line, False
    sites: dict[int, str] = {}
    others: dict[int, str] = {}
    for index, step in enumerate(steps):
        line = line_of(step, line)
        is_named = name.is_loaded(step) and not _is_called_with_stars(steps, index)
        if is_named or _is_item(steps, index, key):
            met: list[int] = []
            uses_it = True
            use = _becomes(code, index, met)
            sites.update(dict.fromkeys(met, f"{file}:{line}"))
            if use == _OTHER:
                others[step.offset] = f"{file}:{line}"
            if use > worst:
                worst, worst_line = use, line
    stored = {step.argval for step in steps if step.opname == "STORE_DEREF"} if uses_it else ()
    return _Use(worst, f"{file}:{worst_line}", sites, others, frozenset(stored).difference((key,)))


def _takes_unnamed(code: types.CodeType, key: str) -> int:
    """The line in which it may take the number by no instruction that names it: with all of its object, by a pattern, or by a key that a function
    gets; 0: there is none."""
    line = code.co_firstlineno
    if not _ALL_OF_AN_OBJECT.isdisjoint(code.co_names) and is_the_programs(code.co_filename) or _may_be_in_all(code, key):
        return line
    by_keys = not _BY_KEYS.isdisjoint(code.co_names)
    steps = _steps_naming(code, key)
    for step, after in zip(steps, steps[1:]):
        line = line_of(step, line)
        is_in_a_pattern = after.opname in ("MATCH_CLASS", "MATCH_KEYS") and isinstance(step.argval, tuple) and key in step.argval
        if is_in_a_pattern or by_keys and _is_constant(step, key) and not after.opname.startswith(_SUBSCRIPTS):
            return line
    return 0


@functools.lru_cache(maxsize=8192)
def _takes_all(code: types.CodeType, name: str) -> str:
    """Where it takes a container by its name for more than one item, its length, or whether it is there; "" where it does not."""
    steps, line = _steps_naming(code, name), code.co_firstlineno
    aliases = {following.argval for step, following in zip(steps, steps[1:])
               if step.opname in _LOADS and step.argval == name and following.opname == "STORE_FAST"}
    for index, step in enumerate(steps):
        line = line_of(step, line)
        is_it = step.opname in _LOADS and step.argval == name or step.opname == "LOAD_FAST" and step.argval in aliases
        if is_it and not (_takes_one(steps, index) or _takes_a_number(code, index)):
            return f"{os.path.basename(code.co_filename)}:{line}"
    return ""


def _takes_one(steps: list[Any], index: int) -> bool:
    """Whether what is loaded here is asked for one item, added to, counted, or only there."""
    if index + 2 >= len(steps):
        return False
    first, second = steps[index + 1:index + 3]
    if first.opname == "LOAD_CONST":  # -1 is an index that others may be, too
        is_one = isinstance(first.argval, str) or type(first.argval) is int and first.argval >= 0
        return bool(second.opname.startswith(_SUBSCRIPTS if is_one else "IS_OP"))
    if first.opname in ("LOAD_METHOD", "LOAD_ATTR"):
        return first.argval in _ADDS
    owner = steps[index - (2 if steps[index].opname == "LOAD_ATTR" else 1)]
    is_length = first.opname == "CALL" and owner.opname in ("LOAD_GLOBAL", "LOAD_NAME") and owner.argval == "len"
    return is_length or bool(first.opname.startswith(("STORE_FAST", "CONTAINS_OP", "POP_TOP", *_JUMPS)))


def _takes_a_number(code: types.CodeType, index: int) -> bool:
    """Whether an item by a key that is computed only counts or is compared, as in ``seen[name] += 1``."""
    steps, above = steps_of(code), 0
    for at in range(index + 1, min(len(steps), index + 40)):
        step, name = steps[at], steps[at].opname
        if _is_subscript(step) and above == 1:
            met: list[int] = []
            return _becomes(code, at, met) in (_PUT, _TOLD) and not met
        if name in _OTHERS:
            above += 1
        elif name == "CALL" and above > step.arg:
            above -= step.arg
        elif _is_subscript(step) and above > 1:
            above -= 1
        elif name not in _MOVES and not (name in ("LOAD_ATTR", "LOAD_METHOD") and above > 0):
            return False
    return False


@functools.lru_cache(maxsize=8192)
def _looks_into(code: types.CodeType, name: str) -> bool:
    steps = _steps_naming(code, name)
    for index, step in enumerate(steps):
        if not (step.opname in _LOADS and step.argval == name or _is_item(steps, index, name)) or index + 1 == len(steps):
            continue
        before = steps[index - 1 if step.opname != "LOAD_ATTR" else index - 2] if index > 1 else step
        following = steps[index + 1:index + 3]
        if following[0].opname.startswith(_LOOKS) or any(map(_is_subscript, following)) and not following[0].opname.startswith("CALL"):
            return True
        if following[0].opname in ("LOAD_METHOD", "LOAD_ATTR") and following[0].argval not in _ADDS:
            return True
        if following[0].opname.startswith("CALL") and before.opname in _LOADS and before.argval in _LOOKERS:
            return True
    return False


def _is_called_with_stars(steps: list[Any], index: int) -> bool:
    """Whether ``(*arguments)`` or ``(*arguments, **keywords)`` follows what it loads."""
    for names in _CALLED:
        following = steps[index + 1:index + 1 + len(names)]
        if len(following) == len(names) and all(step.opname.startswith(name) for step, name in zip(following, names)):
            return True
    return False


def _is_subscript(step: Any) -> bool:
    return bool(step.opname == "BINARY_SUBSCR")


def _is_item(steps: list[Any], index: int, key: Any) -> bool:
    if not _is_subscript(steps[index]):
        return False
    before = index - 1
    while before > 0 and steps[before].opname in _MOVES:
        before -= 1
    return _is_constant(steps[before], key)


def _makes_a_float(steps: list[Any], at: int, first: int, above: int) -> bool:
    """Whether the operator at this place, of the number that `first` loads and another, gives a float whatever the number is."""
    step = steps[at]
    if step.argrepr in ("/", "/="):
        return True
    other = _other(steps, at, first, above)
    return bool(other.opname == "LOAD_CONST" and isinstance(other.argval, float))


def _other(steps: list[Any], at: int, first: int, above: int) -> Any:
    """What loads the other operand."""
    return steps[at - 1] if above else steps[first - 2] if steps[first].opname == "LOAD_ATTR" else steps[first - 1]


def _is_whole(step: Any) -> bool:
    return step.opname == "LOAD_CONST" and type(step.argval) is int


def _is_made_here(steps: list[Any], load: Any) -> bool:
    """Whether a local variable has what the call makes, which is no place that anybody knows."""
    made = (step for before, step in zip(steps, steps[1:]) if step.opname == "STORE_FAST" and before.opname.startswith(("BUILD_", "CALL")))
    return load.opname == "LOAD_FAST" and any(step.argval == load.argval for step in made)


def _becomes_as_local(code: types.CodeType, name: str, sites: list[int]) -> int:
    loads = (index for index, load in enumerate(steps_of(code)) if load.opname == "LOAD_FAST" and load.argval == name)
    return max((_becomes(code, index, sites, of_local=True) for index in loads), default=_PUT)


def _has_spec(step: Any) -> bool:
    return bool(step.opname == "FORMAT_WITH_SPEC" or step.opname == "FORMAT_VALUE" and step.arg & 4)


def _becomes(code: types.CodeType, first: int, sites: list[int], of_local: bool = False, begin: int = 0) -> int:
    """Follows the number that the step with this index loads, from `begin` on: how many values lie above it. `sites`: gets the operators that are
    given it."""
    steps, above, is_moved, stored = steps_of(code), 0, False, _KEPT
    for at in range(begin or first + 1, min(len(steps), first + 40)):
        step, name = steps[at], steps[at].opname
        if name in _OTHERS:
            above += 1
        elif name in ("LOAD_ATTR", "LOAD_METHOD") and above > 0:
            continue
        elif name == "CALL" and above > step.arg:  # of a value that lies above, as len(x)
            above -= step.arg
        elif name in _FORMATS and (above == 0 or above == 1 and _has_spec(step)):
            return _TOLD
        elif _is_subscript(step) and above >= 2 or name == "COMPARE_OP" and above >= 2:
            above -= 1
        elif name == "COMPARE_OP":
            if above == 0 and not _is_whole(_other(steps, at, first, above)):
                sites.append(step.offset)
            return _TOLD
        elif name == "IS_OP" and above == 1 and steps[at - 1].opname == "LOAD_CONST" and steps[at - 1].argval is None:
            return _TOLD
        elif name == "BINARY_OP":
            if above < 2:
                # A number on the left tells by its own method, and one on the right of a whole number does.
                if (above == 0 or is_moved) and not _is_whole(_other(steps, at, first, above)):
                    sites.append(step.offset)
                if _makes_a_float(steps, at, first, above):
                    return _FLOAT
            stored = stored if above >= 2 else _PUT
            above = max(0, above - 1)
        elif above == 0 and (name == "DUP_TOP" and steps[at + 1].opname != "ROT_THREE" or name == "COPY" and step.arg == 1):
            # `n or 1`, which may be n, and patterns; of `(m := n)` and `m = k = n` each variable is a use.
            if of_local or steps[at + 1].opname != "STORE_FAST":
                return _OTHER
            return max(_becomes_as_local(code, steps[at + 1].argval, sites), _becomes(code, first, sites, begin=at + 2))
        elif name in _MOVES:
            is_moved = True
        elif name in _STORES:
            is_new = step.argval in code.co_cellvars if name == "STORE_DEREF" else name == "STORE_ATTR" and _is_made_here(steps, steps[at - 1])
            return _OTHER if is_new else stored
        elif name == "STORE_SUBSCR":  # with nothing above, it is the index
            return stored if (above >= 2 or is_moved) and not _is_made_here(steps, steps[at - 2]) else _OTHER
        elif name == "STORE_FAST" and above == 0 and not of_local:
            uses = _becomes_as_local(code, step.argval, sites)
            return stored if uses == _KEPT else uses
        elif not (name.startswith("UNARY_") and name != "UNARY_NOT"):
            return _TOLD if above == 0 and name.startswith(_JUMPS) and not name.endswith("OR_POP") else _OTHER
    return _OTHER
