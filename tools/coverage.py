#!/usr/bin/env python3
"""Prints which share of our lines the tests ran, a row per folder and per file.

    tools/coverage.py BUILD_FOLDER [GCOV]

The build folder is one of the preset `coverage`, and its tests have run. gcov is asked for JSON, a line
counts as run when any object file that holds it ran it.
"""
import json
import os
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("engine", "hooks", "forward_ad", "checkpoint", "examples")


def lines_of(data_file, gcov):
    """{source relative to the root: {line: ran?}} of one object file."""
    shown = subprocess.run([gcov, "--json-format", "--stdout", str(data_file)], capture_output=True, text=True)
    found = defaultdict(dict)
    for text in shown.stdout.splitlines():
        report = json.loads(text)
        for file in report["files"]:
            path = Path(os.path.normpath(Path(report["current_working_directory"]) / file["file"]))
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FOLDERS:
                ran = found[str(path.relative_to(ROOT))]
                for line in file["lines"]:
                    number = line["line_number"]
                    ran[number] = ran.get(number, False) or line["count"] > 0
    return found


def row(name, lines):
    run, all_lines = sum(lines), len(lines)
    print(f"{name:<44} {run:>6} of {all_lines:>6} lines {100 * run / max(all_lines, 1):6.1f} %")


def main(build, gcov):
    files = defaultdict(dict)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda path: lines_of(path, gcov), sorted(build.rglob("*.gcda"))):
            for name, lines in found.items():
                for number, ran in lines.items():
                    files[name][number] = files[name].get(number, False) or ran
    if not files:
        sys.exit(f"coverage: no .gcda files below {build}; build with the preset coverage and run the tests")
    folders = defaultdict(list)
    for name, lines in sorted(files.items()):
        row(name, list(lines.values()))
        folders[str(Path(name).parent)] += lines.values()
    print()
    for name, lines in sorted(folders.items()):
        row(name + "/", lines)
    row("all", [line for lines in folders.values() for line in lines])


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else "gcov")
