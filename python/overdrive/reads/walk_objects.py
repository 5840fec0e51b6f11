"""Functions, instances and what leads to others: of these a walk looks at what code names."""
from __future__ import annotations

import builtins
import collections
import contextlib
import contextvars
import functools
import gc
import io
import os
import re
import sys
import threading
import types
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from overdrive.reads.c_functions import name_of, row_of
from overdrive.reads.code import file_of
from overdrive.reads.names import NAMERS
from overdrive.reads.owners import is_the_programs, kind_of
from overdrive.reads.walk_classes import MOST_ITEMS, Classes, _function_in
from overdrive.reads.walk_places import NOT_FOLLOWED, is_pythons_own
from overdrive.values.read import ANSWER, ATTRIBUTE, CELL, CODE, CONTEXT, ENTRY, KEYS, KIND, SIZE, VALUES, Read
from overdrive.values.same import FUNCTION_OF_C, has_attributes, is_array, is_number, is_torchs

# Results of a cache that are looked at.
_MOST_CACHED = 1024
_REFUSED = "The function {}, which no guard looks at; {} and give it as an argument, or promise by guards=\"promised\" that it does not matter."
# Attributes of functions that code may name, which the interpreter keeps, beside those that are looked at by themselves.
_OF_FUNCTIONS = ("__module__", *(name for name, each in vars(types.FunctionType).items() if isinstance(
    each, (types.GetSetDescriptorType, types.MemberDescriptorType)) and name not in ("__builtins__", "__closure__", "__dict__", "__globals__")))
# Of Python's own library: objects that lead to others by attributes which the program does not name.
_LEADS_BY = ((collections.UserDict, "data"), (collections.UserList, "data"), (collections.ChainMap, "maps"),
             (weakref.WeakKeyDictionary, "data"), (weakref.WeakValueDictionary, "data"), (weakref.WeakSet, "data"))
# What asks a namespace for all that it has: functions, methods and operators.
_ASK_FOR_ALL = ("repr", "str", "format", "ascii", "index", "count", "remove", "eq", "ne", "__eq__", "__ne__")
_OPERATORS_THAT_ASK = {"__eq__", "__ne__", "__contains__", "__format__"}
# Classes of C whose objects have the same items for ever.
_ITEMS_STAY = (re.Match, types.GenericAlias, types.UnionType)
_OF_CONTAINERS = ("__getitem__", "__len__", "__contains__")
CACHED = type(functools.lru_cache(int))
# Of a module, what Python puts there.
_OF_MODULES = ("__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__")


class Objects(Classes):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Of NumPy, whose functions draw random numbers unseen.
        self.generators: list[Any] = []
        self._leads_by: dict[type, str] = {}
        # Code of functions that were found.
        self._functions: set[types.CodeType] = set()
        # Functions whose variables and defaults are among the reads, by their addresses, with their code; `_named` has them.
        self._opened: set[tuple[int, types.CodeType]] = set()

    def _object(self, value: Any, name: str, where: str, depth: int) -> None:
        """What is no container: only what the code names of it is looked at."""
        kind = type(value)
        self._named[id(value)] = (value, name, where, depth)
        if (value if isinstance(value, type) else kind).__module__ == "decimal":
            self._read(ANSWER, _context_of_decimal, None, "decimal.getcontext()", where, NOT_FOLLOWED)
        leads = self._leads_by.get(kind)
        if leads is None:
            leads = self._leads_by[kind] = next((key for each, key in _LEADS_BY if isinstance(value, each)), "")
        if leads:
            self._read(ENTRY, vars(value), leads, name, where, depth)
        if isinstance(value, types.ModuleType):
            self._read(KIND, value, None, f"the class of {name}", "", NOT_FOLLOWED)
            self._entries(vars(value), self._attributes, name, depth)
            self._whole_module(value, name, depth)
            if is_torchs(value.__name__):
                self._settings_of(value, name, depth)
            if value.__name__ == "numpy":
                self._read(ANSWER, _errors_of_numpy, None, "numpy.geterr()", where, NOT_FOLLOWED)
            for key, place in self._optional.items():
                self._read(ENTRY, vars(value), key, f"{name}.{key}", place, depth)
            self._read(ENTRY, vars(value), "__getattr__", f"{name}.__getattr__", where, depth)
            if "__getattr__" in vars(value):  # what it gives may come in its own place
                self._absent_in(vars(value)).add_table(self._attributes, name)
        elif isinstance(value, type):
            self._class(value, name, depth)
        elif isinstance(value, FUNCTION_OF_C):
            self.refusals.append(_REFUSED.format(f"may call `{name}`, a function of ctypes", "call it outside"))
        elif isinstance(value, weakref.ref):
            self._postpone(value, lambda walk: walk._into(value(), name, where, depth + 1))
        elif kind is re.Match:
            self._into(value.string, f"{name}.string", where, depth + 1)
        elif kind is contextvars.ContextVar:
            self._read(CONTEXT, value, None, f"{name}.get()", where, depth)
        elif isinstance(value, io.IOBase):
            if value not in (sys.stdout, sys.stderr) and (value.closed or value.readable()):
                self.refusals.append(_REFUSED.format(f"may read `{name}`, a file", "read it outside of the function"))
        elif hasattr(kind, "__next__") and not isinstance(_function_in(kind.__next__), types.FunctionType):
            self.refusals.append(_REFUSED.format(f"may take values from `{name}`, an iterator that lives on", "take them (next()) outside of the "
                                                 "function"))
        elif has_attributes(value) or not is_pythons_own(kind):
            if _is_a_container_of_c(kind) and not is_number(value):
                what = f"may look into `{name}`, of a class of C ({kind.__module__}.{kind.__name__})"
                self.refusals.append(_REFUSED.format(what, "take the items outside"))
            self._instance(value, name, depth)

    def _whole_module(self, module: Any, name: str, depth: int) -> None:
        pieces = self._found.pieces_of(module)
        if is_of_the_program(module):
            self._whole_of(vars(module), _OF_MODULES, pieces, name, depth)
        elif pieces is not self._found.anywhere:
            where = next(iter(pieces.values()))
            self._read(KEYS, vars(module), None, f"the names in {name}", where, NOT_FOLLOWED)
            self._read(VALUES, vars(module), None, f"the functions in {name}", where, NOT_FOLLOWED)

    def _settings_of(self, module: Any, name: str, depth: int) -> None:
        """Of PyTorch, which a class of the module asks C for, as torch.backends.cudnn.benchmark."""
        for key, each in vars(type(module)).items() if type(module) is not types.ModuleType else ():
            if key in self._attributes and hasattr(type(each), "__set__"):
                self._read(ANSWER, functools.partial(getattr, module, key), None, f"{name}.{key}", self._attributes[key], depth)

    def _program_names(self, key: str) -> bool:
        """Whether code of the program's own does, and not of a library alone."""
        return key in self._attributes and any(key in code.co_names and is_the_programs(code.co_filename) for code in self._codes)

    def _instance(self, value: Any, name: str, depth: int) -> None:
        module = str(type(value).__module__)
        if module.startswith("numpy.random"):
            self.generators.append(value)
            if asked := next((key for key in ("get_state", "bit_generator") if self._program_names(key)), ""):
                self.refusals.append(_REFUSED.format(f"may ask for the state of `{name}` ({asked})", "ask outside"))
            return
        if module.partition(".")[0] == "overdrive":
            # Ours has all that its own walk has met. Of a captured function in another one, the function counts.
            if function := getattr(value, "_function", None):
                self._into(function, name, "", depth + 1)
            return
        self._read(KIND, value, None, f"the class of {name}", "", NOT_FOLLOWED)
        kind, entries = type(value), getattr(value, "__dict__", None)
        names = self._names_for(kind)
        own = entries if isinstance(entries, dict) else None
        pieces = self._found.pieces_of(value)
        if isinstance(value, types.SimpleNamespace) and (where := self._looks_into_spaces(name)):
            pieces = {**pieces, "": where}
        for key in _kept_by_c(kind) if isinstance(value, BaseException) else ():  # its text is made of them
            self._read(ATTRIBUTE, value, key, f"{name}.{key}", "", depth)
        if isinstance(value, threading.local):
            self._read(ANSWER, functools.partial(getattr, value, "__dict__"), None, f"the thread of {name}", "", NOT_FOLLOWED)
        self._whole_of_classes(kind, pieces, depth)
        if own is not None:
            self._same_dict(value, name)
            if module.startswith("torch.utils.data"):
                self._lengths(own, names, name)
            self._entries(own, names, name, depth)
            self._whole_of(own, (), pieces, name, depth)
            self._absent(kind, own, self._optional, name, depth)
            if hasattr(kind, "__getattr__"):  # what it gives for another object may come in its own place
                self._absent_in(own).add_table(names, name)
            if functions := self._functions_of_torch(kind):
                self._absent_in(own).add_table(functions, name)
        self._class_values(kind, own, name, depth)
        is_hidden = own is None and kind.__dictoffset__ != 0
        if pieces:
            self._whole.setdefault(id(value), set()).update(pieces)
        for key in [*self._slots_of(kind), *(names if is_hidden else ())]:
            if (key in names or any(piece in key for piece in pieces)) and _is_kept(value, key):
                self._read(ATTRIBUTE, value, key, f"{name}.{key}", names.get(key, ""), depth)

    def _looks_into_spaces(self, name: str) -> str:
        """Where code compares objects or makes texts of them, for which C goes through all that a namespace has."""
        named = next((names[one] for names in (self._all_globals, self._attributes) for one in _ASK_FOR_ALL if one in names), "")
        asks = _OPERATORS_THAT_ASK & self._operators or name.rpartition(".")[2] in self._formatted or (
            "__mod__" in self._operators and any("%" in text for text in self._strings))
        return named or ("an operator" if asks else "")

    def _lengths(self, own: dict[str, Any], names: dict[str, str], name: str) -> None:
        """Of a data set or a sampler whose length alone is asked for: long containers by their length."""
        for key in names.keys() & own.keys() if not self._takes_items else ():
            value = own[key]
            if isinstance(value, (list, tuple, dict)) and len(value) > MOST_ITEMS or is_array(value):
                read = Read(ENTRY, own, key, f"{name}.{key}", names[key])
                self.reads.setdefault(read.place, read)
                self._read(SIZE, value, None, f"len({name}.{key})", names[key], NOT_FOLLOWED)

    def _c_function(self, function: Any, name: str, where: str, depth: int) -> None:
        """Its calls are seen, unless another C function makes them: then it is a value of the program, as in ``map(clock, ticks)``."""
        parts = tuple(name.split("."))
        of_a_module = isinstance(function.__self__, types.ModuleType) and len(parts) > 1 and all(part.isidentifier() for part in parts)
        is_value = parts in self._passed_chains if of_a_module else parts[-1] in self._passed or parts[-1].endswith("]")
        if function.__self__ is builtins and function.__name__ in NAMERS and name != f"builtins.{function.__name__}":
            self._refuse_namer(function, name)
        if is_value and row_of(function) is None:
            self.refusals.append(_REFUSED.format(f"has {name_of(function)}() as a value (`{name}`)", "call it outside"))
        if not isinstance(function.__self__, (types.ModuleType, type)):
            self._into(function.__self__, name.rpartition(".")[0] or name, where, depth + 1)

    def _refuse_namer(self, function: Any, name: str) -> None:
        self.refusals.append(_REFUSED.format(f"has {function.__name__}() as a value (`{name}`), and may take any name by it", "call it outside"))

    def _function(self, function: Any, name: str, depth: int) -> None:
        code = function.__code__
        has_run = code.co_name in self._names_of_codes() and code in self._codes
        if id(function) in self._named and not function.__dict__ and (not has_run or (id(function), code) in self._opened):
            return  # more names lead to nothing more
        self._named[id(function)] = (function, name, "", depth)
        if function.__dict__ or self._optional:
            self._same_dict(function, name)
        self._of_a_function(function, name, depth)
        self._entries(function.__dict__, self._attributes, name, depth)
        if self._optional:
            self._absent_in(function.__dict__).add_table(self._optional, name)
        if not has_run:
            self._decorated(function, name, depth)
            return
        self._functions.add(code)
        self._opened.add((id(function), code))
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

    def _of_a_function(self, value: Any, name: str, depth: int) -> None:
        """What the program asks of a function."""
        pieces = self._found.pieces_of(value)
        self._whole_of(value.__dict__, (), pieces, name, depth)
        for key in _OF_FUNCTIONS:
            if where := named_by(self._attributes, pieces, key):
                self._read(ATTRIBUTE, value, key, f"{name}.{key}", where, depth)
        if where := named_by(self._attributes, pieces, "__closure__"):
            for cell in value.__closure__ or ():
                self._read(CELL, cell, None, f"{name}.__closure__", where, depth)

    def _decorated(self, function: Any, name: str, depth: int) -> None:
        """Decorators of Python and PyTorch, as contextmanager() and no_grad(), whose code is none of the program's."""
        if kind_of(function.__code__.co_filename) == "user":
            return
        self.notes.picked(function.__dict__, ("registry", "__wrapped__"))
        if isinstance(registry := function.__dict__.get("registry"), types.MappingProxyType):  # functools.singledispatch
            self._into(registry, f"{name}.registry", "", depth + 1)
        wrapped = function.__dict__.get("__wrapped__")
        if isinstance(wrapped, types.FunctionType) or type(wrapped) is CACHED:
            self._into(wrapped, name, "", depth + 1)

    def _behind_proxy(self, value: Any, name: str, where: str, depth: int) -> None:
        with contextlib.suppress(ReferenceError):
            self._into(value.__init__.__self__, name, where, depth + 1)

    def _behind_cache(self, cached: Any, name: str, where: str, depth: int) -> None:
        if cached.cache_info().currsize > _MOST_CACHED:
            self.refusals.append(_REFUSED.format(f"calls {name}(), whose cache has more than {_MOST_CACHED} results", "call it outside"))
        for result in _results_of_a_cache(cached):
            self._into(result, f"{name}()", where, depth + 1)
        for entries in _entries_of_a_cache(cached):
            for key in list(entries):  # what has been dropped is computed anew
                self._read(ENTRY, entries, key, f"{name}()", where, NOT_FOLLOWED)
        if cached.cache_info().maxsize:
            self._read(ANSWER, _drops_of(cached), None, f"the cache of {name}()", where, NOT_FOLLOWED)


def _is_kept(value: Any, key: str) -> bool:
    """Whether an attribute that C gives is a value, and not made anew of others when it is asked."""
    found = getattr(value, key, None)
    return is_number(found) or found is getattr(value, key, None)


def _kept_by_c(kind: type) -> list[str]:
    return [key for each in kind.__mro__ for key, value in vars(each).items()
            if isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)) and not key.startswith("__")]


def _is_a_container_of_c(kind: type) -> bool:
    """Whether C has its items, and nobody knows which: a class that is none of Python's own and no type of NumPy's."""
    return any(isinstance(vars(each).get(key), types.WrapperDescriptorType) for each in kind.__mro__ for key in _OF_CONTAINERS
               if each not in _ITEMS_STAY and str(each.__module__).partition(".")[0] != "numpy")


def named_by(names: Mapping[str, str], pieces: Mapping[str, str], key: str) -> str:
    """Where code names it, or finds it by a part of its name."""
    return names.get(key, "") or next((where for piece, where in pieces.items() if piece in key), "")


# How many results a full cache has computed: each may have taken the place of another.
_drops: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _drops_of(cached: Any) -> Any:
    weak = weakref.ref(cached)

    def drops() -> int:
        info = None if (found := weak()) is None else found.cache_info()
        return info.misses if info is not None and info.currsize >= info.maxsize else 0

    return _drops.setdefault(cached, drops)


def _entries_of_a_cache(cached: Any) -> list[dict[Any, Any]]:
    return [inside for inside in gc.get_referents(cached) if type(inside) is dict and inside is not vars(cached)]


def _errors_of_numpy() -> tuple[str, ...]:
    return tuple(sys.modules["numpy"].geterr().values())


def _context_of_decimal() -> tuple[Any, ...]:
    context = sys.modules["decimal"].getcontext()
    traps = ", ".join(sorted(signal.__name__ for signal, is_set in context.traps.items() if is_set))
    return context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, traps


def is_of_the_program(module: Any) -> bool:
    """Whether it is neither installed nor Python's or PyTorch's."""
    file = file_of(module)
    return not is_torchs(module.__name__) and is_the_programs(file) and (
        bool(file) or module.__name__ not in sys.builtin_module_names)


def _results_of_a_cache(cached: Any) -> Iterator[Any]:
    """Objects that a function under lru_cache() returns again, as the settings of a program."""
    found = gc.get_referents(cached)
    for inside in _entries_of_a_cache(cached):
        found += list(inside.values())[:_MOST_CACHED]
    for value in found[:2 * _MOST_CACHED]:
        if not isinstance(value, (torch.Tensor, type, dict)) and value is not cached.__wrapped__ and type(value).__name__ != "_lru_list_elem":
            yield value
