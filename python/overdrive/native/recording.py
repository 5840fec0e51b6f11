"""The recording that is under way on this thread, as code that runs in it speaks to it."""
from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

from overdrive.native.library import OverdriveError, call

# What code goes by: RefusalKind of replay/record/refusal.h, and one of Python's own.
OTHER, OF_THIS_CALL, DIED, GRADIENT_DIED, REPLACED, GRADIENT_REPLACED, HELD, GRADIENT_CHANGED, REPLAY_DIFFERS, FOR_A_WHILE, STILL_RECORDED = range(11)


class Refusal(NamedTuple):
    """Why calls are not replayed. No code reads the sentence, to which ``StepTexts`` adds lines and the rest where it is shown."""

    text: str = ""
    # The operator that it is about, where it is about one.
    operator: str = ""
    kind: int = OTHER
    # How many calls run eagerly for it from now on.
    rest: int = 0

    def __bool__(self) -> bool:
        return bool(self.text)


def refusal_of(name: str, *arguments: Any) -> Refusal:
    """Of a function of the library."""
    try:
        return Refusal(*call(name, *arguments))
    except OverdriveError as error:
        if isinstance(error.__cause__, UnicodeDecodeError):  # a file's name in the text
            return Refusal(str(error))
        raise


class _Unrecorded:
    """Operators of this block are no part of the recording."""

    def __enter__(self) -> None:
        call("Recording.pause", True)

    def __exit__(self, *_: object) -> None:
        call("Recording.pause", False)


def _refuse(reason: str) -> None:
    """The function cannot be replayed. Outside of a recording nothing happens."""
    call("Recording.refuse", reason)


class _Told(threading.local):
    registered = False
    # Of the captured step: its texts, and what makes way for code that runs apart.
    texts: Any = None
    apart: Any = None
    reasons: dict[str, str] = {}
    lines: Any = None
    # By a handler of a signal that came while something was noted.
    raised: BaseException | None = None


_told = _Told()


def run_under_way() -> Any:
    """Which run of which captured function is under way on this thread; None: none."""
    return None if _told.texts is None else (id(_told.texts), _told.texts.runs)


def apart_under_way() -> Any:
    """A weak reference to what makes way for code that runs apart in it, or to nothing."""
    return weakref.ref(_told.apart) if _told.apart is not None else _nothing


def _nothing() -> None:
    pass
