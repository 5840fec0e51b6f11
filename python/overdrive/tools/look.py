"""Pictures of a backward: its graph, its dearest nodes, its memory."""
from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from overdrive.native.files import write_text
from overdrive.native.library import OverdriveError, address_of, call, text
from overdrive.tools.engine import needs_installed


class Graph:
    """The graph of a backward, as it was when :func:`graph` read it. ``nodes``, ``edges``, ``roots``, ``run_order`` and
    ``blocks`` are those of the JSON."""

    def __init__(self, graph: torch.ScriptObject, title: str) -> None:
        self._graph, self._title = graph, str(title)
        self._read()

    def _read(self) -> None:
        data = json.loads(self.to_json())
        self.nodes: list[dict[str, Any]] = data["nodes"]
        self.edges: list[list[int]] = data["edges"]
        self.roots: list[int] = data["roots"]
        self.run_order: list[int] = data["run_order"]
        self.blocks: list[dict[str, int]] = data["blocks"]

    def add_times(self, trace_file: str | os.PathLike[str]) -> int:
        """Gives the nodes their times from a trace of the graph's backward; the page is coloured by them. Returns how
        many nodes have a time."""
        found: int = call("Graph.add_times", self._graph, os.fsencode(trace_file))
        self._read()
        return found

    def to_json(self) -> str:
        return text("Graph.json", self._graph)

    def to_dot(self) -> str:
        """For Graphviz."""
        return text("Graph.dot", self._graph)

    def to_html(self) -> str:
        """One page that needs no network."""
        return text("Graph.html", self._graph, self._title)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the page, the JSON or the text for Graphviz, as the name ends: .html, .json or .dot."""
        for form, to_text in (("html", self.to_html), ("json", self.to_json), ("dot", self.to_dot)):
            if os.fspath(file).endswith("." + form):
                return write_text(to_text(), file)
        raise ValueError(f'"{os.fspath(file)}" ends neither with .html nor with .json nor with .dot')


def graph(tensors: torch.Tensor | Sequence[torch.Tensor], names: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] = (),
          title: str = "backward") -> Graph:
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
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"graph: {what} is {tensor!r}; it takes a torch.Tensor")
    return Graph(call("Graph.read", roots, [leaf for _, leaf in leaves], [name for name, _ in leaves]), title)


_STEP = ctypes.CFUNCTYPE(ctypes.c_int)


def _measured(name: str, step: Callable[[], object], title: str) -> tuple[str, str, str]:
    """Text, JSON and page."""
    if not callable(step):
        raise TypeError(f"{name}: step is {step!r}; it takes a function without arguments")
    needs_installed(f"{name}()")
    raised: list[BaseException] = []

    def run() -> int:
        try:
            step()
        except BaseException as error:  # noqa: B036 - it is raised again below
            raised.append(error)
            return 0
        return 1

    function = _STEP(run)
    try:
        found: tuple[str, str, str] = call("Inspect." + name, address_of(function), str(title))
    except OverdriveError:
        if raised:
            raise raised[0] from None
        raise
    return found


class _Page:
    """What a measurement of a step gave: a text, numbers, and a page that needs no network."""

    def __init__(self, text: str, json_text: str, html_text: str) -> None:
        self._text, self._html = text, html_text
        self.data: dict[str, Any] = json.loads(json_text)

    def to_html(self) -> str:
        return self._html

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the page."""
        write_text(self._html, file)

    def __str__(self) -> str:
        return self._text


class Profile(_Page):
    """What the nodes of a step cost. ``print()`` shows a table of 60 columns; ``data`` has the same as numbers;
    ``to_html()`` is a page that needs no network."""


def profile(step: Callable[[], object], title: str = "step") -> Profile:
    """Runs ``step`` once and tells which types of node its backwards spent time and bytes on.

    >>> import overdrive, torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> with overdrive.engine():
    ...     overdrive.profile(lambda: x.exp().sum().backward()).data["nodes"]
    3
    """
    return Profile(*_measured("profile", step, title))


class MemoryTimeline(_Page):
    """The CPU memory of a step. ``print()`` shows its peak and the owners; ``data`` has the same as numbers;
    ``to_html()`` is a page that needs no network."""

    @property
    def peak_bytes(self) -> int:
        return int(self.data["peak_bytes"])


def memory_timeline(step: Callable[[], object], title: str = "step") -> MemoryTimeline:
    """Runs ``step`` once and tells how high the peak of CPU memory is, where, and whose it is.

    >>> import overdrive, torch
    >>> x = torch.ones(1000, requires_grad=True)
    >>> with overdrive.engine():
    ...     overdrive.memory_timeline(lambda: x.exp().sin().sum().backward()).peak_bytes >= 12000
    True
    """
    return MemoryTimeline(*_measured("memory_timeline", step, title))
