#!/usr/bin/env python3
"""Checks the statements of the documents against the tree and the tests.

    tools/check_docs.py BUILD_FOLDER

- A link between our documents leads to a file. A path or a source file in `code` exists.
- Each word in `code` occurs in a source, as a name, in a text or in a comment; or it is the name of a test, or one of OTHERS.
  The README of a folder of the library names units (files without their suffix, and folders) of that folder.
- Each folder with sources has a README.
- docs/guide/switching.md lists every OVERDRIVE_* variable that the library reads.
- Each row of docs/contracts.md and docs/differences.md names, in its last column, a test that exists:
  `Suite.Name` of a GoogleTest program or the name of a CTest test. So does each test that docs/host_contract.md cites.
- No guide names a test: the promises of the guides stand in docs/contracts.md.

A CTest test also counts when CMake's files declare it and this build leaves it out, for want of a Python with LibTorch,
of Gloo, or because of a sanitizer. A GoogleTest case counts only when this build runs it.
"""
import fnmatch
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ("engine", "hooks", "forward_ad", "checkpoint", "inspect", "replay", "python")
FOLDERS = (*LIBRARY, "test", "bench", "examples", "cmake", "tools", "docs")
VARIABLES = "docs/guide/switching.md"
PROMISES = ("docs/contracts.md", "docs/differences.md")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"`([^`\s]+)`")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
WORD = re.compile(r"[A-Za-z_]\w*")
UNIT = re.compile(r"[a-z][a-z0-9_]*")
IN_TREE = re.compile(rf"({'|'.join(FOLDERS)})/[\w./*-]*")
SOURCE = re.compile(r"[\w*]+\.(h|cpp|cu|inl)")
# Documents that name what was, and libraries of others.
NOT_OURS = ("CHANGELOG.md", "docs/recipes/")
# Names of the system, of PyTorch and of other projects that no source of ours has.
OTHERS = (
    "DEVICE", "MXCSR", "FPCR", "FlopCounterMode", "OVERDRIVE_0", "OVERDRIVE_MACRO", "PythonEngine",
    "THPVariable_Wrap", "R_AARCH64_", "TORCH_LOGS", "graph_breaks", "VmHWM", "_GLIBCXX_USE_CXX11_ABI", "alice29",
    "testdata", "drop_last", "input_grad_buffers", "manylinux_2_28_x86_64", "perf_event_open", "posix_spawn",
    "test_jit", "test_lazy", "TOPIC", "member_", "rn", "nvcc", "auxiliary_loss")
TEST = re.compile(r"[A-Z*][\w*]*\.[\w*]+|\w+_tests?")
VARIABLE = re.compile(r'(?:getenv|read|value_of|is_set_to)\("(OVERDRIVE(?:_[A-Z]+)*)"')
ROW = re.compile(r"^\|(.*)\|\s*$")


def documents(root):
    return sorted(path for path in [*root.glob("*.md"), *(p for f in FOLDERS for p in (root / f).rglob("*.md"))])


def lines_of(document):
    return enumerate(document.read_text().splitlines(), 1)


def dead_links(root):
    for document in documents(root):
        for number, line in lines_of(document):
            for target in LINK.findall(line):
                if "://" not in target and not (document.parent / target).exists():
                    yield f"{document.relative_to(root)}:{number}: the link to {target} leads nowhere"


def dead_paths(root):
    """Paths from the root, perhaps without the suffix, and names of source files."""
    sources = {path.name for folder in FOLDERS for path in (root / folder).rglob("*.*")}
    for document in documents(root):
        for number, line in lines_of(document):
            for name in CODE.findall(line):
                name = name.removeprefix("<overdrive/").removesuffix(">")
                if IN_TREE.fullmatch(name):
                    found = (root / name).exists() or any(root.glob(name)) or any(root.glob(name.rstrip("/") + ".*"))
                elif SOURCE.fullmatch(name):
                    found = fnmatch.filter(sources, name)
                else:
                    continue
                if not found:
                    yield f"{document.relative_to(root)}:{number}: there is no file {name}"


def words_of_sources(root):
    """Every word that a source or the name of a file has."""
    words = set()
    for path in [*root.glob("*"), *(p for folder in FOLDERS for p in (root / folder).rglob("*"))]:
        words.update(WORD.findall(path.stem))
        if path.suffix in (".md", ".txt") and path.name != "CMakeLists.txt" or not path.is_file():
            continue
        if path.suffix not in (".png", ".so", ".pt"):
            words.update(WORD.findall(path.read_text(errors="ignore")))
    return words


def spans_of(document):
    """(line number, text) of each name or piece of code in a line of prose or of a table."""
    inside = False
    for number, line in lines_of(document):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            for span in SPAN.findall(line):
                yield number, span


def unknown_names(root, tests):
    known = words_of_sources(root) | set(tests) | set(OTHERS)
    for document in documents(root):
        name = str(document.relative_to(root))
        if name.startswith(NOT_OURS):
            continue
        for number, span in spans_of(document):
            for match in WORD.finditer(span):
                word = match[0]
                is_begin = span[match.end():match.end() + 1] == "*" and any(w.startswith(word) for w in known)
                is_end = span[match.start() - 1:match.start()] == "*" and any(w.endswith(word) for w in known)
                if word not in known and not is_begin and not is_end:
                    yield f"{name}:{number}: no source has the name {word} of `{span}`"


def unknown_units(root):
    for folder in LIBRARY:
        paths = list((root / folder).rglob("*"))
        units = {path.name for path in paths} | {path.name.partition(".")[0] for path in paths} | set(OTHERS)
        for document in (path for path in paths if path.name == "README.md"):
            for number, span in spans_of(document):
                if UNIT.fullmatch(span) and span not in units:
                    yield f"{document.relative_to(root)}:{number}: {folder}/ has no unit {span}"


def folders_without_readme(root):
    for folder in FOLDERS:
        has_sources = any((root / folder).glob("*.*")) and any(
            path.name not in ("CMakeLists.txt", "README.md") for path in (root / folder).glob("*.*"))
        if has_sources and not (root / folder / "README.md").exists():
            yield f"{folder}/ has no README.md"


def undocumented_variables(root):
    page = (root / VARIABLES).read_text()
    for source in sorted(path for folder in LIBRARY for path in (root / folder).rglob("*.cpp")):
        for name in sorted(set(VARIABLE.findall(source.read_text()))):
            if f"`{name}`" not in page:
                yield f"{source.relative_to(root)} knows {name}, {VARIABLES} does not"


def rows_of(document):
    """(line number, cells) of each table row that is not a heading or its rule."""
    lines = document.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        match = ROW.match(line)
        heading = number < len(lines) and re.match(r"^\|[\s:|-]+\|\s*$", lines[number])
        if match and not heading and not re.match(r"^[\s:|-]+$", match[1]):
            yield number, [cell.strip() for cell in match[1].split("|")]


def gtest_cases(listing):
    """Each case as its full name, and as Suite.Name without the parts that a type or a parameter adds."""
    suite = ""
    for line in listing.splitlines():
        text = line.split("#")[0].rstrip()
        if text.endswith(".") and not text.startswith(" "):
            suite = text[:-1]
        elif text.startswith("  "):
            case = text.strip()
            # Prefix/Suite, or Suite/Type
            yield f"{suite}.{case}", [f"{part}.{case.split('/')[0]}" for part in suite.split("/")]


def passes(case, gtest_filter):
    wanted, _, unwanted = gtest_filter.partition("-")
    return (any(fnmatch.fnmatchcase(case, pattern) for pattern in (wanted or "*").split(":"))
            and not any(fnmatch.fnmatchcase(case, pattern) for pattern in unwanted.split(":")))


def declared_tests(root):
    """The names that CMake's files give to CTest tests, those of foreach() loops included."""
    names = set()
    for file in sorted([*root.glob("test/**/*"), *root.glob("examples/**/*")]):
        if file.name != "CMakeLists.txt" and file.suffix != ".cmake":
            continue
        text = file.read_text()
        values = {}
        for variable, listed in re.findall(r"(?:foreach|set|list)\((?:APPEND )?(\w+) (?!IN )([\w ]+)\)", text):
            values.setdefault(variable, []).extend(listed.split())
        for variable, source in re.findall(r"foreach\((\w+) IN LISTS (\w+)\)", text):
            values.setdefault(variable, []).extend(values.get(source, []))
        for command, name in re.findall(r"(overdrive_add_\w+|add_test)\((?:NAME )?([\w${}]+)", text):
            prefix = "cli_" if command in ("overdrive_add_cli_test", "overdrive_add_story") else ""
            variable = re.search(r"\$\{(\w+)\}", name)
            for value in values.get(variable[1], []) if variable else [""]:
                names.add(prefix + (name.replace(variable[0], value) if variable else name))
    return names


def known_tests(root, build):
    shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, capture_output=True, text=True, check=True)
    environment = {name: value for name, value in os.environ.items() if name != "GTEST_FILTER"}
    names, cases = declared_tests(root), {}  # of each program
    for test in json.loads(shown.stdout)["tests"]:
        names.add(test["name"])
        words = test.get("command", [])
        program = next((word for word in words if word.endswith(("_test", "_tests"))), None)
        if not program or not Path(program).is_file():
            continue
        if program not in cases:
            listing = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, timeout=120,
                                     env=environment)
            cases[program] = list(gtest_cases(listing.stdout))
        # With the filter of this test, so that a case which nothing runs is not known.
        chosen = next((word.partition("=")[2] for word in words if word.startswith("--gtest_filter=")), "*")
        names.update(name for full, short in cases[program] if passes(full, chosen) for name in short)
    return names


def promises_without_test(root, tests):
    for page in PROMISES:
        rows = list(rows_of(root / page))
        if not rows:
            yield f"{page} has no row"
        for number, cells in rows:
            cited = re.findall(r"`([\w.]+)`", cells[-1])
            if not cited:
                yield f"{page}:{number}: no test is named for {cells[0]}"
            for name in cited:
                if name not in tests:
                    yield f"{page}:{number}: there is no test {name}"


def unknown_tests_of_the_host_contract(root, tests):
    for number, line in lines_of(root / "docs/host_contract.md"):
        for name in CODE.findall(line):
            if TEST.fullmatch(name) and not SOURCE.fullmatch(name) and not fnmatch.filter(tests, name):
                yield f"docs/host_contract.md:{number}: there is no test {name}"


def guides_that_name_tests(root, tests):
    for document in sorted((root / "docs/guide").glob("*.md")):
        for number, line in lines_of(document):
            for name in CODE.findall(line):
                if name in tests and "." in name:
                    yield f"{document.relative_to(root)}:{number}: the test {name} belongs into docs/contracts.md"


def errors_in(root, tests):
    return [*dead_links(root), *dead_paths(root), *unknown_names(root, tests), *unknown_units(root),
            *folders_without_readme(root), *undocumented_variables(root),
            *promises_without_test(root, tests), *unknown_tests_of_the_host_contract(root, tests),
            *guides_that_name_tests(root, tests)]


def main(root, build):
    tests = known_tests(root, build)
    errors = errors_in(root, tests)
    print(*errors, sep="\n", end="\n" if errors else "")
    words = sum(len(re.findall(r"\S*\w\S*", document.read_text())) for document in documents(root))
    print(f"check_docs: {len(documents(root))} documents, {words} words, {len(tests)} tests known, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(ROOT, Path(sys.argv[1])))
