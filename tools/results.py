#!/usr/bin/env python3
"""Writes the tables of docs/results.md and README.md from what `overdrive compare --all --json FILE` found; with
`--capture`, they have a column for captured steps.

    tools/results.py FILE

Replaces what stands between the lines `<!-- results -->` and `<!-- end of results -->` of both, and nothing else.
"""
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- results -->\n).*?(<!-- end of results -->)", re.DOTALL)


def ratio(found):
    return "–" if found is None else f"{found['median']:.3f} [{found['lo']:.3f}, {found['hi']:.3f}]"


def milliseconds(cost):
    return "–" if cost["step_seconds"] is None else f"{cost['step_seconds']['median'] * 1e3:.2f}"


def kibibytes(cost):
    return f"{(cost['peak_tensor_bytes'] + (cost['peak_heap_bytes'] or 0)) / 1024:,.0f}"


def bits(result):
    return "equal" if result["bits_equal"] else "**differ**"


def captured(result):
    """The captured step's time to stock's; a dash where the model cannot be captured."""
    found = result.get("captured")
    return "–" if not found or not found["replayed"] else ratio(found["step_ratio"])


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def captured_head(document):
    return ["step, captured"] if any(r.get("captured") for r in document["comparisons"]) else []


def captured_column(document, result):
    return [captured(result)] if captured_head(document) else []


def machine(environment):
    load = environment["load_average"]
    return (f"{environment['processor']}, {environment['cores']} cores, {environment['threads']} intra-op thread(s); "
            f"LibTorch {environment['torch']}, {environment['compiler']}, {environment['build_type']}; "
            f"{environment['time'][:10]}; load average at the start {load:.2f}.\n")


def long_form(document):
    rows = [[f"`{r['name']}`", f"{r['steps']:,}", bits(r), f"{r['stock']['quality']:.3f} {r['quality']}",
             milliseconds(r["stock"]), milliseconds(r["overdrive"]), ratio(r["step_ratio"]), ratio(r["backward_ratio"]),
             kibibytes(r["stock"]), kibibytes(r["overdrive"]), *captured_column(document, r)]
            for r in document["comparisons"]]
    head = ["model", "steps", "bits", "quality", "step, ms: stock", "overdrive", "step ratio [95 %]", "backward ratio [95 %]",
            "peak, KiB: stock", "overdrive", *captured_head(document)]
    return "\n" + table(head, rows) + "\n" + machine(document["environment"]) + "\n"


def short_form(document):
    rows = [[f"`{r['name']}`", r["what"], bits(r), ratio(r["step_ratio"]), ratio(r["backward_ratio"]),
             *captured_column(document, r)] for r in document["comparisons"]]
    head = ["model", "", "bits", "step time to stock's [95 %]", "backward alone", *captured_head(document)]
    return "\n" + table(head, rows) + "\n" + machine(document["environment"]) + "\n"


def main(path):
    document = json.loads(Path(path).read_text())
    for name, form in (("docs/results.md", long_form), ("README.md", short_form)):
        page = ROOT / name
        text, replaced = BLOCK.subn(lambda match, form=form: match[1] + form(document) + match[2], page.read_text())
        if replaced != 1:
            sys.exit(f"{name} has {replaced} blocks for results, not one")
        page.write_text(text)
        print("wrote the table of", name)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    main(sys.argv[1])
