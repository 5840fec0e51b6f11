"""Audits the programs of test/python, the generators and scripts, each in a process of its own, and prints a table and every difference.

    run.py [tests] [fuzz] [FILE.py ...] [--seconds S] [--seed N]

Without a name: tests and fuzz. Exit status: 1 when anything differs.
"""
from __future__ import annotations

import argparse
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

import audit

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE.parent
# Of the tests those that capture steps, and no process of their own.
TESTS = ("apart*_test.py", "autocast_test.py", "capture*_test.py", "guards_test.py", "parts*_test.py", "threads_test.py", "fuzz_test.py")
FUZZERS = ("capture_fuzz.py", "counters_fuzz.py", "numbers_fuzz.py", "parts_fuzz.py")
KINDS = ("steps", "loops", "graphs")
COLUMNS = ("programs", "failed", "steps", "recordings", "audited", "read", "written", "gone")


def inside(path: str, arguments: list[str]) -> None:
    """A script, audited in this process."""
    sys.path[:0] = [str(pathlib.Path(path).resolve().parent)]
    sys.argv = [path, *arguments]
    with audit.auditing() as found, contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        runpy.run_path(path, run_name="__main__")
    audit.note(found, False)


def commands(options: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    itself = [sys.executable, "-B", __file__, "--inside"]
    rest = ["--seconds", str(options.seconds), "--seed", str(options.seed)]
    for name in options.names or ["tests", "fuzz"]:
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


def row(name: str, found: audit.Found) -> str:
    counts = [*(found.counts[key] for key in COLUMNS), sum(found.excuses.values()), sum(found.ends.values()), len(found.differences)]
    return f"{name:32}" + "".join(f"{count:>12}" for count in counts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    print(f"{'':32}" + "".join(f"{name:>12}" for name in (*COLUMNS, "excused", "not audited", "differ")))
    total = audit.Found()
    for name, command in commands(parser.parse_args()):
        with tempfile.NamedTemporaryFile("r") as file:
            path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
            subprocess.run(command, env={**os.environ, "OVERDRIVE_AUDIT": file.name, "PYTHONPATH": path}, stdout=subprocess.DEVNULL, check=False)
            one = audit.Found()
            for line in map(json.loads, file):
                one.add(line)
                total.add(line)
        print(row(name, one), flush=True)
    print(row("all", total), total.told(), sep="\n")
    return int(bool(total.differences))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
