"""A backward watched from inside: the first NaN, stopping, and what an error does not say."""
from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from overdrive._engine import needs_installed
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
        needs_installed("NanWatch")
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
    """A backward was stopped between two nodes: ``done`` of ``total`` had run. ``accumulated`` are the leaves that have a
    new gradient; the others' are untouched."""

    def __init__(self, text: str, done: int = 0, total: int = 0, accumulated: Iterable[Any] = ()) -> None:
        super().__init__(text)
        self.done, self.total, self.accumulated = done, total, list(accumulated)


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


def _tensor(address: int) -> Any:
    """The tensor of Python's that belongs to a ``c10::TensorImpl``."""
    import torch

    libraries = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_python.so")
    wrap = ctypes.PyDLL(libraries)["_Z16THPVariable_WrapRKN2at10TensorBaseE"]  # a TensorBase is one pointer
    wrap.restype, wrap.argtypes = ctypes.py_object, [ctypes.POINTER(ctypes.c_void_p)]
    return wrap(ctypes.byref(ctypes.c_void_p(address)))


def _accumulated(scope: int) -> list[Any]:
    count = library().overdrive_stop_accumulated(scope, None, 0)
    addresses = (ctypes.c_void_p * count)()
    library().overdrive_stop_accumulated(scope, addresses, count)
    return [_tensor(address) for address in addresses if address]


class _At(ctypes.Structure):
    _fields_ = [("done", ctypes.c_size_t), ("total", ctypes.c_size_t), ("context", ctypes.c_void_p), ("go_on", ctypes.c_int)]


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
    overdrive._watch.Cancelled: A backward was stopped after 0 of 2 nodes: the deadline has passed.
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

    common = (token._handle if token else None, -1.0 if seconds is None else seconds)
    if progress is None:
        scope = library().overdrive_stop_begin(*common)
    else:
        told = _told(progress, raised)
        next(told)
        call = _PROGRESS(told.send)  # lives as long as the scope
        scope = library().overdrive_stop_begin_with_progress(*common, call, None)
    if not scope:
        raise OverdriveError(last_error())
    try:
        yield
    except RuntimeError as error:
        stopped = re.match(r"A backward was stopped after (\d+) of (\d+) nodes: .*", str(error))
        if stopped and not raised:
            raise Cancelled(stopped[0], int(stopped[1]), int(stopped[2]), _accumulated(scope)) from None
        if not raised:
            raise
    finally:
        library().overdrive_stop_end(scope)
    if raised:  # also where the block has caught the backward's error
        raise raised[0]


def last_error_note() -> str:
    """What the last error out of a backward does not say: the node, the way to it, the gradients that fit it.

    ``""`` when no node has failed on this thread.
    """
    return _text(library().overdrive_last_error_note)
