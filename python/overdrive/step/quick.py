"""When a call may go the way of the last one without Python: Note [A quick call] in python/bindings/calls.h."""
from __future__ import annotations

import ctypes
from array import array
from typing import Any

import torch

from overdrive.step.run import StepRun
from overdrive.step.variant import _Form, _Variant
from overdrive.values.read import ENTRY, NOTHING

# State of the step that a call goes by, and that stays as it is from one quick call to the next; the pace and the chooser have more.
_OWN = ("_form", "_one_form", "_unsure", "_structure")
_CACHE, _SCHEDULED = "_cache_enabled", "_is_scheduled"
# Of the form of a result, as C knows it.
_NOTHING, _TENSOR, _TUPLE, _LIST = range(4)


class StepQuick(StepRun):
    """Hands calls over to C."""

    def _arm(self, variant: _Variant, facts: Any, form: _Form, inputs: int) -> None:
        """After a replay: the next call that finds all of this as it is goes the same way."""
        quick, is_timed = self._quick, self._pace.budget.timing > 0
        result = _form_for_c(form.result)
        if (facts or result is None or form.left or form.assigned or form is not self._one_form or variant.numbers is not None
                or variant.settings or self._watch is not None or self._changes.written_ahead or self._unsure or self._found_optimizers
                or self._has_run_apart or self._structure is None or not variant.reads.look.is_whole or not self._structure.look.is_whole
                or not quick.may_arm(is_timed)):
            return
        import torch.nn.utils.parametrize as parametrize

        lasting = ((vars(self), _OWN), (vars(self._pace), self._pace.lasting), (vars(self._chooser), ("variant",)), (vars(parametrize), (_CACHE,)))
        entries = [(state, name, state[name]) for state, names in lasting for name in names]
        parameters = array("q")
        if (optimizer := self._optimizer) is not None:
            options = optimizer.entries_of_options()
            if options is None or optimizer.gradients() and self._updated is None:
                return
            entries += [(vars(optimizer), _SCHEDULED, False), *options]
        if self._updated is not None:
            found = [parameter for group in self._updated().param_groups for parameter in group["params"]]
            if not all(type(parameter) in (torch.Tensor, torch.nn.Parameter) for parameter in found):
                return
            found.sort(key=lambda parameter: parameter.grad is None)  # in their order otherwise
            parameters.extend(map(id, found))
        values = array("q")
        for holder, key, value in entries:
            values.extend((ENTRY, id(holder), id(key), 0 if value is NOTHING else id(value)))
        armed = quick.armed
        armed.own.begin, armed.own.count, armed.own.is_whole = values.buffer_info()[0], len(entries), 1
        armed.structure, armed.reads = ctypes.addressof(self._structure.look), ctypes.addressof(variant.reads.look)
        armed.inputs, (armed.form, armed.outputs) = inputs, result
        armed.parameters, armed.count = parameters.buffer_info()[0] if self._updated is not None else None, len(parameters)
        quick.arm((values, parameters, [(key, value) for _, key, value in entries], variant.reads, self._structure, optimizer),
                  self._pace.budget.begin_quick())


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
