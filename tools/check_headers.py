#!/usr/bin/env python3
"""Compiles every source of the library against the headers of other LibTorch versions; links and runs nothing.

    tools/check_headers.py BUILD_FOLDER FOLDER VERSION...

Several sources at once where BUILD_FOLDER does so (OVERDRIVE_UNITY). The headers are taken out of the wheels
that pip finds (`pip download --no-deps torch==VERSION`), once, into FOLDER/VERSION. Flags come from
BUILD_FOLDER's compile_commands.json, with LibTorch's include folders replaced; the `.cu` files go through
nvcc where there is one. Writes its column of docs/versions.md. OVERDRIVE_CHECK_JOBS compiles at a time, as
many as there are processors by default.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compile_commands import ROOT, entries, flags_of, sources_of
from versions_page import note

FOLDERS = ("engine", "hooks", "forward_ad", "checkpoint", "inspect", "replay")
TARGETS = ("/overdrive.dir/", "/overdrive_autoload.dir/")
CXX = os.environ.get("CXX", "c++")
HEADER = "engine/base/torch_types.h"  # parsed once a version, as in a build
JOBS = int(os.environ.get("OVERDRIVE_CHECK_JOBS", os.cpu_count()))
PIP = os.environ.get("PIP", f"{sys.executable} -m pip").split()
WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
FAULT = "#include <torch/csrc/autograd/engine.h>\nint that = torch::autograd::Engine::no_such_member;\n"


def fetch(version, folder):
    """The folder `include` of that version."""
    include = folder / version / "torch" / "include"
    if (folder / version / "complete").exists():
        return include
    print(f"check_headers: fetching the headers of LibTorch {version}", flush=True)
    with tempfile.TemporaryDirectory(dir=folder) as wheels:
        subprocess.run([*PIP, "download", "-q", "--no-deps", "-d", wheels, f"torch=={version}"], check=True)
        with zipfile.ZipFile(next(Path(wheels).glob("*.whl"))) as wheel:
            headers = [name for name in wheel.namelist() if name.startswith("torch/include/")]
            wheel.extractall(folder / version, headers)
    (folder / version / "complete").touch()
    return include


def flags_for(flags, version, include):
    """The same flags, for another LibTorch than that of the build."""
    kept, words = [], iter(flags)
    for word in words:
        if word == "-isystem":
            path = next(words)
            if "/torch/" not in path:
                kept += [word, path]
        elif word.startswith("-DOVERDRIVE_BUILT_FOR_TORCH="):
            kept.append(f'-DOVERDRIVE_BUILT_FOR_TORCH="{version}"')
        else:
            kept.append(word)
    return [*kept, "-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include")]


def run(arguments, **more):
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, **more)


def refused(name, arguments):
    """Says so, with the compiler's words, when it is."""
    result = run(arguments)
    if result.returncode:
        print(f"--- {name}\n{result.stderr}", flush=True)
    return result.returncode != 0


def compile_source(job):
    name, flags, parsed = job
    reuse = ["-Winvalid-pch", "-include", str(parsed)] if parsed else []
    return refused(name, [CXX, *reuse, *flags, *WARNINGS, "-fsyntax-only", name])


def compile_cuda(job):
    name, flags, _ = job
    return refused(name, ["nvcc", *flags, "-c", "-o", os.devnull, name])


def check_version(version, include, named, scratch):
    """How many compiles fail."""
    common = flags_for(next(flags for flags in named.values() if "-isystem" in flags), version, include)
    if "no_such_member" not in run([CXX, *common, "-fsyntax-only", "-x", "c++", "-"], input=FAULT).stderr:
        sys.exit(f"check_headers: {CXX} did not refuse a member that LibTorch {version} does not have")
    parsed = scratch / version / "torch_types.h"
    parsed.parent.mkdir()
    parsed.write_text(f'#include "{ROOT / HEADER}"\n')
    if refused(HEADER, [CXX, *common, *WARNINGS, "-x", "c++-header", str(parsed), "-o", f"{parsed}.gch"]):
        return 1
    # Another instruction set or definition makes the parsed header another one.
    jobs = [(name, flags_for(flags, version, include)) for name, flags in named.items()]
    jobs = [(name, flags, parsed if flags == common else None) for name, flags in jobs]
    kernels = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.cu"))]
    cuda = [(str(path.relative_to(ROOT)), common, None) for path in kernels]
    if cuda and not shutil.which("nvcc"):
        print(f"check_headers: no nvcc here, so {len(cuda)} .cu files were not compiled")
        cuda = []
    with ThreadPoolExecutor(JOBS) as pool:
        results = [*pool.map(compile_source, jobs), *pool.map(compile_cuda, cuda)]
    return sum(results)


def library(build):
    """File -> flags, for what the library is compiled from; and how many sources that is."""
    ours = [entry for entry in entries(build) if any(target in entry["command"] for target in TARGETS)]
    named = {entry["file"]: flags_of(entry) for entry in ours if "cmake_pch" not in entry["file"]}
    return named, sum(len(list(sources_of(Path(name)))) for name in named)


def main(build, folder, versions):
    folder.mkdir(parents=True, exist_ok=True)
    named, count = library(build)
    all_failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for version in versions:
            failed = check_version(version, fetch(version, folder), named, Path(scratch))
            verdict = f"{failed} compiles FAILED" if failed else "all compile"
            print(f"check_headers: LibTorch {version}: {count} sources, {verdict}", flush=True)
            note(version, "headers", f"NO: {verdict}" if failed else f"yes: {count} sources")
            all_failed += failed
    return 1 if all_failed or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:]))
