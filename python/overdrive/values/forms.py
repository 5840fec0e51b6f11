"""The structure of what a captured function takes and returns: tensors in tuples, lists, dicts, dataclasses and whatever
else PyTorch's pytrees know."""
from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from overdrive.values.keys import Number
from overdrive.values.same import MADE_IN_PYTHON, is_number



class _Node:
    """A container of another class: how to take it apart, and how to make it again."""

    def __init__(self, kind: type, context: Any, make: Callable[[list[Any]], Any]) -> None:
        self.kind, self.context, self.make = kind, context, make

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Node) and self.kind is other.kind and bool(self.context == other.context)

    __hash__ = None  # type: ignore[assignment]


def form_of(value: Any, leaves: list[Any], objects: list[Any] | None = None) -> Any:
    """The structure of a result, whose tensors go to ``leaves``. With ``objects`` those of plain classes, which go there,
    are taken apart, too."""
    known = len(leaves)
    try:
        return _form_of(value, leaves, objects)
    except RecursionError:  # it holds itself
        del leaves[known:]
        return ("other", value)


def _form_of(value: Any, leaves: list[Any], objects: list[Any] | None) -> Any:
    if isinstance(value, torch.Tensor):
        leaves.append(value)
        return "tensor"
    if value is None:
        return None
    kind = type(value)
    if kind is Item:
        leaves += value.tensors
        return value.form
    if kind in (tuple, list):
        return (kind, tuple(_form_of(part, leaves, objects) for part in value))
    if kind is dict:
        return (dict, tuple((Number(key), _form_of(part, leaves, objects)) for key, part in value.items()))
    if is_number(value) or kind is torch.Size or objects is not None and isinstance(value, type):
        return ("number", Number(value))
    if (node := _node_of(value)) is not None:
        return (node[0], tuple(_form_of(part, leaves, objects) for part in node[1]))
    if objects is not None and _is_plain(value) and not any(known is value for known in objects):
        objects.append(value)
        names = list(vars(value))
        node = _Node(kind, names, lambda parts: _dataclass(kind, names, parts)), list(vars(value).values())
        return (node[0], tuple(_form_of(part, leaves, objects) for part in node[1]))
    return ("other", value)


def form_of_tensors(inputs: Sequence[Any], leaves: list[Any]) -> Any:
    """What form_of() makes of ``(inputs, {})``, one object for each number of tensors; None where one is something else."""
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            return None
    leaves += inputs
    return _of_tensors(len(inputs))


@functools.lru_cache(maxsize=64)
def _of_tensors(count: int) -> Any:
    return (tuple, ((tuple, ("tensor",) * count), (dict, ())))


def form_of_results(value: Any, leaves: list[Any], objects: list[Any] | None = None) -> Any:
    """The same, with each tensor once among the leaves: one that is returned twice is one tensor in a replay, too."""
    found: list[Any] = []
    form = form_of(value, found, objects)
    places: dict[int, int] = {}
    order = tuple(places.setdefault(id(tensor), len(places)) for tensor in found)
    if len(places) == len(found):
        leaves.extend(found)
        return form
    leaves.extend({id(tensor): tensor for tensor in found}.values())
    return ("shared", (form, order))


def without_inputs(form: Any, leaves: list[Any], inputs: Sequence[Any]) -> Any:
    """The form of a result among whose leaves are arguments of the call, which are taken out: a replay returns those that it was given."""
    known = {id(tensor): place for place, tensor in enumerate(inputs)}
    places = tuple(known.get(id(leaf), -1) for leaf in leaves)
    if all(place < 0 for place in places):
        return form
    leaves[:] = [leaf for leaf, place in zip(leaves, places) if place < 0]
    return ("given", (form, places))


def _is_plain(value: Any) -> bool:
    """Whether the attributes are all there is to an object: a cache of keys and values, a distribution."""
    kind = type(value)
    has_new = kind.__new__ is not object.__new__  # type: ignore[comparison-overlap]
    if isinstance(value, (torch.nn.Module, type)) or has_new or hasattr(kind, "__del__"):
        return False
    classes = [each for each in kind.__mro__ if each is not object]
    return hasattr(value, "__dict__") and all(
        each.__flags__ & MADE_IN_PYTHON and not any(isinstance(member, types.MemberDescriptorType) for member in vars(each).values())
        for each in classes)


def _node_of(value: Any) -> tuple[_Node, list[Any]] | None:
    from torch.utils import _pytree

    kind = type(value)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        has_more = kind.__dictoffset__ and vars(value)
        return None if has_more else (_Node(kind, None, lambda parts: tuple.__new__(kind, parts)), list(value))
    if kind in _pytree.SUPPORTED_NODES:
        known = _pytree.SUPPORTED_NODES[kind]
        parts, context = known.flatten_fn(value)
        return _Node(kind, context, lambda parts: known.unflatten_fn(parts, context)), list(parts)
    if dataclasses.is_dataclass(value) and _is_plain(value):
        names = [field.name for field in dataclasses.fields(value)]
        if set(vars(value)) == set(names):
            return _Node(kind, names, lambda parts: _dataclass(kind, names, parts)), [vars(value)[name] for name in names]
    return None


def _dataclass(kind: type, names: list[str], parts: list[Any]) -> Any:
    made: Any = object.__new__(kind)
    for name, part in zip(names, parts):
        object.__setattr__(made, name, part)
    return made


def classes_in(form: Any) -> Iterator[type]:
    """Of containers that are neither tuples nor lists nor dicts: named tuples, dataclasses and their like."""
    if type(form) is not tuple or len(form) != 2 or form[0] in ("number", "item", "other"):
        return
    kind, parts = form
    if isinstance(kind, _Node):
        yield kind.kind
    for part in (parts[0],) if kind in ("shared", "given") else parts:
        yield from classes_in(part[1] if kind is dict else part)


def containers_in(value: Any) -> Iterator[Any]:
    """Lists, dicts, sets and plain objects that whoever has the value may change."""
    if isinstance(value, (list, dict, set, collections.deque)):
        yield value
    if isinstance(value, (list, tuple, dict, collections.deque)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from containers_in(part)
    elif not (isinstance(value, (torch.Tensor, type)) or is_number(value)) and _is_plain(value):
        yield value
        yield from containers_in(tuple(vars(value).values()))


def only_tensors(form: Any) -> bool:
    return others_in(form) is None and not any(True for _ in numbers_in(form))


def others_in(form: Any) -> Any:
    """The first value that is neither a tensor nor a number nor a container of them; None: there is none."""
    if form is None or form == "tensor" or form[0] in ("number", "item"):
        return None
    kind, parts = form
    if kind == "other":
        return parts
    if kind in ("shared", "given"):
        return others_in(parts[0])
    return next((other for part in parts if (other := others_in(part[1] if kind is dict else part)) is not None), None)


def numbers_in(form: Any) -> Iterator[Number]:
    if type(form) is not tuple or form[0] in ("item", "other"):
        return
    kind, parts = form
    if kind == "number":
        yield parts
    else:
        for part in (parts[0],) if kind in ("shared", "given") else parts:
            yield from numbers_in(part[1] if kind is dict else part)


def _has_items(form: Any) -> bool:
    if form is None or form == "tensor":
        return False
    kind, parts = form
    if kind in ("shared", "given"):
        return _has_items(parts[0])
    if isinstance(kind, str):
        return bool(kind == "item")
    return any(_has_items(part[1] if kind is dict else part) for part in parts)


def filled(form: Any, leaves: Iterator[Any], inputs: Sequence[Any] = ()) -> Any:
    if form == "tensor":
        return next(leaves)
    if form is None:
        return None
    kind, parts = form
    if kind == "number":
        return parts.value
    if kind == "item":
        if parts is None:
            return next(leaves).item()
        return parts[0](filled(parts[1], leaves), filled(parts[2], leaves))
    if kind == "other":
        return parts
    if kind == "given":
        return filled(parts[0], iter([next(leaves) if place < 0 else inputs[place] for place in parts[1]]))
    if kind == "shared":
        once = list(leaves)
        return filled(parts[0], iter([once[place] for place in parts[1]]))
    if kind is dict:
        return {key.value: filled(part, leaves) for key, part in parts}
    made = [filled(part, leaves) for part in parts]
    return kind.make(made) if isinstance(kind, _Node) else kind(made)


def make_plain(form: Any, plain: Callable[[Any], Any]) -> bool:
    """Puts the plain number in the place of each of the call's own. Whether there is any."""
    others = [(number, value) for number in numbers_in(form) if (value := plain(number.value)) is not number.value]
    for number, value in others:
        number.value = value
    return bool(others)


def without_items(value: Any, plain: Callable[[Any], Any]) -> Any:
    """With plain numbers, where it is made of tensors and numbers."""
    leaves: list[Any] = []
    form = form_of(value, leaves)
    return filled(form, iter(leaves)) if make_plain(form, plain) or _has_items(form) else value


class Item:
    """In the place of the number of a tensor, while the function is recorded, and of sums and products of it. Only what it returns has one; where
    something else looks at it, it is the number, and the recording knows that the program was told it."""

    __slots__ = ("form", "tensors")
    # NumPy's arrays leave arithmetic with it to it.
    __array_ufunc__ = None

    def __init__(self, tensors: list[Any], form: Any = ("item", None)) -> None:
        self.form, self.tensors = form, tensors

    def number(self) -> Any:
        return filled(self.form, iter(self.tensors))


def _arithmetic(name: str, is_right: bool) -> Callable[[Any, Any], Any]:
    function = getattr(operator, name)

    def method(item: Item, other: Any) -> Any:
        if type(other) is Item and "div" not in name:
            return Item(item.tensors + other.tensors, ("item", (function, item.form, other.form)))
        if type(other) not in (int, float, bool) or "div" in name and (is_right or other == 0):  # or it may be an error
            return function(other, item.number()) if is_right else function(item.number(), other)
        sides = ("number", Number(other)), item.form
        return Item(item.tensors, ("item", (function, *(sides if is_right else sides[::-1]))))

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv"):
    setattr(Item, f"__{_name}__", _arithmetic(_name, False))
    setattr(Item, f"__r{_name}__", _arithmetic(_name, True))
