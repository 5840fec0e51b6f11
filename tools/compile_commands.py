"""What a build folder's compile_commands.json says of our own sources. Shared by the checks in this folder."""
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def sources_of(path):
    """The file itself, or the sources that a unity file puts together."""
    return map(Path, INCLUDE.findall(path.read_text())) if path.name.startswith("unity_") else [path]


def flags_of(entry):
    """Definitions, include folders, language and instruction set."""
    flags, take_next = [], False
    for word in entry["command"].split():
        if take_next or word.startswith(("-D", "-I", "-std=", "-m")) or word == "-isystem":
            flags.append(word.replace('\\"', '"'))
            take_next = word == "-isystem"
    return flags


def header_of(entry):
    """The precompiled header, or None."""
    words = entry["command"].split()
    return next((after for word, after in zip(words, words[1:]) if word == "-include"), None)


def entries(build):
    return json.loads((build / "compile_commands.json").read_text())


def sources(build):
    """Name, relative to the root, -> (flags, precompiled header), for each source of ours that the build folder compiles."""
    found = {}
    for entry in entries(build):
        for path in sources_of(Path(entry["file"])):
            if path.is_relative_to(ROOT) and not path.is_relative_to(build):
                found.setdefault(str(path.relative_to(ROOT)), (flags_of(entry), header_of(entry)))
    return found
