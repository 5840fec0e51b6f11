"""What a captured step is given: containers of tensors, keywords, and what it does with them."""
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import overdrive

Pair = namedtuple("Pair", "x y")


@dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor


def training(captured):
    torch.manual_seed(0)
    net = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(batch, state=None, scale=1.0, *, mask=None):
        if isinstance(batch, dict):
            x, y = batch["x"], batch["y"]
        else:
            x, y = (batch.x, batch.y) if hasattr(batch, "x") else batch
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean() * scale
        if state is not None:
            loss = loss + state[0].mean()
        if mask is not None:
            loss = loss * mask.mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss, "pair": (loss * 2,)}

    return (overdrive.capture(step, optimizer=optimizer) if captured else step), net


CALLS = {
    "tuple": lambda x, y: (((x, y),), {}),
    "dict": lambda x, y: (({"x": x, "y": y},), {}),
    "list and tuple": lambda x, y: (([x, y], (x, y)), {}),
    "named tuple, keyword": lambda x, y: ((Pair(x, y),), {"mask": y}),
    "dataclass": lambda x, y: ((Batch(x, y),), {}),
    "none and a number": lambda x, y: (((x, y), None, 0.5), {}),
    "keywords": lambda x, y: ((), {"batch": {"x": x, "y": y}, "scale": 0.3}),
    "one tensor twice": lambda x, y: (({"x": x, "y": x[:, :4]}, (x, x)), {}),
}


@pytest.mark.parametrize("how", CALLS)
def test_containers_and_keywords(how):
    results = []
    for captured in (False, True):
        step, net = training(captured)
        losses = []
        for _ in range(20):
            inputs, keywords = CALLS[how](torch.randn(8, 6), torch.randn(8, 4))
            losses.append(step(*inputs, **keywords)["pair"][0].item())
        results.append((losses, net.weight.tolist()))
    assert results[0] == results[1]
    assert step.stats()["replayed"] == 16 and step.refusal() == "", step.explain()


def test_calls_in_turn_with_other_structures():
    results = []
    for captured in (False, True):
        step, net = training(captured)
        losses = []
        for i in range(40):
            inputs, keywords = CALLS[("tuple", "dict", "keywords")[i % 3]](torch.randn(8, 6), torch.randn(8, 4))
            losses.append(step(*inputs, **keywords)["loss"].item())
        results.append(losses)
    assert results[0] == results[1] and step.stats()["replayed"] == 40 - 12


def test_a_container_that_the_function_changes_is_refused():
    step = overdrive.capture(lambda batch: batch.pop("y") * 2)
    for _ in range(8):
        batch = {"x": torch.ones(2), "y": torch.ones(2)}
        assert step(batch).tolist() == [2, 2] and list(batch) == ["x"]
    assert "changes a dict that it is given" in step.refusal()


def test_another_object_in_a_container_is_eager_with_the_reason():
    step = overdrive.capture(lambda batch: batch["x"] * 2)
    for _ in range(6):
        assert step({"x": torch.ones(2), "other": object()}).tolist() == [2, 2]
    assert step.stats()["eager"] == 6 and "object" in step.refusal()


def test_a_step_with_containers_is_not_saved(tmp_path):
    step = overdrive.capture(lambda batch: batch["x"] * 2)
    for _ in range(6):
        step({"x": torch.ones(2)})
    with pytest.raises(overdrive.OverdriveError, match="keywords or containers"):
        step.save(tmp_path / "step.od")


def test_an_input_that_is_a_detached_parameter_is_named():
    model = torch.nn.Linear(6, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=.05)

    def train(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = overdrive.capture(train, optimizer=optimizer)
    with pytest.warns(UserWarning, match="by another name"):
        for _ in range(24):
            step(model.weight.detach())
    assert "by another name" in step.refusal() and step.stats()["replayed"] == 0
