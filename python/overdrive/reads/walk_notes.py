"""What a walk has looked at beside the values that it found, so that the next call knows whether another walk would find more."""
from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class _Members(NamedTuple):
    """Of a class: the classes above it, the names in it, of which classes their values are, and its functions."""

    above: tuple[type, ...]
    names: tuple[str, ...]
    kinds: tuple[type, ...]
    functions: tuple[str, ...]
    values: tuple[Any, ...]

    def hold(self, kind: type) -> bool:
        entries = vars(kind)
        return (kind.__mro__ is self.above and _are_same(tuple(entries), self.names) and _are_same(_kinds(entries), self.kinds)
                and _are_same([entries[name] for name in self.functions], self.values))


class Notes:
    """Dicts and classes by their keys, and single values. A note holds what the guards of the walk hold anyway, or classes and functions.

    There are thousands. Tuples of strings are none of the objects that Python's collections go through."""

    def __init__(self) -> None:
        self._dicts: dict[int, dict[Any, Any]] = {}
        self._keys: dict[int, tuple[Any, ...]] = {}
        self._kinds: dict[int, tuple[type, ...]] = {}
        self._contents: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self._classes: dict[type, _Members] = {}
        self._picked: dict[tuple[int, str], Any] = {}
        self._attributes: list[tuple[Any, str, Any]] = []
        self._is_whole = True

    def give_up(self) -> None:
        """The walk has looked at what no note tells."""
        self._is_whole = False

    def keys(self, entries: dict[Any, Any]) -> None:
        """Which keys a dict has."""
        if id(entries) not in self._keys:
            self._dicts[id(entries)] = entries
            self._keys[id(entries)] = tuple(entries)

    def kinds(self, entries: dict[Any, Any]) -> None:
        """Of which classes the values of a dict are."""
        self.keys(entries)
        self._kinds[id(entries)] = _kinds(entries)

    def contents(self, values: Any) -> None:
        """Which objects stand in a list, or in a dict in its order."""
        self._contents[id(values)] = values, _contents(values)

    def members(self, kind: type, functions: Iterable[str]) -> None:
        """What a class has, which of it are functions, and which classes are above it."""
        entries, names = vars(kind), tuple(functions)
        self._classes[kind] = _Members(kind.__mro__, tuple(entries), _kinds(entries), names, tuple(entries[name] for name in names))

    def picked(self, entries: dict[Any, Any], keys: Iterable[str]) -> None:
        """Which object, or none, a dict has under a name."""
        self._dicts[id(entries)] = entries
        self._picked.update(((id(entries), key), entries.get(key, _NONE)) for key in keys)

    def attribute(self, holder: Any, name: str) -> None:
        self._attributes.append((holder, name, getattr(holder, name)))

    def keeps(self) -> list[Any]:
        """Where it has dicts and containers."""
        return [self._dicts, *self._contents.values()]

    def hold(self) -> bool:
        """Whether all is as it was."""
        dicts = self._dicts
        return (self._is_whole
                and all(_are_same(tuple(dicts[key]), keys) for key, keys in self._keys.items())
                and all(_are_same(_kinds(dicts[key]), kinds) for key, kinds in self._kinds.items())
                and all(_are_same(_contents(values), known) for values, known in self._contents.values())
                and all(dicts[at].get(key, _NONE) is value for (at, key), value in self._picked.items())
                and all(getattr(holder, name) is value for holder, name, value in self._attributes)
                and all(members.hold(kind) for kind, members in self._classes.items()))


_NONE: Any = object()


def _kinds(entries: Any) -> tuple[type, ...]:
    return tuple(map(type, entries.values()))


def _contents(values: Any) -> tuple[Any, ...]:
    return (*values, *values.values()) if isinstance(values, dict) else tuple(values)


def _are_same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(map(operator.is_, a, b))
