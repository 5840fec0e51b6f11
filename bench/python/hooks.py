"""What saved-tensor packers cost and keep under a Python program: forward and backward of twelve GELU layers.

    python bench/python/hooks.py [--json FILE] [--seconds S] [--width W] [--batch B]
"""
import argparse
import contextlib
import json
import random
import statistics
import sys
import time

import torch
from steps import environment
from torch import nn

import checkout  # noqa: F401 (before overdrive)
import overdrive
from overdrive.tools.compare import interval


def in_python(pack, unpack):
    return lambda: torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def to_int8(tensor):
    if tensor.dtype != torch.float32 or tensor.numel() < 1024 or tensor.numel() % 64:
        return tensor
    blocks = tensor.detach().reshape(-1, 64)
    scale = blocks.abs().amax(1, keepdim=True).clamp_min(1e-20) / 127
    return (blocks / scale).round().to(torch.int8), scale, tensor.shape


def from_int8(packed):
    return packed if isinstance(packed, torch.Tensor) else (packed[0] * packed[1]).view(packed[2])


def ours(make, **options):
    packer = make()
    return lambda: overdrive.saved_tensors(packer, **options)


def scopes():
    return {
        "none": contextlib.nullcontext,
        "identity, Python": in_python(lambda t: t, lambda t: t),
        "keep()": ours(overdrive.keep, skip_parameters=False),
        "int8, Python": in_python(to_int8, from_int8),
        "quantise()": ours(overdrive.quantise),
        "quantise(), schedulable": ours(overdrive.quantise, schedulable=True),
        "spill_to_disk()": ours(overdrive.spill_to_disk),
        "spill_to_disk(), schedulable": ours(overdrive.spill_to_disk, schedulable=True),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument("--seconds", type=float, default=60, help="for all rows together (60)")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=1024)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(arguments.width, arguments.width), nn.GELU()) for _ in range(12)])
    x = torch.randn(arguments.batch, arguments.width)

    def turn(scope):
        layers.zero_grad()
        begin = time.process_time(), time.perf_counter()
        with scope():
            loss = layers(x).square().mean()
        loss.backward()
        return time.process_time() - begin[0], time.perf_counter() - begin[1]

    overdrive.install()
    known = scopes()
    turns = {name: [] for name in known}
    end = time.perf_counter() + arguments.seconds
    while len(turns["none"]) < 4 or time.perf_counter() < end:
        for name in random.sample(list(known), len(known)):
            turns[name].append(turn(known[name]))
    rows = []
    print(f"{'packer':30} wall, ms   CPU: of none               wall: of none")
    for name, found in turns.items():
        row = {"name": name, "wall_ms": statistics.median(wall for _, wall in found[1:]) * 1e3}
        for clock, which in (("cpu", 0), ("wall", 1)):
            ratios = [a[which] / b[which] for a, b in zip(found[1:], turns["none"][1:])]
            row[clock] = {"ratio": statistics.median(ratios), "ratio_lo": interval(ratios)[0], "ratio_hi": interval(ratios)[1]}
        show = "{ratio:.3f} [{ratio_lo:.3f}, {ratio_hi:.3f}]".format_map
        print(f"{name:30} {row['wall_ms']:8.1f}   {show(row['cpu'])}   {show(row['wall'])}")
        rows.append(row)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"environment": environment(), "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
