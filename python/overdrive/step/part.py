"""A part of a program that is recorded once and replayed afterwards, forward and backward."""
from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from overdrive.effects.left import Left, can_be_left
from overdrive.native import signals
from overdrive.native.dynamo import around
from overdrive.native.library import call, whole_number
from overdrive.native.quick import NOT_TAKEN, OPEN
from overdrive.native.recording import STILL_RECORDED, Refusal, _refuse
from overdrive.reads.code import is_watched
from overdrive.step.api import CapturedStep
from overdrive.step.learn import ANOTHER_TENSOR, NOT_CHANGED_BY_REPLAYS, Learner
from overdrive.step.methods import NotCopied, itself
from overdrive.step.pace import RUN_PLAINLY, Pace
from overdrive.step.quick import arm
from overdrive.step.reasons import descended
from overdrive.step.run import Runner
from overdrive.step.variant import REPLAYED, _Variant
from overdrive.values.forms import classes_in, filled, form_of, form_of_results, form_of_tensors, others_in, without_inputs
from overdrive.values.modules import is_scripted
from overdrive.values.read import IN_CONTAINERS, NOTHING
from overdrive.values.slots import can_be_put_back, put_back, putter_of

# Templates of calls whose graph may still run the function once more.
_MOST_TEMPLATES = 4096
_MOST_NOT_TAKEN = 4
_NOT_TAKEN: Any = object()


class _Again(threading.local):
    """Whether a part's function runs once more in a backward of this thread: parts in it are their functions."""

    is_running = False


_again = _Again()


class PartPace(Pace):
    """Of a part, whose calls run past it where replays bring nothing."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Why calls run eagerly from here on, without a look at anything; "" while they may be replayed.
        self.resting = ""

    def run_past(self, reason: str) -> None:
        self.resting, self.eager_reason = reason, Refusal(reason)

    def run_plainly(self, reason: str) -> None:
        self.run_past(f"{reason}{RUN_PLAINLY}")

    def _take_a_pause(self, reason: str) -> None:
        """A module's children are captured in its place."""
        self.given_up = reason

    def reset(self) -> None:
        super().reset()
        self.resting = ""

    def reason(self) -> Refusal:
        reason = super().reason() or Refusal(self.resting)
        counts = self.stats()
        if not counts["calls"]:
            return Refusal("Nothing has called it yet: its calls are replayed, and other methods of a module are not; capture the method, "
                           "overdrive.captured(model.method), or a function that calls it.")
        if reason.kind == STILL_RECORDED and counts["eager"] == counts["calls"] > 4 and not (self.resting or self.rest):
            return Refusal("No backward has come through it yet, which is recorded with the call; where none will, call it under "
                           "torch.no_grad(). A function that calls backward() itself is a step: overdrive.capture(function, optimizer=optimizer).")
        return reason


class PartLearner(Learner):
    """Of a part: a replay makes no change of the function's, but for tensors that it leaves."""

    def note_own(self, changed: dict[Any, Any]) -> None:
        """What the function changes would stay as it is in a replay, wherever it is read. What it makes in its first call
        alone, it does not change when it is recorded."""
        variant = self.chooser.variant
        assert variant is not None
        if not call("Recording.is_active"):
            for read in changed.values():
                self._guard_changed(variant, read)  # another call is recorded after this one, and looks at them, too
            return
        for read in changed.values():
            if can_be_left(read) and not self._is_made_of_the_old(read):
                self.begin_to_leave(read)
            elif isinstance(read.now(), torch.Tensor) and isinstance(read.expected, torch.Tensor):
                _refuse(self.changes.moved or ANOTHER_TENSOR.format(read.told()))
            elif isinstance(read.now(), torch.Tensor) or isinstance(read.expected, torch.Tensor):
                _refuse(f"The function gives {read.told()}, a tensor; return it.")
            else:
                _refuse(NOT_CHANGED_BY_REPLAYS.format(read.told()))
        # A call that does not change them may be recorded later, and is only good for what it has found there.
        for read in changed.values():
            if read.place not in self.changes.left.reads:
                self._guard_changed(variant, read)
        self._let_go_of_old(changed)

    def _classes_of_arguments(self, template: Any) -> Iterable[type]:
        return dict.fromkeys(classes_in(template))


class PartRunner(Runner):
    """Of a part: the function gets what the caller gave, and runs again in a backward whose replay cannot be."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Of the call under way: its tensors as the function gets them. What the caller gave, and its tensors, is `given`.
        self._taken: Sequence[Any] = ()
        # By the numbers of sets of values, those of calls whose backward may come.
        self._templates: dict[int, Any] = {}
        # Objects of plain classes among the last results of the function.
        self._returned: list[weakref.ref[Any]] = []

    def note_template(self, variant: _Variant, template: Any) -> None:
        if len(self._templates) >= _MOST_TEMPLATES:
            del self._templates[next(iter(self._templates))]
        self._templates[variant.number] = template, variant

    def _run(self) -> int:
        number = call("Recording.again")
        return super()._run() if number < 0 else self._run_again(number)

    def _inputs(self, template: Any, tensors: Sequence[Any]) -> Any:
        """The caller's own lists and dicts, which the function may change."""
        self._taken = tensors
        if self.given is None:  # the call came without Python
            self.given = (tuple(tensors), {}), list(tensors)
        given, those = self.given
        if len(those) == len(tensors) and all(a is b for a, b in zip(those, tensors)):
            return given
        return filled(template, iter(tensors))

    def apply(self, inputs: Any) -> Any:
        return self._subject.function(*inputs[0], **inputs[1])

    def _run_function(self, variant: Any, inputs: Any, recorded: bool) -> Any:
        value = super()._run_function(variant, inputs, recorded)
        given, those = self.given
        tensors: list[Any] = []
        if form_of(given, tensors) != variant.key[0] or any(a is not b for a, b in zip(those, tensors)):
            self._pace.given_up = ("The function changes a list, a dict or an object that it is given, and a replay would not; return what "
                                   "it puts there.")
            _refuse(self._pace.given_up)
        return value

    def _run_again(self, number: int) -> int:
        """In a backward, on any thread: nothing is recorded or learned."""
        before = [(read, read.now()) for read in self._changes.left.reads.values()]
        was_running, _again.is_running = _again.is_running, True
        template, variant = self._templates[number]
        changed = variant.reads.other_values()
        rebuilt = None if variant.structure is None else variant.structure.changed()
        values = [(read, read.now()) for read in changed if can_be_put_back(read)]
        other = rebuilt or next((read for read in changed if not can_be_put_back(read) and (
            read.kind not in IN_CONTAINERS or self._apart.matters(read))), None)
        try:
            if other is not None:
                raise RuntimeError(f"{other.told() if other.where else other.name} was changed between the call and its backward")
            for read, _ in values:  # as they were in the call
                put_back(read, read.expected)
            tensors = call("Recording.inputs")
            leaves: list[Any] = []
            without_inputs(form_of_results(self.apply(filled(template, iter(tensors))), leaves, []), leaves, tensors)
            for read, value in before:
                if read.now() is not value:
                    Left(read, leaves, tensors, [])
                    putter_of(read)(value)
            call("Recording.results", leaves)
            return 1
        except BaseException as error:
            call("Recording.failed", f"{self._texts.title()} failed when it ran once more in a backward: {type(error).__name__}: {error}")
            return 0
        finally:
            for read, value in values:
                put_back(read, value)
            _again.is_running = was_running

    def _form_of(self, value: Any, leaves: list[Any]) -> Any:
        objects: list[Any] = []
        form = without_inputs(form_of_results(value, leaves, objects), leaves, self._taken)
        self._taken = ()
        before, self._returned = self._returned, [weakref.ref(one) for one in objects]
        if any(one is other() for one in objects for other in before):
            _refuse("The function returns an object that lives on, and a replay would make another one; return its tensors.")
        return form


class CapturedPart(CapturedStep):
    """A captured function whose results have a graph. Called as the function is, by any thread; one call at a time is
    replayed, and others beside it run the function."""

    _pace_of, _learner_of, _runner_of = PartPace, PartLearner, PartRunner
    _pace: PartPace
    _runner: PartRunner

    def __init__(self, function: Callable[..., Any], modules: Iterable[Any], programs: int, check_every: int,
                 guarded: bool, name: str = "", passes: bool = True, always: bool = False) -> None:
        super().__init__(function, [], modules, None, False, False, programs, check_every, guarded, is_part=True, name=name,
                         passes=passes, always=always, warns=False)
        # Calls in turn with an argument that no recording takes.
        self._not_taken = 0
        if not name:
            functools.update_wrapper(self, function)

    @around
    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        if not keywords and (result := self._quick_call(*inputs)) is not NOT_TAKEN:
            return result if result is not OPEN else self._end_quick_call(inputs)
        if self._pace.resting:
            self._pace.python_calls += 1
            return self._function(*inputs, **keywords)
        if self._is_in_a_mode():
            self._pace.eager_reason = Refusal(self._reason_for_python())
            return self._beside(inputs, keywords)
        if self._pace.given_up or _again.is_running or is_watched() or not (self._busy.acquire(blocking=False) or self._is_left_locked()):
            return self._beside(inputs, keywords)
        try:
            self._is_called = True
            result = self._alone(inputs, keywords)
        finally:
            self._is_called = False
            self._busy.release()
            signals.end(self._runner)
        return self._beside(inputs, keywords) if result is _NOT_TAKEN else result

    def _alone(self, inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
        hits = self._quick.disarm()
        if self._pace.rest:
            return self._rested((inputs, keywords))
        budget = self._pace.budget
        if budget.timing:
            budget.tick(self._forms.last is REPLAYED, 1 + hits)
        tensors: list[Any] = []
        template = None if keywords else form_of_tensors(inputs, tensors)
        are_tensors = template is not None
        if not are_tensors and (other := others_in(template := form_of((inputs, keywords), tensors))) is not None:
            self._pace.eager_reason = Refusal(
                f"An argument is of {type(other)!r}; give its tensors and numbers one by one, or let the function name it.")
            self._not_taken += 1
            if self._not_taken > _MOST_NOT_TAKEN and not self.stats()["replayed"]:
                self._pace.given_up = self._pace.eager_reason.text
            return _NOT_TAKEN
        self._not_taken = 0
        facts = self._subject.facts.of(tensors)
        if facts is None:
            self._pace.eager_reason = Refusal(self._subject.facts.reason)
            return _NOT_TAKEN
        self._look_for_changes()
        variant = self._chooser.variant
        if variant is None or variant.key[0] != template or variant.key[3] != facts or variant.reads.changed() is not None:
            budget.begin()
            variant = self._find_variant((template, None, (), facts))
            if self._pace.given_up or variant is None:
                budget.end(False)
                return _NOT_TAKEN
            self._runner.note_template(variant, template)
        self._forms.last, self._runner.given = REPLAYED, ((inputs, keywords), tensors)
        return self._end_call(variant, tensors, self._call_library(tensors), facts if are_tensors else (template,))

    def _of_library(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return super()._of_library(function, *arguments)
        finally:
            self._runner.given = None

    def _end_call(self, variant: Any, tensors: Sequence[Any], results: Any, facts: Any) -> Any:
        form = self._forms.last
        made: dict[int, Any] = {}
        if form is REPLAYED:
            self._pace.note_replay()
            form = self._forms.of_replay(self._capture)
            arm(self, variant, facts, form, len(tensors))
            for left in form.left:
                left.put(results, tensors, made)
            return filled(form.result, iter(results), tensors)
        self._pace.note_run()
        value = self._runner.returned(results)
        for left in form.left:
            left.end_recording(results, tensors, made, value is not NOTHING)
        return filled(form.result, iter(results), tensors) if value is NOTHING else value

    def is_resting(self) -> bool:
        return bool(self._pace.resting)

    def ran(self) -> bool:
        """Whether the last call ran the function."""
        return not self._pace.rest and (self._forms.last is not REPLAYED or bool(self._pace.given_up))

    def rest(self, reason: str) -> None:
        """From here on the function runs as if it were not captured."""
        self._pace.run_past(reason)

    def reset(self) -> None:
        super().reset()
        self._not_taken = 0

    def _eager(self, inputs: Any, reason: str = "") -> Any:
        return self._beside(*inputs)

    def _beside(self, inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
        self._pace.python_calls += 1
        return self._function(*inputs, **keywords)


class _ModuleCall(NotCopied):
    """What a captured module does when it is called: its part, or, where that is refused, the parts of its children."""

    def __init__(self, module: Any, name: str, options: dict[str, Any]) -> None:
        self._module = weakref.ref(module)
        self._name, self._options = name, options
        self.part: CapturedPart | None = CapturedPart(_Forward(module), [module], name=name, **options)
        self.reason = ""

    @around
    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        part = self.part
        if part is not None and part._pace.resting:
            part._pace.python_calls += 1
            part = None
        if part is None:
            return self._module()._call_impl(*inputs, **keywords)  # type: ignore[union-attr]
        result = part(*inputs, **keywords)
        if part.ran() and not part.is_resting() and (reason := part.refused_for_good()):
            self._descend(reason)
        return result

    def told(self) -> str:
        return f"  {self._name}: its children are captured instead\n    {self.reason}\n"

    def _descend(self, reason: str) -> None:
        module = self._module()
        if module is None or self.part is None:
            return
        if not any(_is_worth_it(child) for child in module.modules() if child is not module):
            self.part.rest(reason)
            return
        self.part, self.reason = None, reason
        descended.add(self)
        _capture_children(module, self._name, self._options)


class _Forward:
    """The plain call of a module, which does not keep the module alive."""

    def __init__(self, module: Any) -> None:
        self._module = weakref.ref(module)

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        return self._module()._call_impl(*inputs, **keywords)  # type: ignore[union-attr]


def _is_worth_it(module: Any) -> bool:
    """A layer of one or two operators gains nothing alone."""
    if is_scripted(module):
        return False
    own_class = not type(module).__module__.startswith("torch.nn")
    return own_class or bool(module._modules) or isinstance(module, (torch.nn.RNNBase, torch.nn.RNNCellBase))


def _capture_children(module: Any, name: str, options: dict[str, Any]) -> None:
    for key, child in module.named_children():
        path = f"{name}.{key}"
        if isinstance(child, (torch.nn.ModuleList, torch.nn.ModuleDict)):
            _capture_children(child, path, options)
        elif child._compiled_call_impl is None and _is_worth_it(child):
            child._compiled_call_impl = _ModuleCall(child, path, options)


def part_of(target: Any) -> CapturedStep | None:
    """The part that stands for a captured module, or the step that stands for the ``step()`` of a captured optimizer; None where
    there is none, or where the children of a module are captured: ``overdrive.explain()`` says why. A captured function is its own."""
    if isinstance(target, CapturedStep):
        return target
    if isinstance(target, torch.optim.Optimizer):
        from overdrive.step.optimizer_part import update_of

        return update_of(target)
    if not isinstance(target, torch.nn.Module):
        raise TypeError(f"part_of() takes a captured module, optimizer or function, not {type(target).__name__}")
    call = target._compiled_call_impl
    return call.part if isinstance(call, _ModuleCall) else None


def captured(target: Any = None, *, programs: int = 4096, check_every: int = 0, guards: str = "checked", passes: bool = True,
             always: bool = False) -> Any:
    """A module, an optimizer or a function that is recorded in its first calls and replayed afterwards, with the same bits.

    A module stays the same object, with its hooks, its ``state_dict()`` and its class; from here on its calls are
    replayed, and so are their backwards. Where it cannot be recorded, its children are. An optimizer stays itself, too;
    its ``step()`` is replayed. A function takes and returns tensors and numbers, alone or in containers, and may be
    decorated. Where replays turn out slower than eager calls, calls run eagerly, unless ``always=True``.
    docs/guide/parts.md has the contract, and ``overdrive.explain()`` says what is replayed.

    >>> import overdrive, torch
    >>> model = overdrive.captured(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)))
    >>> optimizer = overdrive.captured(torch.optim.Adam(model.parameters()))
    >>> for _ in range(10):
    ...     x = torch.randn(4, 8)
    ...     optimizer.zero_grad()
    ...     loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    ...     loss.backward()
    ...     optimizer.step()
    >>> print(overdrive.explain().splitlines()[1])
    2 captured steps and parts.
    """
    if guards not in ("checked", "promised"):
        raise ValueError(f'guards= is {guards!r} and must be "checked" or "promised"')
    for name, flag in (("passes", passes), ("always", always)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name}= is {flag!r} and must be True or False")
    options: dict[str, Any] = {"programs": whole_number("captured", "programs", programs, least=0),
               "check_every": whole_number("captured", "check_every", check_every, least=0),
               "guarded": guards == "checked", "passes": passes, "always": always}
    if target is None:
        return functools.partial(captured, programs=programs, check_every=check_every, guards=guards, passes=passes, always=always)
    if isinstance(target, torch.nn.Module):
        if target._compiled_call_impl is not None and not isinstance(target._compiled_call_impl, _ModuleCall):
            raise ValueError("captured() was given a module that is compiled; capture it, or compile it")
        if is_scripted(target):
            raise ValueError("captured() was given a module that torch.jit.script() or trace() made; capture the one it was made of")
        target._compiled_call_impl = _ModuleCall(target, type(target).__name__, options)
        return target
    if isinstance(target, torch.optim.Optimizer):
        from overdrive.step.optimizer_part import captured_optimizer
        from overdrive.step.optimizers_made import forget

        forget(target)
        return captured_optimizer(target, options)
    if not callable(target):
        raise TypeError(f"captured() was given {type(target).__name__} and takes a module, an optimizer or a function")
    if inspect.iscoroutinefunction(target) or inspect.isgeneratorfunction(target):
        raise TypeError("captured() takes a plain function, and was given a coroutine or a generator")

    def another(function: Callable[..., Any], _: Callable[[Any], Any]) -> CapturedPart:
        part = CapturedPart(function, [], **options)
        part._another = another
        return part

    return another(target, itself)
