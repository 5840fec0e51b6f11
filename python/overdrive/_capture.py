"""A training step that is recorded once and replayed afterwards, without Python."""
from __future__ import annotations

import ctypes
import inspect
import operator
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from overdrive._capture_optimizer import Optimizer, _refuse, _Unrecorded, hooks_of
from overdrive._compare import _state_of
from overdrive._library import OverdriveError, last_error, library

_COUNTS = ("calls", "eager", "recorded", "checked", "replayed", "undone", "outdated")
_MOST_RESETS = 8


class CapturedStep:
    """What :func:`capture` returns. Called by one thread at a time, with the function's tensors."""

    def __init__(self, function: Callable[..., Any], optimizer: Any, modules: Iterable[Any],
                 watch: Callable[[], Any] | None, constant_numbers: bool, constant_modes: bool, programs: int,
                 check_every: int) -> None:
        import torch

        self._function = function
        self._optimizer = None if optimizer is None else Optimizer(optimizer)
        named = [item for item in _state_of(function).values() if isinstance(item, torch.nn.Module)]
        self._modules: dict[Any, None] = {}
        for root in [*modules, *named]:
            self._modules.update(dict.fromkeys(root.modules()))
        self._watch = watch
        self._library = library()
        itself = weakref.ref(self)
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: itself()._run())  # type: ignore[union-attr]
        self._handle = self._library.overdrive_capture_new(
            self._callback, int(constant_numbers), int(constant_modes or bool(self._modules)), programs, check_every)
        if not self._handle:
            raise OverdriveError(last_error())
        weakref.finalize(self, self._library.overdrive_capture_free, self._handle)
        self._variant = ctypes.c_int64()
        self._variants: dict[Any, int] = {}
        self._variant_looks: Any = None
        # Of each recording, parameters whose gradient zero_grad() takes away, and no operator touches.
        self._dropped: dict[Any, list[Any]] = {}
        if not self._library.overdrive_capture_watch(self._handle, ctypes.byref(self._variant)):
            raise OverdriveError(last_error())
        self._tensor = torch.Tensor
        # Python's own modes, which see operators before a recording does.
        self._modes = (torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack)
        self._call = torch.ops.overdrive.capture_call.default
        self._looks: list[Any] | None = None
        self._form: Any = None
        self._recorded_form: Any = None
        self._error: BaseException | None = None
        self._resets = 0
        self._reset_reason = ""
        self._given_up = ""
        self._eager_reason = ""
        self._python_calls = 0

    def __call__(self, *inputs: Any) -> Any:
        for x in inputs:
            if not isinstance(x, self._tensor):
                raise TypeError(f"A captured step takes tensors, and was given {type(x).__name__}; a number that the "
                                "function uses is a tensor, or what watch= returns.")
        if self._given_up or any(count() for count in self._modes):
            self._eager_reason = self._given_up or "a mode of Python was active, as set_default_device() makes one"
            return self._eager(inputs)
        if self._optimizer is not None and (reason := self._optimizer.write_numbers()):
            self._given_up = reason
            return self._eager(inputs)
        if self._looks is not None and _differ(self._looks, self._look()):
            self._start_again("the optimizer's state, its options or a module were changed")
            if self._given_up:
                return self._eager(inputs)
        looks = (tuple([m.training for m in self._modules]), self._watch() if self._watch is not None else None,
                 () if self._optimizer is None else self._optimizer.gradients())
        if looks != self._variant_looks:
            self._variant_looks = looks
            self._variant.value = self._variants.setdefault(looks, len(self._variants))
        try:
            results = self._call(self._handle, inputs)
        except BaseException:
            error, self._error = self._error, None
            if error is None:
                raise
            raise error from None
        if self._optimizer is not None and self._optimizer.has_idle():
            for parameter in self._dropped.get(self._looks_of(inputs), ()):
                parameter.grad = None
        return _filled(self._form, iter(results))

    def _eager(self, inputs: Sequence[Any]) -> Any:
        self._python_calls += 1
        leaves: list[Any] = []
        form = _form_of(self._function(*inputs), leaves)
        return _filled(form, iter([leaf.detach() for leaf in leaves]))

    def _looks_of(self, inputs: Sequence[Any]) -> Any:
        import torch

        looks = tuple((x.shape, x.stride(), x.dtype, x.requires_grad) for x in inputs)
        return self._variant.value, torch.is_grad_enabled(), looks

    def _look(self) -> list[Any]:
        looks: list[Any] = [] if self._optimizer is None else self._optimizer.looks()
        for module in self._modules:
            if module._parameters:
                looks.extend(module._parameters.values())
                looks.extend(hooks_of(module._parameters.values()))
            looks.extend(module._buffers.values())
            looks.extend(module._modules.values())
            if (module._forward_pre_hooks or module._forward_hooks or module._backward_pre_hooks
                    or module._backward_hooks):
                for hooks in (module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks,
                              module._backward_hooks):
                    looks.extend(hooks.values())
        return looks

    def _start_again(self, reason: str) -> None:
        self._resets += 1
        self._reset_reason = reason
        if not self._library.overdrive_capture_reset(self._handle):
            raise OverdriveError(last_error())
        self._looks = self._recorded_form = None
        if self._resets >= _MOST_RESETS and self.stats()["replayed"] < 2 * self._resets:
            self._given_up = f"In nearly every call {reason}."

    def _run(self) -> int:
        """The function, called by the library: in a call that is recorded, or eager."""
        import torch

        try:
            recorded = bool(self._library.overdrive_capture_recording())
            with _Unrecorded():
                inputs = torch.ops.overdrive.capture_inputs.default(self._handle)
            had = [] if self._optimizer is None else self._optimizer.with_gradient()
            value = self._record(inputs) if recorded else self._function(*inputs)
            leaves: list[Any] = []
            self._form = _form_of(value, leaves)
            if recorded:
                self._check_form()
            with _Unrecorded():
                torch.ops.overdrive.capture_results.default(self._handle, leaves)
            if self._optimizer is not None:
                self._optimizer.note_idle()
                self._dropped[self._looks_of(inputs)] = [parameter for parameter in had if parameter.grad is None]
            self._looks = self._look()
            return 1
        except BaseException as error:  # the caller raises it
            self._error = error
            return 0

    def _record(self, inputs: Sequence[Any]) -> Any:
        import torch.nn.modules.module as every_module
        import torch.optim.optimizer as every_optimizer

        thread = threading.get_ident()

        def note_module(module: Any, _: Any) -> None:
            if threading.get_ident() == thread and module not in self._modules:
                self._modules[module] = None

        def note_optimizer(stepping: Any, *_: Any) -> None:
            if threading.get_ident() == thread:
                _refuse(f"The function calls step() of an optimizer ({type(stepping).__name__}) that the step does "
                        "not know; give it by optimizer=, and call its step() by that name, once.")

        ours = self._optimizer
        if ours is not None and (reason := ours.refusal()):
            _refuse(reason)
            ours = None
        hooks = [every_module.register_module_forward_pre_hook(note_module)]
        if ours is not None or self._optimizer is None:
            hooks.append(every_optimizer.register_optimizer_step_pre_hook(note_optimizer))
        options = None if ours is None else ours.options()
        if ours is not None:
            ours.begin()
        try:
            value = self._function(*inputs)
        finally:
            if ours is not None:
                ours.end()
            for hook in hooks:
                hook.remove()
        if ours is not None and ours.options() != options:
            _refuse("The function changes the optimizer's options, as a scheduler's step() does; call it outside the "
                    "function.")
        if ours is not None and ours.steps == 0:
            _refuse("The function does not call step() of the optimizer that was given; call it, or leave out "
                    "optimizer=.")
        return value

    def _check_form(self) -> None:
        if not _only_tensors(self._form):
            _refuse("The function returns something that is not a tensor; return tensors, and read them outside.")
        elif self._recorded_form is not None and self._recorded_form != self._form:
            _refuse("The function returns its tensors in another structure than before; return the same one.")
        self._recorded_form = self._form

    def reset(self) -> None:
        """Forgets every recording: for changes that nothing looks at."""
        if not self._library.overdrive_capture_reset(self._handle):
            raise OverdriveError(last_error())
        self._looks = self._recorded_form = None
        self._given_up = ""
        self._resets = 0

    def stats(self) -> dict[str, int]:
        """How many calls were what: "calls", "eager", "recorded", "checked", "replayed", "undone", "outdated"."""
        counts = (ctypes.c_uint64 * len(_COUNTS))()
        if not self._library.overdrive_capture_stats(self._handle, counts):
            raise OverdriveError(last_error())
        result = dict(zip(_COUNTS, counts))
        result["calls"] += self._python_calls
        result["eager"] += self._python_calls
        result["outdated"] += self._resets
        return result

    def refusal(self) -> str:
        """Why calls are not replayed, if there is a reason that stays; else ""."""
        return self._given_up or _in_python(self._text(self._library.overdrive_capture_refusal))

    def explain(self) -> str:
        """The programs, their operators and memory, and why they were recorded anew."""
        text = _in_python(self._text(self._library.overdrive_capture_explain))
        if self._reset_reason:
            text += f"all were recorded anew the last time because {self._reset_reason}\n"
        if self._eager_reason and not self._given_up:
            text += f"the last call that Python made eagerly: {self._eager_reason}\n"
        return text + (f"refused: {self._given_up}\n" if self._given_up else "")

    def _text(self, function: Any) -> str:
        size = 4096
        while True:
            text = ctypes.create_string_buffer(size)
            length = function(self._handle, text, size)
            if length < 0:
                raise OverdriveError(last_error())
            if length < size:
                return text.value.decode(errors="replace")
            size = length + 1


def capture(function: Callable[..., Any], *, optimizer: Any = None, modules: Any = (),
            watch: Callable[[], Any] | None = None, constant_numbers: bool = False, constant_modes: bool = False,
            programs: int = 8, check_every: int = 0) -> CapturedStep:
    """Records what ``function`` does in its first calls, and replays it afterwards with the same bits, without Python.

    ``function`` is a whole training step. It takes tensors and returns tensors, alone or in tuples, lists and dicts.
    ``optimizer`` is the one whose ``step()`` it calls: SGD, Adam or AdamW. Its options are read in every call, so
    that learning rates may change. Modules that the function names, calls or is given by ``modules`` are looked at in
    every call: their modes, parameters and children. ``watch`` is a function without arguments for other values that
    the step depends on; each value has a recording of its own. docs/guide/capturing.md has the contract.

    >>> import overdrive, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> def train(x, y):
    ...     optimizer.zero_grad()
    ...     loss = torch.nn.functional.mse_loss(model(x), y)
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> step = overdrive.capture(train, optimizer=optimizer)
    >>> for _ in range(10):
    ...     x = torch.randn(4, 8)
    ...     loss = step(x, x.sum(1, keepdim=True))
    >>> step.stats()["replayed"], step.refusal()
    (6, '')
    """
    import torch

    if not callable(function):
        raise TypeError(f"capture() was given {type(function).__name__} and takes a function")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError("capture() takes a plain function, and was given a coroutine or a generator")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer= is {type(optimizer).__name__} and must be a torch.optim.Optimizer")
    roots = [modules] if isinstance(modules, torch.nn.Module) else list(modules)
    return CapturedStep(function, optimizer, roots, watch, constant_numbers, constant_modes, programs, check_every)


def _differ(a: list[Any], b: list[Any]) -> bool:
    return len(a) != len(b) or any(map(operator.is_not, a, b))


def _form_of(value: Any, leaves: list[Any]) -> Any:
    """The structure of a result, whose tensors go to ``leaves``."""
    import torch

    if isinstance(value, torch.Tensor):
        leaves.append(value)
        return "tensor"
    if type(value) in (tuple, list):
        return (type(value), tuple(_form_of(part, leaves) for part in value))
    if type(value) is dict:
        return (dict, tuple((key, _form_of(part, leaves)) for key, part in value.items()))
    return None if value is None else ("other", value)


def _only_tensors(form: Any) -> bool:
    if form is None or form == "tensor":
        return True
    kind, parts = form
    if kind == "other":
        return False
    return all(_only_tensors(part[1] if kind is dict else part) for part in parts)


def _filled(form: Any, leaves: Iterator[Any]) -> Any:
    if form == "tensor":
        return next(leaves)
    if form is None:
        return None
    kind, parts = form
    if kind == "other":
        return parts
    if kind is dict:
        return {key: _filled(part, leaves) for key, part in parts}
    return kind(_filled(part, leaves) for part in parts)


def _in_python(text: str) -> str:
    """Options as Python spells them."""
    return re.sub(r"(?<!\w)\.(optimizer|modules|programs|constant_numbers|constant_modes)\b", r"\1=", text)
