"""PyTorch's optimizers inside a captured step.

A recording cannot follow numbers of the program, so that a recorded call makes the update by an operator of the
library: out of tensors, with the same operators below it. Every recorded update is compared with PyTorch's own, on
copies, bit by bit.
"""
from __future__ import annotations

import bisect
import ctypes
import functools
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from overdrive.native.recording import _refuse, _Unrecorded
from overdrive.numbers.counters import Counter
from overdrive.numbers.tracked import plain
from overdrive.optimizers.rules import has_constants, rule_of
from overdrive.reads.code import unwatched
from overdrive.reads.optimizers import is_pytorchs, kind_of_optimizer
from overdrive.values.modules import hooks_of
from overdrive.values.read import ENTRY, ITEM, NOTHING, SIZE, VALUES, Read, entries_of
from overdrive.values.same import is_scalar, same_value

NOT_UNDERSTOOD = ("The optimizer is {}. A captured step understands SGD, Adam, AdamW, Adagrad, Adamax, NAdam, RAdam, RMSprop, Adadelta and "
                  "Rprop, and one of a class of your own whose step() does not call PyTorch's; leave the step() of another one outside the "
                  "function, and uncaptured.")
_NONE_AHEAD: Mapping[int, Mapping[str, Any]] = {}
# Methods that a program may replace, of the object.
_METHODS = ("step", "zero_grad", "_init_group")
_OF_A_SCALER = ("grad_scale", "found_inf")
_SCALED = "{} is stepped by a GradScaler, which scales inside of the update; call scaler.step() outside the function."
_PLAIN = ("fused", "capturable", "differentiable")
_NUMBERS = (float, int, bool)


class Optimizer:
    """What a captured step knows of one optimizer. One thread at a time."""

    def __init__(self, optimizer: Any, with_constants: bool, is_found: bool = False) -> None:
        """``is_found``: nobody has named it."""
        self.optimizer, self.is_found = optimizer, is_found
        kind = self._kind = kind_of_optimizer(optimizer)
        self._rule = rule_of(kind)
        self._has_constants = with_constants and has_constants(kind)
        self._numbers: list[Any] = []
        # Options of the call, and those that a scheduler has left which stepped apart in it; whether the recorded function called it.
        self.scheduled: list[dict[str, Any]] | None = None
        self.left_by_scheduler: list[dict[str, Any]] | None = None
        self.is_scheduled_here = False
        # Whether code that runs apart has changed them in the recorded call.
        self.is_changed_apart = False
        self._written: list[tuple[float, ...]] = []
        self._idle: dict[Any, None] = {}
        # Options before the recorded function ran, and those that it has given other floats before its step().
        self._options: list[dict[str, Any]] = []
        self.written_inside: list[Read] = []
        self.steps = 0
        # Whether a recorded step() runs PyTorch's.
        self.runs_pytorchs = False
        # What step() of the object was before the recorded call under way, in which it is ours; None: its class's.
        self._before: Any = None
        self._is_in_call = False
        # How many hooks step() has in it: those of the recording.
        self._hooks: list[int] = []
        # Momentum or weight decay was switched on or off, which is another update.
        self.crossed = False

    def refusal(self) -> str:
        """Why its step() cannot be recorded now; "" when it can."""
        name = type(self.optimizer).__name__
        if self._rule is None and not self._has_constants:
            return NOT_UNDERSTOOD.format(name)
        if torch.is_inference_mode_enabled():
            return f"step() of {name} is called in inference mode, in which no tensor counts its changes; call it under torch.no_grad()."
        if [*map(len, self._hooks_on_step())] != (self._hooks if self._is_in_call else [0] * 4):
            return f"{name} has hooks on step(), which a replay would not call; call them outside the function."
        if replaced := self._replaced():
            return (f"{replaced}() of {name} was replaced by another function, which a replay would not call; call step() outside "
                    "the function.")
        if self._is_scaled():
            return _SCALED.format(name)
        states = self.optimizer.state.values()
        if _overlap([tensor for state in states for tensor in state.values() if isinstance(tensor, torch.Tensor)]):
            return f"Two parameters of {name} share a tensor of their state, and a captured step updates each for itself."
        if any(_has_another_type(state, parameter) for parameter, state in self.optimizer.state.items()):
            return f"A state of {name} has another type than its parameter, an error of step(); change the type before the optimizer is made."
        for group in self.optimizer.param_groups:
            for flag in _PLAIN:
                if group.get(flag) and not (flag == "fused" and self._rule is not None and self._rule.fused):
                    return f"{name} has {flag}=True, which is not understood in a captured step; leave it out."
            if self._rule is not None and group.get("foreach") and not (self._rule.foreach and all(map(_is_of_full_precision, group["params"]))):
                return f"{name} has foreach=True, which rounds otherwise than the captured update; leave it out."
            for key, value in group.items():
                numbers = value if key == "betas" and isinstance(value, (tuple, list)) else (value,)
                if any(torch.is_tensor(number) for number in numbers):
                    return f"{name} has a tensor as {key}, which is not understood in a captured step; give a number."
                if any(is_scalar(number) and not isinstance(number, float) for number in numbers):
                    return f"{name} has a number of NumPy's as {key}, whose arithmetic rounds otherwise than Python's; give float({key})."
            if self._rule is not None and (odd := _odd_option(group, self._rule.carried)):
                return f"{name} has {odd}, for which PyTorch's update may be an error, or another one; give a number that its constructor takes."
            if group.get("fused") and any(map(_has_gaps, group["params"])):
                return f"{name} has fused=True and a parameter with gaps, of which PyTorch's kernel updates other memory; leave fused=True out."
            if any(p.is_complex() or p.device.type != "cpu" for p in group["params"]):
                return f"{name} has a parameter that is complex or not on the CPU; leave its step() outside."
        if _overlap([parameter for group in self.optimizer.param_groups for parameter in group["params"]]):
            return f"Two parameters of {name} share memory, and a captured step updates each for itself; give one of them."
        return ""

    def _replaced(self) -> str:
        """A function of the update that is not PyTorch's; "": all are, and step() as a scheduler wraps it."""
        own = self._before if self._is_in_call else self.optimizer.__dict__.get("step")
        if own is not None and not getattr(own, "_wrapped_by_lr_sched", False):
            return "step"
        functions = {"step": own or type(self.optimizer).step, "_init_group": self.optimizer._init_group}
        if self._rule is not None:
            functions.update(self._rule.functions())
        return next((name for name, function in functions.items() if not is_pytorchs(function)), "")

    def _is_scaled(self) -> bool:
        """Whether a GradScaler has given it what a fused update scales by; it takes it away after the update."""
        return any(getattr(self.optimizer, key, None) is not None for key in _OF_A_SCALER)

    def write_numbers(self, ahead: Mapping[int, Mapping[str, Any]] = _NONE_AHEAD) -> str:
        """Puts the options where the operator reads them: before every call. ``ahead``: of groups by their index, options that the
        function will give them. A refusal, or ""."""
        rule = self._rule
        for index, group in enumerate(self.optimizer.param_groups if rule is not None else ()):
            values = self._numbers_in({**group, **ahead[index]} if index in ahead else group)
            if index < len(self._written) and _are_same(values, self._written[index]):
                continue
            if not ahead and (reason := self.refusal()):
                return reason
            if index < len(self._written) and any(bool(values[place]) != bool(self._written[index][place])
                                                  for place in rule.switches):  # type: ignore[union-attr]
                self.crossed = True
            if index == len(self._numbers):
                self._numbers.append(torch.zeros(len(values), dtype=torch.float64))
                self._written.append(())
            # No operator, which a recording would note.
            numbers = (ctypes.c_double * len(values)).from_address(self._numbers[index].data_ptr())
            numbers[:] = [float(value) for value in values]
            self._written[index] = values
        return ""

    def _numbers_in(self, group: dict[str, Any]) -> tuple[Any, ...]:
        """Of one group; none are like those that it has where its betas are no two."""
        try:
            return self._rule.numbers(group)  # type: ignore[union-attr]
        except (TypeError, ValueError):
            return (None,)

    def entries_of_options(self) -> list[tuple[dict[str, Any], str, Any]] | None:
        """Where the numbers come from that write_numbers() has written last: as long as these are the same objects, so are they. None:
        an object of them may change in itself."""
        rule = self._rule
        groups: list[dict[str, Any]] = self.optimizer.param_groups if rule is not None else []
        entries = [(group, key, dict.get(group, key, NOTHING)) for group in groups for key in rule.carried]  # type: ignore[union-attr]
        values = [one for _, _, value in entries for one in (value if type(value) is tuple else (value,))]
        return entries if all(value is NOTHING or type(value) in _NUMBERS for value in values) else None

    def takes_closures(self) -> bool:
        """Whether step(closure) is the closure, and then step()."""
        return (self._rule is not None or self._has_constants) and not any(self._hooks_on_step())

    def _hooks_on_step(self) -> tuple[dict[Any, Any], ...]:
        import torch.optim.optimizer as every

        return (self.optimizer._optimizer_step_pre_hooks, self.optimizer._optimizer_step_post_hooks,
                every._global_optimizer_pre_hooks, every._global_optimizer_post_hooks)

    def has_written_options(self) -> bool:
        """Whether the options are those that write_numbers() has put into tensors."""
        groups = self._groups_of_call()
        rule = self._rule
        return rule is None or len(groups) == len(self._written) and all(
            _are_same(self._numbers_in(_plain_options(group)), written) for group, written in zip(groups, self._written))

    def has_left_options(self) -> bool:
        """The same when the function has run, or those that a scheduler has left."""
        return self.has_written_options() if self.left_by_scheduler is None else same_value(self.options(), self.left_by_scheduler)

    def carries_options(self) -> bool:
        return self._rule is not None

    def options(self) -> list[dict[str, Any]]:
        return [{key: value for key, value in group.items() if key != "params"} for group in self.optimizer.param_groups]

    def put_options(self, options: list[dict[str, Any]]) -> None:
        for group, values in zip(self.optimizer.param_groups, options):
            group.update(values)

    def _groups_of_call(self) -> list[dict[str, Any]]:
        """With the options that the call began with."""
        groups: list[dict[str, Any]] = self.optimizer.param_groups
        if self.scheduled is None:
            return groups
        return [{**group, **before} for group, before in zip(groups, self.scheduled)]

    def _take_options(self) -> bool:
        """Options that the function has written are numbers of the call, if they are floats and this is its first step()."""
        groups = self.optimizer.param_groups
        if self.scheduled is not None or not self._counts or self._rule is None or self.steps > 1 or len(groups) != len(self._options):
            return False
        written = []
        for index, (group, before) in enumerate(zip(groups, self._options)):
            for key in [key for key in self._rule.carried if not same_value(plain(group.get(key)), before.get(key))]:
                if type(before.get(key)) is not float or type(plain(group[key])) is not float:
                    return False
                read = Read(ENTRY, group, key, f"{type(self.optimizer).__name__}.param_groups[{index}][{key!r}]")
                read.expected = before[key]  # no tracked number, which would look as if the program kept it
                written.append(read)
        if self.write_numbers({index: _plain_options(group) for index, group in enumerate(groups)}):
            return False
        self.written_inside += written
        return True

    def places_of(self, counters: Sequence[Counter]) -> list[tuple[int, str, int]]:
        """Those of the counters that are options: the group, the option, and which of the counters."""
        groups = [] if self._rule is None else self.optimizer.param_groups
        return [(index, key, number) for index, group in enumerate(groups) for key in self._rule.carried  # type: ignore[union-attr]
                for number, counter in enumerate(counters) if counter.is_at(group, key)]

    def structure(self) -> list[Read]:
        """Everything but numbers whose change asks for another recording."""
        optimizer = self.optimizer
        name = f"the state, a parameter or a hook of {type(optimizer).__name__}"
        own = optimizer.__dict__
        reads = [Read(ENTRY, own, key, name) for key in ("state", "param_groups", *_METHODS, *_OF_A_SCALER)]
        reads += [Read(VALUES, entries_of(kind), None, f"the class {kind.__name__}") for kind in type(optimizer).__mro__[:-1]]
        if self._rule is not None:
            reads.append(Read(VALUES, vars(self._rule.module()), None, f"a function of torch.optim.{self._rule.name}"))
        reads += [Read(VALUES, each, None, name) for each in (*self._hooks_on_step(), optimizer.state)]
        reads.append(Read(SIZE, optimizer.param_groups, None, name))
        for index, group in enumerate(optimizer.param_groups):
            reads.append(Read(ITEM, optimizer.param_groups, index, name))
            reads.append(Read(ENTRY, group, "params", name))
            reads.append(Read(SIZE, group["params"], None, name))
            for position, parameter in enumerate(group["params"]):
                reads.append(Read(ITEM, group["params"], position, name))
                reads.extend(hooks_of(parameter, name))
        reads += [Read(VALUES, state, None, name) for state in optimizer.state.values()]
        return reads

    def options_read(self) -> list[Read]:
        """Options of groups that no tensor carries to a replay."""
        carried = () if self._rule is None else (*self._rule.carried, "initial_lr", "params")
        return [Read(ENTRY, group, key, f"{key!r} of a group of {type(self.optimizer).__name__}")
                for group in self.optimizer.param_groups for key in group if key not in carried]

    def note_idle(self) -> None:
        """Remembers the parameters without a gradient: step() leaves them alone."""
        for group in self.optimizer.param_groups:
            self._idle.update((parameter, None) for parameter in group["params"] if parameter.grad is None)

    def gradients(self) -> tuple[bool, ...]:
        """Which of the remembered have a gradient now, and would be updated: a recording for each answer."""
        return tuple(parameter.grad is None for parameter in self._idle)

    def begin(self, counts: bool) -> None:
        """Before a recorded function runs: from here on step() is the operator's. ``counts``: the function may write options."""
        carried = () if self._rule is None else self._rule.carried
        self._options = [{key: plain(group[key]) for key in carried if key in group} for group in self.optimizer.param_groups]
        self._counts = counts
        self.written_inside.clear()
        self.is_scheduled_here = self.is_changed_apart = False
        self.steps, self._thread = 0, threading.get_ident()
        self._hooks = [*map(len, self._hooks_on_step())]
        self._before, self._is_in_call = self.optimizer.__dict__.get("step"), True
        self.optimizer.step = self._step

    def end(self) -> None:
        self._is_in_call = False
        if getattr(self.optimizer.__dict__.get("step"), "__func__", None) is not Optimizer._step:
            _refuse(f"The function replaces step() of {type(self.optimizer).__name__}; do so outside the function.")
        elif self._before is None:
            del self.optimizer.step
        else:
            self.optimizer.step = self._before

    def _step(self, closure: Any = None) -> Any:
        if threading.get_ident() != self._thread:
            return self._kind.step(self.optimizer, closure)  # that thread's call is not recorded
        with unwatched() as quiet:
            return self._step_of_ours(closure, quiet)

    def _step_of_ours(self, closure: Any, quiet: unwatched) -> Any:
        self.steps += 1
        if self._before is not None:
            self.optimizer._opt_called = True  # as the step() does that a scheduler has wrapped, for its warning
        if reason := self.refusal():
            return self._refuse_update(reason, quiet, closure)
        loss = None
        if closure is not None:
            with torch.enable_grad(), quiet.as_before():
                loss = closure()
            reason = self.refusal()
        if reason := reason or self._why_not_now():
            self._refuse_update(reason, quiet)
            return loss
        self.note_idle()
        if self._has_constants:
            self._run_pytorchs(functools.partial(getattr(self._kind.step, "__wrapped__", self._kind.step), self.optimizer), quiet)  # without hooks
            return loss
        with torch.no_grad():
            for index, group in enumerate(self._groups_of_call()):
                self._update(_plain_options(group), self._numbers[index], quiet)
        return loss

    _step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # no scheduler that steps inside is to warn of it

    def _why_not_now(self) -> str:
        """Why an update that could be recorded cannot be here; "" when it can."""
        if self.is_changed_apart:
            return ("Code that runs apart changes the optimizer's options, and its step() comes after; change them outside of the function, or "
                    "give a plateau's scheduler the tensor, scheduler.step(loss), after step().")
        if self.is_scheduled_here:
            return "The function calls step() of an optimizer after that of its scheduler, in one call; call the scheduler last."
        if not self.has_written_options() and not self._take_options():
            return "The function changes the optimizer's options before it calls step(); change them outside the function."
        return ""

    def _refuse_update(self, reason: str, quiet: unwatched, *closure: Any) -> Any:
        """The program's own step() runs."""
        _refuse(reason)
        return self._run_pytorchs(self._before or functools.partial(type(self.optimizer).step, self.optimizer), quiet, *closure)

    def _run_pytorchs(self, step: Any, quiet: unwatched, *closure: Any) -> Any:
        self.runs_pytorchs = True
        try:
            with quiet.as_before():
                return step(*closure)
        finally:
            self.runs_pytorchs = False

    def _take_changes(self, gradients: list[Any], after: list[Any]) -> None:
        """What the update makes of gradients in place, which the operator would not."""
        for gradient, copy in zip(gradients, after):
            if gradient.layout == torch.strided and not _same_bits(gradient, copy):
                _refuse(f"The update of {type(self.optimizer).__name__} changes the gradients, as that of nesterov=True with foreach=True does; "
                        "leave foreach out.")
                gradient.copy_(copy)

    def _update(self, group: dict[str, Any], numbers: Any, quiet: unwatched) -> None:
        rule = self._rule
        assert rule is not None
        parameters: list[Any] = []
        gradients: list[Any] = []
        states: list[list[Any]] = [[] for _ in range(rule.states)]
        with quiet.as_before():
            self.optimizer._init_group(group, parameters, gradients, *states)
        if not parameters:
            return
        function, options = rule.function(), rule.options(group)

        def update(parameters: list[Any], gradients: list[Any], states: list[list[Any]]) -> None:
            with quiet.as_before():
                function(parameters, gradients, *states, **options)

        if rule.name == "sgd" and any(buffer is None for buffer in states[0]):
            # The first update of a parameter makes its buffer; the next recording is another one.
            update(parameters, gradients, states)
            for parameter, buffer in zip(parameters, states[0]):
                self.optimizer.state[parameter]["momentum_buffer"] = buffer
            return
        if not all(isinstance(tensor, torch.Tensor) for tensors in states for tensor in tensors):
            _refuse(f"The state of {type(self.optimizer).__name__} has something else in the place of a "
                    "tensor, as checkpoints of old versions of PyTorch have it; give a tensor.")
            update(parameters, gradients, states)  # PyTorch's own error, where it has one
            return
        if not all(gradient.layout == torch.strided for gradient in gradients):
            _refuse(f"A gradient of {type(self.optimizer).__name__} is sparse, as those of an Embedding with sparse=True are; leave sparse=True "
                    "out, or leave step() outside the function.")
            update(parameters, gradients, states)
            return
        if _share_memory(gradients, [tensor for tensors in (parameters, *states) for tensor in tensors]):
            _refuse(f"A gradient of {type(self.optimizer).__name__} lies in memory that the update changes, as `p.grad = p.detach()` "
                    "puts it there; give its clone().")
            update(parameters, gradients, states)
            return
        if _overlap(gradients):
            _refuse(f"Two gradients of {type(self.optimizer).__name__} share memory; give one its clone().")
            update(parameters, gradients, states)
            return
        with _Unrecorded():
            copies = [[tensor.clone() for tensor in tensors] for tensors in (parameters, *states)]
            versions = [[tensor._version for tensor in tensors] for tensors in copies]
            of_gradients = [gradient.clone() for gradient in gradients]
            update(copies[0], of_gradients, copies[1:])
            self._take_changes(gradients, of_gradients)
        if group["maximize"]:
            gradients = [-gradient for gradient in gradients]
        getattr(torch.ops.overdrive, rule.fused if group.get("fused") else rule.operator)(parameters, gradients, *states, numbers)
        with _Unrecorded():
            for ours, theirs, before in zip((parameters, *states), copies, versions):
                written = [tensor for tensor, copy, version in zip(ours, theirs, before) for _ in range(copy._version - version)]
                torch.autograd.graph.increment_version(written)
                for tensor, copy in zip(ours, theirs):
                    if not _same_bits(tensor, copy):
                        _refuse(f"An update of {type(self.optimizer).__name__} is not the one that a captured step "
                                "knows; leave step() outside the function.")
                        tensor.copy_(copy)


def _odd_option(group: dict[str, Any], carried: Sequence[str]) -> str:
    """An option that is no number, or for which the formulas divide by zero; "" where there is none."""
    for key in carried:
        value = group.get(key, False)
        numbers = list(map(plain, value)) if key == "betas" and type(value) in (tuple, list) else [plain(value)]
        is_usual = all(type(one) in _NUMBERS and one == one for one in numbers)
        if key == "betas":
            is_usual = is_usual and len(numbers) == 2 and all(0 <= one < 1 for one in numbers)
        if not is_usual:
            return f"{value!r} as {key}"
    return ""


def _plain_options(group: dict[str, Any]) -> dict[str, Any]:
    """Without tracked numbers, which a recorded call may have put there."""
    return {key: plain(value) for key, value in group.items()}


def _are_same(values: tuple[Any, ...], written: tuple[Any, ...]) -> bool:
    """A tensor of one element is equal to its number, and no number."""
    if all(map(operator.is_, values, written)):
        return True
    return [type(value) for value in values] == [type(value) for value in written] and values == written


def _has_gaps(tensor: Any) -> bool:
    """Whether torch.empty_like() has other strides. Asked without an operator, because a call may be recorded."""
    next_stride = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1 and stride != next_stride:
            return True
        next_stride *= size
    return False


def _spans_of(tensors: list[Any]) -> list[tuple[int, int]]:
    """Where the bytes of each begin and end, in order."""
    spans = []
    for tensor in tensors:
        if tensor.layout == torch.strided and not torch.nn.parameter.is_lazy(tensor) and tensor.numel() > 0:
            count = tensor.numel() if tensor.is_contiguous() else 1 + sum(
                (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
            begin = tensor.data_ptr()
            spans.append((begin, begin + count * tensor.element_size()))
    return sorted(spans)


def _overlap(tensors: list[Any]) -> bool:
    """Whether two tensors have bytes in common."""
    spans = _spans_of(tensors)
    return any(end > begin for (_, end), (begin, _) in zip(spans, spans[1:]))


def _share_memory(these: list[Any], those: list[Any]) -> bool:
    """Whether one of these has bytes in common with one of those, which have none with each other."""
    known = _spans_of(those)
    begins = [begin for begin, _ in known]
    for begin, end in _spans_of(these):
        at = bisect.bisect_left(begins, end)
        if at and known[at - 1][1] > begin:
            return True
    return False


def _has_another_type(state: Any, parameter: Any) -> bool:
    """Of what has an element for each of the parameter's. The count of steps is a float in any case."""
    return any(isinstance(tensor, torch.Tensor) and tensor.dim() > 0 and tensor.shape == parameter.shape and tensor.dtype != parameter.dtype
               for tensor in state.values())


def _is_of_full_precision(parameter: Any) -> bool:
    """Of others an update of lists rounds at other places, which the first steps may not show."""
    return parameter.dtype in (torch.float32, torch.float64)


@functools.cache
def _compare() -> Callable[[int, int, int], int]:
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes, compare.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], ctypes.c_int
    return compare


def _same_bits(a: Any, b: Any) -> bool:
    """Of two tensors with the same sizes and type, on the CPU."""
    if a.numel() == b.numel() and a.is_contiguous() and b.is_contiguous() and not a.is_neg() and not b.is_neg():
        return _compare()(a.data_ptr(), b.data_ptr(), a.numel() * a.element_size()) == 0
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return bool(torch.equal(a.detach().view(whole), b.detach().view(whole)))
