#!/usr/bin/env python3
"""clang's thread-safety analysis, as errors, over every source that uses our lock annotations.

    tools/check_threads.py BUILD_FOLDER

GCC ignores the annotations, so this looks at the sources a second time: no code is generated, and the
flags come from the build folder's compile_commands.json. First it shows that the analysis is awake: a
field that is read without its lock must be refused.
"""
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compile_commands import INCLUDE, ROOT, sources

CLANG = os.environ.get("CLANG", "clang++-16")
WARNINGS = ["-Wno-everything", "-Wthread-safety", "-Wthread-safety-beta", "-Werror"]
ANNOTATIONS = "engine/base/mutex.h"
# Parsed once for all sources of a kind: LibTorch's headers are most of the time.
HEADERS = {"library": "engine/base/torch_types.h", "test": "test/support/pch.h"}
FAULT = """
#include "engine/base/mutex.h"
struct Account {
  int read() { return money; }
  overdrive::base::Mutex mutex;
  int money OVERDRIVE_GUARDED_BY(mutex) = 0;
};
int main() { return Account().read(); }
"""


def uses_annotations(name, known):
    """Does this file, or one of ours that it includes, see the annotations? `known` remembers."""
    if name not in known:
        known[name] = name == ANNOTATIONS
        path = ROOT / name
        if path.exists():
            known[name] |= max((uses_annotations(other, known) for other in INCLUDE.findall(path.read_text())), default=False)
    return known[name]


def clang(arguments, **more):
    return subprocess.run([CLANG, *WARNINGS, *arguments], cwd=ROOT, capture_output=True, text=True, **more)


def check(job):
    name, flags, header = job
    parsed = ["-include-pch", str(header)] if header else []
    result = clang([*flags, *parsed, "-fsyntax-only", name])
    print(f"  {'ok    ' if result.returncode == 0 else 'FAILED'} {name}", flush=True)
    return result


def main(build):
    awake = clang(["-std=c++20", "-I.", "-fsyntax-only", "-x", "c++", "-"], input=FAULT)
    if awake.returncode == 0 or "thread-safety" not in awake.stderr:
        print(f"check_threads: {CLANG} did not refuse a field read without its lock\n{awake.stderr}")
        return 1

    known, jobs = {}, {"library": [], "test": []}
    for name, flags in sorted(sources(build).items()):
        if uses_annotations(name, known):
            jobs["test" if name.startswith("test/") else "library"].append((name, flags))

    failed = count = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        for kind, named in jobs.items():
            # One header holds for all sources whose flags are the same, as they are within a kind.
            by_flags = {}
            for name, flags in named:
                by_flags.setdefault(tuple(flags), []).append(name)
            for number, (flags, names) in enumerate(by_flags.items()):
                header, made = None, None
                if "-isystem" in flags:  # else sources that know nothing of LibTorch
                    header = Path(folder) / f"{kind}-{number}.pch"
                    made = clang([*flags, "-x", "c++-header", HEADERS[kind], "-o", str(header)])
                failed_header = made and made.returncode
                results = [made] if failed_header else list(pool.map(check, [(n, flags, header) for n in names]))
                count += len(names)
                for result in results:
                    failed += result.returncode != 0
                    print(result.stderr, end="")
    print(f"check_threads: {count} sources, {failed} failed")
    return 1 if failed or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
