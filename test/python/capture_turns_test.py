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


def made(n):
    return torch.arange(n).float().unsqueeze(1)


MEMOS = {
    "set": lambda memo, n: memo.__setitem__(n, made(n)),
    "kept": lambda memo, n: memo.setdefault(n, made(n)),
    "cleared at two": lambda memo, n: (memo.clear() if len(memo) > 1 else None, memo.setdefault(n, made(n))),
    "the oldest goes": lambda memo, n: (memo.pop(next(iter(memo))) if len(memo) > 1 else None, memo.setdefault(n, made(n))),
    "the youngest goes": lambda memo, n: (memo.popitem() if len(memo) > 1 else None, memo.setdefault(n, made(n))),
    "all others go": lambda memo, n: ([memo.pop(key) for key in list(memo) if key != n], memo.setdefault(n, made(n))),
    "the last alone": lambda memo, n: (memo.clear(), memo.__setitem__(n, made(n))),
    "a number": lambda memo, n: memo.__setitem__(n, n),
    "a count": lambda memo, n: memo.__setitem__(n, memo.get(n, 0) + 1),
    "its length": lambda memo, n: memo.__setitem__("length", len(memo)),
    "update": lambda memo, n: memo.update({n: n}),
    "joined": lambda memo, n: memo.__ior__({n: made(n)}),
}
TURNS = {"in turn": [4, 5, 6] * 20, "late": [4] * 10 + [5] * 10 + [4] * 4 + [6] * 8 + [4, 5] * 8, "one": [4] * 20}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("order", TURNS)
@pytest.mark.parametrize("way", MEMOS)
def test_a_dict_by_sizes(way, order):
    """A replay that adds a key, where eager code has taken others away, or that brings back what the program has taken away, has the wrong keys."""

    def run(form):
        torch.manual_seed(0)
        net, memo = nn.Linear(4, 3), {}

        def forward(x):
            MEMOS[way](memo, x.shape[0])
            kept = memo.get(x.shape[0])
            return ((kept if isinstance(kept, torch.Tensor) else 1) * net(x)).square().mean()

        call = {"step": overdrive.capture, "part": overdrive.captured}[form](forward, always=True) if form else forward
        seen = []
        for i, size in enumerate(TURNS[order]):
            if i == 30:
                memo.clear()
            seen.append((call(torch.randn(size, 4)).item(), [(key, told(value)) for key, value in memo.items()]))
        return seen

    want = run("")
    for form in ("step", "part"):
        assert run(form) == want, form


READERS = {
    "get": "memo['n'] = memo.get('n') + 1 if type(memo.get('n')) is int else -100",
    "pop": "n = memo.pop('n'); memo['n'] = n + 1 if n.__class__ is int else -100",
    "values": "memo['n'] = 1 + next(n for n in memo.values() if type(n) is int)",
    "least": "memo['n'] = memo.get('n') + 1; memo['least'] = min(memo.get('n'), 10)",
    "a function that compares objects": "memo['n'] = memo['n'] + 1 if x.sum() > 3 or same(memo['n'], small[memo['n'] % 5]) else 0",
    "a function that asks for classes": "memo['n'] = memo['n'] + 1 if x.sum() > 3 or whole(memo['n']) else 0",
    "sorted": "memo['n'] = memo.get('n') + 1; memo['both'] = sorted((5, memo.get('n')))",
    "a look": "memo['m'] = 2 if isinstance(memo.get('m'), torch.Tensor) else torch.ones(len(x))",
    "two kinds": "memo['n'] = x.shape\nif x.sum() > 3: memo['n'] = memo['n'][0] + 1 if type(memo['n']) is tuple else 5",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["step", "part"])
@pytest.mark.parametrize("reader", READERS)
def test_a_count_that_is_read_by_other_names(reader, form):
    """A number that stands there during a recorded call is a plain one to whoever gets it; the program changes the place now and then."""
    program = {}
    exec("def forward(x):\n    " + READERS[reader].replace("\n", "\n    ") + "\n    return net(x).square().mean()", globals() | {"program": program}, program)

    def run(is_captured):
        torch.manual_seed(0)
        memo = {"n": 0}
        function = types.FunctionType(program["forward"].__code__, {"memo": memo, "net": nn.Linear(4, 3), "torch": torch, "__builtins__": __builtins__,
                                                                   "same": lambda a, b: a is b, "small": [*range(5)], "whole": lambda n: type(n) is int})
        call = {"step": overdrive.capture, "part": overdrive.captured}[form](function, always=True) if is_captured else function
        seen = []
        for i in range(40):
            if i in (17, 30):
                memo.update(n=3, m=None)
            call(torch.randn(6 if i % 9 < 7 else 4, 4))
            seen.append({key: told(value) for key, value in memo.items()})
        return seen

    assert run(True) == run(False)


def by_flag(write, take, net, value, flag, x):
    if flag:
        write(net, value)


def by_data(write, take, net, value, flag, x):
    if x.sum() > 1:
        write(net, value)


def by_size(write, take, net, value, flag, x):
    """Each call writes, and those with a flag take it away again."""
    write(net, value)
    if flag:
        take(net)


def by_what_is_there(write, take, net, value, flag, x):
    if "last" in vars(net.space):
        take(net)
    elif x.sum() > 0:
        write(net, value)


TAKES = {
    "of a plain object": lambda net: delattr(net.space, "last"),
    "a key": lambda net: net.dict.pop("last"),
    "a class": lambda net: delattr(net.kind, "last"),
    "by its dict": lambda net: net.space.__dict__.pop("last"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("when", [by_flag, by_data, by_size, by_what_is_there], ids=lambda when: when.__name__)
@pytest.mark.parametrize("way", TAKES)
@pytest.mark.parametrize("value", ["size", "text", "none", "tuple", "output", "new"])
def test_what_some_calls_leave_or_take_away(way, value, when):
    def run(form):
        torch.manual_seed(0)
        net, (write, _), take, make = Net(), WAYS[way], TAKES[way], VALUES[value]

        def forward(x, flag):
            h = net.net(x).tanh()
            when(write, take, net, make(x, h), flag, x)
            return h.square().mean()

        call = {"step": overdrive.capture, "part": overdrive.captured}[form](forward, always=True) if form else forward
        seen = []
        for i in range(60):
            if i in (31, 44):
                net.space.__dict__.pop("last", None)
                net.dict.clear()
            x = torch.randn(4 if 12 <= i < 20 or i % 7 == 5 else 6, 4)
            loss = call(x, 8 <= i < 16 or i % 5 == 3).item()
            seen.append((loss, [{key: told(each) for key, each in vars(place).items() if key == "last"} for place in (net.space, net.kind)],
                         {key: told(each) for key, each in net.dict.items()}))
        return seen

    want = run("")
    for form in ("step", "part"):
        assert run(form) == want, form
