"""PyTorch's databases beside stock, captured and under the engine: `make databases` runs it.

    run.py [DATABASE ...] [--seconds S] [--only TEXT] [--samples N] [--from NAME] [--json FILE]

DATABASES names them. A case is an operator, a module or an optimizer. Each of its samples is called in each form: as a captured step, as a
captured part with a backward outside, as a step that trains, with the engine, its hooks, twice differentiated and in forward mode
(subjects.py, modules.py, optimizers.py). compare.py says which data the calls get. Worker processes
make the cases, one process at a time, so that a crash or a case that hangs is a row of the table. Exit status: 1 when anything differs.
"""
from __future__ import annotations

import argparse
import importlib
import json
import os
import select
import subprocess
import sys
import time
import warnings

from table import Table

os.environ.setdefault("OVERDRIVE_CAPTURE_ALWAYS", "1")
os.environ.setdefault("OVERDRIVE_CAPTURE_CHECK", "0")  # so that a replay is compared by these programs alone
CASES_OF_A_WORKER = 40
# Their names here: the module of this folder, and where it finds the cases.
DATABASES = {
    "operators": ("operators", "common_methods_invocations", "op_db"), "modules": ("modules",), "optimizers": ("optimizers",),
    "functions": ("operators", "autograd_function_db", "autograd_function_db"), "custom": ("operators", "custom_op_db", "custom_op_db"),
    "higher_order": ("operators", "hop_db", "hop_db"),
}
SILENCE = 300  # seconds without a word of the worker


def work(database, names, most):
    """In a worker: a line when a case begins, one when it has ended."""
    import torch

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    name, *place = DATABASES[database]
    module = importlib.import_module(name)
    cases = module.cases(*place)
    if names is None:
        print(json.dumps(list(cases)))
        return
    for name in names:
        print(json.dumps({"begin": name}), flush=True)
        made = list(module.rows(cases[name], (torch.float32, torch.float64), most))
        print(json.dumps({"end": name, "rows": made}), flush=True)


def lines(worker):
    """Lines of JSON of a worker, until it ends or is silent for too long."""
    rest = b""
    while select.select([worker.stdout], [], [], SILENCE)[0]:
        got = os.read(worker.stdout.fileno(), 1 << 16)
        if not got:
            return
        *whole, rest = (rest + got).split(b"\n")
        yield from (json.loads(line) for line in whole if line.startswith(b"{"))


def run(database, options, end, table):
    """The cases of one database; which are left when the time is over."""
    here = [sys.executable, "-B", __file__, "--samples", str(options.samples), "--database", database, "--work"]
    names = json.loads(subprocess.run([*here, "null"], stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])
    if options.first in names:
        names = names[names.index(options.first):]
    left = [name for name in names if options.only in name]
    while left and time.monotonic() < end:
        now = left[:CASES_OF_A_WORKER]
        worker = subprocess.Popen([*here, json.dumps(now)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        under_way = now[0]
        for news in lines(worker):
            if "begin" in news:
                under_way = news["begin"]
                continue
            left.remove(news["end"])
            under_way = ""
            table.add(database, news["end"], news["rows"])
            if time.monotonic() > end:
                break
        over = time.monotonic() > end
        if worker.poll() is None and (over or under_way):
            worker.kill()
        code = worker.wait()
        if under_way and not over:
            left.remove(under_way)
            table.add(database, under_way, [["", "differs", f"the process ended with {code}"]])
    return left


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("databases", nargs="*", default=list(DATABASES), help=", ".join(DATABASES))
    parser.add_argument("--seconds", type=float, default=10**9)
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--from", dest="first", default="", help="begins with this case")
    parser.add_argument("--samples", type=int, default=8, help="of each case and type, at most")
    parser.add_argument("--json", help="a file for the counts, the refusals and the differences")
    parser.add_argument("--database", help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.database, json.loads(options.work), options.samples)
        return 0
    table, end = Table(), time.monotonic() + options.seconds
    for database in options.databases:
        if left := run(database, options, end, table):
            print(f"the time is over; {len(left)} {database} are left: go on with `{database} --from {left[0]}`")
    table.show()
    if options.json:
        table.write(options.json)
    return 1 if table.wrong or not table.replayed() else 0


if __name__ == "__main__":
    sys.exit(main())
