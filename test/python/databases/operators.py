"""PyTorch's databases of operators as cases: (name, rows()) with rows of [form, kind of row, text].

`op_db`, and the three of what a program adds to it: autograd.Functions, custom operators, operators of higher order.
"""
from __future__ import annotations

import importlib

import torch.testing._internal.common_methods_invocations as database
from compare import compared_in_time
from samples import Sample, draws
from subjects import Engine, ForwardMode, Hooks, Part, Step, Train, Twice

UNINITIALISED = ("empty", "new_empty")
FORMS = (("step", Step, False), ("step in place", Step, True), ("part", Part, False), ("part in place", Part, True), ("train", Train, False),
         ("engine", Engine, False), ("engine in place", Engine, True), ("hooks", Hooks, False), ("second derivatives", Twice, False), ("forward mode", ForwardMode, False))

# It would set the seed in the middle of a step. outcome() does before each call.
database.wrapper_set_seed = lambda operator, *args, **kwargs: operator(*args, **kwargs)


def name_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def cases(module="common_methods_invocations", name="op_db"):
    listed = getattr(importlib.import_module(f"torch.testing._internal.{module}"), name)
    return {name_of(op): op for op in listed if not op.name.startswith(UNINITIALISED)}


def rows(op, types, most):
    for kind in types:
        if kind not in op.supported_dtypes("cpu"):
            continue
        wants = op.supports_autograd and kind in op.supported_backward_dtypes("cpu")
        try:
            drawn = draws(lambda: (Sample((s.input, *s.args), s.kwargs) for s in op.sample_inputs("cpu", kind, requires_grad=wants)), 3, most)
        except Exception as error:  # noqa: BLE001 - the database itself
            yield ["", "no samples", f"{type(error).__name__}: {error}"[:100]]
            continue
        for samples in drawn:
            for form, subject, in_place in FORMS:
                function = op.inplace_variant if in_place else op.op
                if function is None or subject.needs_gradients and not any(samples[0].wants()) or not subject.is_for(op):
                    continue
                what, text = compared_in_time(lambda ours: subject(function, samples[0], ours, in_place), samples)
                yield [form, what, f"{kind} {text}" if what == "differs" else text]
