"""Runs the recipes in all their modes, in turn, and writes the table of docs/recipes/README.md.

    python examples/recipes/run.py [--rounds 2] [--only NAME ...] [--no-compile] [--write]
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
PAGE = ROOT / "docs" / "recipes" / "README.md"
PROGRAMS = ROOT / "build" / "bin"
HELPERS = {"recipe", "run"}
LONGEST = 600  # seconds


def run(path, mode):
    """What the run printed last; where it failed, {} with the last line of its error. A program of C++ was built before."""
    paths = [str(Path(folder).resolve()) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    if path.stem.startswith("timm"):  # see tools/setup.sh: torchvision lies beside the environment
        paths.append(str(ROOT / ".deps" / "recipes" / "vision"))
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths), OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder:  # some libraries write logs into the folder they run in
        script = [str(Path(sys.executable).absolute()), "-B", str(path)]
        program = [str(PROGRAMS / f"recipe_{path.stem}")]
        command = [*(program if is_program(path) else script), "--mode", mode]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=LONGEST, check=False)
    if result.returncode:
        error = (result.stderr.strip().splitlines() or [f"status {result.returncode}"])[-1]
        print(f"{name_of(path)} {mode} failed: {error}", file=sys.stderr)
        return {"error": error}
    return json.loads(result.stdout.strip().splitlines()[-1])


def is_program(path):
    return path.suffix == ".cpp"


def name_of(path):
    return f"cpp_{path.stem}" if is_program(path) else path.stem


def best(runs):
    """The smallest times of several runs: what another process takes of the machine only adds to them."""
    digests = {one["digest"] for one in runs}
    return {"digest": digests.pop() if len(digests) == 1 else "differs from itself",
            **{key: min(one[key] for one in runs) for key in ("step", "part", "whole", "warm_up")}}


def measure(path, rounds, compiled):
    text = path.read_text()
    modes = ["stock", "switched", "captured"]
    runs = {mode: [] for mode in modes}
    for number in range(rounds):
        for mode in modes if number % 2 == 0 else modes[::-1]:
            if "error" not in (one := run(path, mode)):
                runs[mode].append(one)
    refused = ""
    if compiled and "run.compiled" in text:
        one = run(path, "compiled")
        if "error" in one:
            refused = one["error"]
        else:
            runs["compiled"] = [one]
    mark = "// overdrive\n" if is_program(path) else "# overdrive\n"
    return {"name": name_of(path), "lines": text.count(mark), "refused": refused,
            **{mode: best(those) for mode, those in runs.items() if those}}


def row(made):
    stock = made["stock"]

    def of_stock(mode, key):
        return f"{made[mode][key] / stock[key]:.2f}" if mode in made else "–"

    compiled = made.get("compiled")
    bits = "equal" if compiled and compiled["digest"] == stock["digest"] else "others"
    cells = [f"`{made['name']}`", str(made["lines"]), of_stock("switched", "step"),
             f"**{of_stock('captured', 'step')}**", of_stock("captured", "part"), of_stock("captured", "whole"),
             f"{made['captured']['warm_up']:.1f}" if "captured" in made else "–",
             f"{of_stock('compiled', 'step')}, {bits}, {compiled['warm_up']:.0f} s" if compiled else
             "an error" if made["refused"] else "–"]
    return "| " + " | ".join(cells) + " |"


def table(rows):
    head = ["recipe", "lines", "switched: step", "captured: step", "training part", "whole run", "warm-up, s",
            "`torch.compile`: step, bits, warm-up"]
    return "\n".join(["| " + " | ".join(head) + " |", "| --- " * len(head) + "|", *map(row, rows)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--write", action="store_true", help="into docs/recipes/README.md")
    parser.add_argument("--table", action="store_true", help="measure nothing, write the table of earlier runs")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "recipes.json")
    arguments = parser.parse_args()
    recipes = {name_of(path): path for folder in (FOLDER / "cpp", FOLDER) for path in sorted([*folder.glob("*.cpp"), *folder.glob("*.py")])
               if path.stem not in HELPERS}
    names = [] if arguments.table else [name for name in recipes if not arguments.only or name in arguments.only]
    known = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
    for name in names:
        made = measure(recipes[name], arguments.rounds, not arguments.no_compile)
        if "stock" in made:
            if arguments.no_compile:  # what an earlier run measured
                made.update({key: known[name][key] for key in ("compiled", "refused") if key in known.get(name, {})})
            known[name] = made
            print(row(made), flush=True)
            arguments.json.write_text(json.dumps(known, indent=1))
    differing = [made["name"] for made in known.values()
                 if any(made[mode]["digest"] != made["stock"]["digest"] for mode in ("switched", "captured") if mode in made)]
    if differing:
        raise SystemExit(f"other bits than stock's: {', '.join(differing)}")
    if arguments.write or arguments.table:
        text = PAGE.read_text()
        rows = [known[name] for name in sorted(known) if name in recipes]
        PAGE.write_text(re.sub(r"(<!-- recipes -->\n).*?(<!-- end of recipes -->)",
                               lambda found: f"{found[1]}\n{table(rows)}\n{found[2]}", text, flags=re.S))


if __name__ == "__main__":
    main()
