"""Captured programs whose recordings seldom fit: states that come back have recordings of their own (what gains nothing: capture_budget_test.py)."""
import concurrent.futures

import torch
from torch import nn

import overdrive


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.weight, self.factor, self.ask = nn.Parameter(torch.eye(8)), 1.0, False

    def forward(self, x):
        return self.body(x) @ self.weight * self.factor * (2 if self.ask and x[0, 0] > 50 else 1)


def train(captured, change, make, calls):
    torch.manual_seed(0)
    net, seen = Net(), []
    if captured:
        overdrive.captured(net)
    for i in range(calls):
        change(i, net)
        net.zero_grad()
        out = net(make(i))
        out.sum().backward()
        seen.append((out.sum().item(), [None if p.grad is None else p.grad.sum().item() for p in net.parameters()]))
    return seen, overdrive.part_of(net)


def batch(i):
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(i % 64))


def freeze(i, net):
    net.weight.requires_grad_(i // 10 % 2 == 0)


def test_a_half_that_is_frozen_in_turns_has_two_recordings():
    wanted, _ = train(False, freeze, batch, 200)
    seen, part = train(True, freeze, batch, 200)
    assert seen == wanted
    assert part.stats()["replayed"] > 180, part.explain()


def test_many_sizes_are_kept():
    def make(i):
        return batch(i)[: 1 + i % 16]

    wanted, _ = train(False, lambda *_: None, make, 200)
    seen, part = train(True, lambda *_: None, make, 200)
    assert seen == wanted
    assert part.stats()["replayed"] > 100, part.explain()


def test_a_branch_in_each_third_call_costs_no_recordings():
    def ask(_, net):
        net.ask = True

    def make(i):
        return batch(i) + (100 if i % 3 == 0 else 0)

    wanted, _ = train(False, ask, make, 600)
    seen, part = train(True, ask, make, 600)
    assert seen == wanted
    assert part.refusal() != ""


def test_models_in_threads_of_their_own():
    models = [overdrive.captured(nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.Tanh())]))
              for _ in range(3)]
    twins = [nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.Tanh())]) for _ in range(3)]
    for model, twin in zip(models, twins):
        twin.load_state_dict(model.state_dict())
    inputs = torch.randn(100, 4, 8)

    def work(model):
        torch.set_num_threads(1)
        for x in inputs:
            model.zero_grad()
            model(x).square().sum().backward()
            torch.randn(3)  # of the generator that all threads share
        return [p.grad for p in model.parameters()]

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        seen = list(pool.map(work, models))
    for model, gradients, twin in zip(models, seen, twins):
        assert all(map(torch.equal, gradients, work(twin)))
        assert overdrive.part_of(model).stats()["replayed"] > 50, overdrive.part_of(model).refusal()
