#!/usr/bin/env python3
"""Seeded mistakes in the library, and whether the tests see them.

    faults.py apply ROOT FOLDER           copies the library's sources into FOLDER, with every edit of the tables
    faults.py run BIN FAULTY [NAME ...]   runs the test of each mistake against the library in the folder FAULTY

`apply` writes a file only where its text changed, and fails when an edit no longer fits its source. `run` takes the
mistakes of table.py and prints a row for each: the file, the test that must see it, and after how long it did. Exit
status 1 when one is not seen, or when a test fails without any mistake. mutate.py runs them all.
"""
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from mutants import ALL
from table import SUITE

FOLDERS = ("engine", "hooks", "forward_ad", "checkpoint", "inspect", "replay", "python/bindings")
SUFFIXES = (".h", ".cpp", ".inl", ".cu")
SECONDS = 60  # a mistake has to be seen within a minute; sanitizers and busy machines get four
GOLDEN = Path(__file__).resolve().parents[2] / "inspect/golden"
INCLUDE = '#include "test/parity/faults/switch.h"\n'


def edited(path, text):
    """The text with all edits of this file; SystemExit when one does not fit."""
    faults = [fault for fault in ALL if fault.file == path]
    for fault in faults:
        if text.count(fault.before) != 1:
            sys.exit(f"faults: the edit '{fault.name}' fits {path} {text.count(fault.before)} times, not once:\n"
                     f"{fault.before}\nMend it in test/parity/faults.")
        text = text.replace(fault.before, fault.replacement)
    if not faults:
        return text
    # A header's switch comes after its first lines of comment and its guard: line numbers move by one.
    at = text.find("#include ")
    return text[:at] + INCLUDE + text[at:]


def apply(root, folder):
    wanted = set()
    for top in FOLDERS:
        for source in sorted((root / top).rglob("*")):
            if source.suffix not in SUFFIXES:
                continue
            path = str(source.relative_to(root))
            wanted.add(path)
            text, copy = edited(path, source.read_text()), folder / path
            if not copy.exists() or copy.read_text() != text:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(text)
    if missing := [fault.file for fault in ALL if fault.file not in wanted]:
        sys.exit(f"faults: no such source: {', '.join(missing)}")
    for copy in folder.rglob("*"):
        if copy.suffix in SUFFIXES and str(copy.relative_to(folder)) not in wanted:
            copy.unlink()


def outcome(binaries, faulty, command, fault=None, seconds=4 * SECONDS):
    """None when the test passes on the faulty library with this mistake on; else the test that did not, or "hung"."""
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{faulty}:{os.environ.get('LD_LIBRARY_PATH', '')}",
                   "OVERDRIVE_TEST_BIN": str(binaries), "OVERDRIVE_TEST_GOLDEN": str(GOLDEN)}
    environment.pop("OVERDRIVE_TEST_FAULT", None)
    if fault:
        environment["OVERDRIVE_TEST_FAULT"] = fault
    with subprocess.Popen([str(binaries / command[0]), *command[1:]], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True) as test:
        try:
            text = test.communicate(timeout=seconds)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(test.pid, signal.SIGKILL)  # and the programs that it has started
            test.communicate()
            return "hung"
    # A filter that selects no test would pass for ever.
    if test.returncode == 0 and "[==========] Running 0 tests" not in text:
        return None
    # A program that ends in the middle leaves a test that began and did not end.
    failed = re.findall(r"^\[  FAILED  \] ([^ ,\n]+)", text, re.M) or re.findall(r"^\[ RUN      \] (\S+)", text, re.M)[-1:]
    return failed[0] if failed else Path(command[0]).name


def run(binaries, faulty, names):
    chosen = [fault for fault in SUITE if not names or fault.name in names]
    failures = 0
    for command in sorted({fault.found_by for fault in chosen}):
        if outcome(binaries, faulty, command):
            print(f"fails without any mistake: {' '.join(command)}")
            failures += 1
    print(f"{'mistake':24} {'in':40} {'seen after':>10}  by")
    for fault in chosen:
        begin = time.monotonic()
        seen = outcome(binaries, faulty, fault.found_by, fault.name)
        failures += not seen
        after = f"{time.monotonic() - begin:.1f} s" if seen else "NOT SEEN"
        print(f"{fault.name:24} {fault.file:40} {after:>10}  {' '.join(fault.found_by[:3])}", flush=True)
    print(f"{len(chosen)} mistakes, {failures} failures")
    return 1 if failures or not chosen else 0


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "apply":
        apply(Path(sys.argv[2]), Path(sys.argv[3]))
    elif len(sys.argv) >= 4 and sys.argv[1] == "run":
        sys.exit(run(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
    else:
        sys.exit(__doc__)
