"""The examples and the benchmark run, and the trainers have the bits of stock."""
import json
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
