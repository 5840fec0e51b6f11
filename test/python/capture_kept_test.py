"""What a program keeps between the calls of a captured step, and what several threads do with it: as eager, bit by bit."""
import threading

import pytest
import torch
from torch import nn

import overdrive


def run(capture, keep, inside):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

    def train(x):
        if inside:
            optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = capture(train, optimizer=optimizer)
    kept, seen = [], []
    for i in range(30):
        if not inside:
            optimizer.zero_grad()
        step(torch.full((2, 3), 0.1 * i))
        if i % 7 == 6:
            kept.clear()
        else:
            kept.append([keep(p.grad) for p in net.parameters()])
        seen.append([[g.tolist() for g in gradients] for gradients in kept])
    return seen, step


@pytest.mark.parametrize("inside", [True, False], ids=["zeroed inside", "zeroed outside"])
@pytest.mark.parametrize("keep", [lambda g: g, lambda g: g.view(-1), lambda g: g.detach(), lambda g: (g.untyped_storage(), g)[1]],
                         ids=["itself", "a view", "detached", "after a look at its storage"])
def test_gradients_that_are_kept_stay_as_they_are(keep, inside):
    expected, _ = run(lambda f, **_: f, keep, inside)
    seen, step = run(overdrive.capture, keep, inside)
    assert seen == expected
    assert step.stats()["replayed"] >= 20, step.explain()


def test_a_gradient_that_nobody_keeps_stays_where_it_is():
    net = nn.Linear(2, 1)
    step = overdrive.capture(lambda x: net(x).sum().backward())
    places = set()
    for i in range(12):
        net.zero_grad()
        step(torch.ones(2, 2))
        if i > 5:
            places.add(net.weight.grad.data_ptr())
    assert len(places) == 1


def test_threads_that_call_at_once():
    def function(x):
        for _ in range(5):
            x = torch.tanh(x) * 2 + x.sum()
        return x

    step = overdrive.capture(function)
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(200):
            x = torch.randn(8, 6, generator=generator)
            try:
                if not torch.equal(step(x), function(x)):
                    wrong.append("other bits")
            except Exception as error:  # noqa: BLE001 - whatever a thread meets
                wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert step.stats()["calls"] == 600


def test_a_second_thread_runs_the_function_while_a_call_is_under_way():
    inside, over = threading.Event(), threading.Event()

    def function(x):
        if x.numel() == 3:
            inside.set()
            over.wait(60)
        return x + 1

    step = overdrive.capture(function)
    results = []
    other = threading.Thread(target=lambda: results.append(step(torch.ones(3)).tolist()))
    other.start()
    inside.wait(60)
    assert step(torch.ones(2)).tolist() == [2, 2]
    over.set()
    other.join()
    assert results == [[2, 2, 2]]
    assert step.stats()["eager"] == step.stats()["calls"] == 2


@pytest.mark.parametrize("period", [1, 2, 4, 6])
def test_a_half_that_is_frozen_in_turn_has_two_recordings(period):
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        made, judge = nn.Linear(4, 6), nn.Linear(6, 1)
        optimizer = torch.optim.SGD(made.parameters(), lr=0.01)

        def train(z):
            optimizer.zero_grad()
            loss = judge(torch.tanh(made(z))).mean()
            loss.backward()
            optimizer.step()
            return loss

        step = overdrive.capture(train, optimizer=optimizer) if captured else train
        seen = []
        for i in range(60):
            judge.requires_grad_(bool(i // period % 2))
            seen.append((step(torch.full((8, 4), 0.01 * i)).item(), made.weight.tolist()))
            seen.append(None if judge.weight.grad is None else judge.weight.grad.tolist())
        sides.append(seen)
        if captured:
            assert step.stats()["replayed"] >= 36, step.explain()
            assert step.refusal() == ""
    assert sides[0] == sides[1]


@pytest.mark.parametrize("sizes", [60, 120])
def test_sizes_that_come_in_a_cycle_are_all_replayed(sizes):
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)

    def train(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = overdrive.capture(train, optimizer=optimizer)
    for i in range(sizes * 8):
        step(torch.ones(1 + i % sizes, 6))
    assert step.stats()["replayed"] >= sizes * 2, step.explain()
    assert step.refusal() == ""


def test_sizes_that_never_come_again_are_told():
    step = overdrive.capture(lambda x: x.sin() * 2)
    with pytest.warns(UserWarning, match="replayed none"):
        for i in range(700):
            step(torch.ones(1 + i))
    assert "new in very many calls in turn" in step.refusal()
    assert step.stats()["recorded"] == 0


def test_a_part_that_asks_whether_a_parameter_has_a_gradient():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.v = nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x * self.v * (1 if self.v.grad is None else 2)

    sides = []
    for capture in (lambda net: net, overdrive.captured):
        net, seen = capture(Net()), []
        for i in range(30):
            out = net(torch.ones(4))
            out.sum().backward()
            if i % 9 == 8:
                net.v.grad = None
            seen.append(out.sum().item())
        sides.append(seen)
    assert sides[0] == sides[1]
    assert overdrive.part_of(net).stats()["replayed"] > 8, overdrive.part_of(net).explain()


@pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured])
@pytest.mark.parametrize("grad", [False, True])
def test_one_tensor_returned_twice_is_one_tensor(capture, grad):
    if grad and capture is overdrive.capture:
        pytest.skip("a step's inputs have no gradient")

    def function(x):
        made = x * 2
        return made, {"again": made, "other": made + 1}

    part = capture(function)
    for i in range(16):
        x = torch.full((2,), float(i)).requires_grad_(grad)
        a, rest = part(x)
        assert rest["again"] is a
        assert rest["other"].tolist() == [2 * i + 1] * 2
        if grad:
            (a + rest["other"]).sum().backward()
            assert x.grad.tolist() == [4, 4]
    assert part.stats()["replayed"] > 3, part.explain()


def test_a_tensor_that_is_only_measured_and_a_lock_that_is_asked():
    measured, lock = torch.ones(4), threading.Lock()
    size = overdrive.capture(lambda x: x + measured.numel())
    asked = overdrive.capture(lambda x: x + (1.0 if lock.locked() else 2.0))
    for _ in range(8):
        assert (size(torch.zeros(1)).item(), asked(torch.zeros(1)).item()) == (4, 2)
    assert size.stats()["replayed"] and asked.stats()["replayed"]
    measured.resize_(2)
    lock.acquire()
    for _ in range(8):
        assert (size(torch.zeros(1)).item(), asked(torch.zeros(1)).item()) == (2, 1)
    assert size.stats()["replayed"] > 6, size.explain()


@pytest.mark.parametrize("module", [nn.RReLU()])
def test_memory_that_is_filled_by_hand_is_told(module):
    step = overdrive.capture(lambda x: module(x), modules=[module])
    for _ in range(24):
        step(torch.randn(4, 5))
    assert step.stats()["replayed"] > 0 or "RReLU" in step.refusal(), step.refusal()
