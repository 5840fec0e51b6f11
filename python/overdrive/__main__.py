"""python -m overdrive [compare [--runs N]] (script.py | -m module | -c code) arguments...

Runs a Python program on Overdrive, or on both engines. The program is started as Python would start it, with the
preload library in its environment; processes that it starts have it too.
"""
from __future__ import annotations

import difflib
import os
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from overdrive._library import folder


def preload_library() -> str:
    return os.path.join(folder(), "liboverdrive_autoload.so")


def preloading(library: str, others: str = "") -> dict[str, str]:
    """The variables under which a program preloads the library, before the others. The loader takes blanks and colons for
    the end of a name there; a folder with a blank goes to the folders that it searches."""
    place, name = os.path.split(library)
    if ":" in library:
        sys.exit(f"overdrive: {library} cannot be preloaded, because LD_PRELOAD has no way to write a colon; install the package "
                 "into a folder without one")
    variables = {}
    if " " in library:
        variables["LD_LIBRARY_PATH"] = ":".join([place, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        library = name
    variables["LD_PRELOAD"] = ":".join([library, *filter(None, [others])])
    return variables


def environment(on_overdrive: bool, comparing: bool) -> dict[str, str]:
    variables = dict(os.environ)
    variables["OVERDRIVE"] = "1" if on_overdrive else "0"
    if comparing:
        variables.pop("OVERDRIVE_VERBOSE", None)  # its lines would be a difference
    if on_overdrive or not comparing:  # a program that is switched off has its variables looked at, too
        variables.update(preloading(preload_library(), os.environ.get("LD_PRELOAD", "")))
    return variables


def interpreter() -> list[str]:
    """Python as it was called, with options such as -O."""
    return [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]


class Run(NamedTuple):
    status: int
    out: str
    err: str
    wall: float
    cpu: float
    peak_bytes: int


def run(program: list[str], on_overdrive: bool) -> Run:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        child = subprocess.Popen([*interpreter(), *program], stdout=out, stderr=err, env=environment(on_overdrive, comparing=True))
        try:
            _, wait_status, usage = os.wait4(child.pid, 0)
        except BaseException:
            child.kill()
            child.wait()
            raise
        child.returncode = os.waitstatus_to_exitcode(wait_status)
        wall = time.perf_counter() - begin
        for file in (out, err):
            file.seek(0)
        texts = [file.read().decode(errors="replace") for file in (out, err)]
        return Run(child.returncode, texts[0], texts[1], wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def run_and_say(program: list[str], on_overdrive: bool, which: str) -> Run:
    print(f"overdrive: {which} on {'Overdrive' if on_overdrive else 'stock'} ...", file=sys.stderr, flush=True)
    return run(program, on_overdrive)


def show_difference(what: str, stock: str, ours: str, stock_again: str) -> bool:
    if stock == ours:
        print(f"  {what}: equal ({len(stock.splitlines())} lines)")
        return False
    also = "" if stock == stock_again else ", and differs between two runs on stock too, so the engine need not be the reason"
    print(f"  {what} DIFFERS{also}:")
    lines = difflib.unified_diff(stock.splitlines(), ours.splitlines(), "stock", "overdrive", lineterm="", n=1)
    for number, line in enumerate(lines):
        if number == 20:
            print("    ...")
            break
        print("    " + line)
    return True


def show_failure(stock: Run) -> None:
    print(f"  exit status: {stock.status} on both. The last lines of the error output:")
    for line in stock.err.splitlines()[-5:]:
        print("    " + line)


def compare(program: list[str], runs: int) -> int:
    results: dict[bool, list[Run]] = {False: [], True: []}
    for number in range(runs):
        for on_overdrive in (False, True) if number % 2 == 0 else (True, False):
            results[on_overdrive].append(run_and_say(program, on_overdrive, f"run {number + 1} of {runs}"))
    stock, ours = results[False][0], results[True][0]
    texts = (stock.out, stock.err)
    # A program with random output, or one that prints times, differs from itself.
    others = results[False][1:]
    if texts != (ours.out, ours.err) and not others:
        others = [run_and_say(program, False, "the outputs differ: once more")]
    again = next((r for r in others if (r.out, r.err) != texts), stock)
    print(f"{' '.join(program)}: {runs} run{'s' if runs > 1 else ''} on each engine")
    differs = show_difference("output", stock.out, ours.out, again.out)
    differs |= show_difference("error output", stock.err, ours.err, again.err)
    if stock.status != ours.status:
        print(f"  exit status DIFFERS: {stock.status} on stock, {ours.status} on Overdrive")
        differs = True
    elif stock.status != 0:
        show_failure(stock)
    print("               on stock   on Overdrive    ratio   (best of the runs)")
    figures = {"wall time": ("s", [r.wall for r in results[False]], [r.wall for r in results[True]]),
               "CPU time": ("s", [r.cpu for r in results[False]], [r.cpu for r in results[True]]),
               "peak memory": ("MB", [r.peak_bytes / 1e6 for r in results[False]], [r.peak_bytes / 1e6 for r in results[True]])}
    for name, (unit, on_stock, on_ours) in figures.items():
        a, b = min(on_stock), min(on_ours)
        print(f"  {name:11} {a:10.2f} {unit:2} {b:11.2f} {unit:2} {b / a:8.3f}")
    return 1 if differs or stock.status != 0 else 0


def usage(problem: str = "") -> int:
    print(__doc__.strip() + (f"\n\noverdrive: {problem}" if problem else ""), file=sys.stderr)
    return 2


def main(arguments: list[str]) -> int:
    # By hand: what follows belongs to the program, options of Python's included.
    program, runs = list(arguments), 1
    if program and program[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0
    comparing = bool(program) and program[0] == "compare"
    if comparing:
        del program[0]
        if program and program[0].partition("=")[0] == "--runs":
            value = program.pop(0).partition("=")[2] or (program.pop(0) if program else "")
            if not value.isdigit() or int(value) < 1:
                return usage(f'--runs is "{value}", but must be a whole number from 1')
            runs = int(value)
    if not program:
        return usage("no program was named")
    if comparing and program[0].startswith("--"):
        return usage(f"compare has no option {program[0]}")
    if os.environ.get("OVERDRIVE", "") not in ("", "0", "1"):
        print(f'overdrive: OVERDRIVE is "{os.environ["OVERDRIVE"]}", but must be one of 0|1.', file=sys.stderr)
        return 2
    try:
        if comparing:
            return compare(program, runs)
        sys.stdout.flush()
        switched_off = os.environ.get("OVERDRIVE") == "0"
        if switched_off:
            print("overdrive: OVERDRIVE is 0, so the program runs on stock", file=sys.stderr, flush=True)
        os.execve(sys.executable, [*interpreter(), *program], environment(not switched_off, comparing=False))
    except ImportError as error:
        print(f"overdrive: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("overdrive: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
