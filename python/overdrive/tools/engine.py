"""Switching the engine on and off, and what it did."""
from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch

from overdrive.native.library import OverdriveError, call, last_error, library, whole_number

_installs_held_off = 0


def switch_on() -> None:
    if not library().overdrive_install():
        raise OverdriveError(last_error())


def switch_off() -> None:
    if not library().overdrive_uninstall():
        raise OverdriveError(last_error())


def install(*, optimizers: bool = False) -> None:
    """Runs every backward from here on on Overdrive, on all threads. May be called twice.

    ``optimizers=True`` captures every optimizer of ``torch.optim`` that the program makes from here on, too, as
    :func:`captured` does: after a few calls its ``step()`` is replayed. A class of the program's own is left alone.

    With ``OVERDRIVE=0`` in the environment stock stays, and ``stats()["installs_held_off"]`` counts the call: so
    ``python -m overdrive compare`` has a true run on stock of a program that switches itself. Options come from
    ``OVERDRIVE_*`` variables; a bad value is an :class:`OverdriveError` that names it, with ``OVERDRIVE=0`` too.

    >>> import overdrive, torch
    >>> overdrive.install()
    >>> x = torch.ones(3, requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 2., 2.])
    >>> overdrive.uninstall()
    """
    if not isinstance(optimizers, bool):
        raise TypeError(f"install: optimizers is {optimizers!r}; it takes True or False")
    if is_held_off():
        return
    switch_on()
    if optimizers:
        from overdrive.step.optimizers_made import capture_made

        capture_made(torch.optim.Optimizer)


def is_held_off() -> bool:
    """Whether the environment holds an install off, which is counted."""
    global _installs_held_off
    if os.environ.get("OVERDRIVE") != "0":
        return False
    if not library().overdrive_check_environment():
        raise OverdriveError(last_error())
    _installs_held_off += 1
    return True


def uninstall() -> None:
    """Puts back the engine that was there before. Backwards under way finish on the engine that began them. Optimizers
    that ``install(optimizers=True)`` has captured are PyTorch's again."""
    switch_off()
    if "torch.optim" in sys.modules:
        from overdrive.step.optimizers_made import leave_made

        leave_made(sys.modules["torch.optim"].Optimizer)


def installed() -> bool:
    """Whether backwards run on Overdrive now.

    >>> import overdrive
    >>> with overdrive.engine():
    ...     overdrive.installed()
    True
    >>> overdrive.installed()
    False
    """
    return bool(library().overdrive_installed())


def needs_installed(what: str) -> None:
    """An error where Overdrive runs no backward that could be looked at. With ``OVERDRIVE=0`` the program asked for
    that, and there is none."""
    if not installed() and os.environ.get("OVERDRIVE") != "0":
        raise OverdriveError(f"{what} looks at backwards on Overdrive, which is not installed; call overdrive.install() first, "
                             "or stand inside of `with overdrive.engine():`.")


@contextlib.contextmanager
def engine(*, threads: str | None = None, exact: str | None = None, own_nodes: bool | None = None,
           check_every: int | None = None, errors: str | None = None, nan: str | None = None) -> Iterator[None]:
    """Overdrive for a block. Blocks nest, and may overlap on several threads: the engine changes when the first
    begins and when the last ends.

    The options are those of the ``OVERDRIVE_*`` variables, whose values they have where they are not given: ``threads``
    "auto", "caller" or "device", ``exact`` "auto" or "always", ``own_nodes``, ``check_every=n``, ``errors`` "plain",
    "note" or "full", ``nan`` "off" or "first". They hold in the process for as long as the block lasts.

    >>> import overdrive, torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> with overdrive.engine(check_every=1):
    ...     x.exp().sum().backward()
    """
    for name, word in (("threads", threads), ("exact", exact), ("errors", errors), ("nan", nan)):
        if word is not None and not isinstance(word, str):
            raise TypeError(f"engine: {name} is {word!r}; it takes a string")
    if own_nodes is not None and not isinstance(own_nodes, bool):
        raise TypeError(f"engine: own_nodes is {own_nodes!r}; it takes True or False")
    if is_held_off():
        yield
        return
    every = None if check_every is None else whole_number("engine", "check_every", check_every, least=0)
    scope = call("Engine.enter", threads, exact, own_nodes, every, errors, nan)
    try:
        yield
    finally:
        call("Engine.leave", scope)


def stats() -> dict[str, Any]:
    """What the engine did since the start, or since :func:`reset_stats`: counts by name, and under "forwarded" the
    calls that stock ran, by reason.

    >>> import overdrive, torch
    >>> overdrive.reset_stats()
    >>> with overdrive.engine():
    ...     torch.ones(1, requires_grad=True).exp().backward()
    >>> overdrive.stats()["backwards"], overdrive.stats()["forwarded"]
    (1, {})
    """
    import ctypes

    size = 4096
    while True:
        text = ctypes.create_string_buffer(size)
        length = library().overdrive_stats_json(text, size)
        if length < 0:
            raise OverdriveError(last_error())
        if length < size:
            result: dict[str, Any] = json.loads(text.value)
            result["installs_held_off"] = _installs_held_off
            return result
        size = length + 1024


def keep_memory(bytes: int) -> None:  # noqa: A002 - programs give it by this name
    """Up to so many bytes of free memory stay with the process for its next step, instead of going back to the system
    and being faulted in again; 0 undoes it. A setting of the whole process, whichever engine runs. Without a call
    Overdrive decides by itself. An :class:`OverdriveError`, and nothing is changed, where malloc is not glibc's.

    >>> import overdrive
    >>> overdrive.keep_memory(64 << 20)
    >>> overdrive.keep_memory(0)
    """
    if not library().overdrive_keep_memory(whole_number("keep_memory", "bytes", bytes, least=0)):
        raise OverdriveError(last_error())


def reset_stats() -> None:
    """Begins to count from zero."""
    global _installs_held_off
    _installs_held_off = 0
    library().overdrive_reset_stats()
