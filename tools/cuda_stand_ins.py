#!/usr/bin/env python3
"""Makes stand-ins for the libraries that a CUDA build of PyTorch needs and that are not there.

    tools/cuda_stand_ins.py COMPILER TORCH_LIB FOLDER [LIBRARY_FOLDER...]

The package index has CUDA builds of PyTorch, whose libraries need gigabytes of others before they load. A machine without
a GPU calls none of them. A stand-in has the name, the versions and the functions that
TORCH_LIB asks for; each function returns 1, which is an error in CUDA. Libraries of the folders named, and the compiler's,
get none.
"""
import re
import subprocess
import sys
from pathlib import Path

RETURN_ONE = {"aarch64": "mov w0, #1\nret\n", "x86_64": "mov $1, %eax\nret\n"}


def tool(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def of_compiler(compiler, name):
    """The library of that name among the compiler's own, in a list; else none."""
    path = Path(tool(compiler, f"-print-file-name={name}").strip())
    return [path] if path.is_absolute() else []


def main():
    compiler, torch_lib, folder, *others = sys.argv[1:]
    tools = compiler.removesuffix("g++").removesuffix("gcc")
    libraries = sorted(Path(torch_lib).glob("*.so*"))
    present = libraries + [file for other in others for file in sorted(Path(other).glob("*.so*"))]

    needed, versions = set(), {}
    for library in libraries:
        file = ""
        for line in tool(tools + "objdump", "-p", str(library)).splitlines():
            if match := re.match(r"\s+NEEDED\s+(\S+)", line):
                needed.add(match[1])
            elif match := re.match(r"\s+required from (\S+):", line):
                file = match[1]
            elif file and (match := re.match(r"\s+0x\w+ 0x\w+ \d+ (\S+)", line)):
                versions.setdefault(file, set()).add(match[1])
    for name in needed - {file.name for file in present}:
        present += of_compiler(compiler, name)
    missing = sorted(needed - {file.name for file in present})

    def names(wanted, files):
        text = tool(tools + "nm", "-D", "--without-symbol-versions", *map(str, files))
        return {name for kind, name in re.findall(r" (\w) (\S+)$", text, re.MULTILINE) if (kind == "U") == wanted}

    # Python's functions are in its program.
    functions = sorted(name for name in names(True, libraries) - names(False, present) if not re.match("_?Py", name))
    source = ".text\n" + "".join(f".globl {name}\n.type {name}, %function\n{name}:\n" for name in functions)
    machine = tool(compiler, "-dumpmachine")
    source += RETURN_ONE[machine.split("-")[0]]

    Path(folder).mkdir(parents=True, exist_ok=True)
    script = Path(folder, "versions.map")
    for library in missing:
        # glibc 2.41 loads no library whose stack may hold code, as that of a source in assembler may where nobody says no.
        # The first version has the functions; a later one is only asked for by name.
        first, *rest = sorted(versions.get(library, {library}))
        script.write_text(f"{first} {{ *; }};\n" + "".join(f"{version} {{ }};\n" for version in rest))
        subprocess.run([compiler, "-shared", "-nostdlib", "-Wl,-z,noexecstack", f"-Wl,-soname,{library}", f"-Wl,--version-script={script}",
                        "-x", "assembler", "-", "-o", f"{folder}/{library}"], input=source, text=True, check=True)
    script.unlink(missing_ok=True)
    print(f"stand-ins for {len(missing)} libraries and {len(functions)} functions of CUDA in {folder}")


main()
