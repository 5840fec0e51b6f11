"""PyTorch's database of operators as cases: (name, rows()) with rows of [form, kind of row, text]."""
from __future__ import annotations

import torch
import torch.testing._internal.common_methods_invocations as database
from compare import compared_in_time
from samples import Sample, draws
from subjects import Part, Step, Train

UNINITIALISED = ("empty", "new_empty")
FORMS = (("step", Step, False), ("step in place", Step, True), ("part", Part, False), ("part in place", Part, True), ("train", Train, False))

# It would set the seed in the middle of a step. outcome() does before each call.
database.wrapper_set_seed = lambda operator, *args, **kwargs: operator(*args, **kwargs)


def name_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def cases():
    return {name_of(op): op for op in database.op_db if not op.name.startswith(UNINITIALISED)}


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
                if function is None or form == "train" and not any(samples[0].wants()):
                    continue
                what, text = compared_in_time(lambda ours: subject(function, samples[0], ours, in_place), samples)
                yield [form, what, f"{kind} {text}" if what == "differs" else text]
