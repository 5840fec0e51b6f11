"""Values of a Python program that a recording depends on, and one quick look at all of them."""
from __future__ import annotations

import contextlib
import ctypes
import enum
import gc
import math
import sys
from array import array
from collections import OrderedDict
from collections.abc import Container, Iterable
from typing import Any

from overdrive._library import under_the_gil

# Kinds of python/border/values.cpp, then those that Python looks at.
ENTRY, VALUES, SIZE, ITEM, CELL, KIND, ATTRIBUTE, CONTENTS, BYTES, CONTEXT, KEYS, CODE, ANSWER, ABSENT = range(14)
_FIRST_SLOW = ATTRIBUTE
_OF_C = ctypes._SimpleCData.__mro__[1]
_FUNCTION_OF_C = type(ctypes.pythonapi.Py_DecRef).__mro__[-3]
NOTHING: Any = type("Nothing", (), {"__repr__": lambda self: "nothing"})()


class _Value(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int64), ("holder", ctypes.c_void_p), ("key", ctypes.c_void_p),
                ("expected", ctypes.c_void_p)]


def is_number(value: Any) -> bool:
    """Whether the value counts, and not which object it is."""
    return value is None or isinstance(value, (int, float, str, bytes, complex)) or is_setting(value) or is_scalar(value)


def is_scalar(value: Any) -> bool:
    """Whether it is a number of NumPy's, as ``numpy.float32(2)``."""
    return type(value).__module__ == "numpy" and isinstance(value, sys.modules["numpy"].generic)


def is_array(value: Any) -> bool:
    """Whether the program may change its bytes in place: an array of NumPy's or Python's own, or a value of C's."""
    numpy = sys.modules.get("numpy")
    return isinstance(value, (array, bytearray, memoryview)) or is_of_c(value) or numpy is not None and isinstance(
        value, getattr(numpy, "ndarray", ()))


def is_of_c(value: Any) -> bool:
    """Whether ctypes made it, and it is no function, as what multiprocessing.Value() shares."""
    return isinstance(value, _OF_C) and not isinstance(value, _FUNCTION_OF_C)


def bytes_of(value: Any) -> tuple[Any, ...]:
    if is_of_c(value):
        return (bytes(value),)
    if isinstance(value, (array, bytearray, memoryview)):
        view = memoryview(value)
        return view.shape, view.format, view.tobytes()
    return value.shape, value.dtype.str, value.tobytes()


def states_of(generators: Iterable[Any]) -> list[bytes]:
    """Of NumPy's generators and its global one, where each is in its numbers."""
    import pickle

    module = sys.modules.get("numpy.random")
    states = [] if module is None else [module.get_state()]
    for generator in generators:
        states.append(generator.get_state() if hasattr(generator, "get_state") else getattr(generator, "bit_generator", generator).state)
    return [pickle.dumps(state) for state in states]


def _is_all_numbers(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(is_number, value))


def is_setting(value: Any) -> bool:
    import torch

    return isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum))


def same_value(a: Any, b: Any) -> bool:
    """Whether a program would do the same with both: 0.0 is not -0.0, and 1 is neither 1.0 nor True."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b) or a != a and b != b
    if is_scalar(a):
        return bool(a.dtype == b.dtype and a.tobytes() == b.tobytes())
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same_value, a.values(), b.values()))
    with contextlib.suppress(Exception):
        return bool(a == b)
    return False


class Read:
    """One value, where it is found, and what it was."""

    __slots__ = ("kind", "holder", "key", "expected", "name", "where")

    def __init__(self, kind: int, holder: Any, key: Any, name: str = "", where: str = "") -> None:
        self.kind, self.holder, self.key, self.name, self.where = kind, holder, key, name, where
        self.expected = self.now()

    @property
    def place(self) -> tuple[int, int, Any]:
        return self.kind, id(self.holder), self.key

    def now(self) -> Any:
        kind, holder, key = self.kind, self.holder, self.key
        if kind == ENTRY:
            return dict.get(holder, key, NOTHING)
        if kind == VALUES:
            return list(dict.values(holder))
        if kind == SIZE:
            return len(holder)
        if kind == ITEM:
            return holder[key] if key < len(holder) else NOTHING
        if kind == CELL:
            try:
                return holder.cell_contents
            except ValueError:
                return NOTHING
        if kind == KIND:
            return type(holder)
        if kind == CONTEXT:
            return holder.get(NOTHING)
        if kind == CONTENTS:
            return list(holder)
        if kind == BYTES:
            return bytes_of(holder)
        if kind == KEYS:
            return list(OrderedDict.keys(holder) if isinstance(holder, OrderedDict) else dict.keys(holder))
        if kind == CODE:
            return holder.__code__
        if kind == ANSWER:
            return holder()
        return getattr(holder, key, NOTHING)

    def accepts(self, now: Any) -> bool:
        if self.kind in (CONTENTS, KEYS):
            return len(now) == len(self.expected) and all(map(same_value, now, self.expected))
        if self.kind == VALUES:
            return len(now) == len(self.expected) and all(a is b for a, b in zip(now, self.expected))
        if self.kind in (BYTES, CODE):
            return bool(now == self.expected)
        return now is self.expected or (is_number(now) or _is_all_numbers(now)) and same_value(now, self.expected)

    def told(self) -> str:
        """The name as a program writes it, its values and its line."""
        now = self.now()
        text = f"`{self.name}`"
        if is_number(now) and is_number(self.expected):
            text += f" ({self.expected!r}, then {now!r})"
        return text + (f", read at {self.where}" if self.where else "")


def _are_distinct(values: list[Any]) -> bool:
    return len(set(map(id, values))) == len(values)


def _is_told_by_values(read: Read) -> bool:
    """Whether the order of the keys of a dict is that of its values, each of which is looked at by its key."""
    if read.kind in (CONTENTS, KEYS) and not read.expected:
        return True
    return (read.kind == KEYS and not isinstance(read.holder, OrderedDict) and _are_distinct(list(dict.values(read.holder)))
            and read.accepts(read.now()))


class Absent(Read):
    """Keys that a dict has not: code names many, and a dict has got none of them as long as it has as many keys as before."""

    __slots__ = ("names",)

    def __init__(self, holder: dict[Any, Any]) -> None:
        super().__init__(ABSENT, holder, None)
        # Of each key the name as a program writes it, and its line.
        self.names: dict[Any, tuple[str, str]] = {}

    def add(self, names: Iterable[tuple[Any, str]], owner: str) -> None:
        for key, where in names:
            self.names.setdefault(key, (f"{owner}.{key}", where))

    def now(self) -> Any:
        return len(self.holder)

    def accepts(self, now: Any) -> bool:
        return not any(dict.__contains__(self.holder, key) for key in self.names)

    def leave_out(self, places: Container[tuple[int, int, Any]]) -> None:
        """Those that are values at these places."""
        self.names = {key: name for key, name in self.names.items() if (ENTRY, id(self.holder), key) not in places}

    def come(self) -> list[Read]:
        """Those that are there now, each as a value that there was not."""
        found = []
        for key, (name, where) in self.names.items():
            if dict.__contains__(self.holder, key):
                read = Read(ENTRY, self.holder, key, name, where)
                read.expected = NOTHING
                found.append(read)
        return found


class Reads:
    """Several of them. ``changed()`` is the first that is another one now: what is the same object costs a few
    nanoseconds, and an equal number that is another object is looked at once."""

    def __init__(self, reads: Iterable[Read] = ()) -> None:
        self._all: dict[tuple[int, int, Any], Read] = {}
        self._first_changed = under_the_gil().overdrive_python_first_changed
        self.add(reads)

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, place: tuple[int, int, Any]) -> bool:
        return place in self._all

    def add(self, reads: Iterable[Read]) -> None:
        """What is there already keeps its value."""
        for read in reads:
            known = self._all.setdefault(read.place, read)
            if known is not read and isinstance(known, Absent) and isinstance(read, Absent):
                known.names = {**read.names, **known.names}
        self._lay_out()

    def _lay_out(self) -> None:
        self._fast: list[Read] = []
        self._slow: list[Read] = []
        self._attributes: list[Read] = []
        for read in self._all.values():
            if read.kind < _FIRST_SLOW or read.kind == ABSENT or _is_told_by_values(read):
                self._fast.append(read)
            elif read.kind in (ATTRIBUTE, CODE):
                self._attributes.append(read)
            else:
                self._slow.append(read)
        self._by_identity = [(read.holder, "__code__" if read.kind == CODE else read.key, read.expected) for read in self._attributes]
        self._count = len(self._fast)
        self._array = (_Value * max(1, self._count))()
        self._kept: list[Any] = []
        for value, read in zip(self._array, self._fast):
            value.kind, value.holder = read.kind, id(read.holder)
            if read.kind in (CONTENTS, KEYS) and not read.expected:
                value.kind, value.key = SIZE, 0
            elif read.kind in (VALUES, KEYS):
                self._expect_values(value, read.expected if read.kind == VALUES else list(dict.values(read.holder)))
            elif read.kind in (SIZE, ABSENT):
                value.kind, value.key = SIZE, read.now()
            else:
                value.key = read.key if read.kind == ITEM else id(read.key)  # of a KIND not used
                value.expected = None if read.expected is NOTHING else id(read.expected)
        self._begin = ctypes.addressof(self._array)

    def _expect_values(self, value: _Value, values: list[Any]) -> None:
        expected = (ctypes.c_void_p * max(1, len(values)))(*map(id, values))
        self._kept.append(expected)
        value.kind, value.key, value.expected = VALUES, len(values), ctypes.addressof(expected)

    def changed(self) -> Read | None:
        at = self._first_changed(self._begin, 0, self._count)
        for index, (holder, name, expected) in enumerate(self._by_identity):
            if getattr(holder, name, NOTHING) is not expected:
                read = self._attributes[index]
                if not read.accepts(read.now()):
                    return read
        while at < self._count:
            read = self._fast[at]
            now = read.now()
            if not read.accepts(now):
                return read.come()[0] if isinstance(read, Absent) else read
            if isinstance(read, Absent):
                self._array[at].key = now
            elif read.kind == KEYS:
                self._keep_values(at, read)
            elif read.kind not in (SIZE, VALUES, KIND):
                read.expected = now
                self._array[at].expected = None if now is NOTHING else id(now)
            at = self._first_changed(self._begin, at + 1, self._count)
        for read in self._slow:
            if not read.accepts(read.now()):
                return read
        return None

    def _keep_values(self, at: int, read: Read) -> None:
        """The keys are as they were, and a value is another object."""
        values = list(dict.values(read.holder))
        if _are_distinct(values):
            (ctypes.c_void_p * len(values)).from_address(self._array[at].expected)[:] = list(map(id, values))

    def drop_changed(self) -> dict[tuple[int, int, Any], Read]:
        """Forgets those that are others now. Returns them."""
        places = {place: read for place, read in self._all.items() if not read.accepts(read.now())}
        if places:
            self._all = {place: read for place, read in self._all.items() if place not in places}
            for absent in [read for read in places.values() if isinstance(read, Absent)]:
                come = {read.place: read for read in absent.come()}
                del places[absent.place]
                places.update(come)
                absent.leave_out(come)
                self._all[absent.place] = absent
            self._lay_out()
        return places


def entries_of(kind: type) -> dict[str, Any]:
    """The dict of a class behind the view of it that Python gives."""
    found: dict[str, Any] = gc.get_referents(vars(kind))[0]
    return found


def is_scripted(module: Any) -> bool:
    """Made by TorchScript, which keeps what the module has where no guard looks."""
    import torch

    return isinstance(module, torch.jit.ScriptModule)


def structure_of(modules: Iterable[Any]) -> list[Read]:
    """Parameters, buffers, children and hooks of modules, and the hooks of all modules."""
    import torch.nn.modules.module as every

    reads = [Read(VALUES, hooks, None, "the hooks of all modules")
             for hooks in (every._global_forward_pre_hooks, every._global_forward_hooks,
                           every._global_backward_pre_hooks, every._global_backward_hooks)]
    for module in modules:
        name = f"a parameter, buffer, child or hook of {type(module).__name__}"
        for inside in (module._parameters, module._buffers, module._modules, module._forward_pre_hooks,
                       module._forward_hooks, module._backward_pre_hooks, module._backward_hooks):
            reads.append(Read(VALUES, inside, None, name))
        reads.append(Read(ENTRY, module.__dict__, "forward", f"forward() of {type(module).__name__}"))
        for parameter in module._parameters.values():
            reads.extend(hooks_of(parameter, name))
    return reads


def hooks_of(tensor: Any, name: str) -> list[Read]:
    """Its hooks in Python: C++ sees one object for all hooks of a tensor, and sees it come."""
    if tensor is None:
        return []
    return [Read(VALUES, hooks, None, f"a hook of {name}")
            for hooks in (tensor._backward_hooks, tensor._post_accumulate_grad_hooks) if isinstance(hooks, dict)]


