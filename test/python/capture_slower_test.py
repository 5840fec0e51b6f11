"""Captured steps and parts whose replays are slower than their calls: a large input, which a replay copies, and one element of it."""
import pytest
import torch

import overdrive


@pytest.fixture(autouse=True)
def weighed(monkeypatch):
    monkeypatch.setenv("OVERDRIVE_CAPTURE_ALWAYS", "0")


@pytest.fixture
def large():
    return torch.arange(1 << 22).float()


def test_a_step_gives_way_and_says_so(large, monkeypatch):
    monkeypatch.setattr("overdrive.step.budget.clock", lambda: 0)  # what recordings take is another matter
    step = overdrive.capture(lambda x: x[1:2] * 2)
    for i in range(120):
        large[1] = i
        assert step(large).item() == 2 * i
    assert "Replays are not faster here" in step.refusal()
    assert step.stats()["weighed"] > 0


def test_a_part_gives_way_and_its_module_stays_captured(large):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x):
            return x[1:2] * self.weight

    net = overdrive.captured(Net())
    for i in range(120):
        net(large).sum().backward()
        assert net.weight.grad.item() == i + 1
    assert "Replays are not faster here" in overdrive.part_of(net).refusal()


def test_always_replays(large):
    step = overdrive.capture(lambda x: x[1:2] * 2, always=True)
    for _ in range(120):
        step(large)
    assert step.refusal() == "" and step.stats()["weighed"] == 0 and step.stats()["replayed"] > 100


def test_always_is_a_flag():
    with pytest.raises(TypeError, match="always= is 1 and must be True or False"):
        overdrive.capture(lambda x: x, always=1)
    with pytest.raises(TypeError, match="always= is None and must be True or False"):
        overdrive.captured(lambda x: x, always=None)


def test_plain_calls_are_timed_late():
    """A program of twenty calls is over before it is asked whether its replays are faster."""
    weight = torch.nn.Parameter(torch.eye(4))
    optimizer = torch.optim.SGD([weight], 0.1)

    def train(x):
        optimizer.zero_grad()
        loss = (x @ weight).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = overdrive.capture(train, optimizer=optimizer)
    for i in range(20):
        step(torch.full((4, 4), 0.1 * i))
    first = step.stats()
    for i in range(40):
        step(torch.full((4, 4), 0.1 * i))
    assert first["eager"] == 1 and step.stats()["eager"] > 1, (first, step.stats())


def test_eager_calls_that_were_asked_for_are_no_runs_in_vain():
    step = overdrive.capture(lambda x: (x @ x).relu() @ x, eager_calls=10)
    for i in range(16):
        step(torch.full((64, 64), 0.01 * i))
    assert step.stats()["replayed"] > 0, step.refusal()
