"""A plugin of pytest: audits the steps of each test, and writes what was found, a line of JSON for each test, to $OVERDRIVE_AUDIT."""
from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

import audit


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    with audit.auditing() as found:
        outcome = yield
    if found.counts["recordings"]:
        with open(os.environ["OVERDRIVE_AUDIT"], "a") as file:
            print(json.dumps({"test": item.nodeid, "failed": outcome.excinfo is not None, **found.plain()}), file=file)
