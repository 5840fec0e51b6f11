"""Which values of the program a captured function read.

A walk goes from the globals and closures that the code names to what they hold: numbers, containers, objects and
modules. Of objects it follows the attributes alone that the code names, so that a counter that the function does not read is
no guard.
"""
from __future__ import annotations

import collections
import copy
import functools
import gc
import io
import operator
import os
import sys
import threading
import types
import typing
import weakref
from collections.abc import Collection, Iterable
from typing import Any

import torch

from overdrive.reads.code import Met, Watcher
from overdrive.reads.finds import METHODS, dict_of
from overdrive.reads.optimizers import is_of_the_program
from overdrive.reads.walk_classes import MOST_ITEMS
from overdrive.reads.walk_containers import Containers
from overdrive.reads.walk_names import KnownNames
from overdrive.reads.walk_notes import Notes
from overdrive.reads.walk_objects import CACHED
from overdrive.reads.walk_places import NOT_FOLLOWED
from overdrive.values.modules import is_scripted
from overdrive.values.read import ANSWER, CELL, CONTENTS
from overdrive.values.same import has_attributes, is_all_numbers, is_array, is_number, items_of

SCRIPTED = ("A module that torch.jit.script() or torch.jit.trace() made keeps its parameters and flags where no guard looks; call the module "
            "that it was made of.")
# Functions that code which is not known to run may lead to: from a cached function to those that it calls.
_MOST_ASSUMED = 3
# Of a walk: what grows when it goes on.
_GROWS = ("reads", "of_torch", "modules", "refusals", "leaves", "generators", "_later", "_seen", "_named", "_codes", "_attributes", "_nn_attributes",
          "_standard_attributes", "_strings", "_values", "_whole", "_assumed", "_optional", "_asked", "_asked_of_self", "_functions",
          "_opened", "_all_globals", "_in_classes", "_of_owner", "_of_own_object", "_not_in_classes", "_names_of_kind", "_asked_of_kind",
          "_torchs_functions")
# What is looked at otherwise than by its attributes. One of a class of the program's has these, too.
_NOT_BY_ATTRIBUTES = (dict, list, tuple, set, frozenset, collections.deque, types.ModuleType, weakref.ref, io.IOBase)
# Slots of C that take any attribute of what they are given.
_NAMERS = (*METHODS, "__get__")
_GETTERS = (operator.attrgetter, operator.methodcaller)
# Of a class that is generic with what stands in its brackets.
_ALIASES: Any = (types.GenericAlias, type(typing.Iterable[int]))
_LOCK = type(threading.Lock())
# What goes through a dict.
_DICTS: tuple[dict[Any, Any], ...] = {}, collections.OrderedDict()
_VIEWS = tuple(type(view) for each in _DICTS for view in (each.keys(), each.values(), each.items()))
# Functions that Python makes, calls and drops: nothing leads to them, and a search of the whole heap would find none.
_OF_ONE_LINE = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")


class Walk(Containers):
    """From the code that ran to the values that it read: ``reads``, and ``modules`` that it met."""

    def __init__(self, watcher: Watcher, left: Collection[tuple[int, int, Any]], own: Collection[tuple[int, int, Any]],
                 known: KnownNames | None) -> None:
        super().__init__(watcher, left, own)
        self._begin(known)

    def lasting(self, function: Any, roots: Iterable[Any]) -> None:
        """The captured function, whatever makes it callable, and modules: what stays as long as no value changes."""
        self._into(function, getattr(function, "__name__", type(function).__name__), "", 0)
        self._objects(roots)
        self._torchs({})

    def of_one_call(self, met: Met, found: Iterable[Any]) -> Walk:
        """A walk that goes on from this one to what may be of one call alone. This one lets go of it, and is made once for many calls."""
        walk = copy.copy(self)
        for name in _GROWS:
            setattr(walk, name, copy.copy(getattr(self, name)))
        walk._is_of_one_call, walk._own, walk._own_containers, walk.notes, walk._in_kinds = True, (), set(), Notes(), {}
        walk._before, walk._names_before = {**self.of_torch, **self.reads}, len(self._names_of_torch())
        for follow in self._later.values():
            follow(walk)
        walk._look_again()
        walk._closures(met)
        walk._objects(found)
        walk._torchs(self.modules)
        for place, read in walk.of_torch.items():
            walk.reads.setdefault(place, read)
        return walk

    def take_names(self, later: Walk) -> None:
        """Names of attributes that are values in what was of one call: other calls will have them, too."""
        ours, theirs = ((walk._attributes, walk._nn_attributes, walk._standard_attributes) for walk in (self, later))
        if any(len(a) < len(b) for a, b in zip(ours, theirs)):
            self._take_known(KnownNames(theirs, {}))
            self._looks_again = True
            self._look_again()
            self._torchs({})

    def has_met(self, value: Any) -> bool:
        return self._seen.get(id(value)) is value

    def keeps(self) -> list[Any]:
        """Where it has what it has met."""
        return [self._seen, *self.notes.keeps()]

    def attributes_met(self) -> list[tuple[dict[str, Any], str]]:
        """Of objects that names lead to."""
        return [(entries, name) for value, name, _, _ in self._named.values() if not isinstance(value, (type, types.ModuleType, types.FunctionType))
                and (entries := dict_of(value)) is not None]

    def _objects(self, values: Iterable[Any]) -> None:
        for value in values:
            self._into(value, type(value).__name__, "", 1)
        self._look_again()

    def _closures(self, met: Met) -> None:
        """Functions that ran, that no name leads to, and that an earlier run had, too."""
        missing = [code for code in self._codes - self._functions if set(code.co_freevars) - {"__class__"} and code.co_name not in _OF_ONE_LINE]
        for function in met.functions(missing):
            self._into(function, function.__name__, "", 1)
        self._look_again()

    def _look_again(self) -> None:
        while self._looks_again:
            self._looks_again = False
            for known in (self._in_classes, self._of_owner, self._of_own_object, self._not_in_classes, self._names_of_kind, self._asked_of_kind,
                          self._torchs_functions):
                known.clear()
            self._names_of_modules = None
            for value, name, where, depth in list(self._named.values()):
                if isinstance(value, torch.nn.Module):
                    self._module(value, name, depth)
                else:
                    self._look(value, name, where, depth)

    def _look(self, value: Any, name: str, where: str, depth: int) -> None:
        kind = type(value)
        if id(value) in self._own_containers:
            self._postpone(value, lambda walk: walk._look(value, name, where, depth))
        elif kind is types.FunctionType:
            self._function(value, name, depth)
            return
        elif kind is type:
            self._object(value, name, where, depth)
            return
        elif kind in weakref.ProxyTypes:
            self._postpone(value, lambda walk: walk._behind_proxy(value, name, where, depth))
        elif isinstance(value, torch.Tensor):
            self._tensor(value, name, depth)
        elif kind is _LOCK or kind.__module__ == "_multiprocessing":
            question = value.locked if kind is _LOCK else value._get_value
            self._read(ANSWER, question, None, f"{name}.{question.__name__}()", where, NOT_FOLLOWED)
        elif isinstance(value, torch.nn.Module):
            for module in value.modules():
                self._seen[id(module)] = module
                if is_scripted(module):
                    self.refusals.append(SCRIPTED)
                    continue
                self._module(module, name if module is value else type(module).__name__, depth)
        elif isinstance(value, torch.optim.Optimizer):
            self._optimizer(value, name, depth)
            if is_of_the_program(value):
                self._object(value, name, where, depth)
        elif kind is types.MethodType:
            self._into(value.__self__, name.rpartition(".")[0] or "self", where, depth + 1)
            self._into(value.__func__, name, where, depth + 1)
        elif kind is types.WrapperDescriptorType:
            if value.__name__ in _NAMERS:
                self._refuse_namer(value, name)
        elif kind is types.BuiltinFunctionType:
            self._c_function(value, name, where, depth)
        elif kind is types.MethodWrapperType:
            if value.__name__ in METHODS:
                self._found.note_object(value.__self__, "", where)
            elif value.__name__ in _NAMERS:
                self._refuse_namer(value, name)
            self._into(value.__self__, name.rpartition(".")[0] or name, where, depth + 1)
        elif kind in _VIEWS:
            self._into(next(each for each in gc.get_referents(value) if isinstance(each, dict)), name, where, depth + 1)
        elif isinstance(value, _ALIASES):
            self._into(value.__origin__, name, where, depth + 1)
            self._object(value, name, where, depth)
        elif kind in _GETTERS:
            for text in value.__reduce__()[1]:
                for part in text.split(".") if isinstance(text, str) else ():
                    self._note_attribute(part, where)
        elif value is os.environ:
            self._dict(vars(value)["_data"], "os.environ", where, depth)
        elif value is sys.modules:
            return  # its keys are written in the code (reads/names.py)
        elif kind is CACHED:
            self._assume(value.__wrapped__, name, _MOST_ASSUMED, depth)
            self._entries(vars(value), self._attributes, name, depth)
            self._postpone(value, lambda walk: walk._behind_cache(value, name, where, depth))
        elif kind is functools.partial:
            for part in ("func", "args", "keywords"):
                self.notes.attribute(value, part)
            for part in (value.func, value.args, value.keywords):
                self._into(part, name, where, depth + 1)
            self._same_dict(value, name)
            self._entries(value.__dict__, self._attributes, name, depth)
            self._whole_of(value.__dict__, (), self._found.pieces_of(value), name, depth)
            self._absent_in(value.__dict__).add_table(self._optional, name)
        elif is_number(value):
            self._object(value, name, where, depth)
        elif isinstance(value, dict):
            self._dict(value, name, where, depth)
        elif kind is types.MappingProxyType:
            self._into(gc.get_referents(value)[0], name, where, depth + 1)
        elif isinstance(value, list):
            self._list(value, name, where, depth)
        elif isinstance(value, tuple):
            items = items_of(value)
            if len(items) > MOST_ITEMS and not is_all_numbers(value):
                self._too_long(len(items), name)
            for index, item in enumerate(items[:MOST_ITEMS]):
                self._into(item, f"{name}[{index}]", where, depth + 1)
        elif isinstance(value, (set, frozenset, collections.deque)):
            if len(value) > MOST_ITEMS:
                self._too_long(len(value), name)
            else:
                self._read(CONTENTS, value, None, f"the content of {name}", where, depth)
        elif kind is types.CellType:
            self._read(CELL, value, None, f"{name}.cell_contents", where, depth)
        elif is_array(value):
            self._array(value, name, where, depth)
        else:
            self._object(value, name, where, depth)
        if (isinstance(value, _NOT_BY_ATTRIBUTES) or is_array(value)) and kind is not types.ModuleType and has_attributes(value):
            self._named[id(value)] = (value, name, where, depth)
            self._instance(value, name, depth)
