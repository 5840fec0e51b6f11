"""The examples and the benchmark run, and the trainers have the bits of stock."""
import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import python

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "python"


@pytest.mark.parametrize("name", ["char_lstm", "pinn", "small_gpt"])
def test_trainers_have_the_bits_of_stock(name):
    out = python([EXAMPLES / f"{name}.py", "--engine", "both", "--steps", "3"]).stdout
    assert "bits equal" in out


def test_first_steps():
    out = python([EXAMPLES / "first_steps.py"]).stdout
    assert "1 backwards with" in out and "bits      equal" in out


def test_the_benchmark(tmp_path):
    file = tmp_path / "steps.json"
    python([ROOT / "bench/python/steps.py", "--quick", "--json", file, "mlp", "two_nodes"])
    found = json.loads(file.read_text())
    assert [row["name"] for row in found["rows"]] == ["mlp", "two_nodes"]
    for row in found["rows"]:
        assert row["bits"] == "equal" and row["step"]["cpu"]["ratio"] > 0 and row["backward"]["cpu"]["ratio"] > 0
    assert found["environment"]["torch"]


def test_a_cpp_program_trains_what_python_defined(tmp_path):
    folder = ROOT / "examples" / "step_file"
    python([folder / "define.py", tmp_path / "digits.od"])
    program = Path(os.environ["OVERDRIVE_TEST_BUILD"]) / "bin" / "step_file_example"
    done = subprocess.run([program, tmp_path / "digits.od", ROOT / "examples" / "data", tmp_path / "state.pt"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    right = [int(line.split(", ")[1].split()[0]) for line in done.stdout.splitlines()]
    assert len(right) == 8 and right[-1] > 270, done.stdout
    out = python([folder / "load.py", tmp_path / "digits.od", tmp_path / "state.pt"]).stdout
    assert "0 missing, 0 unexpected" in out and "has the predictions of the step" in out
    assert len((folder / "train.cpp").read_text().splitlines()) <= 60
