"""Code of a captured step that runs in every call, in replays too."""
import functools
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import overdrive


def batch(i):
    generator = torch.Generator().manual_seed(i)
    return torch.randn(4, 8, generator=generator), torch.randn(4, 2, generator=generator)


class Trained:
    """A net that is trained, with something that runs apart before the backward; what it sees is kept."""

    def __init__(self, capture, between, **options):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 2))
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.seen = []
        self.between = between
        self.step = overdrive.capture(self.train, optimizer=self.optimizer, **options) if capture else self.train

    def train(self, x, y):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(x), y)
        weight = overdrive.apart(functools.partial(self.between, self.seen), loss, x)
        total = loss if weight is None else loss * weight
        total.backward()
        self.optimizer.step()
        return total


def beside(between, calls=30, **options):
    torch.manual_seed(1)
    ours, eager = Trained(True, between, **options), Trained(False, between)
    states = [torch.get_rng_state()] * 2
    for i in range(calls):
        results = []
        for k, each in enumerate((ours, eager)):
            torch.set_rng_state(states[k])
            try:
                results.append(each.step(*batch(i)).detach())
            except RuntimeError as error:
                results.append(torch.tensor(float(len(str(error)))))
            states[k] = torch.get_rng_state()
        assert torch.equal(*results), i
        assert torch.equal(*states), i
        assert all(torch.equal(p, q) for p, q in zip(ours.model.parameters(), eager.model.parameters())), i
        assert ours.seen == eager.seen and len(ours.seen) == i + 1, i
    return ours.step


def log(seen, loss, x):
    seen.append(loss.item())


def weigh(seen, loss, x):
    """An answer of the program's, another one in each call."""
    seen.append(loss.item())
    return torch.tensor(1.0 + 0.1 * (len(seen) % 3))


def explore(seen, loss, x):
    """Random numbers, which go on in the step."""
    noise = torch.rand(())
    seen.append(noise.item())
    return noise


def change_what_is_given(seen, loss, x):
    loss.mul_(100), x.zero_()
    seen.append(loss.item())


@pytest.mark.parametrize("between", [log, weigh, explore, change_what_is_given])
@pytest.mark.parametrize("options", [{}, {"check_every": 5}, {"lanes": 2}])
def test_it_runs_once_in_each_call(between, options):
    step = beside(between, **options)
    assert step.stats()["replayed"] >= (20 if "check_every" in options else 25), step.refusal()


def fail_now_and_then(seen, loss, x):
    seen.append(loss.item())
    if len(seen) % 7 == 0:
        raise RuntimeError(f"at {len(seen)}")


def test_an_error_is_the_functions_and_comes_once():
    step = beside(fail_now_and_then)
    assert step.stats()["undone"] >= 3 and step.stats()["replayed"] >= 18, step.explain()


def test_results_of_other_sizes_make_the_call_eager():
    seen = []

    def ones(x):
        seen.append(1)
        return torch.ones(2 if len(seen) == 12 else 1)

    step = overdrive.capture(lambda x: overdrive.apart(ones, x) * x[0, 0])
    for i in range(20):
        x = batch(i)[0]
        assert torch.equal(step(x), torch.ones(2 if i == 11 else 1) * x[0, 0]), i
        assert len(seen) == i + 1
    assert step.stats()["undone"] == 1 and step.stats()["replayed"] == 15, step.explain()


def test_a_question_after_it_that_is_answered_otherwise():
    """The replay is taken back, and the function has run."""
    seen = []

    def step(x):
        overdrive.apart(lambda y: seen.append(y.sum().item()), x)
        return x * 2 if (x.sum() < 100).item() else x * 3

    captured = overdrive.capture(step)
    for i in range(30):
        x = torch.full((2,), 100.0 if i % 8 == 7 else float(i))
        assert torch.equal(captured(x), x * (3 if i % 8 == 7 else 2))
        assert len(seen) == i + 1 and seen[-1] == x.sum().item()
    assert captured.stats()["undone"] >= 3, captured.explain()


def test_containers_come_back():
    def step(x):
        pair = overdrive.apart(lambda y: {"a": y + 1, "b": [y * 2]}, x)
        return pair["a"] + pair["b"][0]

    captured = overdrive.capture(step)
    for i in range(10):
        assert torch.equal(captured(torch.full((2,), float(i))), torch.full((2,), 3.0 * i + 1))
    assert captured.stats()["replayed"] == 6


def test_what_the_function_reads_is_not_looked_at():
    class State:
        factor = 1.0

    state = State()

    def step(x):
        return x + overdrive.apart(lambda: torch.tensor(state.factor))

    captured = overdrive.capture(step)
    for i in range(20):
        state.factor = float(i)
        assert torch.equal(captured(torch.ones(2)), torch.full((2,), 1.0 + i))
    assert captured.stats()["replayed"] == 16, captured.refusal()


def test_without_a_capture_it_is_a_call_on_copies():
    x = torch.ones(3, requires_grad=True)
    y = overdrive.apart(lambda a: a.mul_(2), x)
    assert torch.equal(x.detach(), torch.ones(3)) and torch.equal(y, torch.full((3,), 2.0)) and not y.requires_grad


def test_a_tensor_of_the_step_that_is_named_is_refused():
    def step(x):
        y = x * 2
        overdrive.apart(lambda: print(end=str(y.sum().item())[:0]))
        return y

    captured = overdrive.capture(step)
    for i in range(6):
        captured(torch.ones(2))
    assert "names a tensor of the step (y)" in captured.refusal()


def test_a_tensor_from_outside_that_is_changed_is_refused():
    model = nn.Linear(2, 2)

    def shrink():
        with torch.no_grad():
            model.weight.mul_(0.5)

    def step(x):
        y = model(x).sum()
        overdrive.apart(shrink)
        return y + model.weight.sum()

    captured = overdrive.capture(step)
    for i in range(6):
        captured(torch.ones(2))
    assert "changes a tensor that the step uses" in captured.refusal()


def test_a_change_that_comes_later_is_an_error():
    model, calls = nn.Linear(2, 2), []

    def shrink():
        calls.append(1)
        if len(calls) > 8:
            with torch.no_grad():
                model.weight.mul_(0.5)

    def step(x):
        overdrive.apart(shrink)
        return model(x).sum()

    captured = overdrive.capture(step)
    for i in range(8):
        captured(torch.ones(2))
    assert captured.stats()["replayed"] == 4
    with pytest.raises(RuntimeError, match="changed a tensor that the captured step uses"):
        captured(torch.ones(2))
    assert len(calls) == 9


def test_a_part_is_refused():
    net = nn.Linear(2, 2)

    @overdrive.captured
    def part(x):
        y = net(x)
        overdrive.apart(lambda z: None, y)
        return y

    for i in range(6):
        part(torch.ones(1, 2)).sum().backward()
    assert "runs apart in a captured part" in part.refusal()


def test_a_captured_step_inside_of_it():
    inner = overdrive.capture(lambda x: x * 3)
    outer = overdrive.capture(lambda x: overdrive.apart(lambda y: inner(y), x) + 1)
    for i in range(12):
        assert torch.equal(outer(torch.full((2,), float(i))), torch.full((2,), 3.0 * i + 1))
    assert inner.stats()["replayed"] >= 6 and outer.stats()["replayed"] >= 6, (inner.refusal(), outer.refusal())


def test_the_functions_of_a_step_that_is_gone_are_forgotten():
    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)
    captured = overdrive.capture(lambda x: overdrive.apart(functools.partial(lambda b, y: y * 2, big), x))
    for i in range(8):
        captured(torch.ones(2))
    del captured, big
    gc.collect()
    assert gone() is None


def test_wrong_arguments():
    with pytest.raises(TypeError, match="takes a function"):
        overdrive.apart(1)
    with pytest.raises(TypeError, match="takes a function and tensors"):
        overdrive.apart(print, 1)
    with pytest.raises(TypeError, match="returns something that is not a tensor"):
        overdrive.apart(lambda x: 1, torch.ones(1))


def test_a_step_file_refuses_it_by_name(tmp_path):
    captured = overdrive.capture(lambda x: x * overdrive.apart(lambda y: y + 1, x))
    for i in range(8):
        captured(torch.full((2,), float(i)))
    with pytest.raises(Exception, match="overdrive::apart"):
        captured.save(str(tmp_path / "step.od"))


def asking(function):
    return lambda x: function(x)


@pytest.mark.parametrize("flips", [False, True])
def test_functions_of_one_code_return_other_structures(flips):
    """A call whose replay came first runs the captured function once more, with what the replay's functions returned: each of them in its
    own structure, and not all in that of the last one."""
    def pair(x):
        return x * 2, x * 3

    def named(x):
        return {"sum": x * 5}

    def function(x, other=False):
        a = overdrive.apart(asking(named if other else pair), x)
        b = overdrive.apart(asking(pair if other else named), x)
        a, b = (b, a) if other else (a, b)
        return a[0] + a[1] + b["sum"]

    captured = overdrive.capture(function)
    for number in range(40):
        x = torch.full((2,), float(number))
        other = flips and number % 3 == 0
        assert torch.equal(captured(x, other), x * 10), number
    assert captured.stats()["replayed"] > 20, captured.refusal()


class Noting(nn.Module):
    """Leaves what a recording refuses: another view of its argument."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x):
        self.last = x.detach()
        return self.net(x).sin()


@pytest.mark.parametrize("by", ["apart", "scheduler"])
def test_beside_a_part_that_is_recorded_in_a_call(by):
    """The recording of the part, which is refused and freed, is none of the step's."""
    torch.manual_seed(0)
    model, seen = overdrive.captured(Noting(), always=True), []
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.7)

    def train(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if by == "apart":
            overdrive.apart(lambda loss: seen.append(loss.item()), loss)
        else:
            scheduler.step()
        return loss

    step = overdrive.capture(train, optimizer=optimizer, always=True)
    losses = [step(torch.randn(6, 4)).item() for _ in range(30)]
    assert seen == losses if by == "apart" else scheduler.last_epoch == 30


@pytest.mark.parametrize("is_inside", [False, True])
def test_in_a_part_of_a_step(is_inside):
    """Once in each call, whether the step runs or is replayed; a part that calls it is refused."""
    torch.manual_seed(0)
    net, seen = nn.Linear(4, 4), []

    def forward(x):
        loss = net(x).square().mean()
        if is_inside:
            overdrive.apart(lambda loss: seen.append(loss.item()), loss)
        return loss

    part = overdrive.captured(forward, always=True)
    losses = []

    def train(x):
        loss = part(x)
        loss.backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.1 * parameter.grad
        net.zero_grad(set_to_none=False)
        return loss

    step = overdrive.capture(train, constant_numbers=True, always=True)
    for _ in range(30):
        losses.append(step(torch.randn(6, 4)).item())
    assert not is_inside or seen == losses
