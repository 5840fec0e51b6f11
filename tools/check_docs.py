#!/usr/bin/env python3
"""Checks what the documents say against the tree and the tests.

    tools/check_docs.py BUILD_FOLDER

Links between our documents lead somewhere; every folder that has sources has a README; every OVERDRIVE_*
variable that the library reads is in README.md; and each row of docs/differences.md names, in its last
column, a test that exists: `Suite.Name` of a GoogleTest program or the name of a CTest test.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("engine", "hooks", "forward_ad", "checkpoint", "test", "bench", "examples", "cmake", "tools", "docs", "python")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
VARIABLE = re.compile(r'"(OVERDRIVE_[A-Z_]+)"')
ROW = re.compile(r"^\|(.*)\|\s*$")


def documents(root):
    return sorted(path for path in [*root.glob("*.md"), *(p for f in FOLDERS for p in (root / f).rglob("*.md"))])


def dead_links(root):
    for document in documents(root):
        for number, line in enumerate(document.read_text().splitlines(), 1):
            for target in LINK.findall(line):
                if "://" not in target and not (document.parent / target).exists():
                    yield f"{document.relative_to(root)}:{number}: the link to {target} leads nowhere"


def folders_without_readme(root):
    for folder in FOLDERS:
        has_sources = any((root / folder).glob("*.*")) and any(
            path.name not in ("CMakeLists.txt", "README.md") for path in (root / folder).glob("*.*"))
        if has_sources and not (root / folder / "README.md").exists():
            yield f"{folder}/ has no README.md"


def undocumented_variables(root):
    readme = (root / "README.md").read_text()
    for source in sorted((root / "engine").glob("*.cpp")):
        for name in sorted(set(VARIABLE.findall(source.read_text()))):
            if name not in readme:
                yield f"engine/{source.name} knows {name}, README.md does not"


def rows_of(document):
    """(line number, cells) of each table row that is not a heading or its rule."""
    lines = document.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        match = ROW.match(line)
        heading = number < len(lines) and re.match(r"^\|[\s:|-]+\|\s*$", lines[number])
        if match and not heading and not re.match(r"^[\s:|-]+$", match[1]):
            yield number, [cell.strip() for cell in match[1].split("|")]


def gtest_names(listing):
    """Suite.Name for each case, without the parts that a type or a parameter adds."""
    names, suites = set(), []
    for line in listing.splitlines():
        text = line.split("#")[0].rstrip()
        if text.endswith(".") and not text.startswith(" "):
            suites = text[:-1].split("/")  # Prefix/Suite, or Suite/Type
        elif text.startswith("  "):
            names |= {f"{suite}.{text.strip().split('/')[0]}" for suite in suites}
    return names


def known_tests(build):
    shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, capture_output=True, text=True, check=True)
    names = set()
    for test in json.loads(shown.stdout)["tests"]:
        names.add(test["name"])
        words = test.get("command", [])
        program = next((word for word in words if word.endswith(("_test", "_tests"))), None)
        if program and Path(program).is_file():
            # With the filter of this test, so that one which nothing runs is not known.
            chosen = [word for word in words if word.startswith("--gtest_filter=")]
            listing = subprocess.run([program, *chosen, "--gtest_list_tests"], capture_output=True, text=True, timeout=60)
            names |= gtest_names(listing.stdout)
    return names


def differences_without_test(root, tests):
    for number, cells in rows_of(root / "docs/differences.md"):
        cited = re.findall(r"`([\w.]+)`", cells[-1])
        where = f"docs/differences.md:{number}: "
        if not cited:
            yield where + f"no test is named for {cells[0]}"
        for name in cited:
            if name not in tests:
                yield where + f"there is no test {name}"


def main(root, build):
    errors = [*dead_links(root), *folders_without_readme(root), *undocumented_variables(root)]
    tests = known_tests(build)
    errors += differences_without_test(root, tests)
    print(*errors, sep="\n", end="\n" if errors else "")
    print(f"check_docs: {len(documents(root))} documents, {len(tests)} tests known, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(ROOT, Path(sys.argv[1])))
