#!/usr/bin/env python3
"""Writes the man page overdrive(1) from the program's own help, so that every command and option is in it.

    tools/make_man.py PROGRAM PAGE

The build runs it after the program is linked.
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD = """.SH NAME
overdrive \\- train, compare and measure LibTorch models on stock's autograd engine and on Overdrive
.SH SYNOPSIS
.B overdrive
.RI [ OPTIONS ]
.I COMMAND
.RI [ ARGUMENTS ]
.SH DESCRIPTION
Overdrive replaces the autograd engine of a LibTorch program and computes the same gradients, bit for bit.
The program trains models on both engines, compares every bit, and measures time and memory.
"""
TAIL = """.SH FINDING LIBTORCH
The program and the library have no path to LibTorch.
The program finds LibTorch's libraries by
.B LD_LIBRARY_PATH
or by a line in a file of
.IR /etc/ld.so.conf.d .
Both name the folder with
.IR libtorch_cpu.so .
A program that links the library brings its own LibTorch.
The installed library works with one minor version of LibTorch;
.B "overdrive \\-\\-version"
names this version.
.SH FILES
.TP
.I lib/liboverdrive.so
the library
.TP
.I lib/liboverdrive_autoload.so
the preload library:
.B LD_PRELOAD=liboverdrive_autoload.so PROGRAM
.TP
.I lib/cmake/Overdrive
the package for
.B find_package(Overdrive)
.TP
.I share/overdrive/docs
the guides
.TP
.I share/overdrive/overdrive.spdx.json
the files, their checksums, and the licences of all parts
"""


def said(program, *arguments):
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def escaped(text):
    """Text for troff: a hyphen is a minus, and no line begins with a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def sections(text):
    """The help of a command: its first lines under "", then each block under its title."""
    found, title = {"": []}, ""
    for line in text.splitlines():
        match = re.fullmatch(r"(\w+):", line)
        if match:
            title = match[1]
            found[title] = []
        elif line.strip() and not line.startswith(" ") and title:
            title = "footer"
            found.setdefault(title, []).append(line)
        elif line.strip():
            found[title].append(line)
    return found


def entries(lines):
    """(name, meaning) of "  --steps INT    Training steps"; a long name has its meaning on the next line."""
    found = []
    for line in lines:
        match = re.fullmatch(r"  (\S.*?)(?:  +(\S.*))?", line)
        if match:
            found.append([match[1], match[2] or ""])
        else:
            found[-1][1] = (found[-1][1] + " " + line.strip()).strip()
    return found


def commands(program):
    """{("bench", "engine"): its help}, from `overdrive help --all`."""
    every = re.split(r"^# overdrive ?(.*)\n", said(program, "help", "--all"), flags=re.M)
    return {tuple(name.split()): text for name, text in zip(every[1::2], every[2::2])}


def described(command, help_text):
    parts = sections(help_text)
    text = f".SS {escaped('overdrive ' + ' '.join(command))}\n"
    text += escaped("\n".join(line for line in parts[""] if not line.startswith("Usage:"))) + "\n"
    text += "".join(f".PP\n{escaped(line)}\n" for line in parts[""] if line.startswith("Usage:"))
    for block in ("Positionals", "Options"):
        for name, meaning in entries(parts.get(block, [])):
            text += f".TP\n.B {escaped(name)}\n{escaped(meaning)}\n"
    return text + "".join(f".PP\n{escaped(line)}\n" for line in parts.get("footer", []))


def environment(program):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "env.json"
        said(program, "env", "--quiet", "--json", str(file))
        variables = json.loads(file.read_text())["variables"]
    rows = ((v["name"], f"{v['allowed']}: {v['meaning']}") for v in variables)
    return ".SH ENVIRONMENT\n" + "".join(f".TP\n.B {escaped(name)}\n{escaped(meaning)}\n" for name, meaning in rows)


def page(program):
    version = re.match(r"overdrive ([\w.]+)", said(program, "--version"))[1]
    help_texts = commands(program)
    top = sections(help_texts.pop(()))
    # Left-aligned: rows of long names cannot be spread over a line.
    text = f'.TH OVERDRIVE 1 "" "overdrive {version}" "User Commands"\n.ad l\n' + HEAD + ".SH OPTIONS\n"
    for name, meaning in entries(top["Options"]):
        text += f".TP\n.B {escaped(name)}\n{escaped(meaning)}\n"
    text += ".SH COMMANDS\n" + "".join(described(*command) for command in help_texts.items())
    status = re.search(r"Exit status: (.*)", " ".join(top["footer"]))[1]
    return text + f".SH EXIT STATUS\n{escaped(status)}\n" + environment(program) + TAIL


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Path(sys.argv[2]).parent.mkdir(parents=True, exist_ok=True)
    Path(sys.argv[2]).write_text(page(sys.argv[1]))
