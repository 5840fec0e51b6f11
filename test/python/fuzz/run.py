"""Random notebooks with captured steps and parts beside eager twins: `make fuzz-capture` runs it.

    run.py [KIND ...] [--seed N] [--programs N] [--seconds S] [--show] [--shrink DIRECTORY]
    run.py --file FILE

A kind is steps, loops, graphs or threads; without one, all take turns. The first program is made from seed N, the next from N + 1, so
that a failing one runs alone with `--seed N --programs 1`. After each cell everything in the two namespaces is compared (facts.py).
`--shrink` writes each program that differs as a small script of cells, which `--file` runs again. A process of its own runs the
programs, so that a crash is reported by its seed. Exit status: 1 when anything differs.
"""
from __future__ import annotations

import argparse
import ast
import collections
import json
import os
import pathlib
import select
import subprocess
import sys
import time

import batch

SILENCE = 300  # seconds for a program


def lines(worker):
    """Lines of a worker, until it ends or is silent for too long."""
    rest = b""
    while select.select([worker.stdout], [], [], SILENCE)[0]:
        got = os.read(worker.stdout.fileno(), 1 << 16)
        if not got:
            return
        *whole, rest = (rest + got).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)


def watched(arguments, seed, programs, seconds):
    """Runs the programs in processes of their own; a program that ends its process differs. Returns the totals."""
    totals, last, end = collections.Counter(), seed + programs, time.monotonic() + seconds
    while seed < last and (left := end - time.monotonic()) > 0:
        command = [sys.executable, "-B", __file__, "--child", *arguments, "--seed", str(seed), "--programs", str(last - seed), "--seconds", str(left)]
        worker, news = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL), {"seed": seed}
        for line in lines(worker):
            if line.startswith("@ "):
                news = json.loads(line[2:])
            else:
                print(line, flush=True)
        under_way = news.pop("seed")
        totals.update(news)
        if under_way is None:
            worker.wait()
            break
        worker.kill()
        print(f"seed {under_way}: the process ended with {worker.wait()}", flush=True)
        totals.update(programs=1, differ=1)
        seed = under_way + 1
    return totals


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=list(batch.KINDS), help=", ".join(batch.KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=10**9)
    parser.add_argument("--show", action="store_true", help="the text of each program that differs")
    parser.add_argument("--shrink", help="a directory for small programs")
    parser.add_argument("--shrink-seconds", type=float, default=60, help="for each program")
    parser.add_argument("--file", help="runs this script of cells")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.file:
        import twins
        from notebook import Notebook

        program = Notebook.from_text(pathlib.Path(options.file).read_text())
        outcome = twins.difference(program, ast.literal_eval(program.about[program.about.index("{"):].split("\n")[0]) if "{" in program.about else None)
        print(outcome.difference or f"no difference; {outcome.replayed} replayed")
        return int(bool(outcome.difference))
    if options.child:
        batch.run(options)
        return 0
    arguments = [*options.kinds, "--shrink-seconds", str(options.shrink_seconds)]
    arguments += ["--show"] if options.show else []
    arguments += ["--shrink", options.shrink] if options.shrink else []
    totals = watched(arguments, options.seed, options.programs, options.seconds)
    print("{programs} programs, {replayed} replayed ({calls} calls), {differ} differ".format_map(totals))
    return 1 if totals["differ"] or not totals["replayed"] else 0


if __name__ == "__main__":
    sys.exit(main())
