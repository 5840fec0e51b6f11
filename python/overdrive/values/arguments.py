"""What a captured step is given: tensors and numbers, by themselves, by keywords, and in tuples, lists, dicts and their like, and objects."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from overdrive.values.forms import filled, form_of, others_in
from overdrive.values.keys import Number, Same
from overdrive.values.same import has_attributes, is_number


@dataclass(slots=True)
class Nested:
    """In a template: a container, and which of the call's tensors it has."""

    places: list[int]
    form: Any


@dataclass(slots=True)
class Named:
    """In a template: the part after it goes by a keyword."""

    name: str


@dataclass(slots=True, eq=False)
class Arguments:
    """As the function takes them."""

    by_place: list[Any]
    by_name: dict[str, Any]


class Given:
    """The arguments of one call that are more than tensors: the template has the numbers, where the tensors are, and which of these
    are one object."""

    def __init__(self, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        self._tensor = torch.Tensor
        self.tensors: list[Any] = []
        # Those that are no containers of tensors and numbers.
        self.objects: list[Any] = []
        # Why no recording takes them; "": one may.
        self.reason = ""
        self._places: dict[int, int] = {}
        # By their places in the template.
        self._containers: dict[int, tuple[Any, Nested]] = {}
        template: list[Any] = []
        for x in inputs:
            template.append(self._part(x, len(template)))
        for name, x in keywords.items():
            template.append(Named(name))
            template.append(self._part(x, len(template)))
        self.template = tuple(template)

    def _part(self, x: Any, index: int) -> Any:
        if isinstance(x, self._tensor):
            return self._place(x)
        has_more = has_attributes(x)
        if is_number(x) and not has_more:
            return Number(x)
        leaves: list[Any] = []
        form = form_of(x, leaves)
        if type(form) is tuple and (form[0] == "other" or form[0] == "number" and has_more):
            self.objects.append(x)
            return Same(x)
        if (other := others_in(form)) is not None:
            self.reason = f"An argument has an object of {type(other)!r}; give its tensors and numbers one by one, or let the function name it."
        nested = Nested([self._place(leaf) for leaf in leaves], form)
        self._containers[index] = x, nested
        return nested

    def _place(self, tensor: Any) -> int:
        place = self._places.setdefault(id(tensor), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(tensor)
        return place

    def container(self, index: int) -> Any:
        """The caller's own, which the function may change."""
        return self._containers[index][0]

    def first_changed(self) -> str:
        """The class of a container that is another one now; "": they are as they were."""
        for x, nested in self._containers.values():
            leaves: list[Any] = []
            if form_of(x, leaves) != nested.form or [self._places.get(id(leaf)) for leaf in leaves] != nested.places:
                return type(x).__name__
        return ""


def merged(template: tuple[Any, ...], tensors: Sequence[Any], given: Given | None) -> Any:
    """The arguments of a call with this template; containers are those that were given."""
    if not template:
        return tensors
    by_place: list[Any] = []
    by_name: dict[str, Any] = {}
    name = ""
    for index, part in enumerate(template):
        if isinstance(part, Named):
            name = part.name
            continue
        if isinstance(part, Nested):
            own = given is not None and all(tensors[place] is given.tensors[place] for place in part.places)
            value = given.container(index) if given and own else filled(part.form, iter([tensors[place] for place in part.places]))
        else:
            value = part.value if isinstance(part, (Number, Same)) else tensors[part]
        if name:
            by_name[name], name = value, ""
        else:
            by_place.append(value)
    return Arguments(by_place, by_name)


def given_in(inputs: Any) -> Iterator[Any]:
    """Tensors and containers among the arguments of a call, whichever way the function takes them."""
    if isinstance(inputs, Arguments):
        inputs = inputs.by_place, inputs.by_name
    if isinstance(inputs, torch.Tensor):
        yield inputs
    elif isinstance(inputs, (tuple, list, dict)):
        yield inputs
        for part in inputs.values() if isinstance(inputs, dict) else inputs:
            yield from given_in(part)
