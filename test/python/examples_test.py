"""The examples and the benchmark run, and the trainers have the bits of stock."""
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
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
    program = Path(os.environ["OVERDRIVE_TEST_BUILD"]) / "bin" / "step_file_train"
    done = subprocess.run([program, tmp_path / "digits.od", ROOT / "examples" / "data", tmp_path / "state.pt"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    right = [int(line.split(", ")[1].split()[0]) for line in done.stdout.splitlines()]
    assert len(right) == 8 and right[-1] > 270, done.stdout
    out = python([folder / "load.py", tmp_path / "digits.od", tmp_path / "state.pt"]).stdout
    assert "0 missing, 0 unexpected" in out and "has the predictions of the step" in out
    assert len((folder / "train.cpp").read_text().splitlines()) <= 60


@pytest.mark.parametrize("name, given, is_trained", [("letters", [ROOT / "examples/data/alice.txt"], lambda loss: loss < 2.6),
                                                     ("cart", [], lambda reward: reward > -40)])
def test_cpp_programs_train_a_gru_and_sac(name, given, is_trained, tmp_path):
    folder = ROOT / "examples" / "step_file"
    python([folder / "define_more.py", name, tmp_path / "step.od"])
    program = Path(os.environ["OVERDRIVE_TEST_BUILD"]) / "bin" / f"step_file_{name}"
    done = subprocess.run([program, tmp_path / "step.od", *given, tmp_path / "state.pt"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert is_trained(float(done.stdout.split()[-1])), done.stdout
    assert len((folder / f"{name}.cpp").read_text().splitlines()) <= 60
    assert torch.load(tmp_path / "state.pt", weights_only=True)
