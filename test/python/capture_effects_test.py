"""What a captured function leaves behind beside tensors under names: replays leave it, or the function is refused by what it changes. The
program changes it between the calls, so that a value which is left once is not enough."""
import gc
import os
import random
import sys
import warnings

import pytest
import torch

import overdrive

IMPORTS = "import collections, contextvars, datetime, decimal, gc, os, queue, random, torch, types, warnings\nfrom torch import nn\nspace = types.SimpleNamespace\n"
BEGIN = ("L, D, t = [torch.zeros(2)], {}, torch.ones(6)\ndq, qu = collections.deque([torch.zeros(2)], maxlen=9), queue.Queue()\n"
         "torch.set_printoptions(precision=4), torch.autograd.set_detect_anomaly(False), gc.enable(), warnings.simplefilter('ignore')\n"
         "net = nn.Linear(6, 6)\no = torch.optim.SGD(net.parameters(), 0.1)\n"
         "class At:\n    def __init__(self, n):\n        self.n = n\n"
         "class Like(At):\n    def __eq__(self, other):\n        return True\n"
         "class Slotted:\n    __slots__ = ('n',)\n    def __init__(self, n):\n        self.n = n\n"
         "CONTEXT, DAY = contextvars.ContextVar('c'), datetime.date(2026, 1, 1)\nCONTEXT.set(0)\n"
         "net.k, net.day, net.seen, net.cost, net.at, net.raw = 1, DAY, frozenset(), decimal.Decimal(1), At(0), bytearray(2)\nK = 1\n"
         "net.like, net.p, net.slotted, net.info = Like(0), None, Slotted(0), space(loss=t)\n")
# What the function does, what shows it, and what the program does in some calls.
LEFT = {
    "an item": ("L[0] = h.detach()", "L[0].sum().item()", "L[0] = torch.zeros(2)"),
    "all items": ("L[:] = [h.detach()]", "L[0].sum().item()", "L[:] = [torch.zeros(2)]"),
    "an entry": ("D['h'] = h.detach()", "D['h'].sum().item()", "D['h'] = torch.zeros(2)"),
}
# Without a reason where replays leave it.
EITHER = {
    "the environment": ("os.environ['OD_TEST'] = '1'", "os.environ.get('OD_TEST')", "os.environ.pop('OD_TEST', 0)"),
    "a deleted attribute": ("try: del net.k\n    except AttributeError: pass", "hasattr(net, 'k')", "net.k = 1"),
    "an attribute that is deleted and was there before the call": ("net.k = 2\n    del net.k", "hasattr(net, 'k')", "net.k = 1"),
    "a deleted variable": ("global K\n    try: del K\n    except NameError: pass", "'K' in globals()", "globals().update(K=1)"),
    "a deleted attribute by its name": ("try: delattr(net, 'k')\n    except AttributeError: pass", "hasattr(net, 'k')", "net.k = 1"),
}
REFUSED = {
    "a list that grows": ("L.append(h.detach())", "L[-1].sum().item()", "del L[1:]", "len(L)"),
    "a queue of tensors": ("dq.append(h.detach())", "dq[-1].sum().item()", "dq.append(torch.zeros(2))", "content of dq"),
    "a queue of numbers": ("dq.append(1)", "len(dq)", "dq.clear()", "content of dq"),
    "a queue of threads": ("qu.put(1)", "qu.qsize()", "qu.queue.clear()", "qu"),
    "a number that is taken away": ("h = h * N.pop(0)", "len(N)", "N.append(1.0)", "len(N)"),
    "the seed of Python": ("random.seed(3)", "random.random()", "0", "sets the state of random numbers"),
    "the state of Python's random numbers": ("random.setstate(R)", "random.random()", "0", "sets the state of random numbers"),
    "the seed of PyTorch": ("h = h * (torch.initial_seed() % 3)", "0", "0", "asks for the seed"),
    "a gradient": ("t.grad = torch.ones(6)", "t.grad is None", "t.grad = None", "t.grad"),
    "anomaly mode": ("torch.autograd.set_detect_anomaly(True)", "torch.is_anomaly_enabled()", "torch.autograd.set_detect_anomaly(False)", "anomaly"),
    "how tensors are printed": ("torch.set_printoptions(precision=2)", "str(torch.tensor(1.23456))", "torch.set_printoptions(precision=4)", "printoptions"),
    "warnings": ("warnings.simplefilter('error')", "warnings.filters[0][0]", "warnings.simplefilter('ignore')", "filters of warnings"),
    "collections": ("gc.disable()", "gc.isenabled()", "gc.enable()", "gc.disable()"),
    "another date": ("net.day += datetime.timedelta(1)", "net.day", "net.day = DAY", "another object"),
    "another set": ("net.seen |= {len(net.seen)}", "net.seen", "net.seen = frozenset()", "another object"),
    "another decimal number": ("net.cost += 1", "net.cost", "net.cost *= 2", "another object"),
    "another object of a class": ("net.at = At(net.at.n + 1)", "net.at.n", "net.at = At(0)", "another object"),
    "an object that is compared by its class": ("net.like = Like(net.like.n + 1)", "net.like.n", "net.like = Like(0)", "another object"),
    "an object and none": ("net.p = At(1) if net.p is None else None", "net.p is None", "net.p = None", "or takes it away"),
    "an object with slots": ("net.slotted = Slotted(net.slotted.n + 1)", "net.slotted.n", "net.slotted = Slotted(0)", "another object"),
    "objects of tensors that do not compare": ("net.info = space(loss=h.detach())", "net.info.loss.sum().item()", "net.info = space(loss=t)", "another object"),
    "bytes in place": ("net.raw[0] += 1", "net.raw[0]", "net.raw[0] = 0", "content of net.raw"),
    "a variable of the context": ("CONTEXT.set(CONTEXT.get() + 1)", "CONTEXT.get()", "CONTEXT.set(0)", "CONTEXT.get()"),
    "grad mode": ("torch.set_grad_enabled(False)", "torch.is_grad_enabled(), bool(torch.set_grad_enabled(True))", "0", "another setting"),
    "the default type": ("torch.set_default_dtype(torch.float64)", "torch.get_default_dtype(), torch.set_default_dtype(torch.float32)", "0",
                         "default_dtype"),
    "the folder": ("os.chdir('/')", "os.getcwd()", "os.chdir('/tmp')", "os.chdir()"),
}


@pytest.fixture(autouse=True)
def settings():
    filters, folder = list(warnings.filters), os.getcwd()
    yield
    os.chdir(folder)
    torch.set_printoptions(precision=4)
    torch.autograd.set_detect_anomaly(False)
    gc.enable()
    warnings.filters[:] = filters


def outcome(change, look, between, capture, rows=(4,)):
    torch.manual_seed(0)
    random.seed(0)
    program = {"__name__": "program", "N": [1.0] * 99, "R": random.Random(5).getstate()}
    exec(f"{IMPORTS}{BEGIN}def function(x):\n    h = net(x)\n    {change}\n    return h.sum()\n", program)
    function, when, seen = program["function"], random.Random(1), []
    captured = capture(function) if capture else function
    for call in range(18):
        result = captured(torch.randn(rows[call % len(rows)], 6))
        if result.requires_grad:
            torch.autograd.grad(result, program["net"].weight)
        seen.append((result.item(), eval(look, program)))
        if when.random() < 0.4:
            exec(between, program)
    return seen, captured


CAPTURES = pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured], ids=["step", "part"])


@CAPTURES
@pytest.mark.parametrize("row", LEFT)
def test_a_tensor_that_is_left_is_left_by_replays(row, capture):
    want, _ = outcome(*LEFT[row], None)
    got, captured = outcome(*LEFT[row], capture)
    assert want == got
    # What the program puts there in between has another recording, where the place may be read by other names than its own.
    assert captured.stats()["replayed"] > (2 if row in ("an item", "all items", "an entry") else 6), captured.refusal()


@CAPTURES
@pytest.mark.parametrize("row", EITHER)
def test_another_effect_is_left_or_refused(row, capture):
    want, _ = outcome(*EITHER[row], None)
    got, _ = outcome(*EITHER[row], capture)
    assert want == got


@CAPTURES
@pytest.mark.parametrize("row", REFUSED)
def test_another_effect_is_refused_by_its_name(row, capture, monkeypatch):
    monkeypatch.setenv("OVERDRIVE_CAPTURE_CHECK", "0")
    *scenario, name = REFUSED[row]
    want, _ = outcome(*scenario, None)
    got, captured = outcome(*scenario, capture)
    assert want == got
    if capture is overdrive.capture:
        assert name in captured.refusal()


@pytest.mark.parametrize("rows", [(4,), (4, 5, 6), (4,) * 10 + (5,)], ids=["one size", "sizes in turn", "a late size"])
@pytest.mark.parametrize("eager_calls", [1, 3])
@pytest.mark.parametrize("row", REFUSED)
def test_a_recording_that_has_not_seen_the_change_is_none_either(row, eager_calls, rows, monkeypatch):
    """The change was seen in one recording, and nothing looked at the place in the next ones."""
    monkeypatch.setenv("OVERDRIVE_CAPTURE_CHECK", "0")
    *scenario, _ = REFUSED[row]
    want, _ = outcome(*scenario, None, rows)
    got, _ = outcome(*scenario, lambda function: overdrive.capture(function, eager_calls=eager_calls), rows)
    assert want == got


def test_what_is_left_shares_memory_with_the_results_of_recorded_calls():
    net, box = torch.nn.Linear(6, 6), type("Box", (), {})()

    def function(x):
        h = net(x)
        box.last = h.detach()
        return h.square().mean(), h[0]

    step = overdrive.capture(function)
    for _ in range(12):
        _, row = step(torch.randn(4, 6))
        row.mul_(0)
        assert box.last[0].abs().sum() == 0
    assert step.stats()["replayed"] == 8


def test_a_cache_that_is_replaced_is_no_change_of_the_program():
    class Cache:
        def __init__(self):
            self.made = {}

        def __call__(self, key, value):
            self.made[key] = value
            return self.made[key]

    cache = Cache()

    def function(x):
        y = cache("y", x * 2) + 1
        cache.made = {}
        return y

    step = overdrive.capture(function)
    for i in range(10):
        assert step(torch.full((2,), float(i))).tolist() == [2 * i + 1] * 2
    assert step.stats()["replayed"] == 6, step.refusal()


def test_work_for_another_thread_is_refused():
    import concurrent.futures
    import types

    values = types.SimpleNamespace(k=1.0)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        step = overdrive.capture(lambda x: x * pool.submit(lambda: values.k).result())
        for i in range(12):
            values.k = 1.0 + (i > 8)
            assert step(torch.ones(2)).tolist() == [values.k] * 2
        assert "gives work to another thread (submit)" in step.refusal()


WRITTEN = {
    "a size": "box.n = x.shape[0]",
    "a constant": "box.n = 5",
    "a part of a number": "box.n = int(k)",
    "a number": "box.k = k",
    "of a number": "box.k = 2 * k + 1",
    "in a branch": "if len(x) == 3: box.n = 4",
    "twice": "box.n = 1; box.n = x.numel()",
    "an entry": "entries['n'] = x.numel()",
    "an item": "items[0] = x.shape[0]",
}


@pytest.mark.parametrize("row", WRITTEN)
def test_numbers_that_are_written_and_never_read(row):
    """The program reads them, and writes others."""
    sides = []
    for captured in (False, True):
        program = {"box": type("Box", (), {"n": 0, "k": 0.25})(), "entries": {"n": 0}, "items": [0]}
        exec(f"def function(x, k):\n    {WRITTEN[row]}\n    return x * k\n", program)
        box, entries, items, step = program["box"], program["entries"], program["items"], program["function"]
        step = overdrive.capture(step) if captured else step
        seen = []
        for call in range(60):
            step(torch.ones(2 if call % 5 else 3), (1.5, 2.5, 3.5)[call % 3] if call < 45 else 1.5 + call)
            seen.append((box.n, box.k, dict(entries), list(items), type(box.n), type(box.k)))
            if call % 7 == 6:
                box.n, box.k, entries["n"], items[0] = 1, 0.5, 9, 9
        sides.append(seen)
        if captured and row in ("a size", "a constant", "a number", "an entry"):
            assert step.stats()["replayed"] > 20 and step.refusal() == "", step.explain()
    assert sides[0] == sides[1]


def test_a_number_that_is_another_one_in_each_call_is_refused_by_its_name():
    box, kept = type("Box", (), {"last": 0})(), []

    def function(x):
        box.last = id(x)
        return x * 2

    step = overdrive.capture(function)
    for _ in range(12):
        kept.append(torch.ones(2))
        step(kept[-1])
        assert box.last == id(kept[-1])
    assert "gives `box.last` another number in each call" in step.refusal()


def test_what_a_library_writes_before_it_reads_it_is_no_state(monkeypatch):
    """tensordict notes in ``_last_op`` how to leave a context, another object in each call."""
    monkeypatch.setitem(sys.modules, "tensordict", torch)
    box = type("Box", (), {})()
    box._last_op = None

    def function(x):
        box._last_op = ("to_module", object())
        return x * len(box._last_op)

    step = overdrive.capture(function)
    for call in range(20):
        assert step(torch.full((2,), float(call))).tolist() == [2.0 * call] * 2
    assert step.stats()["replayed"] > 10, step.refusal()
