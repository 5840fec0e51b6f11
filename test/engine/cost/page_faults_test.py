#!/usr/bin/env python3
"""Page faults of a training step of wide models, counted by the system: never more than LibTorch's own engine takes.

    page_faults_test.py OVERDRIVE

Each model and engine runs in a process of its own (`overdrive bench faults`), because a heap remembers all that was
in it. A handful is allowed: single faults of the first counted steps.
"""
import json
import os
import subprocess
import sys

MODELS = ("mlp", "bidirectional_lstm", "gan", "conv_net")
HANDFUL = 16
STEPS = 24


def faults(program, model, engine):
    """A step's, after as many steps as are counted."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OVERDRIVE_")}
    command = [program, "bench", "faults", model, "--engine", engine, "--steps", str(STEPS)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if run.returncode:
        sys.exit(f"{' '.join(command)}\n{run.stderr}")
    return json.loads(run.stdout)["faults"]


def main():
    program = sys.argv[1]
    above = 0
    for model in MODELS:
        stock, ours = faults(program, model, "stock"), faults(program, model, "overdrive")
        bad = ours > stock + HANDFUL
        above += bad
        print(f"{model:20} stock {stock:9.1f}   ours {ours:9.1f}   {'MORE THAN STOCK' if bad else ''}".rstrip())
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
