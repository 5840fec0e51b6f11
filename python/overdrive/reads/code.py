"""The code that runs while a captured function runs in Python, and the names in it.

A profile function notes the code of every frame, and refuses what brings data to the program or changes its settings.
"""
from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import os
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from overdrive.native.library import under_the_gil
from overdrive.reads.c_functions import is_called_by, is_for_libraries, may_call, refusal_of, refusal_to_call, row_of
from overdrive.reads.finds import Found as FoundByNames
from overdrive.reads.finds import finds_of
from overdrive.reads.names import names_of
from overdrive.reads.owners import OURS, is_the_programs, kind_of, module_of
from overdrive.reads.python_functions import OTHER, PURE, SHOWS, kind_of_function, library_may_ask, names_its_module, shows
from overdrive.values.read import CELL, ENTRY, Read
from overdrive.values.same import is_number

_C_CALL, _RETURN = 4, 3
# What leaves a function by an error has no value before Python 3.12, and None since then.
_ERRORS_RETURN_NONE = sys.version_info >= (3, 12)
_PROFILE = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p)


class _Events(ctypes.Structure):
    """Events of python/bindings/events.cpp."""

    _fields_ = [("told", _PROFILE), ("with_numbers", ctypes.c_int), ("number", ctypes.c_uint64)]


# Of watchers, and of all of them; code that tells nothing to any.
_numbers, _EVERY_WATCHER = itertools.count(1), 0
_told_all: set[types.CodeType] = set()


# What brings data to the program, or changes how later operators compute, below every operator.
_HOST = {"tolist": "tolist()", "numpy": "numpy()", "__array__": "numpy()", "data_ptr": "data_ptr()", "__dlpack__": "a DLPack",
         "_to_dlpack": "a DLPack", "_to_dlpack_versioned": "a DLPack", "untyped_storage": "untyped_storage()",
         "__float__": "float()", "__int__": "int()"}
# PyTorch's own functions by which others read a tensor.
_READERS = ("__array__", "__dlpack__", "storage", "_typed_storage")
_SEEDS = ("manual_seed", "seed", "set_state", "set_offset", "graphsafe_set_state", "setstate", "initial_seed")
_THREADS = ("start_new_thread", "start_joinable_thread")
# Functions of Python's library that give work to threads which run already, or take what others have made.
_HANDS_OVER = (("concurrent", "submit"), ("multiprocessing", "_apply_async"), ("multiprocessing", "apply_async"), ("multiprocessing", "_map_async"),
               ("multiprocessing", "imap"), ("multiprocessing", "imap_unordered"), ("asyncio", "run_in_executor"),
               ("asyncio", "run_coroutine_threadsafe"), ("asyncio", "call_soon_threadsafe"), ("queue.py", "get"))
_NOTED = {*_HOST, *_SEEDS, *_THREADS}
_RANDOM = ("random", "getrandbits")
_NOTED |= {*_RANDOM}
_SETTINGS = ("_set_", "set_num_threads", "set_num_interop_threads", "set_flush_denormal", "set_default_dtype")
RANDOM_NUMBERS = ("The function draws random numbers of Python or NumPy, which a replay does not; draw them outside of the function, or "
                  "with torch.rand().")
_CHECKPOINT = os.path.join("torch", "utils", "checkpoint.py")
CHECKPOINT = ("A function under torch.utils.checkpoint() draws random numbers, and the same once more in the backward, which a replay does not; draw "
              "outside of it, or leave checkpoint() out.")
# Folders of libraries whose code shows something. Which modules of Python's own do is known by name.
_SHOWS = {"tqdm", "tensorboard", "tensorboardX"}
# Modules whose functions and classes read a float below everything that a float can tell, and are not seen when they are called.
_READ_NUMBERS = {"numpy", "scipy", "struct", "_struct", "array", "ctypes", "datetime", "decimal", "json"}
_HARMLESS = ("_set_grad_enabled", "_set_view_replay_enabled", "_set_fwd_grad_enabled", "_set_backward",
             "_set_multithreading_enabled", "_set_autograd_fallback_mode")


@functools.lru_cache(maxsize=1)
def _not_kept() -> frozenset[type]:
    """Classes that most variables have, and of which no object is looked into."""
    return frozenset((int, float, bool, str, bytes, complex, type(None), type, types.ModuleType, types.BuiltinFunctionType, torch.dtype,
                      torch.device, torch.Tensor, torch.nn.Parameter))


def file_of(module: Any) -> str:
    """Of a module, or of what stands in the place of one. A ``__getattr__()`` of its own is not asked."""
    file = getattr(module, "__dict__", {}).get("__file__")
    return file if isinstance(file, str) else ""


def name_of(function: Any, value: Any) -> Read | None:
    """The name under which a function has a value, if one of its own variables is it."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        return None
    code = function.__code__
    reads = [Read(ENTRY, function.__globals__, name, name) for name in names_of(code).globals]
    reads += [Read(CELL, cell, None, name) for name, cell in zip(code.co_freevars, function.__closure__ or ())]
    return next((read for read in reads if read.expected is value), None)


def _frames(frame: Any) -> Iterator[Any]:
    """This one and those that it was called from, up to the captured function."""
    while frame is not None and not (frame.f_code.co_name == "_run" and frame.f_code.co_filename.startswith(OURS)):
        yield frame
        frame = frame.f_back


def line_of_caller() -> str:
    """The innermost line of the captured function that is neither PyTorch's nor Overdrive's; "" outside of the function."""
    return next((f"{frame.f_code.co_filename}:{frame.f_lineno}" for frame in _frames(sys._getframe(1))
                 if kind_of(frame.f_code.co_filename) == "user"), "")


def _hands_over(code: types.CodeType) -> str:
    """Of a function of Python's library: what it does with other threads; "": nothing."""
    if not any(code.co_name == name and place in code.co_filename for place, name in _HANDS_OVER):
        return ""
    return "waits for a queue" if code.co_name == "get" else "gives work to another thread"


def _enters(caller: Any, code: types.CodeType) -> bool:
    """Whether the program, or an installed library, calls this code of Python's library: itself, or by a function of it that was given the code."""
    if kind_of(caller.f_code.co_filename) == "user":
        return True
    module = module_of(caller.f_code.co_filename)
    return bool(module and kind_of_function(module, caller.f_code.co_name) == PURE and not names_its_module(
        caller.f_globals, {name for name, _ in names_of(caller.f_code).imports}, code))


def _is_called_by(frame: Any, file: str) -> bool:
    while frame is not None and kind_of(frame.f_code.co_filename) != "user":
        if frame.f_code.co_filename.endswith(file):
            return True
        frame = frame.f_back
    return False


def _may_read_unseen(code: types.CodeType, variables: dict[str, Any]) -> bool:
    """Whether it may give a float to C without an event: to a class, a function of NumPy's, or one that another function calls."""
    names = names_of(code)
    tops = [*(_top(variables.get(name)) for name in names.globals), *(name.partition(".")[0] for name, _ in names.imports)]
    called = [variables.get(name) for name in (*names.passed, *(chain[0] for chain in names.passed_chains))]
    return (not _READ_NUMBERS.isdisjoint(tops) or any(_top(value) in ("math", "cmath") for value in called)
            or any(name in names.globals or name in names.attributes for name in ("__import__", "import_module")))


def _top(value: Any) -> str:
    """The first part of the name of a module, or of that of a class or a function."""
    name = getattr(value, "__name__" if isinstance(value, types.ModuleType) else "__module__", "")
    return name.partition(".")[0] if isinstance(name, str) else ""


class _PutBack:
    """States of random numbers that torch.utils.checkpoint() puts back for what it computes again, until it sets them to where they were: nothing
    has happened where nothing was drawn between."""

    def __init__(self) -> None:
        self._states: dict[int, list[bytes]] = {}

    def changes_nothing(self, generator: Any, frame: Any) -> bool:
        """Before a state is set."""
        states = self._states.setdefault(id(generator), [])
        if any(each.f_code.co_name == "fork_rng" for each in _frames(frame)):
            return bool(states) and states.pop() == self._bytes(generator.get_state())
        state = frame.f_locals.get("new_state")
        if state is not None:
            states.append(self._bytes(state))
        return state is not None

    def _bytes(self, state: Any) -> bytes:
        # No operator, which a recording would have.
        return ctypes.string_at(state.data_ptr(), state.numel())


def _is_in_an_import(frame: Any) -> bool:
    """Whether the code runs because a module is imported for the first time, which happens once."""
    return any(each.f_code.co_filename.startswith("<frozen importlib._bootstrap") for each in _frames(frame))


def _is_shown(frame: Any) -> bool:
    """Whether Python's library shows something by this code, as by a handler of messages."""
    for each in _frames(frame):
        module = module_of(file := each.f_code.co_filename)
        if module and kind_of_function(module, each.f_code.co_name) == SHOWS:
            return True
        if not module and kind_of(file) != "user":
            return False
    return False


def _is_output(frame: Any) -> bool:
    """Whether the code runs because something is shown or logged, and no tensor depends on it. That is not known of the program's own."""
    for each in _frames(frame):
        code = each.f_code
        if code.co_name in ("write", "flush") and code.co_varnames and each.f_locals.get(code.co_varnames[0]) in (sys.stdout, sys.stderr):
            return True
        if is_the_programs(code.co_filename):
            return False
        if kind_of_function(module_of(code.co_filename), code.co_name) == SHOWS or not _SHOWS.isdisjoint(code.co_filename.split(os.sep)):
            return True
    return False


def _reason_of_call(name: str, function: Any, frame: Any) -> str | None:
    """Why no recording calls a C function with one of the names that are noted; "": this call is harmless; None: it is another function."""
    itself = getattr(function, "__self__", None)
    if name in _HOST:
        # Of tensors alone: dicts and numbers have functions of these names, too.
        if "dlpack" not in name and not isinstance(itself, torch.Tensor):
            return None
        while frame is not None and frame.f_code.co_name in _READERS and kind_of(frame.f_code.co_filename) == "":
            frame = frame.f_back
        if frame is None or kind_of(frame.f_code.co_filename) == "":
            return ""
        return f"{_HOST[name]} brings data to the program in the middle of the step; return the tensor and read it outside."
    if name in _RANDOM:
        return RANDOM_NUMBERS if isinstance(itself, random.Random) else None
    if name in _THREADS:
        return "The function starts a thread, whose operators no recording sees; start it outside of the function."
    if name in _SEEDS:
        if not isinstance(itself, (torch.Generator, random.Random)):
            return None
        if _is_called_by(frame, _CHECKPOINT):
            return CHECKPOINT
        verb = "asks for the seed" if name == "initial_seed" else "sets the state"
        return f"The function {verb} of random numbers ({name}), which a replay does not; do it outside of the function."
    if getattr(function, "__module__", "") not in ("torch._C", "torch", None):
        return None
    if name in _HARMLESS:
        return ""
    return f"The function changes a setting of the process ({name}), which a replay does not; change it outside of the function."


class Found(dict[int, Any]):
    """Objects of the program by their addresses, themselves where no weak reference to them can be made."""


class Met:
    """Objects in variables of frames that have outlived a call. One that was met before is a value of the program; one that is
    new may be of the call alone, and alive by a cycle or a cache."""

    def __init__(self) -> None:
        # Weak where the object allows it.
        self._known = Found()
        self.functions_of: dict[types.CodeType, list[weakref.ref[types.FunctionType]]] = {}
        self.is_first = True

    def __contains__(self, value: Any) -> bool:
        known = self._known.get(id(value))
        return (known() if isinstance(known, weakref.ref) else known) is value

    def has(self, number: int) -> bool:
        return number in self._known

    def functions(self, codes: Iterable[types.CodeType]) -> list[types.FunctionType]:
        """Those with the code that were met before. The whole heap is searched once for a code: functions that a later call
        makes are of that call."""
        new = [code for code in codes if code not in self.functions_of]
        self.functions_of.update((code, []) for code in new)
        for function in gc.get_referrers(*new) if new else ():
            if isinstance(function, types.FunctionType) and function.__code__ in new:
                self.functions_of[function.__code__].append(weakref.ref(function))
        return self.add(function for code in codes for weak in self.functions_of[code] if (function := weak()) is not None)

    def add(self, values: Iterable[Any]) -> list[Any]:
        """Returns those that were met before."""
        again = []
        for value in values:
            if value in self:
                again.append(value)
                continue
            try:
                self._known[id(value)] = weakref.ref(value)
            except TypeError:  # a dict, an object with slots
                self._known[id(value)] = value
        self.is_first = False
        return again


def foreign(error: Exception) -> bool:
    """Whether a handler of the program's raised it: signals are handled between any two lines, also between ours."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or not trace.tb_frame.f_code.co_filename.startswith(OURS)


class _Watching(threading.local):
    watcher: Watcher | None = None


_watching = _Watching()


def is_watched() -> bool:
    """Whether this thread is inside of a captured function whose code is noted. One watcher sees it: captured parts in it are their functions."""
    return _watching.watcher is not None


class unwatched:  # noqa: N801 - used as a function is
    """Code of this block is no code of the function that is watched, but for blocks of it that are ``as_before()``."""

    def __init__(self, looks: bool = False) -> None:
        self._looks = looks

    def __enter__(self) -> unwatched:
        self._watcher = watcher = _watching.watcher
        self._before = watcher is not None and watcher.looks
        if watcher is not None and self._before != self._looks:
            watcher.look(self._looks)
        return self

    def __exit__(self, *_: object) -> None:
        if self._watcher is not None and self._watcher.looks != self._before:
            self._watcher.look(self._before)

    def as_before(self) -> unwatched:
        return unwatched(self._before)


def _nobody(_: Any) -> None:
    pass


class Watcher:
    """Notes the code that runs on this thread inside of its block."""

    def __init__(self, refuse: Callable[[str], None] | None, met: Met, stepped: Callable[[Any], None]) -> None:
        self._refuse = refuse
        self._met = met
        # Is told of each optimizer and scheduler whose step() has run.
        self._stepped = stepped
        self.codes: dict[tuple[types.CodeType, int], dict[str, Any]] = {}
        # Code of PyTorch's modules and their like with its globals, and the classes whose methods these are.
        self.nn_codes: dict[types.CodeType, dict[str, Any]] = {}
        self.nn_kinds: dict[type, None] = {}
        # Of Python's library and other code of PyTorch's Python, with its globals.
        self.standard_codes: dict[types.CodeType, dict[str, Any]] = {}
        self.torch_codes: dict[types.CodeType, dict[str, Any]] = {}
        # What code found by names that are values.
        self.by_names = FoundByNames()
        # Code of the program that an error left.
        self.failed: set[types.CodeType] = set()
        # Of a call whose numbers are tracked (numbers/call_numbers.py).
        self.book: Any = None
        # Addresses of tensors and containers that the call is given.
        self.given: set[int] = set()
        # Whether it notes the code that runs now.
        self.looks = False
        self._put_back = _PutBack()
        self._found = Found()
        # Of code that has run, by its address: itself, so that no other comes there, and whose it is.
        self._kinds: dict[int, tuple[types.CodeType, str]] = {}
        self._number = next(_numbers)

    def saw_no_more_than(self, other: Watcher) -> bool:
        return (self.codes.keys() <= other.codes.keys() and self.failed <= other.failed and self.nn_codes.keys() <= other.nn_codes.keys()
                and self.nn_kinds.keys() <= other.nn_kinds.keys() and self.standard_codes.keys() <= other.standard_codes.keys()
                and self.torch_codes.keys() <= other.torch_codes.keys() and self.by_names.is_no_more_than(other.by_names))

    def __enter__(self) -> Watcher:
        python = ctypes.pythonapi
        self._around, _watching.watcher = _watching.watcher, self
        under_the_gil().overdrive_python_watch(1)
        # A profiler of the program keeps its place: the debugger's is taken, where calls of C functions are not seen.
        if sys.getprofile() is None:
            self._set: Any = python.PyEval_SetProfile
        else:
            self._set = python.PyEval_SetTrace if sys.gettrace() is None else None
            if self._refuse is not None:
                self._refuse("A profiler watches this thread, so that a recording does not see what the function calls and reads; take it away "
                             "and call reset().")
            if self._set is None:
                return self
        self._events = _Events(_PROFILE(self._note), int(self.book is not None), self._number)
        self._set.argtypes, self._set.restype = [ctypes.c_void_p, ctypes.c_void_p], None
        self.look(True)
        return self

    def __exit__(self, *_: object) -> None:
        _watching.watcher = self._around
        under_the_gil().overdrive_python_watch(-1)
        self.look(False)
        if self._around is not None and self._around.looks:
            self._around.look(True)
        self._stepped = _nobody  # who keeps what was noted keeps the step no longer

    def look(self, looks: bool) -> None:
        """Notes the code that runs, or leaves it out."""
        self.looks = looks
        if self._set is not None:
            bindings = under_the_gil()
            self._set(None, None)
            bindings.overdrive_python_watch_events(ctypes.byref(self._events) if looks else None)
            if looks:
                self._set(ctypes.cast(bindings.overdrive_python_event, ctypes.c_void_p), None)

    def _note(self, _: Any, frame: Any, event: int, argument: int) -> int:
        try:
            if event == _RETURN:
                self._returns(frame, argument)
            elif event == _C_CALL and self._refuse is not None:
                self._note_call(ctypes.cast(argument, ctypes.py_object).value, frame)
        except Exception as error:  # noqa: BLE001 - nobody is there to take ours
            if foreign(error):
                raise
        return 0

    def _returns(self, frame: Any, value: int | None) -> None:
        code = frame.f_code
        known = self._kinds.get(id(code))
        kind = known[1] if known is not None else self._begin_with(frame)
        if not kind:
            return
        if kind in (SHOWS, OTHER):
            self._note_entry(kind, frame, value)
            return
        # PyTorch's own finds parameters, buffers and children, which have guards.
        finds = [find for find in finds_of(code) if find.name[0] != "const"] if kind in ("user", PURE) else []
        if finds and not _is_in_an_import(frame):
            for find in finds:
                self.by_names.note(find, frame)
        if kind == PURE:
            return
        if code.co_name == "step" and kind == "nn of self":  # the step() of an optimizer of the program's own is code as other code
            self._note_step(frame.f_locals.get("self"))
        if kind != "user":
            if kind == "nn of self":
                itself = frame.f_locals.get("self")
                self.nn_kinds[type(itself)] = None
                self._keep(itself)
            if code not in self.nn_codes and not _is_in_an_import(frame):
                self.nn_codes[code] = frame.f_globals
            if kind == "nn" and code in self.nn_codes:
                under_the_gil().overdrive_python_told_all(id(code), self._number)
            return
        if (code, id(frame.f_globals)) not in self.codes and _is_shown(frame):
            if self._refuse is None or not is_the_programs(code.co_filename) or _is_output(frame):
                return
            self._refuse(f"The function shows or logs something by {code.co_name}() of the program, and no guard looks whether that runs (levels, "
                         "filters, handlers); do it outside of the function.")
        if value is None or _ERRORS_RETURN_NONE and value == id(None):
            self.failed.add(code)
        if (code, id(frame.f_globals)) not in self.codes:
            if _is_in_an_import(frame):
                return
            self.codes[code, id(frame.f_globals)] = frame.f_globals
        self._look_at_identities(code, frame)
        if self.book is not None and self.book.floats and _may_read_unseen(code, frame.f_globals):
            self.book.look("the function names a module that may read it")
        self.keep(frame.f_locals.values())

    def _look_at_identities(self, code: types.CodeType, frame: Any) -> None:
        """Where the program compares what the call is given with an object of its own. Which arguments are one, a recording knows; a library spares
        itself a copy of a tensor to itself."""
        if self._refuse is None or not self.given or not is_the_programs(code.co_filename):
            return
        for sides, where in names_of(code).compared.items():
            those = [name for name in sides if name and id(frame.f_locals.get(name)) in self.given]
            if len(those) == 1:
                self._refuse(f"The function asks whether `{those[0]}`, an argument, is one object of the program's (`is`, {where}), which a replay "
                             "does not know; give it a flag that tells.")

    def _begin_with(self, frame: Any) -> str:
        """Of code that returns for the first time: whose it is; "": no more is to be noted of it."""
        code = frame.f_code
        kind = kind_of(code.co_filename)
        if kind == "nn" and code.co_varnames[:1] == ("self",):
            kind = "nn of self"
        elif not kind and (module := module_of(code.co_filename)):
            kind = kind_of_function(module, code.co_name)
            self._note_standard(code, frame.f_globals, kind)
            kind = "" if kind == PURE and not finds_of(code) else kind
        elif not kind and not code.co_filename.startswith(OURS) and not _is_in_an_import(frame):
            self.torch_codes[code] = frame.f_globals
        self._kinds[id(code)] = code, kind
        if not kind:
            is_ours = code.co_filename.startswith(OURS)
            if is_ours:
                _told_all.add(code)
            under_the_gil().overdrive_python_told_all(id(code), _EVERY_WATCHER if is_ours else self._number)
        return kind

    def _note_standard(self, code: types.CodeType, variables: dict[str, Any], kind: str) -> None:
        if self._refuse is not None and (folder := _hands_over(code)):
            self._refuse(f"The function {folder} ({code.co_name}), and no recording sees what another thread does; do that outside of the "
                         "function.")
        if kind != SHOWS:
            self.standard_codes[code] = variables

    def _note_entry(self, kind: str, frame: Any, value: int | None) -> None:
        """Of a function of Python's library that is not known to tell nothing but what it is given."""
        code, caller = frame.f_code, frame.f_back
        if self._refuse is None or caller is None or code.co_name == "__del__" or not _enters(caller, code):
            return
        module = module_of(code.co_filename)
        if library_may_ask(module, caller.f_code.co_filename):
            return
        name = f"{module}.{getattr(code, 'co_qualname', code.co_name)}"
        if kind == SHOWS:
            told = None if value in (None, id(None)) else ctypes.cast(value, ctypes.py_object).value
            if told is None or shows(told):
                self.keep([told])
                return
        if not (_is_output(caller) or _is_in_an_import(caller) or is_called_by(caller.f_code.co_filename, name)):
            self._refuse(refusal_to_call(name, "may tell what Python's library keeps, where no guard looks"))

    def _note_step(self, optimizer: Any) -> None:
        if isinstance(optimizer, (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)):
            self._stepped(optimizer)

    def keep(self, values: Iterable[Any]) -> None:
        for value in list(values):
            self._keep(value)

    def _keep(self, value: Any) -> None:
        if id(value) in self._found or type(value) in _not_kept():
            return
        try:
            if is_number(value) or isinstance(value, (torch.Tensor, types.ModuleType, type, types.BuiltinFunctionType)):
                return
        except Exception:  # noqa: BLE001 - a __getattribute__() of the program that has no __class__: where a name leads to it, the walk refuses it
            return
        try:
            self._found[id(value)] = weakref.ref(value)
        except TypeError:
            # What a call makes must die as it would, when the call is recorded.
            if self._met.is_first or self._met.has(id(value)):
                self._found[id(value)] = value

    def _note_call(self, function: Any, frame: Any) -> None:
        """Of a C function that is in no row of the table, or whose row depends on more than the function."""
        assert self._refuse is not None
        if frame.f_code.co_filename.startswith(OURS):
            return
        name = str(getattr(function, "__name__", ""))
        depends = name in _NOTED or name.startswith(_SETTINGS)
        text = _reason_of_call(name, function, frame) if depends else None
        if text is CHECKPOINT and self._put_back.changes_nothing(function.__self__, frame):
            text = ""
        row = row_of(function)
        if text is None and row is None:
            file = frame.f_code.co_filename
            in_a_library = is_for_libraries(function) and kind_of(file) != "user" or may_call(file, function)
            text = "" if in_a_library or _is_in_an_import(frame) or _is_output(frame) else refusal_of(function)
        if text:
            self._refuse(text)
        elif row is not None and not depends:
            reads_numbers = row.reads == "number"
            if reads_numbers and self.book is not None and self.book.gives_a_float(frame):
                self.book.look(f"the function calls {name}(), which may read it")
            under_the_gil().overdrive_python_know(ctypes.py_object(function), int(reads_numbers))

    def found(self) -> list[Any]:
        """Objects in variables of the frames that have outlived the call, and an earlier one, too."""
        result = []
        values = [*self._found.values(), object()]
        # How many counts a loop adds is not the same in all versions of Python. The last one has nobody else, and the others have the dict.
        counts = [sys.getrefcount(value) for value in values]
        nobodys = counts.pop() + 1
        for value, count in zip(self._found.values(), counts):
            if isinstance(value, weakref.ref):
                value = value()
                if value is not None:
                    result.append(value)
            elif count > nobodys + (value in self._met):
                result.append(value)
        self._found.clear()
        return self._met.add(result)
