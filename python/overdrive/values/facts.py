"""What a function may ask of its arguments beside their elements, sizes and types: facts that choose a recording."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from overdrive.values.same import is_number

_SUBCLASS = ("An argument is a tensor of a class of its own, and a replay does not call what the class overrides; give a plain tensor "
             "(as_subclass(torch.Tensor)).")
_ATTRIBUTE = "An argument is a tensor with an attribute, `{}`, that is no number, and no guard looks into it; give the function what is in it."

RESULT_OF_A_CLASS = ("The function returns a tensor of a class of its own, and a replay makes plain tensors; return a plain one "
                     "(as_subclass(torch.Tensor)).")


def is_of_a_class(tensor: Any) -> bool:
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter)


# Of an argument. Where it needs a gradient, it may have a graph.
_KNOWN: dict[str, Callable[[Any], Any]] = {
    "_version": lambda x: None if x.is_inference() else x._version,
    "_base": lambda x: x._base is None,
    "_is_view": lambda x: x._is_view(),
    "is_shared": lambda x: x.is_shared(),
    "storage_offset": lambda x: x.storage_offset(),
    "is_leaf": lambda x: x.is_leaf,
    "grad": lambda x: x.is_leaf and x.grad is None,
    "grad_fn": lambda x: type(x.grad_fn),
    "_backward_hooks": lambda x: bool(x._backward_hooks),
    "retains_grad": lambda x: x.retains_grad,
}


class Facts:
    """Those that the code of one captured function names."""

    def __init__(self, is_part: bool) -> None:
        self._is_part = is_part
        self._names: set[str] = set()
        self._asked: list[Callable[[Any], Any]] = []
        # Parameters that a part may ask for their gradient.
        self._leaves: list[weakref.ref[Any]] = []
        # Whether sizes are asked for, too: a function that counts by them, as `self.seen += len(x)` does.
        self.has_sizes = False
        # Why of() has told nothing.
        self.reason = ""
        self._plain, self._parameter = torch.Tensor, torch.nn.Parameter

    def ask(self, names: Iterable[str]) -> None:
        """Code that has run names these attributes."""
        self._names.update(names)
        if "__dict__" in self._names:  # any of them
            self._names.update(_KNOWN)
        self._asked = [ask for name, ask in _KNOWN.items() if name in self._names]

    def ask_for_gradients_of(self, tensors: Iterable[Any]) -> None:
        if self._is_part and "grad" in self._names:
            self._leaves = [weakref.ref(tensor) for tensor in tensors if tensor.is_leaf and tensor.requires_grad]

    def of(self, tensors: Iterable[Any]) -> tuple[Any, ...] | None:
        """None: a tensor is of a class of the program, or has attributes that are more than numbers."""
        found: list[Any] = []
        for x in tensors:
            kind = type(x)
            if kind is not self._plain:
                if kind is not self._parameter:
                    self.reason = _SUBCLASS
                    return None
                found.append(kind)
            if self.has_sizes:
                found.append(x.shape)
            if self._asked:
                found.extend(ask(x) for ask in self._asked)
            if x.__dict__:
                names = x.__dict__ if "__dict__" in self._names else self._names
                for name, value in x.__dict__.items():
                    if name in names:
                        if not is_number(value):
                            self.reason = _ATTRIBUTE.format(name)
                            return None
                        found.append((name, type(value), value))
        for weak in self._leaves:
            leaf = weak()
            found.append(leaf is None or leaf.grad is None)
        return tuple(found)

    def told(self) -> str:
        asked = sorted({name for name in _KNOWN if name in self._names})
        if self.has_sizes:
            asked.append("its sizes")
        if self._leaves:
            asked.append("whether a parameter has a gradient")
        return "a fact about an argument: its class" + (", or " + ", ".join(asked) if asked else "") + ", or an attribute of it"
