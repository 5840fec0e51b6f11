"""Overdrive: another autograd engine under PyTorch. The same gradients, bit for bit, sooner.

    import overdrive

    overdrive.install()        # every backward from here on, on all threads

:func:`install`, :func:`uninstall`, :func:`engine`: switching. :func:`stats`: what it did. :func:`compare`: a training
step under both engines. :func:`saved_tensors` with :func:`quantise`, :func:`spill_to_disk`, :func:`offload_to_cpu`:
less memory between forward and backward. :func:`checkpoint_sequential`: less memory for more arithmetic.
:func:`trace`, :func:`graph`, :func:`profile`, :func:`memory_timeline`: what happens inside a backward. :func:`capture`:
a training step recorded once and replayed. :func:`captured`: a model, an optimizer or a function, the same way.
:func:`apart`: code of a captured step that runs in replays, too.
:func:`advise`: which of these a step gains most by, and with how many threads.
:func:`load_step`, :func:`save_steps`: a captured step in a file, trained without its code.

A program runs on it without a change: ``python -m overdrive script.py``.
"""
import importlib
from typing import TYPE_CHECKING, Any

from overdrive.native.library import folder as _folder

__version__ = "0.2.0"

if TYPE_CHECKING:
    from overdrive._names import *  # noqa: F403
    from overdrive._names import __all__ as __all__


def __getattr__(name: str) -> Any:
    """``overdrive.integrations`` is imported when it is named first, and so are all other names with the first of them."""
    if name == "integrations":
        return importlib.import_module("overdrive.integrations")
    if not name.startswith("__") or name == "__all__":
        names = importlib.import_module("overdrive._names")
        globals().update({each: getattr(names, each) for each in ("__all__", *names.__all__)})
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module 'overdrive' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})


_folder()  # ImportError now rather than at the first call, when there is no library for this PyTorch
