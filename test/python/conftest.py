"""Each test that takes `engine` runs on stock and on Overdrive. Stock is the oracle: `transcript` has what a scenario
notes under both compared, letter by letter and bit by bit."""
import ctypes
import gc
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import overdrive
from overdrive.__main__ import preload_library, preloading

HERE = Path(__file__).resolve().parent
LIMIT = 300  # seconds for a process of a test
# Tests of captured steps count replays, so that none is compared, unless a test asks for it.
os.environ.setdefault("OVERDRIVE_CAPTURE_CHECK", "0")
os.environ.setdefault("OVERDRIVE_CAPTURE_ALWAYS", "1")


@pytest.fixture(params=["stock", "overdrive"])
def engine(request):
    """The name of the engine that backwards run on. Overdrive must have run something, and forwarded nothing."""
    if request.param == "stock":
        overdrive.uninstall()
        yield "stock"
        return
    overdrive.reset_stats()
    with overdrive.engine():
        yield "overdrive"
    gc.collect()
    stats = overdrive.stats()
    allowed = request.node.get_closest_marker("forwards")
    forwarded = {k: v for k, v in stats["forwarded"].items() if not allowed or k not in allowed.args}
    assert not forwarded, forwarded
    if request.node.get_closest_marker("elsewhere") is None:
        assert stats["backwards"] > 0, "nothing ran on Overdrive"


def pytest_configure(config):
    config.addinivalue_line("markers", "forwards(reasons): calls may be given to stock for these reasons")
    config.addinivalue_line("markers", "elsewhere: the backwards run in other processes")


def on(name, scenario, *arguments):
    """Runs `scenario(note, ...)` on one engine; what it noted."""
    notes = []

    def note(*what):
        notes.append([plain(item) for item in what])

    torch.manual_seed(0)
    if name == "stock":
        overdrive.uninstall()
        scenario(note, *arguments)
    else:
        before = overdrive.stats()
        with overdrive.engine():
            scenario(note, *arguments)
        after = overdrive.stats()
        assert after["backwards"] > before["backwards"], "nothing ran on Overdrive"
    return notes


def plain(item):
    """What two runs can be compared by."""
    if isinstance(item, torch.Tensor):
        if item.layout != torch.strided:
            item = item.to_dense()
        bits = item.detach().resolve_conj().resolve_neg().contiguous().view(-1)
        return (str(item.dtype), tuple(item.shape), item.stride(), item.requires_grad,
                bits.view(torch.uint8).tolist() if item.numel() else [])
    if isinstance(item, BaseException):
        return describe(item)
    if isinstance(item, (list, tuple)):
        return [plain(part) for part in item]
    return item


def describe(error):
    """Type, arguments, cause, context and the functions of the traceback, down the chain."""
    chain = []
    while error is not None:
        frames, at = [], error.__traceback__
        while at is not None:
            frames.append(at.tb_frame.f_code.co_name)
            at = at.tb_next
        chain.append([type(error).__name__, [str(a) for a in error.args], error.__suppress_context__, frames])
        error = error.__cause__ or error.__context__
    return chain


def same_on_both(scenario, *arguments):
    stock = on("stock", scenario, *arguments)
    ours = on("overdrive", scenario, *arguments)
    assert stock, "the scenario noted nothing"
    assert ours == stock
    return ours


@pytest.fixture
def heard():
    """The warnings of the test, each time they are given."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    torch.set_warn_always(always)


def python(arguments, variables=None, check=True, cwd=None, **options):
    """Runs another Python, which finds what this one finds."""
    environment = {k: v for k, v in os.environ.items()
                   if k.startswith("OVERDRIVE_TEST_") or not k.startswith(("OVERDRIVE", "LD_PRELOAD"))}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    environment.update(variables or {})
    done = subprocess.run([sys.executable, *map(str, arguments)], env=environment, text=True, capture_output=True,
                          timeout=LIMIT, cwd=cwd, **options)
    if check:
        assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def variables_of(name):
    """The environment that has a program run on this engine without a change."""
    if name == "stock":
        return {}
    return {**preloading(preload_library()), "OVERDRIVE_VERBOSE": "2"}


@pytest.fixture(scope="session")
def plugin():
    """Backwards that C++ starts: test/python/plugin.cpp."""
    library = ctypes.PyDLL(os.environ["OVERDRIVE_TEST_PLUGIN"])
    for function in (library.backward_holding_the_gil, library.backward_without_the_gil):
        function.argtypes = [ctypes.c_void_p]
        function.restype = ctypes.c_char_p
    return library
