"""One set of values that a captured function read, and the structure of what it returns."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from overdrive.effects.assigned import Assigned
from overdrive.effects.left import Left, Setting
from overdrive.effects.places import Places
from overdrive.native.library import call
from overdrive.native.recording import _refuse
from overdrive.numbers.call_numbers import CallNumbers
from overdrive.values.read import Read
from overdrive.values.reads import Reads
from overdrive.values.same import same_value


# In the place of the form of a call that was a replay.
REPLAYED: Any = object()


class _Variant:
    """One set of values that the function read. The library has recordings of its own for each."""

    def __init__(self, number: int, key: tuple[Any, ...], reads: Iterable[Read]) -> None:
        self.number, self.key, self.reads = number, key, Reads(reads)
        self.watched_runs = self.recordings = 0
        # Of a key with open numbers, and of a function that counts.
        self.numbers: CallNumbers | None = None
        # Of flags and texts that the function changes, by their places.
        self.settings: dict[tuple[int, int, Any], Setting] = {}
        # Of the walk whose values are among the reads.
        self.walk_number = 0
        # Containers that the function looks into, of so many reads; None: not asked yet.
        self.looked_into: tuple[int, list[Any]] | None = None
        # What modules were made of when it was recorded.
        self.structure: Reads | None = None
        # Of NumPy, which the function may draw from.
        self.generators: list[Any] = []

    def takes(self, template: tuple[Any, ...]) -> bool:
        """Whether the recordings are those of a call with the same key; then the library gets the call's numbers."""
        return self.numbers is None or self.numbers.take(template)

    @property
    def doubt(self) -> int:
        """The less of it, the sooner a call that it takes is one of its own."""
        return 0 if self.numbers is None else self.numbers.doubt


class _Form:
    """The structure of what a call returns and of what it leaves, made of the results of the recording."""

    __slots__ = ("result", "places", "is_recorded", "assigned")

    def __init__(self, result: Any, places: Places, is_recorded: bool, assigned: dict[tuple[int, int, Any], Any]) -> None:
        self.result, self.places, self.is_recorded, self.assigned = result, places, is_recorded, assigned

    @property
    def left(self) -> list[Left]:
        return self.places.left

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Form) and bool(self.result == other.result) and self.places == other.places and self.assigns_as(other)

    def assigns_as(self, other: _Form) -> bool:
        return same_value(self.assigned, other.assigned)

    def join(self, known: _Form) -> bool:
        """Adds what earlier calls of the recording have shown. False: this one returned or left something else."""
        return bool(self.result == known.result) and self.places.join(known.places)

    __hash__ = None  # type: ignore[assignment]


class Forms:
    """The structures of results: of each recording, and of the call under way. Owned by a captured step."""

    def __init__(self) -> None:
        self.known: dict[int, _Form] = {}
        # That of all recordings, where it is one.
        self.one: _Form | None = None
        # Of the call under way, or REPLAYED.
        self.last: Any = None
        # Places that are left of which no call has shown yet whether it writes None there or leaves it alone, and None.
        self.unsure: list[tuple[Read, Any]] = []

    def of_replay(self, capture: Any) -> _Form:
        return self.one or self.known[call("Capture.current", capture)]

    def note(self, entry: int, assigned: Assigned) -> bool:
        """Whether the form is that of the recordings before."""
        known = self.known.get(entry)
        if known is not None and not self.last.assigns_as(known):
            names = assigned.names_of_others(self.last.assigned, known.assigned)
            _refuse(f"The function gives {names} another number in each call, and a replay would not; change it outside of the function.")
        if known is not None and not self.last.join(known):
            return False
        self.known[entry] = self.last
        forms = list(self.known.values())
        self.unsure = [place for form in forms for place in form.places.unsure()]
        self.one = forms[0] if all(form == forms[0] for form in forms) else None
        return True

    def forget(self) -> None:
        self.known.clear()
        self.one = None
        self.unsure.clear()
