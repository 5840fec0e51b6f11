"""Pictures of a backward: its graph, its dearest nodes, its memory."""
from __future__ import annotations

import ctypes
import json
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from overdrive._engine import needs_installed
from overdrive._library import OverdriveError, last_error, library
from overdrive._output import write_text
from overdrive._watch import _text


class Graph:
    """The graph of a backward, as it was when :func:`graph` read it. ``nodes``, ``edges``, ``roots``, ``run_order`` and
    ``blocks`` are those of the JSON."""

    def __init__(self, handle: int, title: str) -> None:
        self._handle, self._title = handle, str(title)
        weakref.finalize(self, library().overdrive_graph_free, handle)
        self._read()

    def _read(self) -> None:
        data = json.loads(self.to_json())
        self.nodes: list[dict[str, Any]] = data["nodes"]
        self.edges: list[list[int]] = data["edges"]
        self.roots: list[int] = data["roots"]
        self.run_order: list[int] = data["run_order"]
        self.blocks: list[dict[str, int]] = data["blocks"]

    def _as(self, form: bytes) -> str:
        return _text(library().overdrive_graph_text, self._handle, form, self._title.encode())

    def add_times(self, trace_file: str | os.PathLike[str]) -> int:
        """Gives the nodes their times from a trace of the graph's backward; the page is coloured by them. Returns how
        many nodes have a time."""
        found: int = library().overdrive_graph_add_times(self._handle, os.fsencode(trace_file))
        if found < 0:
            raise OverdriveError(last_error())
        self._read()
        return found

    def to_json(self) -> str:
        return self._as(b"json")

    def to_dot(self) -> str:
        """For Graphviz."""
        return self._as(b"dot")

    def to_html(self) -> str:
        """One page that needs no network."""
        return self._as(b"html")

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the page, the JSON or the text for Graphviz, as the name ends: .html, .json or .dot."""
        for form in ("html", "json", "dot"):
            if os.fspath(file).endswith("." + form):
                return write_text(self._as(form.encode()), file)
        raise ValueError(f'"{os.fspath(file)}" ends neither with .html nor with .json nor with .dot')


def graph(tensors: Any, names: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), title: str = "backward") -> Graph:
    """The graph that a backward from a tensor, or from several, would run through. Runs nothing and calls no hook.

    ``names`` are names of leaves: ``model.named_parameters()``.

    >>> import overdrive, torch
    >>> w = torch.ones(3, requires_grad=True)
    >>> [node["name"] for node in overdrive.graph((w * 2).sum(), {"w": w}).nodes][:2]
    ['SumBackward0', 'MulBackward0']
    """
    roots = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    leaves = list(names.items() if isinstance(names, Mapping) else names)
    if not roots:
        raise ValueError("there is no tensor to draw the graph of")
    for what, tensor in [("a tensor", root) for root in roots] + [(f"the leaf {name!r}", leaf) for name, leaf in leaves]:
        if not hasattr(tensor, "_cdata"):
            raise TypeError(f"graph: {what} is {tensor!r}; it takes a torch.Tensor")
    library_ = library()
    handle = library_.overdrive_graph_read(
        (ctypes.c_void_p * len(roots))(*[tensor._cdata for tensor in roots]), len(roots),
        (ctypes.c_void_p * len(leaves))(*[tensor._cdata for _, tensor in leaves]),
        (ctypes.c_char_p * len(leaves))(*[name.encode() for name, _ in leaves]), len(leaves))
    if not handle:
        raise OverdriveError(last_error())
    return Graph(handle, title)


_STEP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def _measured(name: str, measure: Callable[..., Any], step: Callable[[], Any]) -> Any:
    if not callable(step):
        raise TypeError(f"{name}: step is {step!r}; it takes a function without arguments")
    needs_installed(f"{name}()")
    raised: list[BaseException] = []

    def call(_: Any) -> int:
        try:
            step()
        except BaseException as error:  # noqa: B036 - it is raised again below
            raised.append(error)
            return 0
        return 1

    handle = measure(_STEP(call), None)
    if raised:
        raise raised[0]
    if not handle:
        raise OverdriveError(last_error())
    return handle


class Profile:
    """What the nodes of a step cost. ``print()`` shows a table of 60 columns; ``data`` has the same as numbers;
    ``to_html()`` is a page that needs no network."""

    def __init__(self, text: str, data: dict[str, Any], html_text: str) -> None:
        self._text, self._html, self.data = text, html_text, data

    def to_html(self) -> str:
        return self._html

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the page."""
        write_text(self._html, file)

    def __str__(self) -> str:
        return self._text


def profile(step: Callable[[], Any], title: str = "step") -> Profile:
    """Runs ``step`` once and tells which types of node its backwards spent time and bytes on.

    >>> import overdrive, torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> with overdrive.engine():
    ...     overdrive.profile(lambda: x.exp().sum().backward()).data["nodes"]
    3
    """
    handle = _measured("profile", library().overdrive_profile_step, step)
    try:
        return Profile(_text(library().overdrive_profile_text, handle, b"text"),
                       json.loads(_text(library().overdrive_profile_text, handle, b"json")),
                       _text(library().overdrive_profile_page, handle, str(title).encode()))
    finally:
        library().overdrive_profile_free(handle)


class MemoryTimeline:
    """The CPU memory of a step. ``print()`` shows its peak and the owners; ``data`` has the same as numbers, with what
    each remedy would give; ``to_html()`` is a page that needs no network."""

    def __init__(self, text: str, json_text: str, html_text: str) -> None:
        self._text, self._html = text, html_text
        self.data: dict[str, Any] = json.loads(json_text)

    @property
    def peak_bytes(self) -> int:
        return int(self.data["peak_bytes"])

    def to_html(self) -> str:
        return self._html

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the page."""
        write_text(self._html, file)

    def __str__(self) -> str:
        return self._text


def memory_timeline(step: Callable[[], Any], title: str = "step") -> MemoryTimeline:
    """Runs ``step`` once and tells how high the peak of CPU memory is, where, whose it is, and what would lower it.

    >>> import overdrive, torch
    >>> x = torch.ones(1000, requires_grad=True)
    >>> with overdrive.engine():
    ...     overdrive.memory_timeline(lambda: x.exp().sin().sum().backward()).peak_bytes >= 12000
    True
    """
    handle = _measured("memory_timeline", library().overdrive_memory_step, step)
    try:
        return MemoryTimeline(*[_text(library().overdrive_memory_text, handle, form, str(title).encode())
                                for form in (b"text", b"json", b"html")])
    finally:
        library().overdrive_memory_free(handle)
