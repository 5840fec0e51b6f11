"""What a captured function leaves in attributes and variables: a replay makes it anew, with its graph."""
import operator
import types
from collections import namedtuple

import pytest
import torch
from torch import nn

import overdrive
from overdrive.reads.code import Found
from overdrive.values.reads import Held


def batch(i, *sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(i))


def train(make, use, captured, steps=20):
    """A training by `use`, which makes a loss of the module, its output and its input."""
    torch.manual_seed(0)
    net = make()
    if captured:
        overdrive.captured(net)
    seen = []
    for i in range(steps):
        x = batch(i, 3 + (i > 14), 4)
        net.zero_grad()
        loss = use(net, net(x), x)
        loss.backward()
        seen.append((loss.item(), [p.grad.tolist() for p in net.parameters()]))
    return seen, net


class Expert(nn.Module):
    """An auxiliary loss in an attribute, as mixtures of experts have it."""

    def __init__(self):
        super().__init__()
        self.gate, self.out = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        gates = self.gate(x).softmax(1)
        self.auxiliary = gates.square().mean()
        return self.out(x * gates)


class Holding(nn.Module):
    """Its output without a graph, its input, and a dict of its own."""

    def __init__(self):
        super().__init__()
        self.net, self.store = nn.Linear(4, 2), {"mask": None}

    def forward(self, x):
        out = self.net(x).tanh()
        self.output, self.given, self.store["mask"] = out.detach(), x, (x > 0).sum(1)
        return out


class Distribution:
    def __init__(self, logits):
        self.logits, self.name = logits, "categorical"

    def log_prob(self, action):
        return self.logits.log_softmax(1)[:, action]


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.distribution = nn.Linear(4, 3), None

    def forward(self, x):
        self.distribution = Distribution(self.net(x))
        return self.distribution.log_prob(1)


class Shared(nn.Module):
    """The same tensor as a result and in an attribute."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 2)

    def forward(self, x):
        self.last = self.net(x).sigmoid()
        return self.last


USES = {
    Expert: lambda net, out, x: out.square().mean() + 0.1 * net.auxiliary,
    Holding: lambda net, out, x: (out * net.output).sum() + (out.sum(1) * net.store["mask"]).sum() + (net.given * x).sum(),
    Policy: lambda net, out, x: out.mean() + net.distribution.log_prob(2).square().mean() + len(net.distribution.name),
    Shared: lambda net, out, x: out.sum() + net.last.square().sum(),
}


@pytest.mark.parametrize("make", USES)
def test_what_a_module_leaves_has_the_bits_and_the_graph(make):
    wanted, _ = train(make, USES[make], captured=False)
    seen, net = train(make, USES[make], captured=True)
    assert seen == wanted
    assert overdrive.part_of(net).stats()["replayed"] > 8, overdrive.part_of(net).refusal()


def test_what_was_left_is_not_changed_by_the_next_call():
    net = overdrive.captured(Expert())
    kept = []
    for i in range(12):
        net(batch(i, 3, 4)).sum().backward()
        kept.append((net.auxiliary, net.auxiliary.item()))
    assert all(tensor.item() == number for tensor, number in kept)


def test_a_variable_of_a_closure():
    net = nn.Linear(4, 2)

    def make(capture):
        last = None

        def function(x):
            nonlocal last
            last = net(x).exp()
            return last.sum() * 2

        captured = capture(function)
        return captured, lambda x: (captured(x), last)[1]

    plain, (part, call) = make(lambda f: f)[1], make(overdrive.captured)
    for i in range(12):
        assert torch.equal(call(batch(i, 3, 4)), plain(batch(i, 3, 4)))
    assert part.stats()["replayed"] == 0 or part.refusal() == ""


def test_a_whole_step_leaves_its_last_loss():
    class Trainer:
        def __init__(self):
            torch.manual_seed(0)
            self.net = nn.Linear(4, 2)
            self.optimizer = torch.optim.Adam(self.net.parameters())
            self.last_loss = None

        def train(self, x):
            self.optimizer.zero_grad()
            loss = self.net(x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.last_loss = loss.detach()
            return loss

    eager, captured = Trainer(), Trainer()
    step = overdrive.capture(captured.train, optimizer=captured.optimizer)
    for i in range(20):
        eager.train(batch(i, 3, 4))
        step(batch(i, 3, 4))
        assert captured.last_loss.item() == eager.last_loss.item(), i
    assert step.stats()["replayed"] > 10, step.refusal()


class Recurrent(nn.Module):
    """State that goes on from call to call is no result alone."""

    def __init__(self):
        super().__init__()
        self.net, self.state = nn.Linear(4, 4), torch.zeros(1, 4)

    def forward(self, x):
        self.state = torch.tanh(self.net(x) + self.state).detach()
        return self.net(self.state)


def test_state_that_goes_on_is_right():
    def run(captured):
        torch.manual_seed(0)
        net, seen = Recurrent(), []
        if captured:
            overdrive.captured(net)
        for i in range(20):
            out = net(batch(i, 1, 4))
            out.sum().backward()
            seen.append((out.tolist(), net.state.tolist()))
        return seen

    assert run(True) == run(False)
    eager, captured = Recurrent(), Recurrent()
    captured.load_state_dict(eager.state_dict())
    step = overdrive.capture(lambda x: captured(x))
    for i in range(20):
        assert torch.equal(step(batch(i, 1, 4)), eager(batch(i, 1, 4)))


def test_attributes_stay_when_the_function_runs_again_in_a_backward():
    def run(captured):
        torch.manual_seed(0)
        net = Expert()
        if captured:
            overdrive.captured(net)
        seen = []
        for i in range(12):
            x = batch(i, 3, 4).requires_grad_(i > 8)
            out, auxiliary = net(x), net.auxiliary
            if i > 8:  # second derivatives, which a replay has not
                slope, = torch.autograd.grad(out.square().sum(), x, create_graph=True)
                slope.square().sum().backward()
            else:
                (out.sum() + auxiliary).backward()
            seen.append([auxiliary.item(), net.auxiliary.item(), net.auxiliary is auxiliary])
        return seen

    assert run(True) == run(False)


class Rare(nn.Module):
    """Leaves a tensor in some calls, which have another program than the others."""

    def __init__(self):
        super().__init__()
        self.net, self.largest = nn.Linear(4, 4), None

    def forward(self, x):
        out = self.net(x).tanh()
        if x.max() > 8:
            self.largest = out.detach().max()
        return out.sum()


@pytest.mark.parametrize("cleared", [(8,), (), (8, 25), (25,)])
@pytest.mark.parametrize("as_part", [False, True], ids=["step", "part"])
def test_a_place_that_only_rare_calls_write_is_left_alone_by_the_others(as_part, cleared):
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = Rare()

        def whole(x, net=net):
            for p in net.parameters():
                p.grad = None
            loss = net(x)
            loss.backward()
            return loss

        step = whole
        if captured and as_part:
            overdrive.captured(net, check_every=5)
        elif captured:
            step = overdrive.capture(whole, check_every=5)
        seen = []
        for i in range(60):
            x = torch.randn(3, 4, generator=torch.Generator().manual_seed(i)).clamp(-3, 3)
            x[0, 0] = 9 if i in (7, 30, 44) else 0
            if i in cleared:
                net.largest = None
            seen.append((step(x).item(), net.net.weight.grad.tolist(), None if net.largest is None else net.largest.item()))
        sides.append(seen)
        part = overdrive.part_of(net) if as_part else step
    assert sides[0] == sides[1]
    assert part.stats()["replayed"] > 20, part.explain()


class Place:
    def __init__(self):
        self.log = []


@pytest.mark.parametrize("kind", [list, dict, set])
def test_an_empty_container_is_another_one_after_each_call(kind):
    place, kept = Place(), []

    def function(x):
        place.log = kind()
        return x * 2

    place.log = kind()
    step = overdrive.capture(function)
    for i in range(12):
        step(batch(i, 3))
        assert place.log == kind() and all(place.log is not each for each in kept)
        kept.append(place.log)
    assert step.stats()["replayed"] > 4, step.explain()


def test_an_empty_container_that_is_read_and_kept_is_refused_by_name():
    place, kept = Place(), []

    def function(x):
        count = len(place.log)
        place.log = []
        return x * (count + 2)

    step = overdrive.capture(function)
    for i in range(12):
        step(batch(i, 3))
        assert all(place.log is not each for each in kept)
        kept.append(place.log)
    assert "`place.log`" in step.refusal() and "the program keeps the one before" in step.refusal()
    assert step.refusal().endswith("outside of the function."), "what is found after the function has run has no line of it"


@pytest.mark.parametrize("holder, is_held", [(lambda value: Found({id(value): value}), False), (lambda value: Held([value]), False),
                                             (lambda value: {"before": value}, True)], ids=["found", "compared", "program"])
def test_what_looks_for_values_does_not_keep_them_for_the_program(holder, is_held):
    """tensordict gives a list anew in each call, and what had met the one before was taken for the program."""
    step, before = overdrive.capture(lambda x: x * 2), []
    keeper = holder(before)
    assert step._learner._is_held(before) is is_held and len(keeper) == 1


class WithLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)


def sharpness_aware(model, x):
    """SAM, as it is usually written."""
    old = [parameter.data.clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.data.add_(0.1)
    model.linear(x).square().mean().backward()
    for parameter, before in zip(model.parameters(), old):
        parameter.data = before
    return model.linear(x).sum()


def test_a_parameter_that_is_another_in_each_call_is_told_by_its_name():
    """The recorder sees memory that died, and told of from_blob()."""
    model = WithLinear()
    step = overdrive.capture(lambda x: sharpness_aware(model, x))
    for _ in range(6):
        step(torch.randn(5, 4))
    assert step.stats()["replayed"] == 0
    where = f"capture_left_test.py:{sharpness_aware.__code__.co_firstlineno + 7}"
    assert "`Linear.weight`" in step.refusal() and where in step.refusal(), step.refusal()


class Averaging(torch.nn.Module):
    def __init__(self, is_buffer):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        if is_buffer:
            self.register_buffer("mean", torch.zeros(2))
        else:
            self.mean = torch.zeros(2)

    def forward(self, x):
        y = self.layer(x)
        self.mean = 0.9 * self.mean + 0.1 * y.detach()
        return y + self.mean


@pytest.mark.parametrize("is_buffer", [False, True], ids=["attribute", "buffer"])
def test_a_part_that_puts_another_tensor_in_place_of_one_is_told_to_copy(is_buffer):
    module = overdrive.captured(Averaging(is_buffer))
    for _ in range(12):
        module(torch.randn(2)).sum().backward()
    assert "keep one tensor, and copy values into it (copy_)" in overdrive.part_of(module).refusal()


@pytest.mark.parametrize("detach", [False, True])
def test_what_a_recorded_call_leaves_is_not_written_by_replays(detach):
    """The program keeps what each call has left, as a list of losses does."""
    class Training:
        def __init__(self):
            torch.manual_seed(0)
            self.w = torch.nn.Parameter(torch.randn(8))

        def step(self, x):
            self.w.grad = None
            loss = (x * self.w).square().mean()
            loss.backward()
            self.last = loss.detach() if detach else loss
            return loss

    kept = {}
    for captured in (False, True):
        training, kept[captured] = Training(), []
        step = overdrive.capture(training.step) if captured else training.step
        for call in range(12):
            torch.manual_seed(call)
            step(torch.randn(8))
            kept[captured].append(training.last)
    assert step.stats()["replayed"] > 5, step.refusal()
    assert [one.item() for one in kept[True]] == [one.item() for one in kept[False]]


class Numbered(namedtuple("Numbered", "t k")):
    def __new__(cls, t, k):
        return super().__new__(cls, t, k * 2)


class Plain:
    def __repr__(self):
        return f"Plain({vars(self)})"


RESULTS = {
    "a dict that it has": ("box.d['t'] = x.sum(); return box.d", "result['t'].add_(1)", "a dict that the program has"),
    "a list that it has": ("return x.sum(), box.l", "result[1][:] = [1.0]", "a list that the program has"),
    "a dict that it leaves": ("box.new = {'t': x.sum()}; return box.new", "result['seen'] = 1", "a dict that the program has"),
    "an object that it leaves": ("o = Plain(); o.t = x.sum(); box.new = o; return o", "result.t.add_(1)", "a Plain that the program has"),
    "one list twice": ("l = [x.sum()]; return l, l", "result[0].append(result[1][0])", "a list that the program has"),
    "a list in what it leaves": ("box.new = (x.sum(), box.l); return x.mean()", "box.new[1][:] = [1.0]", "a list that the program has"),
    "a tensor with attributes": ("y = x.sum(); y.k = 2.0; return y", "box.k = result.k", "a tensor with attributes"),
    "a gradient": ("x = x * box.w; box.w.grad = None; x.sum().backward(); box.new = box.w.grad; return x.sum().detach()",
                   "box.new.add_(1)", "the gradient of a parameter"),
    "a leaf": ("box.new = (x * 2).requires_grad_(); return x.sum()", "box.k = box.new.requires_grad", "requires a gradient"),
    "a named tuple that counts": ("return Numbered(x.sum(), x.mean())", "box.k = result.k", ""),
    "sizes": ("return {'t': x.sum(), 's': x.shape}", "box.k = result['s'].numel()", ""),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_what_the_caller_does_with_a_result_is_seen_as_in_eager_code(kind):
    body, use, reason = RESULTS[kind]
    sides = []
    for captured in (False, True):
        box = types.SimpleNamespace(d={}, l=[], k=None, new=None, w=torch.ones(2, requires_grad=True))
        program = {"box": box, "Numbered": Numbered, "Plain": Plain}
        exec(f"def function(x):\n    {body}\ndef use(result):\n    {use}", program)
        step = overdrive.capture(program["function"]) if captured else program["function"]
        seen = []
        for call in range(16):
            result = step(torch.full((2,), float(call)))
            if call > 1:  # a call may be the first to show what is shared
                program["use"](result)
            seen.append((str(result), str(vars(box))) if call > 1 else None)
        sides.append(seen)
    assert sides[0] == sides[1]
    assert (reason in step.refusal() and step.stats()["replayed"] == 0) if reason else step.stats()["replayed"] > 8, step.refusal()


@pytest.mark.parametrize("always", [False, True])
def test_a_tensor_of_another_place_that_some_calls_put_there_again(always):
    """A call that puts what stands there already looks like one that leaves it alone."""
    def train(captured):
        torch.manual_seed(0)
        model, state = nn.Linear(5, 4), types.SimpleNamespace(prev=None, last=None)

        def function(x, keep):
            h = model(x)
            state.prev = state.last
            if keep:
                state.last = h.detach()
            return h.sum()

        step, seen = overdrive.capture(function, always=always, check_every=10**6) if captured else function, []
        for call in range(60):
            step(torch.randn(6, 5), call // 7 % 2 == 1)
            seen.append([None if each is None else each.tolist() for each in (state.prev, state.last)])
        return seen

    assert train(True) == train(False)


def test_one_tensor_at_two_places_is_one_object():
    state = types.SimpleNamespace()

    def function(x):
        h = x * 2
        state.h, state.a = h, h.detach()
        state.b, state.c = state.a, h.detach()
        return h.sum()

    step = overdrive.capture(function)
    for _ in range(12):
        step(torch.randn(5))
        assert state.a is state.b and state.a is not state.c and state.a is not state.h
        assert state.a.data_ptr() == state.c.data_ptr() == state.h.data_ptr()
    assert step.stats()["replayed"] > 4, step.refusal()


def test_a_number_that_a_refused_call_returns_is_one():
    model = nn.Linear(5, 4)

    def trained(x):
        loss = model(x).square().mean()
        model.zero_grad()
        loss.backward()
        model.kept = model.weight.grad
        return loss

    def alone(x):
        loss = trained(x)
        return loss.item()

    def in_a_container(x):
        loss = trained(x)
        return loss, {"loss": loss.item()}

    for step in (overdrive.capture(alone), overdrive.capture(in_a_container)):
        for _ in range(6):
            result = step(torch.randn(6, 5))
            assert type(result if type(result) is float else result[1]["loss"]) is float
        assert "gradient of a parameter" in step.refusal()


@pytest.mark.parametrize("before", [None, torch.zeros(())])
def test_a_tensor_that_some_calls_leave(before):
    """The calls that leave it alone are the first of their recordings, and have nothing to do with it."""
    model, state = nn.Linear(5, 4), types.SimpleNamespace(n=0, last=before)

    def function(x):
        loss = model(x).square().mean()
        state.n += 1
        if state.n % 3 == 0:
            state.last = loss.detach()
        return loss

    step, wanted = overdrive.capture(function, always=True), before
    for call in range(1, 60):
        loss = step(torch.randn(6, 5))
        wanted = loss.detach() if call % 3 == 0 else wanted
        assert state.last is wanted is None or torch.equal(state.last, wanted)
    assert step.stats()["replayed"] > 35, step.refusal()


def test_a_recorded_call_leaves_the_objects_of_the_program():
    """Its results are others on the same memory."""
    state = types.SimpleNamespace(a=torch.zeros(3), b=torch.ones(3), kept=torch.ones(2), pair=None)

    def function(x):
        state.a, state.b = state.b, state.a
        state.pair = (x * 2, state.kept)
        return x.sum()

    step, a, b = overdrive.capture(function), state.a, state.b
    for _ in range(12):
        a, b = b, a
        step(torch.randn(5))
        assert state.a is a and state.b is b and state.pair[1] is state.kept


ASKED = {
    "name": lambda o: o.v.dim(), "getattr": lambda o: getattr(o, "v").dim(), "vars": lambda o: vars(o)["v"].dim(),
    "dict": lambda o: o.__dict__["v"].dim(), "values": lambda o: [*vars(o).values()][0].dim(), "attrgetter": lambda o: operator.attrgetter("v")(o).dim(),
    "items": lambda o: sum(value.numel() for _, value in vars(o).items()), "stride": lambda o: sum(o.v.stride()), "dtype": lambda o: str(o.v.dtype) > "torch.float4",
    "a leaf": lambda o: o.v.is_leaf and o.v.requires_grad, "class": lambda o: type(o.v) is torch.nn.Parameter,
}


@pytest.mark.parametrize("begins", [0, 5])
@pytest.mark.parametrize("asked", ASKED)
def test_what_is_asked_of_a_tensor_where_the_step_leaves_one(asked, begins):
    """The program puts others there, of which no operator is given any. The step gives the place its own in each call, after it has asked."""

    def run(captured):
        torch.manual_seed(0)
        weight, o, ask, rates = torch.randn(3, 3, requires_grad=True), types.SimpleNamespace(v=torch.zeros(())), ASKED[asked], []
        optimizer = torch.optim.SGD([weight], lr=0.05)

        def train(x, begun):
            optimizer.zero_grad()
            loss = (x @ weight).square().sum() * (1.0 + (ask(o) if begun else 0))
            loss.backward()
            optimizer.step()
            o.v = x.sum().detach()
            return loss

        step = overdrive.capture(train, optimizer=optimizer, always=True, check_every=10**6) if captured else train
        for call in range(32):
            if call in (19, 20):
                o.v = torch.randn(6)[1::2]
            if call in (25, 27):
                o.v = torch.nn.Parameter(torch.ones(())) if call == 25 else torch.ones((), dtype=torch.float64)
            rates.append(step(torch.randn(2, 3), call >= begins).item())
        return rates, step

    (want, _), (got, step) = run(False), run(True)
    assert want == got
    assert step.stats()["replayed"] > 8, step.refusal()
