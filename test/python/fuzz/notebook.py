"""A program of the fuzzers: a list of cells, as in a notebook, that are executed one after the other in one namespace.

As a file it is a script with `# %%` between its cells, which `run.py --file` runs again. A cell may define a model, call a captured step,
change a number or define the model anew. An error ends its cell, not the program.
"""
from __future__ import annotations

MARK = "# %%"


class Notebook:
    def __init__(self, cells, about=""):
        self.cells, self.about = list(cells), about

    def text(self):
        head = "".join(f"# {line}\n" for line in self.about.splitlines())
        return head + "".join(f"{MARK}\n{cell.rstrip()}\n" for cell in self.cells)

    @classmethod
    def from_text(cls, text):
        about, *cells = text.split(MARK + "\n")
        return cls(cells, "\n".join(line[2:] for line in about.splitlines() if line.startswith("# ")))
