"""A training loop with the optimizer, the model and the criterion captured, apart or model and criterion in one: CPU time of a turn, of
stock's, and of its pieces.

    python bench/python/pieces.py [PROGRAM ...] [--rounds N]

The forms take turns in one process, and of each the best round counts. Of the pieces it is the lowest fifth of all turns.
"""
from __future__ import annotations

import argparse
import time
import warnings

import torch
from torch import nn
from workloads import Block

import overdrive

PIECES = ("zero_grad", "model", "loss", "backward", "step")
FORMS = ("stock", "engine", "optimizer", "model", "criterion", "joined", "whole step")
WARM, TURNS = 120, 30


def mlp(inputs, width):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def conv_net():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 36, 10))


def transformer():
    return nn.Sequential(nn.Embedding(50, 64), Block(64), Block(64), nn.LayerNorm(64), nn.Linear(64, 50), nn.Flatten(0, 1))


def adam(parameters):
    return torch.optim.Adam(parameters)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01)


# What makes the model, the optimizer, and a batch.
PROGRAMS = {
    "mlp-adam": (lambda: mlp(64, 64), adam, lambda: torch.randn(32, 64)),
    "mlp-sgd": (lambda: mlp(64, 64), sgd, lambda: torch.randn(32, 64)),
    "conv-adam": (conv_net, adam, lambda: torch.randn(16, 1, 14, 14)),
    "critic-adam": (lambda: mlp(24, 256), adam, lambda: torch.randn(256, 24)),
    "transformer-adam": (transformer, adam, lambda: torch.randint(0, 50, (4, 16))),
}


class Form:
    def __init__(self, program, name):
        make, optimizer, batch = PROGRAMS[program]
        torch.manual_seed(0)
        self.model, self.criterion, self.joined = make(), nn.CrossEntropyLoss(), None
        self.optimizer = optimizer(self.model.parameters())
        self.x = batch()
        self.y = torch.randint(0, 10, (len(self.model(self.x)),))
        self.switched = name != "stock"
        self.step = overdrive.capture(self.whole_step) if name == "whole step" else None
        if name in ("optimizer", "model", "criterion", "joined"):
            overdrive.captured(self.optimizer)
        if name in ("model", "criterion"):
            overdrive.captured(self.model)
        if name == "criterion":
            overdrive.captured(self.criterion)
        if name == "joined":
            self.joined = overdrive.captured(lambda x, y: self.criterion(self.model(x), y))
        self.best, self.pieces = float("inf"), []

    def whole_step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.joined(x, y) if self.joined else self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self, turns):
        """Only calls of the program stand in the loop."""
        step, x, y = self.step or self.whole_step, self.x, self.y
        for _ in range(turns):
            step(x, y)

    def run_in_pieces(self, turns):
        now, model, criterion, joined = time.perf_counter_ns, self.model, self.criterion, self.joined
        optimizer, x, y = self.optimizer, self.x, self.y
        for _ in range(turns):
            at = [now()]
            optimizer.zero_grad()
            at.append(now())
            result = joined(x, y) if joined else model(x)
            at.append(now())
            loss = result if joined else criterion(result, y)
            at.append(now())
            loss.backward()
            at.append(now())
            optimizer.step()
            at.append(now())
            self.pieces.append([after - before for before, after in zip(at, at[1:])])

    def measure(self):
        if self.switched:
            overdrive.install()
        try:
            began = time.thread_time_ns()
            self.run(TURNS)
            self.best = min(self.best, (time.thread_time_ns() - began) / TURNS)
            if self.step is None:
                self.run_in_pieces(TURNS)
        finally:
            if self.switched:
                overdrive.uninstall()


def measure(program, rounds):
    forms = {name: Form(program, name) for name in FORMS}
    for form in forms.values():
        form.run(WARM)
        form.measure()
        form.best = float("inf")
        form.pieces.clear()
    for _ in range(rounds):
        for form in forms.values():
            form.measure()
    stock = forms["stock"].best
    print(f"{program}: stock {stock / 1000:.0f} us\n  {'':12}{'of stock':>9}" + "".join(f"{piece:>11}" for piece in PIECES))
    for name, form in forms.items():
        columns = [sorted(column)[len(column) // 5] / 1000 for column in zip(*form.pieces)]
        print(f"  {name:12}{form.best / stock:9.3f}" + "".join(f"{column:11.1f}" for column in columns), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    if unknown := set(arguments.programs) - set(PROGRAMS):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for program in arguments.programs or PROGRAMS:
        measure(program, arguments.rounds)


if __name__ == "__main__":
    main()
