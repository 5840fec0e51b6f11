#!/usr/bin/env python3
"""Makes stand-ins for the libraries that a CUDA build of PyTorch needs and that are not there.

    tools/cuda_stand_ins.py COMPILER TORCH_LIB FOLDER [LIBRARY_FOLDER...]

PyTorch comes from the package index as a CUDA build. Its libraries need gigabytes of others before they
load, and a machine without a GPU calls none of them. A stand-in has the name, the versions and the functions that
TORCH_LIB asks for; each function returns 1, which is an error in CUDA.
"""
import re
import subprocess
import sys
from pathlib import Path


def tool(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


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
    missing = sorted(needed - {file.name for file in present})

    def names(wanted, files):
        text = tool(tools + "nm", "-D", "--without-symbol-versions", *map(str, files))
        return {name for kind, name in re.findall(r" (\w) (\S+)$", text, re.MULTILINE) if (kind == "U") == wanted}

    # Python's functions are in its program.
    functions = sorted(name for name in names(True, libraries) - names(False, present) if not re.match("_?Py", name))
    source = ".text\n" + "".join(f".globl {name}\n.type {name}, %function\n{name}:\n" for name in functions)
    source += "mov w0, #1\nret\n" if "aarch64" in compiler else "mov $1, %eax\nret\n"
    source += '.section .note.GNU-stack, "", %progbits\n' if "aarch64" in compiler else '.section .note.GNU-stack, "", @progbits\n'

    Path(folder).mkdir(parents=True, exist_ok=True)
    script = Path(folder, "versions.map")
    for library in missing:
        # The first version has the functions; a later one is only asked for by name.
        first, *rest = sorted(versions.get(library, {library}))
        script.write_text(f"{first} {{ *; }};\n" + "".join(f"{version} {{ }};\n" for version in rest))
        subprocess.run([compiler, "-shared", "-nostdlib", f"-Wl,-soname,{library}", f"-Wl,--version-script={script}", "-x",
                        "assembler", "-", "-o", f"{folder}/{library}"], input=source, text=True, check=True)
    script.unlink(missing_ok=True)
    print(f"stand-ins for {len(missing)} libraries and {len(functions)} functions of CUDA in {folder}")


main()
