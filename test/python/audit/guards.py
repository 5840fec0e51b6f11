"""What a captured step knows of the places of a program: an accessor to Overdrive's own tables, for this folder alone."""
from __future__ import annotations

from typing import Any

import torch

from overdrive.values.read import ABSENT, ATTRIBUTE, BYTES, CELL, CODE, CONTENTS, CONTEXT, DICT, ENTRY, ITEM, KEYS, KIND, NOTHING, SIZE, VALUES
from overdrive.values.same import is_number, same_value

from places import MISSING, Gone, Place, dict_behind

_KINDS = {"entry": ENTRY, "item": ITEM, "cell": CELL, "slot": ATTRIBUTE, "class": KIND, "dict": DICT, "context": CONTEXT, "code": CODE}


class Known:
    """Of one set of values (step/variant.py): its guards, and the places that the step changes itself."""

    def __init__(self, step: Any, variant: Any) -> None:
        self._reads = dict(variant.reads._all)
        if step._subject.structure is not None:
            self._reads.update(step._subject.structure._all)
        self._sizes = {holder for kind, holder, _ in self._reads if kind in (SIZE, KEYS, VALUES)}
        # What goes on in replays, or is given again, and what the function was only seen to change.
        counted = () if variant.numbers is None else [counter.read.place for counter in variant.numbers.counters]
        self._follows = {*step._changes.left.reads, *counted, *step._changes.assigned._reads, *variant.settings}
        self._own = set(step._changes.own)
        self._optimizers = [] if step._subject.optimizers is None else step._subject.optimizers.states()

    def count(self) -> int:
        """How much it knows of what the step changes."""
        return len(self._follows) + len(self._own)

    def reads(self, place: Place) -> bool:
        """Whether another value at the place would be noticed, or a replay knows what the function has made of it."""
        holder, number, key = place.holder, place.number, place.key
        if place.kind == "absent":
            return self._misses(place)
        if place.kind == "has":
            return (ENTRY, number, key) in self._follows or any(at in self._reads for at in ((ENTRY, number, key), (KEYS, number, None), (VALUES, number, None)))
        if place.kind in ("keys", "size"):
            kinds = (KEYS, VALUES) if place.kind == "keys" and len(holder) > 1 else (SIZE, KEYS, VALUES, CONTENTS)
            return any((kind, number, None) in self._reads for kind in kinds) or place.value == 0 and number in self._sizes
        if place.kind == "contents":
            return (CONTENTS, number, None) in self._reads
        if place.kind == "bytes":
            return (BYTES, number, None) in self._reads
        if place.kind in ("iterator", "cache"):
            return False
        at = (_KINDS[place.kind], number, key)
        if at in self._follows or (VALUES, number, None) in self._reads and place.kind == "entry":
            return True
        read = self._reads.get(at)
        return read is not None and self._is_value(read.expected, place)

    def _is_value(self, expected: Any, place: Place) -> bool:
        """Whether the guard wants what the call has found."""
        if expected is NOTHING or place.value is MISSING:
            return (expected is NOTHING) == (place.value is MISSING)
        return place.was(expected) or same_value(expected, place.value) or not is_number(expected) and not is_number(place.value)

    def _misses(self, place: Place) -> bool:
        number, key = place.number, place.key
        read = self._reads.get((ENTRY, number, key))
        if read is not None:
            return read.expected is NOTHING
        if (ENTRY, number, key) in self._follows or (KEYS, number, None) in self._reads:
            return True
        absent = self._reads.get((ABSENT, number, None))
        if absent is not None and (key in absent._names or any(key in names for names, _, _ in absent._tables.values())):
            return True
        # A class or a module's dict of parameters that gets one more name is of another size.
        of_class = isinstance(place.owner, type) and place.holder is dict_behind(vars(place.owner))
        return number in self._sizes and (of_class or (VALUES, number, None) in self._reads or all(map(is_number, (key,))))

    def changes(self, place: Place) -> str:
        """Of a place that was written: "" where a replay does the same, or leaves what was there; else why not."""
        number, key = place.number, place.key
        if place.kind == "contents":
            inside = any(holder == number for _, holder, _ in (*self._follows, *self._own))
            return "" if inside or (SIZE, number, None) in self._reads else "nothing looks at the container"
        at = (_KINDS[place.kind], number, key)
        if at in self._follows:
            return ""
        if at in self._own:
            return "" if isinstance(place.value, Gone) and issubclass(place.value.kind, torch.Tensor) else "it changes, and no replay goes on with it"
        read = self._reads.get(at)
        return "" if read is not None or self._misses(place) else "nothing looks at it"

    def is_of_optimizer(self, place: Place) -> bool:
        return any(place.holder is state for state in self._optimizers)

