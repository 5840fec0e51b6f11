"""What a captured function leaves in attributes and variables: tensors that it makes, alone or in objects, which a replay
makes again and puts there."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from overdrive._capture_results import filled, form_of, others_in
from overdrive._guards import CELL, ENTRY, Read

# Where a tensor comes from: a result of the recording, what it is without a graph, an argument of the call.
_RESULT, _DETACHED, _INPUT = range(3)


class Left:
    """One place, and how its value is made of the results."""

    __slots__ = ("read", "form", "sources")

    def __init__(self, read: Read, results: list[Any], inputs: Sequence[Any]) -> None:
        """Results that only this place has go to the others."""
        tensors: list[Any] = []
        self.read = read
        self.form = form_of(read.now(), tensors, [])
        self.sources = [_source_of(tensor, results, inputs) for tensor in tensors]

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Left) and self.read.place == other.read.place and bool(self.form == other.form)
                and self.sources == other.sources)

    __hash__ = None  # type: ignore[assignment]

    def put(self, results: Sequence[Any], inputs: Sequence[Any]) -> None:
        tensors = []
        for kind, index in self.sources:
            tensor = (inputs if kind == _INPUT else results)[index]
            tensors.append(tensor.detach() if kind == _DETACHED else tensor)
        put(self.read, filled(self.form, iter(tensors)))


def _source_of(tensor: Any, results: list[Any], inputs: Sequence[Any]) -> tuple[int, int]:
    for kind, known in ((_RESULT, results), (_INPUT, inputs)):
        for index, one in enumerate(known):
            if one is tensor:
                return kind, index
    for index, one in enumerate(results):
        if not tensor.requires_grad and _are_same_elements(tensor, one):
            return _DETACHED, index
    results.append(tensor)
    return _RESULT, len(results) - 1


def _are_same_elements(a: Any, b: Any) -> bool:
    import torch

    return bool(a.layout == b.layout == torch.strided and a.device == b.device and a.dtype == b.dtype and a.shape == b.shape
                and a.stride() == b.stride() and a.numel() > 0 and a.data_ptr() == b.data_ptr())


def put(read: Read, value: Any) -> None:
    if read.kind == CELL:
        read.holder.cell_contents = value
    else:
        read.holder[read.key] = value


def tensors_in(value: Any) -> list[Any]:
    """Those of a value that is made of tensors, numbers and plain objects; none of another."""
    tensors: list[Any] = []
    form = form_of(value, tensors, [])
    return tensors if others_in(form) is None else []


def can_be_left(read: Read) -> bool:
    return read.kind in (ENTRY, CELL) and bool(tensors_in(read.now()))
