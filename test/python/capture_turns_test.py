"""What a captured function leaves, where calls of several sizes take turns: a value that stands there already may have been written by a call of
another size. Steps and parts, each way to write, in several orders; after every call the place has what eager leaves."""
import contextvars
import types

import pytest
import torch
from torch import nn

import overdrive

LAST = None
VARIABLE = contextvars.ContextVar("variable", default=None)


class Slots:
    __slots__ = ("last",)


class Property:
    @property
    def last(self):
        return self.kept

    @last.setter
    def last(self, value):
        self.kept = value


class Class:
    last = None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)
        self.register_buffer("none", None)
        self.register_buffer("zeros", torch.zeros(6, 4))
        self.space, self.slots, self.property, self.dict, self.list = types.SimpleNamespace(), Slots(), Property(), {}, [None]
        self.kind = type("Kind", (Class,), {})


def to_global(net, value):
    global LAST
    LAST = value


def to_buffer(name):
    def write(net, value):
        if getattr(net, name) is None or getattr(net, name).shape != value.shape:
            setattr(net, name, value)

    return write


# How the value is written, and where it is afterwards.
WAYS = {
    "an attribute": (lambda net, value: setattr(net, "last", value), lambda net: net.last),
    "of a plain object": (lambda net, value: setattr(net.space, "last", value), lambda net: net.space.last),
    "by its dict": (lambda net, value: net.space.__dict__.update(last=value), lambda net: net.space.last),
    "by vars": (lambda net, value: vars(net.space).update({"last": value}), lambda net: net.space.last),
    "a slot": (lambda net, value: setattr(net.slots, "last", value), lambda net: net.slots.last),
    "a property": (lambda net, value: setattr(net.property, "last", value), lambda net: net.property.last),
    "a key": (lambda net, value: net.dict.__setitem__("last", value), lambda net: net.dict["last"]),
    "an item": (lambda net, value: net.list.__setitem__(0, value), lambda net: net.list[0]),
    "a class": (lambda net, value: setattr(net.kind, "last", value), lambda net: net.kind.last),
    "a global": (to_global, lambda net: LAST),
    "a variable of the context": (lambda net, value: VARIABLE.set(value), lambda net: VARIABLE.get()),
    "a buffer": (to_buffer("none"), lambda net: net.none),
    "a buffer that is there": (to_buffer("zeros"), lambda net: net.zeros),
}
VALUES = {
    "size": lambda x, h: x.shape[0],
    "flag": lambda x, h: x.shape[0] > 4,
    "text": lambda x, h: "many" if x.shape[0] > 4 else "few",
    "none": lambda x, h: None if x.shape[0] > 4 else 1.5,
    "tuple": lambda x, h: (x.shape[0], "a"),
    "shape": lambda x, h: x.shape,
    "output": lambda x, h: h.detach(),
    "new": lambda x, h: torch.ones_like(x).tril(),
}
SIZES = {
    "a last one": ([6] * 7 + [3]) * 4,
    "in turn": [6] * 8 + [6, 3] * 12,
    "in pairs": [6, 6, 3, 3] * 8,
}


def pairs():
    for way in WAYS:
        for value in ("new",) if "buffer" in way else VALUES:
            yield way, value


def told(value):
    return (type(value), tuple(value.shape), value.tolist()) if isinstance(value, torch.Tensor) else (type(value), value)


def trained(form, way, value, sizes):
    global LAST
    LAST = None
    VARIABLE.set(None)
    torch.manual_seed(0)
    net, (write, read), make = Net(), WAYS[way], VALUES[value]
    optimizer = torch.optim.SGD(net.parameters(), 0.05)

    def forward(x):
        h = net.net(x).tanh()
        write(net, make(x, h))
        return h.square().mean()

    part = overdrive.captured(forward, always=True) if form == "part" else forward

    def train(x):
        optimizer.zero_grad()
        loss = part(x)
        loss.backward()
        optimizer.step()
        return loss

    step = overdrive.capture(train, optimizer=optimizer, always=True) if form == "step" else train
    seen = []
    for size in sizes:
        loss = step(torch.randn(size, 4)).item()
        seen.append((loss, told(read(net))))
    return seen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("order", SIZES)
@pytest.mark.parametrize("way, value", list(pairs()))
def test_what_stands_there_is_eagers(way, value, order):
    want = trained("eager", way, value, SIZES[order])
    for form in ("step", "part"):
        assert trained(form, way, value, SIZES[order]) == want, form


@pytest.mark.parametrize("order", SIZES)
def test_a_mask_that_is_made_anew_for_another_size(order):
    """Drawn at random, so that a replay that makes it again shows."""

    def run(is_captured):
        torch.manual_seed(0)
        state, net = types.SimpleNamespace(mask=None), nn.Linear(4, 4)
        optimizer = torch.optim.SGD(net.parameters(), 0.05)

        def train(x):
            if state.mask is None or state.mask.shape != x.shape:
                state.mask = torch.rand_like(x)
            optimizer.zero_grad()
            loss = (net(x) * state.mask).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        step = overdrive.capture(train, optimizer=optimizer, always=True) if is_captured else train
        return [(step(torch.randn(size, 4)).item(), told(state.mask)) for size in SIZES[order]], step

    (want, _), (got, step) = run(False), run(True)
    assert got == want
    assert order != "a last one" or step.stats()["replayed"] > 8, step.explain()


def test_features_in_an_attribute_have_one_recording_for_each_size():
    """Written before it is read: what stands there before the call has no part in it."""
    torch.manual_seed(0)
    net, sizes = Net(), [5, 6, 7]
    head = nn.Linear(4, 1)

    def loss_of(x):
        net.features = net.net(x)
        return head(net.features).square().mean()

    step = overdrive.capture(loss_of, always=True)
    for i in range(60):
        step(torch.randn(sizes[(i * i + i // 7) % 3], 4))
    assert step.stats()["replayed"] > 30, step.explain()
