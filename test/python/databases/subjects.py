"""One sample in the forms in which a program may capture it. A subject is one side, eager or captured; `call()` is one call of it.

A call returns the tensors that it made or changed, None for a gradient that is not there. The two sides get equal data.
"""
from __future__ import annotations

import contextlib

import torch
from samples import filled, mapped, tensors_of

import overdrive


def differentiable(tensors):
    return [t for t in tensors if t.requires_grad]


def gradients(results, leaves):
    ends = differentiable(results)
    if not ends or not leaves:
        return []
    return list(torch.autograd.grad(ends, leaves, [torch.cos(end.detach()) for end in ends], allow_unused=True))


def loss_of(results):
    ends = differentiable(results)
    return sum((torch.view_as_real(end) if end.is_complex() else end).sum() for end in ends) if ends else None


def copies(tensors):
    """The caller keeps what a call returned until the next has ended, which a captured step takes for a tensor that lives on."""
    return [None if t is None else t.detach().clone() for t in tensors]


class Subject:
    captured = None  # the captured step or part of this side
    needs_gradients = False

    @staticmethod
    def is_for(_op):
        return True

    def replayed(self):
        return self.captured.stats()["replayed"] if self.captured is not None else 0

    def refusal(self):
        return self.captured.refusal() if self.captured is not None else ""


class Step(Subject):
    """Forward, and the gradients of what requires one, as a captured step."""

    def __init__(self, function, sample, ours, in_place=False):
        arguments, wants = sample.arguments, sample.wants()

        def step(*tensors):
            given = [t.detach().requires_grad_(want) for t, want in zip(tensors, wants)]
            args, kwargs = filled(arguments, [g.clone() for g in given] if in_place else given)
            results = tensors_of(function(*args, **kwargs))
            grads = gradients(results, differentiable(given))
            return [r.detach().clone() for r in results], [g for g in grads if g is not None]

        self.captured = overdrive.capture(step) if ours else None
        self.run = self.captured or step

    def call(self, sample):
        tensors = sample.fresh()
        results, grads = self.run(*tensors)
        return [*results, *grads, *tensors]


class Part(Subject):
    """The operator as a captured part, and a backward outside of it."""

    def __init__(self, function, sample, ours, in_place=False):
        arguments = sample.arguments
        self.wants = sample.wants()

        def part(*given):
            args, kwargs = filled(arguments, [g.clone() for g in given] if in_place else given)
            return mapped(function(*args, **kwargs), lambda result: result)

        self.captured = overdrive.captured(part) if ours else None
        self.run = self.captured or part

    def call(self, sample):
        given = [t.requires_grad_(want) for t, want in zip(sample.fresh(), self.wants)]
        results = tensors_of(self.run(*given))
        return [*results, *gradients(results, differentiable(given)), *given]


class Train(Subject):
    """Forward, backward and SGD in one captured step. What requires a gradient is a parameter; other data are copied into it."""

    needs_gradients = True

    def __init__(self, function, sample, ours, in_place=False):
        arguments = sample.arguments
        places = [place for place, want in enumerate(sample.wants()) if want]
        fresh = sample.fresh()
        self.parameters = {place: torch.nn.Parameter(fresh[place]) for place in places}
        parameters = list(self.parameters.values())
        optimizer = torch.optim.SGD(parameters, lr=0.01)

        def train(*others):
            given = list(others)
            for place, parameter in zip(places, parameters):
                given[place] = parameter
            optimizer.zero_grad()
            args, kwargs = filled(arguments, [g.clone() for g in given] if in_place else given)
            results = tensors_of(function(*args, **kwargs))
            loss = loss_of(results)
            if loss is not None:
                loss.backward()
            optimizer.step()
            return [r.detach().clone() for r in results]

        self.captured = overdrive.capture(train, optimizer=optimizer) if ours else None
        self.run = self.captured or train

    def call(self, sample):
        tensors = sample.fresh()
        with torch.no_grad():
            for place, parameter in self.parameters.items():
                parameter.copy_(tensors[place])
                tensors[place] = torch.zeros(())
        results = self.run(*tensors)
        parameters = list(self.parameters.values())
        return [*results, *tensors, *copies(parameters), *copies(p.grad for p in parameters)]


class Engine(Subject):
    """Forward and backward with Overdrive's engine, outside of anything captured. Its backwards are what a captured one's replays are."""

    needs_gradients = True

    def __init__(self, function, sample, ours, in_place=False):
        self.function, self.sample, self.ours, self.in_place = function, sample, ours, in_place
        self.before = overdrive.stats()["backwards"]

    def replayed(self):
        return overdrive.stats()["backwards"] - self.before if self.ours else 0

    def refusal(self):
        return "no backward" if self.ours else ""

    def saved(self):
        return contextlib.nullcontext()

    def derived(self, results, given):
        return gradients(results, differentiable(given))

    def call(self, sample):
        given = [t.requires_grad_(want) for t, want in zip(sample.fresh(), self.sample.wants())]
        with overdrive.engine() if self.ours else contextlib.nullcontext():
            args, kwargs = filled(self.sample.arguments, [g.clone() for g in given] if self.in_place else given)
            with self.saved():
                results = tensors_of(self.function(*args, **kwargs))
            derived = self.derived(results, given)
        return [*copies(results), *copies(derived), *copies(given)]


class Hooks(Engine):
    """What operators save goes to a file and comes back."""

    def saved(self):
        return overdrive.saved_tensors(overdrive.spill_to_disk(min_bytes=0)) if self.ours else contextlib.nullcontext()


class Twice(Engine):
    """The gradients, and theirs."""

    @staticmethod
    def is_for(op):
        return op.supports_gradgrad

    def derived(self, results, given):
        ends, leaves = differentiable(results), differentiable(given)
        if not ends:
            return []
        seeds = [torch.cos(end.detach()).requires_grad_() for end in ends]
        first = torch.autograd.grad(ends, leaves, seeds, create_graph=True, allow_unused=True)
        return [*first, *gradients([g for g in first if g is not None], [*leaves, *seeds])]


class ForwardMode(Subject):
    """Values and tangents, as a captured step."""

    needs_gradients = True

    @staticmethod
    def is_for(op):
        return op.supports_forward_ad

    def __init__(self, function, sample, ours, in_place=False):
        arguments, self.wants = sample.arguments, sample.wants()

        def step(*tensors):
            with torch.autograd.forward_ad.dual_level():
                tangents = iter(tensors[len(self.wants):])
                given = [torch.autograd.forward_ad.make_dual(t, next(tangents)) if want else t for t, want in zip(tensors, self.wants)]
                args, kwargs = filled(arguments, given)
                pairs = [torch.autograd.forward_ad.unpack_dual(r) for r in tensors_of(function(*args, **kwargs))]
                return [p.primal.detach().clone() for p in pairs], [p.tangent.clone() for p in pairs if p.tangent is not None]

        self.captured = overdrive.capture(step) if ours else None
        self.run = self.captured or step

    def call(self, sample):
        tensors = sample.fresh()
        tangents = [torch.cos(t) for t, want in zip(tensors, self.wants) if want]
        values, made = self.run(*tensors, *tangents)
        return [*values, *made, *tensors]
