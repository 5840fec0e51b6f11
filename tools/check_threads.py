#!/usr/bin/env python3
"""Each source and header of the library compiles alone, by clang, with clang's thread-safety analysis as errors.

    tools/check_threads.py BUILD_FOLDER

GCC ignores the lock annotations, and a unity build, which our presets make, gives a source the includes of its
neighbours. So clang looks at each source a second time: the library's, a header that no source includes first, and
tests that use the annotations. No code is generated, and the flags and the precompiled header are those of the build
folder's compile_commands.json. First it shows that the analysis is awake: a field that is read without its lock must
be refused, and so must a name that nothing declares.
"""
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compile_commands import INCLUDE, ROOT, sources
from versions_page import LIBRARY

CLANG = os.environ.get("CLANG", "clang++-16")
WARNINGS = ["-Wno-everything", "-Wthread-safety", "-Wthread-safety-beta", "-Werror", "-ferror-limit=5"]
ANNOTATIONS = "engine/base/mutex.h"
LIKE_HEADERS = "engine/stats.cpp"  # headers of the library have the flags of this source
# LibTorch's templates are most of the time; the precompiled header has them instantiated.
PRECOMPILED = ["-fpch-instantiate-templates", "-x", "c++-header"]
FIRST_INCLUDE = re.compile(r'^\s*#\s*include\s*(\S+)', re.M)
FAULTS = {
    "thread-safety": """
#include "engine/base/mutex.h"
struct Account {
  int read() { return money; }
  overdrive::base::Mutex mutex;
  int money OVERDRIVE_GUARDED_BY(mutex) = 0;
};
int main() { return Account().read(); }
""",
    "undeclared identifier": "int main() { return money; }",
}


def uses_annotations(name, known):
    """Does this file, or one of ours that it includes, see the annotations? `known` remembers."""
    if name not in known:
        known[name] = name == ANNOTATIONS
        path = ROOT / name
        if path.exists():
            known[name] |= max((uses_annotations(other, known) for other in INCLUDE.findall(path.read_text())), default=False)
    return known[name]


def is_ours(name):
    return name.startswith(tuple(f"{folder}/" for folder in LIBRARY))


def lone_headers(names):
    """Headers of the library that none of these sources includes first, and so alone."""
    first = {FIRST_INCLUDE.search((ROOT / name).read_text()) for name in names}
    included = {match[1].strip('"') for match in first if match}
    headers = {str(path.relative_to(ROOT)) for folder in LIBRARY for path in (ROOT / folder).rglob("*.h")}
    return headers - included


def clang(arguments, **more):
    return subprocess.run([CLANG, *WARNINGS, *arguments], cwd=ROOT, capture_output=True, text=True, **more)


def check(job):
    name, flags, header = job
    parsed = ["-include-pch", str(header)] if header else []
    result = clang([*flags, *parsed, "-fsyntax-only", "-x", "c++", name])
    print(f"  {'ok    ' if result.returncode == 0 else 'FAILED'} {name}", flush=True)
    return result


def main(build):
    for word, fault in FAULTS.items():
        awake = clang(["-std=c++20", "-I.", "-fsyntax-only", "-x", "c++", "-"], input=fault)
        if awake.returncode == 0 or word not in awake.stderr:
            print(f"check_threads: {CLANG} did not refuse a program for its {word}\n{awake.stderr}")
            return 1

    known, found = {}, sources(build)
    names = {name for name in found if name.endswith(".cpp") and (is_ours(name) or uses_annotations(name, known))}
    for header in lone_headers(filter(is_ours, names)):
        found[header] = found[LIKE_HEADERS]
        names.add(header)
    # A precompiled header holds for all sources whose flags are the same, as GCC's does in the build folder.
    by_flags = {}
    for name in sorted(names):
        flags, header = found[name]
        by_flags.setdefault((tuple(flags), header), []).append(name)

    failed = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, ((flags, header), alike) in enumerate(by_flags.items()):
            parsed, results = None, []
            if header:
                parsed = Path(folder) / f"{number}.pch"
                results = [clang([*flags, *PRECOMPILED, header, "-o", str(parsed)])]
            if not results or results[0].returncode == 0:
                results += pool.map(check, [(name, flags, parsed) for name in alike])
            for result in results:
                failed += result.returncode != 0
                print(result.stderr, end="")
            if parsed:
                parsed.unlink(missing_ok=True)
    print(f"check_threads: {len(names)} sources and headers, {failed} failed")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
