"""Which values of the program a captured function read.

A walk goes from the globals and closures that the code names to what they hold: numbers, containers, objects and
modules. Of objects it follows the attributes alone that the code names, so that a counter that the function does not read is
no guard.
"""
from __future__ import annotations

import builtins
import collections
import contextlib
import contextvars
import copy
import dataclasses
import functools
import gc
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from typing import Any, NamedTuple

from overdrive._code import ASKS_A_LOGGER, Met, Watcher, is_standard, kind_of
from overdrive._guards import (ABSENT, ANSWER, ATTRIBUTE, BYTES, CELL, CODE, CONTENTS, CONTEXT, ENTRY, ITEM, KEYS, KIND, NOTHING, SIZE, Absent, Read,
                               entries_of, hooks_of, is_array, is_number, is_of_c, is_scripted)
from overdrive._names import Names, names_of
from overdrive._torch_reads import is_torchs, reads_of_torch
from overdrive._walk_notes import Notes

# Items of a container, and bytes of an array, that are looked at.
_MOST_ITEMS = 1024
_MOST_BYTES = 16 << 10
_DEEPEST = 32
# Functions of a class that no code names where it calls them.
_CALLED = ("forward", "__call__")
SCRIPTED = ("A module that torch.jit.script() or torch.jit.trace() made keeps its parameters and flags where no guard looks; call the module "
            "that it was made of.")
# How code gets at parameters without their names.
_REACH_PARAMETERS = {"parameters", "named_parameters", "param_groups", "_parameters"}
# Functions that code which is not known to run may lead to: from a cached function to those that it calls.
_MOST_ASSUMED = 3
_MOST_CACHED = 64
# Of Python's own library: objects that lead to others by attributes which the program does not name.
_LEADS_BY = ((collections.UserDict, "data"), (collections.UserList, "data"), (collections.ChainMap, "maps"),
             (weakref.WeakKeyDictionary, "data"), (weakref.WeakValueDictionary, "data"), (weakref.WeakSet, "data"))
# Modules whose objects no program changes: annotations and descriptions of fields.
_OF_NOBODY = ("dataclasses", "typing", "typing_extensions", "inspect")
# Of a walk: what grows when it goes on.
_GROWS = ("reads", "of_torch", "modules", "refusals", "leaves", "generators", "_later", "_seen", "_named", "_codes", "_attributes", "_nn_attributes",
          "_standard_attributes", "_strings", "_assumed", "_optional", "_asked", "_asked_of_self", "_whole", "_whole_of_self", "_functions",
          "_all_globals", "_in_classes", "_of_owner", "_of_own_object", "_not_in_classes", "_names_of_kind", "_asked_of_kind")
_CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)
_OF_LOGGERS = ("level", "disabled", "manager", "disable", "parent")
_OF_CLASSES_IN_C = (types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType,
                    types.MethodDescriptorType, types.ClassMethodDescriptorType)
_NO_FUNCTIONS = (types.FunctionType, str, int, float, bool, type(None), tuple, dict)
_CACHED = type(functools.lru_cache(int))
_LOCK = type(threading.Lock())
# Py_TPFLAGS_HEAPTYPE.
_MADE_IN_PYTHON = 1 << 9


class KnownNames(NamedTuple):
    """What an earlier walk has found out on its way, so that the next need not go the same way twice: attributes that values name, for
    the program's objects, PyTorch's and those of Python's library, and code that is assumed to have run."""

    attributes: tuple[dict[str, str], dict[str, str], dict[str, str]]
    assumed: dict[types.CodeType, dict[str, Any]]


class _Members(NamedTuple):
    """What one class has, apart from what C made: names, and the code of functions."""

    names: tuple[str, ...]
    codes: tuple[types.CodeType | None, ...]


class Walk:
    """From the code that ran to the values that it read: ``reads``, and ``modules`` that it met."""

    def __init__(self, watcher: Watcher, left: Collection[tuple[int, int, Any]], own: Collection[tuple[int, int, Any]],
                 known: KnownNames | None) -> None:
        import torch

        self._watcher = watcher
        # Places that the function gives what it makes: neither they nor what lies below are values that it reads.
        self._left = left
        # Places whose values the function changes. What lies below them is of one call.
        self._own = own
        self._own_containers = {holder for each, holder, _ in own if each in (SIZE, KEYS, CONTENTS, BYTES)}
        self.notes = Notes()
        # What is of one call: how it is followed.
        self._later: dict[Any, Callable[[Walk], None]] = {}
        self._is_of_one_call = False
        # Of the walk that this one goes on from, and how many names that had.
        self._before: dict[tuple[int, int, Any], Read] = {}
        self._names_before = 0
        # Values of PyTorch's own code, beside those that names lead to.
        self.of_torch: dict[tuple[int, int, Any], Read] = {}
        self.reads: dict[tuple[int, int, Any], Read] = {}
        self.modules: dict[Any, None] = {}
        self.refusals: list[str] = []
        # Tensors that the program names, whose gradients and flags the function may look at.
        self.leaves: dict[int, Any] = {}
        # Of NumPy, whose functions draw random numbers unseen.
        self.generators: list[Any] = []
        # Why a number may be another one later, though no value here has changed.
        self.unseen = ""
        self._seen: dict[int, Any] = {}
        # Objects of which only what the code names is looked at: again, when more code is known.
        self._looks_again = False
        self._named: dict[int, tuple[Any, str, str, int]] = {}
        self._codes = {code for code, _ in watcher.codes}
        # Code that is not known to have run, with its globals.
        self._assumed: dict[types.CodeType, dict[str, Any]] = {}
        self._attributes: dict[str, str] = {}
        self._nn_attributes: dict[str, str] = {}
        self._standard_attributes: dict[str, str] = {}
        self._strings: set[str] = set()
        # Attributes whose absence is a value.
        self._optional: dict[str, str] = {}
        # Of these, those of tensors and modules, of which there are many, and those that only methods ask of their own object.
        self._asked: dict[str, str] = {}
        self._asked_of_self: dict[types.CodeType, dict[str, str]] = {}
        # Parts of names of attributes that the code puts together; "": any name. Of any object, and of the methods' own.
        self._whole: dict[str, str] = {}
        self._whole_of_self: dict[types.CodeType, dict[str, str]] = {}
        self._by_strings, self._all_fields = "", ""
        self._goes_through = False
        self._functions: set[types.CodeType] = set()
        # What every class has, with the code of its functions.
        self._members: dict[type, _Members] = {}
        self._slots: dict[type, list[str]] = {}
        # What is found in a class, as long as no more code or names are known.
        self._in_classes: dict[type, dict[str, str]] = {}
        self._of_owner: dict[type, dict[str, str]] = {}
        self._of_own_object: dict[tuple[type, int], dict[str, str]] = {}
        self._not_in_classes: dict[tuple[type, int], dict[str, str]] = {}
        self._names_of_kind: dict[type, dict[str, str]] = {}
        self._asked_of_kind: dict[type, dict[str, str]] = {}
        self._names_of_modules: dict[str, str] | None = None
        for code in self._codes:
            self._take(code)
        self._take_strings(self._codes)
        if any(names_of(code).catches for code in self._codes):
            for code in watcher.failed:
                names = names_of(code)
                self._optional.update(names.attributes)
                (self._asked_of_self.setdefault(code, {}) if code.co_varnames[:1] == ("self",) else self._asked).update(names.attributes)
        for code in watcher.nn_codes:
            self._nn_attributes.update(names_of(code).attributes)
        self._asks_a_logger = any(code.co_name in ASKS_A_LOGGER for code in watcher.standard_codes)
        for code in watcher.standard_codes:
            self._standard_attributes.update(names_of(code).attributes)
        self._operators = {name for code in self._codes for name in names_of(code).operators}
        if where := self._attributes.get("is_warn_always_enabled", ""):
            self._read(ANSWER, torch.is_warn_always_enabled, None, "torch.is_warn_always_enabled()", where, _DEEPEST)
        if known is not None:
            self._take_known(known)
        for (code, _), variables in watcher.codes.items():
            self._names_of_protocols(names_of(code), variables)
        for (code, _), variables in watcher.codes.items():
            self._globals(names_of(code), variables)
        if {"modules", "import_module"} & {*self._attributes, *self._all_globals}:
            self.notes.keys(sys.modules)
            for text in self._strings & sys.modules.keys():
                self._read(ENTRY, sys.modules, text, f"sys.modules[{text!r}]", "", 0)
        if where := self._attributes.get("environ", self._attributes.get("getenv", "")):
            for text in self._strings:
                self._read(ENTRY, getattr(os.environ, "_data", {}), os.fsencode(text), f"os.environ[{text!r}]", where, 0)

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
        walk._is_of_one_call, walk._own, walk._own_containers, walk.notes = True, (), set(), Notes()
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

    def beyond(self) -> list[Read]:
        """What this walk has found, and the one before it not."""
        return [read for place, read in self.reads.items() if self._before.get(place) is not read]

    def change(self, read: Read) -> None:
        """Another value at a place that this walk has found."""
        for known in (self.reads, self.of_torch):
            if read.place in known:
                known[read.place] = read

    def _objects(self, values: Iterable[Any]) -> None:
        for value in values:
            self._into(value, type(value).__name__, "", 1)
        self._look_again()

    def _postpone(self, value: Any, follow: Callable[[Walk], None]) -> None:
        if self._is_of_one_call:
            follow(self)
        else:
            self._later[id(value)] = follow

    def known_names(self) -> KnownNames:
        return KnownNames((self._attributes, self._nn_attributes, self._standard_attributes), self._assumed)

    def _take_known(self, known: KnownNames) -> None:
        for names, more in zip((self._attributes, self._nn_attributes, self._standard_attributes), known.attributes):
            names.update((name, where) for name, where in more.items() if name not in names)
        for code, variables in known.assumed.items():
            if code not in self._codes:
                self._take_assumed(code, variables)

    def _take_assumed(self, code: types.CodeType, variables: dict[str, Any]) -> None:
        self._codes.add(code)
        self._assumed[code] = variables
        self._take(code)
        self._take_strings(self._codes)
        self._globals(names_of(code), variables)

    def _take(self, code: types.CodeType) -> None:
        """More code that ran, or may run."""
        names = names_of(code)
        self._asked.update(names.asked)
        if names.asked_of_self:
            self._asked_of_self.setdefault(code, {}).update(names.asked_of_self)
        self._strings |= names.strings
        self._goes_through |= names.goes_through
        self._whole.update(names.whole)
        if names.whole_of_self:
            self._whole_of_self[code] = names.whole_of_self
        self._by_strings = self._by_strings or names.by_strings
        self._all_fields = self._all_fields or names.all_fields
        self._optional.update(names.strings_of_attributes)
        self._optional.update(names.caught)
        for name, where in [*names.attributes.items(), *names.strings_of_attributes.items()]:
            for known in (self._attributes, self._nn_attributes, self._standard_attributes):
                known.setdefault(name, where)
        if names.any_global:
            self.refusals.append(f"The function finds globals by names that it computes ({names.any_global}); write the names, or keep "
                                 "the values in a dict.")

    def _take_strings(self, codes: Iterable[types.CodeType]) -> None:
        """A string of one function may name an attribute for another one."""
        self._all_globals = {name: where for code in codes for name, where in names_of(code).globals.items()}
        asking = next((self._all_globals[name] for name in ("getattr", "hasattr", "vars") if name in self._all_globals), "")
        for text in self._strings if asking else ():
            if text.isidentifier():
                for known in (self._attributes, self._nn_attributes, self._standard_attributes):
                    known.setdefault(text, asking)

    def _globals(self, names: Names, variables: dict[str, Any]) -> None:
        for name, where in names.globals.items():
            self._read(ENTRY, variables, name, name, where, 0)
            if name not in variables and not _is_pythons_own(vars(builtins).get(name)):
                self._read(ENTRY, vars(builtins), name, name, where, 0)
        for text in names.strings if "globals" in names.globals else ():
            if text.isidentifier():
                self._read(ENTRY, variables, text, text, names.globals["globals"], 0)
        for (name, level), where in names.imports.items():
            path = name if level == 0 else _absolute(name, level, variables)
            parts = path.split(".")
            for count in range(1, len(parts) + 1):
                one = ".".join(parts[:count])
                self._read(ENTRY, sys.modules, one, one, where, 0)

    def _names_of_protocols(self, names: Names, variables: dict[str, Any]) -> None:
        """isinstance() with a class of typing.Protocol asks for each of its members."""
        for name, where in names.globals.items() if "isinstance" in names.globals else ():
            kind = variables.get(name)
            if isinstance(kind, type) and getattr(kind, "_is_protocol", False):
                self.notes.give_up()
                members = {*getattr(kind, "__annotations__", {}), *(key for key in vars(kind) if not key.startswith("_"))}
                self._attributes.update(dict.fromkeys(members, where))
                self._optional.update(dict.fromkeys(members, where))

    def _assume(self, function: Any, name: str, left: int, depth: int) -> None:
        """A function that a cache hides has run before, and what it read then counts: it, and what it calls by name."""
        if not isinstance(function, types.FunctionType) or kind_of(function.__code__.co_filename) != "user":
            return
        code = function.__code__
        if code not in self._codes:
            self._take_assumed(code, function.__globals__)
            self._looks_again = True
        self._into(function, name, "", depth + 1)
        cells = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
        for value in [*map(function.__globals__.get, names_of(code).globals), *cells] if left else ():
            if isinstance(value, types.FunctionType) and value.__code__ not in self._codes:
                self._assume(value, value.__name__, left - 1, depth + 1)

    def _look_again(self) -> None:
        import torch

        while self._looks_again:
            self._looks_again = False
            for known in (self._in_classes, self._of_owner, self._of_own_object, self._not_in_classes, self._names_of_kind, self._asked_of_kind):
                known.clear()
            self._names_of_modules = None
            for value, name, where, depth in list(self._named.values()):
                if isinstance(value, torch.nn.Module):
                    self._module(value, name, depth)
                else:
                    self._look(value, name, where, depth)

    def names(self) -> set[str]:
        """Attributes that the program's code names."""
        return {*self._attributes, *(["__dict__"] if "" in self._whole else [])}

    def _names_of_torch(self) -> set[str]:
        return {*self._nn_attributes, *self._operators}

    def _torchs(self, known: Container[Any]) -> None:
        """What the program may change in PyTorch's own modules and classes, once all modules are met."""
        names = self._names_of_torch()
        if len(names) > self._names_before:
            known = {}
        kinds = dict.fromkeys(type(module) for module in self.modules if module not in known)
        for read in reads_of_torch(self._watcher, names, kinds, not self._is_of_one_call, self.notes):
            if read.place not in self._left:
                self.of_torch.setdefault(read.place, read)

    def _closures(self, met: Met) -> None:
        """Functions that ran, that no name leads to, and that an earlier run had, too."""
        missing = [code for code in self._codes - self._functions if set(code.co_freevars) - {"__class__"}]
        for function in met.functions(missing):
            self._into(function, function.__name__, "", 1)
        self._look_again()

    def goes_by_strings(self) -> bool:
        """Whether values may be names of attributes."""
        return bool(self._by_strings)

    def _read(self, kind: int, holder: Any, key: Any, name: str, where: str, depth: int) -> None:
        place = kind, id(holder), key
        if place in self.reads or place in self._left:
            return
        if place in self._own:
            self._later[place] = lambda walk: walk._read(kind, holder, key, name, where, depth)
            return
        if kind == ENTRY and not dict.__contains__(holder, key):
            self._absent_in(holder).add(key, name, where)
            return
        read = self.reads[place] = Read(kind, holder, key, name, where)
        if self._by_strings and isinstance(read.expected, str):
            self._note_string(read.expected)
        if kind == CONTENTS:
            for item in read.expected:
                self._into(item, name, where, depth + 1)
        elif read.expected is not NOTHING:
            self._into(read.expected, name, where, depth + 1)

    def _absent_in(self, entries: dict[Any, Any]) -> Absent:
        place = ABSENT, id(entries), None
        read = self.reads.get(place)
        if isinstance(read, Absent) and self._before.get(place) is not read:
            return read
        left = (key for kind, holder, key in self._left if kind == ENTRY and holder == id(entries))
        found = self.reads[place] = Absent(entries, left)
        if isinstance(read, Absent):
            found.merge(read)
        return found

    def _note_string(self, text: str) -> None:
        """A value that may be the name of an attribute, as an alias is."""
        if text.isidentifier() and text not in self._attributes:
            for known in (self._attributes, self._nn_attributes, self._standard_attributes):
                known.setdefault(text, self._by_strings)
            self._looks_again = True

    def _into(self, value: Any, name: str, where: str, depth: int) -> None:
        if id(value) in self._seen or depth > _DEEPEST:
            return
        if type(value).__module__ in _OF_NOBODY or isinstance(value, type) and value.__module__ in _OF_NOBODY:
            return
        if is_number(value) and not has_attributes(value):
            return
        self._seen[id(value)] = value
        self._look(value, name, where, depth)

    def _look(self, value: Any, name: str, where: str, depth: int) -> None:
        import torch

        kind = type(value)
        if id(value) in self._own_containers:
            self._postpone(value, lambda walk: walk._look(value, name, where, depth))
        elif kind in weakref.ProxyTypes:
            self._postpone(value, lambda walk: walk._behind_proxy(value, name, where, depth))
        elif isinstance(value, torch.Tensor):
            self._tensor(value, name, depth)
        elif kind is _LOCK:
            if asked := self._attributes.get("locked", ""):
                self._read(ANSWER, value.locked, None, f"{name}.locked()", asked, depth)
        elif isinstance(value, torch.nn.Module):
            for module in value.modules():
                self._seen[id(module)] = module
                if is_scripted(module):
                    self.refusals.append(SCRIPTED)
                    continue
                self._module(module, name if module is value else type(module).__name__, depth)
        elif isinstance(value, torch.optim.Optimizer):
            self._optimizer(value, name, depth)
        elif kind is types.FunctionType:
            self._function(value, name, depth)
        elif kind is types.MethodType:
            self._into(value.__self__, name.rpartition(".")[0] or "self", where, depth + 1)
            self._into(value.__func__, name, where, depth + 1)
        elif kind is _CACHED:
            self._assume(value.__wrapped__, name, _MOST_ASSUMED, depth)
            self._entries(vars(value), self._attributes, name, depth)
            self._postpone(value, lambda walk: walk._behind_cache(value, name, where, depth))
        elif kind is functools.partial:
            for part in ("func", "args", "keywords"):
                self.notes.attribute(value, part)
            for part in (value.func, value.args, value.keywords):
                self._into(part, name, where, depth + 1)
            self._entries(value.__dict__, self._attributes, name, depth)
        elif is_number(value):
            self._object(value, name, where, depth)
        elif isinstance(value, dict):
            self._dict(value, name, where, depth)
        elif kind is types.MappingProxyType:
            self._into(gc.get_referents(value)[0], name, where, depth + 1)
        elif isinstance(value, list):
            self._list(value, name, where, depth)
        elif isinstance(value, tuple):
            for index, item in enumerate(value[:_MOST_ITEMS]):
                self._into(item, f"{name}[{index}]", where, depth + 1)
        elif isinstance(value, (set, frozenset, collections.deque)):
            if len(value) > _MOST_ITEMS:
                self._too_long(value, len(value), name)
            else:
                self._read(CONTENTS, value, None, f"the content of {name}", where, depth)
        elif kind is types.CellType:
            return
        elif is_array(value):
            self._array(value, name, where, depth)
        else:
            self._object(value, name, where, depth)
        if isinstance(value, _CONTAINERS) and has_attributes(value):
            self._named[id(value)] = (value, name, where, depth)
            self._instance(value, name, depth)

    def _behind_proxy(self, value: Any, name: str, where: str, depth: int) -> None:
        with contextlib.suppress(ReferenceError):
            self._into(value.__init__.__self__, name, where, depth + 1)

    def _behind_cache(self, cached: Any, name: str, where: str, depth: int) -> None:
        for result in _results_of_a_cache(cached):
            self._into(result, f"{name}()", where, depth + 1)

    def _object(self, value: Any, name: str, where: str, depth: int) -> None:
        """What is no container: only what the code names of it is looked at."""
        kind = type(value)
        self._named[id(value)] = (value, name, where, depth)
        if key := next((key for each, key in _LEADS_BY if isinstance(value, each)), ""):
            self._read(ENTRY, vars(value), key, name, where, depth)
        if isinstance(value, types.ModuleType):
            if is_torchs(value.__name__) and value.__name__ != "torch._C":
                self._entries(vars(value), self._attributes, name, depth)
            elif value.__name__ not in sys.builtin_module_names and kind_of(getattr(value, "__file__", None) or "") == "user":
                self._entries(vars(value), self._attributes, name, depth)
                for key, place in self._optional.items():
                    self._read(ENTRY, vars(value), key, f"{name}.{key}", place, depth)
        elif isinstance(value, type):
            self._class(value, name, depth)
        elif isinstance(value, weakref.ref):
            self._postpone(value, lambda walk: walk._into(value(), name, where, depth + 1))
        elif kind is contextvars.ContextVar:
            self._read(CONTEXT, value, None, f"{name}.get()", where, depth)
        elif hasattr(kind, "__next__"):
            self.unseen = f"the function may take it from `{name}`, an iterator or a file"
        elif kind.__module__ != "builtins":
            self._instance(value, name, depth)

    def _tensor(self, tensor: Any, name: str, depth: int) -> None:
        """What the code may ask of it that no operator sees."""
        self.leaves[id(tensor)] = tensor
        self.notes.attribute(tensor, "_backward_hooks")
        self.notes.attribute(tensor, "_post_accumulate_grad_hooks")
        for read in hooks_of(tensor, name):
            self.reads.setdefault(read.place, read)
        self._attributes_of_a_tensor(tensor, name, depth)
        for key in ("requires_grad", "is_leaf", "_version"):
            if key in self._attributes and not (key == "_version" and tensor.is_inference()):
                self._read(ATTRIBUTE, tensor, key, f"{name}.{key}", self._attributes[key], depth)

    def _attributes_of_a_tensor(self, tensor: Any, name: str, depth: int) -> None:
        self._entries(tensor.__dict__, self._attributes, name, depth)
        for key, where in self._asked.items():
            if not hasattr(tensor, key):
                self._read(ENTRY, tensor.__dict__, key, f"{name}.{key}", where, depth)

    def _function(self, function: Any, name: str, depth: int) -> None:
        code = function.__code__
        self._named[id(function)] = (function, name, "", depth)
        self._entries(function.__dict__, self._attributes, name, depth)
        if code not in self._codes:
            self._decorated(function, name, depth)
            return
        self._functions.add(code)
        for variable, cell in zip(code.co_freevars, function.__closure__ or ()):
            if variable != "__class__":
                self._read(CELL, cell, None, variable, f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}",
                           depth)
        self._read(CODE, function, None, f"the code of {name}()", f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}", depth)
        for key in ("__defaults__", "__kwdefaults__"):
            self.notes.attribute(function, key)
            if getattr(function, key):
                # What is read is looked into, too.
                self._read(ATTRIBUTE, function, key, f"the defaults of {name}()", "", depth)
        if wrapped := function.__dict__.get("__wrapped__"):
            self._into(wrapped, name, "", depth + 1)

    def _decorated(self, function: Any, name: str, depth: int) -> None:
        """Decorators of Python and PyTorch, as contextmanager() and no_grad(), whose code is none of the program's."""
        if kind_of(function.__code__.co_filename) == "user":
            return
        self.notes.picked(function.__dict__, ("registry", "__wrapped__"))
        if isinstance(registry := function.__dict__.get("registry"), types.MappingProxyType):  # functools.singledispatch
            self._into(registry, f"{name}.registry", "", depth + 1)
        wrapped = function.__dict__.get("__wrapped__")
        if isinstance(wrapped, types.FunctionType) or type(wrapped) is _CACHED:
            self._into(wrapped, name, "", depth + 1)

    def _entries(self, entries: dict[str, Any], names: dict[str, str], owner: str, depth: int) -> None:
        holder = id(entries)
        self.notes.keys(entries)
        for key in [key for key in entries if key in names and (ENTRY, holder, key) not in self.reads]:
            self._read(ENTRY, entries, key, f"{owner}.{key}", names[key], depth)

    def _module(self, module: Any, name: str, depth: int) -> None:
        self.modules[module] = None
        self._named[id(module)] = (module, name, "", depth)
        own, kind, entries = _own_of_modules(), type(module), module.__dict__
        if self._names_of_modules is None:
            self._names_of_modules = {key: where for key, where in self._nn_attributes.items() if key not in own}
        self._entries(entries, self._names_of_modules, name, depth)
        reached = bool(_REACH_PARAMETERS & self._attributes.keys())
        self.notes.contents(module._modules)
        for parameters in (module._parameters, module._buffers):
            self.notes.contents(parameters)
            for key, tensor in parameters.items():
                if tensor is not None:
                    self._seen[id(tensor)] = tensor
                    if reached or key in self._attributes:
                        self._attributes_of_a_tensor(tensor, f"{name}.{key}", depth)
        if asked := self._asked_of(kind):
            known = asked.keys() & own.union(module._parameters, module._buffers, module._modules)
            self._absent(kind, entries, {key: where for key, where in asked.items() if key not in known} if known else asked, name, depth)
        if kind_of(getattr(sys.modules.get(kind.__module__), "__file__", None) or "") == "user":
            self._whole_of(kind, entries, own, {piece: where for piece, where in self._whole.items() if piece}, name, depth)
            self._class_values(kind, entries, name, depth)

    def _asked_of(self, kind: type) -> dict[str, str]:
        """Attributes that code asks of a module of the class, and that it may not have."""
        found = self._asked_of_kind.get(kind)
        if found is None:
            found = self._asked_of_kind[kind] = {**self._asked, **self._of_methods(kind, self._asked_of_self)}
        return found

    def _optimizer(self, optimizer: Any, name: str, depth: int) -> None:
        self.leaves.update((id(parameter), parameter) for group in optimizer.param_groups for parameter in group["params"])
        self.notes.attribute(optimizer, "param_groups")
        self.notes.contents(optimizer.param_groups)
        for group in optimizer.param_groups:
            self.notes.keys(group)
            self.notes.contents(group["params"])
        # zero_grad() reaches those that are in the groups now.
        for read in [Read(SIZE, parameters, None, f"the parameters of {name}") for parameters in [
                optimizer.param_groups, *(group["params"] for group in optimizer.param_groups)]]:
            self.reads.setdefault(read.place, read)
        if "param_groups" not in self._attributes:
            return
        where = self._attributes["param_groups"]
        for index, group in enumerate(optimizer.param_groups):
            keys = [key for key in group if key in self._strings and key != "params"]
            for key in keys:
                self._read(ENTRY, group, key, f"{name}.param_groups[{index}][{key!r}]", where, depth)
            if keys:  # load_state_dict() makes another list of other groups
                groups = Read(ENTRY, optimizer.__dict__, "param_groups", f"{name}.param_groups", where)
                item = Read(ITEM, optimizer.param_groups, index, f"{name}.param_groups[{index}]", where)
                for read in (groups, item):
                    self.reads.setdefault(read.place, read)

    def _dict(self, value: dict[Any, Any], name: str, where: str, depth: int) -> None:
        keys = list(value)
        if self._goes_through and len(keys) <= _MOST_ITEMS:
            self._read(KEYS, value, None, f"the keys of {name}", where, _DEEPEST)
        else:
            self._read(SIZE, value, None, f"len({name})", where, depth)
        if len(keys) > _MOST_ITEMS:
            self._too_long(value.values(), len(keys), name)
            keys = [key for key in keys if isinstance(key, str) and key in self._strings][:_MOST_ITEMS]
        for key in keys:
            if self._by_strings and isinstance(key, str):
                self._note_string(key)
            self._read(ENTRY, value, key, f"{name}[{key!r}]" if is_number(key) else f"{name}[...]", where, depth)

    def _list(self, value: list[Any], name: str, where: str, depth: int) -> None:
        self._read(SIZE, value, None, f"len({name})", where, depth)
        if len(value) > _MOST_ITEMS:
            self._too_long(value, len(value), name)
        for index in range(min(len(value), _MOST_ITEMS)):
            self._read(ITEM, value, index, f"{name}[{index}]", where, depth)

    def _array(self, value: Any, name: str, where: str, depth: int) -> None:
        if is_of_c(value) and hasattr(value, "contents"):
            self.notes.give_up()
            with contextlib.suppress(ValueError):  # a null pointer
                self._into(value.contents, f"{name}.contents", where, depth + 1)
        size = memoryview(value).nbytes if not hasattr(value, "nbytes") else value.nbytes
        of_objects = getattr(getattr(value, "dtype", None), "hasobject", False)
        if size <= _MOST_BYTES and not of_objects:
            self._read(BYTES, value, None, f"the content of {name}", where, depth)
            return
        many = "objects" if of_objects else f"{size} bytes, and no more than {_MOST_BYTES} are looked at"
        self.refusals.append(f"The function reads `{name}`, an array of {many}; make it a tensor outside of the function "
                             "(torch.from_numpy), or promise by guards=\"promised\" that it does not change.")

    def _too_long(self, values: Iterable[Any], count: int, name: str) -> None:
        self.notes.give_up()
        if is_number(next(iter(values))):
            self.refusals.append(f"The function reads `{name}`, which has {count} items, and no more than {_MOST_ITEMS} are looked "
                                 "at; give the numbers as a tensor, or promise by guards=\"promised\" that they do not change.")

    def _instance(self, value: Any, name: str, depth: int) -> None:
        if type(value).__module__.startswith("numpy.random"):
            self.generators.append(value)
            return
        if type(value).__module__.startswith("numpy."):
            return
        self._read(KIND, value, None, f"the class of {name}", "", _DEEPEST)
        kind, entries = type(value), getattr(value, "__dict__", None)
        names = self._names_for(kind)
        own = entries if isinstance(entries, dict) else None
        if own is not None:
            self._entries(own, names, name, depth)
            whole = {**self._whole, **({"": self._all_fields} if self._all_fields and dataclasses.is_dataclass(kind) else {})}
            self._whole_of(kind, own, (), whole, name, depth)
            self._absent(kind, own, self._optional, name, depth)
        self._class_values(kind, own, name, depth)
        for key in self._slots_of(kind):
            if key in names or any(piece in key for piece in self._whole):
                self._read(ATTRIBUTE, value, key, f"{name}.{key}", names.get(key, ""), depth)

    def _slots_of(self, kind: type) -> list[str]:
        found = self._slots.get(kind)
        if found is None:
            found = self._slots[kind] = [key for each in kind.__mro__ for key, member in vars(each).items()
                                         if isinstance(member, types.MemberDescriptorType)]
        return found

    def _names_for(self, kind: type) -> dict[str, str]:
        """What the code names that may ask an object of the class."""
        found = self._names_of_kind.get(kind)
        if found is None:
            found = self._names_of_kind[kind] = self._names_for_kind(kind)
        return found

    def _names_for_kind(self, kind: type) -> dict[str, str]:
        if is_torchs(kind.__module__):
            return self._nn_attributes
        names = self._attributes
        if kind.__module__ == "logging":
            return dict.fromkeys(_OF_LOGGERS, "") if self._asks_a_logger else {}
        if is_standard(getattr(sys.modules.get(kind.__module__), "__file__", None) or ""):
            names = self._standard_attributes
        if "__match_args__" in names:
            where = names["__match_args__"]
            names = {**names, **dict.fromkeys(getattr(kind, "__match_args__", ()), where)}
        return names

    def _whole_of(self, kind: type, entries: dict[str, Any], own: Container[str], pieces: dict[str, str], name: str, depth: int) -> None:
        """All attributes of an object, or those with a part of a name, where code finds them by names that it puts together."""
        pieces = {**pieces, **self._of_methods(kind, self._whole_of_self)}
        if not pieces or len(entries) > _MOST_ITEMS:
            return
        self.notes.kinds(entries)
        # An iterator or a file that no code names is no reason to doubt a number.
        keys = [key for key, value in entries.items() if key not in own and not hasattr(type(value), "__next__")]
        found = {key: where for piece, where in pieces.items() for key in keys if piece in key}
        self._read(SIZE, entries, None, f"the attributes of {name}", next(iter(pieces.values())), _DEEPEST)
        self._entries(entries, found, name, depth)

    def _absent(self, kind: type, own: dict[str, Any], names: dict[str, str], name: str, depth: int) -> None:
        """Attributes that the object may not have: neither it nor its classes may get them."""
        for key in names.keys() & own.keys():
            self._read(ENTRY, own, key, f"{name}.{key}", names[key], depth)
        self._absent_in(own).add_table(names, name)
        self._absent_in_classes(kind, names)

    def _absent_in_classes(self, kind: type, names: dict[str, str]) -> None:
        """Those that none of the classes has."""
        if (kind, id(names)) in self._not_in_classes:
            return
        in_none = names.keys() - set().union(*(vars(each).keys() for each in kind.__mro__))
        found = {key: names[key] for key in in_none}
        # Kept with the names, so that no others come to their place in memory.
        self._not_in_classes[kind, id(names)] = names
        for each in kind.__mro__ if found else ():
            if each.__flags__ & _MADE_IN_PYTHON and not is_torchs(each.__module__):
                self._absent_in(entries_of(each)).add_table(found, each.__name__)

    def _class(self, kind: type, name: str, depth: int) -> None:
        self._class_values(kind, None, name, depth)
        if is_torchs(kind.__module__) or not kind.__flags__ & _MADE_IN_PYTHON:
            return
        self._class_values(type(kind), entries_of(kind), name, depth)
        self._whole_of(type(kind), entries_of(kind), ("__dict__", "__weakref__", "__module__", "__doc__"), {}, name, depth)
        self._absent_in_classes(kind, {key: where for key, where in self._optional.items() if not hasattr(kind, key)})

    def _class_values(self, kind: type, own: dict[str, Any] | None, name: str, depth: int) -> None:
        """Values and functions of a class and of those above it. ``own``: what the instance has itself."""
        found = self._in_classes.get(kind)
        if found is None:
            found = self._in_classes[kind] = self._values_of_class(kind, name, depth)
        if own is not None:
            self._absent_in(own).add_table(found, name)

    def _values_of_class(self, kind: type, name: str, depth: int) -> dict[str, str]:
        """The names of what the class has, each with its line."""
        names: dict[str, str] = {}
        below: list[type] = []
        for owner in kind.__mro__:
            if owner.__module__ not in ("builtins", "abc", "typing", "enum") and not is_torchs(owner.__module__):
                found = self._of_owner.get(owner)
                if found is None:
                    found = self._of_owner[owner] = self._values_of_owner(owner, name, depth)
                # The instance and the classes below may get the name for themselves.
                for each in below:
                    self._absent_in(entries_of(each)).add_table(found, each.__name__)
                names.update(found)
            if owner.__flags__ & _MADE_IN_PYTHON:
                below.append(owner)
        return names

    def _values_of_owner(self, owner: type, name: str, depth: int) -> dict[str, str]:
        """Those that stand in one class."""
        members, entries = self._members_of(owner), entries_of(owner)
        found = [key for key, code in zip(members.names, members.codes) if self._is_looked_at(key, code)]
        names = {key: self._attributes.get(key, "") or self._standard_attributes.get(key, "") for key in found}
        for key, where in names.items():
            value = entries[key]
            self._read(ENTRY, entries, key, f"{owner.__name__}.{key}", where, depth)
            if (function := _function_in(value)) is not value:
                self._into(function, f"{name}.{key}", where, depth + 1)
        return names

    def _is_looked_at(self, key: str, code: types.CodeType | None) -> bool:
        return key in self._attributes or key in self._standard_attributes or key in _CALLED or code in self._codes

    def _members_of(self, owner: type) -> _Members:
        found = self._members.get(owner)
        if found is None:
            members = {key: value for key, value in list(vars(owner).items()) if not isinstance(value, _OF_CLASSES_IN_C)}
            codes = [getattr(_function_in(value), "__code__", None) for value in members.values()]
            found = self._members[owner] = _Members(tuple(members), tuple(codes))
            self.notes.members(owner, (key for key, code in zip(members, codes) if code is not None))
        return found

    def _of_methods(self, kind: type, names_of_code: dict[types.CodeType, dict[str, str]]) -> dict[str, str]:
        """What the methods of a class ask of their own object."""
        if not names_of_code:
            return {}
        found = self._of_own_object.get((kind, id(names_of_code)))
        if found is None:
            found = self._of_own_object[kind, id(names_of_code)] = {}
            for each in kind.__mro__:
                for code in self._members_of(each).codes:
                    if code in names_of_code:
                        found.update(names_of_code[code])
        return found


def _results_of_a_cache(cached: Any) -> Iterator[Any]:
    """Objects that a function under lru_cache() returns again, as the settings of a program."""
    import torch

    found = gc.get_referents(cached)
    for inside in list(found):
        if type(inside) is dict and inside is not vars(cached):
            found += list(inside.values())[:_MOST_CACHED]
    for value in found[:2 * _MOST_CACHED]:
        if not isinstance(value, (torch.Tensor, type, dict)) and value is not cached.__wrapped__ and type(value).__name__ != "_lru_list_elem":
            yield value


def _function_in(value: Any) -> Any:
    """Of what a class has under a name: the function that runs, if it is one."""
    if type(value) in _NO_FUNCTIONS:
        return value
    for name in ("fget", "__func__", "func", "dispatcher"):
        if not isinstance(value, types.FunctionType) and (function := getattr(value, name, None)) is not None:
            return getattr(function, "dispatch", function) if name == "dispatcher" and not callable(function) else function
    return value


def _absolute(name: str, level: int, variables: dict[str, Any]) -> str:
    package = str(variables.get("__package__") or str(variables.get("__name__", "")).rpartition(".")[0])
    base = package.split(".")
    return ".".join([*base[:len(base) - level + 1], *([name] if name else [])])


def has_attributes(value: Any) -> bool:
    """Whether a number, a text or a container is of a class of the program, with attributes beside what it is."""
    kind = type(value)
    return bool(kind.__flags__ & _MADE_IN_PYTHON) and kind.__module__ != "collections" and not is_torchs(kind.__module__)


def _is_pythons_own(value: Any) -> bool:
    return isinstance(value, (types.BuiltinFunctionType, type)) or value is None or value is NotImplemented or value is Ellipsis


@functools.lru_cache(maxsize=1)
def _own_of_modules() -> frozenset[str]:
    import torch

    return frozenset(torch.nn.Module().__dict__)
