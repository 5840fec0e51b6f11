"""PyTorch's database of modules as cases: each module trained by SGD, Adam and AdamW, as one step and by parts."""
from __future__ import annotations

import torch
import torch.testing._internal.common_modules as database
from compare import compared_in_time
from samples import Sample, draws, filled, tensors_of
from subjects import Subject, copies, differentiable, loss_of
from torch.nn.modules.lazy import LazyModuleMixin

import overdrive

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
}


class Trained(Subject):
    """A module, a parameter that scales its loss, and an optimizer of all parameters."""

    def __init__(self, make, optimizer, sample):
        torch.manual_seed(5)
        self.module, self.scale, self.sample = make(), torch.nn.Parameter(torch.ones(())), sample
        if isinstance(self.module, LazyModuleMixin):
            args, kwargs = filled(sample.arguments, sample.fresh())
            with torch.no_grad():
                self.module(*args, **kwargs)
        self.optimizer = OPTIMIZERS[optimizer]([*self.module.parameters(), self.scale])

    def train(self, *tensors):
        given = [t.detach().requires_grad_(want) for t, want in zip(tensors, self.sample.wants())]
        self.optimizer.zero_grad()
        args, kwargs = filled(self.sample.arguments, given)
        results = tensors_of(self.module(*args, **kwargs))
        loss = loss_of(results)
        loss = self.scale * self.scale if loss is None else loss * self.scale
        loss.backward()
        self.optimizer.step()
        return [r.detach().clone() for r in results], [g.grad for g in differentiable(given)]

    def call(self, sample):
        tensors = sample.fresh()
        results, grads = self.run(*tensors)
        parameters = [*self.module.parameters(), self.scale]
        state = [v for s in self.optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
        changed = copies([*parameters, *(p.grad for p in parameters), *self.module.buffers(), *state])
        return [*results, *grads, *tensors, *changed]


class TrainedStep(Trained):
    def __init__(self, make, optimizer, sample, ours):
        super().__init__(make, optimizer, sample)
        train = self.train
        self.captured = overdrive.capture(lambda *tensors: train(*tensors), optimizer=self.optimizer, modules=self.module) if ours else None
        self.run = self.captured or self.train


class TrainedParts(Trained):
    def __init__(self, make, optimizer, sample, ours):
        super().__init__(make, optimizer, sample)
        self.run = self.train
        if ours:
            overdrive.captured(self.module)
            self.captured = overdrive.part_of(self.module)
            self.optimizer = overdrive.captured(self.optimizer)


FORMS = {"step": TrainedStep, "parts": TrainedParts}


def cases():
    return {info.name: info for info in database.module_db}


def rows(info, types, most):
    for kind in types:
        for training in (True, False) if info.train_and_eval_differ else (True,):
            try:
                made = list(info.module_inputs_func(info, device="cpu", dtype=kind, requires_grad=True, training=training))
                drawn = draws(lambda: (Sample(s.forward_input.args, s.forward_input.kwargs) for s in info.module_inputs_func(
                    info, device="cpu", dtype=kind, requires_grad=True, training=training) if s.forward_input is not None), 3, 400)
            except Exception as error:  # noqa: BLE001 - the database itself
                yield ["", "no samples", f"{type(error).__name__}: {error}"[:100]]
                continue
            made = [s for s in made if s.forward_input is not None]
            for constructor, samples in list(zip((s.constructor_input for s in made), drawn))[:most]:
                def make(constructor=constructor):
                    return info.module_cls(*constructor.args, **constructor.kwargs).to(kind).train(training)
                for form, subject in FORMS.items():
                    for optimizer in OPTIMIZERS:
                        what, text = compared_in_time(lambda ours: subject(make, optimizer, samples[0], ours), samples)
                        yield [f"{form}, {optimizer}", what, f"{kind} {constructor.args} {constructor.kwargs} {text}" if what == "differs" else text]
