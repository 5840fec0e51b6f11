#!/usr/bin/env python3
"""What tools/gpu_check.sh found, as one JSON and one Markdown file. Called by it; reads FOLDER, writes into it.

    tools/gpu_report.py FOLDER
"""
import json
import os
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def load(path):
    return json.loads(path.read_text()) if path.exists() and path.stat().st_size else None


def suite(path):
    """CTest's own counts."""
    if not path.exists():
        return None
    root = xml.parse(path).getroot()
    count = {name: int(root.get(name, 0)) for name in ("tests", "failures", "skipped", "disabled")}
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    return {**count, "failed": failed}


def cuda_cases(report):
    """Name -> what became of it, for each case that needs a device."""
    cases = {}
    for group in (report or {}).get("testsuites", []):
        for case in group["testsuite"]:
            if "failures" in case:
                verdict = "failed"
            elif case.get("result") == "SKIPPED":
                verdict = "skipped"
            else:
                verdict = "passed"
            cases[f"{group['name']}.{case['name']}"] = verdict
    return cases


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def ratio(cell):
    return "{:.3f} [{:.3f}, {:.3f}]".format(*cell)


def markdown(report):
    machine, tests = report["machine"], report["tests"]
    text = ["# Checked on a GPU\n", table(["what", "is"], machine.items())]
    if tests:
        text.append(f"{tests['tests']} tests, {tests['failures']} failed, {tests['skipped']} skipped."
                    + "".join(f"\n- failed: {name}" for name in tests["failed"]) + "\n")
    text.append(table(["case", "result"], report["cuda_cases"].items()))
    if report["gpu_bench"]:
        for what in ("wall", "synchronised"):
            text.append(f"## Backward, {what} time\n")
            text.append(table(
                ["network", "stock ms", "stock, one thread ms", "Overdrive ms", "ratio to stock [95 %]"],
                [[row["network"], *(f"{row[what][name + '_ms']:.3f}" for name in
                                    ("stock", "stock_one_thread", "overdrive")), ratio(row[what]["overdrive_ratio"])]
                 for row in report["gpu_bench"]["rows"]]))
        capture = report["gpu_bench"]["graph_capture"]
        if capture:
            text.append("## A captured step\n")
            text.append(table(["what", "is"], capture.items()))
    text.append("Failed: " + (", ".join(report["failed"]) or "nothing") + "\n")
    return "\n".join(text)


def main(folder):
    gpu_bench = load(folder / "gpu_bench.json")
    report = {
        "machine": {
            "GPU, driver, memory": os.environ["GPUS"].replace("\n", "; "),
            "LibTorch": os.environ["TORCH"],
            "CUDA compiler": os.environ["NVCC"],
            "commit": os.environ["COMMIT"],
            **(gpu_bench["environment"] if gpu_bench else {}),
        },
        "failed": os.environ["FAILED"].split(),
        "tests": suite(folder / "tests.xml"),
        "cuda_cases": cuda_cases(load(folder / "cuda_tests.json")),
        "gpu_bench": gpu_bench,
        "engine_bench": load(folder / "engine_bench.json"),
        "devices_bench": load(folder / "devices_bench.json"),
    }
    (folder / "gpu_check.json").write_text(json.dumps(report, indent=2) + "\n")
    (folder / "gpu_check.md").write_text(markdown(report))
    print(f"gpu_check: {folder}/gpu_check.json and {folder}/gpu_check.md")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
