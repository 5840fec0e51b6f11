"""A backward of Python watched from inside."""
import contextlib
import gc
import os
import signal
import threading
import weakref

import pytest
import torch

import overdrive


@pytest.fixture(autouse=True)
def on_overdrive():
    with overdrive.engine():
        yield


def test_the_first_nan_has_a_name():
    x = torch.zeros(3, requires_grad=True)
    with overdrive.NanWatch() as watch:
        (x + 1).sqrt().sum().backward()
        assert watch.first is None
        (x.sqrt() * 3).sum().backward()
        assert "SqrtBackward0" in watch.first and "input 0 from 3 to 3" in watch.first
    assert "SqrtBackward0" in watch.first


def test_a_python_function_is_blamed_for_its_nan():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad / 0

    x = torch.ones(3, requires_grad=True)
    with overdrive.NanWatch() as watch:
        Bad.apply(x).sum().backward()
    assert "BadBackward" in watch.first


def test_a_deadline_stops_and_the_next_backward_is_right():
    x = torch.ones(3, requires_grad=True)
    y = (x * 2).sum()
    with pytest.raises(overdrive.Cancelled, match="after 0 of 3 nodes"):
        with overdrive.stopping(seconds=0):
            y.backward()
    assert x.grad is None
    y.backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_an_error_of_the_program_after_a_stop_is_its_own():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="^mine$") as caught, overdrive.stopping(seconds=0):
        with contextlib.suppress(RuntimeError):
            x.sum().backward()
        raise RuntimeError("mine")
    assert type(caught.value) is RuntimeError


def test_a_stop_is_known_by_its_scope_and_not_by_its_text():
    with pytest.raises(RuntimeError) as caught, overdrive.stopping(seconds=1000):
        raise RuntimeError("A backward was stopped after 1 of 2 nodes: so I say.")
    assert type(caught.value) is RuntimeError


def test_another_thread_cancels():
    token = overdrive.CancelToken()
    inside, cancelled = threading.Event(), threading.Event()

    class Waits(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            inside.set()
            assert cancelled.wait(60)
            return grad

    def cancel():
        assert inside.wait(60)
        token.cancel()
        cancelled.set()

    other = threading.Thread(target=cancel)
    other.start()
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(overdrive.Cancelled), overdrive.stopping(token):
        Waits.apply(x).sum().backward()
    other.join()
    assert x.grad is None


def test_a_stopped_backward_lists_the_leaves_that_have_a_gradient():
    first, last, token = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True), overdrive.CancelToken()

    class Cancels(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            token.cancel()
            return grad

    loss = (Cancels.apply(first) * last).sum()
    with pytest.raises(overdrive.Cancelled) as caught, overdrive.stopping(token):
        loss.backward()
    assert caught.value.accumulated == [last] and caught.value.accumulated[0] is last
    assert first.grad is None and last.grad.tolist() == [1, 1, 1]
    assert (caught.value.done, caught.value.total) == (4, 5)
    del caught, loss
    gone = weakref.ref(last)
    del last
    gc.collect()
    assert gone() is None


def test_progress_is_told_before_each_node_and_at_the_end():
    told = []
    with overdrive.stopping(progress=lambda done, total: told.append((done, total))):
        (torch.ones(3, requires_grad=True) * 2).sum().backward()
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_of_progress_stops_the_backward_and_is_raised(error):
    x = torch.ones(3, requires_grad=True)

    def fails(done, total):
        if done == 1:
            raise error("mine")

    with pytest.raises(error, match="mine"), overdrive.stopping(progress=fails):
        (x * 2).sum().backward()
    assert x.grad is None
    with pytest.raises(error, match="mine"), overdrive.stopping(progress=fails):
        with contextlib.suppress(RuntimeError):
            (x * 2).sum().backward()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_ctrl_c_stops_a_backward_that_tells_of_its_progress():
    begun, sent = threading.Event(), threading.Event()

    def press():
        assert begun.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
        sent.set()

    def progress(done, total):
        if done == 1:
            begun.set()
        if done == total - 1:
            sent.wait(60)

    x = torch.ones(200, 200, requires_grad=True)
    y = x
    for _ in range(100):  # so that the signal finds the thread in a node
        y = (y @ x).tanh()
    presses = threading.Thread(target=press)
    presses.start()
    with pytest.raises(KeyboardInterrupt), overdrive.stopping(progress=progress):
        y.sum().backward()
    presses.join()
    assert x.grad is None


@pytest.mark.parametrize("wrong", [{"token": 1}, {"progress": 1}, {"seconds": "soon"}])
def test_a_wrong_argument_of_stopping_is_named(wrong):
    with pytest.raises(TypeError, match="stopping: " + next(iter(wrong))), overdrive.stopping(**wrong):
        pass


def test_other_errors_stay_as_they_are_and_have_a_note():
    x = torch.ones(2, 3, requires_grad=True)
    y = (x * x).sum()
    with overdrive.stopping(seconds=1000):
        y.backward()
        with pytest.raises(RuntimeError, match="second time") as caught:
            y.backward()
    assert type(caught.value) is RuntimeError and "Overdrive" not in str(caught.value)
    note = overdrive.last_error_note()
    assert note.startswith("node MulBackward0") and "[2, 3] Float on cpu" in note


def entered(scope):
    with scope:
        pass


@pytest.mark.parametrize("use", [
    lambda: entered(overdrive.NanWatch()), lambda: entered(overdrive.stopping(seconds=1)),
    lambda: overdrive.profile(lambda: None), lambda: overdrive.memory_timeline(lambda: None)],
    ids=["NanWatch", "stopping", "profile", "memory_timeline"])
def test_what_watches_backwards_is_an_error_where_overdrive_runs_none(use, monkeypatch):
    overdrive.uninstall()
    with pytest.raises(overdrive.OverdriveError, match="not installed; call overdrive.install\\(\\) first"):
        use()
    monkeypatch.setenv("OVERDRIVE", "0")  # the program asked for stock
    use()
