"""One sample in the forms in which a program may capture it. A subject is one side, eager or captured; `call()` is one call of it.

A call returns the tensors that it made or changed, None for a gradient that is not there. The two sides get equal data.
"""
from __future__ import annotations

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
