"""Dicts, lists and arrays, up to a size."""
from __future__ import annotations

import collections
from typing import Any

from overdrive.reads.walk_classes import MOST_ITEMS
from overdrive.reads.walk_places import NOT_FOLLOWED
from overdrive.reads.walk_torch import OfTorch
from overdrive.values.read import ATTRIBUTE, BYTES, ENTRY, ITEM, KEYS, SIZE
from overdrive.values.same import has_pointers, is_number, is_of_c

# Bytes of an array that are looked at.
_MOST_BYTES = 16 << 10


class Containers(OfTorch):
    def _dict(self, value: dict[Any, Any], name: str, where: str, depth: int) -> None:
        keys = list(dict.__iter__(value))
        if len(keys) > MOST_ITEMS:
            self._too_long(len(keys), name)
            return
        self._read(KEYS, value, None, f"the keys of {name}", where, NOT_FOLLOWED)
        if isinstance(value, collections.defaultdict):
            self._read(ATTRIBUTE, value, "default_factory", f"{name}.default_factory", where, depth)
        for key in keys:
            if self._by_strings and isinstance(key, str):
                self._note_string(key)
            self._read(ENTRY, value, key, f"{name}[{key!r}]" if is_number(key) else f"{name}[...]", where, depth)

    def _list(self, value: list[Any], name: str, where: str, depth: int) -> None:
        size = list.__len__(value)
        if size > MOST_ITEMS:
            self._too_long(size, name)
            return
        self._read(SIZE, value, None, f"len({name})", where, depth)
        for index in range(size):
            self._read(ITEM, value, index, f"{name}[{index}]", where, depth)

    def _array(self, value: Any, name: str, where: str, depth: int) -> None:
        if is_of_c(value) and has_pointers(type(value)):
            self.notes.give_up()
            self.refusals.append(f"The function may read memory behind `{name}`, a pointer of ctypes; give it what it reads as an argument, or "
                                 "promise by guards=\"promised\" that it does not change.")
        size = memoryview(value).nbytes if not hasattr(value, "nbytes") else value.nbytes
        of_objects = getattr(getattr(value, "dtype", None), "hasobject", False)
        if size <= _MOST_BYTES and not of_objects:
            self._read(BYTES, value, None, f"the content of {name}", where, depth)
            return
        many = "objects" if of_objects else f"{size} bytes, and no more than {_MOST_BYTES} are looked at"
        self.refusals.append(f"The function reads `{name}`, an array of {many}; make it a tensor outside of the function "
                             "(torch.from_numpy), or promise by guards=\"promised\" that it does not change.")

    def _too_long(self, count: int, name: str) -> None:
        self.notes.give_up()
        self.refusals.append(f"The function reads `{name}`, which has {count} items, and no more than {MOST_ITEMS} are looked "
                             "at; give what it takes of them as an argument, or promise by guards=\"promised\" that they do not change.")
