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
from typing import Any

from overdrive.effects.apart import apart
from overdrive.native.library import OverdriveError, built_for
from overdrive.native.library import folder as _folder
from overdrive.step.api import CapturedStep, capture
from overdrive.step.file import LoadedStep, load_step, save_steps
from overdrive.step.part import CapturedPart, captured, part_of
from overdrive.tools.advise import Advice, advise
from overdrive.tools.checkpoint import checkpoint_sequential
from overdrive.tools.compare import Comparison, compare
from overdrive.tools.engine import engine, install, installed, keep_memory, reset_stats, stats, uninstall
from overdrive.tools.explain import explain
from overdrive.tools.inspect import join_traces, trace
from overdrive.tools.look import Graph, MemoryTimeline, Profile, graph, memory_timeline, profile
from overdrive.tools.saved_tensors import (
    Packer,
    compose,
    keep,
    min_bytes,
    offload_to_cpu,
    quantise,
    saved_tensors,
    spill_to_disk,
)
from overdrive.tools.watch import Cancelled, CancelToken, NanWatch, last_error_note, stopping

__version__ = "0.2.0"
__all__ = [
    "Advice",
    "CancelToken",
    "Cancelled",
    "CapturedPart",
    "CapturedStep",
    "Comparison",
    "Graph",
    "LoadedStep",
    "MemoryTimeline",
    "NanWatch",
    "OverdriveError",
    "Packer",
    "Profile",
    "advise",
    "apart",
    "built_for",
    "capture",
    "captured",
    "checkpoint_sequential",
    "compare",
    "compose",
    "engine",
    "explain",
    "graph",
    "install",
    "installed",
    "join_traces",
    "keep",
    "keep_memory",
    "last_error_note",
    "load_step",
    "memory_timeline",
    "min_bytes",
    "offload_to_cpu",
    "part_of",
    "profile",
    "quantise",
    "reset_stats",
    "save_steps",
    "saved_tensors",
    "spill_to_disk",
    "stats",
    "stopping",
    "trace",
    "uninstall",
]


def __getattr__(name: str) -> Any:
    """``overdrive.integrations`` is imported when it is named first."""
    if name != "integrations":
        raise AttributeError(f"module 'overdrive' has no attribute {name!r}")
    return importlib.import_module("overdrive.integrations")


_folder()  # ImportError now rather than at the first call, when there is no library for this PyTorch
