"""The names of the package, in one module that is imported when the first of them is asked for: PyTorch comes with it."""
from overdrive.effects.apart import apart
from overdrive.native.library import OverdriveError, built_for
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
