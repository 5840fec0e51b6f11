"""What a captured step says: reasons with the line of the program, and all steps of a process."""
from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from overdrive.native.library import address_of, call
from overdrive.native.recording import OF_THIS_CALL, Refusal, _Told, _told
from overdrive.reads.code import Watcher, line_of_caller
from overdrive.reads.steps import line_of, steps_of

_MOST_REASONS = 4
_MOST_LINES = 4

steps: weakref.WeakSet[Any] = weakref.WeakSet()
# Calls of modules whose children are captured instead.
descended: weakref.WeakSet[Any] = weakref.WeakSet()

HELD_GRADIENT = ("It is the .grad of a parameter, and a variable of the program still holds it, as `g = p.grad` does after a loop; read p.grad "
                 "without such a variable, `del g` before the next call, or keep p.grad.clone().")


def gradients_of(tensors: Iterable[Any]) -> list[weakref.ref[Any]]:
    return [weakref.ref(tensor.grad) for tensor in tensors if tensor.is_leaf and tensor.grad is not None]


def is_one_held(gradients: Iterable[weakref.ref[Any]], tensors: Iterable[Any]) -> bool:
    """Whether one of these lives on, though no tensor has it as its gradient any more."""
    now = {id(tensor.grad) for tensor in tensors if tensor.is_leaf and tensor.grad is not None}
    return any((gradient := weak()) is not None and id(gradient) not in now for weak in gradients)


class Kept:
    """Parameters and buffers of modules before a recorded call, and `others`: which tensors they are, where their elements lie, and their hooks."""

    def __init__(self, modules: Iterable[Any], others: Iterable[Any]) -> None:
        self._all = [(entries, f"{type(module).__name__}.{name}", name, weakref.ref(tensor), _address_of(tensor))
                     for module in modules for entries in (module._parameters, module._buffers)
                     for name, tensor in entries.items() if tensor is not None]
        known = {id(weak()) for _, _, _, weak, _ in self._all}
        self._others = [(weakref.ref(tensor), _address_of(tensor)) for tensor in others if id(tensor) not in known]
        self._hooks = [(weak, _hooks_of(weak())) for weak in (*(each[3] for each in self._all), *(weak for weak, _ in self._others))]

    def moved(self, codes: Iterable[types.CodeType]) -> str:
        """The first that is another tensor now, or has other memory, and what to write; "" where all are as they were."""
        for entries, title, name, before, address in self._all:
            now = entries.get(name)
            if now is not None and now is not before():
                return (f"The function gives `{title}` another tensor{_line_of_store(codes, name)}; keep one tensor, and copy values into it "
                        "(copy_).")
            if now is not None and _address_of(now) != address:
                return (f"The function gives `{title}` other memory{_line_of_store(codes, 'data')}, as `p.data = old` does; copy values into it "
                        "(p.data.copy_(old)).")
        for weak, address in self._others:
            if (tensor := weak()) is not None and _address_of(tensor) != address:
                return (f"The function gives a tensor other memory{_line_of_store(codes, 'data')}, as `t.data = other` does; copy values into it "
                        "(t.data.copy_(other)).")
        return ""

    def hooked(self) -> str:
        """Whether a tensor has other hooks now, as a reason."""
        is_hooked = any((tensor := weak()) is not None and _hooks_of(tensor) != before for weak, before in self._hooks)
        return "The function registers a hook of a tensor, or takes one away, and a replay would not; do it outside." if is_hooked else ""


def _address_of(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError, ValueError):  # it has none
        return 0


def _hooks_of(tensor: Any) -> list[list[int]]:
    return [list(map(id, hooks.values())) for hooks in (tensor._backward_hooks, tensor._post_accumulate_grad_hooks) if hooks]


def _line_of_store(codes: Iterable[types.CodeType], name: str) -> str:
    programs = (code for code in codes if f"{os.sep}torch{os.sep}" not in code.co_filename)
    for code in sorted(programs, key=lambda code: (code.co_filename, code.co_firstlineno)):
        line = code.co_firstlineno
        for step in steps_of(code):
            line = line_of(step, line)
            if step.opname == "STORE_ATTR" and step.argval == name:
                return f" ({os.path.basename(code.co_filename)}:{line})"
    return ""


def levels_to_caller() -> int:
    """How far the code that called the package is from the caller of this."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("overdrive"):
        frame, levels = frame.f_back, levels + 1
    return levels


@contextlib.contextmanager
def telling(texts: Any, apart: Any) -> Iterator[None]:
    """Remembers why the recording of the block is refused, and the lines of the program at which it is."""
    _told.texts, _told.apart, _told.reasons, _told.lines = texts, apart, {}, None
    if not _Told.registered:
        call("Recording.on_refusal", address_of(_note_refusal))
        _Told.registered = True
    call("Recording.on_operator", address_of(_note_operator))
    is_first = sys.unraisablehook is not _take  # a part runs inside of a step
    if is_first:
        _passed_on[0], sys.unraisablehook = sys.unraisablehook, _take
    try:
        yield
    except SystemError:  # what a callback that raised leaves
        if _told.raised is None:
            raise
    finally:
        call("Recording.on_operator", 0)
        _told.texts = _told.apart = None
        if is_first and sys.unraisablehook is _take:
            sys.unraisablehook = _passed_on[0]
        raised, _told.raised = _told.raised, None
        if raised is not None:
            raise raised


# The program's own hook, while _take() stands in its place.
_passed_on: list[Any] = [sys.__unraisablehook__]


def _take(unraisable: Any) -> None:
    """The error of a signal's handler, which a callback of C cannot raise, for the end of the block."""
    # Since Python 3.13 the callback itself is not told.
    code = getattr(getattr(unraisable.exc_traceback, "tb_frame", None), "f_code", None)
    is_ours = code is Watcher._note.__code__ or code is not None and code.co_filename == _take.__code__.co_filename
    if _told.texts is not None and is_ours:
        _told.raised = _told.raised or unraisable.exc_value
    else:
        _passed_on[0](unraisable)


@ctypes.CFUNCTYPE(None, ctypes.c_char_p)  # type: ignore[untyped-decorator]
def _note_refusal(reason: bytes) -> None:
    if _told.texts is not None and len(_told.reasons) < _MOST_REASONS:
        text = reason.decode(errors="replace")
        if not _told.reasons:
            _told.texts.reasons[text] = _told.reasons
        _told.reasons.setdefault(text, line_of_caller())


@ctypes.CFUNCTYPE(None, ctypes.c_char_p)  # type: ignore[untyped-decorator]
def _note_operator(name: bytes) -> None:
    texts, lines = _told.texts, _told.lines
    if texts is None:
        return
    if lines is None:
        lines = _told.lines = texts.lines = {}
    lines.setdefault(name.decode(errors="replace"), {})[line_of_caller()] = None


def with_lines(refusal: Refusal, reasons: dict[str, str], lines: dict[str, dict[str, None]]) -> str:
    """A refusal with its line, and the others of the same recording. A difference between two recordings has no line; its
    operator has those at which the last recording called it."""
    text = refusal.text
    where = reasons.get(text, "") or _line_of_operator(refusal.operator, lines)
    told = [("The last call was eager: " if refusal.kind == OF_THIS_CALL else "") + in_python(text) + (f" ({where})" if where else "")]
    told += [in_python(reason) + (f" ({line})" if line else "") for reason, line in reasons.items() if reason != text]
    return " Also: ".join(told)


def _line_of_operator(name: str, lines: dict[str, dict[str, None]]) -> str:
    known = [line for line in lines.get(name, ()) if line]
    if len(known) < 2:
        return "".join(known)
    return "one of " + ", ".join(known[:_MOST_LINES]) + (" ..." if len(known) > _MOST_LINES else "")


def in_python(text: str) -> str:
    """Options as Python spells them."""
    text = text.replace("(CaptureOptions::programs)", "(programs=); pad batches to a few sizes, or give more programs")
    return re.sub(r"(?<!\w)\.(optimizer|modules|programs|constant_numbers|constant_modes)\b", r"\1=", text)
