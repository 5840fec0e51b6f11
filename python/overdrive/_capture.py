"""A training step that is recorded once and replayed afterwards, without Python."""
from __future__ import annotations

import ctypes
import functools
import gc
import inspect
import itertools
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from overdrive._arguments import Arguments, Given, merged
from overdrive._call_numbers import CallNumbers, Shared, opened
from overdrive._capture_optimizer import _refuse, _Unrecorded
from overdrive._capture_optimizers import Optimizers
from overdrive._capture_results import filled, form_of_results, only_tensors
from overdrive._capture_texts import (HELD_GRADIENT, Number, gradients_of, in_python, is_one_held, levels_to_caller,
                                     other_number, steps, telling, with_lines)
from overdrive._code import RANDOM_NUMBERS, Met, Watcher
from overdrive._compare import _named_in
from overdrive._counters import Counter, decides, is_counted
from overdrive._facts import RESULT_OF_A_CLASS, SUBCLASS, Facts, is_of_a_class
from overdrive._guards import CELL, ENTRY, NOTHING, Read, Reads, is_number, is_scripted, states_of, structure_of
from overdrive._last_walk import LastWalk, is_one_number, without_collections
from overdrive._left import Left, Setting, can_be_left, can_be_put, tensors_in
from overdrive._library import OverdriveError, address_of, call, function as function_of, text as text_of, whole_number
from overdrive._modes import counts_of_modes
from overdrive._swap import let_go_before_swaps
from overdrive._walk import Walk
from overdrive._walk_names import KnownNames

_COUNTS = ("calls", "eager", "recorded", "checked", "replayed", "undone", "outdated", "backwards", "again")
_MOST_RESETS = 8
# As in replay/captured_function.cpp: what a recording costs in calls, by how much recordings may cost more than replays bring,
# and how many calls run eagerly then.
_COST, _MOST_DEBT, _REST, _MOST_RESTS = 18, 1500, 512, 8
_RECORDINGS = 3
# Runs of the function in turn after which the way through the library is left out for a while.
_MOST_RUNS = 64
# Calls without a replay after which a warning tells why.
_MOST_SILENT = 20
# Recordings with open numbers for the ways that the function goes by them, and by what it counts.
_MOST_BRANCHES, _MOST_WAYS = 4, 16
# Of values that the function read.
_MOST_SETS = 64
_REPLAYED: Any = object()
_MANY_WAYS = "The function goes many ways by numbers that it counts itself, and this is another one; count outside of the function."


class _Variant:
    """One set of values that the function read. The library has recordings of its own for each."""

    def __init__(self, number: int, key: tuple[Any, ...], reads: Iterable[Read]) -> None:
        self.number, self.key, self.reads = number, key, Reads(reads)
        self.watched_runs = self.recordings = 0
        # Of a key with open numbers, and of a function that counts.
        self.numbers: CallNumbers | None = None
        # Of flags and texts that the function changes, by their places.
        self.settings: dict[tuple[int, int, Any], Setting] = {}
        # Of the walk whose values are among the reads.
        self.walk_number = 0
        # Of NumPy, which the function may draw from.
        self.generators: list[Any] = []

    def takes(self, template: tuple[Any, ...]) -> bool:
        """Whether the recordings are those of a call with the same key; then the library gets the call's numbers."""
        return self.numbers is None or self.numbers.take(template)

    @property
    def doubt(self) -> int:
        """The less of it, the sooner a call that it takes is one of its own."""
        return 0 if self.numbers is None else self.numbers.doubt


class _Form:
    """The structure of what a call returns and of what it leaves, made of the results of the recording."""

    __slots__ = ("result", "left")

    def __init__(self, result: Any, left: Sequence[Left] = ()) -> None:
        self.result, self.left = result, left

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Form) and bool(self.result == other.result) and self.left == other.left

    def is_more_than(self, other: _Form) -> bool:
        """Whether it differs by places alone that an earlier call was not seen to give anything."""
        return bool(self.result == other.result) and len(self.left) > len(other.left) and all(one in self.left for one in other.left)

    __hash__ = None  # type: ignore[assignment]


class CapturedStep:
    """What :func:`capture` returns. Called with the function's tensors and numbers. While a thread is in a call, others run the
    function."""

    def __init__(self, function: Callable[..., Any], optimizers: Sequence[Any], modules: Iterable[Any],
                 watch: Callable[[], Any] | None, constant_numbers: bool, constant_modes: bool, programs: int,
                 check_every: int, guarded: bool = True, is_part: bool = False, name: str = "", passes: bool = True,
                 lanes: int = 1) -> None:
        import torch

        self._function, self._name = function, name
        self._guarded, self._is_part = guarded, is_part
        # Options that no tensor carries to a replay are looked at, or promised.
        self._optimizer = Optimizers(optimizers, function, constant_numbers or guarded) if optimizers else None
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
                             programs, check_every, passes, lanes, is_part)
        weakref.finalize(self, call, "Capture.free", self._capture)
        self._numbers = itertools.count()
        self._programs = max(1, programs)
        self._variants: list[_Variant] = []
        self._variant: _Variant | None = None
        # Tensors that the function names, in its last run.
        self._named: dict[int, Any] = {}
        # Of all runs of the function.
        self._met, self._met_functions = Met(), Met()
        # Values that the function changes itself: a replay does not, and nothing else is promised for them.
        self._own: dict[tuple[int, int, Any], Read] = {}
        self._last_walk: LastWalk | None = None
        self._known_names: KnownNames | None = None
        # Values of tensors that changed between two calls, which the function may write before it reads them.
        self._written_elsewhere: dict[tuple[int, int, Any], Read] = {}
        # Those of them that a replay puts in their places.
        self._left: dict[tuple[int, int, Any], Read] = {}
        # Those of them that are numbers, which go on in replays, too.
        self._counters: dict[tuple[int, int, Any], Counter] = {}
        # Of all runs of the function that were watched.
        self._codes: set[types.CodeType] = set()
        # Flags and texts that the function changes.
        self._settings: dict[tuple[int, int, Any], Read] = {}
        # Of open numbers by their places in the arguments: why each value has a recording of its own.
        self._not_open: dict[tuple[int, ...], str] = {}
        self._tensor = torch.Tensor
        self._facts = Facts(is_part)
        self._modes = counts_of_modes()
        self._call = function_of("Capture.call")
        self._structure: Reads | None = None
        # That the last recording made, and whether the program held one until the next.
        self._gradients: list[weakref.ref[Any]] = []
        self._holds_gradient = False
        # Of each recording the structure of its results, and parameters whose gradient zero_grad() takes away without
        # an operator.
        self._forms: dict[int, Any] = {}
        self._one_form: Any = None
        self._dropped: dict[int, list[Any]] = {}
        self._form: Any = None
        # Of the call under way, where they are more than tensors; of the run of the function, to see whether it changes them.
        self._given: Given | None = None
        self._containers: Given | None = None
        self._error: BaseException | None = None
        # While a thread is in a call, and that thread while it runs the function.
        self._busy = threading.Lock()
        self._running = 0
        self._resets = 0
        self._new_variants = 0
        # Calls that run eagerly from now on, how often there were such, and what recordings had cost until then.
        self._rest = self._rests = self._forgiven = 0
        # While it records: whether a step() of another optimizer is to be refused.
        self._looks_at_steps = True
        # Runs of the function without a replay between them.
        self._runs_in_turn = 0
        self._way_to_replays = (0, 0, 0)
        self._reset_reason = ""
        self._given_up = ""
        self._eager_reason = ""
        # Of each refusal those of the same recording, with their lines.
        self.reasons: dict[str, dict[str, str]] = {}
        # Of the last recording each operator with the lines that called it.
        self.lines: dict[str, dict[str, None]] = {}
        self._python_calls = 0
        self._runs_of_python = 0
        steps.add(self)
        let_go_before_swaps()

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        if not self._busy.acquire(blocking=False):
            return self._meanwhile(Arguments(list(inputs), keywords) if keywords else inputs)
        try:
            return self._call_alone(inputs, keywords)
        finally:
            self._busy.release()

    def _meanwhile(self, inputs: Any) -> Any:
        """The function, called by itself, or while another thread is in a call."""
        if self._running == threading.get_ident():
            reason = "The function calls the captured step itself; call the function there."
            _refuse(reason)
            return self._eager(inputs, reason)
        self._python_calls += 1
        return self._plainly(inputs)

    def _call_alone(self, inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
        template: tuple[Any, ...] = ()
        tensors: Sequence[Any] = inputs
        given = None
        if keywords or not all(isinstance(x, self._tensor) for x in inputs) or len(set(map(id, inputs))) < len(inputs):
            given = Given(inputs, keywords)
            template, tensors = given.template, given.tensors
            if keywords or given.reason:
                inputs = Arguments(list(inputs), keywords)  # type: ignore[assignment]
            if given.reason:
                return self._eager(inputs, given.reason)
        if self._given_up or any(count() for count in self._modes):
            return self._eager(inputs, self._reason_for_python())
        if self._rest and self._rests_now():
            return self._eager(inputs, self._eager_reason)
        optimizer = self._optimizer
        if optimizer is not None and (reason := optimizer.write_numbers()):
            self._given_up = reason
            return self._eager(inputs, reason)
        if optimizer is not None and optimizer.take_crossed():
            self._start_again("momentum or weight decay was switched on or off")
        if self._structure is not None and (changed := self._structure.changed()) is not None:
            self._start_again(changed.told() if changed.where else f"{changed.name} was changed")
        facts = self._facts.of(tensors)
        if facts is None:
            return self._eager(inputs, SUBCLASS)
        key = (template, None if self._watch is None else Number(self._watch()),
               () if optimizer is None else optimizer.gradients(), facts)
        variant = self._variant
        if (variant is None or variant.key != key or variant.reads.changed() is not None
                or variant.doubt > 1 and len(self._variants) > 1 or not variant.takes(template)):
            variant = self._find_variant(key)
            if self._given_up or variant is None:
                return self._eager(inputs, self._given_up or _MANY_WAYS)
        self._form, self._given = _REPLAYED, given
        results = self._call_library(tensors)
        form = self._form
        if form is not _REPLAYED:
            self._note_run()
        else:
            self._runs_in_turn = 0
            if variant.numbers is not None:
                variant.numbers.replayed()
            for setting in variant.settings.values():
                setting.put()
            form = self._one_form or self._forms[call("Capture.current", self._capture)]
            if optimizer is not None and optimizer.has_idle():
                for parameter in self._dropped.get(call("Capture.current", self._capture), ()):
                    parameter.grad = None
            for left in form.left:
                left.put(results, tensors)
        return filled(form.result, iter(results))

    def _call_library(self, tensors: Sequence[Any]) -> Any:
        """The call, eager or a replay. An error of the function is raised as the function raised it."""
        try:
            return self._call(self._capture, tensors)
        except BaseException:
            error, self._error = self._error, None
            if error is None:
                raise
            raise error from None

    def _reason_for_python(self) -> str:
        if self._given_up:
            return self._given_up
        if self._modes[-1]():
            return ("torch.nn.utils.parametrize.cached() keeps tensors from call to call, and calls inside of it run eagerly; enter it "
                    "inside of the function.")
        return ("A mode of Python is active, as torch.set_default_device() makes one, and calls inside of it run eagerly; "
                "call the step outside of the mode.")

    def _eager(self, inputs: Sequence[Any], reason: str) -> Any:
        self._python_calls += 1
        self._eager_reason = reason
        self._count_run()
        return self._plainly(inputs)

    def _plainly(self, inputs: Sequence[Any]) -> Any:
        leaves: list[Any] = []
        form = form_of_results(self._apply(inputs), leaves)
        return filled(form, iter([leaf.detach() for leaf in leaves]))

    def _inputs(self, template: Any, tensors: Sequence[Any]) -> Any:
        given, self._given = self._given, None
        self._containers = given
        return merged(template, tensors, given)

    def _apply(self, inputs: Any) -> Any:
        if isinstance(inputs, Arguments):
            return self._function(*inputs.by_place, **inputs.by_name)
        return self._function(*inputs)

    def _find_variant(self, key: tuple[Any, ...]) -> _Variant | None:
        """The values that the call has: known ones, or new ones. None: it is made eagerly, since the function has gone many ways
        by what it counts."""
        if self._optimizer is not None and self._optimizer.rebind():
            self._forget()
            self._given_up = self._optimizer.write_numbers()
            key = (*key[:2], self._optimizer.gradients(), key[3])
        before, reason = self._variant, ""
        if before is not None and before.key == key and (changed := before.reads.changed()) is not None:
            reason = changed.told()
            if changed.kind in (ENTRY, CELL) and tensors_in(changed.now()):
                self._written_elsewhere[changed.place] = changed
        elif before is not None and before.key[0] != key[0]:
            reason = other_number(before.key[0], key[0])
        elif before is not None and before.key[1] != key[1]:
            reason = "what watch= returns"
        elif before is not None and before.key[3] != key[3]:
            reason = self._facts.told()
        self._shared.count = 0
        fitting = [variant for variant in self._variants if variant.key == key and variant.reads.changed() is None]
        for variant in sorted(fitting, key=lambda each: each.doubt):
            if variant.takes(key[0]):
                self._variants.remove(variant)
                self._variants.append(variant)  # the last used one comes last
                break
        else:
            numbers = self._open_numbers(key)
            if numbers is not None:
                key = (numbers.template, *key[1:])
            elif self._counters:
                return None
            if len(self._variants) >= min(self._programs, _MOST_SETS):
                del self._variants[0]
            self._weigh_recordings(reason)
            training = [] if not self._modules else self._training()
            settings = [Read(read.kind, read.holder, read.key, read.name, read.where) for read in self._settings.values()]
            variant = _Variant(next(self._numbers), key, [*training, *settings])
            variant.settings = {read.place: Setting(read) for read in settings}
            variant.numbers = numbers
            self._variants.append(variant)
            self._new_variants += bool(reason)
            if reason:
                self._reset_reason = f"another value of {reason}"
            if self._new_variants >= _MOST_RESETS and self.stats()["replayed"] < 2 * self._new_variants and reason:
                self._given_up = (
                    f"In nearly every call there is another value of {reason}{self._why_not_open()}. Give it as an argument that is a tensor, "
                    "change it outside of the function, or promise by guards=\"promised\" that it does not matter.")
        self._variant = variant
        self._shared.variant = variant.number
        return variant

    def _open_numbers(self, key: tuple[Any, ...]) -> CallNumbers | None:
        """Floats that differ from those of an earlier call become values of a program, which takes whatever they are; so do the
        function's own counters."""
        if not self._guarded or self._is_part:
            return None
        for template in [*self._opened(key), *([key[0]] if self._counters else [])]:
            numbers = CallNumbers(template, list(self._counters.values()), self._shared)
            alike = sum(other.numbers is not None and other.numbers.places == numbers.places for other in self._variants)
            most = _MOST_WAYS if self._counters else _MOST_BRANCHES
            if numbers.places not in self._not_open and alike < most and numbers.take(key[0]):
                return numbers
        return None

    def _opened(self, key: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """Templates with the floats left open that differ from those of an earlier call, the last one first."""
        for known in reversed(self._variants):
            if key[0] and known.key[1:] == key[1:] and (template := opened(known.key[0], key[0])) is not None:
                yield template

    def _why_not_open(self) -> str:
        return "".join(f", which has a recording for each value since {reason}" for reason in list(self._not_open.values())[-1:])

    def _drop_open(self, variant: _Variant) -> None:
        assert variant.numbers is not None
        self._not_open[variant.numbers.places] = variant.numbers.refusal
        if variant in self._variants:
            self._variants.remove(variant)
        if self._variant is variant:
            self._variant = None

    def _weigh_recordings(self, reason: str) -> None:
        """Where recordings cost more than replays bring, calls run eagerly for a while, each time longer."""
        made = self.stats()
        debt = _COST * _RECORDINGS * (self._new_variants + self._resets) - made["replayed"] - self._forgiven
        if debt > _MOST_DEBT:
            self._forgiven += debt // 4
            self._begin_rest(f"Recordings are made so often, and fit so seldom, that nothing is gained. The last reason: "
                             f"{reason or self._reset_reason or 'other arguments'}.")

    def _begin_rest(self, reason: str) -> None:
        self._rest = _REST << min(self._rests, _MOST_RESTS)
        self._rests += 1
        self._runs_in_turn = 0
        self._eager_reason = f"{reason} The next {self._rest} calls run eagerly."

    def _note_run(self) -> None:
        self._runs_in_turn += 1
        if self._runs_in_turn > _MOST_RUNS:
            # Sizes that are new, or are being recorded, are on their way to replays. The library counts its recordings.
            before, made = self._way_to_replays, self.stats()
            newest = max(before[-1], call("Capture.current", self._capture))
            self._way_to_replays = made["recorded"], made["checked"], newest
            if self._way_to_replays != before:
                self._runs_in_turn = 0
                return
            reason = self.refusal() or self._reason_of_last_call()
            self._begin_rest(reason if reason.endswith(".") else f"{reason}.")

    def _rests_now(self) -> bool:
        if not self._rest:
            return False
        self._rest -= 1
        return True

    def _training(self) -> list[Read]:
        return [Read(ENTRY, module.__dict__, "training", f"training of {type(module).__name__}")
                for module in self._modules if (ENTRY, id(module.__dict__), "training") not in self._own]

    def _start_again(self, reason: str) -> None:
        self._resets += 1
        self._reset_reason = reason
        self._forget()
        self._weigh_recordings(reason)
        if self._resets >= _MOST_RESETS and self.stats()["replayed"] < 2 * self._resets:
            self._given_up = f"In nearly every call {reason}."

    def let_go(self) -> None:
        """Before tensors are swapped, which must have no weak references, as recordings hold them."""
        if self._running:
            raise OverdriveError("torch.utils.swap_tensors() was called while a captured step was under way; call it outside of "
                                 f"the function. The step: {self.title()}.")
        if self._variants:
            self._start_again("tensors are swapped (torch.utils.swap_tensors)")

    def _forget(self) -> None:
        call("Capture.reset", self._capture)
        self._structure = self._variant = self._one_form = None
        self._variants.clear()
        self._forms.clear()
        self._dropped.clear()
        self._own.clear()
        self._gradients.clear()
        self._left.clear()
        self._counters.clear()
        self._settings.clear()
        self._written_elsewhere.clear()
        self._last_walk = self._known_names = None
        self._modules = self._named_modules()

    def _named_modules(self) -> dict[Any, None]:
        """Those that were given, and those that the function names now."""
        import torch

        values = [value for _, value in _named_in(self._function)]
        named = [item for value in values for item in (value if isinstance(value, (list, tuple)) else [value])
                 if isinstance(item, torch.nn.Module)]
        return dict.fromkeys(module for root in [*self._roots, *named] for module in root.modules() if not is_scripted(module))

    def _run(self) -> int:
        """The function, called by the library: in a call that is recorded, or eager."""

        self._running = threading.get_ident()
        try:
            recorded = call("Recording.is_active")
            self._count_run()
            with _Unrecorded():
                tensors = call("Recording.inputs")
            variant = self._variant
            assert variant is not None
            numbers = variant.numbers
            inputs = self._inputs(variant.key[0] if numbers is None else numbers.begin(recorded), tensors)
            entry = call("Capture.current", self._capture)
            had = [] if self._optimizer is None else self._optimizer.with_gradient()
            with telling(self):
                value = self._run_function(variant, inputs, recorded)
                del inputs
                variant.key = (*variant.key[:3], self._facts.of(tensors))
                leaves: list[Any] = []
                result = self._form_of(value, leaves)
                with _Unrecorded():
                    self._form = _Form(result, [Left(read, leaves, tensors) for read in self._left.values()])
                if any(is_of_a_class(leaf) for leaf in leaves):
                    self._given_up = RESULT_OF_A_CLASS
                if numbers is not None:
                    numbers.end(recorded)
                    self._tell_refusal(variant, numbers, recorded)
                if recorded:
                    self._check_form(entry)
            with _Unrecorded():
                if recorded:
                    # Tensors in cycles are nobody's, and would look as if the program kept them.
                    gc.collect(1)
                    lasting = self._lasting()
                    self._holds_gradient |= is_one_held(self._gradients, lasting)
                    self._gradients = gradients_of(lasting)
                    call("Recording.owners", lasting)
                call("Recording.results", leaves)
            if self._optimizer is not None:
                self._optimizer.note_idle()
                if recorded:
                    self._dropped[entry] = [parameter for parameter in had if parameter.grad is None]
            if numbers is not None and numbers.refusal and not numbers.counters:
                self._drop_open(variant)
            if self._structure is None or self._structure.changed() is not None or recorded:
                variant.reads.add(self._training())
                self._structure = Reads([*structure_of(self._modules),
                                         *([] if self._optimizer is None else self._optimizer.structure())])
            return 1
        except BaseException as error:  # the caller raises it
            self._error = error
            return 0
        finally:
            self._running = 0

    def _tell_refusal(self, variant: _Variant, numbers: CallNumbers, recorded: bool) -> None:
        """No value of a counter comes again, so that a recording for each would gain nothing."""
        if recorded and numbers.refusal and numbers.counters:
            names = ", ".join(counter.told() for counter in numbers.counters)
            _refuse(f"The function counts in {names}, and a replay cannot tell what it makes of that: {numbers.refusal}. Count outside of the "
                    "function, and give it what depends on the count as an argument.")

    def _lasting(self) -> list[Any]:
        """Tensors that an operator may see through a passing copy, as ``data`` makes it, and whose gradients the function may take
        away without an operator, as ``zero_grad()`` does."""
        tensors = list(self._named.values())
        for module in self._modules:
            tensors += [*module._parameters.values(), *module._buffers.values()]
        if self._optimizer is not None:
            tensors += self._optimizer.parameters()
        return [tensor for tensor in tensors if tensor is not None]

    def _form_of(self, value: Any, leaves: list[Any]) -> Any:
        return form_of_results(value, leaves)

    def _run_function(self, variant: _Variant, inputs: Sequence[Any], recorded: bool) -> Any:
        run = self._record if recorded else self._apply
        if not self._guarded:
            return run(inputs)
        try:
            if not recorded and variant.watched_runs > 0:
                return run(inputs)
            watcher = Watcher(_refuse if recorded else None, self._met, self._refuse_unknown)
            watcher.book = None if variant.numbers is None else variant.numbers.book
            drawn = states_of(variant.generators) if recorded else None
            before = [read.now() for read in self._written_elsewhere.values()]
            with watcher:
                value = run(inputs)
            self._codes.update(watcher.nn_codes, (code for code, _ in watcher.codes))
            if variant.numbers is not None:
                variant.numbers.look_at(self._codes)
            self._note_written(before)
            if drawn is not None and drawn != states_of(variant.generators):
                _refuse(RANDOM_NUMBERS)
        finally:
            if variant.numbers is not None:
                variant.numbers.settle()
            if variant.reads.changed() is not None:
                changed = variant.reads.drop_changed()
                if not all(map(is_one_number, changed.values())):
                    self._last_walk = None
                self._note_own(changed)
            if recorded:
                self._note_settings(variant)
        with _Unrecorded():
            try:
                with without_collections():
                    walk = self._learn(variant, watcher)
                if recorded:
                    self._tell_numbers(watcher, walk)
            except Exception as error:  # noqa: BLE001 - an object of the program that cannot be looked at
                _refuse(f"What the function reads could not be looked at: {type(error).__name__}: {error}; promise by "
                        "guards=\"promised\" that it does not change.")
        variant.watched_runs += 1
        return value

    def _note_written(self, before: Sequence[Any]) -> None:
        """What the function gives a new value in each call need not be the same before the call, if it does not read it."""
        for (place, read), value in zip(list(self._written_elsewhere.items()), before):
            if read.now() is not value and can_be_left(read):
                read.expected = NOTHING
                self._own[place] = self._left[place] = read
                del self._written_elsewhere[place]

    def _note_own(self, changed: dict[Any, Read]) -> None:
        """What the function has changed while it ran. A tensor that it gives a name anew stays the recorded one in replays."""
        self._take_settings(changed)
        self._own.update(changed)
        for place, read in changed.items():
            if is_counted(read.expected, read.now()):
                self._begin_to_count(place, read)
                continue
            is_tensor = isinstance(read.now(), self._tensor) and isinstance(read.expected, self._tensor)
            if not self._is_made_of_the_old(read):
                if can_be_left(read):
                    self._left[place] = read
            elif is_tensor:
                _refuse(f"The function gives {read.told()}, another tensor in each call; keep one tensor, and copy values into it "
                        "(copy_).")
        self._let_go_of_old(changed)

    def _begin_to_count(self, place: tuple[int, int, Any], read: Read) -> None:
        """A number by which the function decides something goes on in replays. No recording so far knows what it makes of it. One that
        only counts counts the runs of Python."""
        if self._guarded and place not in self._counters and can_be_put(read) and decides(read, self._codes):
            self._counters[place] = Counter(read)
            self._variants.clear()
            self._variant = None

    def _take_settings(self, changed: dict[Any, Read]) -> None:
        """Takes out flags and texts: a call leaves one in the place of another, and its recording is for that other one."""
        variant = self._variant
        assert variant is not None
        for place, read in list(changed.items()):
            now = read.now()
            if is_number(now) and is_number(read.expected) and can_be_put(read) and not is_counted(read.expected, now):
                del changed[place]
                self._settings[place] = read
                variant.settings.setdefault(place, Setting(read))
                variant.reads.add([read])

    def _note_settings(self, variant: _Variant) -> None:
        for setting in variant.settings.values():
            if not setting.note(variant.recordings == 0):
                _refuse(f"The function changes {setting.before.told()}, and leaves another value in each call; change it outside of the function.")
        variant.recordings += 1

    def changes_of_its_own(self) -> str:
        """One value that the function changes, and a replay does not; "" where it was seen to change none."""
        return next((read.told() for place, read in [*self._own.items(), *self._settings.items()] if place not in self._left), "")

    def give_up(self, reason: str) -> None:
        """From here on every call is eager, until reset()."""
        self._given_up = reason

    def _let_go_of_old(self, changed: dict[Any, Read]) -> None:
        """What the program has dropped must die as it would: a recording looks at what is held."""
        for read in changed.values():
            if not is_number(read.expected):
                read.expected = NOTHING
        nobodys = [place for place, read in self._own.items() if sys.getrefcount(read.holder) <= 2]
        for place in nobodys:
            del self._own[place]

    def _is_made_of_the_old(self, read: Read) -> bool:
        """Whether the call that is recorded has used what was there before."""

        return any(call("Recording.knows", tensor) for tensor in tensors_in(read.expected))

    def _tell_numbers(self, watcher: Watcher, walk: Walk) -> None:
        """A number is written in the code, or comes from a value that is looked at in every call, or may change unseen."""
        own = next((f"the function changes {read.told()}, and a replay does not, so that the number may be another one later"
                    for place, read in self._own.items() if place not in {**self._left, **self._counters}
                    and not isinstance(read.now(), self._tensor)), "")
        call("Recording.unseen_numbers", own or walk.unseen or watcher.unseen)

    def _learn(self, variant: _Variant, watcher: Watcher) -> Walk:
        last = self._last_walk
        new = None if last is None else last.look(watcher, self._left)
        if last is None or new is None:
            last = self._last_walk = LastWalk(watcher, self._left, self._own, self._known_names, self._function, self._roots)
        if new is None or variant.walk_number != last.number:
            variant.walk_number, new = last.number, last.reads()
        walk = last.of_one_call(self._met_functions, watcher.found())
        self._known_names = last.walk.known_names()
        new += walk.beyond()
        for reason in walk.refusals:
            _refuse(reason)
        self._modules.update(dict.fromkeys(walk.modules))
        variant.generators = walk.generators
        self._facts.ask(walk.names())
        self._named = walk.leaves
        self._facts.ask_for_gradients_of(self._lasting())
        if self._optimizer is not None:
            self._optimizer.note_names(new)
            new += self._optimizer.options_read()
        variant.reads.add(read for read in new if read.place not in self._own)
        variant.reads.leave_out(self._own)
        return walk

    def _record(self, inputs: Sequence[Any]) -> Any:
        ours = self._optimizer
        if ours is not None and (reason := ours.refusal()):
            _refuse(reason)
            ours = None
        self._looks_at_steps = ours is not None or self._optimizer is None
        # Guards look at the hooks of all modules, so that a recording beside other threads has none.
        hooks = [] if self._guarded else self._hooks_of_a_recording(ours)
        if ours is not None:
            ours.begin()
        try:
            value = self._apply(inputs)
        finally:
            if ours is not None:
                ours.end()
            for hook in hooks:
                hook.remove()
        if ours is not None:
            ours.check_steps()
        return value

    def _hooks_of_a_recording(self, ours: Any) -> list[Any]:
        """Notes the modules that are called, and optimizers that are not known, where nothing watches the code."""
        import torch.nn.modules.module as every_module
        import torch.optim.optimizer as every_optimizer

        thread = threading.get_ident()

        def note_module(module: Any, _: Any) -> None:
            if threading.get_ident() == thread:
                self._modules[module] = None

        def note_optimizer(stepping: Any, *_: Any) -> None:
            if threading.get_ident() == thread:
                refuse_optimizer(stepping)

        hooks = [every_module.register_module_forward_pre_hook(note_module)]
        if ours is not None or self._optimizer is None:
            hooks.append(every_optimizer.register_optimizer_step_pre_hook(note_optimizer))
        return hooks

    def _refuse_unknown(self, optimizer: Any) -> None:
        if self._looks_at_steps and (self._optimizer is None or not self._optimizer.knows(optimizer)):
            refuse_optimizer(optimizer)

    def _check_form(self, entry: int) -> None:
        if self._given_up:
            _refuse(self._given_up)
        elif self._containers is not None and (changed := self._containers.first_changed()):
            _refuse(f"The function changes a {changed} that it is given, and a replay would not; change a copy of it.")
        elif not only_tensors(self._form.result):
            _refuse("The function returns something that is not a tensor; return tensors, and read them outside.")
        elif not self._note_form(entry):
            _refuse("The function returns its tensors in another structure than before; return the same one.")

    def _note_form(self, entry: int) -> bool:
        """Whether the form is that of the recordings before."""
        known = self._forms.get(entry)
        if known is None or self._form.is_more_than(known):
            self._forms[entry] = self._form
        elif known != self._form:
            return False
        forms = list(self._forms.values())
        self._one_form = forms[0] if all(form == forms[0] for form in forms) else None
        return True

    def _count_run(self) -> None:
        self._runs_of_python += 1
        if self._runs_of_python == _MOST_SILENT + 1 and not self.stats()["replayed"]:
            warnings.warn(f"The captured step {self.title()} has run {_MOST_SILENT} calls and replayed none. "
                          f"{self.refusal()}", stacklevel=levels_to_caller())

    def takes_closures(self) -> bool:
        return self._optimizer is not None and self._optimizer.takes_closures()

    def title(self) -> str:
        if self._name:
            return self._name
        function = self._function
        while isinstance(function, functools.partial):
            function = function.func
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        name = getattr(function, "__qualname__", type(function).__name__)
        return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name

    def save(self, path: str, *, names: dict[str, Any] | None = None, values: bool = True) -> None:
        """Writes the step to a file, with which :func:`load_step` trains without this function, in Python or in C++.

        The tensors of modules have the names of ``state_dict()``. ``names`` gives others: of tensors, or of modules as a
        beginning of their names. ``values=False`` leaves the values out. docs/guide/step_files.md tells more.
        """
        from overdrive._step_file import save_steps

        save_steps(path, {"step": self}, names=names, values=values)

    def reset(self) -> None:
        """Forgets every recording: for changes that nothing looks at."""
        self._forget()
        self._not_open.clear()
        self._given_up = ""
        self._resets = self._new_variants = self._rest = 0

    def stats(self) -> dict[str, int]:
        """How many calls were what: "calls", "eager", "recorded", "checked", "replayed", "undone", "outdated". Of a part
        also the replayed "backwards", and those that ran the function "again"."""
        result: dict[str, int] = dict(zip(_COUNTS, call("Capture.stats", self._capture)))
        result["calls"] += self._python_calls
        result["eager"] += self._python_calls
        result["outdated"] += self._resets
        return result

    def refusal(self) -> str:
        """Why calls are not replayed: a reason that stays, or, while nothing was replayed, that of the last call.
        "" when calls are replayed or recorded."""
        text = self._given_up or (self._eager_reason if self._rest else text_of("Capture.refusal", self._capture))
        if not text:
            counts = self.stats()
            if counts["replayed"] == 0 and counts["calls"] > 4:
                text = self._eager_reason or self._reason_of_last_call()
        told = with_lines(text, self.reasons.get(text, {}), self.lines)
        return f"{told} {HELD_GRADIENT}" if self._holds_gradient and "is still held after the next" in text else told

    def refused_for_good(self) -> str:
        """Why no call is ever replayed; "" as long as one is or may be."""
        text = self._given_up or text_of("Capture.refusal", self._capture)
        return "" if not text or self.stats()["replayed"] else text

    def _reason_of_last_call(self) -> str:
        for line in text_of("Capture.explain", self._capture).splitlines():
            for start in ("the last call that was eager for another reason: ", "recorded anew the last time because: "):
                if line.startswith(start):
                    return line[len(start):]
        if self._new_variants or self._resets:
            return f"Nearly every call is recorded anew: {self._reset_reason}."
        return ("Calls are still recorded: each set of sizes, modes and values takes four calls before its first replay; where sizes "
                "differ in every call, pad batches to a few.")

    def explain(self) -> str:
        """The programs, their operators and memory, and why they were recorded anew."""
        lines = text_of("Capture.explain", self._capture).splitlines(keepends=True)[1:]
        made = self.stats()
        text = ", ".join(f"{made[name]} {name}" for name in ("replayed", "recorded", "checked", "eager", "undone"))
        text = f"{made['calls']} calls: {text}\n" + in_python("".join(lines))
        guards = sum(len(variant.reads) for variant in self._variants)
        text += f"{len(self._variants)} sets of values that the function reads, {guards} values in all\n"
        if self._reset_reason:
            text += f"recorded anew the last time because of {self._reset_reason}\n"
        if self._eager_reason and not self._given_up:
            text += f"the last call that Python made eagerly: {self._eager_reason}\n"
        refusal = self.refusal()
        return text + (f"refused: {refusal}\n" if refusal and f"refused: {refusal}\n" not in text else "")


def capture(function: Callable[..., Any], *, optimizer: Any = None, modules: Any = (),
            watch: Callable[[], Any] | None = None, constant_numbers: bool = False, constant_modes: bool = False,
            programs: int = 4096, check_every: int = 0, guards: str = "checked", passes: bool = True, lanes: int = 1) -> CapturedStep:
    """Records what ``function`` does in its first calls, and replays it afterwards with the same bits, without Python.

    ``function`` is a whole training step. It takes tensors and numbers and returns tensors, alone or in tuples, lists and
    dicts. ``optimizer`` is the one whose ``step()`` it calls, or a list of several: SGD, Adam, AdamW, Adagrad, Adamax, NAdam and
    RAdam, whose options are read in every call, so that learning rates may change; RMSprop, Adadelta and Rprop, with a
    recording for each value.
    Numbers, flags, modules and containers that the function reads by its names are looked at in every call; another value
    has a recording of its own, and ``guards="promised"`` leaves them unlooked at.
    ``watch`` is a function without arguments for values that no name leads to. ``passes=False`` makes every replay run every
    recorded operator. ``lanes=`` runs operators that do not need each other on up to so many threads, with the same bits;
    0: on as many as help. docs/guide/capturing.md has the contract.

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
    optimizers = [] if optimizer is None else list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    if not all(isinstance(one, torch.optim.Optimizer) for one in optimizers):
        raise TypeError(f"optimizer= is {optimizer!r} and must be a torch.optim.Optimizer or a list of them")
    if watch is not None and not callable(watch):
        raise TypeError(f"watch= is {watch!r} and must be a function without arguments that returns the values")
    roots = modules
    if isinstance(modules, torch.nn.Module):
        roots = [modules]
    elif isinstance(modules, Iterable):
        roots = list(modules)
    if not isinstance(roots, list) or not all(isinstance(module, torch.nn.Module) for module in roots):
        raise TypeError(f"modules= is {modules!r} and must be a torch.nn.Module or a list of them")
    for name, flag in (("constant_numbers", constant_numbers), ("constant_modes", constant_modes), ("passes", passes)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name}= is {flag!r} and must be True or False")
    if guards not in ("checked", "promised"):
        raise ValueError(f'guards= is {guards!r} and must be "checked" or "promised"')
    return CapturedStep(function, list(dict.fromkeys(optimizers)), roots, watch, constant_numbers, constant_modes,
                        whole_number("capture", "programs", programs, least=0),
                        whole_number("capture", "check_every", check_every, least=0), guards == "checked", passes=passes,
                        lanes=min(whole_number("capture", "lanes", lanes, least=0), 64))


def refuse_optimizer(optimizer: Any) -> None:
    _refuse(f"The function calls step() of an optimizer ({type(optimizer).__name__}) that the step does not know; give it by optimizer=, "
            "which takes a list of several, too.")
