"""Which values of the program a captured function read.

A walk goes from the globals and closures that the code names to what they hold: numbers, containers, objects and
modules. Of objects it follows the attributes alone that the code names, so that a counter that the function does not read is
no guard.
"""
from __future__ import annotations

import argparse
import builtins
import collections
import contextvars
import functools
import gc
import operator
import os
import sys
import types
import weakref
from collections.abc import Container, Iterable, Sequence
from typing import Any

from overdrive._code import Met, Watcher, kind_of, names_of
from overdrive._guards import (ATTRIBUTE, BYTES, CELL, CONTENTS, CONTEXT, ENTRY, ITEM, KIND, NOTHING, SIZE, Read, entries_of,
                               hooks_of, is_array, is_number, is_scripted)

_code_of = operator.attrgetter("__code__")
# Items of a container, and bytes of an array, that are looked at.
_MOST_ITEMS = 1024
_MOST_BYTES = 16 << 10
_DEEPEST = 8
SCRIPTED = ("A module that torch.jit.script() or torch.jit.trace() made keeps its parameters and flags where no guard looks; call the module "
            "that it was made of.")
# By which code asks for all attributes of an object, and the objects for which it does.
_ASKS_FOR_ALL = ("vars", "asdict", "astuple", "__dict__")
_ASKED_FOR_ALL = (argparse.Namespace, types.SimpleNamespace)
# Functions of a class that no code names where it calls them.
_CALLED = ("forward", "__call__")
# Py_TPFLAGS_HEAPTYPE.
_MADE_IN_PYTHON = 1 << 9


class _Codes:
    """The functions that ran, and their code: a notebook's autoreload puts other code into a function that is there. Read as a
    context variable is, all functions at once. Two walks that meet the same functions share one."""

    _known: weakref.WeakValueDictionary[tuple[int, ...], _Codes] = weakref.WeakValueDictionary()

    def __init__(self, functions: Sequence[types.FunctionType]) -> None:
        self._functions = functions
        self._codes = [function.__code__ for function in functions]

    @classmethod
    def of(cls, functions: Sequence[types.FunctionType]) -> _Codes:
        # The numbers are theirs for as long as the value lives, which holds them.
        key = tuple(id(part) for function in functions for part in (function, function.__code__))
        known = cls._known.get(key)
        return known if known is not None else cls._known.setdefault(key, cls(functions))

    def get(self, default: Any) -> Any:
        return self if all(map(operator.is_, map(_code_of, self._functions), self._codes)) else default


class Walk:
    """From the code that ran to the values that it read: ``reads``, and ``modules`` that it met."""

    def __init__(self, watcher: Watcher, left: Container[tuple[int, int, Any]]) -> None:
        # Places that the function gives what it makes: neither they nor what lies below are values that it reads.
        self._left = left
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
        self._codes = {code for code, _ in watcher.codes}
        self._attributes: dict[str, str] = {}
        self._nn_attributes: dict[str, str] = {}
        self._strings: set[str] = set()
        self._optional: dict[str, str] = {}
        self._functions: set[types.CodeType] = set()
        self._ran: dict[int, types.FunctionType] = {}
        for code in self._codes:
            names = names_of(code)
            self._strings |= names.strings
            self._optional.update(names.strings_of_attributes)
            for name, where in [*names.attributes.items(), *names.strings_of_attributes.items()]:
                self._attributes.setdefault(name, where)
        # A string of one function may name an attribute for another one.
        asking = next((names.globals[name] for names in map(names_of, self._codes) for name in ("getattr", "vars") if name in names.globals), "")
        for text in self._strings if asking else ():
            if text.isidentifier():
                self._attributes.setdefault(text, asking)
        for code in watcher.nn_codes:
            self._nn_attributes.update(names_of(code).attributes)
        self._nn_attributes.update(self._attributes)
        self._asks_for_all = {name: where for code in self._codes for names in (names_of(code).globals, names_of(code).attributes)
                              for name, where in names.items() if name in _ASKS_FOR_ALL}
        for (code, _), variables in watcher.codes.items():
            for name, where in names_of(code).globals.items():
                self._read(ENTRY, variables, name, name, where, 0)
                if name not in variables and not _is_pythons_own(vars(builtins).get(name)):
                    self._read(ENTRY, vars(builtins), name, name, where, 0)
            if where := names_of(code).globals.get("globals", ""):
                for text in names_of(code).strings:
                    self._read(ENTRY, variables, text, f"globals()[{text!r}]", where, 0)

        if where := self._attributes.get("environ", self._attributes.get("getenv", "")):
            for text in self._strings:
                self._read(ENTRY, getattr(os.environ, "_data", {}), os.fsencode(text), f"os.environ[{text!r}]", where, 0)

    def function(self, function: Any) -> None:
        """The captured function itself, whatever makes it callable."""
        self._into(function, getattr(function, "__name__", type(function).__name__), "", 0)

    def objects(self, values: Iterable[Any]) -> None:
        for value in values:
            self._into(value, type(value).__name__, "", 1)
        if self._ran:
            self._read(CONTEXT, _Codes.of([self._ran[number] for number in sorted(self._ran)]), None, "the code of a function", "", _DEEPEST)

    def names(self) -> set[str]:
        """Attributes that the program's code names."""
        return set(self._attributes)

    def closures(self, met: Met) -> None:
        """Functions that ran, that no name leads to, and that an earlier run had, too."""
        missing = [code for code in self._codes - self._functions if set(code.co_freevars) - {"__class__"}]
        if not missing:
            return
        # The whole heap is searched once for a code: functions that a later call makes are of that call.
        new = [code for code in missing if code not in met.functions_of]
        met.functions_of.update((code, []) for code in new)
        for function in gc.get_referrers(*new) if new else ():
            if isinstance(function, types.FunctionType) and function.__code__ in new:
                met.functions_of[function.__code__].append(weakref.ref(function))
        functions = [function for code in missing for weak in met.functions_of[code] if (function := weak()) is not None]
        for function in met.add(functions):
            self._into(function, function.__name__, "", 1)

    def _read(self, kind: int, holder: Any, key: Any, name: str, where: str, depth: int) -> None:
        read = Read(kind, holder, key, name, where)
        if read.place in self.reads or read.place in self._left:
            return
        self.reads[read.place] = read
        if read.expected is not NOTHING:
            self._into(read.expected, name, where, depth + 1)

    def _into(self, value: Any, name: str, where: str, depth: int) -> None:
        import torch

        if is_number(value) or depth > _DEEPEST or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        kind = type(value)
        if kind.__module__ != "builtins" and isinstance(value, (dict, list, tuple, set, frozenset, collections.deque)):
            self._entries(getattr(value, "__dict__", {}), self._attributes, name, depth)
        if isinstance(value, torch.Tensor):
            self._tensor(value, name, depth)
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
        elif kind is functools.partial:
            for part in (value.func, value.args, value.keywords):
                self._into(part, name, where, depth + 1)
            self._entries(value.__dict__, self._attributes, name, depth)
        elif isinstance(value, dict):
            self._dict(value, name, where, depth)
        elif isinstance(value, (collections.UserDict, collections.UserList, collections.ChainMap)):
            for key in ("data", "maps"):
                self._read(ENTRY, vars(value), key, name, where, depth)
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
        elif isinstance(value, types.ModuleType):
            if value.__name__ not in sys.builtin_module_names and kind_of(getattr(value, "__file__", None) or "") == "user":
                self._entries(vars(value), self._attributes, name, depth)
        elif isinstance(value, type):
            self._class_values(value, None, name, depth)
            if kind is not type:
                self._class_values(kind, entries_of(value), name, depth)
        elif isinstance(value, weakref.ref):
            self._into(value(), name, where, depth + 1)
        elif kind is contextvars.ContextVar:
            self._read(CONTEXT, value, None, f"{name}.get()", where, depth)
        elif hasattr(kind, "__next__"):
            self.unseen = f"the function may take it from `{name}`, an iterator or a file"
        elif kind.__module__ != "builtins":
            self._instance(value, name, depth)

    def _tensor(self, tensor: Any, name: str, depth: int) -> None:
        """What the code may ask of it that no operator sees."""
        self.leaves[id(tensor)] = tensor
        for read in hooks_of(tensor, name):
            self.reads.setdefault(read.place, read)
        self._entries(tensor.__dict__, self._attributes, name, depth)
        for key in ("requires_grad", "is_leaf", "_version"):
            if key in self._attributes and not (key == "_version" and tensor.is_inference()):
                self._read(ATTRIBUTE, tensor, key, f"{name}.{key}", self._attributes[key], depth)

    def _function(self, function: Any, name: str, depth: int) -> None:
        code = function.__code__
        self._entries(function.__dict__, self._attributes, name, depth)
        if code not in self._codes:
            return
        self._functions.add(code)
        self._ran[id(function)] = function
        for variable, cell in zip(code.co_freevars, function.__closure__ or ()):
            if variable != "__class__":
                self._read(CELL, cell, None, variable, f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}",
                           depth)
        if function.__defaults__:
            self._read(ATTRIBUTE, function, "__defaults__", f"the defaults of {name}()", "", depth)
        if function.__kwdefaults__:
            self._read(ATTRIBUTE, function, "__kwdefaults__", f"the defaults of {name}()", "", depth)
        for value in (function.__defaults__ or (), function.__kwdefaults__ or {}):
            self._into(value, name, "", depth + 1)
        if wrapped := function.__dict__.get("__wrapped__"):
            self._into(wrapped, name, "", depth + 1)

    def _entries(self, entries: dict[str, Any], names: dict[str, str], owner: str, depth: int) -> None:
        for key in [key for key in entries if key in names]:
            self._read(ENTRY, entries, key, f"{owner}.{key}", names[key], depth)

    def _module(self, module: Any, name: str, depth: int) -> None:
        self.modules[module] = None
        own = _own_of_modules()
        names = {key: where for key, where in self._nn_attributes.items() if key not in own}
        self._entries(module.__dict__, names, name, depth)
        for parameters in (module._parameters, module._buffers):
            for tensor in parameters.values():
                if tensor is not None:
                    self._seen[id(tensor)] = tensor
        if kind_of(getattr(sys.modules.get(type(module).__module__), "__file__", None) or "") == "user":
            self._class_values(type(module), module.__dict__, name, depth)

    def _optimizer(self, optimizer: Any, name: str, depth: int) -> None:
        self.leaves.update((id(parameter), parameter) for group in optimizer.param_groups for parameter in group["params"])
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
                count = Read(SIZE, optimizer.param_groups, None, f"len({name}.param_groups)", where)
                for read in (groups, item, count):
                    self.reads.setdefault(read.place, read)

    def _dict(self, value: dict[Any, Any], name: str, where: str, depth: int) -> None:
        keys = list(value)
        self._read(SIZE, value, None, f"len({name})", where, depth)
        if len(keys) > _MOST_ITEMS:
            self._too_long(value.values(), len(keys), name)
            keys = [key for key in keys if isinstance(key, str) and key in self._strings][:_MOST_ITEMS]
        for key in keys:
            self._read(ENTRY, value, key, f"{name}[{key!r}]" if is_number(key) else f"{name}[...]", where, depth)

    def _list(self, value: list[Any], name: str, where: str, depth: int) -> None:
        self._read(SIZE, value, None, f"len({name})", where, depth)
        if len(value) > _MOST_ITEMS:
            self._too_long(value, len(value), name)
        for index in range(min(len(value), _MOST_ITEMS)):
            self._read(ITEM, value, index, f"{name}[{index}]", where, depth)

    def _array(self, value: Any, name: str, where: str, depth: int) -> None:
        size = memoryview(value).nbytes if not hasattr(value, "nbytes") else value.nbytes
        of_objects = getattr(getattr(value, "dtype", None), "hasobject", False)
        if size <= _MOST_BYTES and not of_objects:
            self._read(BYTES, value, None, f"the content of {name}", where, depth)
            return
        many = "objects" if of_objects else f"{size} bytes, and no more than {_MOST_BYTES} are looked at"
        self.refusals.append(f"The function reads `{name}`, an array of {many}; make it a tensor outside of the function "
                             "(torch.from_numpy), or promise by guards=\"promised\" that it does not change.")

    def _too_long(self, values: Iterable[Any], count: int, name: str) -> None:
        if is_number(next(iter(values))):
            self.refusals.append(f"The function reads `{name}`, which has {count} items, and no more than {_MOST_ITEMS} are looked "
                                 "at; give the numbers as a tensor, or promise by guards=\"promised\" that they do not change.")

    def _instance(self, value: Any, name: str, depth: int) -> None:
        if type(value).__module__.startswith("numpy.random"):
            self.generators.append(value)
            return
        self._read(KIND, value, None, f"the class of {name}", "", _DEEPEST)
        entries = getattr(value, "__dict__", None)
        names = self._attributes if type(value).__module__.partition(".")[0] != "torch" else self._nn_attributes
        if isinstance(entries, dict):
            self._entries(entries, self._names_of_all(value, entries) or names, name, depth)
            for key, place in self._optional.items():
                self._read(ENTRY, entries, key, f"{name}.{key}", place, depth)
        self._class_values(type(value), entries if isinstance(entries, dict) else None, name, depth)
        for kind in type(value).__mro__:
            for key, member in vars(kind).items():
                if key in names and isinstance(member, types.MemberDescriptorType):
                    self._read(ATTRIBUTE, value, key, f"{name}.{key}", names[key], depth)

    def _names_of_all(self, value: Any, entries: dict[str, Any]) -> dict[str, str]:
        """Each attribute, where the code asks for all of an object of numbers; else none."""
        is_record = isinstance(value, _ASKED_FOR_ALL) or hasattr(type(value), "__dataclass_fields__")
        return dict.fromkeys(entries, next(iter(self._asks_for_all.values()))) if is_record and self._asks_for_all else {}

    def _class_values(self, kind: type, own: dict[str, Any] | None, name: str, depth: int) -> None:
        """Values and functions of a class and of those above it. ``own``: what the instance has itself."""
        for each in kind.__mro__:
            if each.__module__ in ("builtins", "abc", "typing", "enum") or each.__module__.startswith("torch"):
                continue
            entries = entries_of(each)
            for key, value in list(entries.items()):
                if key not in self._attributes and key not in _CALLED or own is not None and key in own:
                    continue
                is_function = isinstance(value, (types.FunctionType, property, staticmethod, classmethod))
                if not isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)):
                    self._read(ENTRY, entries, key, f"{each.__name__}.{key}", self._attributes.get(key, ""), depth)
                    self._missing_below(kind, each, own, key, name, depth)
                if is_function and not isinstance(value, types.FunctionType):
                    function = getattr(value, "fget", None) or getattr(value, "__func__", value)
                    self._into(function, f"{name}.{key}", self._attributes.get(key, ""), depth + 1)

    def _missing_below(self, kind: type, owner: type, own: dict[str, Any] | None, key: str, name: str, depth: int) -> None:
        """The instance and the classes below the owner may get the name for themselves."""
        where = self._attributes.get(key, "")
        if own is not None:
            self._read(ENTRY, own, key, f"{name}.{key}", where, depth)
        for each in kind.__mro__[:kind.__mro__.index(owner)]:
            if each.__flags__ & _MADE_IN_PYTHON and key not in vars(each):
                self._read(ENTRY, entries_of(each), key, f"{each.__name__}.{key}", where, depth)


def _is_pythons_own(value: Any) -> bool:
    return isinstance(value, (types.BuiltinFunctionType, type)) or value is None or value is NotImplemented or value is Ellipsis


@functools.lru_cache(maxsize=1)
def _own_of_modules() -> frozenset[str]:
    import torch

    return frozenset(torch.nn.Module().__dict__)
