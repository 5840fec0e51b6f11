"""The structure of what a captured function returns: tensors in tuples, lists and dicts."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def form_of(value: Any, leaves: list[Any]) -> Any:
    """The structure of a result, whose tensors go to ``leaves``."""
    import torch

    if isinstance(value, torch.Tensor):
        leaves.append(value)
        return "tensor"
    if type(value) in (tuple, list):
        return (type(value), tuple(form_of(part, leaves) for part in value))
    if type(value) is dict:
        return (dict, tuple((key, form_of(part, leaves)) for key, part in value.items()))
    return None if value is None else ("other", value)


def only_tensors(form: Any) -> bool:
    if form is None or form == "tensor":
        return True
    kind, parts = form
    if kind == "other":
        return False
    return all(only_tensors(part[1] if kind is dict else part) for part in parts)


def filled(form: Any, leaves: Iterator[Any]) -> Any:
    if form == "tensor":
        return next(leaves)
    if form is None:
        return None
    kind, parts = form
    if kind == "other":
        return parts
    if kind is dict:
        return {key: filled(part, leaves) for key, part in parts}
    return kind(filled(part, leaves) for part in parts)
