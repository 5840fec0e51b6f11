"""Parts inside of captured steps, captured optimizers beside schedulers, arguments that a part returns, and what explain() says of each."""
import re
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

import overdrive

SCALE = [1.0]


def scaled(loss):
    return loss * SCALE[0]


def of(name):
    """What explain() says of all that have the name: those of other tests may still be there."""
    return "\n".join(text for text in re.split(r"\n  (?! )", overdrive.explain()) if text.startswith(name))


@pytest.mark.parametrize("what", ["model", "optimizer", "both"])
def test_a_step_sees_what_it_reads_after_a_part(what):
    """Seen: a step with a captured model inside went on with the numbers of the recording. The part's own watcher, of its first calls, took
    the step's away, so that the rest of the step was not looked at."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        SCALE[0] = 1.0
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if captured and what != "optimizer":
            overdrive.captured(model)
        if captured and what != "model":
            overdrive.captured(optimizer)

        def train(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = scaled(model(x).square().mean())
            loss.backward()
            optimizer.step()
            return loss * SCALE[0]

        step = overdrive.capture(train) if captured else train
        losses = []
        for i in range(30):
            SCALE[0] = 1.0 if i < 15 else 2.0
            losses.append(step(torch.full((3, 4), 0.1 * i)).item())
        sides.append(losses)
    assert sides[0] == sides[1]
    assert step.stats()["replayed"] > 12, step.refusal()


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_a_scheduler_that_was_made_before_the_capture(make):
    """It has wrapped the step() of the class, past the captured one."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        optimizer = make(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=30)
        if captured:
            assert overdrive.captured(optimizer) is optimizer
        losses = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of a scheduler that thinks that no step() was made
            for i in range(20):
                optimizer.zero_grad()
                loss = model(torch.full((3, 4), 0.1 * i)).square().mean()
                loss.backward()
                optimizer.step()
                scheduler.step()
                losses.append(loss.item())
        sides.append((losses, scheduler.get_last_lr()))
    assert sides[0] == sides[1]
    assert overdrive.part_of(optimizer).stats()["replayed"] > 8


class Returns(nn.Module):
    """A model that returns arguments beside what it makes, as many return a mask or the hidden states."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x, mask=None, **rest):
        hidden = torch.tanh(self.first(x))
        return {"logits": self.last(hidden), "hidden": (x, hidden, x), "mask": mask, **rest}


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_a_part_returns_its_arguments(needs_gradient):
    """The caller gets its own tensors, and their gradients are those of eager."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        model = Returns()
        if captured:
            overdrive.captured(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        noted = []
        for i in range(20):
            x = torch.randn(3, 4).requires_grad_(needs_gradient)
            mask, other = torch.ones(3), torch.zeros(2)
            optimizer.zero_grad()
            out = model(x, mask, other=other)
            assert out["hidden"][0] is x and out["hidden"][2] is x and out["mask"] is mask and out["other"] is other
            loss = out["logits"].square().mean() + (out["hidden"][0] * out["hidden"][1].sum()).mean() * out["mask"].sum()
            loss.backward()
            optimizer.step()
            noted += [loss.item(), None if x.grad is None else x.grad.tolist(), [p.grad.tolist() for p in model.parameters()]]
        sides.append(noted)
    assert sides[0] == sides[1]
    assert overdrive.part_of(model).stats()["replayed"] > 12, overdrive.explain()


def test_a_packed_sequence_through_a_recurrent_net():
    """It returns the sizes of the sequence that it was given."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = nn.LSTM(3, 5, num_layers=2, batch_first=True)
        if captured:
            overdrive.captured(net)
        noted = []
        for i in range(20):
            packed = pack_padded_sequence(torch.randn(3, 6, 3), torch.tensor([6, 4, 3]), batch_first=True)
            out, (last, _) = net(packed)
            (out.data.sum() + last.sum()).backward()
            noted += [out.data.tolist(), out.batch_sizes.tolist(), net.weight_hh_l1.grad.tolist()]
        sides.append(noted)
    assert sides[0] == sides[1]
    assert overdrive.part_of(net).stats()["replayed"] > 12, overdrive.explain()


def test_what_runs_past_a_captured_optimizer_is_told():
    p = nn.Parameter(torch.ones(3))
    lbfgs = overdrive.captured(torch.optim.LBFGS([p]))
    large = nn.Parameter(torch.ones(1 << 21))
    sgd = overdrive.captured(torch.optim.SGD([large], 0.1))

    def closure():
        lbfgs.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    for _ in range(6):
        lbfgs.step(closure)
        large.grad = torch.ones_like(large)
        sgd.step()
    assert "6 calls, 0 replayed" in of("step() of LBFGS") and "capture the closure, or the model" in of("step() of LBFGS")
    assert "Its gradients have 8 MiB" in of("step() of SGD") and "capture the whole step" in of("step() of SGD")


def test_a_number_that_changes_in_each_call_of_a_part_is_named():
    part = overdrive.captured(lambda x, alpha: x * alpha + 1)
    for i in range(20):
        part(torch.ones(3), alpha=0.5 + i)
    assert "another value of argument 'alpha', a number (" in part.refusal()


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("draws", ["nowhere", "outside", "inside"])
def test_a_checkpoint_in_a_step(keeps, nested, draws):
    """The state of random numbers that it puts back is another one where something is drawn after it, and matters where something is drawn in it."""
    def under(function):
        return lambda x: checkpoint(function, x, use_reentrant=False, preserve_rng_state=keeps)

    def run(capture):
        torch.manual_seed(3)
        inside = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5 if draws == "inside" else 0.0))
        model = nn.Sequential(inside, nn.Dropout(0.5 if draws == "outside" else 0.0), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        hidden = under(under(inside)) if nested else under(inside)

        def train(x):
            optimizer.zero_grad()
            loss = model[1:](hidden(x)).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        step = capture(train)
        losses = [step(torch.full((2, 4), 0.1 * i)).item() for i in range(16)]
        return [*losses, *(p.tolist() for p in model.parameters()), torch.get_rng_state().tolist()], step

    expected, _ = run(lambda train: train)
    got, step = run(overdrive.capture)
    assert got == expected
    refused = keeps and draws == "inside"
    assert ("under torch.utils.checkpoint() draws random numbers" in step.refusal()) == refused
    assert (step.stats()["replayed"] > 4) != refused


@pytest.mark.parametrize("inside", [True, False])
def test_settings_that_a_forward_has_and_its_backward_has_not(inside):
    """A convolution's backward chooses its kernel by the flags that it finds."""
    gradients = []
    for is_captured in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
        if is_captured:
            overdrive.captured(model)
        seen = []
        for i in range(30):
            model.zero_grad()
            with torch.backends.mkldnn.flags(enabled=inside or i % 8 == 7):
                loss = model(torch.randn(2, 3, 10, 10)).square().mean()
            with torch.backends.mkldnn.flags(enabled=not inside or i % 8 == 3):
                loss.backward()
            seen.append([loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
        gradients.append(seen)
    assert all(all(map(torch.equal, *pair)) for pair in zip(*gradients))
    part = overdrive.part_of(model)
    assert part.stats()["again"] > 4 and "other settings than the forward" in part.refusal()


class Weighed(nn.Module):
    """What it returns does not tell the numbers by which gradients are weighed."""

    def __init__(self):
        super().__init__()
        self.linear, self.weight, self.options = nn.Linear(4, 4), 1.0, {"is_on": True}

    def forward(self, x):
        h = self.linear(x)
        with torch.set_grad_enabled(self.options["is_on"]):
            other = torch.tanh(h)
        return h.detach() + self.weight * (h - h.detach()) + other + torch.randn(4)


@pytest.mark.parametrize("change", [lambda model: setattr(model, "weight", 3.0), lambda model: model.options.update(is_on=False),
                                    lambda model: torch.set_default_dtype(torch.float64)], ids=["a number", "a mode", "the default type"])
def test_what_a_backward_runs_once_more_reads_what_the_call_has_read(change):
    gradients = []
    for is_captured in (False, True):
        torch.manual_seed(0)
        model = Weighed()
        if is_captured:
            overdrive.captured(model)
        seen = []
        for i in range(30):
            model.zero_grad()
            x = torch.randn(3, 4)
            loss = model(x).square().mean()
            change(model)
            with torch.autocast("cpu", enabled=i > 12 and i % 2 == 0):
                loss.backward()
            torch.set_default_dtype(torch.float32)
            model.weight, model.options["is_on"] = 1.0, True
            seen.append([loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
        gradients.append(seen)
    assert all(all(map(torch.equal, *pair)) for pair in zip(*gradients))
    assert overdrive.part_of(model).stats()["again"] > 4
