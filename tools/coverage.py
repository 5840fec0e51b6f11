#!/usr/bin/env python3
"""Prints which share of the library's lines and branches the tests ran, a row per folder and per file.

    tools/coverage.py [--table FILE] [--gcov PROGRAM] BUILD_FOLDER

The build folder is one of the preset `coverage`, and its tests have run. gcov is asked for JSON. A line counts as
run when any object file that holds it ran it. A branch that the program takes by an exception alone does not count.
Branches of a line are told apart by their place among the branches of one function; the instances of a template
count as one where they have as many. --table writes the rows of the folders as Markdown.
"""
import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ("engine", "hooks", "forward_ad", "checkpoint", "inspect", "replay", "python")


class Ran:
    """Of a file: whether each line ran, and each branch."""

    def __init__(self):
        self.lines = {}
        self.branches = {}  # by line, number of branches there, and place among them

    def add_line(self, line):
        number = line["line_number"]
        self.lines[number] = self.lines.get(number, False) or line["count"] > 0
        branches = [branch for branch in line.get("branches", []) if not branch["throw"]]
        for place, branch in enumerate(branches):
            key = number, len(branches), place
            self.branches[key] = self.branches.get(key, False) or branch["count"] > 0

    def add(self, other):
        for mine, others in ((self.lines, other.lines), (self.branches, other.branches)):
            for key, ran in others.items():
                mine[key] = mine.get(key, False) or ran

    def counts(self):
        """Lines that ran, all lines, branches that ran, all branches."""
        return [sum(self.lines.values()), len(self.lines), sum(self.branches.values()), len(self.branches)]


def read_report(text, root=ROOT):
    """{source relative to the root: Ran} of gcov's JSON, a document a line."""
    found = defaultdict(Ran)
    for document in text.splitlines():
        report = json.loads(document)
        for file in report["files"]:
            path = Path(os.path.normpath(Path(report["current_working_directory"]) / file["file"]))
            if path.is_relative_to(root) and path.relative_to(root).parts[0] in LIBRARY:
                for line in file["lines"]:
                    found[str(path.relative_to(root))].add_line(line)
    return found


def of_object(data_file, gcov):
    shown = subprocess.run([gcov, "--json-format", "--branch-probabilities", "--stdout", str(data_file)],
                           capture_output=True, text=True, check=False)
    return read_report(shown.stdout)


def percent(part, whole):
    return 100 * part / whole if whole else 100.0


def row(name, counts):
    lines, all_lines, branches, all_branches = counts
    return (f"{name:<44} {lines:>6} of {all_lines:>6} lines {percent(lines, all_lines):6.1f} %"
            f" {branches:>6} of {all_branches:>6} branches {percent(branches, all_branches):6.1f} %")


def table(folders):
    rows = ["| folder | lines | run | branches | taken |", "|---|---:|---:|---:|---:|"]
    for name, (lines, all_lines, branches, all_branches) in folders.items():
        rows.append(f"| {name} | {all_lines:,} | {percent(lines, all_lines):.1f} % | {all_branches:,} |"
                    f" {percent(branches, all_branches):.1f} % |")
    return "\n".join(rows) + "\n"


def by_folder(files):
    """{folder: counts} in order, then of the library."""
    sums = defaultdict(lambda: [0, 0, 0, 0])
    for name, ran in sorted(files.items()):
        sums[f"`{Path(name).parent}/`"] = [a + b for a, b in zip(sums[f"`{Path(name).parent}/`"], ran.counts())]
        sums["the library"] = [a + b for a, b in zip(sums["the library"], ran.counts())]
    order = sorted(name for name in sums if name.startswith("`")) + ["the library"]
    return {name: sums[name] for name in order}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--gcov", default="gcov")
    parser.add_argument("build", type=lambda text: Path(text).resolve())
    given = parser.parse_args()
    files = defaultdict(Ran)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda path: of_object(path, given.gcov), sorted(given.build.rglob("*.gcda"))):
            for name, ran in found.items():
                files[name].add(ran)
    if not files:
        sys.exit(f"coverage: no .gcda files below {given.build}; build with the preset coverage and run the tests")
    for name, ran in sorted(files.items()):
        print(row(name, ran.counts()))
    folders = by_folder(files)
    print()
    for name, counts in folders.items():
        print(row(name.strip("`"), counts))
    if given.table:
        given.table.write_text(table(folders))


if __name__ == "__main__":
    main()
