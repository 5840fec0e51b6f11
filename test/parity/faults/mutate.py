#!/usr/bin/env python3
"""The mutation check: every seeded mistake, and whether the tests that cover its file see it.

    mutate.py [--jobs N] [--again] [--only TEXT] [--table FILE] BIN FAULTY RESULTS

First each command of the tables runs without a mistake, and has to pass; ten times as long, and a minute at least,
it gets with one, and a test that takes longer counts as hung. Then a row is printed for each mistake. RESULTS keeps
the outcomes as JSON: a run that was stopped goes on where it was (--again: from the begin), and a row is forgotten
when its edit, its command or the library changes. --only takes the mistakes with the text in their name or file.
--table writes all rows as Markdown. Exit status 1 when less than nine of ten are seen, and when one that is not
seen has no explanation.
"""
import argparse
import hashlib
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from faults import outcome
from mutants import ALL

LEAST = 0.9
LEAST_SECONDS = 60


def key_of(fault, library):
    """Another when the edit, the command or the library is another."""
    return hashlib.sha256(repr((fault.file, fault.before, fault.after, fault.found_by, library)).encode()).hexdigest()


class Results:
    """Outcomes by the name of the mistake, in a file that is written after each."""

    def __init__(self, path, again):
        self.path = path
        self.known = json.loads(path.read_text()) if path.exists() and not again else {}

    def find(self, name, key):
        known = self.known.get(name)
        return known if known and known["key"] == key else None

    def add(self, name, **fields):
        self.known[name] = fields
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.known, indent=1))
        return fields


def timed(*arguments):
    begin = time.monotonic()
    return outcome(*arguments), time.monotonic() - begin


def sound_seconds(pool, binaries, faulty, commands):
    """How long each command takes without a mistake. One that fails is told, and left out."""
    seconds = {}
    for command, (failed, took) in zip(commands, pool.map(lambda one: timed(binaries, faulty, one, None, 600), commands)):
        if failed:
            print(f"fails without any mistake ({failed}): {' '.join(command)}", flush=True)
        else:
            seconds[command] = took
    return seconds


def show(fault, row):
    seen = row["seen"] or "NOT SEEN"
    print(f"{fault.name:26} {fault.file:44} {seen:56} {row['seconds']:6.1f} s", flush=True)
    if not row["seen"]:
        print(f"{'':26} {fault.unseen_because or 'no explanation'}", flush=True)


def markdown(rows):
    lines = ["| mistake | in | seen by |", "|---|---|---|"]
    for fault, row in rows:
        seen = f"`{row['seen']}`" if row["seen"] else f"not seen: {fault.unseen_because or 'no explanation'}"
        lines.append(f"| {fault.meaning} | `{fault.file}` | {seen} |")
    return "\n".join(lines) + "\n"


def summary(rows):
    """One line for each top folder."""
    tops = {}
    for fault, row in rows:
        seen, count = tops.get(fault.file.split("/")[0], (0, 0))
        tops[fault.file.split("/")[0]] = (seen + bool(row["seen"]), count + 1)
    return tops


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--table", type=Path)
    parser.add_argument("binaries", type=lambda text: Path(text).resolve())
    parser.add_argument("faulty", type=lambda text: Path(text).resolve())
    parser.add_argument("results", type=Path)
    given = parser.parse_args()

    library = (given.faulty / "liboverdrive.so").stat().st_mtime_ns
    chosen = [fault for fault in ALL if given.only in fault.name or given.only in fault.file]
    results = Results(given.results, given.again)
    open_ones = [fault for fault in chosen if not results.find(fault.name, key_of(fault, library))]
    for fault in chosen:
        if fault not in open_ones:
            show(fault, results.known[fault.name])
    with ThreadPoolExecutor(given.jobs) as pool:
        seconds = sound_seconds(pool, given.binaries, given.faulty, sorted({fault.found_by for fault in open_ones}))

        sound = [fault for fault in open_ones if fault.found_by in seconds]

        def run(fault):
            most = max(LEAST_SECONDS, 10 * seconds[fault.found_by])
            return fault, timed(given.binaries, given.faulty, fault.found_by, fault.name, most)

        for fault, (seen, took) in pool.map(run, sound):
            show(fault, results.add(fault.name, key=key_of(fault, library), seen=seen, seconds=round(took, 1)))
    rows = [(fault, results.known[fault.name]) for fault in chosen if results.find(fault.name, key_of(fault, library))]
    unseen = [fault for fault, row in rows if not row["seen"]]
    for top, (seen, count) in summary(rows).items():
        print(f"{top:12} {seen:4} of {count:4}")
    print(f"{'all':12} {len(rows) - len(unseen):4} of {len(rows):4} seen, {LEAST:.0%} have to be")
    if given.table:
        given.table.write_text(markdown(rows))
    enough = len(rows) == len(chosen) and len(rows) - len(unseen) >= LEAST * len(rows)
    return 0 if rows and enough and all(fault.unseen_because for fault in unseen) else 1


if __name__ == "__main__":
    sys.exit(main())
