"""Follows one call by opcode events: beside the value stack of each frame another one, of sources (places.py).

CPython runs the program; this looks at the stack before each instruction. A depth, or an entry that the instruction before should have left alone,
that is another one, ends the audit as an unknown instruction does.
"""
from __future__ import annotations

import ctypes
import os
import sys
import types
from typing import Any

import torch

import overdrive

from calls import Target
from lookups import CHILD, NEW
from opcodes import MOVES, ROWS
from places import Call, End
from value_stack import NULL, Stack, table_of

_CALL, _ERROR, _RETURN, _OPCODE = 0, 1, 3, 7
_EVENT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p)
_STANDARD = os.path.dirname(os.__file__) + os.sep
_TORCH = os.path.dirname(torch.__file__) + os.sep
# Code that is followed no further: our own, imports, and modules of Python's
# library whose caches are no values of a program. What it is given counts as used.
_OPAQUE = (os.path.dirname(overdrive.__file__) + os.sep, os.path.join(_TORCH, "_dynamo") + os.sep, "<frozen",
           *(os.path.join(_STANDARD, name) for name in ("re" + os.sep, "inspect.py", "typing.py", "enum.py", "warnings.py", "traceback.py", "linecache.py", "tokenize.py",
                                                        "importlib", "locale.py", "logging", "pickle.py", "json", "unittest", "threading.py", "dis.py", "selectors.py",
                                                        "random.py", "datetime.py", "_pydatetime.py", "tempfile.py", "shutil.py", "subprocess.py", "pathlib", "glob.py")))
# Of PyTorch's optimizers, what a recording has as an operator of its own, or Overdrive runs apart.
_OPTIMIZERS, _OF_OPTIMIZERS = os.path.join(_TORCH, "optim") + os.sep, ("step", "wrapper", "zero_grad", "_step", "_use_grad", "closure")
_GENERATORS = 0x2A0


class Frame:
    """A frame of Python, and the sources of what stands on its stack and in its variables."""

    def __init__(self, tracer: Tracer, frame: Any) -> None:
        self.tracer, self.call, self.frame, self.code = tracer, tracer.call, frame, table_of(frame.f_code)
        self.stack = Stack(frame, self.code.variables)
        self.sources: list[Any] = []
        self.variables: dict[str, Any] = {}
        # The entries before the instruction, by their addresses, and what it takes and leaves.
        self.addresses: list[int] = []
        self.pending: Any = None
        self.begun = self.raised = self.is_root = False
        # Of the instruction: functions whose frames may come, what is given to them, the class of an object that is made, and what a frame gave.
        self.targets: list[Target] = []
        self.operands: list[tuple[Any, Any]] = []
        self.making: Any = None
        self.child: tuple[Any, Any] | None = None
        self.keyword_names: tuple[str, ...] = ()
        self.returned: Any = None

    def is_of_child(self, value: Any) -> bool:
        return self.child is not None and self.child[0] is value

    def of_child(self, value: Any) -> Any:
        return self.child[1] if self.child is not None and self.child[0] is value else None

    def resolve(self, source: Any, value: Any) -> Any:
        if source is CHILD:
            return self.of_child(value)
        if source is NEW:
            return self.call.make(value) if value is not NULL else None
        return source(value) if isinstance(source, (types.FunctionType, types.MethodType)) else source


class Tracer:
    """Follows what code calls that has ``root``, from ``start()`` to ``stop()``; ``call`` has the places, ``end`` why they are not all."""

    def __init__(self, root: types.CodeType) -> None:
        self.call = Call()
        self.generators: dict[int, tuple[Any, dict[str, Any]]] = {}
        self.end = ""
        self.instructions = 0
        self._frames: dict[int, Frame] = {}
        self._root = root
        self._told = _EVENT(self._event)
        self._opaque: dict[types.CodeType, bool] = {}

    def start(self) -> None:
        if sys.gettrace() is not None:
            self.end = "a debugger watches the thread"
            return
        self._trace(ctypes.cast(self._told, ctypes.c_void_p))

    def stop(self) -> None:
        if self.end != "a debugger watches the thread":
            self._trace(None)
        self.call.close()
        self._frames.clear()
        self.generators.clear()

    def _trace(self, function: Any) -> None:
        set_trace = ctypes.pythonapi.PyEval_SetTrace
        set_trace.argtypes, set_trace.restype = [ctypes.c_void_p, ctypes.c_void_p], None
        set_trace(function, None)

    def is_opaque(self, code: types.CodeType) -> bool:
        found = self._opaque.get(code)
        if found is None:
            of_optimizers = code.co_filename.startswith(_OPTIMIZERS) and code.co_name in _OF_OPTIMIZERS
            found = self._opaque[code] = of_optimizers or code.co_filename.startswith(_OPAQUE)
        return found

    def _stop(self, frame: Any, reason: str) -> None:
        if not self.end:
            self.end = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}: {reason}"

    def _event(self, _: Any, frame: Any, event: int, argument: int | None) -> int:
        if self.end:
            return 0
        try:
            if event == _OPCODE:
                known = self._frames.get(id(frame))
                if known is not None:
                    self._step(known, frame)
            elif event == _CALL:
                self._enter(frame)
            elif event == _RETURN:
                self._leave(frame, argument)
            elif event == _ERROR and (known := self._frames.get(id(frame))) is not None:
                known.raised = True
        except End as reason:
            self._stop(frame, str(reason))
        except Exception as error:  # noqa: BLE001 - nobody is there to take it
            line = error.__traceback__
            while line is not None and line.tb_next is not None:
                line = line.tb_next
            at = f"{os.path.basename(line.tb_frame.f_code.co_filename)}:{line.tb_lineno}" if line else ""
            self._stop(frame, f"an error of the auditor's own, {type(error).__name__}: {error} ({at})")
        return 0

    def _enter(self, frame: Any) -> None:
        known = self._frames.get(id(frame))
        if known is not None and known.frame is frame:  # a generator goes on
            known.raised = False
            return
        around = frame.f_back
        parent = self._frames.get(id(around)) if around is not None else None
        is_root = parent is None and around is not None and around.f_code is self._root
        if not is_root and (parent is None or self.is_opaque(frame.f_code)):
            return
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        new = self._frames[id(frame)] = Frame(self, frame)
        new.is_root = is_root
        if frame.f_code.co_flags & _GENERATORS:
            made = self.generators.get(id(frame))
            if made is not None:
                new.variables = made[1]
            elif parent is not None:
                self.call.see("iterator", frame, frame.f_code.co_name, None)
        else:
            if parent is not None:
                self._begin(new, parent)
            self._gather(new, frame.f_code)

    def _begin(self, new: Frame, parent: Frame) -> None:
        """The sources of its variables: of the call that the instruction makes, or, where C calls, of what it was given, which is used."""
        code = new.frame.f_code
        target = next((target for target in parent.targets if target.function.__code__ is code), None)
        if target is not None:
            parent.targets.remove(target)
            new.variables = target.variables(self.call)
        else:
            for value, source in parent.operands:
                self.call.deep(value, source)
        if parent.making is not None and code.co_argcount and code.co_name == "__init__" and type(new.stack.slot(0)) is parent.making:
            self.call.make(new.stack.slot(0))

    def _gather(self, new: Frame, code: types.CodeType) -> None:
        # What *args and **keywords gather is the frame's own; its items are used.
        at = code.co_argcount + code.co_kwonlyargcount
        for flag in (4, 8):
            if code.co_flags & flag:
                gathered = new.stack.slot(at)
                self.call.make(gathered.cell_contents if type(gathered) is types.CellType else gathered)
                at += 1

    def _leave(self, frame: Any, argument: int | None) -> None:
        known = self._frames.get(id(frame))
        if known is None or known.frame is not frame:
            return
        parent = self._frames.get(id(frame.f_back)) if frame.f_back is not None else None
        if argument and parent is not None:
            if parent.child is not None:
                self.call.use(parent.child[1])
            parent.child = ctypes.cast(argument, ctypes.py_object).value, known.returned
        if not frame.f_code.co_flags & _GENERATORS:
            del self._frames[id(frame)]

    def _step(self, known: Frame, frame: Any) -> None:
        self.instructions += 1
        values = known.stack.values()
        if not known.begun:
            known.begun, known.sources = True, [None] * len(values)
            for index in known.code.cells:
                if type(cell := known.stack.slot(index)) is types.CellType:
                    self.call.make(cell)
                    name = frame.f_code.co_varnames[index] if index < len(frame.f_code.co_varnames) else ""
                    if known.variables.get(name) is not None:
                        self.call.write("cell", cell, None, None, known.variables[name])
        elif known.raised:
            self._unwind(known, values)
        else:
            self._finish(known, values)
        known.raised, known.child, known.making = False, None, None
        known.targets, known.operands = [], []
        known.addresses = [id(value) for value in values]
        step = known.code.steps[frame.f_lasti]
        self.call.by_torch = frame.f_code.co_filename.startswith(_TORCH)
        self.call.where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        if (counts := MOVES.get(step.opname)) is not None:
            for source in known.sources[-counts[0]:] if counts[0] and step.opname not in ("POP_TOP", "END_FOR") else ():
                self.call.use(source)
            known.pending = counts[0], [None] * counts[1]
        elif (row := ROWS.get(step.opname)) is not None:
            known.pending = row(known, step, values)
        else:
            raise End(f"an unknown instruction, {step.opname}")

    def _unwind(self, known: Frame, values: list[Any]) -> None:
        """A handler: the lower entries stand as they stood."""
        kept = 0
        while kept < min(len(values), len(known.sources)) and known.addresses[kept] == id(values[kept]):
            kept += 1
        for source in known.sources[kept:]:
            self.call.use(source)
        known.sources = known.sources[:kept] + [None] * (len(values) - kept)
        for value in values[kept:]:
            if isinstance(value, BaseException):
                self.call.make(value)

    def _finish(self, known: Frame, values: list[Any]) -> None:
        """What the instruction before has left."""
        pending = known.pending
        taken, sources = pending(values) if callable(pending) else pending
        kept = len(known.sources) - taken
        if callable(sources):
            sources = sources(values[kept:])
        if kept + len(sources) != len(values) or any(known.addresses[at] != id(values[at]) for at in range(kept)):
            step = known.code.steps.get(known.frame.f_lasti)
            raise End(f"the shadow of the stack is wrong before {step.opname if step else '?'}: {kept} + {len(sources)}, not {len(values)}")
        used = False
        result = known.sources[:kept]
        for source, value in zip(sources, values[kept:]):
            if value is not NULL and known.is_of_child(value):
                used = True
            result.append(known.resolve(source, value))
        if known.child is not None and not used:
            self.call.use(known.child[1])
        known.sources = result
