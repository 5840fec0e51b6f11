"""When a call may go the way of the last one without Python: Note [A quick call] in python/bindings/calls.h."""
from __future__ import annotations

import ctypes
from array import array
from typing import Any

import torch

from overdrive.step.state import Step
from overdrive.step.variant import _Form, _Variant
from overdrive.values.read import ENTRY, NOTHING

# What a call goes by, and what stays as it is from one quick call to the next: of forms, pace, chooser, subject and PyTorch. Only parts are resting.
_LASTING = ("last", "one", "unsure"), ("given_up", "rest", "resting"), ("variant",), ("structure",), ("_cache_enabled",)
_SCHEDULED = "_is_scheduled"
# Of the form of a result, as C knows it.
_NOTHING, _TENSOR, _TUPLE, _LIST = range(4)


def arm(step: Step, variant: _Variant, facts: Any, form: _Form, inputs: int) -> None:
    """After a replay: the next call that finds all of this as it is goes the same way."""
    subject, changes, pace, forms, quick = step._subject, step._changes, step._pace, step._forms, step._quick
    optimizers, structure, result = subject.optimizers, subject.structure, _form_for_c(form.result)
    if (facts or result is None or form.left or form.assigned or form is not forms.one or variant.numbers is not None
            or variant.settings or step._watch is not None or changes.carried or changes.written_ahead or forms.unsure or subject.found
            or step._apart.has_run or structure is None or not variant.reads.look.is_whole or not structure.look.is_whole
            or not quick.may_arm(pace.budget.timing > 0)):
        return
    import torch.nn.utils.parametrize as parametrize

    owners = vars(forms), vars(pace), vars(step._chooser), vars(subject), vars(parametrize)
    entries = [(owner, name, owner[name]) for owner, names in zip(owners, _LASTING) for name in names if name in owner]
    parameters = array("q")
    if optimizers.all():
        options = optimizers.entries_of_options()
        if options is None or optimizers.gradients() and step._updated is None:
            return
        entries += [(vars(optimizers), _SCHEDULED, False), *options]
    if step._updated is not None:
        found = [parameter for group in step._updated().param_groups for parameter in group["params"]]
        if not all(type(parameter) in (torch.Tensor, torch.nn.Parameter) for parameter in found):
            return
        found.sort(key=lambda parameter: parameter.grad is None)  # in their order otherwise
        parameters.extend(map(id, found))
    values = array("q")
    for holder, key, value in entries:
        values.extend((ENTRY, id(holder), id(key), 0 if value is NOTHING else id(value)))
    armed = quick.armed
    armed.own.begin, armed.own.count, armed.own.is_whole = values.buffer_info()[0], len(entries), 1
    armed.structure, armed.reads = ctypes.addressof(structure.look), ctypes.addressof(variant.reads.look)
    armed.inputs, (armed.form, armed.outputs) = inputs, result
    armed.parameters, armed.count = parameters.buffer_info()[0] if step._updated is not None else None, len(parameters)
    quick.arm((values, parameters, [(key, value) for _, key, value in entries], variant.reads, structure, optimizers), pace.budget.begin_quick())


def _form_for_c(form: Any) -> tuple[int, int] | None:
    """None: only Python makes such a result."""
    if form is None:
        return _NOTHING, 0
    if form == "tensor":
        return _TENSOR, 1
    kind, parts = form
    if kind in (tuple, list) and all(part == "tensor" for part in parts):
        return _TUPLE if kind is tuple else _LIST, len(parts)
    return None
