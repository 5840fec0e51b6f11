#!/usr/bin/env python3
"""Fetches what the library is built against, for several versions of LibTorch: headers, libtorch_cpu.so and libc10.so.

    tools/torch_wheels.py VERSION...

Each version comes out of the wheel that pip finds (`pip download --no-deps torch==VERSION`), once, into .deps/torch/VERSION.
A CUDA build serves as well as one for the CPU, and the packages of CUDA that it runs with are not fetched.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".deps" / "torch"
PIP = os.environ.get("PIP", f"{sys.executable} -m pip").split()
PARTS = ("torch/include/", "torch/share/cmake/", "torch/lib/libtorch_cpu.so", "torch/lib/libc10.so")


def fetch(version):
    """The folder of that version, which has `include` and `lib`."""
    folder = FOLDER / version
    if (folder / "complete").exists():
        return folder / "torch"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"torch_wheels: fetching PyTorch {version}: 0.2 to 0.6 GB, of which 0.5 GB stay, unpacked", flush=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as wheels:
        subprocess.run([*PIP, "download", "--no-deps", "-d", wheels, f"torch=={version}"], check=True)
        with zipfile.ZipFile(next(Path(wheels).glob("*.whl"))) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith(PARTS)])
    (folder / "complete").touch()
    return folder / "torch"


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        print(fetch(wanted))
