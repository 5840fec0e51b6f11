"""A captured function that is a method of a class: each object has a step, or a part, of its own."""
from __future__ import annotations

import copy
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

# Under which an object keeps them, so that they die with it.
_KEY = "_overdrive_methods"


class NotCopied:
    """What belongs to one object. A copy of the object, deep or shallow, and one that comes out of a file, begins without any."""

    def __deepcopy__(self, _: Any) -> None:
        """Where a class copies all that it has."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


class _Methods(NotCopied):
    """Those of one object. A shallow copy has these, and another owner."""

    def __init__(self, owner: Any) -> None:
        self.owner = weakref.ref(owner)
        self._known: dict[Any, Any] = {}

    def of(self, captured: Any) -> Any:
        if captured not in self._known:
            self._known[captured] = captured._another(types.MethodType(captured._function, self.owner()), itself)
        return self._known[captured]


def itself(value: Any) -> Any:
    return value



class Method:
    """What a captured function needs in order to be a method, and to be copied with the object that it belongs to."""

    _function: Callable[..., Any]
    __call__: Callable[..., Any]
    # Makes another one like it, of a function; a copier comes with a copy of an object, and copies what belongs to it.
    _another: Callable[[Any, Callable[[Any], Any]], Any]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        own = getattr(instance, "__dict__", None)
        if own is None or isinstance(instance, type):  # an object with slots, or a class
            return functools.partial(self.__call__, instance)
        methods = own.get(_KEY)
        if methods is None or methods.owner() is not instance:
            methods = own[_KEY] = _Methods(instance)
        return methods.of(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A plain function is never copied, nor is what stands for one; a bound method is one of the copied object."""
        function = copy.deepcopy(self._function, memo)
        return self if function is self._function else self._another(function, lambda value: copy.deepcopy(value, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        """What comes out of a file is the plain function."""
        return itself, (self._function,)
