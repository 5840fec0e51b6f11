"""Runs programs one after the other in this process, and tells the parent by lines: `@ {...}` before each program, else text for the reader."""
from __future__ import annotations

import importlib
import json
import pathlib
import time
import warnings

import torch
import twins
from shrink import shrink

KINDS = ("steps", "loops", "graphs", "threads")


def made(kind, seed):
    notebook = importlib.import_module(kind).notebook(seed)
    notebook.about = f"{kind}, seed {seed}"
    return notebook


def settings_of(seed):
    """Some programs run every recorded operator, and some compare every third replay."""
    return {"passes": seed % 4 != 3, "check_every": 3 if seed % 5 == 4 else 0}


def report(notebook, outcome, options, settings):
    print(f"{notebook.about}: {outcome.difference[:600]}; {outcome.replayed} replayed", flush=True)
    if options.shrink:
        small = shrink(notebook, lambda smaller: bool(twins.difference(smaller, settings).difference), options.shrink_seconds)
        small.about = f"{notebook.about}, {settings}\n{twins.difference(small, settings).difference[:400]}"
        path = pathlib.Path(options.shrink) / (notebook.about.replace(", seed ", "_") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(small.text())
        print(f"  {path}", flush=True)
    if options.show:
        print(notebook.text(), flush=True)


def run(options):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    end = time.monotonic() + options.seconds
    totals = {"programs": 0, "replayed": 0, "calls": 0, "differ": 0}
    for seed in range(options.seed, options.seed + options.programs):
        if time.monotonic() > end:
            break
        print("@ " + json.dumps({"seed": seed, **totals}), flush=True)
        notebook, settings = made(options.kinds[seed % len(options.kinds)], seed), settings_of(seed)
        outcome = twins.difference(notebook, settings)
        totals["programs"] += 1
        totals["replayed"] += outcome.replayed > 0
        totals["calls"] += outcome.replayed
        if outcome.difference:
            totals["differ"] += 1
            report(notebook, outcome, options, settings)
    print("@ " + json.dumps({"seed": None, **totals}), flush=True)
