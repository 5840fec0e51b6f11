"""Runs a notebook eagerly and captured, and looks after each cell. Stock beside stock is the check of the program itself."""
from __future__ import annotations

from facts import first_difference
from side import Side

# How many leaves got their gradients before this error is nobody's promise: the program ends there.
PARTIAL = "needed for gradient computation"
# Errors of a part where eager has none, which docs/guide/parts.md names as limits, and a swap of a tensor while a part's graph lives: the
# program ends there, too.
LIMITS = ("The backward of a captured part needs its function once more, and the function makes other values now",
          "The backward of a captured part needs its function once more, and the function makes another graph now",
          "No recording of the captured part", "Expected no weakrefs to")


# Eager's error for a swap of a tensor that a graph holds.
HELD = "Expected use_count of"


class Outcome:
    def __init__(self, difference, replayed, errors):
        self.difference, self.replayed, self.errors = difference, replayed, errors


def run(notebook, ours=True, settings=None):
    """What differs first between an eager side and another, which is captured or (ours=False) eager, too. `settings` are options of capture()."""
    eager, other = Side(False), Side(ours, settings)
    found, errors = "", []
    for number, cell in enumerate(notebook.cells):
        want, got = eager.run(cell), other.run(cell)
        if want["error"]:
            errors.append(want["error"])
        if (not want["error"] or HELD in want["error"]) and any(limit in got["error"] for limit in LIMITS):
            break
        if PARTIAL in want["error"] and same_error(want["error"], got["error"]):
            break
        if same_error(want["error"], got["error"]):
            got["error"] = want["error"]
        if found := first_difference(want, got):
            found = f"cell {number}: {found}"
            break
    outcome = Outcome(found or other.silent(), other.replayed(), errors)
    eager.end()
    other.end()
    return outcome


def same_error(want, got):
    """Overdrive may add to a text, where it says so."""
    return want == got or bool(want) and got.startswith(want) and "overdrive" in got.lower()


def difference(notebook, settings=None):
    """The outcome of a captured side; a program of which stock differs from itself shows nothing."""
    outcome = run(notebook, True, settings)
    if outcome.difference and run(notebook, ours=False).difference:
        outcome.difference = ""
    return outcome
