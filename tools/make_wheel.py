#!/usr/bin/env python3
"""Packs the Python package with the libraries of one or several builds.

    tools/make_wheel.py FOLDER BUILD...

FOLDER gets one wheel, py3-none-manylinux_X_Y_MACHINE, for every CPython; each BUILD is a build folder of Overdrive, for one
minor version of PyTorch. The tag names the oldest glibc that the libraries work with.
"""
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments):
    subprocess.run([str(a) for a in arguments], check=True, cwd=ROOT)


def oldest_glibc(libraries):
    """(2, 34): what the newest symbols that these libraries ask for came with."""
    newest = (2, 17)
    for library in libraries:
        shown = subprocess.run(["readelf", "--version-info", "--wide", library], capture_output=True, text=True, check=True)
        for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", shown.stdout):
            newest = max(newest, (int(major), int(minor)))
    return newest


def main(folder, builds):
    stage = folder / "libraries"
    shutil.rmtree(folder, ignore_errors=True)
    for build in builds:
        run("cmake", "--install", build, "--component", "python", "--strip", "--prefix", stage)
    libraries = sorted(stage.glob("torch*/*.so"))
    if not libraries:
        sys.exit("make_wheel: the builds have no libraries for Python")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder / "plain",
        "-C", f"cmake.define.OVERDRIVE_PREBUILT={stage.resolve()}", "-C",
        f"build-dir={(folder / 'cmake').resolve()}", ROOT)
    (wheel,) = (folder / "plain").glob("*.whl")
    tag = "manylinux_{}_{}_{}".format(*oldest_glibc(libraries), platform.machine())
    run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, wheel)
    (wheel,) = (folder / "plain").glob("*.whl")
    shutil.move(wheel, folder / wheel.name)
    for rest in ("plain", "cmake"):
        shutil.rmtree(folder / rest)
    minors = ", ".join(sorted({library.parent.name[len("torch"):] for library in libraries}))
    print(f"make_wheel: {folder / wheel.name}, for PyTorch {minors}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]).resolve(), [Path(b) for b in sys.argv[2:]]))
