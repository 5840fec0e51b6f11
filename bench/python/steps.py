"""Whole training steps under stock and under Overdrive, and their backwards alone. See bench/README.md.

    python bench/python/steps.py [--json FILE] [--seconds S] [--quick] [workload...]
"""
import argparse
import gc
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import warnings

import torch
from workloads import WORKLOADS

import checkout  # noqa: F401 (before overdrive)
import overdrive
from overdrive.tools.compare import interval

CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}


class Backwards:
    """Times what PyTorch spends in its engine, by each clock. Nested calls count once."""

    def __init__(self):
        self.inside = 0
        self.spent = dict.fromkeys(CLOCKS, 0.0)
        self.run = torch.autograd._engine_run_backward
        torch.autograd._engine_run_backward = self.timed

    def timed(self, *arguments, **options):
        if self.inside:
            return self.run(*arguments, **options)
        self.inside += 1
        begin = {name: clock() for name, clock in CLOCKS.items()}
        try:
            return self.run(*arguments, **options)
        finally:
            self.inside -= 1
            for name, clock in CLOCKS.items():
                self.spent[name] += clock() - begin[name]

    def take(self):
        spent, self.spent = self.spent, dict.fromkeys(CLOCKS, 0.0)
        return spent


def switch(engine):
    overdrive.install() if engine == "overdrive" else overdrive.uninstall()


def final_bits(make, engine, steps=3):
    switch(engine)
    torch.manual_seed(0)
    parameters, step = make()
    losses = [step().item().hex() for _ in range(steps)]
    gradients = [p.grad for p in parameters if p.grad is not None]
    return losses, [t.detach().clone().view(-1).view(torch.uint8) for t in [*parameters, *gradients]]


def same_bits(make):
    (a, left), (b, right) = final_bits(make, "stock"), final_bits(make, "overdrive")
    return a == b and len(left) == len(right) and all(torch.equal(x, y) for x, y in zip(left, right))


def one_turn(step, steps, backwards):
    """Seconds of a step and of its backward, by each clock."""
    step()
    backwards.take()
    begin = {name: clock() for name, clock in CLOCKS.items()}
    for _ in range(steps):
        step()
    whole = {name: clock() - begin[name] for name, clock in CLOCKS.items()}
    alone = backwards.take()
    return {"step": {name: whole[name] / steps for name in CLOCKS}, "backward": {name: alone[name] / steps for name in CLOCKS}}


def measure(make, steps, seconds, backwards):
    """The turns of each engine. In a round both have one, in random order; the first round warms up."""
    torch.manual_seed(0)
    _, step = make()
    turns = {"stock": [], "overdrive": []}
    end = time.perf_counter() + seconds
    while len(turns["stock"]) < 4 or time.perf_counter() < end:
        for engine in random.sample(list(turns), 2):
            switch(engine)
            turns[engine].append(one_turn(step, steps, backwards))
    return {engine: found[1:] for engine, found in turns.items()}


def row(name, seconds, backwards):
    make, steps = WORKLOADS[name]
    result = {"name": name, "bits": "equal" if same_bits(make) else "DIFFER"}
    gc.collect()
    gc.disable()
    turns = measure(make, steps, seconds, backwards)
    gc.enable()
    for what in ("step", "backward"):
        result[what] = {}
        for clock in CLOCKS:
            stock, ours = ([turn[what][clock] for turn in turns[engine]] for engine in ("stock", "overdrive"))
            ratios = [b / a for a, b in zip(stock, ours)]
            low, high = interval(ratios)
            result[what][clock] = {"stock_ms": statistics.median(stock) * 1e3, "overdrive_ms": statistics.median(ours) * 1e3,
                                   "ratio": statistics.median(ratios), "ratio_lo": low, "ratio_hi": high}
    result["rounds"] = len(turns["stock"])
    return result


def in_a_process_of_its_own(name, seconds):
    """Some workloads leave something behind, as the heap of one that has taken much memory."""
    child = subprocess.run([sys.executable, __file__, "--row", name, "--seconds", str(seconds)], stdout=subprocess.PIPE,
                           text=True, check=True)
    return json.loads(child.stdout)


def one_row(name, seconds):
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    print(json.dumps(row(name, seconds, Backwards())))


def environment():
    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            processor = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {"processor": processor, "cores": os.cpu_count(), "threads": torch.get_num_threads(), "torch": torch.__version__,
            "python": platform.python_version(), "overdrive": overdrive.__version__, "load": os.getloadavg()[0],
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", nargs="*", choices=[[], *WORKLOADS], help="which; all unless told")
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument("--seconds", type=float, default=20, help="for each workload (20)")
    parser.add_argument("--quick", action="store_true", help="a few rounds of each, to see that it runs")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row:
        return one_row(arguments.row, arguments.seconds)
    rows = []
    print(f"{'workload':22} bits    step, ms   CPU: step of stock's      backward            wall: step   rounds")
    for name in arguments.workload or WORKLOADS:
        rows.append(in_a_process_of_its_own(name, 0.2 if arguments.quick else arguments.seconds))
        step, backward = rows[-1]["step"], rows[-1]["backward"]
        show = "{ratio:.3f} [{ratio_lo:.3f}, {ratio_hi:.3f}]".format_map
        print(f"{name:22} {rows[-1]['bits']:6} {step['cpu']['stock_ms']:9.3f}   {show(step['cpu'])}   "
              f"{show(backward['cpu'])}   {step['wall']['ratio']:.3f}   {rows[-1]['rounds']:6}", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"environment": environment(), "rows": rows}, file, indent=1)
    return 0 if all(r["bits"] == "equal" for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
