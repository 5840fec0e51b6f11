"""Finds liboverdrive.so for the PyTorch that is used, loads it, and declares its C functions.

Nothing is loaded before it is needed: ``import overdrive`` costs no ``import torch``.
"""
from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import operator
import os
import re
import sys
import sysconfig
import threading
from collections.abc import Callable
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Of engine/c_api.h, and some of python/bindings/.
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "overdrive_check_environment": (ctypes.c_int, []),
    "overdrive_install": (ctypes.c_int, []),
    "overdrive_uninstall": (ctypes.c_int, []),
    "overdrive_installed": (ctypes.c_int, []),
    "overdrive_stats_json": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_size_t]),
    "overdrive_reset_stats": (None, []),
    "overdrive_keep_memory": (ctypes.c_int, [ctypes.c_size_t]),
    "overdrive_last_error": (ctypes.c_char_p, []),
    "overdrive_python_bindings": (ctypes.c_int, []),
    "overdrive_python_watch_events": (None, [ctypes.c_void_p]),
    "overdrive_python_told_all": (None, [ctypes.c_void_p, ctypes.c_uint64]),
    "overdrive_python_event": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]),
    "overdrive_python_first_changed": (ctypes.c_size_t, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]),
    "overdrive_python_watch": (None, [ctypes.c_int]),
    "overdrive_python_has_attributes": (ctypes.c_int, [ctypes.py_object, ctypes.c_int64]),
    "overdrive_python_tensor_in": (ctypes.c_void_p, [ctypes.py_object]),
    "overdrive_python_quick_begin": (ctypes.c_int, [*[ctypes.py_object] * 4, ctypes.c_int64]),
    "overdrive_python_quick": (ctypes.py_object, [ctypes.c_int64, *[ctypes.py_object] * 3]),
    "overdrive_python_quick_function": (ctypes.py_object, [ctypes.py_object, ctypes.c_int]),
    "overdrive_python_quick_address": (ctypes.c_void_p, [ctypes.py_object]),
}
_loading = threading.Lock()
# With which make check-pythons has run (docs/versions.md).
_FIRST_PYTHON, _LAST_PYTHON = (3, 10), (3, 14)


class OverdriveError(RuntimeError):
    """The library refused; the text says why."""


def _unsupported() -> str:
    """Why no build of the library works on this system; "" where one may."""
    if sys.platform != "linux":
        found = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
    elif sys.maxsize < 1 << 32:
        found = "a Python of 32 bits"
    elif sysconfig.get_config_var("Py_GIL_DISABLED"):
        found = "a free-threaded Python"
    elif os.uname().machine not in ("x86_64", "aarch64"):
        found = "a processor of the kind " + os.uname().machine
    else:
        try:
            found = os.confstr("CS_GNU_LIBC_VERSION") or ""
        except (ValueError, OSError):  # so says Python with musl
            found = "Linux without glibc"
        version = re.fullmatch(r"glibc (\d+)\.(\d+).*", found)
        if version and (int(version[1]), int(version[2])) >= (2, 28):
            return ""
    return f"overdrive works on Linux with glibc 2.28 or newer, on x86-64 and 64-bit ARM, and this is {found}."


_system = _unsupported()
if _system:
    raise ImportError(_system, name="overdrive")


def check_python() -> None:
    """What a captured step reads is found by the bytecode and the insides of CPython. Of another version it might see less."""
    if sys.implementation.name != "cpython" or not _FIRST_PYTHON <= sys.version_info[:2] <= _LAST_PYTHON:
        first, last = (".".join(map(str, version)) for version in (_FIRST_PYTHON, _LAST_PYTHON))
        raise OverdriveError(f"Captured steps were tried with CPython {first} to {last}, and this is {sys.implementation.name} "
                             f"{sys.version_info[0]}.{sys.version_info[1]}, whose bytecode they may misread; the rest of overdrive works.")


def _minor(version: str) -> str:
    match = re.match(r"(\d+)\.(\d+)", version)
    return f"{match[1]}.{match[2]}" if match else version


def built_for() -> list[str]:
    """The minor versions of PyTorch that this package holds a library for.

    >>> built_for() != []
    True
    """
    minors = [name[len("torch"):] for name in os.listdir(PACKAGE) if re.fullmatch(r"torch\d+\.\d+", name)]
    return sorted(minors, key=lambda minor: [int(part) for part in minor.split(".")])


def torch_version() -> str:
    """The version of the PyTorch that is imported or would be; "" when there is none."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "__version__"):
        return str(torch.__version__)
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def folder(version: str | None = None) -> str:
    """Where the libraries for this version of PyTorch lie. ImportError when there are none for it."""
    version = torch_version() if version is None else version
    if not version:
        raise ImportError("overdrive needs PyTorch, which is not installed: pip install torch", name="overdrive")
    path = os.path.join(PACKAGE, "torch" + _minor(version))
    if not os.path.exists(os.path.join(path, "liboverdrive.so")):
        if os.path.isdir(path):
            raise ImportError(f"overdrive's library for torch {_minor(version)} is missing in {path}: build or install it again.", name="overdrive")
        have = ", ".join(built_for()) or "none"
        raise ImportError(
            f"overdrive was built for torch {have}, and this is torch {version}. Overdrive is bound to the minor "
            "version of PyTorch: install a torch that it was built for, an Overdrive that was built for this one, or "
            "build it against this one (pip install . in a checkout).",
            name="overdrive",
        )
    return path


@functools.cache
def _load() -> ctypes.CDLL:
    import torch  # first: the library finds LibTorch among what is loaded

    path = os.path.join(folder(str(torch.__version__)), "liboverdrive.so")
    try:
        library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ImportError(f"overdrive cannot load its library: {error}", name="overdrive", path=path) from error
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    if not library.overdrive_python_bindings():
        raise OverdriveError(library.overdrive_last_error().decode(errors="replace"))
    return library


def library() -> ctypes.CDLL:
    """The library of this process. Its functions run without the GIL."""
    with _loading:
        return _load()


@functools.cache
def under_the_gil() -> ctypes.PyDLL:
    """The same library. Its functions keep the GIL, as those must that look at objects of Python."""
    loaded = library()
    kept = ctypes.PyDLL(loaded._name, handle=loaded._handle)
    for name in filter(lambda each: each.startswith("overdrive_python_") and each != "overdrive_python_bindings", _SIGNATURES):
        function = getattr(kept, name)
        function.restype, function.argtypes = _SIGNATURES[name]
    return kept


def call(name: str, *arguments: Any) -> Any:
    """What a function of the library returns, such as "Packer.keep". An :class:`OverdriveError` with its text where it
    refuses. The functions are in python/bindings/ and run without the GIL."""
    found = _functions.get(name) or function(name)
    # A trace would take the call for one of the traced function.
    tracing = _tracing()
    if tracing is not None:
        _trace(None)
    try:
        return found(*arguments)
    except UnicodeDecodeError as error:  # a file's name in the text
        raise OverdriveError(error.object.decode(errors="replace")) from error
    except Exception as error:
        # Python 3.10 drops a text with such a name.
        raise OverdriveError(str(error) or f"{name} failed, with a text that is not UTF-8, as a file's name may be") from None
    finally:
        if tracing is not None:
            _trace(tracing)


_functions: dict[str, Callable[..., Any]] = {}
_tracing: Callable[[], Any]
_trace: Callable[[Any], None]


def function(name: str) -> Callable[..., Any]:
    """A function of the library whose errors stay as they are, such as "Capture.call", which runs code of the program."""
    global _tracing, _trace
    import torch

    library()
    _tracing, _trace = torch._C._get_tracing_state, torch._C._set_tracing_state
    kind, method = name.split(".")
    found: Callable[..., Any] = getattr(getattr(torch.classes.overdrive, kind), method)
    _functions[name] = found
    return found


def text(name: str, *arguments: Any) -> str:
    """The same of a function whose result is one text, which may have a file's name in it."""
    try:
        found: str = call(name, *arguments)
    except OverdriveError as error:
        if isinstance(error.__cause__, UnicodeDecodeError):
            return str(error)
        raise
    return found


def address_of(function: Any) -> int:
    """Of a C function that ctypes made of one of ours. The caller keeps it alive for as long as the library calls it."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def last_error() -> str:
    text: bytes = library().overdrive_last_error()
    return text.decode(errors="replace")


def whole_number(function: str, name: str, value: object, least: int = -(1 << 63)) -> int:
    """The value of an argument, or an error that says what it takes: C would cut a larger number off."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{function}: {name} is {value!r}; it takes a whole number")
    number = int(operator.index(value))
    if not least <= number < 1 << 63:
        takes = f"{least} and more, below 2**63" if least > -(1 << 63) else "a number of 64 bits"
        raise ValueError(f"{function}: {name} is {number}; it takes {takes}")
    return number
