#!/usr/bin/env python3
"""How many instructions the engine takes for a node of seven graphs, against a budget for each.

    instructions_test.py PROGRAM           fails where a count is above its budget
    instructions_test.py PROGRAM --stock   prints the counts of LibTorch's own engine beside them, and the ratios

PROGRAM is counted_backwards. Valgrind counts, so no clock and no other process has a part in the result, and every
processor with AVX2 looks the same to LibTorch's kernels. The count of a node is the difference between two sizes of
a graph, so what a backward costs once is in `one_node` alone. Where there is no valgrind the test is skipped (77).

A change that needs more raises the budget in the same commit, and says why. One that needs less lowers it.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

SKIPPED = 77
FUNCTION = "measured_backward"


class Case(NamedTuple):
    graph: str
    small: int  # 0: the whole backward of `large`, its fixed costs included
    large: int
    budget: int  # instructions a node: what was measured with GCC 12 and LibTorch 2.13, and a twentieth more

    def key(self):
        return f"{self.graph} {self.small or self.large}"


CASES = (
    Case("chain", 1_000, 2_000, 1_960),
    Case("chain", 0, 20_000, 1_960),
    Case("ladder", 1_000, 2_000, 6_090),
    Case("scale_chain", 1_000, 2_000, 1_850),
    Case("relu_matmul", 100, 200, 8_370),
    Case("lstm", 16, 32, 7_350),
    Case("one_node", 0, 1, 6_180),
)


def totals(folder):
    """The instructions of each dump, in the order in which they were made."""
    dumps = sorted(folder.glob("counts.*"), key=lambda path: int(path.suffix[1:]))
    for dump in dumps:
        lines = [line for line in dump.read_text().splitlines() if line.startswith("totals:")]
        yield int(lines[-1].split()[1])


def counts(program, engine):
    """Instructions a node, by the key of a case."""
    sizes = [(case.graph, size) for case in CASES for size in (case.small, case.large) if size]
    arguments = [str(word) for pair in sizes for word in pair]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OVERDRIVE_")}
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect={FUNCTION}",
                   f"--dump-after={FUNCTION}", f"--callgrind-out-file={folder}/counts", program, engine, *arguments]
        run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if run.returncode:
            sys.exit(f"{' '.join(command)}\n{run.stderr}")
        nodes = [int(line.split()[2]) for line in run.stdout.splitlines()]
        measured = dict(zip(sizes, zip(nodes, totals(Path(folder)), strict=False), strict=True))
    result = {}
    for case in CASES:
        many, instructions = measured[case.graph, case.large]
        few, before = measured[case.graph, case.small] if case.small else (0, 0)
        result[case.key()] = (instructions - before) / (many - few)
    return result


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("--stock", action="store_true")
    given = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed (tools/setup.sh installs it)")
        return SKIPPED
    ours = counts(given.program, "overdrive")
    stock = counts(given.program, "stock") if given.stock else {}
    above = 0
    for case in CASES:
        count = ours[case.key()]
        above += count > case.budget
        beside = f"   stock {stock[case.key()]:9.0f}   ratio {count / stock[case.key()]:.3f}" if stock else ""
        verdict = "ABOVE ITS BUDGET" if count > case.budget else ""
        print(f"{case.key():18} {count:9.0f}   budget {case.budget:6}{beside}   {verdict}".rstrip())
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
