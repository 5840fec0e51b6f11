"""step() of an optimizer, captured beside PyTorch's: CPU time by number and size of the parameters, of fresh gradients as a backward makes them.

    python bench/python/updates.py [--rounds N]

The two take turns on equal parameters in one process, and of each the best round counts. Parameters are compared bit by bit at the end.
"""
from __future__ import annotations

import argparse
import time
import warnings

import torch

import overdrive

SIZES = ((6, (64,)), (72, (64,)), (72, (32, 32)), (72, (64, 64)), (20, (128, 128)), (16, (256, 256)))
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, 1e-3, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, 1e-3),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 1e-3),
}
WARM = 60


def timed(optimizer, parameters, gradients):
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient.clone()
    begin = time.thread_time_ns()
    optimizer.step()
    return time.thread_time_ns() - begin


def measure(count, size, make, rounds):
    sides = [[torch.nn.Parameter(torch.full(size, 0.1)) for _ in range(count)] for _ in range(2)]
    optimizers = [make(sides[0]), overdrive.captured(make(sides[1]))]
    gradients = [torch.randn(size) for _ in range(count)]
    best = [float("inf")] * 2
    for turn in range(WARM + rounds):
        for side in range(2):
            taken = timed(optimizers[side], sides[side], gradients)
            best[side] = min(best[side], taken) if turn >= WARM else best[side]
    assert all(map(torch.equal, *sides)), "other bits"
    return best


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    overdrive.install()
    print("optimizer  parameters        PyTorch us  captured us  of PyTorch")
    for count, size in SIZES:
        for name, make in OPTIMIZERS.items():
            stock, captured = (ns / 1e3 for ns in measure(count, size, make, rounds))
            print(f"{name:9}  {count:3} of {'x'.join(map(str, size)):9}  {stock:11.1f}  {captured:11.1f}  {captured / stock:10.3f}", flush=True)


if __name__ == "__main__":
    main()
