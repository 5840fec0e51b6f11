"""Places of values that can be given another one."""
from __future__ import annotations

import collections
import gc
import types
from collections.abc import Callable
from typing import Any

from overdrive.values.read import ATTRIBUTE, CELL, ENTRY, ITEM, NOTHING, Read


def can_be_put(read: Read) -> bool:
    if read.kind == ATTRIBUTE:
        return isinstance(getattr(type(read.holder), read.key, None), types.MemberDescriptorType)
    return read.kind in (ENTRY, CELL, ITEM)


def putter_of(read: Read) -> Callable[[Any], None]:
    """Gives the place another value, or takes away what is there."""
    put = _setter_of(read)
    return lambda value: put(value) if value is not NOTHING else put_back(read, value)


def _setter_of(read: Read) -> Callable[[Any], None]:
    holder, key = read.holder, read.key
    if read.kind == CELL:
        return lambda value: setattr(holder, "cell_contents", value)
    if read.kind == ATTRIBUTE:
        return lambda value: setattr(holder, key, value)
    if read.kind == ENTRY and (kind := _class_of(holder)) is not None:
        return lambda value: setattr(kind, key, value)
    return lambda value: holder.__setitem__(key, value)


def can_be_put_back(read: Read) -> bool:
    return can_be_put(read) and (read.kind != ITEM or read.now() is not NOTHING and read.expected is not NOTHING)


def put_back(read: Read, value: Any) -> None:
    """Gives the place what it had, or takes away what it had not."""
    if value is not NOTHING:
        _setter_of(read)(value)
    elif read.now() is NOTHING:
        return
    elif read.kind == CELL:
        del read.holder.cell_contents
    elif read.kind == ATTRIBUTE:
        delattr(read.holder, read.key)
    elif (kind := _class_of(read.holder)) is not None:
        delattr(kind, read.key)
    else:
        dict.pop(read.holder, read.key, None)


def copy_of(container: Any) -> Any:
    """Of one that ``refill()`` can fill again; None: it cannot."""
    kinds: Any = (list, dict, set, collections.deque)
    kind = next((kind for kind in kinds if isinstance(container, kind)), None)
    return None if kind is None else kind.copy(container)


def refill(container: Any, contents: Any) -> None:
    if isinstance(container, list):
        container[:] = contents
        return
    kind: Any = next(kind for kind in (dict, set, collections.deque) if isinstance(container, kind))
    kind.clear(container)
    (kind.extend if kind is collections.deque else kind.update)(container, contents)


def _class_of(entries: dict[Any, Any]) -> type | None:
    """The class whose own dict it is: what is put there past the class, lookups that Python keeps do not see."""
    if "__module__" not in entries:
        return None
    return next((kind for kind in gc.get_referrers(entries) if isinstance(kind, type) and gc.get_referents(vars(kind))[0] is entries), None)


# What a place was given apart, and what stood there before.
Change = tuple[Callable[[Any], None], Any, Any]
