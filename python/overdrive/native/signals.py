"""Handlers of signals wait while a call is recorded: an error that one of them raises between two lines would leave half of what the call learns."""
from __future__ import annotations

import importlib
import sys
import threading
from typing import Any

# Without the enumerations of `signal`, which take twenty times as long.
_signal: Any = importlib.import_module("_signal")
# Of the one call that makes them wait: Python runs handlers on its main thread alone.
_owner: list[Any] = []
# By their signals: those in whose places _wait() is, and signals that have come.
_handlers: dict[int, Any] = {}
_came: list[int] = []


def begin(owner: Any) -> None:
    if _owner or threading.current_thread() is not threading.main_thread():
        return
    _owner.append(owner)
    for number in _signal.valid_signals():
        handler = _signal.getsignal(number)
        if callable(handler) and handler is not _wait:
            _handlers[number] = handler
            _signal.signal(number, _wait)


def end(owner: Any) -> None:
    """Runs those that have waited."""
    if not _owner or _owner[0] is not owner:
        return
    came = _came.copy()
    _came.clear()
    _owner.clear()
    for number, handler in list(_handlers.items()):
        if _signal.getsignal(number) is _wait:
            _signal.signal(number, handler)
    for number in came:
        _handlers[number](number, sys._getframe())


def _wait(number: int, frame: Any) -> None:
    """What a handler changes would look like a change of the function's. One that comes again before the call has ended is in earnest."""
    if not _owner or number in _came:
        _handlers[number](number, frame)
    else:
        _came.append(number)
