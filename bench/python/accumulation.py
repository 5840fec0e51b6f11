"""Gradients that add up over four calls, captured in three ways, beside the same loop in eager: CPU time of the thread, and the same bits.

    python bench/python/accumulation.py [--rounds N]
"""
import argparse
import time

import torch
from torch import nn

import checkout  # noqa: F401 (before overdrive)
import overdrive

PARTS = 4
# Calls before the first round, and in one.
WARM_UP, CALLS = 40 * PARTS, 10 * PARTS


def loop(way):
    """The model, and a call of the loop by its number. ``way``: what is captured; "": nothing."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))

    def backward(x, y):
        loss = nn.functional.cross_entropy(net(x), y) / PARTS
        loss.backward()
        return loss

    def update():
        opt.step()
        opt.zero_grad()

    def whole(x, y, last):
        loss = backward(x, y)
        if last:
            update()
        return loss

    if way == "the backward and the update behind a flag":
        step = overdrive.capture(whole)
        return net, lambda call: step(x, y, call % PARTS == PARTS - 1)
    first = overdrive.capture(backward) if way else backward
    second = overdrive.capture(update) if way == "the backward, and the update apart" else update

    def one(call):
        first(x, y)
        if call % PARTS == PARTS - 1:
            second()

    return net, one


def seconds(one):
    start = time.thread_time()
    for call in range(CALLS):
        one(call)
    return time.thread_time() - start


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=40)
    rounds = options.parse_args().rounds
    torch.set_num_threads(1)
    for way in ("the backward alone", "the backward, and the update apart", "the backward and the update behind a flag"):
        (eager_net, eager), (net, ours) = loop(""), loop(way)
        for call in range(WARM_UP):
            eager(call), ours(call)
        times = [(seconds(eager), seconds(ours)) for _ in range(rounds)]
        ratio = min(b for _, b in times) / min(a for a, _ in times)
        same = all(map(torch.equal, eager_net.parameters(), net.parameters()))
        print(f"{way}: {ratio:.3f} of eager, the best of {rounds} rounds; {'the same bits' if same else 'OTHER BITS'}")


if __name__ == "__main__":
    main()
