#!/usr/bin/env python3
"""Fetches what the library is built against, for several versions of LibTorch: headers, libtorch_cpu.so and libc10.so.

    tools/torch_wheels.py [--whole] VERSION...

Each version comes out of the wheel that pip finds (`pip download --no-deps torch==VERSION`), once, into .deps/torch/VERSION.
A CUDA build serves as well as one for the CPU, and the packages of CUDA that it runs with are not fetched.
--whole: PyTorch as a Python imports it, from .deps/torch/VERSION. Of CUDA's libraries come the two that are called without a
GPU; tools/cuda_stand_ins.py makes the others, in .deps/torch/VERSION/stand-ins.
"""
import os
import re
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


CUDA = ("cuda-runtime", "cuda-cupti")


def download(requirement, folder):
    """The wheel. A machine's own settings of pip may hold an older PyTorch back, so the second try is without them."""
    command = [*PIP, "download", "-q", "--no-deps", "-d", folder, requirement]
    if subprocess.run(command).returncode != 0:
        plain = {name: value for name, value in os.environ.items() if name not in ("PIP_FIND_LINKS", "PIP_CONSTRAINT")}
        subprocess.run(command, check=True, env={**plain, "PIP_CONFIG_FILE": os.devnull})
    return next(Path(folder).glob("*.whl"))


def unpack(requirement, folder, parts=("",)):
    with tempfile.TemporaryDirectory(dir=FOLDER) as wheels, zipfile.ZipFile(download(requirement, wheels)) as wheel:
        wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith(parts)])


def complete_cuda(folder):
    """What a CUDA build loads, beside it."""
    cuda = re.search(r"^cuda.*= '(\d+)\.(\d+)'", (folder / "torch" / "version.py").read_text(), re.M)
    if cuda:
        major = int(cuda[1])
        for part in CUDA:
            unpack(f"nvidia-{part}{'' if major > 12 else f'-cu{major}'}=={major}.{cuda[2]}.*", folder)
        subprocess.run([sys.executable, "-B", ROOT / "tools" / "cuda_stand_ins.py", "gcc", folder / "torch" / "lib", folder / "stand-ins",
                        *folder.glob("nvidia/*/lib")], check=True)


def fetch(version, whole=False):
    """The folder of that version, which has `include` and `lib`."""
    folder = FOLDER / version
    kinds = ["whole"] if whole else ["complete", "whole"]
    if any((folder / kind).exists() for kind in kinds):
        return folder / "torch"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"torch_wheels: fetching PyTorch {version}: 0.2 to 0.6 GB, of which {1.2 if whole else 0.5} GB stay, unpacked", flush=True)
    unpack(f"torch=={version}", folder, ("",) if whole else PARTS)
    if whole:
        complete_cuda(folder)
    (folder / kinds[0]).touch()
    return folder / "torch"


if __name__ == "__main__":
    arguments = sys.argv[1:]
    for wanted in arguments:
        if wanted != "--whole":
            print(fetch(wanted, "--whole" in arguments))
