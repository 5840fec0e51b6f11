"""Times whole steps of models, prints microseconds a step, and writes JSON."""
import argparse
import json
import os
import platform
import statistics
import time


def use_threads():
    """As many as `--threads` says, and a processor for each. Before a library is imported that makes threads."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_known_args()[0].threads
    os.environ.update(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), NPROC=str(threads))
    several = str(threads > 1).lower()
    os.environ.setdefault("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen={several} intra_op_parallelism_threads={threads}")
    if hasattr(os, "sched_setaffinity"):
        processors = sorted(os.sched_getaffinity(0))
        if threads > len(processors):
            parser.error(f"--threads is {threads}, but the process has {len(processors)} processors")
        os.sched_setaffinity(0, processors[:threads])
    return threads


def arguments(models):
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each model")
    parser.add_argument("models", nargs="*", default=list(models), metavar="MODEL", help=", ".join(models))
    asked = parser.parse_args()
    unknown = [name for name in asked.models if name not in models]
    if unknown:
        parser.error(f"no model {unknown[0]!r}; there are {', '.join(models)}")
    return asked


def microseconds(step, seconds):
    """The median of 15 rounds and the best call, by the wall clock: of a step that keeps its threads busy."""
    for _ in range(5):
        step()
    begin = time.perf_counter()
    for _ in range(5):
        step()
    repeats = max(1, int(seconds / 15 / ((time.perf_counter() - begin) / 5)))
    rounds, best = [], float("inf")
    for _ in range(15):
        begin = last = time.perf_counter()
        for _ in range(repeats):
            step()
            now = time.perf_counter()
            best = min(best, now - last)
            last = now
        rounds.append((last - begin) / repeats * 1e6)
    return statistics.median(rounds), best * 1e6


def run(peer, version, models, make_step):
    """`models` by name; `make_step` compiles one and returns a function that makes a step and waits for it."""
    asked = arguments(models)
    rows = []
    threads = "one thread" if asked.threads == 1 else f"{asked.threads} threads"
    print(f"{peer} {version}, {threads}, microseconds a step", flush=True)
    for name in asked.models:
        begin = time.perf_counter()
        step = make_step(models[name])
        step()
        compiled = time.perf_counter() - begin
        median, best = microseconds(step, asked.seconds)
        rows.append({"name": name, "us": median, "best_us": best, "compile_s": compiled})
        print(f"  {name:16} {median:10.1f}   best {best:10.1f}   (compiled in {compiled:.1f} s)", flush=True)
    if asked.json:
        environment = {"peer": peer, "version": version, "python": platform.python_version(), "threads": asked.threads,
                       "machine": platform.processor() or platform.machine(), "load": os.getloadavg()[0]}
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump({"environment": environment, "rows": rows}, file, indent=1)
