"""All captured steps of a process, and the engine."""
from __future__ import annotations

from overdrive.step.reasons import descended, steps
from overdrive.tools.engine import installed, stats


def explain() -> str:
    """All captured steps of the process, and the engine: what runs where, and why not.

    >>> import overdrive
    >>> print(overdrive.explain().splitlines()[0])
    The engine is not installed: PyTorch runs the backwards. overdrive.install() changes this.
    """
    counts = stats()
    if installed():
        native = sum(counts["own_nodes"].values())
        text = (f"The engine is installed: {counts['backwards']} backwards on Overdrive, {counts['nodes']} nodes, {native} of "
                "them run by Overdrive itself.\n")
        for reason, times in counts["forwarded"].items():
            text += f"  {times} backwards on PyTorch: {reason}\n"
    else:
        text = "The engine is not installed: PyTorch runs the backwards. overdrive.install() changes this.\n"
    known = sorted(steps, key=lambda step: step.title())
    text += f"{len(known)} captured steps and parts.\n"
    for step in known:
        made = step.stats()
        text += (f"  {step.title()}: {made['calls']} calls, {made['replayed']} replayed, "
                 f"{made['calls'] - made['replayed']} eager or recorded\n")
        if refusal := step.refusal():
            text += f"    {refusal}\n"
    return text + "".join(sorted(call.told() for call in descended))
