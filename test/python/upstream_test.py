"""The programs of upstream_flaws.txt print what the page says. They need PyTorch alone, so no engine is installed."""
import contextlib
import io
import re
import warnings
from pathlib import Path

import pytest
import torch

import overdrive

PAGE = (Path(__file__).resolve().parent / "upstream_flaws.txt").read_text()
TRIED_WITH = "2.13."
PROGRAMS = re.findall(r"^### (.*?)\n.*?```python\n(.*?)```\n(?:```text\n(.*?)```)?", PAGE, re.S | re.M)


def test_the_page_has_its_programs():
    assert len(PROGRAMS) == PAGE.count("\n### ") == PAGE.count("```python")
    assert all(code.count("\n") <= 20 for _, code, _ in PROGRAMS)


@pytest.mark.skipif(not torch.__version__.startswith(TRIED_WITH), reason="the page is of PyTorch " + TRIED_WITH)
@pytest.mark.parametrize("title, code, printed", [p for p in PROGRAMS if p[2]], ids=lambda part: part[:30])
def test_a_program_prints_what_the_page_says(title, code, printed):
    assert not overdrive.installed()
    text = io.StringIO()
    with contextlib.redirect_stdout(text), warnings.catch_warnings():
        exec(compile(code, title, "exec"), {})
    assert text.getvalue() == printed
