"""Code of a captured step that runs in every call, in replays too."""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from overdrive.native.dynamo import around
from overdrive.native.library import address_of, call, function as function_of
from overdrive.native.recording import _Unrecorded, _refuse, run_under_way, apart_under_way
from overdrive.reads.code import unwatched
from overdrive.values.forms import filled, form_of, only_tensors
from overdrive.values.slots import Change

_numbers = itertools.count(1)
# Functions that a recording keeps, or that are called now.
_functions: dict[int, Callable[..., Any]] = {}
# Of those that a recording keeps: in which run of a captured function it was made.
_runs: dict[int, Any] = {}
# Of those, who is around them in the captured step (step/apart.py).
_steps: dict[int, Any] = {}
# By the code of the function, the structure of its last result.
_forms: dict[Any, Any] = {}


# Of the library.
_FAILED = "A function that runs apart failed."


class _Failed(threading.local):
    error: BaseException | None = None


_failed = _Failed()
_NONE: Any = object()


class _Calls(threading.local):
    """Of one thread. A call whose replay came first runs the captured function once more, and apart() then calls no function: its results
    are those of the replay, and so is their structure."""

    def __init__(self) -> None:
        # Of the apart() under way: its number, and the structure of what its function returned.
        self.number, self.form = 0, _NONE
        # Of the last replay: numbers, code, structures and what was changed, in turn, and the run that was recorded.
        self.replayed: list[tuple[int, Any, Any, list[Change]]] = []
        self.run: Any = None

    def note(self, number: int, code: Any, form: Any, changes: list[Change]) -> None:
        if number == self.number:
            self.form = form
            return
        run = _runs.get(number)
        if run != self.run or self.replayed and number <= self.replayed[-1][0]:
            self.replayed.clear()
        self.run = run
        self.replayed.append((number, code, form, changes))

    def next_replayed(self, code: Any) -> Any:
        """The structure of the first result of this code that was not asked for. What it has changed is changed again."""
        for index, (_, each, form, changes) in enumerate(self.replayed):
            if each is code:
                del self.replayed[index]
                for put, _before, now in changes:
                    put(now)
                return form
        return _forms.get(code)


_calls = _Calls()


@around
def apart(function: Callable[..., Any], *tensors: Any) -> Any:
    """Calls ``function(*tensors)`` in the middle of a captured step, in every call, whether it is a replay or not.

    For printing, ``item()``, logging, or a step of an environment. The function gets copies of the tensors, without a
    graph, and whatever it returns, tensors alone or in containers, comes back as copies and is a value of the rest of the
    step. What it reads besides is read in every call; variables of the captured function are those of the recording, so
    tensors of the step are arguments. docs/guide/capturing.md tells more.

    >>> import overdrive, torch
    >>> seen = []
    >>> def double(x):
    ...     y = x * 2
    ...     overdrive.apart(lambda y: seen.append(y.sum().item()), y)
    ...     return y
    >>> step = overdrive.capture(double)
    >>> for i in range(8):
    ...     y = step(torch.full((2,), float(i)))
    >>> step.stats()["replayed"], seen
    (4, [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0])
    """
    if not callable(function):
        raise TypeError(f"apart() was given {type(function).__name__} and takes a function")
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"apart() takes a function and tensors, and was given {type(tensor).__name__}; let the function name it.")
    _register()
    number, code = next(_numbers), _code_of(function)
    _functions[number], _runs[number], _steps[number] = function, run_under_way(), apart_under_way()
    around, _calls.number, _calls.form = _calls.number, number, _NONE
    try:
        with _around(_steps[number]()), unwatched(), _Unrecorded():
            _refuse_made(function)
            try:
                results = function_of("Apart.call")(number, id(code), list(tensors))
            finally:
                if _calls.form is _NONE:
                    _calls.form = _calls.next_replayed(code)
    except BaseException as raised:
        # Of this call, or of the replay that was taken back for it.
        error, _failed.error = _failed.error, None
        if error is None or _FAILED not in str(raised):
            raise
        raise error from None
    finally:
        form, _calls.number, _calls.form = _calls.form, around, _NONE
    return filled(form, iter(results)) if form is not None else None


def _around(step: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if step is None else step.around()


def _code_of(function: Any) -> Any:
    """What two recordings know a function by, which may be made anew in each call."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__code__", None) or type(function)


def _refuse_made(function: Any) -> None:
    """A tensor of the step that the function reaches by a name is that of the recording in every replay."""
    if not call("Recording.is_active"):
        return
    for name, value in _held_by(function):
        for tensor in _tensors_in(value):
            if call("Recording.made", tensor):
                _refuse(f"The function that is given to apart() names a tensor of the step ({name}), which is an old one in a replay; "
                        "give it as an argument.")


def _held_by(function: Any) -> Iterator[tuple[str, Any]]:
    while isinstance(function, functools.partial):
        yield from ((f"argument {i} of partial()", value) for i, value in enumerate(function.args))
        yield from function.keywords.items()
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # empty
            continue
    yield from ((f"default {i}", value) for i, value in enumerate(function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()


def _tensors_in(value: Any) -> list[Any]:
    leaves: list[Any] = []
    form_of(value, leaves)
    return leaves


@around
def _run(number: int) -> int:
    """Called by the library."""
    _failed.error = None
    try:
        function = _functions[number]
        code = _code_of(function)
        value, changes = _called(number, code, function)
        leaves: list[Any] = []
        form = form_of(value, leaves)
        if not only_tensors(form):
            raise TypeError("The function that is given to apart() returns something that is not a tensor; return tensors, or None.")
        _forms[code] = form
        _calls.note(number, code, form, changes)
        call("Recording.results", leaves)
        return 1
    except BaseException as error:  # apart() raises it
        _failed.error = error
        return 0


def _called(number: int, code: Any, function: Callable[..., Any]) -> tuple[Any, list[Change]]:
    """What it returns, and what it has changed in a replay. One that is taken back has the values of before: the function runs."""
    if number == _calls.number:
        _calls.form = None  # it is called now
        return function(*call("Recording.inputs")), []
    step, is_done, changes, goes_on = _steps[number](), False, [], True
    changes_of = None if step is None else step.around_replayed()
    try:
        value = function(*call("Recording.inputs"))
        is_done = True
    finally:
        if changes_of is not None:
            changes, goes_on = changes_of()
        if not (is_done and goes_on):
            for put, before, _ in changes:
                put(before)
        if not is_done:
            _calls.note(number, code, None, changes)
    if not goes_on:
        call("Apart.outdated")
    return value, changes


def _forget(number: int) -> None:
    _functions.pop(number, None)
    _runs.pop(number, None)
    _steps.pop(number, None)


_callbacks = (ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)(_run), ctypes.CFUNCTYPE(None, ctypes.c_int64)(_forget))


@functools.cache
def _register() -> None:
    call("Apart.on_call", *map(address_of, _callbacks))
    # Recordings that outlive Python forget their functions alone.
    atexit.register(call, "Apart.on_call", 0, 0)
