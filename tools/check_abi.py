#!/usr/bin/env python3
"""Compares the names that the library exports with the list in docs/abi.txt.

    tools/check_abi.py BUILD [--write]

BUILD is a build folder. A name that is gone, new or without a version is an error, and so is a promised name that no
installed header declares. --write writes the list anew: that is right for a new name, and for a removed one only with
a new version (docs/abi.md). Parameters are compared only with the LibTorch of the list: their types are LibTorch's.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "docs/abi.txt"
HEAD = """# Names that liboverdrive.so promises (docs/abi.md), one a line. Written by tools/check_abi.py.
# LibTorch {torch}
"""


def exported(library):
    """(kind, name, version) of every name that the library defines for others."""
    shown = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library], capture_output=True, text=True,
                           check=True).stdout
    rows = [line.split()[-2:] for line in shown.splitlines()]
    parts = [(kind, *re.fullmatch(r"([^@]*)@*(.*)", name).groups()) for kind, name in rows if kind != "A"]
    plain = subprocess.run(["c++filt"], input="\n".join(name for _, name, _ in parts), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return [(kind, name, version) for (kind, _, version), name in zip(parts, plain)]


def promised(names):
    """The functions and types that a program may refer to. Inline functions (W) come and go with the optimiser."""
    return {name for kind, name, version in names if version != "OVERDRIVE_PRIVATE" and kind in "TDBRV"
            and not name.startswith("typeinfo name for ")}


def without_parameters(name):
    return re.sub(r"(\[abi:\w+\])?\(.*", "", name)


def undeclared(names, headers):
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in sorted(headers.rglob("*.h")))))
    for name in sorted(names):
        last = without_parameters(name).rsplit("::", 1)[-1].removeprefix("~")
        operator = re.match(r"operator\b", last)
        if not operator and last not in words:
            yield name


def torch_minor(build):
    text = (build / "cmake/OverdriveConfig.cmake").read_text()
    return re.search(r'Overdrive_TORCH_VERSION "([\d.]+)"', text)[1]


def faults(build, listing):
    names = exported(build / "lib/liboverdrive.so")
    listed = {line for line in listing.splitlines() if line and not line.startswith("#")}
    ours = promised(names)
    if f"# LibTorch {torch_minor(build)}\n" not in listing:
        ours, listed = {without_parameters(name) for name in ours}, {without_parameters(name) for name in listed}
    for _, name, version in names:
        if not version.startswith("OVERDRIVE_"):
            yield f"exported without a version: {name}"
    for name in sorted(listed - ours):
        yield f"gone, though programs may use it: {name}"
    for name in sorted(ours - listed):
        yield f"new, and not in docs/abi.txt (--write adds it): {name}"
    for name in undeclared(ours, build / "include/overdrive"):
        yield f"promised, but no installed header declares it; cmake/overdrive.map.in can make it private: {name}"


def main(build, write=False):
    if write:
        names = sorted(promised(exported(build / "lib/liboverdrive.so")))
        LIST.write_text(HEAD.format(torch=torch_minor(build)) + "\n".join(names) + "\n")
    found = list(faults(build, LIST.read_text()))
    print("\n".join(found) or f"check_abi: {LIST.name} and the library have the same names")
    return 1 if found else 0


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    sys.exit(main(Path(arguments[0]), "--write" in sys.argv))
