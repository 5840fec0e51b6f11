"""What happens to the tensors that a forward saves for its backward, in C++.

    with overdrive.engine():
        with overdrive.saved_tensors(overdrive.quantise(block=64)):
            loss = model(x)
        loss.backward()
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from overdrive.native.library import call, whole_number


class Packer:
    """A way to keep saved tensors. Made by the functions of this module; may be used again and on any thread."""

    def __init__(self, hooks: torch.ScriptObject, description: str) -> None:
        self._hooks, self._description = hooks, description

    def __repr__(self) -> str:
        return f"overdrive.{self._description}"


def _hooks_of(function: str, packer: object) -> torch.ScriptObject:
    if not isinstance(packer, Packer):
        call = ": call it" if callable(packer) else ""
        raise TypeError(f"{function} takes a packer, such as overdrive.quantise(), and was given {packer!r}{call}")
    return packer._hooks


def keep() -> Packer:
    """Saved tensors stay as they are. For what hooks themselves cost, and as a part of :func:`compose`."""
    return Packer(call("Packer.keep"), "keep()")


def quantise(
    type: str = "int8",  # noqa: A002 - programs give it by this name
    rounding: str = "nearest", block: int = 128, seed: int = 0, min_bytes: int = 4096,
) -> Packer:
    """Keeps float32 in fewer bits: ``type`` "int8" with a scale for each ``block`` elements, or "bfloat16". Lossy.

    ``rounding`` "stochastic" goes up or down by chance: a function of ``seed``, of the node and of the place in the
    tensor, so that a program which runs again draws the same. Tensors smaller than ``min_bytes`` stay as they are.

    >>> import overdrive, torch
    >>> x = torch.randn(64, 64, requires_grad=True)
    >>> with overdrive.engine():
    ...     with overdrive.saved_tensors(overdrive.quantise(block=64)):
    ...         loss = (x.exp() * x.exp()).sum()
    ...     loss.backward()
    >>> torch.allclose(x.grad, 2 * x.detach().exp() ** 2, rtol=0.1, atol=0.1 * x.detach().exp().max().item() ** 2)
    True
    """
    for name, value in (("type", type), ("rounding", rounding)):
        if not isinstance(value, str):
            raise TypeError(f"quantise: {name} is {value!r}; it takes a string")
    hooks = call("Packer.quantise", type, rounding, whole_number("quantise", "block", block),
                 whole_number("quantise", "seed", seed), whole_number("quantise", "min_bytes", min_bytes))
    return Packer(hooks, f"quantise(type={type!r}, rounding={rounding!r}, block={block}, seed={seed})")


def spill_to_disk(
    folder: str | os.PathLike[str] = "",
    min_bytes: int = 4096,
    max_waiting_bytes: int = 256 << 20,
    drop_cached: bool = False,
) -> Packer:
    """Saved tensors go to a file without a name in ``folder`` (TMPDIR unless told) and come back bit for bit.

    A thread writes beside the forward; at most ``max_waiting_bytes`` wait for it. ``drop_cached`` keeps the file out
    of the system's page cache.
    """
    hooks = call("Packer.spill_to_disk", os.fsencode(folder), whole_number("spill_to_disk", "min_bytes", min_bytes),
                 whole_number("spill_to_disk", "max_waiting_bytes", max_waiting_bytes), bool(drop_cached))
    return Packer(hooks, f"spill_to_disk({os.fspath(folder)!r})")


def offload_to_cpu(min_bytes: int = 4096) -> Packer:
    """Saved tensors leave an accelerator for CPU memory and come back, on streams of their own."""
    least = whole_number("offload_to_cpu", "min_bytes", min_bytes)
    return Packer(call("Packer.offload_to_cpu", least), "offload_to_cpu()")


def compose(first: Packer, second: Packer) -> Packer:
    """What ``first`` makes of a tensor is packed by ``second``: ``compose(quantise(), spill_to_disk())``."""
    hooks = call("Packer.compose", _hooks_of("compose", first), _hooks_of("compose", second))
    return Packer(hooks, f"compose({first!r}, {second!r})")


def min_bytes(bytes: int, packer: Packer) -> Packer:  # noqa: A002 - programs give it by this name
    """``packer`` for tensors of this many bytes and more; smaller ones stay as they are."""
    hooks = _hooks_of("min_bytes", packer)
    return Packer(call("Packer.min_bytes", whole_number("min_bytes", "bytes", bytes), hooks), f"min_bytes({bytes}, {packer!r})")


@contextlib.contextmanager
def saved_tensors(
    packer: Packer | None,
    *,
    min_bytes: int = 0,
    schedulable: bool = False,
    skip_parameters: bool = True,
    share: bool = True,
    check_in_place: bool = True,
) -> Iterator[None]:
    """Tensors that operators save on this thread inside the block are packed by ``packer``; by nothing for None.

    Needs the engine: :func:`overdrive.install`. The graph keeps its packers; run its backward anywhere. The innermost
    block decides, whether it is one of these or PyTorch's ``torch.autograd.graph.saved_tensors_hooks``.

    ``schedulable`` packs when a tensor's last use is over and unpacks ahead of the node that wants it, on another
    thread. ``skip_parameters`` leaves parameters and their views in memory, where they are anyhow. ``share`` packs
    memory that is saved twice once. ``check_in_place`` makes a change after the save an error, as without hooks.
    """
    hooks = None if packer is None else _hooks_of("saved_tensors", packer)
    min_bytes = whole_number("saved_tensors", "min_bytes", min_bytes, least=0)
    if hooks is not None and min_bytes > 0:
        hooks = call("Packer.min_bytes", min_bytes, hooks)
    if hooks is not None and schedulable:
        hooks = call("Packer.schedulable", hooks)
    scope = call("PackerScope.enter", hooks, bool(skip_parameters), bool(share), bool(check_in_place))
    try:
        yield
    finally:
        call("PackerScope.leave", scope)
