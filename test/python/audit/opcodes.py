"""The table of instructions: what each takes from the value stack, what it uses, and what the entries that it leaves have for sources.

A row is a pair of counts for those that move, drop or make; else a function of the frame, the instruction and the values on the stack. It gives how
many entries are taken, and the sources of those that follow: None, a Place, CHILD, NEW, or a function of the value. An instruction without a row
ends the audit.
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from overdrive._guards import is_number

import lookups
from calls import call_function, has
from lookups import CHILD, NEW, in_class, is_python, see_class
from places import MISSING, End, is_iterator
from value_stack import NULL

_NEW_CALLS = sys.version_info >= (3, 12)
# Takes, gives; nothing is used, and what comes is new or none of the program's.
MOVES = {"POP_TOP": (1, 0), "PUSH_NULL": (0, 1), "NOP": (0, 0), "RESUME": (0, 0), "CACHE": (0, 0), "LOAD_CONST": (0, 1), "JUMP_FORWARD": (0, 0),
         "JUMP_BACKWARD": (0, 0), "JUMP_BACKWARD_NO_INTERRUPT": (0, 0), "COPY_FREE_VARS": (0, 0), "LOAD_BUILD_CLASS": (0, 1), "LOAD_ASSERTION_ERROR": (0, 1),
         "SETUP_ANNOTATIONS": (0, 0), "POP_EXCEPT": (1, 0), "RERAISE": (1, 0), "MAKE_CELL": (0, 0), "RETURN_GENERATOR": (0, 1), "DELETE_FAST": (0, 0),
         "DELETE_NAME": (0, 0), "END_FOR": (1, 0), "LOAD_LOCALS": (0, 1), "RETURN_CONST": (0, 0), "CHECK_EXC_MATCH": (1, 1), "WITH_EXCEPT_START": (0, 1)}
ROWS: dict[str, Callable[..., Any]] = {}


def _row(*names: str) -> Callable[..., Any]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        ROWS.update(dict.fromkeys(names, function))
        return function
    return add


def _names(step: Any) -> tuple[str, ...]:
    return step.argval if isinstance(step.argval, tuple) else (step.argval,)


# --- variables


@_row("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST")
def _load_fast(frame: Any, step: Any, values: list[Any]) -> Any:
    return 0, [frame.variables.get(name) for name in _names(step)]


@_row("LOAD_FAST_AND_CLEAR")
def _load_and_clear(frame: Any, step: Any, values: list[Any]) -> Any:
    return 0, [frame.variables.pop(step.argval, None)]


@_row("STORE_FAST", "STORE_FAST_STORE_FAST")
def _store_fast(frame: Any, step: Any, values: list[Any]) -> Any:
    names = _names(step)
    for at, name in enumerate(names, 1):
        frame.variables[name] = frame.sources[-at]
    return len(names), []


@_row("STORE_FAST_LOAD_FAST")
def _store_and_load(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.variables[step.argval[0]] = frame.sources[-1]
    return 1, [frame.variables.get(step.argval[1])]


@_row("LOAD_CLOSURE")
def _load_closure(frame: Any, step: Any, values: list[Any]) -> Any:
    return 0, [None]


@_row("LOAD_DEREF", "LOAD_CLASSDEREF")
def _load_deref(frame: Any, step: Any, values: list[Any]) -> Any:
    cell = frame.stack.slot(step.arg)
    return 0, [frame.call.source("cell", cell, None, _content(cell), frame.frame.f_globals)]


@_row("LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS")
def _load_from_either(frame: Any, step: Any, values: list[Any]) -> Any:
    return 1, [None if step.argval in values[-1] else _global(frame, step.argval) if "GLOBALS" in step.opname else
               frame.call.source("cell", frame.stack.slot(step.arg), None, _content(frame.stack.slot(step.arg)), frame.frame.f_globals)]


@_row("STORE_DEREF", "DELETE_DEREF")
def _store_deref(frame: Any, step: Any, values: list[Any]) -> Any:
    cell = frame.stack.slot(step.arg)
    stores = step.opname == "STORE_DEREF"
    frame.call.write("cell", cell, None, values[-1] if stores else MISSING, frame.sources[-1] if stores else None, _content(cell))
    return int(stores), []


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _global(frame: Any, name: str) -> Any:
    variables, builtins = frame.frame.f_globals, frame.frame.f_builtins
    if name in variables:
        return frame.call.source("entry", variables, name, variables[name])
    frame.call.see("absent", variables, name, MISSING)
    return frame.call.source("entry", builtins, name, builtins.get(name, MISSING))


@_row("LOAD_GLOBAL")
def _load_global(frame: Any, step: Any, values: list[Any]) -> Any:
    found = _global(frame, step.argval)
    if not step.arg & 1:
        return 0, [found]
    return 0, [found, None] if sys.version_info >= (3, 13) else [None, found]


@_row("LOAD_NAME")
def _load_name(frame: Any, step: Any, values: list[Any]) -> Any:
    names = frame.frame.f_locals
    if names is not frame.frame.f_globals and step.argval in names:
        return 0, [None]
    return 0, [_global(frame, step.argval)]


@_row("STORE_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
def _store_name(frame: Any, step: Any, values: list[Any]) -> Any:
    variables, stores = frame.frame.f_globals, step.opname != "DELETE_GLOBAL"
    if step.opname == "STORE_NAME" and frame.frame.f_locals is not variables:
        frame.call.use(frame.sources[-1])
    else:
        frame.call.write("entry", variables, step.argval, values[-1] if stores else MISSING, frame.sources[-1] if stores else None,
                         variables.get(step.argval, MISSING))
    return int(stores), []


# --- attributes and items


@_row("LOAD_ATTR", "LOAD_METHOD")
def _load_attr(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.call.use(frame.sources[-1])
    found = lookups.attribute(frame.call, values[-1], step.argval)
    if step.opname == "LOAD_METHOD" or _NEW_CALLS and step.arg & 1:
        # The function and the object, or what an attribute gave, and nothing.
        return 1, [found if found is not NEW else None, None] if _NEW_CALLS else (lambda after: [None, found if after[0] is NULL else None])
    return 1, [found]


@_row("LOAD_SUPER_ATTR")
def _load_super(frame: Any, step: Any, values: list[Any]) -> Any:
    for source in frame.sources[-3:]:
        frame.call.use(source)
    found = lookups.attribute(frame.call, super(values[-2], values[-1]), step.argval)
    return 3, [found if found is CHILD else None, None] if step.arg & 1 else [found]


@_row("STORE_ATTR")
def _store_attr(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.call.use(frame.sources[-1])
    lookups.store(frame.call, values[-1], step.argval, values[-2], frame.sources[-2])
    return 2, []


@_row("DELETE_ATTR")
def _delete_attr(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.call.use(frame.sources[-1])
    lookups.store(frame.call, values[-1], step.argval, MISSING, None)
    return 1, []


@_row("BINARY_SUBSCR")
def _subscript(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.call.use(frame.sources[-2])
    return 2, [lookups.item(frame.call, values[-2], values[-1], frame.sources[-1])]


@_row("STORE_SUBSCR")
def _store_subscript(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.call.use(frame.sources[-2])
    lookups.store_item(frame.call, values[-2], values[-1], values[-3], frame.sources[-3], frame.sources[-1])
    return 3, []


@_row("DELETE_SUBSCR")
def _delete_subscript(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.call.use(frame.sources[-2])
    lookups.store_item(frame.call, values[-2], values[-1], MISSING, None, frame.sources[-1])
    if isinstance(values[-2], dict):
        frame.call.written_whole(values[-2])
    return 2, []


@_row("BINARY_SLICE", "STORE_SLICE")
def _slice(frame: Any, step: Any, values: list[Any]) -> Any:
    for value, source in zip(values[-4 if step.opname == "STORE_SLICE" else -3:], frame.sources[-4 if step.opname == "STORE_SLICE" else -3:]):
        frame.call.deep(value, source)
    if step.opname == "STORE_SLICE":
        frame.call.written_whole(values[-3])
        return 4, []
    return 3, [NEW]


@_row("IMPORT_NAME")
def _import_name(frame: Any, step: Any, values: list[Any]) -> Any:
    modules = sys.modules
    return 2, [frame.call.source("entry", modules, step.argval, modules.get(step.argval, MISSING))]


@_row("IMPORT_FROM")
def _import_from(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.call.use(frame.sources[-1])
    return 0, [lookups.attribute(frame.call, values[-1], step.argval)]


# --- what is computed


@_row("BINARY_OP", "COMPARE_OP")
def _operator(frame: Any, step: Any, values: list[Any]) -> Any:
    call, left, right = frame.call, values[-2], values[-1]
    for value, source in ((left, frame.sources[-2]), (right, frame.sources[-1])):
        call.deep(value, source)
    name = step.argrepr.removeprefix("bool(").removesuffix(")")
    if step.opname == "BINARY_OP" and name.endswith("=") and not is_number(left) and not isinstance(left, (torch.Tensor, tuple)):
        if isinstance(left, (list, dict, set)) or type(left).__name__ in ("deque", "ndarray", "bytearray", "array"):
            call.written_whole(left)
            return 2, [None]
    return 2, [_new_unless(frame, left, right)]


def _new_unless(frame: Any, *given: Any) -> Callable[[Any], Any]:
    def made(result: Any) -> Any:
        if frame.is_of_child(result):
            return frame.of_child(result)
        return None if any(result is value for value in given) else frame.call.make(result)
    return made


@_row("IS_OP")
def _is(frame: Any, step: Any, values: list[Any]) -> Any:
    _use(frame, 2)
    return 2, [None]


@_row("CONTAINS_OP")
def _contains(frame: Any, step: Any, values: list[Any]) -> Any:
    call, value, inside = frame.call, values[-2], values[-1]
    call.deep(value, frame.sources[-2])
    call.use(frame.sources[-1])
    if isinstance(inside, dict) and not is_python(type(inside), "__contains__") and _is_hashable(value):
        has(call, inside, value)
    else:
        call.deep(inside)
    return 2, [CHILD]


def _is_hashable(value: Any) -> bool:
    return not isinstance(value, (list, dict, set))


@_row("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT")
def _unary(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.call.deep(values[-1], frame.sources[-1])
    return 1, [_new_unless(frame, values[-1])]


@_row("UNARY_NOT", "TO_BOOL")
def _not(frame: Any, step: Any, values: list[Any]) -> Any:
    truth(frame, values[-1], frame.sources[-1])
    return 1, [None]


@_row("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE",
      "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def _branch(frame: Any, step: Any, values: list[Any]) -> Any:
    source = frame.sources[-1]
    truth(frame, values[-1], source)
    if step.opname.endswith("OR_POP"):
        return lambda after: (0, []) if len(after) == len(values) else (1, [])
    return 1, []


@_row("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE")
def _branch_none(frame: Any, step: Any, values: list[Any]) -> Any:
    _use(frame, 1)
    return 1, []


def truth(frame: Any, value: Any, source: Any) -> None:
    call = frame.call
    call.use(source)
    if isinstance(value, (list, dict, set)) or type(value).__name__ == "deque":
        if not is_python(type(value), "__bool__") and not is_python(type(value), "__len__"):
            call.size(value)
    elif type(value).__flags__ & 1 << 9 and not isinstance(value, (torch.Tensor, type)):
        for name in ("__bool__", "__len__"):
            found, owner, below = in_class(type(value), name)
            if not call.is_fresh(value):
                call.see("class", value, None, type(value))
            see_class(call, type(value), name, owner, below)
            if found is not MISSING:
                break


def _use(frame: Any, count: int) -> None:
    for source in frame.sources[-count:] if count else ():
        frame.call.use(source)


# --- containers


@_row("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET")
def _build(frame: Any, step: Any, values: list[Any]) -> Any:
    count = step.arg
    sources = frame.sources[len(frame.sources) - count:]
    if step.opname == "BUILD_SET":
        _use(frame, count)

    def made(result: Any) -> None:
        if result != () or type(result) is not tuple:
            frame.call.make(result)
        for index, source in enumerate(sources):
            if source is not None:
                frame.call.write("item", result, index, None, source)
    return count, [made]


@_row("BUILD_MAP", "BUILD_CONST_KEY_MAP")
def _build_map(frame: Any, step: Any, values: list[Any]) -> Any:
    count = step.arg
    if step.opname == "BUILD_MAP":
        keys, items, taken = values[len(values) - 2 * count::2], frame.sources[len(values) - 2 * count + 1::2], 2 * count
        for source in frame.sources[len(values) - 2 * count::2]:
            frame.call.use(source)
    else:
        keys, items, taken = values[-1], frame.sources[len(values) - 1 - count:-1], count + 1

    def made(result: Any) -> None:
        frame.call.make(result)
        for key, source in zip(keys, items):
            if source is not None:
                frame.call.write("entry", result, key, None, source)
    return taken, [made]


@_row("BUILD_STRING", "BUILD_SLICE")
def _build_of_numbers(frame: Any, step: Any, values: list[Any]) -> Any:
    for value, source in zip(values[len(values) - step.arg:], frame.sources[len(values) - step.arg:]):
        frame.call.deep(value, source)
    return step.arg, [None]


@_row("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE")
def _format(frame: Any, step: Any, values: list[Any]) -> Any:
    count = 2 if step.opname == "FORMAT_WITH_SPEC" or step.opname == "FORMAT_VALUE" and step.arg & 4 else 1
    for value, source in zip(values[-count:], frame.sources[-count:]):
        frame.call.deep(value, source)
    return count, [None]


@_row("LIST_APPEND", "SET_ADD")
def _append(frame: Any, step: Any, values: list[Any]) -> Any:
    container, source = values[-1 - step.arg], frame.sources[-1]
    if step.opname == "LIST_APPEND" and source is not None:
        frame.call.write("item", container, len(container), values[-1], source)
    else:
        frame.call.use(source)
    return 1, []


@_row("MAP_ADD")
def _map_add(frame: Any, step: Any, values: list[Any]) -> Any:
    _use(frame, 2)
    return 2, []


@_row("LIST_EXTEND", "SET_UPDATE", "DICT_MERGE", "DICT_UPDATE")
def _extend(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.call.use(frame.sources[-1])
    iterate(frame, values[-1])
    return 1, []


@_row("LIST_TO_TUPLE")
def _to_tuple(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.call.shallow(values[-1])
    return 1, [NEW]


@_row("UNPACK_SEQUENCE", "UNPACK_EX")
def _unpack(frame: Any, step: Any, values: list[Any]) -> Any:
    value, call = values[-1], frame.call
    call.use(frame.sources[-1])
    if step.opname == "UNPACK_SEQUENCE" and type(value) in (tuple, list):
        if type(value) is list:
            call.size(value)
        if type(value) is list or call.is_fresh(value):
            return 1, [call.source("item", value, index, value[index]) for index in reversed(range(len(value)))]
        return 1, [None] * len(value)
    iterate(frame, value)
    # Of UNPACK_EX one entry is a list that gathers the rest; the upper ones come first.
    rest = (step.arg >> 8) if step.opname == "UNPACK_EX" else -1
    return lambda after: (1, [NEW if index == rest else None for index in range(len(after) - len(values) + 1)])


def iterate(frame: Any, value: Any) -> None:
    call = frame.call
    if is_python(type(value), "__iter__") and type(value).__flags__ & 1 << 9:
        see_class(call, type(value), "__iter__", *in_class(type(value), "__iter__")[1:])
    elif is_iterator(value):
        call.iterator(value)
    elif type(value).__flags__ & 1 << 9 and in_class(type(value), "__iter__")[0] is MISSING:
        pass  # by __getitem__()
    else:
        call.shallow(value)


@_row("GET_ITER", "GET_YIELD_FROM_ITER", "GET_AITER")
def _get_iter(frame: Any, step: Any, values: list[Any]) -> Any:
    value = values[-1]
    frame.call.use(frame.sources[-1])
    iterate(frame, value)
    return 1, [_new_unless(frame, value)]


@_row("FOR_ITER")
def _for_iter(frame: Any, step: Any, values: list[Any]) -> Any:
    def after(values_after: list[Any]) -> Any:
        more = len(values_after) - len(values)
        return (0, [CHILD]) if more == 1 else (-more, []) if more <= 0 else (0, [None] * more)
    return after


@_row("GET_LEN", "MATCH_MAPPING", "MATCH_SEQUENCE")
def _look_at(frame: Any, step: Any, values: list[Any]) -> Any:
    if step.opname == "GET_LEN":
        truth(frame, values[-1], frame.sources[-1])
    _use(frame, 1)
    return 0, [None]


@_row("MATCH_KEYS")
def _match_keys(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.call.deep(values[-2], frame.sources[-2])
    return 0, [NEW]


@_row("MATCH_CLASS")
def _match_class(frame: Any, step: Any, values: list[Any]) -> Any:
    _use(frame, 3)
    value, kind, names = values[-3], values[-2], values[-1]
    positional = getattr(kind, "__match_args__", ())[:step.arg]
    if isinstance(value, kind):
        for name in (*positional, *names):
            frame.call.use(lookups.attribute(frame.call, value, name))
    return 3, [None]


# --- calls


@_row("KW_NAMES")
def _kw_names(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.keyword_names = step.argval if isinstance(step.argval, tuple) else frame.frame.f_code.co_consts[step.arg]
    return 0, []


@_row("PRECALL")
def _precall(frame: Any, step: Any, values: list[Any]) -> Any:
    """A method becomes its function and its object."""
    taken = step.arg + 2
    if values[-taken] is NULL:
        frame.call.use(frame.sources[1 - taken])
    return taken, [None, None, *frame.sources[len(frame.sources) - step.arg:]] if values[-taken] is NULL else frame.sources[-taken:]


@_row("CALL", "CALL_KW")
def _call(frame: Any, step: Any, values: list[Any]) -> Any:
    count, names = step.arg, frame.keyword_names
    frame.keyword_names = ()
    taken = count + 2
    if step.opname == "CALL_KW":
        names, taken = values[-1], taken + 1
        values = values[:-1]
    at = len(values) - count - 2
    first, second = values[at], values[at + 1]
    args = list(zip(values[at + 2:], frame.sources[at + 2:at + 2 + count]))
    if _NEW_CALLS:
        function, source = first, frame.sources[at]
        bound = [] if second is NULL else [(second, frame.sources[at + 1])]
    else:
        function, source = (second, frame.sources[at + 1]) if first is NULL else (first, frame.sources[at])
        bound = [] if first is NULL else [(second, frame.sources[at + 1])]
    frame.call.use(source)
    keywords = dict(zip(names, args[len(args) - len(names):])) if names else {}
    args = bound + (args[:len(args) - len(names)] if names else args)
    frame.operands = [*args, *keywords.values()]
    return taken, [call_function(frame.call, frame, function, args, keywords)]


@_row("CALL_FUNCTION_EX")
def _call_ex(frame: Any, step: Any, values: list[Any]) -> Any:
    call, named = frame.call, bool(step.arg & 1)
    at = -3 if named else -2
    given, keywords = values[at + 1], values[-1] if named else {}
    call.use(frame.sources[at])
    if type(given) is not tuple:
        call.deep(given)
        given = list(given) if not is_iterator(given) else None
    if given is None:
        raise End("f(*iterator)")
    args = [(value, call.source("item", values[at + 1], index, value) if call.is_fresh(values[at + 1]) else None) for index, value in enumerate(given)]
    if not isinstance(keywords, dict):
        raise End("f(**mapping)")
    by_name = {key: (value, call.source("entry", keywords, key, value)) for key, value in keywords.items()}
    return -at + 1, [call_function(call, frame, values[at], args, by_name)]


@_row("MAKE_FUNCTION")
def _make_function(frame: Any, step: Any, values: list[Any]) -> Any:
    count = 1 + (0 if sys.version_info >= (3, 13) else bin(step.arg).count("1"))
    for value, source in zip(values[-count:], frame.sources[-count:]):
        frame.call.use(source)
        if isinstance(value, (tuple, dict)) and frame.call.is_fresh(value):
            frame.call.deep(value)
    return count, [NEW]


@_row("SET_FUNCTION_ATTRIBUTE")
def _set_function(frame: Any, step: Any, values: list[Any]) -> Any:
    if frame.call.is_fresh(values[-2]):
        frame.call.deep(values[-2])
    return 2, [None]


@_row("CALL_INTRINSIC_1", "CALL_INTRINSIC_2")
def _intrinsic(frame: Any, step: Any, values: list[Any]) -> Any:
    count = int(step.opname[-1])
    for value, source in zip(values[-count:], frame.sources[-count:]):
        frame.call.deep(value, source)
    return count, [NEW]


@_row("RETURN_VALUE")
def _return(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.returned = frame.sources[-1]
    if frame.is_root:
        frame.call.deep(values[-1], frame.sources[-1])
    return 1, []


@_row("YIELD_VALUE", "SEND")
def _yield(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.call.deep(values[-1], frame.sources[-1])
    if step.opname == "SEND":
        return lambda after: (2 if len(after) < len(values) else 1, [CHILD] if len(after) <= len(values) else [None] * (len(after) - len(values) + 1))
    return 1, [None]


@_row("END_SEND")
def _end_send(frame: Any, step: Any, values: list[Any]) -> Any:
    return 2, [frame.sources[-1]]


# --- with, errors, the stack itself


@_row("BEFORE_WITH")
def _with(frame: Any, step: Any, values: list[Any]) -> Any:
    frame.call.use(frame.sources[-1])
    value = values[-1]
    for name in ("__enter__", "__exit__"):
        found, owner, below = in_class(type(value), name)
        see_class(frame.call, type(value), name, owner, below)
    if not call_is_known(value):
        raise End(f"with an object of {type(value).__module__}.{type(value).__name__}")
    return 1, [NEW, CHILD]


def call_is_known(value: Any) -> bool:
    kind = type(value)
    return is_python(kind, "__enter__") or kind.__module__.partition(".")[0] in ("torch", "pybind11_builtins", "contextlib") or kind.__name__ in (
        "lock", "RLock", "TextIOWrapper", "catch_warnings", "nullcontext", "Context", "_io")


@_row("PUSH_EXC_INFO")
def _push_error(frame: Any, step: Any, values: list[Any]) -> Any:
    return 1, [None, None]


@_row("RAISE_VARARGS")
def _raise(frame: Any, step: Any, values: list[Any]) -> Any:
    _use(frame, step.arg)
    return step.arg, []


@_row("COPY")
def _copy(frame: Any, step: Any, values: list[Any]) -> Any:
    return 0, [frame.sources[-step.arg]]


@_row("SWAP")
def _swap(frame: Any, step: Any, values: list[Any]) -> Any:
    sources = frame.sources[len(frame.sources) - step.arg:]
    sources[0], sources[-1] = sources[-1], sources[0]
    return step.arg, sources
