#!/usr/bin/env python3
"""Checks that every "Note [Title]" that is cited is defined, exactly once.

A definition is a comment line that holds nothing else, `// Note [Level locks]`, or goes on with a colon,
`// Note [Level locks]: ...`; everything else is a citation. Exit status 1 when a title has no definition or several.
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("engine", "hooks", "forward_ad", "checkpoint", "inspect", "replay", "python", "test", "examples", "bench", "docs")
SUFFIXES = (".h", ".cpp", ".cu", ".md")
NOTE = re.compile(r"Note \[([^\]]+)\]")
DEFINITION = re.compile(r"^\s*(?://|\*|#+)\s*Note \[([^\]]+)\](?::|$)")


def main(root):
    defined, cited = defaultdict(list), defaultdict(list)
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                where = f"{file.relative_to(root)}:{number}"
                if match := DEFINITION.match(line):
                    defined[match[1]].append(where)
                else:
                    for title in NOTE.findall(line):
                        cited[title].append(where)
    errors = [f"{places[0]}: Note [{title}] is defined {len(places)} times: {', '.join(places)}"
              for title, places in sorted(defined.items()) if len(places) > 1]
    errors += [f"{place}: Note [{title}] is cited, but defined nowhere"
               for title, places in sorted(cited.items()) if title not in defined for place in places]
    print(*errors, sep="\n", end="\n" if errors else "")
    print(f"check_notes: {len(defined)} Notes, {sum(map(len, cited.values()))} citations, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
