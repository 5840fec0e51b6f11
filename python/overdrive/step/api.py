"""A training step that is recorded once and replayed afterwards, without Python."""
from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from overdrive.native import signals
from overdrive.native.dynamo import around
from overdrive.native.library import call, whole_number
from overdrive.native.quick import NOT_TAKEN, OPEN
from overdrive.native.recording import Refusal, _refuse
from overdrive.step import budget as _budget
from overdrive.step.file import save_steps
from overdrive.step.methods import Method, itself
from overdrive.step.quick import arm
from overdrive.step.state import Step
from overdrive.step.variant import REPLAYED, _Variant
from overdrive.values.arguments import Arguments, Given
from overdrive.values.forms import filled, form_of_results
from overdrive.values.keys import Number
from overdrive.values.read import NOTHING
from overdrive.values.same import frozen

# Runs of the function that are watched before its replays.
_MOST_WATCHED = 4
# Of the library: the function could not begin (python/bindings/captures.cpp).
_FAILED = "The captured function failed."
_CARRIED_TWICE = ("The function finds other tensors in {} from call to call, and this time an argument, one tensor at two places, or one that "
                  "requires a gradient; give clones, and detach() them.")
# Values that are told where a compared replay differs.
_MOST_MOVED = 8


class CapturedStep(Method, Step):
    """What :func:`capture` returns. Called with the function's tensors and numbers. While a thread is in a call, others run the
    function."""

    @around
    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        if not keywords and (result := self._quick_call(*inputs)) is not NOT_TAKEN:
            return result if result is not OPEN else self._end_quick_call(inputs)
        if not (self._busy.acquire(blocking=False) or self._is_left_locked()):
            return self._meanwhile(Arguments(list(inputs), keywords) if keywords else inputs)
        try:
            self._is_called = True
            return self._call_alone(inputs, keywords)
        finally:
            self._is_called = False
            self._busy.release()
            signals.end(self._runner)

    def _is_left_locked(self) -> bool:
        """Whether an error of a signal's handler came between the lock and the call that it was for."""
        return not self._is_called and not self._runner.thread and threading.active_count() == 1

    def _meanwhile(self, inputs: Any) -> Any:
        """The function, called by itself, or while another thread is in a call."""
        if self._runner.thread == threading.get_ident():
            reason = "The function calls the captured step itself; call the function there."
            _refuse(reason)
            return self._eager(inputs, reason)
        self._pace.python_calls += 1
        return self._plainly(inputs)

    def _end_quick_call(self, inputs: Sequence[Any]) -> Any:
        """The library has run the function, or thrown, in a call that has come to it without Python."""
        try:
            self._is_called = True
            self._quick.disarm()
            results = self._of_library(self._quick.results)
            return self._end_call(self._chooser.variant, inputs, results, ())
        finally:
            self._is_called = False
            self._busy.release()
            signals.end(self._runner)

    def _call_alone(self, inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
        hits = self._quick.disarm()
        if self._pace.rest:
            return self._rested(Arguments(list(inputs), keywords) if keywords else inputs)
        budget = self._pace.budget
        if budget.timing:
            budget.tick(self._forms.last is REPLAYED, 1 + hits)
        template: tuple[Any, ...] = ()
        tensors: Sequence[Any] = inputs
        given = None
        if keywords or not all(isinstance(x, torch.Tensor) for x in inputs) or len(set(map(id, inputs))) < len(inputs):
            given = Given(inputs, keywords)
            template, tensors = given.template, given.tensors
            if keywords or given.reason:
                inputs = Arguments(list(inputs), keywords)  # type: ignore[assignment]
            if given.reason:
                return self._eager(inputs, given.reason)
        if self._pace.given_up or self._is_in_a_mode():
            return self._eager(inputs, self._reason_for_python())
        if self._subject.found:
            self._pace.given_up = self._subject.take_found(self._pace.stats()["replayed"])
            self._forget()
            if self._pace.given_up:
                return self._eager(inputs, self._pace.given_up)
        optimizers = self._subject.optimizers if self._subject.optimizers.all() else None
        if optimizers is not None and (reason := optimizers.begin_call()):
            self._pace.given_up = reason
            return self._eager(inputs, reason)
        if optimizers is not None and optimizers.take_crossed():
            self._start_again("momentum or weight decay was switched on or off")
        self._look_for_changes()
        self._runner.carried = ()
        if self._changes.carried:
            if (carried := self._changes.carried_tensors(tensors)) is None:
                return self._eager(inputs, _CARRIED_TWICE.format(self._changes.told_carried()))
            tensors = [*tensors, *carried]
            self._runner.carried = carried
        facts = self._subject.facts.of(tensors)
        if facts is None:
            return self._eager(inputs, self._subject.facts.reason)
        key = (template, None if self._watch is None else Number(frozen(self._watch())), () if optimizers is None else optimizers.gradients(), facts)
        variant = self._chooser.variant
        if (variant is None or variant.key != key or variant.reads.changed() is not None
                or variant.doubt > 1 and len(self._chooser.variants) > 1 or not variant.takes(template)):
            self._pace.budget.begin()
            variant = self._find_variant(key)
            if self._pace.given_up or variant is None:
                try:
                    return self._eager(inputs, self._pace.given_up)
                finally:
                    self._pace.budget.end(True)
        if self._changes.written_ahead:
            self._write_ahead(variant)
        self._forms.last, self._runner.given = REPLAYED, given
        return self._end_call(variant, tensors, self._call_library(tensors), facts if given is None else (given,))

    def _end_call(self, variant: _Variant | None, tensors: Sequence[Any], results: Any, facts: Any) -> Any:
        """What a call does after the library. ``variant``: None where the function ran, and its values were dropped. ``facts``: of the
        tensors; "more than tensors" is one."""
        form = self._forms.last
        made: dict[int, Any] = {}
        if form is not REPLAYED:
            self._pace.note_run()
            for left in form.left if form.is_recorded else ():
                left.end_recording(results, tensors, made, self._runner.gives_its_own)
            if (value := self._runner.returned(results)) is not NOTHING:
                return value
            return filled(form.result, iter(results))
        assert variant is not None
        self._pace.note_replay()
        if variant.numbers is not None:
            variant.numbers.replayed()
        for setting in variant.settings.values():
            setting.put()
        form = self._forms.of_replay(self._capture)
        for left in form.left:
            left.put(results, tensors, made)
        if form.assigned:
            self._changes.assigned.put(form.assigned)
        arm(self, variant, facts, form, len(tensors))
        return filled(form.result, iter(results))

    def _rested(self, inputs: Any) -> Any:
        """A call that is plain without a look at anything."""
        pace, is_timed = self._pace, self._pace.budget.timing > 0
        pace.rest -= 1
        if not (is_timed or pace.is_short):
            return self._eager(inputs)
        if is_timed:
            pace.budget.tick(False, 1)
        began = _budget.clock()
        try:
            return self._eager(inputs)
        finally:
            if pace.is_short:
                pace.note_short(_budget.clock() - began)
            if is_timed:
                pace.budget.end_plain()
                if not pace.rest:
                    pace.compare_times()

    def _write_ahead(self, variant: _Variant) -> None:
        """A replay reads options that the function writes before its update. The function itself begins with those of before (Runner._run)."""
        left = () if variant.numbers is None else variant.numbers.left()
        for optimizer, places in self._changes.written_ahead if left else ():
            ahead: dict[int, dict[str, Any]] = {}
            for group, key, number in places:
                if left[number] is not None:
                    ahead.setdefault(group, {})[key] = left[number]
            optimizer.write_numbers(ahead)

    def _call_library(self, tensors: Sequence[Any]) -> Any:
        variant = self._chooser.variant
        # It may run the function, or runs code apart, where no error of a handler can be raised.
        if variant is None or variant.watched_runs < _MOST_WATCHED or self._apart.has_run:
            signals.begin(self._runner)
        return self._of_library(self._call, self._capture, tensors)

    def _of_library(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The call, eager or a replay. An error of the function is raised as the function raised it."""
        try:
            return function(*arguments)
        except BaseException as error:
            raised = error
        # Outside of the handler, so that the function's error keeps its cause and its context.
        own = self._runner.take_error()
        self._pace.budget.drop()
        if own is None and _FAILED in str(raised) and threading.current_thread() is threading.main_thread():
            own = KeyboardInterrupt("as the function began, where nobody could raise what a signal's handler did")
        walk, changes = self._learner.last_walk, self._changes
        try:
            if own is not None:
                raise own
            if walk is not None and call("Capture.has_differed", self._capture) and (moved := walk.moved({**changes.own, **changes.settings})):
                raise type(raised)(f"{raised}\nSince the recording there changed: {', '.join(moved[:_MOST_MOVED])}.")
            raise raised
        finally:
            del raised, own  # which lead to this frame

    def _reason_for_python(self) -> str:
        if self._pace.given_up:
            return self._pace.given_up
        if self._keeps_parametrizations():
            return ("torch.nn.utils.parametrize.cached() keeps tensors from call to call, and calls inside of it run eagerly; enter it "
                    "inside of the function.")
        return ("A mode of Python is active, as torch.set_default_device() makes one, and calls inside of it run eagerly; "
                "call the step outside of the mode.")

    def _eager(self, inputs: Sequence[Any], reason: str = "") -> Any:
        """The function. ``reason``: why; "": as for the call before."""
        self._pace.python_calls += 1
        if reason:
            self._pace.eager_reason = Refusal(reason)
        self._texts.count_run()
        return self._plainly(inputs)

    def _plainly(self, inputs: Sequence[Any]) -> Any:
        if torch._C._functorch.maybe_current_level() is not None:
            return self._runner.apply(inputs)  # torch.func.grad() goes on with the results
        leaves: list[Any] = []
        value = self._runner.apply(inputs)
        form = form_of_results(value, leaves)
        if self._runner.gives_its_own:
            return value
        return filled(form, iter([leaf.detach() for leaf in leaves]))

    def save(self, path: str, *, names: dict[str, Any] | None = None, values: bool = True) -> None:
        """Writes the step to a file, with which :func:`load_step` trains without this function, in Python or in C++.

        The tensors of modules have the names of ``state_dict()``. ``names`` gives others: of tensors, or of modules as a
        beginning of their names. ``values=False`` leaves the values out. docs/guide/step_files.md tells more.
        """
        save_steps(path, {"step": self}, names=names, values=values)


def _optimizers_in(optimizer: Any) -> list[Any]:
    optimizers = [] if optimizer is None else list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    if not all(isinstance(one, torch.optim.Optimizer) for one in optimizers):
        raise TypeError(f"optimizer= is {optimizer!r} and must be a torch.optim.Optimizer or a list of them")
    return list(dict.fromkeys(optimizers))


def _roots_in(modules: Any) -> list[Any]:
    roots = [modules] if isinstance(modules, torch.nn.Module) else list(modules) if isinstance(modules, Iterable) else None
    if roots is None or not all(isinstance(module, torch.nn.Module) for module in roots):
        raise TypeError(f"modules= is {modules!r} and must be a torch.nn.Module or a list of them")
    return roots


def capture(function: Any = None, *, optimizer: Any = None, modules: Any = (),
            watch: Callable[[], Any] | None = None, constant_numbers: bool = False, constant_modes: bool = False,
            programs: int = 4096, check_every: int = 0, guards: str = "checked", passes: bool = True, lanes: int = 1,
            eager_calls: int = 1, always: bool = False) -> CapturedStep:
    """Records what ``function`` does in its first calls, and replays it afterwards with the same bits, without Python.

    ``function`` is a whole training step, or a method that is decorated. It takes tensors and numbers and returns tensors, alone or in
    tuples, lists and dicts. Optimizers whose ``step()`` it calls are found; ``optimizer`` names one, or a list of several: SGD,
    Adam, AdamW, Adagrad, Adamax, NAdam and RAdam, whose options are read in every call, so that learning rates may change;
    RMSprop, Adadelta, Rprop and those of your own classes, with a recording for each value.
    Numbers, flags, modules and containers that the function reads by its names are looked at in every call; another value
    has a recording of its own, and ``guards="promised"`` leaves them unlooked at; it wants optimizers named.
    ``watch`` is a function without arguments for values that no name leads to. ``passes=False`` makes every replay run every
    recorded operator. ``lanes=`` runs operators that do not need each other on up to so many threads, with the same bits;
    0: on as many as help. ``eager_calls=`` makes that many calls eager before the first is recorded: more than one show what an
    eager call takes, which ``save()`` writes to the file. Where replays turn out slower than eager calls, calls run eagerly, unless
    ``always=True``. docs/guide/capturing.md has the contract.

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
    if function is None:
        return functools.partial(  # type: ignore[return-value]
            capture, optimizer=optimizer, modules=modules, watch=watch, constant_numbers=constant_numbers, constant_modes=constant_modes,
            programs=programs, check_every=check_every, guards=guards, passes=passes, lanes=lanes, eager_calls=eager_calls, always=always)
    if not callable(function):
        raise TypeError(f"capture() was given {type(function).__name__} and takes a function")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError("capture() takes a plain function, and was given a coroutine or a generator")
    optimizers, roots = _optimizers_in(optimizer), _roots_in(modules)
    if watch is not None and not callable(watch):
        raise TypeError(f"watch= is {watch!r} and must be a function without arguments that returns the values")
    for name, flag in (("constant_numbers", constant_numbers), ("constant_modes", constant_modes), ("passes", passes), ("always", always)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name}= is {flag!r} and must be True or False")
    if guards not in ("checked", "promised"):
        raise ValueError(f'guards= is {guards!r} and must be "checked" or "promised"')
    options: dict[str, Any] = {"constant_numbers": constant_numbers, "constant_modes": constant_modes,
               "programs": whole_number("capture", "programs", programs, least=0),
               "check_every": whole_number("capture", "check_every", check_every, least=0), "guarded": guards == "checked",
               "passes": passes, "lanes": min(whole_number("capture", "lanes", lanes, least=0), 64),
               "eager_calls": whole_number("capture", "eager_calls", eager_calls, least=1), "always": always}

    def another(function: Callable[..., Any], copied: Callable[[Any], Any]) -> CapturedStep:
        step = CapturedStep(function, list(map(copied, optimizers)), list(map(copied, roots)), copied(watch), **options)
        functools.update_wrapper(step, function, updated=())
        step._another = another
        return step

    return another(function, itself)
