"""Dicts, lists and arrays, up to a size."""
from __future__ import annotations

import collections
import contextlib
import itertools
from collections.abc import Iterable
from typing import Any

from overdrive._guards import BYTES, ENTRY, ITEM, KEYS, SIZE, is_number, is_of_c
from overdrive._walk_classes import MOST_ITEMS
from overdrive._walk_places import DEEPEST
from overdrive._walk_torch import OfTorch

_CONTAINERS = (list, tuple, set, frozenset, collections.deque)
# Bytes of an array that are looked at.
_MOST_BYTES = 16 << 10


class Containers(OfTorch):
    def _dict(self, value: dict[Any, Any], name: str, where: str, depth: int) -> None:
        keys = list(value)
        if (self._goes_through or isinstance(value, collections.OrderedDict)) and len(keys) <= MOST_ITEMS:
            self._read(KEYS, value, None, f"the keys of {name}", where, DEEPEST)
        else:
            self._read(SIZE, value, None, f"len({name})", where, depth)
        if len(keys) > MOST_ITEMS:
            self._too_long(value.values(), len(keys), name)
            keys = [key for key in keys if isinstance(key, str) and key in self._strings][:MOST_ITEMS]
        for key in keys:
            if self._by_strings and isinstance(key, str):
                self._note_string(key)
            self._read(ENTRY, value, key, f"{name}[{key!r}]" if is_number(key) else f"{name}[...]", where, depth)

    def _list(self, value: list[Any], name: str, where: str, depth: int) -> None:
        self._read(SIZE, value, None, f"len({name})", where, depth)
        if len(value) > MOST_ITEMS:
            self._too_long(value, len(value), name)
        for index in range(min(len(value), MOST_ITEMS)):
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
        if _has_numbers(next(iter(values))):
            self.refusals.append(f"The function reads `{name}`, which has {count} items, and no more than {MOST_ITEMS} are looked "
                                 "at; give the numbers as a tensor, or promise by guards=\"promised\" that they do not change.")


def _has_numbers(item: Any) -> bool:
    """Whether it is one, or has some, as a pair of a tensor and its label has."""
    inside = item.values() if isinstance(item, dict) else item if isinstance(item, _CONTAINERS) else getattr(item, "__dict__", {}).values()
    return is_number(item) or any(map(is_number, itertools.islice(inside, MOST_ITEMS)))
