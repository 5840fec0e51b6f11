#!/usr/bin/env python3
"""Checks that includes go one way:

    checkpoint -> hooks -> forward_ad -> engine -> engine/base
    replay -> engine/base

and that the outside sees doors only: checkpoint/ includes other folders through their doors, and a
public header (one that is installed) includes nothing that is private. Prints every line that breaks a
rule; exit status 1 when there is one.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Lowest first. A folder may include itself and what stands before it.
LAYERS = ["engine/base", "engine", "forward_ad", "hooks", "checkpoint", "replay"]
# The only layers that replay/ may include.
REPLAY_USES = {"engine/base", "replay"}
DOORS = {"engine/engine.h", "forward_ad/forward_ad.h", "hooks/hooks.h", "checkpoint/checkpoint.h"}
# Nothing in the library knows these.
OUTSIDE = ("test/", "bench/", "examples/", "tools/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def layer_of(path):
    """The layer of a path relative to the root, or None when it is not the library's."""
    return next((layer for layer in ("engine/base", *LAYERS[1:]) if path.startswith(layer + "/")), None)


def includes(file):
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1], match[2]


def public_headers(root):
    """What the CMake files list as public headers: those are installed."""
    found = set()
    for folder in sorted({layer.split("/")[0] for layer in LAYERS}):
        listing = root / folder / "CMakeLists.txt"
        text = listing.read_text() if listing.exists() else ""
        for listed in re.findall(r"overdrive_public_headers\((.*?)\)", text, re.S):
            for name in re.findall(r"[\w/.]+\.h\b", listed):
                found.add(name[3:] if name.startswith("../") else f"{folder}/{name}")
    return found


def breaches(root, path, public):
    layer = layer_of(path)
    for number, bracket, target in includes(root / path):
        where = f"{path}:{number}: "
        target_layer = layer_of(target)
        if bracket == '"' and target.startswith(OUTSIDE):
            yield where + f"the library includes {target}"
        if target_layer is None:
            if bracket == '"' and not target.startswith(OUTSIDE):
                yield where + f'"{target}" is not written from the root of the tree'
            continue
        if not (root / target).exists():
            yield where + f"{target} does not exist"
        if LAYERS.index(target_layer) > LAYERS.index(layer):
            yield where + f"{layer} includes upward: {target}"
        if layer == "replay" and target_layer not in REPLAY_USES:
            yield where + f"replay uses {target}"
        foreign = target_layer not in ("checkpoint", "engine/base")
        if layer == "checkpoint" and foreign and target not in DOORS:
            yield where + f"checkpoint uses {target}, which is not a door"
        if path in public and target not in public:
            yield where + f"a public header includes {target}, which is private"


def main(root):
    public = public_headers(root)
    errors = [f"{name}: listed as a public header, but does not exist"
              for name in sorted(public) if not (root / name).exists()]
    files = 0
    for folder in sorted({layer.split("/")[0] for layer in LAYERS}):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in (".h", ".cpp", ".cu"):
                files += 1
                errors += breaches(root, str(file.relative_to(root)), public)
    print(*errors, sep="\n", end="\n" if errors else "")
    print(f"check_layers: {files} files, {len(public)} public headers, {len(errors)} breaches")
    return 1 if errors or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
