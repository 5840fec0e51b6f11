"""The suite under other settings, a file each: `make test-configs` runs it.

    run.py [NAME ...] [--short] [--by-turns] [--build DIRECTORY] [--jobs N]

A file NAME.conf says in lines that begin with # what the setting is, and has lines `VARIABLE=VALUE`, `tests: REGEX` (what the setting can change),
`short: REGEX` (some of them, a minute or so), and for what it leaves out `leave out NAME: REASON`: NAME is a test of CTest, or cases of GoogleTest as
its filter takes them. `--by-turns` runs one setting, the next one for each commit. Exit status: 1 when a test fails.
"""
from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
LINE = re.compile(r"(?P<variable>[A-Z_]+)=(?P<value>\S+)|(?P<which>tests|short): (?P<pattern>\S+)|leave out ((?P<test>\w+)|(?P<cases>\S+)): (?P<reason>.+)")


@dataclasses.dataclass
class Config:
    name: str
    about: str
    variables: dict[str, str]
    patterns: dict[str, str]
    left_out: dict[str, str]
    cases: dict[str, str]


def read(name):
    lines = (HERE / f"{name}.conf").read_text().splitlines()
    about = " ".join(line.removeprefix("# ") for line in lines if line.startswith("#"))
    config = Config(name, about, {}, {}, {}, {})
    for line in lines:
        if not line or line.startswith("#"):
            continue
        found = LINE.fullmatch(line)
        if found is None:
            sys.exit(f"{name}.conf: this line says nothing: {line}")
        if found["variable"]:
            config.variables[found["variable"]] = found["value"]
        elif found["which"]:
            config.patterns[found["which"]] = found["pattern"]
        elif found["cases"]:
            config.cases[found["cases"]] = found["reason"]
        else:
            config.left_out[found["test"]] = found["reason"]
    return config


def ctest(build, arguments, variables):
    command = ["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", *arguments]
    return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode == 0


def run(config, options):
    """Whether all pass."""
    pattern = config.patterns["short" if options.short else "tests"]
    print(f"=== {config.name}: {config.about} {' '.join(f'{k}={v}' for k, v in config.variables.items())}", flush=True)
    arguments = ["-R", pattern, "-j", str(options.jobs)]
    if config.left_out:
        arguments += ["-E", f"^({'|'.join(config.left_out)})$"]
    begin, passed = time.monotonic(), ctest(options.build, arguments, {**config.variables, "OVERDRIVE_TEST_LEAVE_OUT": ":".join(config.cases)})
    print(f"=== {config.name}: {'passed' if passed else 'FAILED'} in {time.monotonic() - begin:.0f} s", flush=True)
    return passed


def main():
    known = sorted(path.stem for path in HERE.glob("*.conf"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--short", action="store_true", help="the short list of each")
    parser.add_argument("--by-turns", action="store_true", help="one setting, by the number of commits")
    parser.add_argument("--build", default="build")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    names = options.names or known
    if options.by_turns:
        count = subprocess.run(["git", "rev-list", "--count", "HEAD"], stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
        names = [names[int(count or 0) % len(names)]]
    failed = [name for name in names if not run(read(name), options)]
    print(f"{len(names) - len(failed)} of {len(names)} settings passed" + "".join(f"; {name} failed" for name in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
