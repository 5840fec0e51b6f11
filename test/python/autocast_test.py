"""CPU autocast inside captured functions: its casts are operators of the recording, with eager's bits."""
import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import overdrive


class Net(nn.Module):
    """A weight that is used twice, one that autocast leaves alone, and an operator that it runs in float."""

    def __init__(self, options=None):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(8, 8), nn.Linear(8, 4), nn.LayerNorm(8)
        self.options = {} if options is None else options

    def forward(self, x):
        with torch.autocast("cpu", **self.options):
            y = self.norm(self.first(torch.tanh(self.first(x))))
            return F.log_softmax(self.second(y), -1)


class Product(nn.Module):
    """One operator, which autocast casts: no operator below it sees that autocast is on."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 4))

    def forward(self, x):
        with torch.autocast("cpu"):
            return torch.mm(x, self.weight)


def pair(make):
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        made.append(make())
    return made


def batch(i):
    generator = torch.Generator().manual_seed(i)
    return torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)


def same(a, b):
    return all(torch.equal(x.detach(), y.detach()) and torch.equal(x.grad, y.grad) for x, y in
               zip(a.parameters(), b.parameters()))


OPTIONS = [{}, {"dtype": torch.bfloat16, "cache_enabled": False}, {"dtype": torch.float16}, {"enabled": False}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", ["loss inside", "loss outside"])
def test_a_whole_step(options, kind):
    def made(capture):
        model = Net(options)
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)

        def train(x, y):
            optimizer.zero_grad()
            with torch.autocast("cpu", **options):
                loss = F.mse_loss(model(x), y) if kind == "loss inside" else (model(x) * y.bfloat16()).float().mean()
            loss.backward()
            optimizer.step()
            return loss

        return model, overdrive.capture(train, optimizer=optimizer, check_every=7) if capture else train

    torch.manual_seed(0)
    model, step = made(True)
    torch.manual_seed(0)
    twin, train = made(False)
    for i in range(40):
        assert torch.equal(step(*batch(i)), train(*batch(i))), i
        assert same(model, twin), i
    assert step.stats()["replayed"] > 20, step.refusal()


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("calls", [1, 2])
def test_a_part(options, calls):
    (model, twin) = pair(lambda: Net(options))
    model = overdrive.captured(model)
    for i in range(40):
        for each in (model, twin):
            each.zero_grad()
            x, y = batch(i)
            loss = sum(F.mse_loss(each(x + k).float(), y) for k in range(calls))
            loss.backward()
        assert same(model, twin), i
        with torch.no_grad():
            for p, q in zip(model.parameters(), twin.parameters()):
                p.sub_(p.grad * 0.05)
                q.sub_(q.grad * 0.05)
    assert overdrive.part_of(model).stats()["replayed"] > 20 * calls, overdrive.part_of(model).refusal()


class Plain(nn.Module):
    """A weight that is used twice, and one that autocast leaves alone."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(8, 8), nn.Linear(8, 4), nn.LayerNorm(8)

    def forward(self, x):
        return F.log_softmax(self.second(self.norm(self.first(torch.tanh(self.first(x))))), -1)


@pytest.mark.parametrize("make", [Net, Product, Plain])
def test_calls_inside_one_context_see_the_same_casts(make):
    """The context keeps casts of weights, so that the second call sees those of the first, whatever the weights are then."""
    model, twin = pair(make)
    step = overdrive.capture(lambda x: model(x), modules=model)

    def results(function, module, i, context):
        seen = []
        with context:
            for _ in range(2):
                seen.append(function(batch(i)[0]).detach().clone())
                with torch.no_grad():
                    for parameter in module.parameters():
                        parameter.mul_(1.01)
        return torch.stack(seen)

    for i in range(60):
        kind = i // 15
        context = [contextlib.nullcontext, lambda: torch.autocast("cpu"), lambda: torch.autocast("cpu", enabled=False),
                   lambda: torch.autocast("cpu", cache_enabled=False)][kind]
        replayed = step.stats()["replayed"]
        assert torch.equal(results(step, model, i, context()), results(twin, twin, i, context())), i
        if i % 15 > 8 and (make is not Product or kind == 0):
            assert step.stats()["replayed"] == replayed + 2, (i, step.refusal(), step.explain())


OUTER = [{}, {"dtype": torch.float16}, {"cache_enabled": False}]


@pytest.mark.parametrize("options", OUTER)
@pytest.mark.parametrize("calls_in_a_context", [1, 3])
def test_a_whole_step_inside_a_context(options, calls_in_a_context):
    """With three calls in one, eager trains on stale casts."""
    def made(capture):
        model = Plain()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)

        def train(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return model, overdrive.capture(train, optimizer=optimizer, check_every=7) if capture else train

    torch.manual_seed(0)
    model, step = made(True)
    torch.manual_seed(0)
    twin, train = made(False)
    for i in range(30):
        for function, results in ((step, ours := []), (train, eagers := [])):
            with torch.autocast("cpu", **options):
                results.extend(function(*batch(3 * i + k)).detach() for k in range(calls_in_a_context))
                # Casts that are left behind, as eager leaves them.
                results.append((model if function is step else twin)(batch(i)[0]).detach())
        assert all(torch.equal(a, b) for a, b in zip(ours, eagers)), i
        assert same(model, twin), i
    assert step.stats()["replayed"] > 15 * calls_in_a_context, step.refusal()


@pytest.mark.parametrize("options", OUTER)
@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("backward", ["outside", "inside", "twice", "create_graph"])
def test_a_part_inside_a_context(options, calls, backward):
    """Gradients of several calls meet in the cast that they share, in its type."""
    model, twin = pair(Plain)
    model = overdrive.captured(model)
    for i in range(40):
        for each in (model, twin):
            each.zero_grad()
            x, y = batch(i)
            x.requires_grad_(i % 3 == 0)
            with torch.autocast("cpu", **options):
                loss = sum(F.mse_loss(each(x + k).float(), y) for k in range(calls))
                if backward == "inside" and i > 20:
                    loss.backward()
            if backward != "inside" or i <= 20:
                if backward == "create_graph" and i > 20 and i % 5 == 0:
                    gradients = torch.autograd.grad(loss, list(each.parameters()), create_graph=True)
                    sum(g.square().sum() for g in gradients).backward()
                elif backward == "twice":
                    loss.backward(retain_graph=True)
                    loss.backward()
                else:
                    loss.backward()
        if backward == "create_graph" and i > 20:
            for p, q in zip(model.parameters(), twin.parameters()):
                # The function has casts of its own then, and sums do not meet in the same ones.
                assert (p.grad - q.grad).abs().max() <= 0.03 * q.grad.abs().max(), i
        else:
            assert same(model, twin), i
        with torch.no_grad():
            for p, q in zip(model.parameters(), twin.parameters()):
                q.copy_(p.sub_(p.grad * (1e-4 if backward == "create_graph" else 0.05)))
    part = overdrive.part_of(model)
    assert part.stats()["replayed"] > 8 * calls, part.explain()


def test_without_gradients_inside_a_context_and_then_with_them():
    """A cast that was made without a graph is what the next call gets."""
    model, twin = pair(Plain)
    model = overdrive.captured(model)
    for i in range(60):
        for each in (model, twin):
            each.zero_grad()
            x, y = batch(i)
            with torch.autocast("cpu"):
                if i % 4 == 0:
                    with torch.no_grad():
                        each(x)
                loss = F.mse_loss(each(x).float(), y)
            loss.backward()
        assert all((p.grad is None) == (q.grad is None) and (p.grad is None or torch.equal(p.grad, q.grad))
                   for p, q in zip(model.parameters(), twin.parameters())), i


def test_another_default_type_has_another_recording():
    model, twin = pair(Net)
    step = overdrive.capture(lambda x: model(x), modules=model)
    try:
        for i in range(40):
            torch.set_autocast_dtype("cpu", torch.float16 if i // 10 % 2 else torch.bfloat16)
            assert torch.equal(step(batch(i)[0]), twin(batch(i)[0])), i
    finally:
        torch.set_autocast_dtype("cpu", torch.bfloat16)
    assert step.stats()["replayed"] > 10, step.refusal()


def test_a_backward_under_autocast():
    """Eager's backward then casts operators that the part's does not."""
    def make():
        return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))

    model, twin = pair(make)
    model = overdrive.captured(model)
    for i in range(60):
        for each in (model, twin):
            each.zero_grad()
            x, y = batch(i)
            loss = F.mse_loss(each(x), y)
            with torch.autocast("cpu", enabled=i > 20):
                loss.backward()
        assert same(model, twin), i
    stats = overdrive.part_of(model).stats()
    assert stats["replayed"] > 10 and stats["again"] > 0
    assert "under autocast" in overdrive.part_of(model).refusal()


class Precise(nn.Module):
    """Computes one product in full precision, wherever it is called."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        hidden = self.first(x)
        with torch.autocast("cpu", enabled=False):
            return self.second(hidden.float())


@pytest.mark.parametrize("make", [Precise, lambda: nn.TransformerEncoderLayer(8, 2, 16)], ids=["a block without", "dropout"])
def test_a_backward_outside_of_the_context_of_its_part(make):
    """What the forward computes without autocast, eager's backward does, too: it runs outside."""
    gradients = []
    for is_captured in (False, True):
        torch.manual_seed(0)
        model = make()
        if is_captured:
            overdrive.captured(model)
        seen = []
        for i in range(20):
            model.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(batch(i)[0][None]).square().mean()
            loss.backward()
            seen.append([loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
        gradients.append(seen)
    assert all(all(map(torch.equal, *pair)) for pair in zip(*gradients))
    assert overdrive.part_of(model).stats()["backwards"] > 8


def test_casts_that_a_replay_makes_first_and_another_recording_made_before():
    """A backward meets casts in the order in which they were made, which is not that of the operators that need them. In a later context
    the step makes them itself: a compared replay was an error."""
    def made():
        torch.manual_seed(3)
        model, leaf = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.full((4,), 0.5, requires_grad=True)
        optimizer = torch.optim.SGD([*model.parameters(), leaf], 0.05, momentum=0.9)

        def train(x, y):
            optimizer.zero_grad(set_to_none=False)
            loss = (x * 0.1).square().mean() + model(x).mean() * 0.01 + (leaf * leaf).sum() * 0.01
            loss.backward()
            optimizer.step()
            return x * 1.0, loss

        return model, optimizer, train

    (model, optimizer, train), (twin, _, eager) = pair(made)
    step = overdrive.capture(train, optimizer=optimizer)
    with contextlib.ExitStack() as contexts:
        for i in range(26):
            if i in (1, 13, 19):
                contexts.enter_context(torch.autocast("cpu"))
            elif i in (10, 18):
                contexts.close()
            torch.manual_seed(1 if i < 9 or i > 18 else i)
            x = torch.randn(6, 4)[:3 if i == 2 else 6].clone()
            y = x.clone() if i == 13 else x
            assert all(map(torch.equal, step(x, y), eager(x, y))), i
            assert same(model, twin), i


class Tied(nn.Module):
    """A weight that is used as it is and by autocast's cast of it: its gradients are added in the order of these uses."""

    def __init__(self, uses):
        super().__init__()
        self.weight, self.uses = nn.Parameter(torch.randn(13, 16)), uses

    def forward(self, x, y):
        w = self.weight
        if self.uses == "one, then the cast":
            return F.linear(torch.tanh(F.embedding(x, w)), w)
        if self.uses == "two, then the cast":
            return F.linear(torch.tanh(F.embedding(x, w)) + torch.sin(F.embedding(y, w)), w)
        if self.uses == "one, the cast, another":
            return F.linear(torch.tanh(F.embedding(x, w)), w) + F.embedding(y, w).sum()
        return F.linear(torch.ones(2, 16), w) + F.embedding(x, w).sum() + F.embedding(y, w).mean()


@pytest.mark.parametrize("form", ["part", "step"])
@pytest.mark.parametrize("is_on", ["always", "now and then"])
@pytest.mark.parametrize("uses", ["one, then the cast", "two, then the cast", "one, the cast, another", "the cast, then two"])
def test_the_order_of_a_weights_gradients(uses, is_on, form):
    """Autocast is around the call, and keeps the cast."""

    def run(is_captured):
        torch.manual_seed(0)
        model, seen = Tied(uses), []

        def train(x, y):
            out = model(x, y)
            if form == "step":
                out.float().square().mean().backward()
            return out

        captured = train
        if is_captured:
            captured = overdrive.capture(train, always=True) if form == "step" else overdrive.captured(train, always=True)
        for i in range(30):
            x, y = (torch.randint(0, 13, (2, 5), generator=torch.Generator().manual_seed(2 * i + k)) for k in range(2))
            model.zero_grad()
            with torch.autocast("cpu", enabled=is_on == "always" or i % 3 == 2):
                out = captured(x, y)
            if form == "part":
                out.float().square().mean().backward()
            seen.append(model.weight.grad.clone())
        return seen, captured

    (want, _), (got, captured) = run(False), run(True)
    assert [i for i in range(30) if not torch.equal(want[i], got[i])] == []
    if is_on == "always" and uses in ("one, then the cast", "the cast, then two"):
        assert captured.stats()["replayed"] > 10, captured.refusal()


OTHER = torch.float16
AROUND = {
    "another context": lambda call: call(torch.autocast("cpu", dtype=torch.bfloat16), None, None),
    "cleared between": lambda call: call(None, torch.clear_autocast_cache, None),
    "another type": lambda call: call(None, None, torch.autocast("cpu", dtype=OTHER)),
}


@pytest.mark.parametrize("around", AROUND)
def test_a_backward_under_autocast_leaves_no_casts(around):
    """What comes behind it in the context uses the weights of then."""

    def run(is_captured):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        if is_captured:
            overdrive.captured(model, always=True)
        optimizer, seen = torch.optim.SGD(model.parameters(), 0.5), []

        def step(context, between, inner):
            x = torch.randn(4, 4)
            optimizer.zero_grad()
            with contextlib.ExitStack() as stack:
                if context is None:
                    stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
                    y = model(x)
                else:
                    with torch.autocast("cpu", dtype=torch.bfloat16):
                        y = model(x)
                    stack.enter_context(context)
                if between:
                    between()
                if inner:
                    torch.clear_autocast_cache()
                    stack.enter_context(inner)
                y.float().square().mean().backward()
                optimizer.step()
                seen.append(model(x).detach())

        for _ in range(16):
            AROUND[around](step)
        return seen

    want, got = run(False), run(True)
    assert [i for i in range(16) if not torch.equal(want[i], got[i])] == []


@pytest.mark.parametrize("form", ["part", "step"])
def test_autocast_that_is_on_outside_of_a_context_keeps_its_casts(form):
    """Nobody forgets them, and eager calls use those of the first one for ever."""

    def run(is_captured):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
        optimizer, seen = torch.optim.SGD(model.parameters(), 0.05), []

        def step(x):
            optimizer.zero_grad()
            loss = model(x).float().abs().mean() + 0.1 * model[0].weight.square().sum()
            loss.backward()
            optimizer.step()
            return loss

        made = None
        if is_captured and form == "part":
            made = overdrive.part_of(overdrive.captured(model, always=True))
        elif is_captured:
            made = step = overdrive.capture(step, optimizer=optimizer, always=True)
        try:
            for call in range(32):
                if call in (20, 29):
                    torch.set_autocast_enabled("cpu", call == 20)
                seen += [step(torch.randn(4, 3)).detach().clone(), model[0].weight.detach().clone()]
                if call == 25 and made:
                    assert "outside of a context" in made.refusal()
        finally:
            torch.set_autocast_enabled("cpu", False)
            torch.clear_autocast_cache()
        return seen, made

    (want, _), (got, made) = run(False), run(True)
    assert all(map(torch.equal, want, got))
    assert made.stats()["replayed"] > 14, made.refusal()
