"""Values of a Python program that a recording depends on, and one quick look at all of them."""
from __future__ import annotations

import ctypes
import enum
import functools
import gc
import struct
import sys
import types
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from overdrive.native.library import under_the_gil

# Kinds of python/border/values.cpp, then those that Python looks at.
ENTRY, VALUES, SIZE, ITEM, CELL, KIND, ATTRIBUTE, CONTENTS, BYTES, CONTEXT, KEYS, CODE, ANSWER, ABSENT, DICT, ALIKE = range(16)
_OF_C = ctypes._SimpleCData.__mro__[1]
FUNCTION_OF_C = type(ctypes.pythonapi.Py_DecRef).__mro__[-3]
NOTHING: Any = type("Nothing", (), {"__repr__": lambda self: "nothing"})()


# Classes of most values, of which is_number() need not ask more.
_NUMBERS = frozenset((type(None), bool, int, float, str, bytes, complex))
# Classes whose equal values have the same bits.
_EQUAL_IS_SAME = frozenset((int, bool, str, bytes, range))
_NO_NUMBERS = frozenset((type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, dict, list, tuple, set,
                         frozenset, property, classmethod, staticmethod))
# Of what a container has, beside single items.
IN_CONTAINERS = (SIZE, KEYS, CONTENTS, BYTES)
# Of C alone.
_C_KEYS, _C_CODE, _C_VERSION, _C_DICT = 6, 7, 10, 11
_C_OF_FUNCTIONS = {"__defaults__": 8, "__kwdefaults__": 9}
# Kinds that always look at a dict where their holder is one.
_OF_DICTS = (ENTRY, VALUES, SIZE, ABSENT)
# Value of python/border/values.cpp, as 64-bit words: how many, and where two of them are.
_WORDS, _KEY, _EXPECTED = 4, 2, 3
# In the place of one that was taken out: None is of its class.
_HOLDS = KIND, id(None), 0, id(type(None))
# By how much fewer new guards are than all, which are not laid out anew for them.
_FEW = 16


def is_number(value: Any) -> bool:
    """Whether the value counts, and not which object it is."""
    kind = type(value)
    if kind in _NUMBERS or kind in _NO_NUMBERS:
        return kind in _NUMBERS
    return isinstance(value, (int, float, str, bytes, complex)) or is_setting(value) or is_scalar(value)


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
    return isinstance(value, _OF_C) and not isinstance(value, FUNCTION_OF_C)


def bytes_of(value: Any) -> tuple[Any, ...]:
    if is_of_c(value):
        return (bytes(value),)
    if isinstance(value, (array, bytearray, memoryview)):
        view = memoryview(value)
        return view.shape, view.format, view.tobytes()
    # Classes of arrays may have another tobytes(): numpy.ma.masked has one that raises, and a mask has bytes of its own.
    asarray = sys.modules["numpy"].asarray
    return value.shape, value.dtype.str, asarray(value).tobytes(), asarray(getattr(value, "_mask", False)).tobytes()


def states_of(generators: Iterable[Any]) -> list[bytes]:
    """Of NumPy's generators and its global one, where each is in its numbers."""
    import pickle

    module = sys.modules.get("numpy.random")
    states = [] if module is None else [module.get_state()]
    for generator in generators:
        states.append(generator.get_state() if hasattr(generator, "get_state") else getattr(generator, "bit_generator", generator).state)
    return [pickle.dumps(state) for state in states]


def frozen(value: Any) -> Any:
    """A value as it is now, which a change in place makes another one."""
    import torch

    if isinstance(value, torch.Tensor):
        return value, None if value.is_inference() else value._version
    if is_array(value):
        return bytes_of(value)
    if isinstance(value, dict):
        return type(value), [*value], [frozen(item) for item in value.values()]
    if isinstance(value, (tuple, list, set, frozenset)):
        return type(value), [frozen(item) for item in value]
    return value


def is_all_numbers(value: Any) -> bool:
    """Whether it is a tuple that counts by its values."""
    return isinstance(value, tuple) and all(map(is_number, value))


def is_setting(value: Any) -> bool:
    import torch

    return isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum))


def same_value(a: Any, b: Any) -> bool:
    """Whether both have the same class and the same bits. 1 is neither 1.0 nor True, and a class of the program has no say in it (``__eq__``)."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind in _EQUAL_IS_SAME:
        return bool(a == b)
    if kind is float:
        return struct.pack("d", a) == struct.pack("d", b)
    if kind is complex:
        return struct.pack("dd", a.real, a.imag) == struct.pack("dd", b.real, b.imag)
    if is_scalar(a):
        return bool(a.dtype == b.dtype and a.tobytes() == b.tobytes())
    if isinstance(a, (tuple, list)) or kind in (set, frozenset):
        return len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, dict):
        return same_value([*a], [*b]) and all(map(same_value, a.values(), b.values()))
    if kind is slice:
        return same_value((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return _is_device(a) and bool(a == b)


def _is_device(value: Any) -> bool:
    import torch

    return isinstance(value, torch.device)


class Read:
    """One value, where it is found, and what it was."""

    __slots__ = ("kind", "holder", "key", "expected", "name", "where", "place")

    def __init__(self, kind: int, holder: Any, key: Any, name: str = "", where: str = "") -> None:
        self.kind, self.holder, self.key, self.name, self.where = kind, holder, key, name, where
        self.place: tuple[int, int, Any] = (kind, id(holder), key)
        self.expected = dict.get(holder, key, NOTHING) if kind == ENTRY else self.now()

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
        if kind == DICT:
            return holder.__dict__
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
        if self.expected is NOTHING:
            return now is NOTHING
        if self.kind in (CONTENTS, KEYS):
            return len(now) == len(self.expected) and all(map(same_value, now, self.expected))
        if self.kind == VALUES:
            return len(now) == len(self.expected) and all(a is b for a, b in zip(now, self.expected))
        if self.kind in (BYTES, CODE):
            return bool(now == self.expected)
        return now is self.expected or (is_number(now) or is_all_numbers(now)) and same_value(now, self.expected)

    def told(self) -> str:
        """The name as a program writes it, its values and its line."""
        now = self.now()
        text = f"`{self.name}`"
        if is_number(now) and is_number(self.expected):
            text += f" ({self.expected!r}, then {now!r})"
        return text + (f", read at {self.where}" if self.where else "")


class Alike(Read):
    """A place at which some calls leave another tensor, and whose tensor no operator of this call is given: only what Python asks of it counts."""

    __slots__ = ()

    def __init__(self, read: Read) -> None:
        super().__init__(read.kind, read.holder, read.key, read.name, read.where)
        self.place = (ALIKE, id(read.holder), read.key)
        self.expected = _looks_of(self.expected)

    def now(self) -> Any:
        return _looks_of(super().now())

    def accepts(self, now: Any) -> bool:
        return same_value(self.expected, now)


def _looks_of(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return type(value), value.dtype, value.device, tuple(value.shape), value.requires_grad, value.is_leaf


def as_it_is_now(read: Read) -> Read:
    return Read(read.kind, read.holder, read.key, read.name, read.where)


def _is_told_by_a_version(read: Read) -> bool:
    is_nothing = read.expected is NOTHING and read.kind != ENTRY
    return not is_nothing and isinstance(read.holder, dict) and (
        read.kind in _OF_DICTS or read.kind == KEYS and not isinstance(read.holder, OrderedDict))


def _c_kind(read: Read) -> int | None:
    """How C looks at it; None: only Python can."""
    if read.expected is NOTHING and read.kind in (VALUES, CONTENTS, KEYS):
        return None
    if read.kind in (ENTRY, VALUES, SIZE, ITEM, CELL, KIND):
        return read.kind
    if read.kind in (CONTENTS, KEYS) and not read.expected:
        return SIZE
    if read.kind == DICT:
        return _C_DICT
    if type(read.holder) is types.FunctionType:
        return _C_CODE if read.kind == CODE else _C_OF_FUNCTIONS.get(read.key) if read.kind == ATTRIBUTE else None
    return None


@functools.lru_cache(maxsize=1)
def _dicts_have_versions() -> bool:
    """Whether a dict has a number that changes with it, as in CPython until 3.12."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 13) or object.__basicsize__ != 2 * ctypes.sizeof(ctypes.c_void_p):
        return False
    probe: dict[str, int] = {}
    version = ctypes.c_uint64.from_address(id(probe) + 3 * ctypes.sizeof(ctypes.c_void_p))
    seen = []
    for change in (lambda: probe.update(a=1), lambda: probe.update(a=2), lambda: probe.update(b=1), lambda: probe.pop("a"), probe.clear):
        change()
        before = version.value
        probe.get("a"), len(probe), list(probe)
        if version.value != before:
            return False
        seen.append(before)
    return len(set(seen)) == len(seen)


class Absent(Read):
    """Keys that a dict has not: code names many, and a dict has got none of them as long as it has the keys that it had. Their number tells
    nothing: one may be in the place of another."""

    __slots__ = ("_names", "_tables", "_had", "_left_out")

    def __init__(self, holder: dict[Any, Any], left_out: Iterable[Any] = ()) -> None:
        super().__init__(ABSENT, holder, None)
        # Of each key the name as a program writes it, and its line.
        self._names: dict[Any, tuple[str, str]] = {}
        # Tables of names with their lines, which many dicts share: with the owner's name, and the keys that the dict had.
        self._tables: dict[int, tuple[Mapping[Any, str], str, frozenset[Any]]] = {}
        self._had: frozenset[Any] | None = None
        self._left_out = set(left_out)

    def add(self, key: Any, name: str, where: str) -> None:
        self._names.setdefault(key, (name, where))

    def add_table(self, names: Mapping[Any, str], owner: str) -> None:
        """Those of the names that the dict has not. The table may get more of them."""
        if id(names) not in self._tables:
            if self._had is None:
                self._had = frozenset(self.holder)
            self._tables[id(names)] = names, owner, self._had

    def merge(self, other: Absent) -> None:
        """What was looked for before keeps its name."""
        self._names = {**other._names, **self._names}
        self._tables = {**other._tables, **self._tables}
        self._left_out |= other._left_out

    def now(self) -> Any:
        return len(self.holder)

    def accepts(self, now: Any) -> bool:
        return next(self._come(), None) is None

    def leave_out(self, keys: Iterable[Any]) -> None:
        """Those that are values of their own."""
        self._left_out.update(keys)

    def without(self, keys: Iterable[Any]) -> Absent:
        """For one set of values: others, in which the keys are missing, share this guard."""
        found = Absent(self.holder, [*self._left_out, *keys])
        found._names, found._tables, found._had = dict(self._names), dict(self._tables), self._had
        return found

    def come(self) -> list[Read]:
        """Those that are there now, each as a value that there was not."""
        found = {}
        for key, name, where in self._come():
            if key not in found:
                found[key] = Read(ENTRY, self.holder, key, name, where)
                found[key].expected = NOTHING
        return list(found.values())

    def _come(self) -> Iterator[tuple[Any, str, str]]:
        for key, (name, where) in self._names.items():
            if dict.__contains__(self.holder, key) and key not in self._left_out:
                yield key, name, where
        for names, owner, had in self._tables.values():
            for key in dict.keys(self.holder) - had - self._left_out:
                if key in names:
                    yield key, f"{owner}.{key}", names[key]


class Held(list[Any]):
    """Values that guards compare by their addresses: no other may come there. The program has them no longer for that."""


class Reads:
    """Several of them. ``changed()`` is the first that is another one now: what is the same object costs a few
    nanoseconds, and an equal number that is another object is looked at once."""

    def __init__(self, reads: Iterable[Read] = ()) -> None:
        self._all: dict[tuple[int, int, Any], Read] = {}
        self._first_changed = under_the_gil().overdrive_python_first_changed
        self._is_laid_out = False
        # Whether C looks at all of them.
        self._is_of_c = False
        # Those that came after the rest was laid out.
        self._new: list[Read] = []
        self.add(reads)

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, place: tuple[int, int, Any]) -> bool:
        return place in self._all

    def add(self, reads: Iterable[Read]) -> None:
        """What is there already keeps its value."""
        for read in reads:
            place = read.place
            known = self._all.get(place)
            if known is None:
                self._all[place] = read
                self._new.append(read)
            elif known is not read and isinstance(known, Absent) and isinstance(read, Absent):
                known.merge(read)

    def all(self) -> Iterable[Read]:
        return self._all.values()

    def leave_out(self, places: Iterable[tuple[int, int, Any]]) -> None:
        """Values at these places are not looked for where there are none."""
        for kind, holder, key in places:
            absent = self._all.get((ABSENT, holder, None))
            if kind == ENTRY and isinstance(absent, Absent):
                absent.leave_out([key])

    def _lay_out(self) -> None:
        self._is_laid_out = True
        self._slow: list[Read] = []
        self._attributes: list[Read] = []
        # As C has them: the kind, the holder, the key and what is expected, for each.
        self._array = array("q")
        self._fast: list[Read | None] = []
        # The objects whose addresses C has, so that no others come to their places in memory. Other sets share a guard and change it.
        self._held = Held()
        self._kept: dict[int, Any] = {}
        # Of each dict the values that its version tells.
        in_dicts: dict[int, list[Read]] = {}
        others: list[Read] = []
        for read in self._all.values():
            is_in_a_dict = not isinstance(read, Alike) and (read.kind == ENTRY or _is_told_by_a_version(read))
            (in_dicts.setdefault(id(read.holder), []) if is_in_a_dict else others).append(read)
        have_versions = _dicts_have_versions()
        for holder, reads in in_dicts.items():
            if have_versions:
                self._fast.append(None)
                self._held.append(None)
                self._array.extend((_C_VERSION, holder, len(reads), 0))
            self._append(reads)
        self._append(others)
        self._finish()

    def _append(self, reads: Iterable[Read]) -> None:
        for read in reads:
            expected = read.expected
            if isinstance(read, Alike):
                self._slow.append(read)
                continue
            if read.kind == ENTRY:  # most are
                words = ENTRY, id(read.holder), id(read.key), 0 if expected is NOTHING else id(expected)
            elif _is_told_by_a_version(read) or _c_kind(read) is not None:
                words = self._as_c(read)
            else:
                (self._attributes if read.kind in (ATTRIBUTE, CODE) else self._slow).append(read)
                continue
            self._fast.append(read)
            self._held.append(expected)
            self._array.extend(words)

    def _finish(self) -> None:
        self._by_identity = [(read.holder, "__code__" if read.kind == CODE else read.key, read.expected) for read in self._attributes]
        self._count, self._begin = len(self._fast), self._array.buffer_info()[0]
        self._is_of_c = not self._by_identity and not self._slow

    def _look_at_new(self) -> None:
        """Lays out those that came, which are few beside the others: they have no version of their dict."""
        if not self._is_laid_out or _FEW * len(self._new) > len(self._all):
            self._lay_out()
        else:
            self._append(self._new)
            self._finish()
        self._new.clear()

    def _take_out(self, reads: Iterable[Read]) -> None:
        """What has been dropped must die as it would."""
        gone = set(map(id, reads))
        self._new = [read for read in self._new if id(read) not in gone]
        if not self._is_laid_out:
            return
        for at, read in enumerate(self._fast):
            if id(read) in gone:
                self._fast[at] = self._held[at] = None
                self._array[_WORDS * at:_WORDS * (at + 1)] = array("q", _HOLDS)
                self._kept.pop(id(read), None)
        self._slow = [read for read in self._slow if id(read) not in gone]
        self._attributes = [read for read in self._attributes if id(read) not in gone]
        self._finish()

    def _as_c(self, read: Read) -> tuple[int, int, int, int]:
        kind, expected = read.kind, read.expected
        if kind == ABSENT:
            return _C_KEYS, id(read.holder), expected, self._addresses(read)
        if kind == SIZE or kind in (CONTENTS, KEYS) and not expected:
            return SIZE, id(read.holder), expected or 0, 0
        if kind in (VALUES, KEYS):
            return (VALUES if kind == VALUES else _C_KEYS), id(read.holder), len(expected), self._addresses(read)
        key = read.key if kind == ITEM else id(read.key)  # of others than an ENTRY not used
        is_none = expected is NOTHING or expected is None and kind == ATTRIBUTE
        return _c_kind(read) or 0, id(read.holder), key, 0 if is_none else id(expected)

    def _addresses(self, read: Read) -> int:
        objects = tuple(dict.keys(read.holder) if isinstance(read, Absent) else read.expected)
        addresses = array("q", map(id, objects)) or array("q", [0])
        # With the objects, so that no others come to their places in memory.
        self._kept[id(read)] = addresses, objects
        return addresses.buffer_info()[0]

    def changed(self) -> Read | None:
        if self._is_of_c and not self._new and self._first_changed(self._begin, 0, self._count) == self._count:
            return None  # nearly always
        other = next(self.others(), None)
        return other.come()[0] if isinstance(other, Absent) else other

    def other_values(self) -> list[Read]:
        """Those that are others now; of keys that were missing, each that is there."""
        return [each for read in self.others() for each in (read.come() if isinstance(read, Absent) else (read,))]

    def others(self) -> Iterator[Read]:
        """Those that are others now."""
        if self._new or not self._is_laid_out:
            self._look_at_new()
        at = self._first_changed(self._begin, 0, self._count)
        for index, (holder, name, expected) in enumerate(self._by_identity):
            if getattr(holder, name, NOTHING) is not expected:
                read = self._attributes[index]
                if not read.accepts(read.now()):
                    yield read
        while at < self._count:
            fast = self._fast[at]
            assert fast is not None
            now = fast.now()
            if fast.accepts(now):
                self._expect(at, fast, now)
            else:
                yield fast
            at = self._first_changed(self._begin, at + 1, self._count)
        for read in self._slow:
            if not read.accepts(read.now()):
                yield read

    def _expect(self, at: int, read: Read, now: Any) -> None:
        """An equal value that is another object."""
        if isinstance(read, Absent):
            read.expected = self._array[_WORDS * at + _KEY] = now
            self._array[_WORDS * at + _EXPECTED] = self._addresses(read)
        elif read.kind == KEYS:
            read.expected = now
            self._array[_WORDS * at + _EXPECTED] = self._addresses(read)
        elif read.kind in (ENTRY, ITEM, CELL):
            read.expected = self._held[at] = now
            self._array[_WORDS * at + _EXPECTED] = 0 if now is NOTHING else id(now)

    def drop_changed(self) -> dict[tuple[int, int, Any], Read]:
        """Forgets those that are others now. Returns them."""
        others = set(map(id, self.others()))
        places = {place: read for place, read in self._all.items() if id(read) in others} if others else {}
        if places:
            self._all = {place: read for place, read in self._all.items() if place not in places}
            absents = [read for read in places.values() if isinstance(read, Absent)]
            self._take_out(places.values())
            for absent in absents:
                come = {read.place: read for read in absent.come()}
                del places[absent.place]
                places.update(come)
                self.add([absent.without(read.key for read in come.values())])
        return places

    def has(self, read: Read) -> bool:
        """Whether this very guard is among them, and not one of its own at the same place."""
        return self._all.get(read.place) is read


def entries_of(kind: type) -> dict[str, Any]:
    """The dict of a class behind the view of it that Python gives."""
    found: dict[str, Any] = gc.get_referents(vars(kind))[0]
    return found


def is_scripted(module: Any) -> bool:
    """Made by TorchScript, which keeps what the module has where no guard looks."""
    import torch

    return isinstance(module, torch.jit.ScriptModule)


_IN_MODULES = ("_parameters", "_buffers", "_modules", "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks",
               "_compiled_call_impl")


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
        # Each of these by its place, too: __setstate__() and module.__dict__.update() put others there.
        reads += [Read(ENTRY, module.__dict__, key, name) for key in _IN_MODULES]
        reads.append(Read(ENTRY, module.__dict__, "forward", f"forward() of {type(module).__name__}"))
        reads.append(Read(KIND, module, None, f"the class of {type(module).__name__}"))
        for parameter in module._parameters.values():
            reads.extend(hooks_of(parameter, name))
    return reads


def hooks_of(tensor: Any, name: str) -> list[Read]:
    """Its hooks in Python: C++ sees one object for all hooks of a tensor, and sees it come."""
    if tensor is None:
        return []
    return [Read(VALUES, hooks, None, f"a hook of {name}")
            for hooks in (tensor._backward_hooks, tensor._post_accumulate_grad_hooks) if isinstance(hooks, dict)]


