"""Where a walk is: the values that it has found, and those that it still follows."""
from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any

from overdrive.reads.code import Watcher
from overdrive.reads.walk_names import WalkNames
from overdrive.reads.walk_notes import Notes
from overdrive.values.absent import Absent
from overdrive.values.read import ABSENT, BYTES, CONTENTS, ENTRY, KEYS, NOTHING, SIZE, Read
from overdrive.values.same import MADE_IN_PYTHON, has_attributes, is_number

# Steps from a name to a value that are followed; of values behind which a walk does not look.
_DEEPEST, NOT_FOLLOWED = 100, 1 << 20
# Modules of Python's library whose own classes no program changes.
_OF_NOBODY = ("dataclasses", "typing", "typing_extensions", "inspect")


class Places(WalkNames):
    """``reads``: what was found; objects are followed by ``_look()``."""

    def __init__(self, watcher: Watcher, left: Collection[tuple[int, int, Any]], own: Collection[tuple[int, int, Any]]) -> None:
        super().__init__(watcher)
        # Places that the function gives what it makes: neither they nor what lies below are values that it reads.
        self._left = left
        # Places whose values the function changes. What lies below them is of one call.
        self._own = own
        self._own_containers = {holder for each, holder, _ in own if each in (SIZE, KEYS, CONTENTS, BYTES)}
        self.notes = Notes()
        # What is of one call: how it is followed.
        self._later: dict[Any, Callable[[Any], None]] = {}
        self._is_of_one_call = False
        # Of the walk that this one goes on from.
        self._before: dict[tuple[int, int, Any], Read] = {}
        self.reads: dict[tuple[int, int, Any], Read] = {}
        self._seen: dict[int, Any] = {}
        # Objects of which only what the code names is looked at.
        self._named: dict[int, tuple[Any, str, str, int]] = {}

    def beyond(self) -> list[Read]:
        """What this walk has found, and the one before it not."""
        return [read for place, read in self.reads.items() if self._before.get(place) is not read]

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

    def _entries(self, entries: dict[str, Any], names: dict[str, str], owner: str, depth: int) -> None:
        holder = id(entries)
        self.notes.keys(entries)
        for key in [key for key in entries if key in names and (ENTRY, holder, key) not in self.reads]:
            self._read(ENTRY, entries, key, f"{owner}.{key}", names[key], depth)

    def _into(self, value: Any, name: str, where: str, depth: int) -> None:
        if id(value) in self._seen or depth >= NOT_FOLLOWED:
            return
        if isinstance(value, type) and value.__module__ in _OF_NOBODY:
            return
        if isinstance(value, str):
            self._note_text(value)
        if is_number(value) and not has_attributes(value):
            return
        if depth > _DEEPEST:
            self.refusals.append(f"The function may read `{name}`, more than {_DEEPEST} steps behind a name, and no guard looks there; name it "
                                 "nearer, or promise by guards=\"promised\" that it does not change.")
            return
        self._seen[id(value)] = value
        self._look(value, name, where, depth)

    def _note_text(self, text: str) -> None:
        """A value that may be a name, or have some."""
        if self._by_strings:
            self._note_string(text)
        path = text if self._by_modules else ""
        while path:  # "a.b" of "a.b.c", too
            if path in sys.modules:
                self._read(ENTRY, sys.modules, path, f"sys.modules[{path!r}]", self._by_modules, 0)
            path = path.rpartition(".")[0]

    def _look(self, value: Any, name: str, where: str, depth: int) -> None:
        """What is behind a value."""
        raise NotImplementedError

    def _postpone(self, value: Any, follow: Callable[[Any], None]) -> None:
        if self._is_of_one_call:
            follow(self)
        else:
            self._later[id(value)] = follow


def is_pythons_own(kind: type) -> bool:
    """Whether a class is one of Python itself. Code that exec() runs without a ``__name__`` in its globals makes classes of the same module."""
    return kind.__module__ == "builtins" and not kind.__flags__ & MADE_IN_PYTHON


