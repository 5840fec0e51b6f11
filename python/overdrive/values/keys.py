"""What a captured function is given beside tensors, as keys: numbers by their values, and objects by which they are."""
from __future__ import annotations

import weakref
from typing import Any

import torch

from overdrive.values.same import same_value


class Number:
    """A value as a key: 1 is neither 1.0 nor True."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and same_value(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]


class Same:
    """In a template: an object of the program, as a model, an optimizer or a configuration. Another one has a recording of its own, and what
    the function reads of it is looked at as if the function named it."""

    __slots__ = ("_value", "_is_weak")

    def __init__(self, value: Any) -> None:
        try:
            self._value, self._is_weak = weakref.ref(value), True
        except TypeError:
            self._value, self._is_weak = value, False

    @property
    def value(self) -> Any:
        return self._value() if self._is_weak else self._value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Same):
            return False
        value, another = self.value, other.value
        return value is another and value is not None or not self._is_weak and _counts_by_value(value) and same_value(value, another)

    __hash__ = None  # type: ignore[assignment]


def _counts_by_value(value: Any) -> bool:
    return isinstance(value, (torch.device, range, slice))


def other_number(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    for index, (a, b) in enumerate(zip(before, now)):
        if a != b and isinstance(a, Number) and isinstance(b, Number):
            return f"argument {index + 1}, {_kind_of(b.value)} ({a.value!r}, then {b.value!r})"
        if a != b and isinstance(a, Same) and isinstance(b, Same):
            return f"argument {index + 1}, an object of {type(b.value).__name__}; give its tensors and numbers one by one"
    return _other_inside(before, now, "") or "the arguments: which are numbers, and which are one tensor"


def _kind_of(value: Any) -> str:
    return "a number" if type(value) in (int, float, complex) else "a flag" if type(value) is bool else f"a value of {type(value).__name__}"


def _other_inside(before: Any, now: Any, name: str) -> str:
    """The first number of a structure that is another one in the other, with the keyword or the key that leads to it."""
    if isinstance(before, Number) and isinstance(now, Number):
        return f"{name or 'an argument'}, {_kind_of(now.value)} ({before.value!r}, then {now.value!r})" if before != now else ""
    if type(before) is not tuple or type(now) is not tuple or len(before) != len(now):
        return ""
    if before and before[0] is dict and now[0] is dict:
        return next((found for (key, a), (_, b) in zip(before[1], now[1]) if (found := _other_inside(a, b, f"argument {key.value!r}"))), "")
    return next((found for a, b in zip(before, now) if (found := _other_inside(a, b, name))), "")
