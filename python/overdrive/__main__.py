"""python -m overdrive [compare [--runs N]] [--optimizers] (script.py | -m module | -c code) arguments...

Runs a Python program on Overdrive, or on both engines. The program is started as Python would start it, with the
preload library in its environment; processes that it starts have it too. --optimizers captures every optimizer of
torch.optim that the program makes; compare has the program with them as a third column.
"""
from __future__ import annotations

import difflib
import os
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from overdrive.native.library import folder


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


class Way(NamedTuple):
    """How a program is run."""

    name: str
    on_overdrive: bool
    optimizers: bool = False


STOCK, OURS, CAPTURED = Way("stock", False), Way("Overdrive", True), Way("+ optimizers", True, True)


def environment(way: Way, comparing: bool) -> dict[str, str]:
    on_overdrive = way.on_overdrive
    variables = dict(os.environ)
    variables["OVERDRIVE"] = "1" if on_overdrive else "0"
    if way.optimizers:  # its sitecustomize.py
        start = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_start")
        variables["PYTHONPATH"] = os.pathsep.join([start, *filter(None, [os.environ.get("PYTHONPATH")])])
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


def run(program: list[str], way: Way) -> Run:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        child = subprocess.Popen([*interpreter(), *program], stdout=out, stderr=err, env=environment(way, comparing=True))
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


def run_and_say(program: list[str], way: Way, which: str) -> Run:
    on = {STOCK: "on stock", OURS: "on Overdrive", CAPTURED: "on Overdrive, with captured optimizers"}[way]
    print(f"overdrive: {which} {on} ...", file=sys.stderr, flush=True)
    return run(program, way)


def show_difference(what: str, stock: str, ours: str, stock_again: str, name: str) -> bool:
    if stock == ours:
        print(f"  {what}: equal ({len(stock.splitlines())} lines)")
        return False
    also = "" if stock == stock_again else ", and differs between two runs on stock too, so the engine need not be the reason"
    print(f"  {what} DIFFERS{also}:")
    lines = difflib.unified_diff(stock.splitlines(), ours.splitlines(), "stock", name, lineterm="", n=1)
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


def compare(program: list[str], runs: int, optimizers: bool) -> int:
    ways = [STOCK, OURS, *([CAPTURED] if optimizers else [])]
    results: dict[Way, list[Run]] = {way: [] for way in ways}
    for number in range(runs):
        for way in ways if number % 2 == 0 else reversed(ways):
            results[way].append(run_and_say(program, way, f"run {number + 1} of {runs}"))
    stock = results[STOCK][0]
    texts = (stock.out, stock.err)
    # A program with random output, or one that prints times, differs from itself.
    others = results[STOCK][1:]
    if any((results[way][0].out, results[way][0].err) != texts for way in ways) and not others:
        others = [run_and_say(program, STOCK, "the outputs differ: once more")]
    again = next((r for r in others if (r.out, r.err) != texts), stock)
    print(f"{' '.join(program)}: {runs} run{'s' if runs > 1 else ''} on each {'engine' if not optimizers else 'of the three'}")
    differs = False
    for way in ways[1:]:
        ours = results[way][0]
        begin = "" if way is OURS else f"{way.name}: "
        differs |= show_difference(f"{begin}output", stock.out, ours.out, again.out, way.name)
        differs |= show_difference(f"{begin}error output", stock.err, ours.err, again.err, way.name)
        if stock.status != ours.status:
            print(f"  {begin}exit status DIFFERS: {stock.status} on stock, {ours.status} on Overdrive")
            differs = True
    if not differs and stock.status != 0:
        show_failure(stock)
    print("               on stock" + "".join(f"   {'on ' * (way is OURS)}{way.name}    ratio" for way in ways[1:]) + "   (best of the runs)")
    for name, unit, figure in (("wall time", "s", lambda r: r.wall), ("CPU time", "s", lambda r: r.cpu),
                               ("peak memory", "MB", lambda r: r.peak_bytes / 1e6)):
        best = {way: min(map(figure, results[way])) for way in ways}
        line = f"  {name:11} {best[STOCK]:10.2f} {unit:2}"
        for way in ways[1:]:
            line += f" {best[way]:11.2f} {unit:2} {best[way] / best[STOCK]:8.3f}"
        print(line)
    return 1 if differs or stock.status != 0 else 0


def usage(problem: str = "") -> int:
    print(__doc__.strip() + (f"\n\noverdrive: {problem}" if problem else ""), file=sys.stderr)
    return 2


def main(arguments: list[str]) -> int:
    # By hand: what follows belongs to the program, options of Python's included.
    program, runs, optimizers = list(arguments), 1, False
    if program and program[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0
    comparing = bool(program) and program[0] == "compare"
    if comparing:
        del program[0]
    while program:
        option, _, value = program[0].partition("=")
        if program[0] == "--optimizers":
            optimizers = True
        elif option == "--runs" and comparing:
            value = value or (program.pop(1) if len(program) > 1 else "")
            if not value.isdigit() or int(value) < 1:
                return usage(f'--runs is "{value}", but must be a whole number from 1')
            runs = int(value)
        else:
            break
        del program[0]
    if not program:
        return usage("no program was named")
    if comparing and program[0].startswith("--"):
        return usage(f"compare has no option {program[0]}")
    if optimizers and (sys.flags.ignore_environment or sys.flags.no_site):
        return usage("--optimizers needs PYTHONPATH and site, which Python's options -E, -I and -S turn off")
    if optimizers and program[0].startswith("-") and program[0][:2] not in ("-c", "-m"):
        return usage(f"--optimizers is followed by the program; give {program[0]} to the Python that runs overdrive")
    if os.environ.get("OVERDRIVE", "") not in ("", "0", "1"):
        print(f'overdrive: OVERDRIVE is "{os.environ["OVERDRIVE"]}", but must be one of 0|1.', file=sys.stderr)
        return 2
    try:
        if comparing:
            return compare(program, runs, optimizers)
        sys.stdout.flush()
        way = CAPTURED if optimizers else OURS
        if os.environ.get("OVERDRIVE") == "0":
            print("overdrive: OVERDRIVE is 0, so the program runs on stock", file=sys.stderr, flush=True)
            way = STOCK
        os.execve(sys.executable, [*interpreter(), *program], environment(way, comparing=False))
    except ImportError as error:
        print(f"overdrive: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("overdrive: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
