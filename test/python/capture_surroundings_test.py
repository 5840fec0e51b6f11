"""What stands around a call of a captured step: a default device, anomaly mode, inputs with a gradient."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import overdrive


def penalised(capture=True):
    """The gradient by an input is a part of the loss, as in WGAN-GP."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train(x):
        optimizer.zero_grad()
        y = model(x)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        loss = y.square().mean() + (slope.norm(dim=1) - 1).square().mean()
        loss.backward(inputs=list(model.parameters()))
        optimizer.step()
        return loss

    return model, overdrive.capture(train, optimizer=optimizer) if capture else train


def batch(i):
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(i))


def test_an_input_that_requires_a_gradient():
    (model, step), (twin, train) = penalised(), penalised(False)
    for i in range(20):
        x, y = batch(i).requires_grad_(), batch(i).requires_grad_()
        if i % 2:
            x.grad, y.grad = torch.ones(4, 8), torch.ones(4, 8)
        assert torch.equal(step(x), train(y)), i
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters())), i
        assert x.grad is None and y.grad is None or torch.equal(x.grad, y.grad)
    # The code names an attribute "grad", so that inputs with and without one have recordings of their own.
    assert step.stats()["replayed"] >= 12, step.refusal()


def test_a_gradient_that_is_left_on_an_input():
    model = nn.Linear(8, 1)

    def train(x):
        loss = model(x).sum()
        loss.backward()
        return loss

    step = overdrive.capture(train)
    for i in range(6):
        x = batch(i).requires_grad_()
        step(x)
        torch.testing.assert_close(x.grad, model.weight.detach().expand(4, 8))
    assert "leaves a gradient on an input" in step.refusal()


@pytest.mark.parametrize("kind", ["hook", "graph"])
def test_inputs_that_a_replay_cannot_have(kind):
    step = overdrive.capture(lambda x: (x * 2).sum())
    seen = []
    for i in range(6):
        x = batch(i).requires_grad_()
        if kind == "hook":
            x.register_hook(seen.append)
        else:
            x = x * 2
        step(x)
    assert ("has hooks" if kind == "hook" else "has a graph") in step.refusal()


@pytest.mark.parametrize("kind", ["default", "context"])
def test_the_default_device_is_the_cpu(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def train(x):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), torch.ones(4, 1)) + torch.zeros(1).sum()
        loss.backward()
        optimizer.step()
        return loss

    step = overdrive.capture(train, optimizer=optimizer)
    if kind == "default":
        torch.set_default_device("cpu")
    try:
        for i in range(10):
            if kind == "default":
                step(batch(i))
            else:
                with torch.device("cpu"):
                    step(batch(i))
    finally:
        torch.set_default_device(None)
    assert step.stats()["replayed"] >= 5, step.refusal()


def test_another_default_device_is_told():
    step = overdrive.capture(lambda x: (x * 2).sum())
    for i in range(8):
        x = batch(i)
        with torch.device("meta"):
            step(x)
    assert step.stats()["replayed"] == 0 and "mode of Python" in step.refusal()


def test_anomaly_mode_is_told():
    step = overdrive.capture(lambda x: (x * 2).sum())
    with torch.autograd.set_detect_anomaly(True):
        for i in range(8):
            step(batch(i))
        assert "anomaly mode" in step.refusal()
    for i in range(8):
        step(batch(i))
    assert step.stats()["replayed"] >= 3 and step.refusal() == ""
