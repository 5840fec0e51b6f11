"""Audits the programs of test/python, the generators and scripts, each in a process of its own, and prints a table and every difference.

    run.py [tests] [fuzz] [FILE.py ...] [--seconds S] [--seed N]

Without a name: tests and fuzz. Exit status: 1 when anything differs.
"""
from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE.parent
# Of the tests those that capture steps, and no process of their own.
TESTS = ("apart*_test.py", "autocast_test.py", "capture*_test.py", "guards_test.py", "parts*_test.py", "threads_test.py", "fuzz_test.py")
FUZZERS = ("capture_fuzz.py", "counters_fuzz.py", "numbers_fuzz.py", "parts_fuzz.py")
KINDS = ("steps", "loops", "graphs")


def inside(path: str, arguments: list[str]) -> None:
    """A script, audited in this process."""
    sys.path[:0] = [str(HERE), str(pathlib.Path(path).resolve().parent)]
    import audit

    sys.argv = [path, *arguments]
    with audit.auditing() as found, contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        runpy.run_path(path, run_name="__main__")
    with open(os.environ["OVERDRIVE_AUDIT"], "a") as file:
        print(json.dumps({"test": path, "failed": False, **found.plain()}), file=file)


def commands(options: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    names = options.names or ["tests", "fuzz"]
    itself = [sys.executable, "-B", __file__, "--inside"]
    rest = ["--seconds", str(options.seconds), "--seed", str(options.seed)]
    for name in names:
        if name == "tests":
            for path in sorted({path for pattern in TESTS for path in PROGRAMS.glob(pattern)}):
                yield path.name, [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "plugin", str(path)]
        elif name == "fuzz":
            for fuzzer in FUZZERS:
                yield fuzzer, [*itself, str(PROGRAMS / fuzzer), *rest]
            for kind in KINDS:
                yield f"fuzz/{kind}", [*itself, str(PROGRAMS / "fuzz" / "run.py"), "--child", kind, "--programs", "1000000", *rest]
        else:
            yield pathlib.Path(name).name, [*itself, name]


class Total:
    """Of one process, or of all."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.excuses: collections.Counter[str] = collections.Counter()
        self.ends: collections.Counter[str] = collections.Counter()
        # Each with a program that has it.
        self.differences: dict[str, str] = {}

    def add(self, line: dict[str, Any]) -> None:
        self.counts.update(line["counts"], programs=1, failed=int(line["failed"]))
        self.excuses.update(line["excuses"])
        self.ends.update(line["ends"])
        for difference in line["differences"]:
            self.differences.setdefault(difference, line["test"])

    def row(self, name: str) -> str:
        counts = [self.counts[key] for key in ("programs", "steps", "recordings", "audited", "read", "written")]
        return f"{name:32}" + "".join(f"{count:>11}" for count in (*counts, sum(self.excuses.values()), sum(self.ends.values()), len(self.differences)))


def table(options: argparse.Namespace) -> Total:
    print(f"{'':32}" + "".join(f"{name:>11}" for name in ("programs", "steps", "recordings", "audited", "read", "written", "excused", "ends", "differ")))
    total = Total()
    for name, command in commands(options):
        with tempfile.NamedTemporaryFile("r") as file:
            path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
            subprocess.run(command, env={**os.environ, "OVERDRIVE_AUDIT": file.name, "PYTHONPATH": path}, stdout=subprocess.DEVNULL, check=False)
            one = Total()
            for line in file:
                one.add(json.loads(line))
                total.add(json.loads(line))
        print(one.row(name), flush=True)
    print(total.row("all"))
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    total = table(parser.parse_args())
    print("excused:", ", ".join(f"{name} {count}" for name, count in total.excuses.most_common()))
    for reason, count in total.ends.most_common():
        print(f"ends {count} x {reason}")
    for difference, program in total.differences.items():
        print(f"differs: {difference}  ({program})")
    return int(bool(total.differences))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
