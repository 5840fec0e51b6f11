"""Keys that a dict has not."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from overdrive.values.read import ABSENT, ENTRY, NOTHING, Read


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
