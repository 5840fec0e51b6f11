"""What happens inside a backward."""
from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

from overdrive.native.files import write_text
from overdrive.native.library import OverdriveError, call


@contextlib.contextmanager
def trace(file: str | os.PathLike[str], *, forward: bool = True, live_bytes: bool = True) -> Iterator[None]:
    """Writes every backward of the block, node by node, into ``file``, which chrome://tracing and ui.perfetto.dev open.

    ``forward`` adds the operators that this thread runs outside a backward, with an arrow to the node of each.
    ``live_bytes`` has every node tell how many bytes of CPU tensors are alive after it, of those that were made in the
    block. Needs the engine: :func:`overdrive.install`. "%p" in ``file`` becomes the number of the process.

    >>> import json, overdrive, tempfile, torch
    >>> path = tempfile.mkdtemp() + "/trace.json"
    >>> x = torch.ones(3, requires_grad=True)
    >>> with overdrive.engine(), overdrive.trace(path):
    ...     (x * x).sum().backward()
    >>> "MulBackward0" in [event["name"] for event in json.load(open(path))["traceEvents"]]
    True
    """
    handle = call("Trace.begin", os.fsencode(file), bool(forward), bool(live_bytes))
    try:
        yield
    except BaseException:
        with contextlib.suppress(OverdriveError):
            call("Trace.end", handle)
        raise
    call("Trace.end", handle)


# Above every number that a system gives to a process, so that the threads of both files have lines of their own.
_OTHER_PROCESS = 10_000_000


def join_traces(
    trace_file: str | os.PathLike[str], profiler_file: str | os.PathLike[str], file: str | os.PathLike[str]
) -> None:
    """Puts a trace and the file of PyTorch's profiler (``export_chrome_trace()``) on one time line in ``file``.

    Both must be of one run: the profiler's events stay as they are, and the trace's become a process "Overdrive" beside
    it. Their moments are those of the system's clock.

    >>> import json, overdrive, tempfile, torch
    >>> from torch.profiler import ProfilerActivity, profile
    >>> folder = tempfile.mkdtemp()
    >>> x = torch.ones(3, requires_grad=True)
    >>> with overdrive.engine(), profile(activities=[ProfilerActivity.CPU]) as profiler:
    ...     with overdrive.trace(folder + "/trace.json"):
    ...         x.exp().sum().backward()
    >>> profiler.export_chrome_trace(folder + "/profile.json")
    >>> overdrive.join_traces(folder + "/trace.json", folder + "/profile.json", folder + "/both.json")
    """
    ours, theirs = _read(trace_file), _read(profiler_file)
    later = (ours["baseTimeNanoseconds"] - theirs["baseTimeNanoseconds"]) / 1e3
    for number, event in enumerate(ours["traceEvents"]):
        try:
            event["pid"] += _OTHER_PROCESS
            if "ts" in event:
                event["ts"] = round(event["ts"] + later, 3)
            if "bind_id" in event:
                event["bind_id"] = "overdrive." + event["bind_id"]
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            raise ValueError(f'"{os.fspath(trace_file)}": event {number} is none of a trace of Overdrive') from None
    theirs["traceEvents"] += ours["traceEvents"]
    write_text(json.dumps(theirs), file)


def _read(file: str | os.PathLike[str]) -> dict[str, Any]:
    if not os.path.isfile(file):
        raise ValueError(f'"{os.fspath(file)}" is no file')
    try:
        with open(file, encoding="utf-8") as text:
            whole = json.load(text)
    except (RecursionError, ValueError) as error:
        raise ValueError(f'"{os.fspath(file)}" is no JSON: {error}') from None
    if (not isinstance(whole, dict) or not isinstance(whole.get("traceEvents"), list)
            or type(whole.get("baseTimeNanoseconds")) is not int or abs(whole["baseTimeNanoseconds"]) >= 2**63):
        raise ValueError(f'"{os.fspath(file)}" is no trace with a moment of the system\'s clock (baseTimeNanoseconds)')
    return whole
