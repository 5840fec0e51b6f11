"""Tensors that a captured step replaces and makes of those that it found: hidden states, averages by assignment, windows of the last values."""
import types

import pytest
import torch
from torch import nn

import overdrive


class Program:
    """Attributes, a layer and its optimizer; `step` and what is `kept` are the program's."""

    def __init__(self, step, before, kept, **places):
        torch.manual_seed(0)
        self.layer, self.cell = nn.Linear(4, 3), nn.GRUCell(4, 3)
        self.optimizer = torch.optim.SGD([*self.layer.parameters(), *self.cell.parameters()], 0.1)
        self.box, self.history = {}, []
        for name, make in places.items():
            setattr(self, name, make())
        self.step_of, self.before, self.kept = step, before, kept

    def update(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def step(self, x, *more):
        return self.step_of(self, x, *more)


def zeros():
    return torch.zeros(3)


def average(p, x):
    y = p.layer(x)
    p.mean = 0.9 * p.mean + 0.1 * y.detach().mean(0)
    return p.update((y - p.mean).square().mean())


def hidden(p, x):
    h = p.cell(x, p.h)
    p.h = h.detach()
    return p.update(h.square().mean() + p.layer(x).mean())


def pair(p, x):
    y = p.layer(x)
    loss = (y - p.pair[0] + 0.5 * p.pair[1]).square().mean()
    p.pair = (y.detach().mean(0), p.pair[0])
    return p.update(loss)


def in_a_dict(p, x):
    y = p.layer(x)
    p.box["m"] = 0.9 * p.box["m"] + 0.1 * y.detach().mean(0)
    p.box["v"] = 0.9 * p.box["v"] + 0.1 * (y.detach() - p.box["m"]).square().mean(0)
    return p.update(((y - p.box["m"]) / (p.box["v"].sqrt() + 1)).square().mean())


def target(p, x):
    weights = p.weights
    y, t = p.layer(x), nn.functional.linear(x, *weights)
    p.weights = [0.95 * w + 0.05 * v.detach() for w, v in zip(weights, p.layer.parameters())]
    return p.update((y - t - 1).square().mean())


def swapped(p, x):
    y = p.layer(x)
    loss = (y - p.a).square().mean() + (y + p.b).abs().mean()
    p.a, p.b = p.b, p.a
    return p.update(loss)


def in_place_first(p, x):
    y = p.layer(x)
    p.mean.mul_(0.5)
    p.mean = p.mean + y.detach().mean(0)
    return p.update((y - p.mean).square().mean())


def window(p, x):
    y = p.layer(x)
    p.last = torch.cat([p.last, y.detach().mean(0, keepdim=True)])[-4:]
    return p.update((y - p.last.mean(0)).square().mean())


def sometimes(p, x, flag=True):
    y = p.layer(x)
    loss = (y - p.mean).square().mean()
    if flag:
        p.mean = 0.9 * p.mean + 0.1 * y.detach().mean(0)
    return p.update(loss)


def begun(p, x):
    h = p.cell(x, torch.zeros(len(x), 3) if p.h is None else p.h)
    p.h = h.detach()
    return p.update(h.square().mean() + p.layer(x).mean())


def total(p, x):
    loss = p.update(p.layer(x).square().mean())
    p.total = p.total + loss
    return loss


STEPS = {
    "an average": (average, lambda p: [p.mean], {"mean": zeros}),
    "a hidden state": (hidden, lambda p: [p.h], {"h": lambda: torch.zeros(5, 3)}),
    "a tuple": (pair, lambda p: [*p.pair], {"pair": lambda: (zeros(), torch.ones(3))}),
    "in a dict": (in_a_dict, lambda p: [*p.box.values()], {"box": lambda: {"m": zeros(), "v": torch.ones(3)}}),
    "a list of weights": (target, lambda p: p.weights, {"weights": lambda: [torch.ones(3, 4), torch.zeros(3)]}),
    "two that change places": (swapped, lambda p: [p.a, p.b], {"a": zeros, "b": lambda: torch.ones(3)}),
    "changed in place first": (in_place_first, lambda p: [p.mean, *p.history], {"mean": zeros}),
    "of sizes that grow": (window, lambda p: [p.last], {"last": lambda: torch.zeros(0, 3)}),
    "in some calls": (sometimes, lambda p: [p.mean], {"mean": zeros}),
    "none at first": (begun, lambda p: [p.h], {"h": lambda: None}),
    "a total": (total, lambda p: [p.total], {"total": lambda: torch.zeros(())}),
}


def nothing(p, call):
    pass


def written_between(p, call):
    """The values of what stands there, another tensor, an alias of it, and the first again."""
    for name in ("mean", "h", "a", "total"):
        tensor = getattr(p, name, None)
        if not isinstance(tensor, torch.Tensor):
            continue
        if call % 9 == 4:
            tensor.mul_(0.5)
        if call % 11 == 7:
            setattr(p, name, torch.full_like(tensor, 0.25))
        if call == 25:
            setattr(p, name, tensor.double().to(tensor.dtype).view_as(tensor))
        p.history.append(tensor)


def run(name, before, captured, calls=50):
    step, kept, places = STEPS[name]
    p = Program(step, before, kept, **places)
    function = overdrive.capture(p.step, optimizer=p.optimizer) if captured else p.step
    seen = []
    for call in range(calls):
        before(p, call)
        more = (call % 3 == 0,) if step is sometimes else ()
        loss = function(torch.randn(5, 4), *more)
        seen.append([each.tolist() for each in (loss, *p.kept(p), *p.history[-3:], *p.layer.parameters(), *p.cell.parameters())])
    return seen, function


@pytest.mark.parametrize("before", [nothing, written_between])
@pytest.mark.parametrize("name", STEPS)
def test_a_tensor_that_is_made_of_the_one_before_goes_on(name, before):
    wanted, _ = run(name, before, False)
    seen, step = run(name, before, True)
    assert seen == wanted
    assert step.stats()["replayed"] > (20 if before is nothing else 10), step.refusal()
    assert step.refusal() == "" or before is written_between


@pytest.mark.parametrize("what", ["an argument", "two places", "a graph"])
def test_one_that_is_something_else_too_makes_the_call_eager(what):
    """A recording takes each input as a tensor of its own."""
    def change(p, call):
        if call >= 20 and what == "two places":
            p.a = p.b
        if call >= 20 and what == "a graph":
            p.a = p.a.clone().requires_grad_()

    def train(captured):
        step, kept, places = STEPS["two that change places"]
        p = Program(step, change, kept, a=lambda: torch.zeros(5, 4), b=lambda: torch.ones(5, 4))
        p.layer = nn.Linear(4, 4)
        p.optimizer = torch.optim.SGD(p.layer.parameters(), 0.1)
        function = overdrive.capture(p.step, optimizer=p.optimizer) if captured else p.step
        seen = []
        for call in range(30):
            change(p, call)
            x = p.a if call >= 20 and what == "an argument" else torch.randn(5, 4)
            seen.append([each.tolist() for each in (function(x), p.a, p.b, *p.layer.parameters())])
        return seen, function

    torch.manual_seed(1)
    wanted, _ = train(False)
    torch.manual_seed(1)
    seen, step = train(True)
    assert seen == wanted
    assert step.stats()["replayed"] > 5, step.refusal()
    assert "one tensor at two places" in step.explain()


class Averaging(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.linear(x) + self.mean


def test_a_buffer_that_is_replaced_in_each_call():
    def train(captured):
        torch.manual_seed(0)
        model, seen = Averaging(), []
        step = (lambda x: model(x).square().mean().detach()) if not captured else overdrive.capture(lambda x: model(x).square().mean().detach())
        for call in range(60):
            if call == 20:
                model.load_state_dict({key: value * 2 for key, value in model.state_dict().items()})
            if call == 30:
                model.mean = torch.ones(4)
            if call == 40:
                model.register_buffer("mean", torch.ones(4) * 3)
            if call == 50:
                model.double().float()
            seen.append([step(torch.randn(5, 4)).item(), model.mean.tolist(), [*model._buffers], [*model.state_dict()]])
        return seen, step

    wanted, _ = train(False)
    seen, step = train(True)
    assert seen == wanted
    assert step.stats()["replayed"] > 25, step.refusal()


def test_a_step_that_carries_tensors_is_not_saved(tmp_path):
    state = types.SimpleNamespace(total=torch.zeros(3))

    def step(x):
        state.total = state.total + x
        return state.total * 2

    captured = overdrive.capture(step)
    for _ in range(12):
        captured(torch.randn(3))
    assert captured.stats()["replayed"] > 3, captured.refusal()
    with pytest.raises(overdrive.OverdriveError, match="cannot be saved: the function finds other tensors in `state.total` from call to call"):
        captured.save(str(tmp_path / "step"))


def test_one_that_is_kept_by_the_program_is_not_written_by_later_calls():
    state, kept = types.SimpleNamespace(total=torch.zeros(3)), []

    def step(x):
        state.total = state.total + x
        return x.sum()

    captured = overdrive.capture(step)
    for _ in range(20):
        captured(torch.ones(3))
        kept.append(state.total)
    assert [each[0].item() for each in kept] == list(range(1, 21))
    assert captured.stats()["replayed"] > 10, captured.refusal()


def test_another_name_of_what_was_found_is_looked_at():
    """The function reads the first tensor by a second name, which stays while the first goes on."""
    def train(captured):
        torch.manual_seed(0)
        one = types.SimpleNamespace(m=torch.zeros(3))
        other = types.SimpleNamespace(m=one.m)

        def function(x):
            one.m = 0.9 * one.m + 0.1 * x
            return (x - one.m).square().mean() + (x - other.m).abs().mean()

        step, seen = overdrive.capture(function) if captured else function, []
        for call in range(60):
            if call > 20 and call % 7 == 0:
                other.m = one.m
            seen.append((step(torch.randn(3)).item(), one.m.tolist(), other.m.tolist()))
        return seen

    assert train(True) == train(False)


GRAPHS = {
    "a hidden state": lambda o, y: setattr(o, "h", (y + o.h).tanh()),
    "a total": lambda o, y: setattr(o, "h", o.h + y.square().mean(0)),
    "a list": lambda o, y: setattr(o, "log", [*o.log, y.mean()]),
    "a tuple": lambda o, y: setattr(o, "log", (*o.log, y.mean())),
}


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_what_goes_on_with_its_graph_is_left_as_it_is(name, always):
    """The backward comes after some calls, and goes through all of them. What replays leave has no graph."""
    def train(captured):
        torch.manual_seed(0)
        layer = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        state, seen = types.SimpleNamespace(h=torch.zeros(3), log=[] if name == "a list" else ()), []

        def function(x):
            y = layer(x)
            GRAPHS[name](state, y)
            return y.detach().sum()

        step = overdrive.capture(function, always=always, check_every=10**6) if captured else function
        for call in range(40):
            step(torch.randn(5, 4))
            if call % 5 == 4:
                optimizer.zero_grad()
                (state.h.sum() + sum(state.log)).backward()
                optimizer.step()
                state.h, state.log = state.h.detach(), type(state.log)()
            seen.append([each.tolist() for each in (state.h, *state.log, *layer.parameters())])
        return seen

    assert train(True) == train(False)


# What the program puts at the place before a call, by the call's number, and what the function does with it; how many calls are replays at least.
GIVEN = {
    "a tensor": ("S.a = torch.randn(4)", "S.a * w", 50),
    "of two sizes": ("S.a = torch.randn(4) if call % 5 else torch.randn(2, 4)", "S.a * w * S.a.dim()", 45),
    "of two types": ("S.a = torch.randn(4).to(torch.float64 if call % 20 > 13 else torch.float32)", "S.a * w * (2 if S.a.dtype == torch.float64 else 1)", 40),
    "strides and offsets": ("S.a = torch.randn(4) if call % 20 < 14 else torch.randn(9)[1:][::2]", "S.a * w * (S.a.stride(0) + S.a.storage_offset())", 40),
    "a version": ("S.a = torch.randn(4); S.a.add_(1) if call // 20 % 2 else None", "S.a * w * (1 + S.a._version)", 40),
    "a question to the data": ("S.a = torch.randn(4)", "S.a * w * (2 if S.a[0] > 0.5 else 1)", 30),
    "in a tuple": ("S.a = (torch.randn(4), torch.randn(2))", "S.a[0] * w + S.a[1].sum()", 50),
    "in a dict, with numbers": ("S.a = {'x': torch.randn(4), 'n': call // 30}", "S.a['x'] * w * S.a['n']", 40),
    "an item of a list": ("S.a = S.a if type(S.a) is list else [None]; S.a[0] = torch.randn(4)", "S.a[0] * w", 50),
    "a key that comes": ("S.a = dict.fromkeys(('x', 'y') if call % 20 > 13 else 'x', torch.randn(4))", "sum(each * w for each in S.a.values())", 30),
    "two names": ("S.a = torch.randn(4); S.b = S.a if call // 20 % 2 else torch.randn(4)", "S.a * w + S.b * 2", 10),
    "views of one tensor": ("S.a = base[call]", "S.a.mul_(2) * w", 50),
    "what the function replaces in some calls": ("S.a = torch.randn(4) if call % 10 < 7 else torch.randn(2, 4)", "reduced() * w", 40),
    "a parameter in turn": ("S.a = (torch.randn(4), w, torch.randn(4, requires_grad=True))[call // 5 % 3]", "S.a * w", 0),
    "of a class of its own": ("S.a = torch.randn(4).as_subclass(Own) if call % 20 > 13 else torch.randn(4)", "S.a * w * (2 if type(S.a) is Own else 1)", 25),
    "another name asks which it is": ("S.a, S.b = (torch.randn(4), None) if call % 3 else (S.a, S.a)", "S.a * w * (2 if S.a is S.b else 1)", 0),
    "an attribute of the tensor": ("S.a = torch.randn(4); S.a.scale = call // 20", "S.a * w * S.a.scale", 0),
}


@pytest.mark.parametrize("where", ["an attribute", "a variable"])
@pytest.mark.parametrize("kind", GIVEN)
def test_tensors_that_the_program_puts_at_a_place_are_inputs(kind, where):
    put, uses, least = GIVEN[kind]
    lines = [f"def put(call):\n    {put}",
             "def reduced():\n    if S.a.dim() == 2:\n        S.a = S.a.sum(0)\n    return S.a",
             f"def function():\n    w.grad = None\n    y = ({uses}).sum()\n    y.backward()\n    return y.detach()"]
    if where == "a variable":
        lines = [line.replace("S.", "") for line in lines]
        lines = [line.replace(":\n", ":\n    global a, b\n", 1) for line in lines]

    def train(is_captured):
        torch.manual_seed(0)

        class Own(torch.Tensor):
            pass

        program = {"torch": torch, "w": torch.ones(4, requires_grad=True), "base": torch.randn(80, 4), "Own": Own,
                   "S": types.SimpleNamespace(a=torch.ones(4), b=torch.ones(4)), "a": torch.ones(4), "b": torch.ones(4)}
        exec("\n".join(lines), program)  # noqa: S102 - made here
        step = overdrive.capture(program["function"], check_every=10 ** 6, always=True) if is_captured else program["function"]
        seen = []
        for call in range(80):
            program["put"](call)
            result = step()
            now = program["S"].a if where == "an attribute" else program["a"]
            seen.append((result.tolist(), program["w"].grad.tolist(), program["base"].tolist(),
                         now.tolist() if isinstance(now, torch.Tensor) else None))
        return seen, step

    seen, step = train(True)
    assert seen == train(False)[0]
    assert step.stats()["replayed"] >= least, step.refusal()
