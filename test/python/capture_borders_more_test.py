"""More borders of a recording in Python: values that code finds by other ways than a name and an attribute, code that is
replaced, and PyTorch's own functions and switches. Each program runs eagerly and captured, and something changes in the
middle."""
import collections
import contextlib
import ctypes
import dataclasses
import enum
import functools
import logging
import multiprocessing
import queue
import sys
import threading
import types
import typing
import weakref
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

import overdrive

X = torch.arange(8.0)
SCALE = 1.0
CAPTURES = pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured], ids=["step", "part"])


class Config:
    class model:  # noqa: N801
        k = 1.0


class Plain:
    def __init__(self, k=1.0):
        self.k = k


@dataclasses.dataclass
class Data:
    k: float = 1.0


@typing.runtime_checkable
class HasK(typing.Protocol):
    k: float


class Batch(dict):
    k = 1.0


class Sizes(list):
    k = 1.0


class Colour(enum.Enum):
    RED = 1


class WithConfig:
    plain = Plain()


class Aliases:
    """As a configuration whose attributes have several names."""

    names: typing.ClassVar = {"hidden": "n_embd"}

    def __getattribute__(self, name):
        names = object.__getattribute__(self, "names")
        return object.__getattribute__(self, names.get(name, name))


class Hparams:
    def __init__(self):
        self.hparams = {"k": 1.0}

    def __getattr__(self, name):
        return self.__dict__["hparams"][name]


class Descriptor:
    def __init__(self):
        self.values = weakref.WeakKeyDictionary()

    def __get__(self, instance, owner):
        return self.values[instance]


class Layer(nn.Module):
    def forward(self, x):
        return x * (self.k if hasattr(self, "k") else 1.0)


class Caught(nn.Module):
    def forward(self, x):
        try:
            return x * self.k
        except AttributeError:
            return x * 1.0


class World:
    """What the programs below read, made anew for each of them."""

    def __init__(self):
        self.lazy = sys.modules["lazy_of_the_test"] = types.ModuleType("lazy_of_the_test")
        self.lazy.K = 1.0
        self.space, self.plain, self.data, self.pair = types.SimpleNamespace(), Plain(), Data(), Plain()
        self.pair.k0, self.pair.k1 = 1.0, 2.0
        self.kind = type("Kind", (), {})
        self.meta = type("Meta", (type,), {"k": 1.0})
        self.of_meta = self.meta("OfMeta", (), {})
        self.order = {"abs": torch.abs, "square": torch.square}
        self.keys = {1.0: None, 2.0: None}
        self.ordered = collections.OrderedDict(a=torch.abs, b=torch.square)
        self.aliases = Aliases()
        self.aliases.n_embd = 1.0
        self.hparams = Hparams()
        self.described = type("Described", (), {"k": Descriptor()})()
        vars(type(self.described))["k"].values[self.described] = 1.0
        self.over = {}
        self.chain = collections.ChainMap(self.over, {"k": 1.0})
        self.weak_keys = weakref.WeakKeyDictionary({self.plain: 1.0})
        self.weak_values = weakref.WeakValueDictionary(k=self.plain)
        self.other = Plain(2.0)
        self.proxy = weakref.proxy(self.plain)
        self.event, self.queue = threading.Event(), queue.Queue()
        self.null = contextlib.nullcontext(1.0)
        self.shared, self.number = multiprocessing.Value("d", 1.0), ctypes.c_double(1.0)
        self.logger = logging.Logger("of the test", logging.WARNING)
        self.layer, self.caught = Layer(), Caught()

        def asked():
            return self.space.k

        self.asked = asked

        @functools.lru_cache(None)
        def cached():
            return helper()

        def helper():
            return self.plain.k

        cached()
        self.cached = cached

        @functools.singledispatch
        def dispatched(_):
            return 1.0

        self.dispatched = dispatched
        self.batch, self.sizes, self.with_config = Batch(), Sizes(), WithConfig()
        WithConfig.plain.k = Colour.RED.k = 1.0
        self.first = None
        for _ in range(12):
            self.first = types.SimpleNamespace(k=1.0, below=self.first)
        self.settings = functools.lru_cache(maxsize=2)(lambda: self.plain)
        self.linear = nn.Linear(8, 8)
        self.linear.weight.factor = 1.0
        Config.model.k = 1.0
        globals()["SCALE"] = 1.0


def imported(w, x):
    import lazy_of_the_test

    return x * lazy_of_the_test.K


def imported_from(w, x):
    from lazy_of_the_test import K

    return x * K


def missing(w, x):
    try:
        return x * w.space.k
    except AttributeError:
        return x * 1.0


def missing_below(w, x):
    with contextlib.suppress(AttributeError):
        return x * w.asked()
    return x * 1.0


def missing_in_a_class(w, x):
    try:
        return x * w.kind.k
    except AttributeError:
        return x * 1.0


def in_order(w, x, functions):
    for name in functions:
        x = functions[name](x - 1)
    return x


def by_computed_names(w, x):
    for i in range(2):
        x = x * getattr(w.pair, f"k{i}")
    return x


def by_names_of_a_loop(w, x):
    for name in ("k0", "k1"):
        x = x * getattr(w.pair, name)
    return x


def in_a_context(w, x):
    with w.null as k:
        return x * k


def to_the_end(d):
    first = next(iter(d))
    d[first] = d.pop(first)


VALUES = {
    "import": (imported, lambda w: setattr(w.lazy, "K", 2.0)),
    "import from": (imported_from, lambda w: setattr(w.lazy, "K", 2.0)),
    "another module": (imported, lambda w: sys.modules.update(lazy_of_the_test=types.SimpleNamespace(K=2.0))),
    "sys.modules": (lambda w, x: x * sys.modules["lazy_of_the_test"].K, lambda w: setattr(w.lazy, "K", 2.0)),
    "AttributeError": (missing, lambda w: setattr(w.space, "k", 2.0)),
    "AttributeError of a callee": (missing_below, lambda w: setattr(w.space, "k", 2.0)),
    "AttributeError of a class": (missing_in_a_class, lambda w: setattr(w.kind, "k", 2.0)),
    "AttributeError of a module": (lambda w, x: w.caught(x), lambda w: setattr(w.caught, "k", 2.0)),
    "hasattr of a module": (lambda w, x: w.layer(x), lambda w: setattr(w.layer, "k", 2.0)),
    "hasattr, then in its class": (lambda w, x: w.layer(x), lambda w: setattr(Layer, "k", 2.0)),
    "order of a dict": (lambda w, x: in_order(w, x, w.order), lambda w: to_the_end(w.order)),
    "order of equal values": (lambda w, x: x * next(iter(w.keys)), lambda w: to_the_end(w.keys)),
    "order of an OrderedDict": (lambda w, x: in_order(w, x, w.ordered), lambda w: w.ordered.move_to_end("a")),
    "__getattribute__": (lambda w, x: x * w.aliases.hidden, lambda w: setattr(w.aliases, "n_embd", 2.0)),
    "__getattr__": (lambda w, x: x * w.hparams.k, lambda w: w.hparams.hparams.update(k=2.0)),
    "lru_cache": (lambda w, x: x * w.cached(), lambda w: (setattr(w.plain, "k", 2.0), w.cached.cache_clear())),
    "object out of a cache": (lambda w, x: x * w.settings().k, lambda w: setattr(w.plain, "k", 2.0)),
    "attribute of a parameter": (lambda w, x: x * sum(getattr(p, "factor", 1.0) for p in w.linear.parameters()),
                                 lambda w: setattr(w.linear.weight, "factor", 2.0)),
    "new attribute of a parameter": (lambda w, x: x * sum(getattr(p, "factor", 1.0) for p in w.linear.parameters()),
                                     lambda w: setattr(w.linear.bias, "factor", 2.0)),
    "singledispatch": (lambda w, x: x * w.dispatched(3), lambda w: w.dispatched.register(int, lambda _: 2.0)),
    "multiprocessing.Value": (lambda w, x: x * w.shared.value, lambda w: setattr(w.shared, "value", 2.0)),
    "ctypes": (lambda w, x: x * w.number.value, lambda w: setattr(w.number, "value", 2.0)),
    "metaclass": (lambda w, x: x * w.of_meta.k, lambda w: setattr(w.meta, "k", 2.0)),
    "class over its metaclass": (lambda w, x: x * w.of_meta.k, lambda w: setattr(w.of_meta, "k", 2.0)),
    "ChainMap": (lambda w, x: x * w.chain["k"], lambda w: w.over.update(k=2.0)),
    "globals()": (lambda w, x: x * globals()["SCALE"], lambda w: globals().update(SCALE=2.0)),
    "vars()": (lambda w, x: x * sum(vars(w.plain).values()), lambda w: setattr(w.plain, "q", 1.0)),
    "__dict__": (lambda w, x: x * sum(w.plain.__dict__.values()), lambda w: setattr(w.plain, "k", 2.0)),
    "asdict": (lambda w, x: x * dataclasses.asdict(w.data)["k"], lambda w: setattr(w.data, "k", 2.0)),
    "descriptor": (lambda w, x: x * w.described.k, lambda w: vars(type(w.described))["k"].values.update({w.described: 2.0})),
    "attribute of a dict": (lambda w, x: x * w.batch.k, lambda w: setattr(w.batch, "k", 2.0)),
    "attribute of a list": (lambda w, x: x * w.sizes.k, lambda w: setattr(w.sizes, "k", 2.0)),
    "attribute of a member of an enum": (lambda w, x: x * Colour.RED.k, lambda w: setattr(Colour.RED, "k", 2.0)),
    "object in a class": (lambda w, x: x * w.with_config.plain.k, lambda w: setattr(WithConfig.plain, "k", 2.0)),
    "long chain": (lambda w, x: x * w.first.below.below.below.below.below.below.below.below.below.k,
                   lambda w: setattr(w.first.below.below.below.below.below.below.below.below.below, "k", 2.0)),
    "class in a class": (lambda w, x: x * Config.model.k, lambda w: setattr(Config.model, "k", 2.0)),
    "computed names": (by_computed_names, lambda w: setattr(w.pair, "k0", 2.0)),
    "names of a loop": (by_names_of_a_loop, lambda w: setattr(w.pair, "k0", 2.0)),
    "event": (lambda w, x: x * 2.0 if w.event.is_set() else x * 3.0, lambda w: w.event.set()),
    "size of a queue": (lambda w, x: x * w.queue.qsize(), lambda w: w.queue.put(1)),
    "nullcontext": (in_a_context, lambda w: setattr(w.null, "enter_result", 2.0)),
    "protocol": (lambda w, x: x * 2.0 if isinstance(w.space, HasK) else x * 3.0, lambda w: setattr(w.space, "k", 2.0)),
    "WeakKeyDictionary": (lambda w, x: x * w.weak_keys[w.plain], lambda w: w.weak_keys.update({w.plain: 2.0})),
    "WeakValueDictionary": (lambda w, x: x * w.weak_values["k"].k, lambda w: w.weak_values.update(k=w.other)),
    "proxy": (lambda w, x: x * w.proxy.k, lambda w: setattr(w.plain, "k", 2.0)),
    "level of a logger": (lambda w, x: x * 2.0 if w.logger.level > 10 else x * 3.0, lambda w: w.logger.setLevel(10)),
    "warn_always": (lambda w, x: x * 2.0 if torch.is_warn_always_enabled() else x * 3.0, lambda w: torch.set_warn_always(True)),
}
if sys.version_info >= (3, 10):  # a match statement is no syntax before
    exec("def matched(w, x):\n    match w.plain:\n        case Plain(k=k):\n            return x * k")
    VALUES["match"] = matched, lambda w: setattr(w.plain, "k", 2.0)  # noqa: F821


def looks_at(function, change, world, capture, calls=8):
    """Other data in each call: what changes in the middle must be seen without the help of the data."""
    step = capture(lambda x: function(world, x))
    with torch.no_grad():
        for i in range(calls):
            assert torch.equal(step(X + i), function(world, X + i))
        replayed = step.stats()["replayed"]
        assert replayed > 0, step.refusal()
        change(world)
        for i in range(calls):
            assert torch.equal(step(X - i), function(world, X - i))
    # The other value has a recording of its own, and is no reason to stop.
    assert step.stats()["replayed"] > replayed, step.refusal()


@pytest.fixture
def settings():
    yield
    torch.set_warn_always(False)
    if hasattr(Layer, "k"):
        del Layer.k


@CAPTURES
@pytest.mark.parametrize("name", VALUES)
def test_values_that_no_plain_name_leads_to(name, capture, settings):
    looks_at(*VALUES[name], World(), capture)


@CAPTURES
def test_globals_by_computed_names_are_refused(capture):
    step = capture(lambda x: x * globals()["SC" + "ALE"[:int(x.dim() * 3)]])
    for i in range(24):
        assert torch.equal(step(X + i), X + i)
    assert "finds globals by names that it computes" in step.refusal() and "capture_borders_more_test.py" in step.refusal()


class Counted(nn.Module):
    """What others count or replace, and the function does not read."""

    def __init__(self):
        super().__init__()
        self.calls, self.stream, self.history, self.k0 = 0, iter([1, 2]), {}, 1.0

    def __getattr__(self, name):
        return super().__getattr__(name)

    def forward(self, x):
        getattr(self, "flag", None)
        for _ in {"a": 1}:
            x = x * getattr(self, f"k{0:d}")
        return x


@CAPTURES
def test_values_that_change_and_do_not_matter_are_no_guards(capture):
    module, cache = Counted(), collections.OrderedDict(a=1.0, b=2.0)
    step = capture(lambda x: module(x))
    for i in range(20):
        module.calls += 1
        module.history[i] = i
        cache.move_to_end("a" if i % 2 else "b")
        assert torch.equal(step(X + i), X + i)
    assert step.stats()["replayed"] > 12, step.refusal()


def test_the_keys_of_a_dict_whose_values_are_equal_again():
    """A value that is another object, and the same number, is no other order."""
    numbers = {"a": 1000.5, "b": 2000.5}
    step = overdrive.capture(lambda x: [x * numbers[name] for name in numbers][1])
    for i in range(12):
        numbers["a"] = float(f"{1000.5}")
        assert torch.equal(step(X + i), (X + i) * 2000.5)
    assert step.stats()["replayed"] == 8
    numbers["b"] = numbers.pop("b")
    assert torch.equal(step(X), X * 2000.5) and step.stats()["replayed"] == 9
    numbers["a"] = numbers.pop("a")
    for i in range(8):
        assert torch.equal(step(X + i), (X + i) * 1000.5)


def once(x):
    return x * 1.0


def twice(x):
    return x * 2.0


def twice_of_self(_, x):
    return x * 2.0


class Helper:
    def helped(self, x):
        return x * 1.0

    def __getitem__(self, x):
        return x * 1.0

    @property
    def scale(self):
        return 1.0

    @staticmethod
    def static(x):
        return x * 1.0


class Scaled(nn.Module):
    def forward(self, x):
        return x * 1.0


def a_function():
    def target(x):
        return x * 1.0

    return lambda x: target(x), target, twice


def itself():
    def target(x):
        return x * 1.0

    return target, target, twice


def decorated():
    def target(x):
        return x * 1.0

    return torch.no_grad()(target), target, twice


def generated():
    @contextlib.contextmanager
    def target(x):
        yield x * 1.0

    def run(x):
        with target(x) as y:
            return y

    def other(x):
        yield x * 2.0

    return run, target.__wrapped__, other


def of_a_class(name, call):
    def make():
        kind = type("Other", (Helper,), {})
        inner = vars(Helper)[name]
        function = getattr(inner, "fget", None) or getattr(inner, "__func__", inner)
        copy = types.FunctionType(function.__code__, function.__globals__)
        setattr(kind, name, type(inner)(copy) if inner is not function else copy)
        thing = kind()
        return lambda x: call(thing, x), copy, (lambda self: 2.0) if name == "scale" else twice if name == "static" else twice_of_self

    return make


def of_a_module():
    kind = type("OtherScaled", (Scaled,), {"forward": types.FunctionType(Scaled.forward.__code__, globals())})
    module = kind()
    return lambda x: module(x), kind.forward, twice_of_self


REPLACED = {"function": a_function, "itself": itself, "under no_grad": decorated, "under contextmanager": generated,
            "method": of_a_class("helped", lambda thing, x: thing.helped(x)),
            "operator": of_a_class("__getitem__", lambda thing, x: thing[x]),
            "property": of_a_class("scale", lambda thing, x: x * thing.scale),
            "static method": of_a_class("static", lambda thing, x: thing.static(x)), "forward": of_a_module}


@CAPTURES
@pytest.mark.parametrize("name", REPLACED)
def test_code_that_is_put_into_a_function(name, capture):
    """As reloaders do, which keep the function and give it the code of the file as it is now."""
    function, target, other = REPLACED[name]()
    looks_at(lambda _, x: function(x), lambda _: setattr(target, "__code__", other.__code__), None, lambda f: capture(function))


@CAPTURES
def test_defaults_that_are_replaced(capture):
    def scaled(x, a=1.0, *, b=1.0):
        return x * a * b

    looks_at(lambda _, x: scaled(x), lambda _: setattr(scaled, "__kwdefaults__", {"b": 2.0}), None, capture)
    looks_at(lambda _, x: scaled(x), lambda _: setattr(scaled, "__defaults__", (3.0,)), None, capture)


LINEAR = nn.Linear(8, 8)
ATTENTION = nn.MultiheadAttention(8, 2, batch_first=True)
PATCHES = {
    "torch": (torch, "relu", lambda x: torch.relu(x)),
    "functional": (F, "softplus", lambda x: F.softplus(x)),
    "functional in a layer": (F, "linear", lambda x: LINEAR(x)),
    "functional in functional": (F, "scaled_dot_product_attention", lambda x: ATTENTION(x[None, None], x[None, None], x[None, None])[0]),
    "method of tensors": (torch.Tensor, "relu", lambda x: x.relu()),
    "operator of tensors": (torch.Tensor, "__mul__", lambda x: x * x),
    "method in Python of tensors": (torch.Tensor, "split", lambda x: x.split(4)[0] + 1),
    "forward of a layer": (nn.Linear, "forward", lambda x: LINEAR(x)),
    "call of all modules": (nn.Module, "_call_impl", lambda x: LINEAR(x)),
    "distribution": (torch.distributions.Exponential, "log_prob", lambda x: torch.distributions.Exponential(1.5).log_prob(x.abs())),
}


@CAPTURES
@pytest.mark.parametrize("first", [False, True], ids=["patched late", "restored late"])
@pytest.mark.parametrize("name", PATCHES)
def test_functions_of_pytorch_that_are_patched(name, first, capture):
    owner, attribute, function = PATCHES[name]
    plain = getattr(owner, attribute)

    def patched(*inputs, **options):
        result = plain(*inputs, **options)
        return tuple(torch.add(one, 2) for one in result) if isinstance(result, tuple) else torch.add(result, 2)

    step = capture(lambda x: function(x))
    with torch.no_grad():
        for i in range(16):
            data = X + i
            with contextlib.ExitStack() as stack:
                if (i < 8) == first:
                    stack.enter_context(mock.patch.object(owner, attribute, patched))
                assert torch.equal(step(data), function(data)), i
    assert step.stats()["replayed"] >= 8, step.refusal()


def test_a_graph_of_fx_that_is_compiled_again():
    module = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))

    def edit(_):
        node = next(node for node in module.graph.nodes if node.target == "1")
        with module.graph.inserting_after(node):
            new = module.graph.call_function(torch.tanh, (node,))
        node.replace_all_uses_with(new)
        new.args = (node,)
        module.recompile()

    looks_at(lambda _, x: module(x), edit, None, overdrive.capture)


@CAPTURES
@pytest.mark.parametrize("name", ["fast path", "validate_args"])
def test_switches_that_pytorch_keeps_in_python(name, capture):
    if name == "fast path":
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
        function, switch = (lambda x: layer(x[None, None])), torch.backends.mha.set_fastpath_enabled
    else:
        def function(x):
            return torch.distributions.Exponential(1.5).log_prob(x.abs())

        switch = torch.distributions.Distribution.set_default_validate_args
    step = capture(function)
    try:
        with torch.no_grad():
            for on in (True, False):
                switch(on)
                before = step.stats()["eager"] + step.stats()["recorded"]
                for i in range(8):
                    assert torch.equal(step(X + i), function(X + i))
                assert step.stats()["eager"] + step.stats()["recorded"] > before, "another setting has a recording of its own"
    finally:
        switch(True)
    assert step.stats()["replayed"] >= 8, step.refusal()


@pytest.mark.parametrize("inside", [False, True], ids=["around the call", "inside of the function"])
@pytest.mark.parametrize("kind", ["step", "module"])
def test_parametrizations_that_are_cached(kind, inside):
    def run(capture):
        torch.manual_seed(0)
        model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)), nn.Tanh())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if capture and kind == "module":
            overdrive.captured(model)

        def train(x):
            optimizer.zero_grad()
            with parametrize.cached() if inside else contextlib.nullcontext():
                loss = (model(x) + model(x + 1)).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        step = overdrive.capture(train, optimizer=optimizer) if capture and kind == "step" else train
        losses = []
        for i in range(16):
            with parametrize.cached() if i % 4 == 3 and not inside else contextlib.nullcontext():
                losses.append(step(torch.full((3, 6), i * 0.1)).detach())
        return [*losses, *model.parameters()], step if kind == "step" else overdrive.part_of(model)

    eager, _ = run(False)
    captured, step = run(True)
    assert all(map(torch.equal, eager, captured))
    assert step is None or kind == "module" and inside or step.stats()["replayed"] > 4, step.refusal()


@pytest.mark.parametrize("way", ["variable", "del", "clone"])
def test_a_gradient_that_a_variable_holds_is_no_hindrance(way):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def train(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = overdrive.capture(train, optimizer=optimizer)
    for i in range(12):
        step(torch.full((3, 4), i * 0.1))
        for p in model.parameters():
            g = p.grad.clone() if way == "clone" else p.grad
            assert g.norm() >= 0
        if way == "del":
            del g
    assert step.stats()["replayed"] > 4, step.refusal()
    assert step.refusal() == ""
