"""Programs of 200 calls, captured and eager in turn: CPU time by phases, and what recording and refusing cost.

    python bench/python/never_slower.py [PROGRAM ...] [--rounds N]

Of each call the best of all rounds counts. *Over* is how many eager calls the captured program takes beyond eager's time, where it does.
"""
from __future__ import annotations

import argparse
import gc
import random
import time
import warnings

import torch
from torch import nn

import overdrive

CALLS, PHASES = 200, ((0, 50), (50, 100), (100, 200))
PROGRAMS = {}


def program(make):
    PROGRAMS[make.__name__] = make
    return make


def batch(i, rows=32):
    generator = torch.Generator().manual_seed(i)
    return torch.randn(rows, 8, generator=generator), torch.randn(rows, 1, generator=generator)


DATA = [batch(i) for i in range(8)]
IMAGES = [(torch.randn(8, 1, 28, 28), torch.randint(0, 10, (8,))) for _ in range(4)]


def mlp():
    torch.manual_seed(1)
    layers = [layer for _ in range(2) for layer in (nn.Linear(64, 64), nn.Tanh())]
    return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), *layers, nn.Linear(64, 1))


def conv():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1936, 10))


class Net(nn.Module):
    """A body, and something around it."""

    def __init__(self, around):
        super().__init__()
        self.body, self.around, self.scale, self.seen = mlp(), around, 1, []

    def forward(self, x):
        return self.around(self, self.body(x)) * self.scale


def loop(captured, model, kind, data=DATA, loss=nn.functional.mse_loss, before=lambda i, model: None, sized=lambda i, x: x, update=True):
    optimizer = kind(model.parameters(), lr=0.01)
    if captured:
        overdrive.captured(model)
        if update:
            overdrive.captured(optimizer)

    def run(i):
        before(i, model)
        x, y = (sized(i, each) for each in data[i % len(data)])
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()

    return run


def step(captured, change=lambda x, loss: (x, loss), after=lambda loss: None, number=None):
    """A whole training step as a function."""
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())

    def train(x, y, n=0):
        optimizer.zero_grad()
        x, scale = change(x, 1)
        loss = nn.functional.mse_loss(model(x), y) * scale
        for _ in range(n):
            loss = loss * 1.01
        loss.backward()
        optimizer.step()
        after(loss)
        return loss

    function = overdrive.capture(train) if captured else train
    return lambda i: function(*DATA[i % 8]) if number is None else function(*DATA[i % 8], number(i))


def sixth(i, model):
    model.scale = 1 + i // 6


PROGRAMS["mlp_adam"] = lambda captured: loop(captured, mlp(), torch.optim.Adam)
PROGRAMS["mlp_sgd"] = lambda captured: loop(captured, mlp(), torch.optim.SGD)
PROGRAMS["conv_adam"] = lambda captured: loop(captured, conv(), torch.optim.Adam, IMAGES, nn.functional.cross_entropy)
PROGRAMS["linear_sgd"] = lambda captured: loop(captured, nn.Sequential(nn.Linear(8, 1)), torch.optim.SGD)
PROGRAMS["step_mlp"] = step
PROGRAMS["refused_random"] = lambda captured: step(captured, lambda x, scale: (x.flip(0) if random.random() < 0.3 else x, scale))
PROGRAMS["sixth_value_part"] = lambda captured: loop(captured, Net(lambda net, y: y), torch.optim.SGD, before=sixth, update=False)
PROGRAMS["sixth_number_step"] = lambda captured: step(captured, number=lambda i: 1 + i // 6)
PROGRAMS["new_sizes"] = lambda captured: loop(captured, mlp(), torch.optim.SGD, [batch(1, 256)], sized=lambda i, x: x[:8 + i], update=False)
PROGRAMS["sixth_size"] = lambda captured: loop(captured, mlp(), torch.optim.SGD, [batch(1, 256)], sized=lambda i, x: x[:8 + i // 6], update=False)
PROGRAMS["part_item"] = lambda captured: loop(captured, Net(lambda net, y: y if y.abs().max().item() < 1e3 else -y), torch.optim.SGD,
                                              update=False)


@program
def refused_item(captured):
    return step(captured, lambda x, scale: (x, 0.5 if x.sum().item() > 100 else scale))


@program
def refused_append(captured):
    history = []
    return step(captured, after=lambda loss: history.append(float(loss)))


@program
def one_operator(captured):
    function = overdrive.captured(torch.nn.Tanh()) if captured else torch.nn.Tanh()
    x = torch.randn(4, 4)
    return lambda i: function(x)


@program
def one_operator_graph(captured):
    function = overdrive.captured(lambda x: torch.tanh(x)) if captured else lambda x: torch.tanh(x)
    x = torch.randn(4, 4, requires_grad=True)
    return lambda i: torch.autograd.grad(function(x).sum(), x)


def times(make, captured):
    from overdrive.step.reasons import steps

    before = set(map(id, steps))
    run, spent = make(captured), []
    for i in range(CALLS):
        start = time.thread_time_ns()
        run(i)
        spent.append(time.thread_time_ns() - start)
    told = "; ".join(each.refusal()[:70] for each in list(steps) if id(each) not in before and each.refusal())
    del run
    gc.collect()
    return spent, told


def main():
    options = argparse.ArgumentParser()
    options.add_argument("programs", nargs="*", choices=[[], *PROGRAMS])
    options.add_argument("--rounds", type=int, default=3)
    asked = options.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"{'program':20}{'call, us':>9}" + "".join(f"{f'{a + 1}-{b}':>9}" for a, b in PHASES) + f"{'over':>8}")
    for name, make in PROGRAMS.items():
        if asked.programs and name not in asked.programs:
            continue
        times(make, False)
        rounds = [(times(make, False)[0], *times(make, True)) for _ in range(asked.rounds)]
        eager, ours = ([min(calls) for calls in zip(*(each[k] for each in rounds))] for k in (0, 1))
        call = sum(eager[50:]) / len(eager[50:])
        phases = "".join(f"{sum(ours[a:b]) / sum(eager[a:b]):9.2f}" for a, b in PHASES)
        over = sum(max(0, took - call) for took in ours) / call
        print(f"{name:20}{call / 1e3:9.1f}{phases}{over:8.1f}  {rounds[-1][2]}", flush=True)


if __name__ == "__main__":
    main()
