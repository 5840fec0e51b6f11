#!/usr/bin/env python3
"""Builds everything for each LibTorch version and runs the whole test suite there; writes docs/versions.md.

    tools/check_versions.py [--only-build] FOLDER VERSION...

Each version has an environment, FOLDER/VERSION/venv, and a build folder beside it, FOLDER/VERSION/build; both are kept
and used again, so that a second run builds what has changed. JOBS compiles and tests at a time.
A CUDA build of LibTorch is built against with the machine's CUDA toolkit, and runs without a GPU.
"""
import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

from versions_page import ROOT, note

JOBS = os.environ.get("JOBS", str(os.cpu_count()))


def run(arguments, log):
    """False when it fails; what it says goes to the log."""
    print(f"check_versions: {' '.join(map(str, arguments[:6]))} ... ({log})", flush=True)
    with log.open("a") as out:
        return subprocess.run(arguments, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT).returncode == 0


def torch_config(folder):
    """The folder of TorchConfig.cmake, or None."""
    return next((folder / "venv").glob("lib/python3*/site-packages/torch/share/cmake/Torch"), None)


def install(folder, version):
    """torch_config(), once it is there."""
    if torch_config(folder) is not None:
        return torch_config(folder)
    log = folder / "pip.log"
    if not (folder / "venv" / "bin" / "python").exists():
        run([sys.executable, "-m", "venv", folder / "venv"], log)
    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "-q"]
    # The CPU's build, where there is one, is smaller.
    if not run([*pip, f"torch=={version}+cpu"], log) and not run([*pip, f"torch=={version}"], log):
        return None
    return torch_config(folder)


def counts(report):
    """Passed, failed and skipped programs of CTest's report."""
    root = xml.parse(report).getroot()
    total, failed, skipped = (int(root.get(name, 0)) for name in ("tests", "failures", "skipped"))
    return total - failed - skipped, failed, skipped


def check(folder, version):
    """True when the suite passes."""
    folder.mkdir(parents=True, exist_ok=True)
    torch = install(folder, version)
    if torch is None:
        note(version, "suite", "could not be installed")
        return False
    build, log = folder / "build", folder / "build.log"
    configure = ["cmake", "--preset", "release", "-B", build, f"-DTorch_DIR={torch}"]
    if not run(configure, log) or not run(["cmake", "--build", build, "-j", JOBS], log):
        note(version, "suite", "does not build")
        return False
    report = folder / "tests.xml"
    report.unlink(missing_ok=True)
    run(["ctest", "--test-dir", build, "-j", JOBS, "--output-on-failure", "--output-junit", report], folder / "tests.log")
    if not report.exists():
        note(version, "suite", "did not run")
        return False
    passed, failed, skipped = counts(report)
    note(version, "suite", f"{'NO' if failed else 'yes'}: {passed} passed, {failed} failed, {skipped} skipped")
    return failed == 0 and passed > 0


def build_libraries(folder, version):
    """The libraries alone, for a wheel. True when they build."""
    folder.mkdir(parents=True, exist_ok=True)
    torch, build, log = install(folder, version), folder / "build", folder / "build.log"
    targets = ["--target", "overdrive", "overdrive_autoload"]
    return (torch is not None and run(["cmake", "--preset", "release", "-B", build, f"-DTorch_DIR={torch}"], log)
            and run(["cmake", "--build", build, "-j", JOBS, *targets], log))


def main(folder, versions, step=check):
    return 0 if all([step(folder / version, version) for version in versions]) else 1


if __name__ == "__main__":
    arguments = sys.argv[1:]
    only_build = arguments[:1] == ["--only-build"]
    del arguments[:only_build]
    sys.exit(main(Path(arguments[0]).resolve(), arguments[1:], build_libraries if only_build else check))
