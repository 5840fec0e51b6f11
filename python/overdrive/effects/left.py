"""What a captured function leaves in attributes and variables: tensors that it makes, alone or in objects, which a replay
makes again and puts there."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from overdrive.native.library import call
from overdrive.values.forms import filled, form_of, others_in
from overdrive.values.read import NOTHING, Read
from overdrive.values.same import same_value
from overdrive.values.slots import can_be_put, putter_of

# Where a tensor comes from: a result of the recording, one that is made of it without a graph, an argument of the call.
_RESULT, _DETACHED, _INPUT = range(3)


class Left:
    """One place, and how its value is made of the results."""

    __slots__ = ("read", "form", "sources", "_put", "_found")

    def __init__(self, read: Read, results: list[Any], inputs: Sequence[Any], without_graph: list[Any]) -> None:
        """Results that only this place has go to the others. `without_graph`: such tensors of all places, each of which is one object."""
        tensors: list[Any] = []
        self.read, self._put, now = read, putter_of(read), read.now()
        self.form = NOTHING if now is NOTHING else form_of(now, tensors, [])
        self.sources = [_source_of(tensor, results, inputs, without_graph) for tensor in tensors]
        # Of the recorded call under way, whose results are no objects of the program's: tensors that the call has not made.
        self._found = [None if kind == _INPUT or call("Recording.made", tensor) else tensor for tensor, (kind, _, _) in zip(tensors, self.sources)
                       ] if call("Recording.is_active") else []

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Left) and self.read.place == other.read.place and bool(self.form == other.form) and self.sources == other.sources)

    __hash__ = None  # type: ignore[assignment]

    def has_found(self) -> bool:
        """Whether the recorded call under way leaves a tensor there that it has not made, and was not given."""
        return any(tensor is not None for tensor in self._found)

    def end_recording(self, results: Sequence[Any], inputs: Sequence[Any], made: dict[int, Any], gives_its_own: bool) -> None:
        """Recorded calls return copies, and leave these as replays do: replays write over what the recorded function has made."""
        found, self._found = self._found, []
        if self.sources and not gives_its_own:
            tensors = self._tensors(results, inputs, made)
            self._put_these([one if own is None else own for own, one in zip(found, tensors)] if found else tensors)

    def put(self, results: Sequence[Any], inputs: Sequence[Any], made: dict[int, Any]) -> None:
        """After a replay. `made`: the call's tensors without a graph, by their numbers."""
        self._put_these(self._tensors(results, inputs, made))

    def _tensors(self, results: Sequence[Any], inputs: Sequence[Any], made: dict[int, Any]) -> list[Any]:
        tensors = []
        for kind, index, number in self.sources:
            tensor = (inputs if kind == _INPUT else results)[index]
            if kind == _DETACHED:
                tensor = made[number] = made[number] if number in made else tensor.detach()
            tensors.append(tensor)
        return tensors

    def _put_these(self, tensors: list[Any]) -> None:
        self._put(NOTHING if self.form is NOTHING else filled(self.form, iter(tensors)))


def _source_of(tensor: Any, results: list[Any], inputs: Sequence[Any], without_graph: list[Any]) -> tuple[int, int, int]:
    for kind, known in ((_RESULT, results), (_INPUT, inputs)):
        for index, one in enumerate(known):
            if one is tensor:
                return kind, index, 0
    for index, one in enumerate(results):
        if not tensor.requires_grad and _are_same_elements(tensor, one):
            number = next((number for number, known in enumerate(without_graph) if known is tensor), len(without_graph))
            if number == len(without_graph):
                without_graph.append(tensor)
            return _DETACHED, index, number
    results.append(tensor)
    return _RESULT, len(results) - 1, 0


def _are_same_elements(a: Any, b: Any) -> bool:
    return bool(a.layout == b.layout == torch.strided and a.device == b.device and a.dtype == b.dtype and a.shape == b.shape
                and a.stride() == b.stride() and a.numel() > 0 and a.data_ptr() == b.data_ptr())


def tensors_in(value: Any) -> list[Any]:
    """Those of a value that is made of tensors, numbers and plain objects; none of another."""
    tensors: list[Any] = []
    form = form_of(value, tensors, [])
    return tensors if others_in(form) is None else []


class Setting:
    """A flag or a text that the function changes: where it was `before`, a recorded call leaves another one."""

    __slots__ = ("before", "after", "_put")

    def __init__(self, before: Read) -> None:
        self.before, self.after, self._put = before, before.expected, putter_of(before)

    def note(self, is_first: bool) -> bool:
        """After a recorded call. Whether it leaves what those before have left, which their replays go on to leave."""
        now = self.before.now()
        if is_first:
            self.after = now
        return same_value(self.after, now)

    def put(self) -> None:
        self._put(self.after)


def can_be_left(read: Read) -> bool:
    return can_be_put(read) and has_tensors_or_numbers(read.now())


def has_tensors_or_numbers(value: Any) -> bool:
    """Whether it is made of tensors, or a container of numbers, and a replay can make another one."""
    return bool(tensors_in(value)) or has_numbers_alone(value)


def has_numbers_alone(value: Any) -> bool:
    """Whether it is a container without tensors, and a replay can make another one with the same numbers. An empty one may be a cache that
    the function fills and clears."""
    tensors: list[Any] = []
    return type(value) in (list, dict, tuple) and bool(value) and others_in(form_of(value, tensors, [])) is None and not tensors
