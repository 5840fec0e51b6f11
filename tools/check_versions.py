#!/usr/bin/env python3
"""Builds for several versions of LibTorch, and writes docs/versions.md.

    tools/check_versions.py [--library | --only-build | --short] FOLDER VERSION...

Builds everything and runs the whole suite. Each version has an environment, FOLDER/VERSION/venv, and a build folder beside it.
--library: builds and links the library alone, against headers and two libraries (torch_wheels.py), in FOLDER/VERSION/check. Not
optimised, which takes a third of the time. Where --only-build was before, that folder is built anew: the next wheel wants it.
--only-build: the same for a wheel, optimised, in FOLDER/VERSION/library; the page is left alone.
--short: in a few minutes, builds the library, not optimised, and a few programs of tests, and runs these and a few files of the package's
tests, on PyTorch's whole wheel with stand-ins for the libraries of CUDA; the page is left alone.
The folders are kept and used again, so that a second run builds what has changed. JOBS compiles and tests at a time.
"""
import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import torch_wheels
from versions_page import ROOT, note

# What --short builds and runs.
SHORT = ("engine_contract_graph_test", "engine_contract_state_test", "engine_contract_sums_test", "hooks_stack_test", "checkpoint_test",
         "forward_ad_levels_tests", "replay_tests")
SHORT_TESTS = ("^(engine_contract_(graph|state|sums)|hooks_stack|checkpoint|forward_ad_dual"
               "|replay_(capture|guards|parts|values))_test$")
SHORT_FILES = ("guards", "capture_reads", "parts")
JOBS = os.environ.get("JOBS", str(os.cpu_count()))


def run(arguments, log, environment=None):
    """False when it fails; what it says goes to the log."""
    print(f"check_versions: {' '.join(map(str, arguments[:6]))} ... ({log})", flush=True)
    with log.open("a") as out:
        return subprocess.run(arguments, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT).returncode == 0


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


def check_suite(folder, version):
    """True when the suite passes."""
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


def build_targets(folder, name, torch, options, targets, environment=None):
    """The build folder of that name, with these targets for the LibTorch in `torch`; None when it does not build."""
    made, log = folder / name, folder / f"{name}.log"
    log.write_text("")
    if (run(["cmake", "--preset", "release", "-B", made, f"-DTorch_DIR={torch / 'share' / 'cmake' / 'Torch'}", *options], log)
            and run(["cmake", "--build", made, "-j", JOBS, "--target", *targets], log, environment)):
        return made
    print(f"check_versions: {folder.name} does not build; {log} ends with\n" + "\n".join(log.read_text().splitlines()[-20:]), flush=True)
    return None


def build_library(folder, version, name="library", options=()):
    """True when it builds. Without parts for GPUs: where PyTorch's whole wheel was fetched, it would need libtorch.so."""
    parts = ["-DOVERDRIVE_CUDA=off", *(f"-DOVERDRIVE_BUILD_{part}=OFF" for part in ("TESTS", "BENCHMARKS", "EXAMPLES"))]
    return build_targets(folder, name, torch_wheels.fetch(version), [*parts, *options], ["overdrive", "overdrive_autoload"]) is not None


def check_library(folder, version):
    if (folder / "library" / "CMakeCache.txt").exists():
        built = build_library(folder, version)
    else:
        built = build_library(folder, version, "check", ["-DOVERDRIVE_OPTIMISATION=-O0"])
    note(version, "library", "yes" if built else "NO")
    return built


def check_short(folder, version):
    """True when the short list passes. Status 77 where the wheel is not to be had."""
    try:
        torch = torch_wheels.fetch(version, whole=True)
    except (subprocess.CalledProcessError, StopIteration):
        print(f"skipped: PyTorch {version} could not be fetched")
        sys.exit(77)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(torch.parent / "stand-ins")}  # the linker looks there, too
    options = ["-DOVERDRIVE_OPTIMISATION=-O0", "-DOVERDRIVE_BUILD_BENCHMARKS=OFF", "-DOVERDRIVE_BUILD_EXAMPLES=OFF"]
    made = build_targets(folder, "short", torch, options, ["overdrive_autoload", *SHORT], environment)
    if made is None:
        return False
    tests = subprocess.run(["ctest", "--test-dir", made, "-j", JOBS, "--output-on-failure", "-R", SHORT_TESTS], env=environment)
    environment["PYTHONPATH"] = f"{torch.parent}:{made / 'python'}"
    package = subprocess.run([ROOT / ".deps" / "python" / "bin" / "python", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider",
                              *(ROOT / "test" / "python" / f"{name}_test.py" for name in SHORT_FILES)], cwd=ROOT, env=environment)
    return tests.returncode == package.returncode == 0


STEPS = {"--library": check_library, "--only-build": build_library, "--short": check_short}


def main(folder, versions, step):
    good = True
    for version in versions:
        (folder / version).mkdir(parents=True, exist_ok=True)
        good = step(folder / version, version) and good
    return 0 if good else 1


if __name__ == "__main__":
    arguments = sys.argv[1:]
    chosen = STEPS.get(arguments[0]) if arguments else None
    if chosen:
        arguments = arguments[1:]
    if len(arguments) < 2:
        sys.exit(__doc__)
    sys.exit(main(Path(arguments[0]).resolve(), arguments[1:], chosen or check_suite))
