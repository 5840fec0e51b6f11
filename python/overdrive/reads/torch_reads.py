"""Of the Python of PyTorch and of Python's library: functions that a program may patch, and switches that are kept in variables.

The functions of a tensor have one guard together, and the others have one for each name that code which ran uses.
"""
from __future__ import annotations

import contextlib
import itertools
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from overdrive.reads.code import Watcher
from overdrive.reads.names import names_of
from overdrive.reads.walk_notes import Notes
from overdrive.values.read import ANSWER, ATTRIBUTE, CODE, ENTRY, NOTHING, SIZE, VALUES, Read, entries_of
from overdrive.values.same import is_number, is_setting, is_torchs

# Guards of PyTorch against classes of tensors, which nobody patches.
_OVERRIDES = ("has_torch_function", "handle_torch_function")
# Whose dicts are tables that a program adds to, as that of register_kl(), and no caches.
_WITH_TABLES = "torch.distributions"
# An optimizer's step() is an operator of its own in a recording, and is looked at as a whole.
_NOT_LOOKED_AT = ("torch.optim", "torch.amp")


def reads_of_torch(watcher: Watcher, names: Iterable[str], kinds: Iterable[type], with_code: bool, notes: Notes) -> Iterator[Read]:
    """``names``: attributes and operators that the program's code and PyTorch's use. ``kinds``: classes of modules. ``with_code``: also
    what the code that ran names."""
    # Of each module the names, and of all classes those, that are looked at already.
    known: dict[int, set[Any]] = {}
    seen: set[type] = set()
    for code, variables in {**watcher.standard_codes, **watcher.torch_codes, **watcher.nn_codes}.items() if with_code else ():
        # Optimizers and scalers keep numbers of their own, and their functions are as good as others to be replaced.
        numbers = not str(variables.get("__name__", "")).startswith(_NOT_LOOKED_AT)
        yield from _globals(code, variables, _may_change if numbers else _is_function, notes, known.setdefault(id(variables), set()))
    if with_code:
        yield from _of_tensors(names)
        yield from _answers(watcher.nn_codes)
        yield from _settings([*watcher.torch_codes, *watcher.nn_codes])
    all_names = set(names)
    ran = set(watcher.nn_codes) | {code for code, _ in watcher.codes}
    for kind in dict.fromkeys([*kinds, *(watcher.nn_kinds if with_code else ())]):
        if not kind.__module__.startswith(_NOT_LOOKED_AT):
            yield from _of_a_class(kind, ran, all_names, notes, seen)


def _globals(code: types.CodeType, variables: dict[str, Any], counts: Callable[[Any], bool], notes: Notes, known: set[Any]) -> Iterator[Read]:
    """Functions and numbers in variables of modules: ``F.linear``, ``linear`` and ``_cache_enabled``. ``known``: names that other code
    of the module has, too."""
    named = names_of(code)
    picked = []
    for name, where in named.globals.items():
        if name in known:
            continue
        known.add(name)
        value = variables.get(name)
        if type(value) is dict and str(variables.get("__name__")).startswith(_WITH_TABLES):
            yield Read(VALUES, value, None, f"the values of {variables.get('__name__')}.{name}", where)
        if not counts(value):
            picked.append(name)
        elif name in variables and not name.startswith(_OVERRIDES):
            yield Read(ENTRY, variables, name, f"{variables.get('__name__')}.{name}", where)
    notes.picked(variables, picked)
    for chain, where in named.chains.items():
        if chain in known:
            continue
        known.add(chain)
        entries, path = variables, str(variables.get("__name__"))
        for name, following in itertools.zip_longest(chain, chain[1:]):
            value = entries.get(name)
            if not counts(value):
                notes.picked(entries, (name,))
            elif entries is not variables:
                yield Read(ENTRY, entries, name, f"{path}.{name}", where)
            if following is not None and _is_the_programs(value):
                yield Read(ATTRIBUTE, value, following, f"{path}.{name}.{following}", where)
            if not isinstance(value, types.ModuleType):
                break
            entries, path = vars(value), value.__name__


def _may_change(value: Any) -> bool:
    """A function, whatever stands in its place, a module that has some, or a number."""
    return not is_setting(value) and (_is_function(value) or is_number(value))


def _is_function(value: Any) -> bool:
    return isinstance(value, types.ModuleType) or callable(value) and not isinstance(value, type) or _is_the_programs(value)


def _is_the_programs(value: Any) -> bool:
    """Whether it is a class, or an object of one, that neither PyTorch has nor Python."""
    module = (value if isinstance(value, type) else type(value)).__module__
    return not is_torchs(module) and str(module).partition(".")[0] not in sys.stdlib_module_names


def _answers(codes: Iterable[types.CodeType]) -> Iterator[Read]:
    """What the Python of torch.backends asks C for: the program may take it for a number."""
    for code in codes:
        for chain, where in names_of(code).chains.items() if f"{os.sep}backends{os.sep}" in code.co_filename else ():
            if chain[:2] == ("torch", "_C") and len(chain) == 3 and chain[2].startswith(("_get_", "_is_")):
                with contextlib.suppress(TypeError):  # it takes arguments
                    yield Read(ANSWER, getattr(torch._C, chain[2]), None, f"torch._C.{chain[2]}()", where)


def _settings(codes: Iterable[types.CodeType]) -> Iterator[Read]:
    """What a module of torch.backends has in its class or behind it, as opt_einsum.enabled, and the Python of PyTorch asks for."""
    modules = {name.rpartition(".")[2]: module for name, module in list(sys.modules.items())
               if name.startswith("torch.backends.") and type(module) is not types.ModuleType}
    asked = {(module, key): None for code in codes for short, module in modules.items() if short in code.co_names
             for key in code.co_names if is_number(getattr(module, key, NOTHING))}
    for module, key in asked:
        yield Read(ATTRIBUTE, module, key, f"{module.__name__}.{key}")


def _of_tensors(names: Iterable[str]) -> Iterator[Read]:
    """A function of the class in C is replaced by an entry in the class in Python, which then is larger. Their backward() calls another one."""
    entries = entries_of(torch.Tensor)
    yield Read(SIZE, entries, None, "the functions of torch.Tensor")
    yield Read(SIZE, torch.library._impls, None, "the kernels of torch.library")
    called = [name for name, value in entries.items() if name.startswith("__") and isinstance(value, types.FunctionType)]
    for name in dict.fromkeys((*names, *called)):
        if name in entries or hasattr(torch._C.TensorBase, name):
            yield Read(ENTRY, entries, name, f"torch.Tensor.{name}")
    yield Read(ENTRY, vars(torch.autograd), "backward", "torch.autograd.backward")


def _of_a_class(kind: type, ran: set[types.CodeType], names: set[str], notes: Notes, seen: set[type]) -> Iterator[Read]:
    """Functions that ran, and numbers and flags that stand in the class. ``seen``: classes that others have above them, too."""
    # Called without their names.
    called = {key for key in ("forward", "__call__") if hasattr(kind, key)}
    for each in kind.__mro__:
        entries = entries_of(each)
        for key in sorted(called) if each is not object else ():
            yield Read(ENTRY, entries, key, f"{each.__name__}.{key}")
        called -= entries.keys()
        if each in seen:
            continue
        seen.add(each)
        functions = []
        for key, value in list(entries.items()) if is_torchs(each.__module__) else ():
            code = getattr(getattr(value, "fget", None) or getattr(value, "__func__", value), "__code__", None)
            if code is not None:
                functions.append(key)
            if isinstance(value, types.FunctionType) and code in ran and not is_torchs(value.__module__ or ""):
                yield Read(CODE, value, None, f"the code of {each.__name__}.{key}()")
            if code in ran or key in names and is_number(value) and not key.startswith("__"):
                yield Read(ENTRY, entries, key, f"{each.__name__}.{key}")
        if is_torchs(each.__module__):
            notes.members(each, functions)
