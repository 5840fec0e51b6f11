"""Audits the programs of test/python, the generators and scripts, each in a process of its own, and prints a table and every difference.

    run.py [tests] [fuzz] [recipes] [FILE.py ...] [--seconds S] [--seed N] [--longest S]

Without a name: tests and fuzz. The recipes want the Python of `tools/setup.sh recipes`. A process that ends without a word counts as failed. Exit
status: 1 when anything differs.
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
import traceback
from collections.abc import Iterator

import audit

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE.parent
RECIPES = PROGRAMS.parents[1] / "examples" / "recipes"
# Of the tests those that capture steps, and no process of their own.
TESTS = ("apart*_test.py", "autocast_test.py", "capture*_test.py", "guards_test.py", "parts*_test.py", "threads_test.py", "fuzz_test.py")
FUZZERS = ("capture_fuzz.py", "counters_fuzz.py", "numbers_fuzz.py", "parts_fuzz.py")
KINDS = ("steps", "loops", "graphs")
COLUMNS = ("programs", "failed", "steps", "recordings", "audited", "read", "written", "gone")


def inside(path: str, arguments: list[str]) -> None:
    """A script, audited in this process."""
    sys.path[:0] = [str(pathlib.Path(path).resolve().parent)]
    sys.argv, failed = [path, *arguments], False
    with audit.auditing() as found, contextlib.redirect_stdout(io.StringIO()):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit:
            pass
        except Exception:  # noqa: BLE001 - it is the program's
            traceback.print_exc()
            failed = True
    audit.note(found, failed)


def commands(options: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    itself = [sys.executable, "-B", __file__, "--inside"]
    rest = ["--seconds", str(options.seconds), "--seed", str(options.seed)]
    for name in options.names or ["tests", "fuzz"]:
        if name == "fuzz":
            for fuzzer in FUZZERS:
                yield fuzzer, [*itself, str(PROGRAMS / fuzzer), *rest]
            for kind in KINDS:
                yield f"fuzz/{kind}", [*itself, str(PROGRAMS / "fuzz" / "run.py"), "--child", kind, "--programs", "1000000", *rest]
        for path in files(name):
            if path.name.endswith("_test.py"):
                yield path.name, [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "plugin", str(path)]
            else:
                yield path.name, [*itself, str(path), *(["--mode", "captured"] if path.parent == RECIPES else [])]


def files(name: str) -> list[pathlib.Path]:
    if name == "tests":
        return sorted({path for pattern in TESTS for path in PROGRAMS.glob(pattern)})
    if name == "recipes":
        return [path for path in sorted(RECIPES.glob("*.py")) if path.stem not in ("recipe", "run")]
    return [] if name == "fuzz" else [pathlib.Path(name).resolve()]


def row(name: str, found: audit.Found) -> str:
    counts = [*(found.counts[key] for key in COLUMNS), sum(found.excuses.values()), sum(found.ends.values()), len(found.differences)]
    return f"{name:32}" + "".join(f"{count:>12}" for count in counts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=60, help="of each generator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=900, help="seconds of one process")
    options, total = parser.parse_args(), audit.Found()
    print(f"{'':32}" + "".join(f"{name:>12}" for name in (*COLUMNS, "excused", "not audited", "differ")))
    for name, command in commands(options):
        one = run(command, options.longest)
        total.add(vars(one))
        print(row(name, one), *(f"  differs: {line}" for line in one.differences), sep="\n", flush=True)
    print(row("all", total), total.told(), sep="\n")
    return int(bool(total.differences))


def run(command: list[str], longest: float) -> audit.Found:
    """What the programs of a process have noted."""
    found, path = audit.Found(), os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.NamedTemporaryFile("r") as file, tempfile.TemporaryDirectory() as folder:  # some libraries write logs into the folder they run in
        try:
            status = subprocess.run(command, env={**os.environ, "OVERDRIVE_TEST_AUDIT": file.name, "PYTHONPATH": path}, cwd=folder, stdout=subprocess.DEVNULL,
                                    timeout=longest, check=False).returncode
        except subprocess.TimeoutExpired:
            status = -1
        for line in map(json.loads, file):
            found.add(line)
    if status < 0 or not found.counts:
        found.counts["failed"] += 1
        found.ends[f"a process ended with {status}"] += 1
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
