"""What happens inside a backward."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from overdrive._library import OverdriveError, last_error, library


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
    handle = library().overdrive_trace_begin(os.fsencode(file), int(forward), int(live_bytes))
    if not handle:
        raise OverdriveError(last_error())
    complete = False
    try:
        yield
    finally:
        complete = bool(library().overdrive_trace_end(handle))
    if not complete:
        raise OverdriveError(last_error())
