"""Which of some instructions ran in a call that is recorded. A replay goes the same way, so that the others do not run in it either."""
from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterable
from typing import Any

Place = tuple[types.CodeType, int]


class Executed:
    """Of the block that it is around. Where a debugger traces, and where this Python tells no instructions, all of them may have run."""

    def __init__(self, places: Iterable[Place]) -> None:
        # By their code, each with the prefixes that may be told instead.
        self._wanted: dict[types.CodeType, dict[int, int]] = {}
        for code, offset in places:
            at = offset
            while at >= 0:
                self._wanted.setdefault(code, {})[at] = offset
                at = at - 2 if at >= 2 and code.co_code[at - 2] == dis.EXTENDED_ARG else -1
        self._known = {(code, offset) for code, offsets in self._wanted.items() for offset in offsets.values()}
        self._is_on = False
        self._ran: set[Place] = set()
        self._entered: set[types.CodeType] = set()
        self._told: set[types.CodeType] = set()

    def __enter__(self) -> None:
        self._is_on = bool(self._wanted) and sys.gettrace() is None
        if self._is_on:
            if sys.version_info[:2] == (3, 12):  # which tells instructions to those that begin to trace after somebody has asked for them
                sys._getframe().f_trace_opcodes = True
            sys.settrace(self._enter)

    def __exit__(self, *_: object) -> None:
        if self._is_on:
            sys.settrace(None)

    def may_have_run(self, place: Place) -> bool:
        return not self._is_on or place not in self._known or place in self._ran or place[0] in self._entered - self._told

    def _enter(self, frame: Any, event: str, _: Any) -> Any:
        if frame.f_code not in self._wanted:
            return None
        self._entered.add(frame.f_code)
        frame.f_trace = self._run  # before the next line, for Python 3.13
        frame.f_trace_opcodes = True
        return self._run

    def _run(self, frame: Any, event: str, _: Any) -> Any:
        if event == "opcode":
            self._told.add(frame.f_code)
            if (offset := self._wanted[frame.f_code].get(frame.f_lasti)) is not None:
                self._ran.add((frame.f_code, offset))
        return self._run
