"""Follows one call by opcode events: CPython runs the program; before each instruction its row (opcodes.py) tells which places it uses."""
from __future__ import annotations

import ctypes
import os
import sys
import types
from typing import Any

import torch

import overdrive
from overdrive.reads.owners import kind_of

from calls import IF_ALONE, MADE, TAKEN
from opcodes import ROWS
from places import Call, End
from value_stack import NULL, Stack, is_held_by, table_of

_CALL, _ERROR, _RETURN, _OPCODE = 0, 1, 3, 7
_EVENT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p)
_STANDARD = os.path.dirname(os.__file__) + os.sep
_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(overdrive.__file__) + os.sep
# Code that is followed no further: our own, imports, and modules of Python's library whose caches are no values of a program. What it is given
# counts as used, and code of the program that it calls is followed.
_OPAQUE = (_OURS, os.path.join(_TORCH, "_dynamo") + os.sep, "<frozen", *(os.path.join(_STANDARD, name) for name in (
    "re" + os.sep, "inspect.py", "typing.py", "enum.py", "warnings.py", "traceback.py", "linecache.py", "tokenize.py", "importlib", "locale.py", "logging",
    "pickle.py", "json", "unittest", "threading.py", "dis.py", "selectors.py", "random.py", "datetime.py", "_pydatetime.py", "tempfile.py", "shutil.py",
    "subprocess.py", "pathlib", "glob.py")))
# Of PyTorch's optimizers, what a recording has as an operator of its own, or Overdrive runs apart.
_OPTIMIZERS, _OF_OPTIMIZERS = os.path.join(_TORCH, "optim") + os.sep, ("step", "wrapper", "zero_grad", "_step", "_use_grad", "closure")
_GENERATORS, _GATHERS = 0x2A0, (4, 8)


class Frame:
    """A frame of Python that is followed."""

    def __init__(self, tracer: Tracer, frame: Any) -> None:
        self.tracer, self.call, self.frame, self.code = tracer, tracer.call, frame, table_of(frame.f_code)
        self.stack = Stack(frame, self.code)
        self.is_root = self.raised = self.calls_c = False
        self.by_library = kind_of(frame.f_code.co_filename) != "user"
        self.keyword_names: tuple[str, ...] = ()
        # The entries before the instruction, by their addresses, and what becomes of its result.
        self.addresses: list[int] = []
        self.result = IF_ALONE

    def make_what_came(self, values: list[Any]) -> None:
        """What the instruction before has left and nobody else holds is the call's own."""
        for at in range(len(values)):  # enumerate() would hold each value once more
            value = values[at]
            is_last = at == len(values) - 1
            if value is NULL or not is_last and at < len(self.addresses) and self.addresses[at] == id(value):
                continue
            if self.result == MADE and is_last or self.raised and isinstance(value, BaseException) or is_held_by(value, 2) and not (self.result == TAKEN and is_last):
                self.call.make(value)
        self.raised, self.result, self.addresses = False, IF_ALONE, [id(value) for value in values]


class Tracer:
    """Follows what code calls that has ``root``, from ``start()`` to ``stop()``; ``call`` has the places, ``end`` why they are not all."""

    def __init__(self, root: types.CodeType) -> None:
        self.call, self.end = Call(), ""
        self._frames: dict[int, Frame] = {}
        # Of our own, the code that calls the function, and what that calls first.
        self._root = self._between = root
        self._told = _EVENT(self._event)
        self._is_on = False

    def start(self) -> None:
        self._is_on = sys.gettrace() is None
        if self._is_on:
            self._trace(ctypes.cast(self._told, ctypes.c_void_p))
        else:
            self.end = "a debugger watches the thread"

    def stop(self) -> None:
        if self._is_on:
            self._trace(None)
        self.call.close()
        self._frames.clear()

    def _trace(self, function: Any) -> None:
        set_trace = ctypes.pythonapi.PyEval_SetTrace
        set_trace.argtypes, set_trace.restype = [ctypes.c_void_p, ctypes.c_void_p], None
        set_trace(function, None)

    def is_ours(self, code: types.CodeType) -> bool:
        return code.co_filename.startswith(_OURS)

    def is_opaque(self, code: types.CodeType) -> bool:
        of_optimizers = code.co_filename.startswith(_OPTIMIZERS) and code.co_name in _OF_OPTIMIZERS
        return of_optimizers or code.co_filename.startswith(_OPAQUE)

    def _stop(self, frame: Any, reason: str) -> None:
        self.end = self.end or f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}: {reason}"

    def _event(self, _: Any, frame: Any, event: int, argument: int | None) -> int:
        if self.end:
            return 0
        try:
            known = self._frames.get(id(frame))
            if event == _CALL:
                self._enter(frame)
            elif known is not None and known.frame is frame:
                if event == _OPCODE:
                    self._step(known, frame)
                elif event == _ERROR:
                    known.raised = True
                elif event == _RETURN and not frame.f_code.co_flags & _GENERATORS:
                    del self._frames[id(frame)]
        except End as reason:
            self._stop(frame, str(reason))
        except Exception as error:  # noqa: BLE001 - nobody is there to take it
            line = error.__traceback__
            while line is not None and line.tb_next is not None:
                line = line.tb_next
            at = f"{os.path.basename(line.tb_frame.f_code.co_filename)}:{line.tb_lineno}" if line else ""
            self._stop(frame, f"an error of the auditor's own, {type(error).__name__}: {error} ({at})")
        return 0

    def _followed(self, frame: Any) -> Frame | None:
        """The nearest frame below that is followed; what our own code calls is not."""
        while frame is not None and not self.is_ours(frame.f_code):
            if (known := self._frames.get(id(frame))) is not None and known.frame is frame:
                return known
            frame = frame.f_back
        return None

    def _enter(self, frame: Any) -> None:
        known = self._frames.get(id(frame))
        if known is not None and known.frame is frame:  # a generator goes on
            known.raised = False
            return
        code, around = frame.f_code, frame.f_back
        if self.is_ours(code):
            if around is not None and around.f_code is self._root:
                self._between = code
            return
        is_root = around is not None and around.f_code in (self._root, self._between) and not self._frames
        parent = self._followed(around)
        if not is_root and (parent is None or self.is_opaque(code)):
            return
        if parent is not None and parent.frame is not around and kind_of(code.co_filename) != "user":
            return  # of a library that opaque code calls
        # CPython 3.13 tells of no instruction of a frame without a function, which a trace function in C never calls.
        frame.f_trace, frame.f_trace_lines, frame.f_trace_opcodes = str, False, True
        new = self._frames[id(frame)] = Frame(self, frame)
        new.is_root = is_root
        given = code.co_argcount + code.co_kwonlyargcount
        for value in new.stack.held_by_none(given):
            self.call.make(value)
        if code.co_flags & _GENERATORS and parent is not None:
            self.call.see("iterator", frame, code.co_name, None)
        if code.co_name == "__init__" and code.co_argcount and parent is not None and parent.calls_c:
            self.call.make(new.stack.slot(0))

    def _step(self, known: Frame, frame: Any) -> None:
        values = known.stack.values(frame.f_lasti)
        known.make_what_came(values)
        step = known.code.steps[frame.f_lasti]
        self.call.by_torch = frame.f_code.co_filename.startswith(_TORCH)
        self.call.where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        known.calls_c = False
        if (row := ROWS.get(step.opname)) is None:
            raise End(f"an unknown instruction, {step.opname}")
        known.result = row(known, step, values) or IF_ALONE
