"""Training steps of torch.nn's modules, one after the other: CPU time of a step, of stock's, with the engine, with module and optimizer captured, and
as one captured step. Modules and inputs are those of PyTorch's own tests (torch.testing), which need `tools/setup.sh database`.

    PYTHONPATH=build/python:.deps/database python bench/python/modules.py [--calls N] [--rounds N] [--only NAME ...]

The forms take turns in one process, and of each the best round counts: the median of calls 8 to 14, as of a short program, and of the later half.
Bits of losses and parameters are compared.
"""
from __future__ import annotations

import argparse
import statistics
import time
import warnings

import torch
from torch.testing._internal.common_modules import module_db

import overdrive

FORMS = ("stock", "engine", "parts", "whole step")


def sample_of(info):
    """The first input that trains, or None."""
    samples = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)
    return next((each for each in samples if each.forward_input is not None and each.forward_input.args), None)


def loss_of(output):
    return sum(map(loss_of, output)) if isinstance(output, (tuple, list)) else output.float().square().mean()


def run(info, form, calls):
    """Times of all calls, and what they leave."""
    torch.manual_seed(0)
    sample = sample_of(info)
    module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).train()
    parameters = list(module.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-3) if parameters else None
    inputs, keywords = sample.forward_input.args, sample.forward_input.kwargs
    if form == "parts":
        overdrive.captured(module)
        if optimizer is not None:
            overdrive.captured(optimizer)

    def step(first, *others):
        if optimizer is not None:
            optimizer.zero_grad()
        elif first.is_floating_point():
            first = first.detach().requires_grad_()
        loss = loss_of(module(first, *others, **keywords))
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        return loss.detach()

    if form == "whole step":
        step = overdrive.capture(step, optimizer=optimizer)
    times, left = [], []
    for _ in range(calls):
        begin = time.thread_time()
        loss = step(*inputs)
        times.append(time.thread_time() - begin)
        left.append(loss.clone())
    return times, [*left, *(parameter.detach().clone() for parameter in parameters)]


def measure(info, calls, rounds):
    """Of each form the time of an early call and of a late one."""
    found, expected = {form: (float("inf"), float("inf")) for form in FORMS}, []
    for _ in range(rounds):
        for form in FORMS:
            if form == "stock":
                times, expected = run(info, form, calls)
            else:
                with overdrive.engine():
                    times, left = run(info, form, calls)
                assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(expected, left)), (info.name, form)
            now = statistics.median(times[8:14]), statistics.median(times[calls // 2:])
            found[form] = tuple(map(min, found[form], now))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    ratios = {form: ([], []) for form in FORMS[1:]}
    for info in module_db:
        if "Lazy" in info.name or "Fractional" in info.name or sample_of(info) is None or options.only and info.name not in options.only:
            continue
        found = measure(info, options.calls, options.rounds)
        text = f"{info.name:28} {found['stock'][1] * 1e6:7.1f} us"
        for form, (early, late) in ratios.items():
            for column, ours, stocks in zip((early, late), found[form], found["stock"]):
                column.append(ours / stocks)
            text += f"   {form} {early[-1]:.2f} {late[-1]:.2f}"
        print(text, flush=True)
    for form, columns in ratios.items():
        for name, column in zip(("calls 8 to 14", "later"), map(sorted, columns)):
            print(f"{form}, {name}: median {statistics.median(column):.2f}, a tenth above {column[len(column) * 9 // 10]:.2f}, at most {column[-1]:.2f} "
                  f"({len(column)} modules)")


if __name__ == "__main__":
    main()
