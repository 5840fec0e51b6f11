"""Times whole steps of models, prints microseconds a step, and writes JSON."""
import argparse
import json
import os
import platform
import statistics
import time


def one_thread():
    """Before a library is imported that makes threads."""
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def arguments(models):
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each model")
    parser.add_argument("models", nargs="*", default=list(models), metavar="MODEL", help=", ".join(models))
    asked = parser.parse_args()
    unknown = [name for name in asked.models if name not in models]
    if unknown:
        parser.error(f"no model {unknown[0]!r}; there are {', '.join(models)}")
    return asked


def microseconds(step, seconds):
    """The median of 15 rounds, by the wall clock: of a step that keeps one thread busy."""
    for _ in range(5):
        step()
    begin = time.perf_counter()
    for _ in range(5):
        step()
    repeats = max(1, int(seconds / 15 / ((time.perf_counter() - begin) / 5)))
    rounds = []
    for _ in range(15):
        begin = time.perf_counter()
        for _ in range(repeats):
            step()
        rounds.append((time.perf_counter() - begin) / repeats * 1e6)
    return statistics.median(rounds)


def run(peer, version, models, make_step):
    """`models` by name; `make_step` compiles one and returns a function that makes a step and waits for it."""
    asked = arguments(models)
    rows = []
    print(f"{peer} {version}, one thread, microseconds a step", flush=True)
    for name in asked.models:
        begin = time.perf_counter()
        step = make_step(models[name])
        step()
        compiled = time.perf_counter() - begin
        rows.append({"name": name, "us": microseconds(step, asked.seconds), "compile_s": compiled})
        print(f"  {name:16} {rows[-1]['us']:10.1f}   (compiled in {compiled:.1f} s)", flush=True)
    if asked.json:
        environment = {"peer": peer, "version": version, "python": platform.python_version(),
                       "machine": platform.processor() or platform.machine(), "load": os.getloadavg()[0]}
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump({"environment": environment, "rows": rows}, file, indent=1)
