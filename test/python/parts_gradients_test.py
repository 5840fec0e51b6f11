"""Captured parts whose functions do something with the gradients of parameters, beside what their graph gives them."""
import contextlib
import types

import pytest
import torch
from torch import nn

import overdrive


def net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def by_hand(model, _):
    for parameter in model.parameters():
        parameter.grad = None


TAKING = {
    "zero_grad of a module": lambda model, _: model.zero_grad(),
    "zero_grad of an optimizer": lambda _, optimizer: optimizer.zero_grad(),
    "zeros": lambda _, optimizer: optimizer.zero_grad(set_to_none=False),
    "by hand": by_hand,
}


def run(take, is_captured, step, calls=40):
    """What a program leaves, in which the captured function takes the gradients away before its forward."""
    torch.manual_seed(0)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)

    def loss(x):
        take(model, optimizer)
        return model(x).square().mean()

    part = overdrive.captured(loss) if is_captured else loss
    left = []
    for call in range(calls):
        step(call, part, model, optimizer)
        left.append([p.detach().clone() for p in model.parameters()])
        left.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
    return left, part


def are_equal(a, b):
    return all((x is None) == (y is None) and (x is None or torch.equal(x, y)) for p, q in zip(a, b) for x, y in zip(p, q))


def each(_, part, __, optimizer):
    part(torch.randn(8, 6)).backward()
    optimizer.step()


def empty_while_recorded(call, part, _, optimizer):
    if call < 10 or call % 7 == 0:
        optimizer.zero_grad()
    part(torch.randn(8, 6)).backward()
    optimizer.step()


def two_forms(call, part, model, optimizer):
    loss = part(torch.randn(8, 6))
    if call % 5 == 4:
        # A gradient between the forward and the backward, which the function must not take when it runs once more.
        model[2].bias.square().sum().backward()
        loss.backward(inputs=[model[2].bias])
    else:
        loss.backward()
    optimizer.step()


@pytest.mark.parametrize("step", [each, empty_while_recorded, two_forms])
@pytest.mark.parametrize("name", TAKING)
def test_gradients_that_the_function_takes_away(name, step, monkeypatch):
    monkeypatch.setenv("OVERDRIVE_CAPTURE_CHECK", "0")
    expected, _ = run(TAKING[name], False, step)
    left, part = run(TAKING[name], True, step)
    assert are_equal(expected, left), part.explain()
    assert part.stats()["replayed"] > 10 or part.refusal(), part.explain()


def test_gradients_of_another_module():
    """zero_grad() of a discriminator in the loss of a generator, which does not use all of it."""
    def train(is_captured):
        torch.manual_seed(0)
        model, other = net(), nn.Linear(6, 2)

        def loss(x):
            other.zero_grad()
            return model(x).square().mean()

        part, left = overdrive.captured(loss) if is_captured else loss, []
        for _ in range(24):
            other(torch.randn(3, 6)).sum().backward()
            part(torch.randn(8, 6)).backward()
            left.append([other.weight.grad, other.bias.grad])
        return left, part

    expected, _ = train(False)
    left, part = train(True)
    assert are_equal(expected, left), part.explain()
    assert part.stats()["replayed"] > 10, part.explain()


def accumulated(model, loss, is_captured, every):
    """Gradients after each call; from the tenth on they are taken away in every n-th call alone."""
    part, left = overdrive.captured(loss) if is_captured else loss, []
    for call in range(40):
        if call < 10 or call % every == 0:
            model.zero_grad()
        part(torch.randn(8, 6)).backward()
        left.append([p.grad.clone() for p in model.parameters()])
    return left, part


def test_a_gradient_that_comes_late_is_left_alone():
    """Recordings met none. One call more is compared, and gradients are added up from then on."""
    def train(is_captured):
        torch.manual_seed(0)
        model = net()
        return accumulated(model, lambda x: model(x).square().mean(), is_captured, every=4)

    expected, _ = train(False)
    left, part = train(True)
    assert are_equal(expected, left), part.explain()
    assert part.stats()["replayed"] > 30 and not part.refusal(), part.explain()


def test_a_function_that_asks_whether_there_is_a_gradient():
    def train(is_captured):
        torch.manual_seed(0)
        model = nn.Linear(6, 4)

        def loss(x):
            y = model(x).tanh()
            return y.sum() if model.weight.grad is None else y.square().sum() * 3

        return accumulated(model, loss, is_captured, every=3)

    expected, _ = train(False)
    left, part = train(True)
    assert are_equal(expected, left), part.explain()


def test_the_gradient_of_an_argument():
    def take(x):
        x.grad = None
        return x.square().sum()

    part = overdrive.captured(take)
    x = torch.randn(4, requires_grad=True)
    for _ in range(24):
        part(x).backward()
        assert torch.equal(x.grad, 2 * x.detach())
    assert part.refusal()


@pytest.mark.parametrize("captured", [lambda f, o: overdrive.capture(f, optimizer=o), lambda f, _: overdrive.captured(f)])
@pytest.mark.parametrize("is_switched_outside", [False, True])
def test_a_flag_that_the_function_switches_on_and_off(captured, is_switched_outside):
    """Guards do not look at the gradient of a parameter that requires none: the .grad of an earlier call would stay."""
    def train(is_captured):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=.1)

        def step(x):
            model.weight.requires_grad_(True)
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            model.weight.requires_grad_(False)
            return loss.detach()

        function, left = captured(step, optimizer) if is_captured else step, []
        for call in range(24):
            if is_switched_outside and call % 4 == 3:
                model.weight.requires_grad_(True)
            loss = function(torch.randn(8, 3))
            left.append([loss, model.weight.detach().clone(), model.weight.grad.clone()])
        return left, function

    expected, _ = train(False)
    left, function = train(True)
    assert are_equal(expected, left), function.explain()
    assert function.refusal()


@pytest.mark.parametrize("is_hooked", [False, True])
@pytest.mark.parametrize("frozen_before", [False, True])
def test_flags_that_change_between_a_forward_and_its_backward(frozen_before, is_hooked):
    """In a form that is not recorded, the function runs once more, with the flags of the forward."""
    def train(is_captured):
        torch.manual_seed(0)
        model, left, part = net(), [], None
        if is_hooked:
            model[2].bias.register_hook(lambda gradient: gradient * 2)
        if is_captured:
            part = overdrive.captured(model)
        for i in range(20):
            model.zero_grad()
            model[0].requires_grad_(not frozen_before)
            y = model(torch.randn(8, 6))
            if i == 9:
                model[0].requires_grad_(frozen_before)
            if i == 12:
                model.requires_grad_(False)
            (y.square().mean() if i < 8 else y.sum()).backward()
            left.append([p.requires_grad for p in model.parameters()])
            model.requires_grad_(True)
            left[-1] = [torch.tensor(left[-1]), *(p.grad for p in model.parameters())]
        return left, part

    expected, _ = train(False)
    left, part = train(True)
    assert are_equal(expected, left), overdrive.part_of(part).explain()
    assert overdrive.part_of(part).stats()["again"] > 0


def test_a_weight_that_changes_before_a_backward_of_an_unrecorded_form():
    """Nothing has the old weight any more, and the function cannot run once more: an error, once."""
    torch.manual_seed(0)
    model, errors = nn.Linear(6, 6), []
    overdrive.captured(model)
    for i in range(30):
        model.zero_grad()
        x = torch.randn(8, 6)
        y = model(x)
        if i > 8:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(.99)
        try:
            (y.square().mean() if i < 12 else y.sum()).backward()
        except RuntimeError as error:
            errors.append((i, str(error)))
        else:
            if i >= 12:
                assert torch.equal(model.bias.grad, torch.full((6,), 8.))
    assert [i for i, _ in errors] == [12] and "gradients of this form" in errors[0][1]


def test_gradients_that_the_function_fills_with_zeros_where_they_come_and_go():
    layer = nn.Linear(4, 4)

    def function(x):
        layer.zero_grad(set_to_none=False)
        return layer(x).tanh()

    part = overdrive.captured(function)
    for i in range(60):
        if i % 3 == 0:
            layer.zero_grad()
        part(torch.randn(2, 4)).sum().backward()
    assert "zero_grad(set_to_none=False) does, call that outside" in part.refusal()


class Doubled(torch.autograd.Function):
    """Notes that its backward runs."""

    @staticmethod
    def forward(ctx, x, log):
        ctx.log = log
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        ctx.log.append("function")
        return gradient * 2, None


def changed(y, _):
    z = y.exp()
    total = z * 1
    z.detach().mul_(2)
    return total


def hooked(y, log):
    z = y * 2
    z.register_hook(lambda gradient: log.append(gradient is None))
    return z


def hooked_itself(y, log):
    y.register_hook(lambda gradient: log.append(gradient is None))
    return y


BESIDE = {"a saved result that is changed": changed, "a hook": hooked, "a hook on the output": hooked_itself, "a function of Python": Doubled.apply,
          "nothing that can be seen": lambda y, _: y * y}


def two_heads(is_captured, backward, begin, beside, feeds=False, calls=24):
    """What a program leaves in which a part has two outputs; from call `begin` on its backward needs one of them."""
    torch.manual_seed(0)
    first, second = (torch.randn(4, 4, requires_grad=True) for _ in range(2))

    def heads(x):
        y = x @ second
        return (y if feeds else x) @ first, y

    part = overdrive.captured(heads) if is_captured else heads
    left, errors = [], []
    for call in range(calls):
        log = []
        first.grad = second.grad = None
        one, other = part(torch.randn(3, 4))
        beside_it = BESIDE[beside](other, log)
        try:
            backward(one.sum(), beside_it.sum(), first if call >= begin else None)
        except RuntimeError as error:
            errors.append((call, str(error)))
            continue
        left.append((call, log, [None if p.grad is None else p.grad.clone() for p in (first, second)]))
    return left, errors, part


def equal_calls(want, got):
    return all(a[:2] == b[:2] and are_equal([a[2]], [b[2]]) for a, b in zip(want, got)) and len(want) == len(got)


def of_one_tensor(one, other, wanted):
    (one + other).backward(inputs=[wanted] if wanted is not None else None)


@pytest.mark.parametrize("begin", [0, 12])
@pytest.mark.parametrize("beside", BESIDE)
def test_a_backward_for_some_tensors_that_leaves_out_an_output(beside, begin, monkeypatch):
    """Eager code runs nothing that is computed of the output. What runs is an error once, and the part is refused."""
    monkeypatch.setenv("OVERDRIVE_CAPTURE_ALWAYS", "1")
    if beside == "a saved result that is changed" and begin:
        pytest.skip("the first calls would be errors in eager code, too")
    want, none, _ = two_heads(False, of_one_tensor, begin, beside)
    assert not none
    got, errors, part = two_heads(True, of_one_tensor, begin, beside)
    assert [call for call, _ in errors] in ([], [begin]), errors
    assert all("needs an output of the captured part and not another one" in text for _, text in errors)
    assert begin or not errors
    assert equal_calls([row for row in want if row[0] not in dict(errors)], got)
    assert "needs an output of the captured part and not another one" in part.refusal() + "".join(text for _, text in errors)
    assert part.stats()["replayed"] > 0 or not begin


@pytest.mark.parametrize("begin", [0, 12])
def test_a_hook_on_an_output_without_a_gradient_does_not_run(begin, monkeypatch):
    monkeypatch.setenv("OVERDRIVE_CAPTURE_ALWAYS", "1")

    def backward(one, other, wanted):
        (one + other if wanted is None else one).backward()

    want, _, _ = two_heads(False, backward, begin, "a hook on the output")
    got, errors, part = two_heads(True, backward, begin, "a hook on the output")
    assert not errors and equal_calls(want, got)
    assert part.stats()["replayed"] > 8, part.refusal()


@pytest.mark.parametrize("begin", [0, 12])
def test_a_hook_on_an_output_that_another_one_is_made_of(begin, monkeypatch):
    """The hook sees the gradient of both in eager code, and a replay knows none inside."""
    monkeypatch.setenv("OVERDRIVE_CAPTURE_ALWAYS", "1")

    def backward(one, other, wanted):
        (one + other if wanted is None else one).backward()

    want, _, _ = two_heads(False, backward, begin, "a hook on the output", feeds=True)
    got, errors, part = two_heads(True, backward, begin, "a hook on the output", feeds=True)
    assert not errors and equal_calls(want, got)
    assert "has a hook" in part.refusal()


def test_a_late_hook_on_an_output_that_another_one_is_made_of(monkeypatch):
    monkeypatch.setenv("OVERDRIVE_CAPTURE_ALWAYS", "1")
    weight = torch.randn(4, 4, requires_grad=True)

    @overdrive.captured
    def heads(x):
        y = x @ weight
        return y.tanh(), y

    for _ in range(12):
        heads(torch.randn(3, 4))[0].sum().backward()
    assert heads.stats()["replayed"] > 0
    one, other = heads(torch.randn(3, 4))
    other.retain_grad()
    with pytest.raises(RuntimeError, match="has a hook"):
        one.sum().backward()
    one, other = heads(torch.randn(3, 4))
    other.retain_grad()
    one.sum().backward()
    assert torch.allclose(other.grad, 1 - one.detach() ** 2)


def test_a_late_hook_on_an_output_whose_own_gradient_is_all_there_is(monkeypatch):
    """Another output is made of it, but the backward does not come from there."""
    monkeypatch.setenv("OVERDRIVE_CAPTURE_ALWAYS", "1")

    def train(wrapped):
        torch.manual_seed(0)
        weight, left = torch.randn(4, 4, requires_grad=True), []

        def heads(x):
            y = x @ weight
            return y, y.tanh()

        part = wrapped(heads)
        for call in range(24):
            one, _ = part(torch.randn(3, 4))
            if call >= 12:
                one.retain_grad()
                one.register_hook(lambda gradient: gradient * 3)
            one.square().sum().backward()
            left += [weight.grad.clone(), *([one.grad] if call >= 12 else [])]
        return left, part

    (want, _), (got, part) = train(lambda function: function), train(overdrive.captured)
    assert are_equal(want, got)
    assert part.stats()["replayed"] > 10, part.refusal()


def test_a_backward_through_a_part_has_a_task_only_where_something_may_ask_for_it():
    overdrive.install()
    try:
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        part = overdrive.captured(lambda x: model(x), always=True)

        def frames_of(backward):
            result = part(torch.ones(2, 4))
            before = overdrive.stats()["frames_elided"]
            backward(result.sum())
            return 1 - (overdrive.stats()["frames_elided"] - before)

        for _ in range(12):
            frames_of(torch.Tensor.backward)
        replayed = part.stats()["replayed"]
        assert frames_of(torch.Tensor.backward) == 0
        assert frames_of(lambda loss: loss.backward(inputs=[model[0].bias])) == 1
        handle = model[0].weight.register_hook(lambda gradient: None)
        assert frames_of(torch.Tensor.backward) == 1
        handle.remove()
        assert part.stats()["replayed"] > replayed
    finally:
        overdrive.uninstall()


class Encoder(nn.Module):
    """As a variational autoencoder has it: the first output is made of the others, and the loss may use all."""

    def __init__(self):
        super().__init__()
        self.mean, self.spread, self.decode = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(3, 6)

    def forward(self, x):
        mean, spread = self.mean(x), self.spread(x)
        return self.decode(mean + spread.exp()), mean, spread


@pytest.mark.parametrize("used", [(0,), (0, 1), (0, 1, 2), (1, 2)])
@pytest.mark.parametrize("is_installed", [False, True])
def test_an_output_that_another_is_made_of(used, is_installed):
    """Which of them the loss uses is seen in the first call, so that the first recording has their gradients."""
    def run(capture):
        torch.manual_seed(0)
        model = Encoder()
        capture(model)
        left = []
        for i in range(12):
            outputs = model(torch.full((4, 6), 0.1 * i))
            sum((outputs[each] * outputs[each]).mean() for each in used).backward()
            left.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        return left, model

    expected, _ = run(lambda model: model)
    with overdrive.engine() if is_installed else contextlib.nullcontext():
        got, model = run(overdrive.captured)
    assert all(torch.equal(a, b) for one, other in zip(expected, got) for a, b in zip(one, other))
    stats = overdrive.part_of(model).stats()
    assert stats["replayed"] > 6 and stats["again"] == 0, (stats, overdrive.part_of(model).explain())


class Doubled(torch.nn.Module):
    """The same values, and another gradient."""

    def forward(self, x):
        return x.detach() + (x - x.detach()) * 2


@pytest.mark.parametrize("change", [
    lambda net: net.__setitem__(1, Doubled()), lambda net: net.append(Doubled()), lambda net: net[1].register_forward_hook(lambda *_: Doubled()(_[2])),
], ids=["a child", "another child", "a hook"])
def test_a_model_that_is_rebuilt_before_a_backward_of_another_form(change):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    part, x = overdrive.captured(net), torch.ones(2, 4, requires_grad=True)
    for _ in range(12):
        part(x).sum().backward()
    y = part(x)
    change(net)
    with pytest.raises(RuntimeError, match="a parameter, buffer, child or hook of .* was changed between the call and its backward"):
        torch.autograd.grad(y.sum(), x)


def test_a_part_may_open_a_level_of_its_own():
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    part = overdrive.captured(lambda x, v: torch.func.jvp(net, (x,), (v,)))
    for seed in range(12):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        value, tangent = part(x, torch.ones_like(x))
        expected, other = torch.func.jvp(net, (x,), (torch.ones_like(x),))
        assert torch.equal(value, expected) and torch.equal(tangent, other)
        assert all(map(torch.equal, *(torch.autograd.grad(a.sum() + b.square().sum(), net[0].weight) for a, b in ((value, tangent), (expected, other)))))
    assert part.stats()["replayed"] > 0, part.refusal()


CHANGES = {
    "memory of a tensor": ("box.mean.data = x.mean(0)", "other memory"), "memory of a buffer": ("net.rate.data = net.rate + 1", "other memory"),
    "a hook of a parameter": ("net[0].weight.register_hook(lambda g: g * 1.5)", "a hook of a tensor"),
    "a hook of a module": ("net[1].register_forward_pre_hook(lambda *_: None)", "child or hook of Tanh")}


@pytest.mark.parametrize("kind", CHANGES)
def test_what_the_function_of_a_part_changes_beside_its_results(kind):
    line, reason = CHANGES[kind]
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net, box = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), types.SimpleNamespace(mean=torch.zeros(4))
        net.register_buffer("rate", torch.zeros(()))
        program = {"net": net, "box": box}
        exec(f"def function(x):\n    {line}\n    return net(x) * net.rate + net(x)", program)
        part, seen = overdrive.captured(program["function"]) if captured else program["function"], []
        for seed in range(14):
            part(torch.randn(2, 4, generator=torch.Generator().manual_seed(seed))).sum().backward()
            seen.append((net[0].weight.grad.tolist(), box.mean.tolist(), net.rate.item(), len(net[1]._forward_pre_hooks)))
        sides.append(seen)
    assert sides[0] == sides[1]
    assert reason in part.refusal(), part.refusal()


@pytest.mark.parametrize("make", [lambda: nn.ReLU(inplace=True), lambda: nn.ELU(inplace=True), lambda: nn.Sequential(nn.SiLU(inplace=True)),
                                  lambda: (lambda x: x.mul_(2).tanh_())], ids=["ReLU", "ELU", "in a Sequential", "a function"])
def test_a_part_that_only_changes_its_input(make):
    """Its result is the input, and no other output has a graph."""
    sides = []
    for captured in (False, True):
        activation = overdrive.captured(make()) if captured else make()
        gradients = []
        for seed in range(16):
            z = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed), requires_grad=True)
            h = z * 3
            (activation(h).square().sum() + h.sum()).backward()
            gradients.append(z.grad.tolist())
        sides.append(gradients)
    assert sides[0] == sides[1]
    with torch.no_grad():
        for seed in range(16):
            x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
            assert torch.equal(activation(x.clone()), make()(x.clone()))


ASKED = {
    "grad": lambda loss, logits, weight: torch.autograd.grad(loss, [logits], allow_unused=True),
    "grad of a weight, too": lambda loss, logits, weight: torch.autograd.grad(loss, [weight, logits], allow_unused=True),
    "grad at an edge": lambda loss, logits, weight: torch.autograd.grad(loss, [torch.autograd.graph.get_gradient_edge(logits)], allow_unused=True),
    "inputs": lambda loss, logits, weight: loss.backward(inputs=[logits]) or [logits.grad],
    "inputs with a weight": lambda loss, logits, weight: loss.backward(inputs=[weight, logits]) or [logits.grad],
}


@pytest.mark.parametrize("is_installed", [False, True])
@pytest.mark.parametrize("asked", ASKED)
def test_the_gradient_of_an_output_that_another_one_is_made_of(asked, is_installed, monkeypatch):
    """As models return logits and loss. A replay does not know it and says so; eager calls, which follow, do."""
    monkeypatch.setenv("OVERDRIVE_CAPTURE_ALWAYS", "1")
    torch.manual_seed(0)
    weight = torch.randn(4, 3, requires_grad=True)

    def plain(x, y):
        logits = x @ weight
        return logits, torch.nn.functional.cross_entropy(logits, y)

    part, data = overdrive.captured(plain), [(torch.randn(6, 4), torch.randint(0, 3, (6,))) for _ in range(14)]
    if is_installed:
        overdrive.install()
    try:
        for x, y in data[:12]:
            part(x, y)[1].backward()
        assert part.stats()["replayed"] > 4
        logits, loss = part(*data[12])
        with pytest.raises(RuntimeError, match="that grad\\(\\) asks for"):
            ASKED[asked](loss, logits, weight)
        want, got = ([*ASKED[asked](*reversed(function(*data[13])), weight)] for function in (plain, part))
        assert are_equal([want], [got])
    finally:
        overdrive.uninstall()
