"""A backward watched from inside: the first NaN, stopping, and what an error does not say."""
from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from overdrive._library import OverdriveError, last_error, library


def _text(write: Callable[..., int], *arguments: Any) -> str:
    length = write(*arguments, None, 0)
    if length < 0:
        raise OverdriveError(last_error())
    buffer = ctypes.create_string_buffer(length + 1)
    write(*arguments, buffer, length + 1)
    return buffer.value.decode(errors="replace")


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
        self._handle: int | None = None
        self._first: str | None = None

    def __enter__(self) -> NanWatch:
        self._handle = library().overdrive_nan_watch_begin()
        if not self._handle:
            raise OverdriveError(last_error())
        return self

    def __exit__(self, *_: object) -> None:
        self._first = self.first
        handle, self._handle = self._handle, None
        library().overdrive_nan_watch_end(handle)

    @property
    def first(self) -> str | None:
        """A sentence about what was found: the node, its inputs' ranges, the way from the root. None: nothing."""
        if self._handle is None:
            return self._first
        return _text(library().overdrive_nan_watch_first, self._handle) or None


class Cancelled(RuntimeError):
    """A backward was stopped between two nodes. Leaves that have a new gradient keep it."""


class CancelToken:
    """``cancel()`` stops the backwards of the blocks of :func:`stopping` that were given this token, from any thread."""

    def __init__(self) -> None:
        self._handle: int | None = library().overdrive_cancel_token_new()
        if not self._handle:
            raise OverdriveError(last_error())

    def cancel(self) -> None:
        library().overdrive_cancel(self._handle)

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            library().overdrive_cancel_token_free(handle)


@contextlib.contextmanager
def stopping(token: CancelToken | None = None, seconds: float | None = None) -> Iterator[None]:
    """Backwards that this thread begins in the block raise :class:`Cancelled` between two nodes: when the token is
    cancelled, or ``seconds`` after the block began.

    >>> import overdrive, torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> with overdrive.engine(), overdrive.stopping(seconds=0):
    ...     x.sum().backward()
    Traceback (most recent call last):
    overdrive._watch.Cancelled: A backward was stopped after 0 of 2 nodes: the deadline has passed.
    """
    if seconds is not None and not seconds >= 0:
        raise ValueError(f"stopping: seconds is {seconds}; it takes 0 and more, and None for no deadline")
    scope = library().overdrive_stop_begin(token._handle if token else None, -1.0 if seconds is None else seconds)
    if not scope:
        raise OverdriveError(last_error())
    try:
        yield
    except RuntimeError as error:
        if str(error).startswith("A backward was stopped after "):
            raise Cancelled(str(error).splitlines()[0]) from None
        raise
    finally:
        library().overdrive_stop_end(scope)


def last_error_note() -> str:
    """What the last error out of a backward does not say: the node, the way to it, the gradients that fit it.

    ``""`` when no node has failed on this thread.
    """
    return _text(library().overdrive_last_error_note)
