"""A backward watched from inside: the first NaN, stopping, and what an error does not say."""
from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import torch

from overdrive.native.library import address_of, call, text
from overdrive.tools.engine import needs_installed


class NanWatch:
    """Finds the first node that makes a NaN or an infinity out of finite gradients, in every backward of the block.

    >>> import overdrive, torch
    >>> x = torch.zeros(2, requires_grad=True)
    >>> with overdrive.engine(), overdrive.NanWatch() as watch:
    ...     x.sqrt().sum().backward()
    >>> watch.first.startswith("Node SqrtBackward0")
    True
    """

    def __init__(self) -> None:
        self._watch: torch.ScriptObject | None = None
        self._first: str | None = None

    def __enter__(self) -> NanWatch:
        needs_installed("NanWatch")
        self._watch = call("NanWatch.begin")
        return self

    def __exit__(self, *_: object) -> None:
        self._first = self.first
        watch, self._watch = self._watch, None
        call("NanWatch.end", watch)

    @property
    def first(self) -> str | None:
        """A sentence about what was found: the node, its inputs' ranges, the way from the root. None: nothing."""
        if self._watch is None:
            return self._first
        return text("NanWatch.first", self._watch) or None


class Cancelled(RuntimeError):
    """A backward was stopped between two nodes: ``done`` of ``total`` had run. ``accumulated`` are the leaves that have a
    new gradient; the others' are untouched."""

    def __init__(self, text: str, *, done: int = 0, total: int = 0, accumulated: Iterable[torch.Tensor] = ()) -> None:
        super().__init__(text)
        self.done, self.total, self.accumulated = done, total, list(accumulated)


class CancelToken:
    """``cancel()`` stops the backwards of the blocks of :func:`stopping` that were given this token, from any thread."""

    def __init__(self) -> None:
        self._token: torch.ScriptObject = call("CancelToken.make")

    def cancel(self) -> None:
        call("CancelToken.cancel", self._token)


class _At(ctypes.Structure):
    _fields_ = [("done", ctypes.c_size_t), ("total", ctypes.c_size_t), ("go_on", ctypes.c_int)]


_PROGRESS = ctypes.CFUNCTYPE(None, ctypes.POINTER(_At))


def _told(progress: Callable[[int, int], object], raised: list[BaseException]) -> Generator[None, Any, None]:
    """Takes what C sends. Python raises the error of a signal handler, such as KeyboardInterrupt, where its next code
    begins. That of a function would be outside of its ``try``, and ctypes drops what a callback raises."""
    while True:
        try:
            at = yield
            progress(at.contents.done, at.contents.total)
            at.contents.go_on = 1
        except GeneratorExit:
            return
        except BaseException as error:  # noqa: B036 - it is raised again by stopping()
            raised.append(error)


@contextlib.contextmanager
def stopping(
    token: CancelToken | None = None,
    seconds: float | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Iterator[None]:
    """Backwards that this thread begins in the block stop between two nodes: when the token is cancelled, or ``seconds``
    after the block began. The block then raises :class:`Cancelled`, so ``try`` stands around it.

    ``progress(done, total)`` is called before each node and at the end, on the thread of the node; where several threads
    run nodes, some are left out. What it raises stops the backward and leaves the block; so Ctrl-C does.

    >>> import overdrive, torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> with overdrive.engine(), overdrive.stopping(progress=print):
    ...     x.sum().backward()
    0 2
    1 2
    2 2
    >>> with overdrive.engine(), overdrive.stopping(seconds=0):
    ...     x.sum().backward()
    Traceback (most recent call last):
    overdrive.tools.watch.Cancelled: A backward was stopped after 0 of 2 nodes: the deadline has passed.
    """
    if token is not None and not isinstance(token, CancelToken):
        raise TypeError(f"stopping: token is {token!r}; it takes a CancelToken")
    if seconds is not None and not isinstance(seconds, (int, float)):
        raise TypeError(f"stopping: seconds is {seconds!r}; it takes a number")
    if seconds is not None and not seconds >= 0:
        raise ValueError(f"stopping: seconds is {seconds}; it takes 0 and more, and None for no deadline")
    if progress is not None and not callable(progress):
        raise TypeError(f"stopping: progress is {progress!r}; it takes a function of (done, total)")
    needs_installed("stopping()")
    raised: list[BaseException] = []

    address = 0
    if progress is not None:
        told = _told(progress, raised)
        next(told)
        function = _PROGRESS(told.send)  # lives as long as the scope
        address = address_of(function)
    scope = call("StopScope.begin", token and token._token, -1.0 if seconds is None else float(seconds), address)
    try:
        yield
    except RuntimeError as error:
        reason, done, total, leaves = call("StopScope.stopped", scope)
        if not raised:
            if reason and str(error).startswith(reason):
                raise Cancelled(reason, done=done, total=total, accumulated=leaves) from None
            raise
    finally:
        call("StopScope.end", scope)
    if raised:  # also where the block has caught the backward's error
        raise raised[0]


def last_error_note() -> str:
    """What the last error out of a backward does not say: the node, the way to it, the gradients that fit it.

    ``""`` when no node has failed on this thread.
    """
    return text("Inspect.last_error_note")
