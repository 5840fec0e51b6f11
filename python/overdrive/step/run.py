"""A run of a captured function, recorded or eager."""
from __future__ import annotations

import contextlib
import gc
import operator
import threading
import time
from collections.abc import Sequence
from typing import Any

from overdrive.effects.items import returned_items
from overdrive.effects.left import can_be_left, tensors_in
from overdrive.effects.places import Places
from overdrive.effects.schedulers import is_scheduler
from overdrive.effects.surroundings import changed_since, surroundings, without_collections
from overdrive.native import signals
from overdrive.native.dynamo import around
from overdrive.native.library import call
from overdrive.native.recording import Refusal, _refuse, _Unrecorded
from overdrive.optimizers.one import NOT_UNDERSTOOD
from overdrive.optimizers.rules import is_understood
from overdrive.reads.code import RANDOM_NUMBERS, Watcher
from overdrive.reads.last_walk import is_one_number
from overdrive.reads.optimizers import is_of_the_program
from overdrive.reads.walk import Walk
from overdrive.step import budget as _budget
from overdrive.step.apart import StepApart
from overdrive.step.pace import SHORT
from overdrive.step.learn import NOT_CHANGED_BY_REPLAYS
from overdrive.step.reasons import Kept, gradients_of, is_one_held, telling
from overdrive.step.variant import _Form, _Variant
from overdrive.values.arguments import Arguments, given_in, merged
from overdrive.values.facts import RESULT_OF_A_CLASS, is_of_a_class
from overdrive.values.forms import containers_in, form_of_results, only_tensors
from overdrive.values.modules import structure_of
from overdrive.values.read import ENTRY, NOTHING, VALUES, Alike, Read
from overdrive.values.reads import Reads
from overdrive.values.same import states_of


_CALLS_OF_SHORT = 4096


class StepRun(StepApart):
    """The library calls ``_run()``."""

    @around
    def _run(self) -> int:
        """The function, called by the library: in a call that is recorded, or eager."""

        self._running = threading.get_ident()
        self._pace.begin_long()
        try:
            recorded = call("Recording.is_active")
            if recorded or self._chooser.variant is None or not self._chooser.variant.watched_runs:
                signals.begin(self)
            self._count_run()
            if self._changes.written_ahead and self._optimizer is not None:
                self._optimizer.write_numbers()
            with _Unrecorded():
                tensors = call("Recording.inputs")
            variant = self._chooser.variant
            assert variant is not None
            numbers = variant.numbers
            inputs = self._inputs(variant.key[0] if numbers is None else numbers.begin(recorded), tensors)
            entry = call("Capture.current", self._capture)
            changes = self._changes
            changes.begin_run()
            before = changes.before
            with telling(self):
                value = self._run_function(variant, inputs, recorded)
                del inputs
                variant.key = (*variant.key[:3], self._facts.of(tensors))
                leaves: list[Any] = []
                result = self._form_of(value, leaves)
                # What the call leaves behind comes to the leaves later. A step's recorded call returns others.
                if self._is_part or not recorded or self._gives_its_own:
                    self._made = value, leaves
                with _Unrecorded():
                    self._form = _Form(result, Places(changes.left.reads.values(), before, leaves, tensors), recorded, changes.assigned.written)
                if any(is_of_a_class(leaf) for leaf in leaves):
                    self._pace.given_up = RESULT_OF_A_CLASS
                if numbers is not None:
                    numbers.end(recorded, self._count_replays)
                    if numbers.differs and numbers.counters and not self._facts.has_sizes:
                        self._facts.has_sizes = self._is_outdated = True
                    else:
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
            # A run that has found a counter has no recording: the next call begins with it.
            if numbers is not None and numbers.refusal and not numbers.counters and variant in self._chooser.variants:
                self._chooser.drop_open(variant)
            if numbers is not None and numbers.stands_still:
                self._chooser.drop(variant)
            if self._is_outdated:
                self._is_outdated = False
                self._chooser.drop_all()
            self._note_structure(variant, recorded)
            variant.structure = self._structure
            return 1
        except BaseException as error:  # the caller raises it
            self._error = error
            if self._chooser.variant is not None and self._chooser.variant.numbers is not None:
                self._chooser.variant.numbers.abandon()
            return 0
        finally:
            self._running = 0

    def _note_structure(self, variant: _Variant, recorded: bool) -> None:
        """What modules and optimizers are made of, where a recording may have met more than was known."""
        is_known = self._structure is not None and self._structure.changed() is None
        others = [] if is_known or self._structure is None else list(self._structure.others())
        if recorded:
            self._refuse_changed_structure(others)
        in_modules = {id(entries) for module in self._modules for entries in vars(module).values()} if others else ()
        if any(id(read.holder) in in_modules for read in others):
            self._chooser.drop_all()  # they were made with what this run has replaced
        if is_known and not recorded:
            return
        variant.reads.add(self._training())
        optimizers = [] if self._optimizer is None else self._optimizer.all()
        # Hooks of a tensor come with their dict; whatever else changes, the structure sees.
        parts = [*self._modules, *optimizers]
        for tensor in self._lasting():
            parts += tensor._backward_hooks, tensor._post_accumulate_grad_hooks
        if is_known and len(parts) == len(self._structure_of) and all(map(operator.is_, parts, self._structure_of)):
            return
        self._structure_of = parts
        self._structure = Reads([*structure_of(self._modules, self._changes.left), *([] if self._optimizer is None else self._optimizer.structure())])

    def _refuse_changed_structure(self, others: Sequence[Read]) -> None:
        """Parameters and buffers are looked at by themselves."""
        tensors = {id(entries) for module in self._modules for entries in (module._parameters, module._buffers)} if others else ()
        if (changed := next((read for read in others if id(read.holder) not in tensors), None)) is not None:
            _refuse(f"The function changes {changed.name}, and a replay would not; do it outside.")

    def _inputs(self, template: Any, tensors: Sequence[Any]) -> Any:
        given, self._given = self._given, None
        self._containers = given
        self._objects = () if given is None else given.objects
        return merged(template, tensors, given)

    def _apply(self, inputs: Any) -> Any:
        if isinstance(inputs, Arguments):
            return self._function(*inputs.by_place, **inputs.by_name)
        return self._function(*inputs)

    def _timed(self, inputs: Any) -> Any:
        """The function, eager and unwatched: what it takes goes into step files. It may run because a replay was taken back."""
        start = time.perf_counter()
        if self._optimizer is not None:
            self._optimizer.put_options_of_the_call()
        with self._schedulers.apart(self._optimizer):
            value = self._apply(inputs)
        call("Recording.took", time.perf_counter() - start)
        return value

    def _form_of(self, value: Any, leaves: list[Any]) -> Any:
        return form_of_results(value, leaves)

    def _run_function(self, variant: _Variant, inputs: Sequence[Any], recorded: bool) -> Any:
        if not self._guarded:
            return self._record(inputs, contextlib.nullcontext()) if recorded else self._timed(inputs)
        changes = self._changes
        self._changed_apart, self._has_refused_change = {}, False
        if recorded:
            changes.assigned.begin()
            changes.left.begin_recording()
        try:
            if not recorded and (variant.watched_runs > 0 or self._shared.closed & 3):
                return self._timed(inputs)
            watcher = Watcher(_refuse if recorded else None, self._met, self._note_optimizer)
            watcher.book = None if variant.numbers is None else variant.numbers.book
            watcher.given = {id(each) for each in given_in(inputs)} if recorded else set()
            drawn = states_of(variant.generators) if recorded else None
            around = surroundings() if recorded else {}
            before = [read.now() for read in changes.written_elsewhere.values()]
            began = 0 if recorded or self._pace.budget.is_off else _budget.clock()
            with self._schedulers.apart(self._optimizer):
                if recorded:
                    value = self._record(inputs, watcher)
                else:
                    with watcher:
                        value = self._apply(inputs)
            watched = _budget.clock() - began if began else 0
            if began and self._pace.budget.is_short(watched):
                self._pace.begin_rest(Refusal(SHORT), _CALLS_OF_SHORT)
            elif began and self._is_part and self._pace.budget.may_be_short(watched):
                self._pace.time_plain_calls()
            self._codes_of_run = [code for code, _ in watcher.codes]
            self._codes.update(watcher.nn_codes, self._codes_of_run)
            self._look_at_assigned()
            if variant.numbers is not None:
                variant.numbers.look_at((code for code, _ in watcher.codes), self._codes)
            self._note_written(before)
            if drawn is not None and drawn != states_of(variant.generators):
                _refuse(RANDOM_NUMBERS)
            self._changes_setting = self._changes_setting or changed_since(around)
            if self._changes_setting:
                _refuse(self._changes_setting)
        finally:
            if variant.numbers is not None:
                variant.numbers.settle()
            changes.assigned.end()
            if self._changed_apart or variant.reads.changed() is not None:
                changed = variant.reads.drop_changed()
                # What a call leaves there is known beside them, and they say what another call may begin with.
                variant.reads.add([changed.pop(place) for place, read in list(changed.items()) if isinstance(read, Alike)])
                apart = self._take_changed_apart(changed)
                if not all(map(is_one_number, changed.values())):
                    self._last_walk = None
                self._note_own(changed)
                self._note_changed_apart(apart)
            self._leave_buffers()
            only_read = changes.only_read(self._ever_apart)
            if recorded:
                self._note_settings(variant)
                changes.left.note_alone(only_read)
                variant.reads.add(changes.left.guards(only_read, self._codes_of_run))
        with _Unrecorded():
            try:
                with without_collections():
                    walk = self._learn(variant, watcher, only_read)
                if recorded:
                    self._tell_numbers()
                    self._look_at_results(value, walk)
                elif self._last_walk is not None and any(map(self._last_walk.walk.has_met, containers_in(value))):
                    self._gives_its_own = True  # a recording refuses it
            except Exception as error:  # noqa: BLE001 - an object of the program that cannot be looked at
                _refuse(f"What the function reads could not be looked at: {type(error).__name__}: {error}; promise by "
                        "guards=\"promised\" that it does not change.")
        variant.watched_runs += 1
        self._count_options()
        return value

    def _leave_buffers(self) -> None:
        """Those that the run has replaced; no guard but the structure looks at buffers."""
        buffers = {id(module._buffers): module for module in self._modules}
        for changed in list(() if self._structure is None else self._structure.others()):
            module = buffers.get(id(changed.holder))
            if module is None or changed.kind not in (VALUES, ENTRY):
                continue
            keys = [*changed.holder] if changed.kind == VALUES else [changed.key]
            for key, before in zip(keys, changed.expected if changed.kind == VALUES else [changed.expected]):
                read = Read(ENTRY, changed.holder, key, f"{type(module).__name__}.{key}")
                if read.expected is not before and can_be_left(read):
                    read.expected = before
                    self._changes.left.note_buffer(read)
                    self._begin_to_leave(read)

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
        if not self._is_part and any(tensor.requires_grad and tensor.is_leaf for tensor in tensors):
            self._refuse_results("a tensor that requires a gradient", "one that does not; make it outside")
        gradients = {id(tensor.grad) for tensor in self._lasting() if tensor.is_leaf and tensor.grad is not None}
        if any(id(tensor) in gradients for tensor in tensors):
            self._refuse_results("the gradient of a parameter", "another tensor; leave a clone() of it")

    def _refuse_results(self, what: str, another: str, is_returned: bool = True) -> None:
        self._gives_its_own |= is_returned
        _refuse(f"The function returns or leaves {what}, and a replay would make {another}.")

    def _record(self, inputs: Sequence[Any], watcher: contextlib.AbstractContextManager[Any]) -> Any:
        if self._given_by_both:
            _refuse(self._given_by_both)
        ours = self._optimizer
        if ours is not None and (reason := ours.refusal()):
            _refuse(reason)
            ours = None
        self._looks_at_steps = ours is not None or self._optimizer is None
        # Guards look at the hooks of all modules, so that a recording beside other threads has none.
        hooks = [] if self._guarded else self._hooks_of_a_recording(ours)
        if ours is not None:
            ours.begin(counts=self._guarded and not self._is_part)
        kept = Kept(self._modules, self._named.values())
        try:
            asks = not self._is_part and (not self._codes or any("item" in code.co_names for code in self._codes))
            with returned_items(StepRun._apply.__code__) if asks else contextlib.nullcontext(), watcher:
                value = self._apply(inputs)
        finally:
            if ours is not None:
                ours.end()
            for hook in hooks:
                hook.remove()
        if ours is not None:
            ours.check_steps(all_step=not self._guarded)
        self._moved = kept.moved(self._codes)
        for reason in (self._moved if self._is_part else "", kept.hooked()):
            if reason:
                _refuse(reason)
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
            if threading.get_ident() == thread and not is_of_the_program(stepping):
                refuse_optimizer(stepping)

        hooks = [every_module.register_module_forward_pre_hook(note_module)]
        if ours is not None or self._optimizer is None:
            hooks.append(every_optimizer.register_optimizer_step_pre_hook(note_optimizer))
        return hooks

    def _count_replays(self) -> int:
        made = self.stats()
        return int(made["replayed"] + made["checked"])

    def _note_optimizer(self, optimizer: Any) -> None:
        """An optimizer of PyTorch's has made a step, or a scheduler. The next call knows it, where none was named."""
        if is_scheduler(optimizer):
            if self._guarded and not self._is_part and optimizer not in self._schedulers:
                self._found_optimizers[optimizer] = None
            return
        if not self._looks_at_steps:
            return
        if self._optimizer is not None and self._optimizer.knows(optimizer):
            self._optimizer.note_update(optimizer)
            return
        if self._guarded and not self._is_part and is_understood(optimizer):
            self._found_optimizers[optimizer] = None
        refuse_optimizer(optimizer)

    def _check_form(self, entry: int) -> None:
        if self._pace.given_up:
            _refuse(self._pace.given_up)
        elif self._containers is not None and (changed := self._containers.first_changed()):
            _refuse(f"The function changes a {changed} that it is given, and a replay would not; change a copy of it.")
        elif not only_tensors(self._form.result):
            _refuse("The function returns something that is not a tensor; return tensors, and read them outside.")
        elif not self._note_form(entry):
            _refuse("The function returns its tensors in another structure than before; return the same one.")

    def _note_form(self, entry: int) -> bool:
        """Whether the form is that of the recordings before."""
        known = self._forms.get(entry)
        if known is not None and not self._form.assigns_as(known):
            names = self._changes.assigned.names_of_others(self._form.assigned, known.assigned)
            _refuse(f"The function gives {names} another number in each call, and a replay would not; change it outside of the function.")
        if known is not None and not self._form.join(known):
            return False
        self._forms[entry] = self._form
        self._unsure = [place for form in self._forms.values() for place in form.places.unsure()]
        forms = list(self._forms.values())
        self._one_form = forms[0] if all(form == forms[0] for form in forms) else None
        return True


def refuse_optimizer(optimizer: Any) -> None:
    if not is_understood(optimizer):
        _refuse(NOT_UNDERSTOOD.format(type(optimizer).__name__))
        return
    _refuse(f"The function calls step() of an optimizer ({type(optimizer).__name__}) that the step does not know; give it by optimizer=, "
            "which takes a list of several, too.")
