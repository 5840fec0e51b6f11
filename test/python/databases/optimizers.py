"""PyTorch's database of optimizers as cases: each configuration trains a small model, errors included."""
from __future__ import annotations

import copy

import torch
import torch.testing._internal.common_optimizers as database
from compare import compared_in_time
from samples import Sample, draws
from subjects import Subject, copies

import overdrive

SETS = ({}, {"foreach": True}, {"foreach": False}, {"fused": True}, {"differentiable": True}, {"capturable": True})


class Trained(Subject):
    """The model's parameters are of two groups where the optimizer takes both; an embedding for one of sparse gradients."""

    def __init__(self, info, kwargs, kind, ours):
        generator = torch.Generator().manual_seed(5)
        self.table = torch.nn.Parameter(torch.randn(6, 4, generator=generator).to(kind))
        self.bias = torch.nn.Parameter(torch.randn(4, generator=generator).to(kind))
        self.parameters = [self.table] if info.only_supports_sparse_grads or info.name == "Muon" else [self.table, self.bias]
        self.is_sparse, self.needs_closure, self.ours = info.only_supports_sparse_grads, info.step_requires_closure, ours
        several = info.supports_param_groups and len(self.parameters) > 1
        self.optimizer = info.optim_cls([{"params": [p]} for p in self.parameters] if several else self.parameters, **copy.deepcopy(kwargs))
        self.prepare()

    def prepare(self):
        """What of it is captured."""

    def loss(self, x):
        if self.is_sparse:
            rows = torch.nn.functional.embedding(x.abs().mul(7).long().remainder(6).flatten(), self.table, sparse=True)
            return rows.square().mean()
        loss = (x @ self.table).sin().square().mean()
        return loss + (self.bias * self.bias).sum() if len(self.parameters) > 1 else loss

    def train(self, x):
        def closure():
            self.optimizer.zero_grad()
            loss = self.loss(x)
            loss.backward()
            return loss

        if self.needs_closure:
            return self.optimizer.step(closure).detach()
        loss = closure()
        self.optimizer.step()
        return loss.detach()

    run = train

    def call(self, sample):
        result = self.run(*sample.fresh())
        state = [v for p in self.parameters for v in self.optimizer.state[p].values() if isinstance(v, torch.Tensor)]
        rates = [group["lr"] for group in self.optimizer.param_groups]
        numbers = [torch.tensor(float(v)) for p in self.parameters for v in self.optimizer.state[p].values() if isinstance(v, (int, float))]
        return [result.clone(), *copies([*self.parameters, *(p.grad for p in self.parameters), *state]), *numbers, *(torch.as_tensor(r).clone() for r in rates)]


class UnderEngine(Trained):
    def prepare(self):
        self.before = overdrive.stats()["backwards"]

    def run(self, x):
        if not self.ours:
            return self.train(x)
        with overdrive.engine():
            return self.train(x)

    def replayed(self):
        return overdrive.stats()["backwards"] - self.before


class CapturedOptimizer(Trained):
    def prepare(self):
        if self.ours:
            self.optimizer = overdrive.captured(self.optimizer)

    def replayed(self):
        return overdrive.part_of(self.optimizer).stats()["replayed"] if self.ours else 0

    def refusal(self):
        return overdrive.part_of(self.optimizer).refusal() if self.ours else ""


class CapturedStep(Trained):
    def prepare(self):
        train = self.train
        if self.ours:
            self.captured = self.run = overdrive.capture(lambda x: train(x), optimizer=self.optimizer)


FORMS = {"engine": UnderEngine, "optimizer": CapturedOptimizer, "step": CapturedStep}


def cases():
    return {info.name: info for info in database.optim_db}


def settings(info):
    for each in SETS:
        flag = next(iter(each), "foreach")
        if flag == "fused" and "cpu" not in info.supports_fused_on or flag == "capturable" and not info.has_capturable_arg:
            continue
        if each and flag in ("foreach", "differentiable") and flag not in info.supported_impls:
            continue
        yield each


def error_of(info, given, ours):
    """What the constructor, or else twelve steps, raise."""
    made = given.optimizer_error_input
    parameters = [torch.nn.Parameter(p.detach().clone()) for p in made.params] if isinstance(made.params, list) and all(
        isinstance(p, torch.Tensor) for p in made.params) else copy.deepcopy(made.params)
    try:
        optimizer = info.optim_cls(parameters, **copy.deepcopy(made.kwargs))
        optimizer = overdrive.captured(optimizer) if ours else optimizer
        for _ in range(12):
            for group in optimizer.param_groups:
                for p in group["params"]:
                    p.grad = torch.ones_like(p)
            optimizer.step()
    except Exception as error:  # noqa: BLE001 - an error is what is asked for
        return f"{type(error).__name__}: {error}".split("\n")[0]
    return ""


def rows(info, types, most):
    for kind in types:
        for made in info.optim_inputs_func("cpu", kind):
            drawn = draws(lambda: iter([Sample((torch.randn(5, 6, dtype=kind),), {})]), 3, 1)
            for flags in settings(info):
                kwargs = {**made.kwargs, **flags}
                for form, subject in FORMS.items():
                    what, text = compared_in_time(lambda ours: subject(info, kwargs, kind, ours), drawn[0])
                    yield [form, what, f"{kind} {kwargs} {text}" if what == "differs" else text]
        for given in info.optim_error_inputs_func("cpu", kind) if info.optim_error_inputs_func else ():
            want, got = (error_of(info, given, ours) for ours in (False, True))
            text = f"{given.optimizer_error_input.desc}: error {want or 'none'} and {got or 'none'}"
            yield ["errors", "differs" if want != got else "replayed" if want else "skipped", text if want != got else "eager raises none"]
