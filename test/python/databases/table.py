"""What came of the samples: counts of each form, refusals by reason, and what differs."""
from __future__ import annotations

import collections
import json
import re

COLUMNS = ("replayed", "refused", "differs", "skipped", "too long", "no samples")


def without_details(reason):
    """Refusals that differ in a number or a place alone are one."""
    reason = re.sub(r" \(/[^)]*\)", "", reason.split(" Also: ")[0])
    return re.sub(r"\d+(\.\d+)?(e-?\d+)?", "N", reason)[:150]


class Table:
    def __init__(self):
        self.counts = collections.defaultdict(collections.Counter)
        self.reasons = collections.defaultdict(collections.Counter)
        self.cases, self.wrong = collections.Counter(), []

    def add(self, database, name, rows):
        self.cases[database] += 1
        for form, what, text in rows:
            self.counts[f"{database}: {form}" if form else database][what] += 1
            if what == "differs":
                self.wrong.append(f"{name}, {form}: {text}")
                print(f"DIFFERS {self.wrong[-1]}", flush=True)
            elif what == "refused":
                self.reasons[without_details(text)][name] += 1

    def replayed(self):
        return sum(row["replayed"] for row in self.counts.values())

    def show(self):
        print("\n" + ", ".join(f"{count} {database}" for database, count in self.cases.items()))
        print(f"{'samples':28}" + "".join(f"{column:>11}" for column in COLUMNS))
        for form, row in self.counts.items():
            print(f"{form:28}" + "".join(f"{row[column]:11}" for column in COLUMNS))
        print("\nrefusals by reason")
        for reason, names in sorted(self.reasons.items(), key=lambda item: -sum(item[1].values())):
            some = ", ".join(name for name, _ in names.most_common(6))
            print(f"{sum(names.values()):6}  {reason}\n        {len(names)} cases: {some}")
        print(f"\n{len(self.wrong)} differences")
        for text in self.wrong:
            print("  " + text)

    def write(self, path):
        with open(path, "w") as file:
            json.dump({"cases": self.cases, "counts": self.counts, "reasons": self.reasons, "differences": self.wrong}, file, indent=1)
