"""`overdrive bench lanes` beside JAX with one thread and with two, in turn: the best of each model, as a table. See bench/README.md.

    .deps/peers/bin/python bench/peers/beside_lanes.py build/bin/overdrive [--rounds 3] [--json FILE] [MODEL ...]
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

MODELS = ["ensemble 8x64", "twin critics", "lstm 64", "lstm 64, two", "wgan-gp", "transformer 64", "mlp 3x512", "mlp 3x64"]
HERE = os.path.dirname(os.path.abspath(__file__))


def rows_of(command, folder):
    path = os.path.join(folder, "rows.json")
    subprocess.run([*command, "--json", path], check=True, stdout=subprocess.DEVNULL)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def measured(program, model, folder):
    """Microseconds of the best call of each side, and the control of our side."""
    jax = [rows_of([sys.executable, os.path.join(HERE, "jax_steps.py"), "--threads", str(threads), "--seconds", "2", model],
                   folder)["rows"][0]["best_us"] for threads in (1, 2)]
    ours = rows_of([program, "bench", "lanes", "--rounds", "8", "--type", model], folder)["rows"][0]
    return {"one": ours["one_us"], "lanes": ours["lanes_us"], "jax_1": jax[0], "jax_2": jax[1], "control": ours["control"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    asked = parser.parse_args()
    best = {}
    print("| model | one lane, µs | two lanes | JAX, one thread | two threads | two lanes, of JAX with two | control |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for model in asked.models:
            rounds = [measured(asked.program, model, folder) for _ in range(asked.rounds)]
            row = best[model] = {key: min(each[key] for each in rounds) for key in rounds[0]}
            print(f"| {model} | {row['one']:.0f} | {row['lanes']:.0f} | {row['jax_1']:.0f} | {row['jax_2']:.0f} | "
                  f"{row['lanes'] / row['jax_2']:.3f} | {row['control']:.2f} |", flush=True)
    print(f"load at the end: {os.getloadavg()[0]:.1f}")
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump(best, file, indent=1)


if __name__ == "__main__":
    main()
