"""The table of docs/versions.md: a row for each version of LibTorch, a column for each check. Written by the checks."""
import re
import subprocess
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "versions.md"
COLUMNS = ("library", "suite")
LIBRARY = ("engine", "hooks", "forward_ad", "checkpoint", "inspect", "replay", "python/bindings")


def commit():
    """Of the tree as it is: with a mark when anything but a document was changed and not committed."""
    described = subprocess.run(["git", "describe", "--always"], cwd=ROOT, capture_output=True, text=True)
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", ".", ":!docs"], cwd=ROOT).returncode != 0
    return (described.stdout.strip() or "unknown") + ("-dirty" if changed else "")


def note(version, column, found):
    """Puts what was found, with date and commit, into the row of the version, which is added when there is none."""
    lines = PAGE.read_text().splitlines()
    rows = [i for i, line in enumerate(lines) if line.startswith("| ") and line[2:3].isdigit()]
    cells = {lines[i].strip("|").split("|")[0].strip(): [c.strip() for c in lines[i].strip("|").split("|")] for i in rows}
    cells.setdefault(version, [version, "not tried", "never run"])
    cells[version][1 + COLUMNS.index(column)] = f"{found} ({date.today()}, {commit()})"
    in_order = sorted(cells.values(), key=lambda row: [int(part) for part in row[0].split(".")])
    lines[rows[0] : rows[-1] + 1] = ["| " + " | ".join(row) + " |" for row in in_order]
    PAGE.write_text("\n".join(lines) + "\n")


def rows():
    """Version -> (what was found, commit) for each column."""
    found = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("| ") and line[2:3].isdigit():
            version, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            commits = [re.search(r"\(\d{4}-\d\d-\d\d, ([\w-]+)", cell) for cell in cells]
            found[version] = {column: (cell, match[1] if match else "")
                              for column, cell, match in zip(COLUMNS, cells, commits)}
    return found


def is_older(commit):
    """Whether the library changed after this commit. A commit that is not known, or had changes, counts as older."""
    changed = subprocess.run(["git", "diff", "--quiet", commit + "^{commit}", "HEAD", "--", *LIBRARY, ":!*.md"], cwd=ROOT,
                             capture_output=True)
    return changed.returncode != 0
