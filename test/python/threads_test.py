"""Threads, deep nests, fork, interrupts and the end of the process."""
import ctypes
import signal
import threading
import time

import pytest
import torch
from conftest import python, same_on_both, variables_of


class Nest(torch.autograd.Function):
    """A backward inside a backward, `levels` deep, in Python."""

    @staticmethod
    def forward(ctx, x, levels, seen):
        ctx.levels, ctx.seen = levels, seen
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        ctx.seen.append(threading.get_native_id())
        if ctx.levels > 0:
            with torch.enable_grad():
                x = torch.ones(1, requires_grad=True)
                Nest.apply(x, ctx.levels - 1, ctx.seen).sum().backward()
        return g, None, None


@pytest.mark.parametrize("levels", [10, 59, 61, 200])
def test_deep_nests(engine, levels):
    seen = []
    x = torch.ones(1, requires_grad=True)
    Nest.apply(x, levels, seen).sum().backward()
    assert x.grad.item() == 1 and len(seen) == levels + 1
    # As stock: sixty levels stay on a thread.
    assert len(set(seen)) == 1 + max(0, levels - 1) // 60
    assert threading.get_native_id() == seen[0]


def test_an_error_comes_up_from_a_deep_nest():
    class Bottom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, levels):
            ctx.levels = levels
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            if ctx.levels == 0:
                raise ValueError("bottom")
            with torch.enable_grad():
                Bottom.apply(torch.ones(1, requires_grad=True), ctx.levels - 1).sum().backward()

    def scenario(note):
        try:
            Bottom.apply(torch.ones(1, requires_grad=True), 150).sum().backward()
        except ValueError as error:
            note(type(error).__name__, error.args)
        torch.ones(1, requires_grad=True).exp().backward()

    same_on_both(scenario)


def test_threads_of_python_run_backwards_at_the_same_time(engine):
    def work(seed, results):
        generator = torch.Generator().manual_seed(seed)
        w = torch.randn(16, 16, generator=generator, requires_grad=True)
        for _ in range(20):
            h = torch.ones(4, 16)
            for _ in range(5):
                h = (h @ w).tanh()
            h.register_hook(lambda g: None)
            h.sum().backward()
        results[seed] = w.grad

    together, alone = {}, {}
    threads = [threading.Thread(target=work, args=(seed, together)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        work(seed, alone)
        assert torch.equal(alone[seed], together[seed])


def test_threads_share_a_graph(engine):
    x = torch.ones(8, requires_grad=True)
    shared = x.exp()
    losses = [(shared * i).sum() for i in range(1, 5)]
    threads = [threading.Thread(target=lambda loss=loss: loss.backward(retain_graph=True)) for loss in losses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(x.grad, 10 * x.detach().exp())


def test_other_threads_run_python_while_a_backward_computes(engine):
    counted = [0]
    stop = threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    x = torch.randn(256, 256, requires_grad=True)
    loss = (x @ x @ x @ x).sum()
    thread = threading.Thread(target=count)
    thread.start()
    while counted[0] == 0:
        time.sleep(0)
    loss.backward()
    stop.set()
    thread.join()
    assert x.grad is not None


INTERRUPTED = """
import os, signal, torch
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000): pass
        return g
x = torch.ones(1, requires_grad=True)
try:
    y = x
    for _ in range(50): y = Slow.apply(y)
    y.backward()
    print("no interrupt")
except KeyboardInterrupt:
    print("interrupted", x.grad is None)
x.exp().backward()
print("goes on")
"""


@pytest.mark.elsewhere
def test_an_interrupt_stops_a_backward_at_its_next_python_node(engine):
    done = python(["-c", INTERRUPTED], variables_of(engine))
    assert done.stdout.split("\n")[:2] == ["interrupted True", "goes on"]


FORKED = """
import os, torch
x = torch.ones(2, requires_grad=True)
def train(): (x.exp() * x).sum().backward(); return x.grad.sum().item()
before = train()
child = os.fork()
if child == 0:
    x.grad = None
    os._exit(0 if train() == before else 1)
_, status = os.waitpid(child, 0)
x.grad = None
print("child", os.waitstatus_to_exitcode(status), "parent", train() == before)
"""


@pytest.mark.elsewhere
def test_a_child_of_fork_runs_backwards(engine):
    assert python(["-c", FORKED], variables_of(engine)).stdout == "child 0 parent True\n"


LIVE = """
import threading, torch
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return x.clone()
    @staticmethod
    def backward(ctx, g): return g
x = torch.ones(2, requires_grad=True)
kept = [F.apply(x.exp()) for _ in range(10)]
kept[0].register_hook(lambda g: g)
kept[1].sum().backward()
torch.kept = kept                       # outlives the interpreter's modules
threading.kept = kept[2].grad_fn
print("end")
"""


@pytest.mark.elsewhere
def test_the_interpreter_ends_while_graphs_live(engine):
    done = python(["-c", LIVE], variables_of(engine))
    assert done.stdout == "end\n" and "Error" not in done.stderr


DAEMON = """
import threading, time, torch
started = threading.Event()
def train():
    w = torch.ones(4, requires_grad=True)
    while True:
        y = w.exp(); y.register_hook(lambda g: None); y.sum().backward(); started.set()
threading.Thread(target=train, daemon=True).start()
started.wait()
print("end", flush=True)
"""


@pytest.mark.elsewhere
def test_the_interpreter_ends_while_a_daemon_trains(engine):
    # With stock, a thread that asks for the GIL now is ended inside a C++ frame, and sometimes takes the process along.
    done = python(["-c", DAEMON], variables_of(engine), check=False)
    assert done.stdout == "end\n"
    assert done.returncode in (0, -signal.SIGABRT, -signal.SIGSEGV)


def test_a_worker_keeps_its_state_of_python(plugin):
    # As with stock's device threads: what a hook leaves in threading.local() is there in the next backward.
    local, seen = threading.local(), []
    callback_type = ctypes.CFUNCTYPE(None)

    @callback_type
    def callback():
        seen.append(getattr(local, "calls", 0))
        local.calls = seen[-1] + 1

    plugin.call_twice_on_a_thread(callback, 0)
    assert seen == [0, 0]
    plugin.call_twice_on_a_thread(callback, 1)
    assert seen == [0, 0, 0, 1]


DETACHED = """
import ctypes, os, sys, time, torch
plugin = ctypes.CDLL(os.environ["OVERDRIVE_TEST_PLUGIN"])
plugin.train_on_detached_threads(3)
time.sleep(0.2)
print("end", flush=True)
"""


@pytest.mark.elsewhere
def test_the_process_ends_while_detached_threads_train(engine):
    # The destructors of LibTorch's statics take from them what they compute with: by which signal the process then ends,
    # if by any, is chance on either engine.
    done = python(["-c", DETACHED], variables_of(engine), check=False)
    assert done.stdout == "end\n"
    assert done.returncode in (0, -signal.SIGABRT, -signal.SIGSEGV)


SWITCHING = """
import os, torch, overdrive
overdrive.install()
child = os.fork()
if child == 0:
    x = torch.ones(1, requires_grad=True)
    overdrive.uninstall()
    overdrive.install()
    x.exp().backward()
    os._exit(0 if overdrive.installed() and x.grad is not None else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""


def test_a_child_of_fork_may_switch():
    assert python(["-c", SWITCHING]).stdout == "0\n"


REPORTING = """
import os, sys, torch
def backward():
    torch.ones(2, requires_grad=True).exp().sum().backward()
backward()
backward()
for work in (int, backward):
    child = os.fork()
    if child == 0:
        work()
        sys.exit(0)
    os.waitpid(child, 0)
"""


def test_a_child_of_fork_reports_its_own_backwards_and_one_without_any_nothing():
    done = python(["-c", REPORTING], {**variables_of("overdrive"), "OVERDRIVE_VERBOSE": "1"})
    said = [line.split(" on Overdrive")[0] for line in done.stderr.splitlines() if " on Overdrive, " in line]
    assert said == ["overdrive: 1 backward", "overdrive: 2 backwards"]


NOTED = """
import sys, torch
import overdrive
threads, size, backwards = map(int, sys.argv[1:])
torch.set_num_threads(threads)
overdrive.install()
x = torch.ones(size, requires_grad=True)
for _ in range(backwards):
    x.sin().sum().backward()
"""


@pytest.mark.parametrize("verbose, threads, size, backwards, notes", [
    ("1", 2, 64, 300, 1),
    ("2", 2, 8191, 128, 1),
    ("1", 1, 64, 300, 0),      # one thread: nobody waits
    ("1", 2, 8192, 300, 0),    # large enough to share
    ("1", 2, 64, 127, 0),      # too few to tell
    ("0", 2, 64, 300, 0),      # not asked
], ids=["small", "largest_small", "one_thread", "large", "few", "quiet"])
def test_a_note_tells_of_tensors_too_small_for_the_threads_once_and_when_asked(verbose, threads, size, backwards, notes):
    done = python(["-c", NOTED, threads, size, backwards], {"OVERDRIVE_VERBOSE": verbose})
    assert done.stderr.count("threads set, which wait longer") == notes, done.stderr
    if notes:
        assert f"at most {size} elements" in done.stderr
        assert "2 threads set" in done.stderr


SELDOM_LARGE = """
import torch
import overdrive
torch.set_num_threads(2)
overdrive.install()
small, large = (torch.ones(size, requires_grad=True) for size in (64, 100_000))
for i in range(128):
    (large if i % {every} == 0 else small).sin().sum().backward()
"""


@pytest.mark.parametrize("every, notes", [(16, 1), (8, 0)])
def test_a_note_needs_nearly_all_backwards_to_be_small(every, notes):
    done = python(["-c", SELDOM_LARGE.format(every=every)], {"OVERDRIVE_VERBOSE": "1"})
    assert done.stderr.count("threads set, which wait longer") == notes, done.stderr
