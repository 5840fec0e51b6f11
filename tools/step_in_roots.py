"""Trains the models of test/python/step_file_test.py in other Linux roots, from step files and without Python, and compares
the bits of 300 steps with those of 300 eager steps here:

    python tools/step_in_roots.py ROOT...      # by root; a ROOT is a folder or a .tar.gz, as debootstrap makes them

Needs `make test`'s build of overdrive_test_step_program and liboverdrive_step.so, and the PyTorch of that build. Each run has
namespaces of its own, in which the root gets /proc, /sys, /dev, the program and LibTorch's libraries.
Exit status: 0 all bits are equal, 1 some are not, 77 this machine cannot enter a root.
"""
from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

_TREE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_TREE / "test" / "python"), str(_TREE / "build" / "python")]

# $1 root, $2 the work folder, $3 LibTorch's libraries; the rest is the program with its arguments.
_INSIDE = """set -e
root=$1 work=$2 torch=$3
shift 3
mkdir -p "$root/step" "$root/step-torch" "$root/proc" "$root/sys" "$root/dev"
mount --bind "$work" "$root/step"
mount --bind -o ro "$torch" "$root/step-torch"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
exec chroot "$root" /usr/bin/env -i LD_LIBRARY_PATH=/step:/step-torch OMP_NUM_THREADS=1 "$@"
"""


def can_enter() -> bool:
    return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode == 0


def name_of(root: Path) -> str:
    for line in (root / "etc" / "os-release").read_text().splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return root.name


def train_in(root: Path, work: Path, case, steps: int) -> list[float]:
    """Milliseconds to the first replay and of a step; the results and the state lie in the work folder."""
    functions = [part for name in case.functions for part in (name, case.inputs[name])]
    libraries = Path(torch.__file__).parent / "lib"
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", _INSIDE, "sh", root, work, libraries, "/step/program",
                           "/step/step.od", "/step/state.pt", "/step/results", str(steps), *functions],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name_of(root)}: {done.stderr}")
    return [float(number) for number in done.stdout.split()]


def digest(results: bytes, state: dict[str, torch.Tensor]) -> str:
    """Of the results of every step, and of what they leave."""
    whole = hashlib.sha256(results)
    for name in sorted(state):
        whole.update(name.encode() + bytes_of(state[name]))
    return whole.hexdigest()[:16]


def bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().flatten().view(torch.uint8).tolist())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("roots", nargs="+", type=Path, metavar="ROOT")
    parser.add_argument("--build", type=Path, default=_TREE / "build")
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    if not can_enter():
        print("step in roots: only root can enter a root, where namespaces are allowed", file=sys.stderr)
        return 77
    import step_file_test as tests

    tests.STEPS = given.steps
    torch.set_num_threads(1)
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        work.mkdir()
        shutil.copy(given.build / "bin" / "overdrive_test_step_program", work / "program")
        shutil.copy(given.build / "lib" / "liboverdrive_step.so", work)
        roots = [unpacked(root, Path(folder)) for root in given.roots]
        print(f"| model | digest of {given.steps} eager steps | " + " | ".join(name_of(root) for root in roots) + " |")
        print("|---|---|" + "---|" * len(roots))
        for make in tests.CASES:
            torch.manual_seed(0)
            case = make()
            tests.saved(case, work / "step.od")
            there = [(train_in(root, work, case, given.steps), *outcome(work)) for root in roots]
            results: list[torch.Tensor] = []
            tests.eagerly(case, results)
            here = tests.state_of(case)
            columns = []
            for (first, step), numbers, state in there:
                shared = {name: state[name] for name in here if name in state}
                same = digest(numbers, shared) == digest(bytes_of(torch.stack(results)), {name: here[name] for name in shared})
                different += not same
                columns.append(f"{'equal' if same else 'DIFFERENT'}, {first:.1f} ms to the first replay, {1000 * step:.0f} us a step")
            print(f"| {make.__name__} | {digest(bytes_of(torch.stack(results)), here)} | " + " | ".join(columns) + " |", flush=True)
    return 1 if different else 0


def outcome(work: Path) -> tuple[bytes, dict[str, torch.Tensor]]:
    return (work / "results").read_bytes(), torch.load(work / "state.pt", weights_only=True)


def unpacked(root: Path, folder: Path) -> Path:
    if root.is_dir():
        return root.resolve()
    place = folder / f"root-{root.name.partition('.')[0]}"
    place.mkdir()
    subprocess.run(["tar", "-xzf", root, "-C", place], check=True)
    return place


if __name__ == "__main__":
    sys.exit(main())
