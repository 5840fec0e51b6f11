"""The borders of a recording in Python: what a function reads and leaves behind beside its tensors. Each program runs
eagerly and captured, and something changes in the middle."""
import builtins
import collections
import contextvars
import itertools
import random
import time
import types
import warnings
import weakref

import pytest
import torch
from torch import nn

import overdrive

X = torch.arange(8.0)


class Thing:
    factor = 1.0

    def scaled(self, x):
        return x * self.factor


class Other(Thing):
    def scaled(self, x):
        return x * 7


class World:
    """What the programs below read, made anew for each of them."""

    def __init__(self):
        self.empty, self.one, self.box = {}, {"a": 1.0}, Thing()
        self.module = types.ModuleType("made")
        self.module.scale = 1.0
        self.box.value = 1.0
        self.weak = weakref.ref(self.box)
        self.variable = contextvars.ContextVar("variable", default=1.0)
        self.tensor = torch.ones(8)
        self.tensor.factor = 1.0
        self.kind = type("Kind", (Thing,), {})
        self.thing = self.kind()
        self.helper = lambda x: x * self.helper.factor
        self.helper.factor = 1.0
        builtins.a_builtin_of_the_test = 1.0


def missing(w, x):
    try:
        return x * w.empty["k"]
    except KeyError:
        return x * 1


VALUES = {
    "values of a dict": (lambda w, x: x * sum(w.one.values()), lambda w: w.one.update(b=2.0)),
    "items of a dict": (lambda w, x: x * sum(v for _, v in w.one.items()), lambda w: w.one.update(b=2.0)),
    "length of a dict": (lambda w, x: x * len(w.one), lambda w: w.one.update(b=2.0)),
    "get() of a missing key": (lambda w, x: x * w.empty.get("k", 1.0), lambda w: w.empty.update(k=2.0)),
    "KeyError": (missing, lambda w: w.empty.update(k=2.0)),
    "attribute of a function": (lambda w, x: w.helper(x), lambda w: setattr(w.helper, "factor", 2.0)),
    "a builtin": (lambda w, x: x * a_builtin_of_the_test,  # noqa: F821
                  lambda w: setattr(builtins, "a_builtin_of_the_test", 2.0)),
    "method of the class": (lambda w, x: w.thing.scaled(x), lambda w: setattr(w.kind, "scaled", lambda self, x: x * 7)),
    "method of the instance": (lambda w, x: w.thing.scaled(x), lambda w: setattr(w.thing, "scaled", lambda x: x * 7)),
    "attribute that shadows": (lambda w, x: w.thing.scaled(x), lambda w: setattr(w.kind, "factor", 2.0)),
    "another class": (lambda w, x: w.thing.scaled(x), lambda w: setattr(w.thing, "__class__", Other)),
    "isinstance": (lambda w, x: x * (2 if isinstance(w.thing, Other) else 1), lambda w: setattr(w.thing, "__class__", Other)),
    "requires_grad": (lambda w, x: x * (2 if w.tensor.requires_grad else 1), lambda w: w.tensor.requires_grad_()),
    "attribute of a tensor": (lambda w, x: x * w.tensor.factor, lambda w: setattr(w.tensor, "factor", 2.0)),
    "version of a tensor": (lambda w, x: x * (1 + w.tensor._version), lambda w: w.tensor.add_(0)),
    "context variable": (lambda w, x: x * w.variable.get(), lambda w: w.variable.set(2.0)),
    "module without a file": (lambda w, x: x * w.module.scale, lambda w: setattr(w.module, "scale", 2.0)),
    "weak reference": (lambda w, x: x * w.weak().value, lambda w: setattr(w.box, "value", 2.0)),
}


def looks_at(function, change, world, capture):
    """Other data in each call: what changes in the middle must be seen without the help of the data."""
    step = capture(lambda x: function(world, x))
    for i in range(8):
        assert torch.equal(step(X + i), function(world, X + i))
    assert step.stats()["replayed"] > 0, step.refusal()
    change(world)
    for i in range(8):
        assert torch.equal(step(X - i), function(world, X - i))


@pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured], ids=["step", "part"])
@pytest.mark.parametrize("name", VALUES)
def test_values_that_the_code_reads_are_looked_at(name, capture):
    looks_at(*VALUES[name], World(), capture)
    if hasattr(builtins, "a_builtin_of_the_test"):
        del builtins.a_builtin_of_the_test


def test_random_numbers_of_python_are_refused():
    def layer_drop(x):
        return x * 7 if random.random() < 0.1 else x * 1

    for capture in (overdrive.capture, overdrive.captured):
        step, results = capture(layer_drop), []
        random.seed(1)
        wanted = [layer_drop(X).sum().item() for _ in range(60)]
        random.seed(1)
        results = [step(X).sum().item() for _ in range(60)]
        assert results == wanted
        assert "draws random numbers of Python" in step.refusal()


def soft(target, source, tau):
    for t, p in zip(target.parameters(), source.parameters()):
        t.data.mul_(1 - tau)
        torch.add(t.data, p.data, alpha=tau, out=t.data)


UPDATES = {
    "a target network, as Stable-Baselines3 writes it": soft,
    "lerp_": lambda target, source, tau: [t.data.lerp_(p.data, tau) for t, p in zip(target.parameters(), source.parameters())],
    "weight decay by hand": lambda target, source, tau: [p.data.mul_(1 - tau) for p in source.parameters()],
    "clipped weights": lambda target, source, tau: [p.data.clamp_(-tau, tau) for p in source.parameters()],
    "descent by hand": lambda target, source, tau: [p.data.add_(p.grad, alpha=-tau) for p in source.parameters()],
}


@pytest.mark.parametrize("name", UPDATES)
def test_numbers_that_are_looked_at_may_change_what_lives_on(name):
    def run(capture):
        torch.manual_seed(0)
        source, target, config = nn.Linear(4, 2), nn.Linear(4, 2), {"tau": 0.01}

        def train(x):
            source.zero_grad()
            loss = (source(x) - target(x).detach()).square().mean()
            loss.backward()
            with torch.no_grad():
                UPDATES[name](target, source, config["tau"])
            return loss

        step = capture(train)
        for i in range(40):
            step(torch.randn(3, 4, generator=torch.Generator().manual_seed(i)))
            config["tau"] = 0.01 if i < 20 else 0.05
        return [*source.parameters(), *target.parameters()], step

    eager, _ = run(lambda function: function)
    captured, step = run(overdrive.capture)
    assert all(map(torch.equal, eager, captured))
    assert step.stats()["replayed"] > 25, step.refusal()


class Rate:
    """Rates that no value tells, which is looked at in every call."""

    def __init__(self):
        self.numbers = itertools.chain(itertools.repeat(0.1, 20), itertools.repeat(0.5))

    def iterated(self):
        return next(self.numbers)

    def timed(self):
        return 0.1 if time.time() < 1 else 0.5


@pytest.mark.parametrize("kind, reason", [("iterated", "numbers`, an iterator that lives on"), ("timed", "time.time(), which asks for the time")])
def test_numbers_that_may_change_unseen_are_refused(kind, reason):
    results = []
    for capture in (lambda function: function, overdrive.capture):
        p, rate = torch.ones(3), Rate()
        step = capture(lambda x: p.mul_(getattr(rate, kind)()).sum())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append([step(X).item() for _ in range(40)])
    assert results[0] == results[1]
    assert reason in step.refusal(), step.refusal()


def test_a_rate_of_a_scheduler_is_looked_at():
    def run(capture):
        p = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([p], 0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

        def train(x):
            p.grad = None
            (p * x).sum().backward()
            with torch.no_grad():
                p.sub_(scheduler.get_last_lr()[0] * p.grad)
            return p.sum()

        step, seen = capture(train), []
        for i in range(40):
            seen.append(step(torch.ones(3) * i).item())
            if i % 10 == 9:  # an epoch
                optimizer.step()
                scheduler.step()
        return seen, step

    wanted, _ = run(lambda function: function)
    seen, step = run(overdrive.capture)
    assert seen == wanted
    assert step.stats()["replayed"] > 10, step.refusal()


@pytest.mark.parametrize("make", [lambda p: torch.optim.Adam(p, 1e-2), lambda p: torch.optim.SGD(p, 0.01, momentum=0.5),
                                  lambda p: torch.optim.RMSprop(p, 1e-2)], ids=["Adam", "SGD", "RMSprop"])
def test_several_optimizers_and_several_steps_of_each(make):
    def run(capture):
        torch.manual_seed(0)
        critic, actor = nn.Linear(4, 1), nn.Linear(3, 4)
        optimizers = [make(critic.parameters()), make(actor.parameters())]

        def train(x, y):
            first, second = optimizers
            for _ in range(2):
                first.zero_grad()
                loss = critic(actor(x).detach()).square().mean() - critic(y).mean()
                loss.backward()
                first.step()
            second.zero_grad()
            (-critic(actor(x)).mean()).backward()
            second.step()
            return loss

        step, seen = capture(train, optimizers), []
        for i in range(60):
            generator = torch.Generator().manual_seed(i)
            seen.append(step(torch.randn(5, 3, generator=generator), torch.randn(5, 4, generator=generator)).item())
            if i == 30:
                optimizers[1].param_groups[0]["lr"] = 0.003
        return seen + [p.tolist() for m in (critic, actor) for p in m.parameters()], step

    wanted, _ = run(lambda function, _: function)
    seen, step = run(lambda function, optimizers: overdrive.capture(function, optimizer=optimizers))
    assert seen == wanted
    assert step.stats()["replayed"] > 45, step.refusal()


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.SGD])
def test_a_step_with_a_closure(make):
    def run(capture):
        torch.manual_seed(0)
        net = nn.Linear(4, 2)
        optimizer = make(net.parameters(), lr=1e-2)

        def train(x):
            def closure():
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()
                return loss
            return optimizer.step(closure)

        step = capture(train, optimizer)
        return [step(torch.randn(8, 4, generator=torch.Generator().manual_seed(i))).item() for i in range(30)], step

    wanted, _ = run(lambda function, _: function)
    seen, step = run(lambda function, optimizer: overdrive.capture(function, optimizer=optimizer))
    assert seen == wanted and step.stats()["replayed"] > 20, step.refusal()


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, 0.1), torch.optim.Adam], ids=["SGD", "Adam"])
@pytest.mark.parametrize("whole", [True, False], ids=["step", "captured(optimizer)"])
def test_parameters_that_share_memory(make, whole):
    def run(captured):
        torch.manual_seed(0)
        a, b = nn.Linear(8, 8), nn.Linear(8, 8)
        net = nn.Sequential(a, nn.Tanh(), b)
        optimizer = make(net.parameters())
        if captured and not whole:
            optimizer = overdrive.captured(optimizer)

        def train(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        step = overdrive.capture(train, optimizer=optimizer) if captured and whole else train
        for i in range(20):
            if i == 10:
                b.weight.data = a.weight.data
            step(torch.randn(4, 8, generator=torch.Generator().manual_seed(i)))
        return list(net.parameters())

    assert all(map(torch.equal, run(False), run(True)))


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_a_learning_rate_that_becomes_a_tensor(make):
    def run(captured):
        torch.manual_seed(0)
        net = nn.Linear(8, 16)
        optimizer = make(net.parameters(), lr=0.01)
        if captured:
            optimizer = overdrive.captured(optimizer)
        for i in range(20):
            if i == 10:
                optimizer.param_groups[0]["lr"] = torch.tensor(0.01)
            for p in net.parameters():
                p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
            optimizer.step()
        return list(net.parameters())

    assert all(map(torch.equal, run(False), run(True)))


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, 0.1), torch.optim.SparseAdam], ids=["SGD", "SparseAdam"])
def test_sparse_gradients_are_pytorchs(make):
    def run(captured):
        torch.manual_seed(0)
        table = nn.Embedding(10, 3, sparse=True)
        optimizer = make(list(table.parameters()))
        if captured:
            optimizer = overdrive.captured(optimizer)
        for i in range(8):
            optimizer.zero_grad()
            table(torch.tensor([i, 1])).sum().backward()
            optimizer.step()
        return table.weight

    assert torch.equal(run(False), run(True))


class InnerBackward(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        self.inner(x).square().sum().backward()
        return self.outer(x)


@pytest.mark.parametrize("to_none", [True, False])
def test_a_backward_inside_of_a_part(to_none):
    def run(captured):
        torch.manual_seed(0)
        net, seen = InnerBackward(), []
        if captured:
            overdrive.captured(net)
        for i in range(12):
            net.zero_grad(set_to_none=to_none)
            net(torch.randn(3, 4, generator=torch.Generator().manual_seed(i))).sum().backward()
            seen.append([p.grad.tolist() for p in net.parameters()])
        return seen, net

    wanted, _ = run(False)
    seen, net = run(True)
    assert seen == wanted
    part = overdrive.part_of(net)
    assert part is None or ("leaves gradients" in part.refusal()) == to_none, part.refusal()


last = None


class Leaving(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x):
        self.leave(x)
        return self.net(x).tanh()


class BySetattr(Leaving):
    def leave(self, x):
        setattr(self, "last", x)

    def left(self):
        return self.last


class ByGlobal(Leaving):
    def leave(self, x):
        global last
        last = self.net(x)

    def left(self):
        return last


class NumberByGlobal(Leaving):
    def leave(self, x):
        global last
        last = torch.tensor(x.shape[0])

    def left(self):
        return last


@pytest.mark.parametrize("kind", [BySetattr, ByGlobal, NumberByGlobal])
def test_what_a_part_leaves_behind_is_not_stale(kind):
    def run(captured):
        torch.manual_seed(0)
        net, seen = kind(), []
        if captured:
            overdrive.captured(net)
        for i in range(14):
            net(torch.full((2 + (i > 6), 4), float(i))).sum().backward()
            seen.append(net.left().tolist())
        return seen

    assert run(True) == run(False)


class Operator:
    def __init__(self, tensor):
        self.tensor, self.itself = tensor, self

    def total(self):
        return self.tensor.sum()


def test_objects_and_closures_of_the_call_alone_are_no_values_of_the_program():
    weight = torch.ones(4, requires_grad=True)
    net = nn.Linear(4, 4)

    def cycle(x):
        return Operator(x * weight).total()

    def inner(tensor):
        def one():
            return tensor.sum()
        return one

    def outer(*functions):
        def run():
            return sum(function() for function in functions)
        return run

    def closures(x):
        return net(x).sum() * outer(inner(x.square()))()

    for function in (cycle, closures):
        part = overdrive.captured(function)
        for i in range(13):
            part(torch.randn(4, 4)).backward()
        assert part.stats()["replayed"] == 9, part.refusal()


def test_a_part_that_is_held_runs_plainly_and_says_so():
    net, kept = nn.Linear(4, 4), []

    def function(x):
        kept.append(net(x))
        return kept[-1].tanh()

    part = overdrive.captured(function, guards="promised")
    for _ in range(30):
        part(torch.randn(2, 4)).sum().backward()
    assert part.stats()["recorded"] == 1
    assert "is still held after the next" in part.refusal()


def test_a_dict_that_grows_is_another_value():
    table = collections.OrderedDict(a=1.0)
    step = overdrive.capture(lambda x: x * sum(table.values()))
    for i in range(24):
        if i % 8 == 0:
            table[i] = float(i)
        assert torch.equal(step(X), X * sum(table.values()))
    assert step.stats()["replayed"] > 0


class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        return result * 2 if function is torch.nn.functional.linear else result


@pytest.mark.parametrize("where", ["input", "late", "parameter"])
@pytest.mark.parametrize("mode", ["module", "function", "step"])
def test_classes_of_tensors(mode, where):
    def run(captured):
        torch.manual_seed(0)
        layer = nn.Linear(3, 3)
        net = call = nn.Sequential(layer, nn.Tanh())
        if where == "parameter":
            layer.weight = nn.Parameter(layer.weight.detach().as_subclass(Sub))
        if captured:
            call = {"module": lambda: overdrive.captured(net), "function": lambda: overdrive.captured(lambda x: net(x)),
                    "step": lambda: overdrive.capture(lambda x: net(x))}[mode]()
        seen = []
        for i in range(12):
            x = torch.randn(2, 3, generator=torch.Generator().manual_seed(i))
            if where == "input" or where == "late" and i > 6:
                x = x.as_subclass(Sub)
            out = call(x)
            if out.requires_grad and mode != "step":
                out.sum().backward()
            seen.append((out.detach().tolist(), type(out) if i > 0 or mode != "step" else Sub))
        return seen

    eager, captured = run(False), run(True)
    assert captured == ([(values, Sub if i == 0 and mode == "step" else kind) for i, (values, kind) in enumerate(eager)])


def rooted():
    return torch.ones(2, 3, requires_grad=True)


def with_attribute():
    x = torch.ones(2, 3)
    x.mark = 5
    return x


def with_gradient():
    x = rooted()
    x.grad = torch.ones(2, 3)
    return x


WEIGHT = nn.Parameter(torch.eye(3))
FACTS = {
    "attribute": (lambda x: x @ WEIGHT * getattr(x, "mark", 1), lambda: torch.ones(2, 3), with_attribute),
    "Parameter": (lambda x: x @ WEIGHT * (2 if isinstance(x, nn.Parameter) else 1), rooted, lambda: nn.Parameter(torch.ones(2, 3))),
    "is_leaf": (lambda x: x @ WEIGHT * (2 if x.is_leaf else 1), rooted, lambda: rooted() * 1),
    "grad": (lambda x: x @ WEIGHT * (2 if x.grad is None else 1), rooted, with_gradient),
    "grad_fn": (lambda x: x @ WEIGHT * (2 if "Mul" in type(x.grad_fn).__name__ else 1), lambda: rooted() + 0, lambda: rooted() * 1),
    "_version": (lambda x: x @ WEIGHT * (1 + x._version), lambda: torch.ones(2, 3), lambda: torch.zeros(2, 3).add_(1)),
    "_base": (lambda x: x @ WEIGHT * (2 if x._base is None else 1), lambda: torch.ones(2, 3), lambda: torch.ones(4, 3)[:2]),
    "the same tensor": (lambda x: x @ WEIGHT * (2 if x is WEIGHT else 1), lambda: nn.Parameter(torch.eye(3)), lambda: WEIGHT),
}


@pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured], ids=["step", "part"])
@pytest.mark.parametrize("name", FACTS)
def test_facts_of_an_argument_that_the_function_asks(name, capture):
    function, usual, other = FACTS[name]
    step = capture(function)
    for make in [usual] * 9 + [other] * 3 + [usual, other] * 3:
        out = step(make())
        assert torch.equal(out, function(make()))
        if out.requires_grad:
            out.sum().backward()
        WEIGHT.grad = None


@pytest.mark.parametrize("every", [7, 23])
def test_gradients_after_a_rare_branch(every):
    def run(capture):
        torch.manual_seed(0)
        weight, layer = nn.Parameter(torch.ones(2, 2)), nn.Linear(2, 2)
        parameters = [weight, *layer.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=1e-4)

        def train(x):
            optimizer.zero_grad()
            h = layer(x)
            out = h * 2 if (x > 12).any() else h @ weight
            out.square().mean().backward()
            optimizer.step()
            return out

        step, seen = capture(train, optimizer), []
        for i in range(60):
            step(torch.randn(3, 2, generator=torch.Generator().manual_seed(i)) + (20 if i % every == every - 1 else 0))
            seen.append([p.tolist() if p is not None else None for q in parameters for p in (q, q.grad)])
        return seen

    assert run(lambda f, optimizer: overdrive.capture(f, optimizer=optimizer)) == run(lambda f, _: f)


def test_a_trace_of_a_captured_module_is_that_of_the_plain_one():
    net, x = overdrive.captured(nn.Sequential(nn.Linear(3, 3), nn.Tanh())), torch.ones(2, 3)
    for _ in range(8):
        net(x).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = torch.jit.trace(net, x)
    assert torch.equal(trace(x), net(x)) and "linear" in str(trace.inlined_graph)


def test_the_reason_while_a_mode_of_python_is_active():
    class Counting(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), keywords=None):
            return function(*arguments, **(keywords or {}))

    net = overdrive.captured(nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    for _ in range(8):
        with Counting():
            net(torch.ones(2, 3)).sum().backward()
    assert "A mode of Python is active" in overdrive.part_of(net).refusal()


class Missing(dict):
    def __missing__(self, key):
        return 1.0


class Callable:
    def __call__(self, x):
        return x * 1


class Module(nn.Module):
    def forward(self, x):
        return x * 1


class Config:
    def __init__(self):
        self.rate = 1.0

    def get(self, name):
        return getattr(self, name)


class Keys:
    """As World: containers and classes of other kinds."""

    def __init__(self):
        self.thing = Thing()
        self.by_tuple, self.by_object, self.missing = {(1, "a"): 1.0}, {self.thing: 1.0}, Missing()
        self.user_dict, self.user_list, self.inner = collections.UserDict(k=1.0), collections.UserList([1.0]), {"k": 1.0}
        self.proxy = types.MappingProxyType(self.inner)
        self.linear, self.config = nn.Linear(2, 2), Config()
        self.module_class = type("Inner", (Module,), {"forward": Module.forward})
        self.callable_class = type("Inner", (Callable,), {"__call__": Callable.__call__})
        self.module, self.callable = self.module_class(), self.callable_class()


KEYS = {
    "a tuple as a key": (lambda w, x: x * w.by_tuple[1, "a"], lambda w: w.by_tuple.update({(1, "a"): 2.0})),
    "an object as a key": (lambda w, x: x * w.by_object[w.thing], lambda w: w.by_object.update({w.thing: 2.0})),
    "__missing__": (lambda w, x: x * w.missing["k"], lambda w: w.missing.update(k=2.0)),
    "UserDict": (lambda w, x: x * w.user_dict["k"], lambda w: w.user_dict.update(k=2.0)),
    "UserList": (lambda w, x: x * w.user_list[0], lambda w: w.user_list.__setitem__(0, 2.0)),
    "MappingProxyType": (lambda w, x: x * w.proxy["k"], lambda w: w.inner.update(k=2.0)),
    "requires_grad of a parameter": (lambda w, x: x * (2 if w.linear.weight.requires_grad else 1),
                                     lambda w: w.linear.requires_grad_(False)),
    "requires_grad in a sum": (lambda w, x: x * sum(p.numel() for p in w.linear.parameters() if p.requires_grad),
                               lambda w: w.linear.bias.requires_grad_(False)),
    "forward() of a class": (lambda w, x: w.module(x), lambda w: setattr(w.module_class, "forward", lambda self, x: x * 2)),
    "__call__ of a class": (lambda w, x: w.callable(x), lambda w: setattr(w.callable_class, "__call__", lambda self, x: x * 2)),
    "an attribute by a string": (lambda w, x: x * w.config.get("rate"), lambda w: setattr(w.config, "rate", 2.0)),
}


@pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured], ids=["step", "part"])
@pytest.mark.parametrize("name", KEYS)
def test_values_in_containers_and_classes_are_looked_at(name, capture):
    looks_at(*KEYS[name], Keys(), capture)


@pytest.mark.parametrize("guards", ["checked", "promised"])
@pytest.mark.parametrize("inside", [True, False], ids=["step() inside", "step() outside"])
@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("case", ["eager between", "a rare task", "tasks in blocks", "a rare branch"])
def test_gradients_that_zero_grad_takes_away_without_an_operator(case, to_none, inside, guards):
    def run(captured):
        torch.manual_seed(0)
        body, a, b = nn.Linear(2, 2), nn.Linear(2, 1), nn.Linear(2, 1)
        parameters = list(nn.ModuleList([body, a, b]).parameters())
        optimizer = torch.optim.SGD(parameters, lr=0.01)

        def train(x, task):
            optimizer.zero_grad(set_to_none=to_none)
            head = a if task == 0 else b
            if case == "a rare branch":
                head = b if x[0, 0] > 50 else a
            loss = head(torch.tanh(body(x))).square().mean()
            loss.backward()
            if inside:
                optimizer.step()
            return loss

        step = overdrive.capture(train, optimizer=optimizer if inside else None, guards=guards) if captured else train
        seen = []
        for i in range(40):
            x, task = torch.randn(3, 2, generator=torch.Generator().manual_seed(i)), 0
            if case == "a rare task":
                task = int(i % 10 == 9)
            elif case == "tasks in blocks":
                task = i // 10 % 2
            elif case == "a rare branch" and i % 10 == 9:
                x[0, 0] = 99.0
            elif case == "eager between" and i % 10 == 9:
                b(torch.ones(1, 2)).sum().backward()
            step(x, task)
            if not inside:
                optimizer.step()
            seen.append([None if t is None else t.tolist() for p in parameters for t in (p, p.grad)])
        return seen, step

    wanted, _ = run(False)
    seen, step = run(True)
    assert seen == wanted
    assert step.stats()["replayed"] > 15, step.refusal()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.positions = nn.Linear(4, 4), nn.Parameter(torch.randn(4))

    def forward(self, x, other):
        return torch.tanh(self.net(x)) + x + other + self.positions


@pytest.mark.parametrize("pull", [lambda out: out.sum(), lambda out: torch.tanh(out).square().sum()], ids=["expanded", "dense"])
def test_gradients_that_are_passed_on_as_they_came(pull):
    def run(captured):
        torch.manual_seed(0)
        first, net, seen = nn.Linear(4, 4), Residual(), []
        if captured:
            overdrive.captured(net)
        for i in range(16):
            leaf = torch.randn(3, 4, generator=torch.Generator().manual_seed(i)).requires_grad_()
            h = first(leaf)
            pull(net(h, leaf * 2)).backward()
            seen.append([p.grad.tolist() for p in (leaf, *first.parameters(), *net.parameters())])
        return seen, net

    wanted, _ = run(False)
    seen, net = run(True)
    assert seen == wanted
    assert overdrive.part_of(net).stats()["backwards"] > 8, overdrive.part_of(net).refusal()


class Jacobian:
    def __init__(self, ys):
        self.ys, self.known = ys, {}

    def __call__(self, i):
        if i not in self.known:
            self.known[i] = self.ys[:, i:i + 1].square()
        return self.known[i]


class Cache:
    """As DeepXDE's: filled with objects of tensors in a call, and cleared before it returns."""

    def __init__(self):
        self.made = {}

    def __call__(self, ys, i):
        key = (ys, i // 8)
        if key not in self.made:
            self.made[key] = Jacobian(ys)
        return self.made[key](i)

    def clear(self):
        self.made = {}


def test_a_cache_that_is_cleared_holds_nothing():
    net, cache = nn.Linear(4, 2), Cache()
    optimizer = torch.optim.Adam(net.parameters())

    def train(x):
        optimizer.zero_grad()
        ys = net(x)
        loss = (cache(ys, 0) + cache(ys, 1)).mean()
        cache.clear()
        loss.backward()
        optimizer.step()
        return loss

    step = overdrive.capture(train, optimizer=optimizer)
    for _ in range(12):
        step(torch.randn(8, 4))
    assert step.stats()["replayed"] == 8, step.refusal()


def test_an_attribute_that_others_write_between_the_calls():
    class Holder:
        def set(self, logits):
            self.logits = logits
            return self.logits.log_softmax(1)

    net, holder = nn.Linear(4, 2), Holder()
    part = overdrive.captured(lambda x: holder.set(net(x)))
    for i in range(20):
        with torch.no_grad():
            holder.set(net(torch.randn(1, 4)))
        x = torch.randn(8, 4)
        part(x).sum().backward()
        assert torch.equal(holder.logits, net(x))
    assert part.stats()["replayed"] > 10, part.refusal()


def test_a_tensor_that_is_left_is_no_reason_to_doubt_a_number():
    class Trainer:
        def __init__(self):
            torch.manual_seed(0)
            self.source, self.target, self.loss = nn.Linear(4, 2), nn.Linear(4, 2), None

        def train(self, x):
            loss = (self.source(x) - self.target(x)).square().mean()
            self.loss = loss.detach()
            with torch.no_grad():
                soft(self.target, self.source, 0.05)
            return loss

    eager, captured = Trainer(), Trainer()
    step = overdrive.capture(captured.train)
    for i in range(20):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(i))
        eager.train(x)
        step(x)
        assert torch.equal(eager.loss, captured.loss)
    assert all(map(torch.equal, eager.target.parameters(), captured.target.parameters()))
    assert step.stats()["replayed"] > 10, step.refusal()


@pytest.mark.parametrize("when", [0, 10])
def test_a_wrapper_of_a_captured_optimizers_step_runs_once(when):
    def train(captured):
        torch.manual_seed(0)
        net = nn.Linear(6, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        if captured:
            optimizer = overdrive.captured(optimizer)
        calls, seen = [], []
        for i in range(20):
            if i == when:
                step = optimizer.step

                def wrapper():
                    calls.append(i)
                    for parameter in net.parameters():
                        parameter.grad.mul_(0.5)
                    return step()

                optimizer.step = wrapper
            optimizer.zero_grad()
            net(torch.randn(8, 6, generator=torch.Generator().manual_seed(i))).square().mean().backward()
            optimizer.step()
            seen.append(net.weight.tolist())
        return seen, len(calls)

    assert train(True) == train(False)


def test_parameters_that_share_a_step_counter_are_eagers_matter():
    def train(captured):
        torch.manual_seed(0)
        net = nn.Linear(6, 4)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        if captured:
            optimizer = overdrive.captured(optimizer)
        seen = []
        for i in range(16):
            if i == 9:
                optimizer.state[net.bias]["step"] = optimizer.state[net.weight]["step"]
            optimizer.zero_grad()
            net(torch.randn(8, 6, generator=torch.Generator().manual_seed(i))).square().mean().backward()
            optimizer.step()
            seen.append((net.weight.tolist(), [state["step"].item() for state in optimizer.state.values()]))
        return seen

    assert train(True) == train(False)


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_scripted_modules_run_as_they_are():
    inner = torch.jit.trace(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), torch.randn(2, 6))
    net = nn.Sequential(inner, nn.Linear(8, 4))
    step = overdrive.capture(lambda x: net(x))
    with torch.no_grad():
        for i in range(8):
            x = torch.randn(2, 6)
            assert torch.equal(step(x), net(x))
        assert "torch.jit.script() or torch.jit.trace() made" in step.refusal()
        wanted = net(x)
        assert torch.equal(overdrive.captured(net)(x), wanted)
        with pytest.raises(ValueError, match="trace"):
            overdrive.captured(inner)


def test_an_error_of_a_signals_handler_leaves_the_recorded_call(monkeypatch):
    """Signals are handled between any two lines, also between those that note an operator, which C has called."""
    import overdrive.step.reasons as texts

    class TooLate(Exception):
        pass

    # Of a file that is none of the program's: what it counts is no value that the function reads.
    names = {"usual": texts.line_of_caller, "calls": itertools.count(1), "TooLate": TooLate}
    exec(compile("def handled():\n    if next(calls) == 3: raise TooLate\n    return usual()", "<frozen handler>", "exec"), names)
    monkeypatch.setattr(texts, "line_of_caller", names["handled"])
    step = overdrive.capture(lambda x: x.tanh() * 2 + 1)
    errors = 0
    for i in range(10):
        x = torch.full((3,), float(i))
        try:
            assert torch.equal(step(x), x.tanh() * 2 + 1)
        except TooLate:
            errors += 1
    assert errors == 1 and step.stats()["replayed"] > 0


@pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured], ids=["step", "part"])
@pytest.mark.parametrize("place", ["values.reads.Reads._lay_out", "values.reads.Reads.add", "reads.last_walk.LastWalk.of_one_call"])
@pytest.mark.parametrize("which", [1, 2, 3])
def test_a_handler_of_a_signal_waits_for_what_the_call_learns(capture, place, which, monkeypatch):
    """Half of it would stay, and every later call would fail."""
    import importlib
    import signal

    class TooLate(Exception):
        pass

    def handler(*_):
        raise TooLate

    module, kind, name = place.rsplit(".", 2)
    owner, calls = getattr(importlib.import_module(f"overdrive.{module}"), kind), itertools.count(1)
    usual = getattr(owner, name)

    def interrupted(*given):
        if next(calls) == which:
            signal.raise_signal(signal.SIGUSR1)
        return usual(*given)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        step, errors = capture(lambda x: x.tanh() * 2 + 1), 0
        monkeypatch.setattr(owner, name, interrupted)
        for i in range(24):
            x = torch.full((3,), float(i))
            try:
                assert torch.equal(step(x), x.tanh() * 2 + 1)
            except TooLate:
                errors += 1
        assert errors == 1 and step.stats()["replayed"] > 8, step.refusal()
        assert signal.getsignal(signal.SIGUSR1) is handler
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured], ids=["step", "part"])
def test_what_a_handler_of_a_signal_changes_is_no_change_of_the_functions(capture):
    import signal

    beats = types.SimpleNamespace(n=0)

    def handler(*_):
        beats.n += 1

    def function(x):
        for _ in range(3):
            signal.raise_signal(signal.SIGUSR1) if raising[0] else None
        return x * (beats.n + 1)

    raising, before = [True], signal.signal(signal.SIGUSR1, handler)
    try:
        step = capture(function)
        for i in range(24):
            raising[0] = i < 6
            before_the_call = beats.n
            result = step(torch.ones(2))
            assert raising[0] or torch.equal(result, torch.ones(2) * (beats.n + 1)) and beats.n == before_the_call
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured], ids=["step", "part"])
def test_an_error_keeps_its_cause(capture):
    def function(x):
        try:
            {}["a"]
        except KeyError as error:
            raise ValueError("of the function") from error

    with pytest.raises(ValueError, match="of the function") as raised:
        capture(function)(torch.ones(2))
    assert isinstance(raised.value.__cause__, KeyError) and isinstance(raised.value.__context__, KeyError)


@pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured], ids=["step", "part"])
def test_what_a_call_that_throws_had_ends_with_its_error(capture):
    import gc
    import weakref

    made = []

    def function(x):
        y = x * 2
        made.append(weakref.ref(y))
        raise ValueError("of the function")

    step = capture(function)
    gc.collect()
    gc.disable()
    try:
        for _ in range(6):
            with pytest.raises(ValueError, match="of the function"):
                step(torch.ones(2))
        assert [weak() for weak in made] == [None] * 6
    finally:
        gc.enable()


@pytest.mark.parametrize("inner", [False, True])
def test_errors_that_nobody_can_raise_go_to_the_programs_hook(inner, monkeypatch):
    """Also where a part is called inside of a step, which are recorded at once."""
    import sys

    class Failing:
        def __del__(self):
            raise ValueError("in a destructor")

    seen = {"in a destructor": 0}

    def count(unraisable):
        seen[str(unraisable.exc_value)] += 1

    monkeypatch.setattr(sys, "unraisablehook", count)
    hook = sys.unraisablehook
    part = overdrive.captured(lambda x: x.tanh()) if inner else torch.tanh

    def function(x):
        Failing()
        y = part(x)
        Failing()
        return y * 2

    step = overdrive.capture(function)
    for i in range(8):
        x = torch.full((2,), float(i))
        assert torch.equal(step(x), x.tanh() * 2)
    made = step.stats()
    assert made["replayed"] > 0 and seen == {"in a destructor": 2 * made["calls"]}, step.refusal()  # replays count on
    assert sys.unraisablehook is hook
