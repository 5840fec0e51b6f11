"""A run of a captured function, recorded or eager."""
from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Sequence
from typing import Any

from overdrive.effects.items import returned_items
from overdrive.effects.left import can_be_left, tensors_in
from overdrive.effects.places import Places
from overdrive.effects.surroundings import changed_since, surroundings, without_collections
from overdrive.native import signals
from overdrive.native.dynamo import around
from overdrive.native.library import call
from overdrive.native.recording import _refuse, _Unrecorded
from overdrive.numbers.executed import Executed
from overdrive.numbers.tracked import plain
from overdrive.reads.code import RANDOM_NUMBERS, Watcher
from overdrive.reads.last_walk import is_one_number
from overdrive.reads.optimizers import is_of_the_program
from overdrive.reads.walk import Walk
from overdrive.step import budget as _budget
from overdrive.step.apart import Apart
from overdrive.step.explain import Texts
from overdrive.step.pace import Pace
from overdrive.step.learn import NOT_CHANGED_BY_REPLAYS, Learner
from overdrive.step.reasons import Kept, telling
from overdrive.step.subject import refuse_optimizer
from overdrive.step.variant import Forms, _Form, _Variant
from overdrive.values.arguments import Arguments, Given, given_in, merged
from overdrive.values.facts import RESULT_OF_A_CLASS, is_of_a_class
from overdrive.values.forms import containers_in, form_of_results, make_plain, only_tensors, others_in, without_items
from overdrive.values.read import ENTRY, NOTHING, VALUES, Alike, Read
from overdrive.values.same import states_of


class Runner:
    """Runs a captured function, recorded or eager. Owned by its step; the library calls _run() on the thread that is in the call. Shows the learner
    what there is to see, and keeps what the function returned, or threw, for the end of the call. Parts have one of their own kind: what a call
    is given (_inputs, apply), what it returns (_form_of), and a backward that runs the function again."""

    def __init__(self, capture: Any, pace: Pace, learner: Learner, apart: Apart, forms: Forms, texts: Texts) -> None:
        self._capture, self._pace, self._learner, self._apart, self._forms, self._texts = capture, pace, learner, apart, forms, texts
        self._subject, self._changes, self._chooser = learner.subject, learner.changes, learner.chooser
        # Of the call under way, where they are more than tensors; of the run of the function, to see whether it changes them.
        self.given: Any = None
        self._containers: Given | None = None
        self._objects: Sequence[Any] = ()
        self._error: BaseException | None = None
        # What the function has returned in the call under way, and its tensors.
        self._made: tuple[Any, list[Any]] | None = None
        # Those of the inputs of the call that stand at places of the program; they come last.
        self.carried: Sequence[Any] = ()
        # Whether a replay could not make what it returns or leaves, as far as the last recorded call has shown.
        self.gives_its_own = False
        # Whether the last run returned numbers of the call's own.
        self._returns_numbers = False
        # That runs the function; 0: none.
        self.thread = 0

    @around
    def _run(self) -> int:
        """The function, called by the library: in a call that is recorded, or eager. By this name reads/code.py knows where the function begins."""
        self.thread = threading.get_ident()
        self._pace.budget.begin()
        try:
            recorded = call("Recording.is_active")
            if recorded or self._chooser.variant is None or not self._chooser.variant.watched_runs:
                signals.begin(self)
            self._texts.count_run()
            if self._changes.written_ahead:
                self._subject.optimizers.write_numbers()
            with _Unrecorded():
                tensors = call("Recording.inputs")
            variant = self._chooser.variant
            assert variant is not None
            _value, leaves = self._run_variant(variant, tensors, recorded)  # the value lives on until the library knows its tensors
            with _Unrecorded():
                if recorded:
                    # Tensors in cycles are nobody's, and would look as if the program kept them.
                    gc.collect(1)
                    lasting = self._subject.lasting_tensors()
                    self._texts.note_gradients(lasting)
                    call("Recording.owners", lasting)
                call("Recording.results", leaves)
            self._note_end(variant, recorded)
            return 1
        except BaseException as error:  # the caller raises it
            self._error = error
            if self._chooser.variant is not None and self._chooser.variant.numbers is not None:
                self._chooser.variant.numbers.abandon()
            return 0
        finally:
            self.thread = 0

    def _run_variant(self, variant: _Variant, tensors: Sequence[Any], recorded: bool) -> tuple[Any, list[Any]]:
        """What the function returns, and the tensors of this and of what it leaves."""
        numbers, changes = variant.numbers, self._changes
        inputs = self._inputs(variant.key[0] if numbers is None else numbers.begin(recorded), tensors)
        entry = call("Capture.current", self._capture)
        changes.begin_run()
        if recorded:
            self.gives_its_own = False
        with telling(self._texts, self._apart):
            value = self._run_function(variant, inputs, recorded)
            del inputs
            variant.key = (*variant.key[:3], self._subject.facts.of(tensors))
            leaves: list[Any] = []
            result = self._form_of(value, leaves)
            self._returns_numbers = make_plain(result, plain)
            # What the call leaves behind comes to the leaves later. A step's recorded call returns others.
            if self._subject.is_part or not recorded or self.gives_its_own:
                self._made = value, leaves
            with _Unrecorded():
                places = Places(changes.left.reads.values(), changes.before, leaves, tensors)
                self._forms.last = _Form(result, places, recorded, changes.assigned.written)
                if found := next((left.read.told() for left in places.left if left.has_found()), ""):
                    self.gives_its_own, self._made = True, (value, leaves)
                    _refuse(f"The function gives {found} a tensor that was there before the call, which a replay cannot find; give its clone().")
            if any(is_of_a_class(leaf) for leaf in leaves):
                self._pace.given_up = RESULT_OF_A_CLASS
            if numbers is not None:
                numbers.end(recorded, lambda: sum(self._pace.stats()[name] for name in ("replayed", "checked")))
                if numbers.differs and numbers.counters and not self._subject.facts.has_sizes:
                    self._subject.facts.has_sizes = self._learner.is_outdated = True
                else:
                    self._learner.tell_refusal(numbers, recorded)
            if recorded:
                self._check_form(entry)
        return value, leaves

    def _note_end(self, variant: _Variant, recorded: bool) -> None:
        """Drops recordings that do not know what is known now."""
        numbers, chooser = variant.numbers, self._chooser
        self._subject.optimizers.note_idle()
        # A run that has found a counter has no recording: the next call begins with it.
        if numbers is not None and numbers.refusal and not numbers.counters and variant in chooser.variants:
            chooser.drop_open(variant)
        if numbers is not None and numbers.stands_still:
            chooser.drop(variant)
        if self._learner.is_outdated:
            self._learner.is_outdated = False
            chooser.drop_all()
        self._note_structure(variant, recorded)
        variant.structure = self._subject.structure

    def _note_structure(self, variant: _Variant, recorded: bool) -> None:
        """What modules and optimizers are made of, where a recording may have met more than was known."""
        subject = self._subject
        others = subject.changed_structure()
        is_known = subject.structure is not None and not others
        # Parameters and buffers are looked at by themselves.
        tensors = {id(entries) for module in subject.modules for entries in (module._parameters, module._buffers)} if others else ()
        if recorded and (changed := next((read for read in others if id(read.holder) not in tensors), None)) is not None:
            _refuse(f"The function changes {changed.name}, and a replay would not; do it outside.")
        if others:
            self._chooser.drop_all()  # they were made with what this run has replaced
        if recorded or not is_known:
            variant.reads.add(subject.training(self._changes.own))
            subject.note_structure(is_known, self._changes.left.reads)

    def returned(self, results: Sequence[Any]) -> Any:
        """What the function has returned in this call, where the library returns its tensors and no copies; else nothing."""
        made, self._made = self._made, None
        if made is None:
            return NOTHING
        value, leaves = made
        is_it = self.gives_its_own or len(leaves) == len(results) and all(a is b for a, b in zip(leaves, results))
        return without_items(value, plain) if is_it else NOTHING

    def take_error(self) -> BaseException | None:
        """What the function has thrown in this call, which has no results."""
        error, self._error, self._made = self._error, None, None
        return error

    def _inputs(self, template: Any, tensors: Sequence[Any]) -> Any:
        given, self.given = self.given, None
        self._containers = given
        self._objects = () if given is None else given.objects
        return merged(template, tensors[:len(tensors) - len(self.carried)], given)

    def apply(self, inputs: Any) -> Any:
        if isinstance(inputs, Arguments):
            return self._subject.function(*inputs.by_place, **inputs.by_name)
        return self._subject.function(*inputs)

    def _timed(self, inputs: Any) -> Any:
        """The function, eager and unwatched: what it takes goes into step files. It may run because a replay was taken back."""
        start = time.perf_counter()
        self._subject.optimizers.put_options_of_the_call()
        with self._subject.schedulers.apart(self._subject.optimizers):
            value = self.apply(inputs)
        call("Recording.took", time.perf_counter() - start)
        return value

    def _form_of(self, value: Any, leaves: list[Any]) -> Any:
        return form_of_results(value, leaves)

    def _run_function(self, variant: _Variant, inputs: Sequence[Any], recorded: bool) -> Any:
        if not self._subject.guarded:
            return self._record(inputs, contextlib.nullcontext()) if recorded else self._timed(inputs)
        if recorded:
            self._changes.begin_recording()
        try:
            if not recorded and (variant.watched_runs > 0 or self._pace.is_closed()):
                return self._timed(inputs)
            watcher = Watcher(_refuse if recorded else None, self._learner.met, self._subject.note_stepping)
            value = self._run_watched(variant, watcher, inputs, recorded)
        finally:
            if variant.numbers is not None:
                variant.numbers.settle()
            only_read = self._note_changes(variant, recorded)
        objects, self._objects = self._objects, ()
        with _Unrecorded():
            try:
                with without_collections():
                    walk = self._learner.learn(variant, watcher, only_read, objects, recorded)
                if recorded:
                    self._learner.tell_numbers()
                    self._learner.refuse_second_names(variant, self.carried)
                    self._look_at_results(value, walk)
                elif self._learner.has_met_one_of(containers_in(value)):
                    self.gives_its_own = True  # a recording refuses it
            except Exception as error:  # noqa: BLE001 - an object of the program that cannot be looked at
                _refuse(f"What the function reads could not be looked at: {type(error).__name__}: {error}; promise by "
                        "guards=\"promised\" that it does not change.")
        variant.watched_runs += 1
        self._learner.carry_what_is_fed()
        self._learner.count_options()
        return value

    def _run_watched(self, variant: _Variant, watcher: Watcher, inputs: Sequence[Any], recorded: bool) -> Any:
        pace, learner, numbers = self._pace, self._learner, variant.numbers
        watcher.book = None if numbers is None else numbers.book
        watcher.given = {id(each) for each in given_in(inputs)} if recorded else set()
        drawn = states_of(variant.generators) if recorded else None
        around = surroundings() if recorded else {}
        before = [read.now() for read in self._changes.written_elsewhere.values()]
        began = 0 if recorded or pace.budget.is_off else _budget.clock()
        with self._subject.schedulers.apart(self._subject.optimizers), without_collections():
            if recorded:
                uses = () if numbers is None else numbers.silent_uses(learner.codes)
                executed = Executed([*self._changes.left.find_stores(learner.codes), *uses])
                if numbers is not None:
                    numbers.executed = executed
                with executed:
                    value = self._record(inputs, watcher)
                self._changes.left.note_stores(executed)
            else:
                with watcher:
                    value = self.apply(inputs)
        if began:
            pace.note_watched(_budget.clock() - began)
        learner.note_code(watcher)
        if numbers is not None:
            numbers.look_at(learner.ran, learner.codes)
        learner.note_written(before)
        if drawn is not None and drawn != states_of(variant.generators):
            _refuse(RANDOM_NUMBERS)
        self._changes.of_settings = self._changes.of_settings or changed_since(around)
        if self._changes.of_settings:
            _refuse(self._changes.of_settings)
        return value

    def _note_changes(self, variant: _Variant, recorded: bool) -> dict[tuple[int, int, Any], Read]:
        """What the run has changed, and code that runs apart in it. Returns what it has only read of what other runs change."""
        learner, changes = self._learner, self._changes
        changes.assigned.end()
        if changes.apart or variant.reads.changed() is not None:
            changed = variant.reads.drop_changed()
            # What a call leaves there is known beside them, and they say what another call may begin with.
            variant.reads.add([changed.pop(place) for place, read in list(changed.items()) if isinstance(read, Alike)])
            apart = self._apart.take_changed(changed)
            if not all(map(is_one_number, changed.values())):
                learner.last_walk = None
            learner.note_own(changed)
            self._apart.note_changed(apart)
        self._leave_buffers()
        only_read = changes.only_read()
        if recorded:
            learner.note_settings(variant)
            changes.left.alone.update(only_read)
            learner.carry_what_is_made_of_the_old(self.carried)
            if changes.with_graph:
                self.gives_its_own = True
                _refuse(f"The function makes {changes.with_graph} of what it finds there, with its graph, and a replay would leave it without one; "
                        "detach() it, or do the whole backward in one call.")
        return only_read

    def _leave_buffers(self) -> None:
        """Those that the run has replaced; no guard but the structure looks at buffers."""
        buffers = {id(module._buffers): module for module in self._subject.modules}
        for changed in self._subject.changed_structure():
            module = buffers.get(id(changed.holder))
            if module is None or changed.kind not in (VALUES, ENTRY):
                continue
            keys = [*changed.holder] if changed.kind == VALUES else [changed.key]
            for key, before in zip(keys, changed.expected if changed.kind == VALUES else [changed.expected]):
                read = Read(ENTRY, changed.holder, key, f"{type(module).__name__}.{key}")
                if read.expected is not before and can_be_left(read):
                    read.expected = before
                    self._changes.left.buffers.add(read.place)
                    self._learner.begin_to_leave(read)

    def _look_at_results(self, value: Any, walk: Walk) -> None:
        """What the function returns and leaves: a replay would make each of it anew, and plain tensors."""
        seen: set[int] = set()
        reads = self._changes.left.reads.values()
        gone = next((read for read in reads if read.now() is NOTHING and not self._changes.before.is_still_at(read)), None)
        if gone is not None:
            _refuse(NOT_CHANGED_BY_REPLAYS.format(gone.told()))
        left = [read.now() for read in reads if read.now() is not NOTHING]
        returned = {id(each) for each in containers_in(value)}
        for each in containers_in((value, *left)):
            if id(each) in seen or walk.has_met(each):
                self._refuse_results(f"a {type(each).__name__} that the program has already", "another one; make a copy of it", id(each) in returned)
            seen.add(id(each))
        if any(tensor.__dict__ for each in (value, *left) for tensor in tensors_in(each)):
            self._refuse_results("a tensor with attributes of its own", "one without; give them to the caller beside it")
        tensors = [tensor for each in left for tensor in tensors_in(each)]
        if not self._subject.is_part and any(tensor.requires_grad and tensor.is_leaf for tensor in tensors):
            self._refuse_results("a tensor that requires a gradient", "one that does not; make it outside")
        gradients = {id(tensor.grad) for tensor in self._subject.lasting_tensors() if tensor.is_leaf and tensor.grad is not None}
        if any(id(tensor) in gradients for tensor in tensors):
            self._refuse_results("the gradient of a parameter", "another tensor; leave a clone() of it")

    def _refuse_results(self, what: str, another: str, is_returned: bool = True) -> None:
        self.gives_its_own |= is_returned
        _refuse(f"The function returns or leaves {what}, and a replay would make {another}.")

    def _record(self, inputs: Sequence[Any], watcher: contextlib.AbstractContextManager[Any]) -> Any:
        if self._changes.given_by_both:
            _refuse(self._changes.given_by_both)
        ours = self._subject.optimizers
        if reason := ours.refusal():
            _refuse(reason)
        self._subject.looks_at_steps = not reason
        # Guards look at the hooks of all modules, so that a recording beside other threads has none.
        hooks = [] if self._subject.guarded else self._hooks_of_a_recording()
        if not reason:
            ours.begin(counts=self._subject.guarded and not self._subject.is_part)
        kept = Kept(self._subject.modules, self._subject.named.values())
        try:
            asks = not self._subject.is_part and (not self._learner.codes or any("item" in code.co_names for code in self._learner.codes))
            with returned_items(_APPLY) if asks else contextlib.nullcontext(), watcher:
                value = self.apply(inputs)
        finally:
            if not reason:
                ours.end()
            for hook in hooks:
                hook.remove()
        if not reason:
            ours.check_steps(all_step=not self._subject.guarded)
        self._changes.moved = kept.moved(self._learner.codes)
        for why in filter(None, (self._changes.moved if self._subject.is_part else "", kept.hooked())):
            _refuse(why)
        return value

    def _hooks_of_a_recording(self) -> list[Any]:
        """Notes the modules that are called, and optimizers that are not known, where nothing watches the code."""
        import torch.nn.modules.module as every_module
        import torch.optim.optimizer as every_optimizer

        thread = threading.get_ident()

        def note_module(module: Any, _: Any) -> None:
            if threading.get_ident() == thread:
                self._subject.modules[module] = None

        def note_optimizer(stepping: Any, *_: Any) -> None:
            if threading.get_ident() == thread and not is_of_the_program(stepping):
                refuse_optimizer(stepping)

        hooks = [every_module.register_module_forward_pre_hook(note_module)]
        if self._subject.looks_at_steps:
            hooks.append(every_optimizer.register_optimizer_step_pre_hook(note_optimizer))
        return hooks

    def _check_form(self, entry: int) -> None:
        if self._pace.given_up:
            _refuse(self._pace.given_up)
        elif self._containers is not None and (changed := self._containers.first_changed()):
            _refuse(f"The function changes a {changed} that it is given, and a replay would not; change a copy of it.")
        elif (other := others_in(self._forms.last.result)) is not None:
            _refuse(f"The function returns an object of {type(other)!r}; return tensors and numbers, alone or in containers.")
        elif self._returns_numbers or not self._subject.guarded and not only_tensors(self._forms.last.result):
            _refuse("The function returns a number that may be another one in each call: it is made of arguments, of what the function counts, or no "
                    "guard looks at what it is made of. Return tensors, or make it outside.")
        elif not self._forms.note(entry, self._changes.assigned):
            _refuse("The function returns other numbers than before, or its tensors in another structure; return the same, and read numbers of "
                    "tensors outside (`return loss.item()` may stay).")


# By which Overdrive knows who calls the function.
_APPLY = Runner.apply.__code__
