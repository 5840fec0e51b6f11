"""Whose code a file is: the program's, an installed library's, PyTorch's, Python's or ours."""
from __future__ import annotations

import functools
import os
import sys
import sysconfig

import torch

from overdrive.native.library import PACKAGE

OURS = PACKAGE + os.sep


@functools.lru_cache(maxsize=1)
def _of_python() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    return tuple(os.path.join(path, "") for path in sorted(filter(None, paths), key=len, reverse=True))


@functools.lru_cache(maxsize=4096)
def is_installed(file: str) -> bool:
    if "site-packages" in file or "dist-packages" in file:
        return True
    return any(file.startswith(os.path.join(folder, "")) and _has_distributions(folder) for folder in sys.path if folder)


@functools.lru_cache(maxsize=256)
def _has_distributions(folder: str) -> bool:
    """Whether pip has installed into a folder that the program has chosen."""
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    except OSError:
        return False


@functools.lru_cache(maxsize=4096)
def module_of(file: str) -> str:
    """The module of Python's library that a file is; "": another file."""
    if file.startswith("<frozen "):
        return file[len("<frozen "):-1]
    folder = next((folder for folder in _of_python() if file.startswith(folder)), None)
    if folder is None or is_installed(file):
        return ""
    return file[len(folder):].removesuffix(".py").removesuffix(f"{os.sep}__init__").replace(os.sep, ".")


@functools.lru_cache(maxsize=1)
def _of_pytorch() -> tuple[str, tuple[str, ...]]:
    here = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
    # Of PyTorch's objects that live on, those whose numbers a step may read: modules, schedulers, distributions, data sets.
    nn = tuple(os.path.join(here, name) + os.sep for name in ("nn", "optim", "distributions", "amp", "backends", os.path.join("utils", "data")))
    return here, nn


@functools.lru_cache(maxsize=4096)
def kind_of(file: str) -> str:
    """Whose code a file is: the "user"'s, of PyTorch's modules and their like ("nn"), or another's ("")."""
    torch, nn = _of_pytorch()
    if file.startswith(nn):
        return "nn"
    return "" if file.startswith((torch, OURS)) or module_of(file) else "user"


def is_the_programs(file: str) -> bool:
    """Whether it is of the program alone: no library's."""
    return kind_of(file) == "user" and not is_installed(file)
