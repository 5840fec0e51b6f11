"""Many values of a program, and one quick look at all of them."""
from __future__ import annotations

import ctypes
import functools
import sys
import types
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from overdrive.native.library import under_the_gil
from overdrive.native.quick import Look
from overdrive.values.absent import Absent
from overdrive.values.read import ABSENT, ATTRIBUTE, CELL, CODE, CONTENTS, DICT, ENTRY, ITEM, KEYS, KIND, NOTHING, SIZE, VALUES, Alike, Read

# Of C alone.
_C_KEYS, _C_CODE, _C_VERSION, _C_DICT, _C_ATTRIBUTE, _C_ANSWER = 6, 7, 10, 11, 12, 13
_C_OF_FUNCTIONS = {"__defaults__": 8, "__kwdefaults__": 9}
# What C's function for sizes asks. A class of the program may have another one.
_LENGTHS = (list.__len__, dict.__len__, set.__len__)
# Kinds that always look at a dict where their holder is one.
_OF_DICTS = (ENTRY, VALUES, SIZE, ABSENT)
# Value of python/bindings/values.cpp, as 64-bit words: how many, and where two of them are.
_WORDS, _KEY, _EXPECTED = 4, 2, 3
# In the place of one that was taken out: None is of its class.
_HOLDS = KIND, id(None), 0, id(type(None))
# By how much fewer new guards are than all, which are not laid out anew for them.
_FEW = 16


def _is_told_by_a_version(read: Read) -> bool:
    is_nothing = read.expected is NOTHING and read.kind != ENTRY
    return not is_nothing and isinstance(read.holder, dict) and (
        read.kind in _OF_DICTS or read.kind == KEYS and not isinstance(read.holder, OrderedDict))


def _c_kind(read: Read) -> int:
    """How C looks at it; _C_ANSWER: it asks Python."""
    kind, holder = read.kind, read.holder
    if isinstance(read, Alike) or read.expected is NOTHING and kind in (VALUES, CONTENTS, KEYS, ATTRIBUTE):
        return _C_ANSWER
    if kind == SIZE and type(holder).__len__ not in _LENGTHS:
        return _C_ANSWER
    if kind in (ENTRY, VALUES, SIZE, ITEM, CELL, KIND):
        return kind
    if kind in (CONTENTS, KEYS) and not read.expected:
        return SIZE
    if kind == ABSENT or kind == KEYS and not isinstance(holder, OrderedDict):
        return _C_KEYS
    if kind == DICT:
        return _C_DICT
    if type(holder) is types.FunctionType and kind in (CODE, ATTRIBUTE):
        return _C_CODE if kind == CODE else _C_OF_FUNCTIONS.get(read.key, _C_ATTRIBUTE)
    return _C_ATTRIBUTE if kind == ATTRIBUTE else _C_ANSWER


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


class Held(list[Any]):
    """Values that guards compare by their addresses: no other may come there. The program has them no longer for that."""


class Reads:
    """Several of them. ``changed()`` is the first that is another one now: what is the same object costs a few
    nanoseconds, and an equal number that is another object is looked at once."""

    def __init__(self, reads: Iterable[Read] = ()) -> None:
        self._all: dict[tuple[int, int, Any], Read] = {}
        self._first_changed = under_the_gil().overdrive_python_first_changed
        self._is_laid_out = False
        # For a call without Python: whether C looks at all of them, and where they are.
        self.look = Look()
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
                self.look.is_whole = 0
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
            if read.kind == ENTRY and not isinstance(read, Alike):  # most are
                words = ENTRY, id(read.holder), id(read.key), 0 if expected is NOTHING else id(expected)
            else:
                words = self._as_c(read)
            self._fast.append(read)
            self._held.append(expected)
            self._array.extend(words)

    def _finish(self) -> None:
        self._count, self._begin = len(self._fast), self._array.buffer_info()[0]
        self.look.begin, self.look.count, self.look.is_whole = self._begin, self._count, not self._new
        self._is_laid_out = True

    def _look_at_new(self) -> None:
        """Lays out those that came, which are few beside the others: they have no version of their dict."""
        new, self._new = self._new, []
        # An error of a handler of signals leaves it so.
        was_laid_out, self._is_laid_out, self.look.is_whole = self._is_laid_out, False, 0
        if not was_laid_out or _FEW * len(new) > len(self._all):
            self._lay_out()
        else:
            self._append(new)
            self._finish()

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
        self._finish()

    def _as_c(self, read: Read) -> tuple[int, int, int, int]:
        kind, holder, expected = _c_kind(read), read.holder, read.expected
        if kind == _C_ANSWER:
            return self._as_answer(read)
        if kind == SIZE:
            return SIZE, id(holder), expected or 0, 0
        if kind in (VALUES, _C_KEYS):
            return kind, id(holder), expected if read.kind == ABSENT else len(expected), self._addresses(read)
        key = read.key if kind == ITEM else id(read.key)  # of others than an entry or an attribute not used
        is_null = expected is NOTHING or expected is None and kind in _C_OF_FUNCTIONS.values()
        return kind, id(holder), key, 0 if is_null else id(expected)

    def _as_answer(self, read: Read) -> tuple[int, int, int, int]:
        answer = self._kept[id(read)] = read.holds
        return _C_ANSWER, id(answer), 0, id(True)

    def _addresses(self, read: Read) -> int:
        objects = tuple(dict.keys(read.holder) if isinstance(read, Absent) else read.expected)
        addresses = array("q", map(id, objects)) or array("q", [0])
        # With the objects, so that no others come to their places in memory.
        self._kept[id(read)] = addresses, objects
        return addresses.buffer_info()[0]

    def changed(self) -> Read | None:
        if self.look.is_whole and self._first_changed(self._begin, 0, self._count) == self._count:
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
        while at < self._count:
            fast = self._fast[at]
            assert fast is not None
            now = fast.now()
            if fast.accepts(now):
                self._expect(at, fast, now)
            else:
                yield fast
            at = self._first_changed(self._begin, at + 1, self._count)

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
        elif read.kind == ATTRIBUTE:  # each time another object may be made
            self._array[_WORDS * at:_WORDS * (at + 1)] = array("q", self._as_answer(read))

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
