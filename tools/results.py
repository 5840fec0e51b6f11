#!/usr/bin/env python3
"""Writes the tables of docs/results.md and README.md, and the picture docs/pictures/results.svg, from what
`overdrive compare --all --json FILE` found; with `--capture`, they have a column for captured steps.

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
    """What the table of the README, short_form(), leaves out."""
    rows = [[f"`{r['name']}`", f"{r['steps']:,}", f"{r['stock']['quality']:.3f} {r['quality']}",
             milliseconds(r["stock"]), milliseconds(r["overdrive"]), kibibytes(r["stock"]), kibibytes(r["overdrive"])]
            for r in document["comparisons"]]
    head = ["model", "steps", "quality", "step, ms: stock", "overdrive", "peak, KiB: stock", "overdrive"]
    return "\n" + table(head, rows) + "\n" + machine(document["environment"]) + "\n"


def short_form(document):
    rows = [[f"`{r['name']}`", r["what"], bits(r), ratio(r["step_ratio"]), ratio(r["backward_ratio"]),
             *captured_column(document, r)] for r in document["comparisons"]]
    head = ["model", "", "bits", "step time to stock's [95 %]", "backward alone", *captured_head(document)]
    return "\n" + table(head, rows) + "\n" + machine(document["environment"]) + "\n"


def picture(document):
    """A bar for each model's step time to stock's, switched and captured, with the interval as a line."""
    left, width, height = 130, 420, 44  # of the names; of stock's time; of a model
    shapes = []

    def text(x, y, content, more=""):
        shapes.append(f'<text x="{x:.0f}" y="{y}"{more}>{content}</text>')

    def bar(y, found, colour):
        if found is None:
            return
        lo, hi, median = (left + width * found[key] for key in ("lo", "hi", "median"))
        shapes.append(f'<rect x="{left}" y="{y}" width="{median - left:.1f}" height="14" fill="{colour}"/>')
        shapes.append(f'<path d="M{lo:.1f} {y + 7}H{hi:.1f}" stroke="#222"/>')
        text(max(hi, median) + 6, y + 11, f"{found['median']:.2f}")

    rows = document["comparisons"]
    for number, row in enumerate(rows):
        y = 34 + number * height
        text(left - 8, y + 19, row["name"], ' text-anchor="end"')
        captured_row = row.get("captured")
        bar(y, row["step_ratio"], "#2c7fb8")
        bar(y + 16, captured_row["step_ratio"] if captured_row and captured_row["replayed"] else None, "#41ab5d")
    bottom = 34 + len(rows) * height
    shapes.append(f'<path d="M{left + width} 26V{bottom}" stroke="#999" stroke-dasharray="4"/>')
    text(left + width, 18, "stock", ' text-anchor="middle"')
    text(left, 18, "step time to stock's: switched (blue), captured (green)")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 130}" height="{bottom + 10}" font-family="sans-serif" font-size="12">\n'
            '<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(shapes) + "\n</svg>\n")


def main(path):
    document = json.loads(Path(path).read_text())
    (ROOT / "docs/pictures/results.svg").write_text(picture(document))
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
