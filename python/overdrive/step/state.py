"""What a captured step keeps from call to call."""
from __future__ import annotations

import ctypes
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from overdrive.effects.changes import Changes
from overdrive.effects.schedulers import Schedulers
from overdrive.native.dynamo import tell_dynamo
from overdrive.native.library import address_of, call, check_python, function as function_of
from overdrive.native.modes import let_higher_order_through, looks_at_modes
from overdrive.native.quick import Quick
from overdrive.numbers.call_numbers import Shared
from overdrive.optimizers.all import Optimizers
from overdrive.reads.code import Met
from overdrive.reads.last_walk import LastWalk
from overdrive.reads.optimizers import is_of_the_program
from overdrive.reads.reachable import named_in
from overdrive.reads.walk_names import KnownNames
from overdrive.step.choice import Chooser
from overdrive.step.pace import Pace
from overdrive.step.reasons import steps
from overdrive.step.swap import let_go_before_swaps
from overdrive.values.arguments import Given
from overdrive.values.facts import Facts
from overdrive.values.modules import is_scripted
from overdrive.values.read import ENTRY, Read
from overdrive.values.reads import Reads


# Calls without a replay after which a warning tells why.
MOST_SILENT = 20


class StepState:
    """Everything that a captured step keeps from call to call."""

    _kind_of_pace: type[Pace] = Pace

    def __init__(self, function: Callable[..., Any], optimizers: Sequence[Any], modules: Iterable[Any],
                 watch: Callable[[], Any] | None, constant_numbers: bool, constant_modes: bool, programs: int,
                 check_every: int, guarded: bool = True, is_part: bool = False, name: str = "", passes: bool = True,
                 lanes: int = 1, eager_calls: int = 1, always: bool = False) -> None:
        check_python()
        tell_dynamo()
        let_higher_order_through()
        self._function, self._name = function, name
        self._guarded, self._is_part = guarded, is_part
        # Options that no tensor carries to a replay are looked at, or promised.
        self._with_constants = constant_numbers or guarded
        known = [optimizer for optimizer in optimizers if is_part or not is_of_the_program(optimizer)]
        self._optimizer = Optimizers(known, function, self._with_constants) if known else None
        # Those whose step() the function has called, although nobody has named them, and schedulers.
        self._found_optimizers: dict[Any, None] = {}
        self._schedulers = Schedulers()
        self._roots = list(modules)
        self._modules = self._named_modules()
        self._watch = watch
        itself = weakref.ref(self)
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: itself()._run())  # type: ignore[union-attr]
        # Modes and flags that the function reads are looked at in every call.
        modes = constant_modes or guarded or bool(self._modules)
        # The library reads it in every call.
        self._shared = Shared()
        self._capture = call("Capture.make", address_of(self._callback), ctypes.addressof(self._shared), constant_numbers, modes,
                             programs, check_every, passes, lanes, eager_calls, always, is_part)
        weakref.finalize(self, call, "Capture.free", self._capture)
        self._facts = Facts(is_part)
        # What the function changes itself.
        self._changes = Changes()
        self._pace = self._kind_of_pace(self._capture, self._shared, eager_calls, always, is_part)
        self._chooser = Chooser(self._shared, self._pace, self._facts, self._changes, programs, guarded and not is_part)
        # Tensors that the function names, in its last run.
        self._named: dict[int, Any] = {}
        # Of all runs of the function.
        self._met, self._met_functions = Met(), Met()
        self._last_walk: LastWalk | None = None
        self._known_names: KnownNames | None = None
        # Whether code that runs apart runs now; what it has changed in the last run; whether a replay has seen a change that no recording knows.
        self._is_apart = self._has_run_apart = False
        self._changed_apart: dict[tuple[int, int, Any], Read] = {}
        self._is_outdated = False
        # Places that such code was ever seen to change: a run whose replay came first leaves them alone.
        self._ever_apart: set[tuple[int, int, Any]] = set()
        # Whether the run under way may not be recorded, since it changes what a replay would not.
        self._has_refused_change = False
        # Why nothing may be recorded, once the function and such code were seen to give one place values.
        self._given_by_both = ""
        # Why no call may be recorded, once one has changed a setting: another may find it as it leaves it.
        self._changes_setting = ""
        # Places that are left of which no call has shown yet whether it writes None there or leaves it alone, and None.
        self._unsure: list[tuple[Read, Any]] = []
        # Of all runs of the function that were watched.
        self._codes: set[types.CodeType] = set()
        # Of the last one, in the order in which it first returned.
        self._codes_of_run: list[types.CodeType] = []
        self._tensor = torch.Tensor
        self._is_in_a_mode, self._keeps_parametrizations = looks_at_modes()
        self._call = function_of("Capture.call")
        self._structure: Reads | None = None
        # The modules, optimizers and dicts of hooks that it was made of.
        self._structure_of: list[Any] = []
        # That the last recording made, and whether the program held one until the next.
        self._gradients: list[weakref.ref[Any]] = []
        self._holds_gradient = False
        # A parameter or a buffer that the last recorded call has given another tensor or other memory, and what to write.
        self._moved = ""
        # Of each recording the structure of its results.
        self._forms: dict[int, Any] = {}
        self._one_form: Any = None
        self._form: Any = None
        # Of the call under way, where they are more than tensors; of the run of the function, to see whether it changes them.
        self._given: Given | None = None
        self._containers: Given | None = None
        self._objects: Sequence[Any] = ()
        self._error: BaseException | None = None
        # What the function has returned in the call under way, and its tensors.
        self._made: tuple[Any, list[Any]] | None = None
        # Whether a replay could not make what it returns or leaves.
        self._gives_its_own = False
        # While a thread is in a call, and that thread while it runs the function.
        self._busy, self._is_called = threading.Lock(), False
        self._running = 0
        self._quick = Quick(self._capture, self._busy)
        self._quick_call = self._quick.call
        # Of an optimizer that is captured: it. Its gradients are the inputs, and nothing else is given.
        self._updated: Callable[[], Any] | None = None
        # While it records: whether a step() of another optimizer is to be refused.
        self._looks_at_steps = True
        # Of each refusal those of the same recording, with their lines.
        self.reasons: dict[str, dict[str, str]] = {}
        # Of the last recording each operator with the lines that called it.
        self.lines: dict[str, dict[str, None]] = {}
        self._runs_of_python = 0
        self._silent_runs = MOST_SILENT
        steps.add(self)
        let_go_before_swaps()

    def _run(self) -> int:
        """The function, called by the library."""
        raise NotImplementedError

    def _training(self) -> list[Read]:
        return [Read(ENTRY, module.__dict__, "training", f"training of {type(module).__name__}")
                for module in self._modules if (ENTRY, id(module.__dict__), "training") not in self._changes.own]

    def _named_modules(self) -> dict[Any, None]:
        """Those that were given, and those that the function names now."""
        values = [value for _, value in named_in(self._function)]
        named = [item for value in values for item in (value if isinstance(value, (list, tuple)) else [value])
                 if isinstance(item, torch.nn.Module) and "_modules" in vars(item)]  # of a copy that is being made nothing is there yet
        return dict.fromkeys(module for root in [*self._roots, *named] for module in root.modules() if not is_scripted(module))

    def _lasting(self) -> list[Any]:
        """Tensors that an operator may see through a passing copy, as ``data`` makes it, and whose gradients the function may take
        away without an operator, as ``zero_grad()`` does."""
        tensors = list(self._named.values())
        for module in self._modules:
            tensors += [*module._parameters.values(), *module._buffers.values()]
        if self._optimizer is not None:
            tensors += self._optimizer.parameters()
        return [tensor for tensor in tensors if tensor is not None]
