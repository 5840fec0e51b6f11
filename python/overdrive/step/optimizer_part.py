"""An optimizer whose ``step()`` is replayed: a captured step of its own, with the gradients as inputs."""
from __future__ import annotations

import copyreg
import functools
import weakref
from typing import Any

import torch

from overdrive.native.dynamo import around, tell_dynamo
from overdrive.native.quick import NOT_TAKEN, OPEN, not_taken
from overdrive.optimizers.one import Optimizer
from overdrive.reads.code import is_watched
from overdrive.reads.optimizers import is_of_the_program, is_pytorchs
from overdrive.step.api import CapturedStep
from overdrive.step.methods import NotCopied

# Of gradients. Above, memory is the limit, and a replay gains a tenth or nothing.
_MOST_BYTES = 4 << 20
_CLOSURE = "step(closure) of {} is PyTorch's, which calls the closure as often as it likes; capture the closure, or the model that it calls."
_FIRST = ("The first calls of an optimizer that nobody has given to captured() are PyTorch's, since one that is made for a few steps would gain "
          "nothing.")
_OF_THE_PROGRAM = ("It is of a class of your own, and step() is that of the class; capture the whole step, overdrive.capture(step), where it is a "
                   "function.")
# Under which an optimizer has its update, which leads back to it: both die together.
_KEY = "_overdrive_update"


class _Update(NotCopied):
    """The captured update of one optimizer, which has it."""

    def __init__(self, optimizer: Any, options: dict[str, Any], calls_first: int) -> None:
        self._optimizer, self._options = weakref.ref(optimizer), options
        self.inside = False
        # Calls that are PyTorch's before the first is recorded, and those that were.
        self._calls_first, self._first = calls_first, 0
        # Of the gradients of the last call: how many, and their bytes.
        self._sized, self._bytes = -1, 0
        self._strided = torch.strided
        self.quick_step = self.quick_zero_grad = not_taken

    @functools.cached_property
    def captured(self) -> CapturedStep:
        """Made when it is asked for: an optimizer that lives for a few steps does without."""
        optimizer, options = self._optimizer(), self._options
        # All its numbers are options, which are looked at in every call. A program that has not given it to captured() gets no warning.
        captured = CapturedStep(self._step, [optimizer], [], None, True, False, options["programs"], options["check_every"],
                                options["guarded"], name=f"step() of {type(optimizer).__name__}", passes=options["passes"],
                                always=options["always"], warns=not self._calls_first)
        for _ in range(self._first):
            captured.note_beside(_FIRST)
        captured._updated = self._optimizer
        self.quick_step, self.quick_zero_grad = captured._quick.step, captured._quick.zero_grad
        return captured

    def is_pytorchs(self) -> bool:
        """Whether this call is PyTorch's: one of the first of an optimizer that nobody has given to captured(), or any, once its replays were
        found to bring nothing."""
        return self._calls_first > 0 and not is_watched() and (self._first < self._calls_first or bool(self.captured._pace.given_up))

    def pytorchs(self, step: Any, *arguments: Any, **keywords: Any) -> Any:
        if self._first < self._calls_first:
            self._first += 1
        else:
            self.captured.note_beside("")
        return step(*arguments, **keywords)

    def _step(self, *_: Any) -> None:
        self._base_step(self._optimizer())

    def _base_step(self, optimizer: Any) -> None:
        """What a recording puts in the place of step(), or PyTorch's: a wrapper of the program's, around the object's step() or its class's, has
        run into this call."""
        own = vars(optimizer).get("step")
        if isinstance(getattr(own, "__self__", None), Optimizer):
            own()
        else:
            getattr(type(optimizer), "_overdrive_base", type(optimizer)).step(optimizer)

    def end_quick_step(self) -> None:
        """Which the library has not ended as a replay."""
        self.inside = True
        try:
            self.captured._end_quick_call(self._gradients(self._optimizer()))
        finally:
            self.inside = False

    def _gradients(self, optimizer: Any) -> list[Any]:
        return [gradient for group in optimizer.param_groups for parameter in group["params"] if (gradient := parameter.grad) is not None]

    def __call__(self, optimizer: Any) -> None:
        gradients = self._gradients(optimizer)
        self.inside = True
        try:
            if is_watched():
                self._base_step(optimizer)
            elif reason := self._why_not(gradients):
                self.captured.note_beside(reason)
                self._base_step(optimizer)
            else:
                self.captured(*gradients)
        finally:
            self.inside = False

    def _why_not(self, gradients: list[Any]) -> str:
        """Why an update is PyTorch's own; "": it may be replayed."""
        strided = self._strided
        if [gradient for gradient in gradients if gradient.layout is not strided]:
            return "A gradient is sparse, as those of an Embedding with sparse=True are, and step() is PyTorch's; leave sparse=True out."
        if any(not gradient.is_contiguous() and 0 in gradient.stride() for gradient in gradients):
            return "A gradient has one element in several places, as expand() makes it, and kernels round such sums otherwise; give it as a clone()."
        if len(gradients) != self._sized:  # else the same ones have gradients, of the same sizes
            self._sized, self._bytes = len(gradients), sum(gradient.nbytes for gradient in gradients)
        if self._bytes > _MOST_BYTES:
            return (f"Its gradients have {self._bytes >> 20} MiB, and step() is PyTorch's: above {_MOST_BYTES >> 20} MiB a replay, which waits for "
                    "memory as step() does, gains nothing; capture the whole step, overdrive.capture(step), where it is a function.")
        return ""


def update_of(optimizer: Any) -> CapturedStep | None:
    update = vars(optimizer).get(_KEY)
    return None if update is None else update.captured


def captured_optimizer(optimizer: Any, options: dict[str, Any], calls_first: int = 0) -> Any:
    if vars(optimizer).get(_KEY) is None:
        kind: Any = type(optimizer)
        optimizer.__class__ = _class_for(kind)
        _rewrap(optimizer)
        tell_dynamo()
    update = vars(optimizer)[_KEY] = _Update(optimizer, options, calls_first)
    if not calls_first:
        _ = update.captured
    return optimizer


def release(optimizer: Any) -> None:
    """Makes a captured one plain again. A wrapper that a scheduler has put around its step() leads to PyTorch's from here on."""
    if vars(optimizer).pop(_KEY, None) is not None:
        optimizer.__class__ = type(optimizer)._overdrive_base


def _rewrap(optimizer: Any) -> None:
    """A scheduler that was made before has wrapped the step() of the optimizer's own class, past the captured one."""
    if not getattr(vars(optimizer).get("step"), "_wrapped_by_lr_sched", False):
        return
    itself = weakref.ref(optimizer)

    @functools.wraps(type(optimizer).step)
    def step(*arguments: Any, **keywords: Any) -> Any:
        optimizer: Any = itself()
        optimizer._opt_called = True
        return type(optimizer).step(optimizer, *arguments, **keywords)

    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = step


def _plain(kind: Any) -> Any:
    return kind.__new__(kind)


def parts_of_plain(value: Any, base: Any, protocol: Any) -> tuple[Any, ...]:
    """What pickle makes an object of a class that was made here of, as one of the class that this was made of."""
    parts = list(base.__reduce_ex__(value, protocol))
    if parts[0] is copyreg.__newobj__:  # type: ignore[attr-defined]
        parts[:2] = _plain, (base,)
    return tuple(parts)


@functools.lru_cache(maxsize=64)
def _class_for(base: Any) -> Any:
    """The optimizer's class with another ``step()``. A copy of the optimizer, and one that comes out of a file, is a plain one."""
    # Of the class's step() at the last call, which a program may patch.
    known: Any = None
    is_own = False
    replayed_zero_grad = base.zero_grad

    @around
    def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
        nonlocal known, is_own
        update = vars(self).get(_KEY)
        if update is not None and not arguments and not keywords and (result := update.quick_step()) is not NOT_TAKEN:
            return result if result is not OPEN else update.end_quick_step()
        if update is None or update.inside:
            return base.step(self, *arguments, **keywords)
        if update.is_pytorchs():
            return update.pytorchs(base.step, self, *arguments, **keywords)
        if base.step is not known:
            is_own, known = is_of_the_program(self), base.step
        if is_own:
            update.captured.note_beside(_OF_THE_PROGRAM)
            return base.step(self, *arguments, **keywords)
        if len(arguments) + len(keywords) > 1 or keywords.keys() - {"closure"}:
            return base.step(self, *arguments, **keywords)  # which tells what is wrong
        closure = arguments[0] if arguments else keywords.get("closure")
        if closure is not None and not update.captured.takes_closures():
            update.captured.note_beside(_CLOSURE.format(base.__name__))
            return base.step(self, *arguments, **keywords)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        update(self)
        return loss

    @around
    def zero_grad(self: Any, *arguments: Any, **keywords: Any) -> None:
        update = vars(self).get(_KEY)
        if update is None or arguments or keywords or base.zero_grad is not replayed_zero_grad or update.quick_zero_grad() is NOT_TAKEN:
            base.zero_grad(self, *arguments, **keywords)

    step.__wrapped__ = base.step  # type: ignore[attr-defined]
    # PyTorch wraps another step() that is not marked, in load_state_dict() too, and each wrapper calls the hooks.
    step.hooked = getattr(base.step, "hooked", False)  # type: ignore[attr-defined]
    members = {"step": step, "__reduce_ex__": lambda self, protocol: parts_of_plain(self, base, protocol),
               "__module__": base.__module__, "__qualname__": base.__qualname__, "_overdrive_base": base}
    if replayed_zero_grad is torch.optim.Optimizer.zero_grad and is_pytorchs(replayed_zero_grad):
        members["zero_grad"] = functools.wraps(replayed_zero_grad)(zero_grad)
    return type(base.__name__, (base,), members)
