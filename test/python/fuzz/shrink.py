"""Makes a failing notebook small: takes away cells, then blocks of lines, as long as `fails(notebook)` stays true."""
from __future__ import annotations

import time

from notebook import Notebook


def shrink(notebook, fails, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = notebook.text()
        notebook = _fewer_cells(notebook, fails, end)
        notebook = _fewer_lines(notebook, fails, end)
        if notebook.text() == before:
            break
    return notebook


def _fewer_cells(notebook, fails, end):
    size = max(1, len(notebook.cells) // 2)
    while size:
        at = len(notebook.cells)
        while at > 0 and time.monotonic() < end:
            at -= size
            cells = [*notebook.cells[:max(at, 0)], *notebook.cells[max(at, 0) + size:]]
            smaller = Notebook(cells, notebook.about)
            if cells and len(cells) < len(notebook.cells) and fails(smaller):
                notebook = smaller
        size //= 2
    return notebook


def _fewer_lines(notebook, fails, end):
    for number in range(len(notebook.cells)):
        at = 0
        while at < len(notebook.cells[number].splitlines()) and time.monotonic() < end:
            for cell in without(notebook.cells[number].splitlines(), at):
                smaller = Notebook([*notebook.cells[:number], cell, *notebook.cells[number + 1:]], notebook.about)
                if is_code(cell) and fails(smaller):
                    notebook = smaller
                    break
            else:
                at += 1
    return notebook


def without(lines, at):
    """The cell without the line and its block; with the block alone."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    stop = at + 1
    while stop < len(lines) and len(lines[stop]) - len(lines[stop].lstrip()) > indent:
        stop += 1
    yield "\n".join(lines[:at] + lines[stop:])
    if stop > at + 1:
        yield "\n".join(lines[:at] + [line[4:] for line in lines[at + 1:stop]] + lines[stop:])


def is_code(cell):
    try:
        compile(cell, "<cell>", "exec")
    except SyntaxError:
        return False
    return True
