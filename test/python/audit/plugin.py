"""A plugin of pytest: audits the steps of each test."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import audit


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    with audit.auditing() as found:
        outcome = yield
    if found.counts["recordings"]:
        audit.note(found, outcome.excinfo is not None)
