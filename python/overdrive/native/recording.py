"""The recording that is under way on this thread, as code that runs in it speaks to it."""
from __future__ import annotations

from overdrive.native.library import call


class _Unrecorded:
    """Operators of this block are no part of the recording."""

    def __enter__(self) -> None:
        call("Recording.pause", True)

    def __exit__(self, *_: object) -> None:
        call("Recording.pause", False)


def _refuse(reason: str) -> None:
    """The function cannot be replayed. Outside of a recording nothing happens."""
    call("Recording.refuse", reason)
