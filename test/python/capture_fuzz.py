"""Random captured programs of Python beside an eager twin: `capture_fuzz.py [--seed N] [--programs N] [--seconds S] [--show]`.

A program is a text: numbers and flags in globals, closures, attributes, dicts and lists, a model, an optimizer, inputs that are
slices, transposed or one another. Between the calls the same random changes are made to both. After each call results, their
structure, parameters, gradients, buffers, random state, versions and errors must be equal. The data are the same at first,
then others, then the first again. A step that replayed nothing must say why.
"""
import argparse
import contextlib
import ctypes
import random
import sys
import time
import warnings

import torch

import overdrive

CALLS = 26
VALUES = (0.5, 1.0, 1.5, 2.0)

PLACES = {  # how the function reads a value, and how a change writes it
    "G": ("G", 'env["G"] = {}'),
    "box['a']": ("box['a']", 'box["a"] = {}'),
    "box['deep']['b']": ("box['deep']['b']", 'box["deep"]["b"] = {}'),
    "numbers[1]": ("numbers[1]", "numbers[1] = {}"),
    "obj.a": ("obj.a", "obj.a = {}"),
    "obj.inner.b": ("obj.inner.b", "obj.inner.b = {}"),
    "Config.c": ("Config.c", "Config.c = {}"),
    "slotted.s": ("slotted.s", "slotted.s = {}"),
    "local": ("local", "write_local({})"),
    "model.factor": ("model.factor", "model.factor = {}"),
    "group": ("opt.param_groups[0]['mine']", 'opt.param_groups[0]["mine"] = {}'),
    "default": ("scaled.factor", "scaled.factor = {}"),
}
FLAGS = {
    "FLAG": ("FLAG", 'env["FLAG"] = {}'),
    "obj.flag": ("obj.flag", "obj.flag = {}"),
    "box['flag']": ("box['flag']", 'box["flag"] = {}'),
    "model.training": ("model.training", "model.train({})"),
}
OTHER_CHANGES = (
    "opt.param_groups[0]['lr'] = {}", "dropout.p = {} / 4", "obj.weight = torch.full((4,), {})", "hooks.append(leaf.register_hook(lambda g: g * {}))",
    "hooks and hooks.pop().remove()", "opt.load_state_dict(opt.state_dict())", "model[0].bias = nn.Parameter(torch.full((4,), {}))",
    "obj.function = torch.tanh if {} > 1 else torch.sigmoid", "numbers.append({})", "box.update(new={})", "buffer.fill_({})",
    "model.load_state_dict({{k: v * 0.9 for k, v in model.state_dict().items()}})", "obj.unread = {}", "model[0].weight.grad = None",
)
# What a program carries from call to call: tensors that it replaces.
CARRIED = ("obj.kept", "box['kept']", "obj.pair[0]", "obj.fed", "box['fed'][0]")
CARRIES = (
    "obj.kept = 0.9 * obj.kept + {t}.detach().mean(0)", "box['kept'] = {t}.detach()[0] + box['kept'] * {v}",
    "obj.kept, box['kept'] = box['kept'], obj.kept", "obj.pair = ({t}.detach()[1], obj.pair[0])", "obj.pair = (obj.pair[1] * 0.5, obj.kept)",
    "box['kept'] = obj.kept", "obj.kept = obj.kept + 1", "obj.kept.mul_(0.5)", "obj.kept = None if obj.kept is None else obj.kept.clone()",
    "obj.fed = obj.fed.detach() * 0.5", "obj.fed.detach().mul_(0.5)", "obj.kept = obj.fed.detach()", "box['fed'] = [obj.kept, {t}.detach()[0]]",
)
# What the program puts there before nearly every call.
FEEDS = ("obj.fed = torch.randn(4)", "obj.fed = torch.randn(6, 4)", "obj.fed = torch.randn(9)[1::2]", "obj.fed = box['fed'][0]", "obj.fed = obj.kept",
         "box['fed'] = [torch.randn(4), torch.randn(2)]", "box['fed'] = [obj.fed]", "box['fed'] = (torch.randn(4).double(),)", "obj.kept = torch.randn(4)",
         "obj.fed = buffer", "obj.fed = leaf", "obj.fed = torch.randn(4).requires_grad_()", "obj.fed = torch.randn(3, 4)[1]", "box['kept'] = obj.fed")
CHANGES_OF_CARRIED = ("obj.kept = torch.full((4,), {})", "obj.kept.mul_({})", "box['kept'] = obj.kept", "box['kept'] = torch.full((4,), {}).double().float()",
                      "obj.pair = (torch.full((4,), {}), torch.zeros(4))", "box.pop('kept', None); box['kept'] = torch.full((1, 4), {})[0]")


class Writer:
    """Writes the text of one program."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = ["x"]
        self.lines = []
        self.depth = 2
        self.used = []
        self.carries = seed % 3 == 1

    def say(self, line):
        self.lines.append("    " * self.depth + line)

    def pick(self, *what):
        return self.random.choice(what)

    def value(self):
        place = self.random.choice(list(PLACES))
        self.used.append(PLACES[place][1])
        return PLACES[place][0]

    def flag(self):
        place = self.random.choice(list(FLAGS))
        self.used.append(FLAGS[place][1])
        return FLAGS[place][0]

    def tensor(self):
        return self.random.choice(self.names)

    def expression(self):
        t, u = self.tensor(), self.tensor()
        return self.pick(
            f"torch.tanh({t})", f"{t} * {self.value()}", f"{t} + {self.value()}", f"{t} + {u}", f"{t} * {u}", f"helper({t})",
            f"obj.scale({t})", f"scaled({t})", f"{t} * obj.weight", f"model({t})", f"dropout({t})", f"obj.function({t})",
            f"F.dropout({t}, 0.3, training={self.flag()})", f"{t} + torch.rand_like({t}) * {self.value()}",
            f"({t} if x is y else {t} * 2)", f"{t}.t().contiguous().t()", f"torch.cat([{t}[:, 2:], {u}[:, :2]], 1)",
            f"nn.Softplus(beta={self.value()})({t})", f"F.layer_norm({t}, (4,), eps={self.value()})", f"{t} * leaf",
            f"sum(n * {t} for n in numbers)", f"torch.where({t} > 0, {t}, {u})", f"{t}.clamp(-{self.value()}, 3.0)",
            f"({t} if {t}.isfinite().all() else {u})", f"({t} * 2 if {u}.mean() > {self.value()} else {t})",
            f"{t} + {u}[{u} > -{self.value()} * 2].sum()", f"{t} * ({u} > {self.value()} * 2).sum().item()",
            f"{t} + len(x[x[:, 0] > -9])", f"torch.func.jvp(lambda z: z * z.tanh(), ({t},), ({u},))[1]",
            f"torch.tanh({t}) * 2 + torch.tanh({t}) * 2", f"{t} + torch.ones(4) * 2", f"helper({t}) * helper({t})",
            f"torch.full_like({t}, {self.value()})", f"{t} @ torch.eye(4)[index]", f"{t} * torch.tensor({self.value()})",
            f"{t} + overdrive.apart(lambda v: v * v.mean().item(), {u})", f"{t} * overdrive.apart(torch.rand_like, {u})",
            f"{t} + overdrive.apart(lambda v: (v * {self.value()})[0], {u})", f"{t} * (2.0 if {self.number()} else 1.0)",
            f"({t} if {self.number()} else {u})")

    def number(self):
        """A question to what the function, or code apart, changes."""
        return self.pick("obj.calls % 3 == 0", "box['calls'] > 12", "obj.bad > 1", "obj.late", "obj.total > 2")

    def carried(self):
        place = self.random.choice(CARRIED)
        if self.random.random() < 0.5:
            name = f"t{len(self.names)}"
            self.say(f"{name} = {self.tensor()} {self.pick('+', '*')} {place}")
            self.names.append(name)
            return
        write = self.random.choice(CARRIES).format(t=self.tensor(), v=self.value())
        if self.random.random() < 0.2:
            self.say(f"if {self.flag()}:")
            write = "    " + write
        self.say(write)

    def statement(self):
        if self.carries and self.random.random() < 0.4:
            self.carried()
            return
        kind = self.random.random()
        if kind < 0.6:
            name = f"t{len(self.names)}"
            self.say(f"{name} = {self.expression()}")
            self.names.append(name)
        elif kind < 0.75:
            name = f"t{len(self.names)}"
            self.say(f"if {self.flag()}:")
            self.say(f"    {name} = {self.expression()}")
            self.say("else:")
            self.say(f"    {name} = {self.expression()}")
            self.names.append(name)
        elif kind < 0.85:
            self.say("with torch.no_grad():")
            self.say("    " + self.pick(f"buffer.mul_(0.5).add_({self.tensor()}.detach().mean(0))", f"buffer.copy_({self.tensor()}[0])",
                                        f"buffer.lerp_(torch.ones(4), {self.value()} / 4)", "counter.add_(1)",
                                        f"y.mul_({self.value()})", f"leaf.mul_(1 - {self.value()} / 10)"))
        elif kind < 0.9:
            self.say(f"assert not box['raise'], {self.value()}")
            self.used.append("box['raise'] = {} == 2.0")
        elif kind < 0.95:
            self.say(self.pick("obj.calls += 1", "box['calls'] += 1", "obj.calls += len(x)", "obj.total += 0.25", "seen.append(len(seen))",
                               f"overdrive.apart(note, {self.tensor()})", f"overdrive.apart(note, {self.tensor()}[1:])", "obj.late = obj.calls % 4 == 0"))
        else:
            name = f"t{len(self.names)}"
            self.say(f"{name} = {self.tensor()} * 1")
            self.say(f"{name}{self.pick('.mul_(2)', '[0].fill_(1)', '.add_(x)', '.tanh_()', '.t_().t_()')}")
            self.names.append(name)

    def program(self):
        if self.random.random() < 0.25:
            self.say("torch.manual_seed(5)")
        for _ in range(self.random.randint(2, 7)):
            self.statement()
        if train := self.random.random() < 0.6:
            self.say(f"opt.zero_grad(set_to_none={self.pick(True, False)})")
            self.say(f"loss = ({self.names[-1]} * 0.1).square().mean() + model(x).mean() * 0.01 + (leaf * leaf).sum() * 0.01")
            self.say("loss.backward()")
            if self.random.random() < 0.3:
                self.say(f"torch.nn.utils.clip_grad_norm_(model.parameters(), {self.value()})")
            self.say("opt.step()")
        else:
            self.say(f"loss = {self.names[-1]}.sum()")
        last, some = self.names[-1], self.tensor()
        forms = ["loss", "loss.item()", f"({last}, loss.item())", f"(loss, {last})", f"{{'loss': loss, 'last': {last}}}", f"[{last}, (loss, None)]", f"(loss, {some}[:, 1:])"]
        if self.random.random() < 0.4:  # with numbers
            forms = [f"({last}, {self.value()}, len(x))", f"{{'loss': loss.item() / len(x), 'v': {self.value()}, 'flag': {self.flag()}}}",
                     f"(100 * (x > 0).sum().item() / x.numel() - loss.item(), loss.item() * loss.item(), {some}.shape)",
                     f"(loss, {self.number()}, obj.late, str({self.value()}))", "(loss, obj.calls % 3, opt.param_groups[0]['lr'])"]
        if self.random.random() < 0.3:
            self.say(f"if {self.flag()}:")
            self.say(f"    return {self.random.choice(forms)}")
        self.say(f"return {self.random.choice(forms)}")
        optimizer = self.pick("SGD(p, 0.05)", "SGD(p, 0.05, momentum=0.9)", "Adam(p, 0.01)", "AdamW(p, 0.01)")
        return HEAD + f"    opt = torch.optim.{optimizer}\n" + MIDDLE + "\n".join(self.lines) + TAIL, train


HEAD = '''
import types, torch, overdrive
from torch import nn
from torch.nn import functional as F
G, FLAG = 1.0, True
class Config:
    c = 1.0
class Slotted:
    __slots__ = ("s",)
class Object:
    def __init__(self):
        self.a, self.flag, self.calls, self.weight, self.function = 1.0, True, 0, torch.ones(4), torch.tanh
        self.total, self.bad, self.late, self.last = 0.0, 0, False, 0.0
        self.inner = types.SimpleNamespace(b=1.0)
        self.kept, self.pair, self.fed = torch.zeros(4), (torch.ones(4), torch.ones(4) * 2), torch.ones(4)
    def scale(self, t):
        return t * self.inner.b + self.a
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 1.0
    def forward(self, t):
        return t * self.factor
def build():
    torch.default_generator.manual_seed(3)
    env = globals()
    box, numbers, seen = {"a": 1.0, "deep": {"b": 1.0}, "flag": True, "raise": False, "calls": 0, "kept": torch.ones(4), "fed": [torch.ones(4)]}, [1.0, 0.5], []
    obj, slotted, scaled, dropout, local = Object(), Slotted(), Scaled(), nn.Dropout(0.25), 1.0
    slotted.s = 1.0
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    model.factor = 1.0
    leaf, buffer, counter, hooks = torch.full((4,), 0.5, requires_grad=True), torch.ones(4), torch.zeros(()), []
    p = [*model.parameters(), leaf]
'''
MIDDLE = '''
    opt.param_groups[0]["mine"] = 1.0
    def write_local(value):
        nonlocal local
        local = value
    def helper(t):
        return t * local
    def note(t):
        obj.last = t.sum().item()
        obj.bad = 0 if obj.last > 0 else obj.bad + 1
        obj.late = obj.bad > 1
    def step(x, y, index):
'''
TAIL = '''
    def change(text):
        exec(text, {**globals(), "env": env, "box": box, "numbers": numbers, "obj": obj, "slotted": slotted, "scaled": scaled,
                    "dropout": dropout, "model": model, "leaf": leaf, "buffer": buffer, "hooks": hooks, "opt": opt,
                    "write_local": write_local})
    return step, change, opt, lambda: [*model.parameters(), leaf, buffer, counter, obj.kept, *obj.pair, box["kept"], obj.fed, *box["fed"], *(
        v for s in opt.state.values() for v in s.values() if isinstance(v, torch.Tensor))], lambda: [
            obj.calls, obj.total, obj.bad, obj.late, repr(obj.last), box["calls"], len(seen)], lambda: [
            obj.kept, *obj.pair, box["kept"], obj.fed, *box["fed"]]
'''


class Side:
    """The program, eager or captured, with random numbers of its own."""

    def __init__(self, text, train, captured, passes=True):
        variables = {"__name__": "program"}
        exec(compile(text, "<program>", "exec"), variables)
        self.step, self.change, optimizer, self.state, self.numbers, self.carried = variables["build"]()
        # What calls have left, which the program keeps and later calls do not write.
        self.history = []
        self.captured = overdrive.capture(self.step, passes=passes, **({"optimizer": optimizer} if train else {})) if captured else None
        self.random = torch.get_rng_state()

    def call(self, inputs):
        torch.set_rng_state(self.random)
        try:
            results, error = (self.captured or self.step)(*inputs), ""
        except Exception as raised:
            results, error = None, f"{type(raised).__name__}: {raised}".split("\n")[0]
        self.random = torch.get_rng_state()
        self.history = [*self.history[-12:], *self.carried()]
        return results, error

    def relations(self):
        """Which of what is carried, now and before, is one object, and which shares memory: the first of each."""
        memory = [x.untyped_storage().data_ptr() for x in self.history]
        objects = [id(x) for x in self.history]
        return [objects.index(x) for x in objects], [memory.index(x) for x in memory]


def plain(value, strict):
    if isinstance(value, torch.Tensor):
        kept = value.detach().contiguous()
        bits = ctypes.string_at(kept.data_ptr(), kept.nbytes) if kept.nbytes else b""
        return ("tensor", tuple(value.shape), value.dtype, value.stride() if strict else (), bits)
    if isinstance(value, dict):
        return {key: plain(part, strict) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [plain(part, strict) for part in value])
    return repr(value)


def inputs_of(kind, data, index):
    numbers = torch.Generator().manual_seed(data)
    x, y = torch.randn(6, 4, generator=numbers), torch.randn(6, 4, generator=numbers)
    if kind == "slice":
        x = torch.cat([y, x])[6:]
    elif kind == "transposed":
        x = x.t().contiguous().t()
    elif kind == "same":
        y = x
    elif kind == "view":
        y = x[:]
    elif kind == "small":
        x, y = x[:3].clone(), y[:3].clone()
    return x, y, torch.tensor([0, 1, 2, index])


def difference(eager, ours, got, want, inputs, others, strict):
    (results, error), (expected, raised) = got, want
    if error != raised:
        return f"error {error!r}, eager's is {raised!r}"
    if plain(results, strict) != plain(expected, strict):
        return "results"
    if plain(ours.state(), True) != plain(eager.state(), True):
        return "state"
    if ours.numbers() != eager.numbers():
        return f"numbers {ours.numbers()}, eager's are {eager.numbers()}"
    if plain(ours.history, True) != plain(eager.history, True):
        return "what was left before"
    if ours.relations()[0] != eager.relations()[0]:
        return "which of what is carried is one object"
    if ours.relations()[1] != eager.relations()[1]:
        return "which of what is carried shares memory"
    for a, b in zip(ours.state(), eager.state()):
        if a.is_leaf and plain(a.grad, False) != plain(b.grad, False):
            return "gradients"
        if strict and a._version != b._version:
            return "versions"
    if plain(list(inputs), True) != plain(list(others), True):
        return "inputs"
    if strict and [x._version for x in inputs] != [x._version for x in others]:
        return "versions of inputs"
    return "" if torch.equal(eager.random, ours.random) else "random numbers"


def try_program(seed, strict=False):
    """What differs, or ""; how many calls were replayed; the text."""
    with contextlib.ExitStack() as contexts:
        return tried(seed, strict, contexts)


def tried(seed, strict, contexts):
    writer = Writer(seed)
    text, train = writer.program()
    eager, ours = Side(text, train, False), Side(text, train, True, passes=seed % 4 != 3)
    chance = writer.random
    changes = [*(change for change in writer.used), *chance.sample(OTHER_CHANGES, 2), *(chance.sample(CHANGES_OF_CARRIED, 2) if writer.carries else ())]
    feeds = chance.sample(FEEDS, 2) if writer.carries and chance.random() < 0.6 else []
    kind = chance.choice(["plain", "plain", "slice", "transposed", "same", "view"])
    told = []
    autocasts, inside = chance.random() < 0.25, False
    for call in range(CALLS):
        if autocasts and chance.random() < 0.3:
            contexts.close()
            inside = not inside
            if inside:
                contexts.enter_context(torch.autocast("cpu", cache_enabled=chance.random() < 0.8))
            told.append(f"before call {call}: {'inside' if inside else 'outside'} of autocast")
        if chance.random() < 0.15:
            change = chance.choice(changes)
            value = chance.choice((True, False)) if change in [flag for _, flag in FLAGS.values()] else chance.choice(VALUES)
            change = change.format(value)
            told.append(f"before call {call}: {change}")
            for side in (eager, ours):
                torch.default_generator.manual_seed(9)
                side.change(change)
        for feed in feeds:
            if chance.random() < 0.9:
                told.append(f"before call {call}: {feed}")
                for side in (eager, ours):
                    torch.default_generator.manual_seed(100 + call)
                    side.change(feed)
        data = 1 if call < 9 or call > 18 else call
        this = chance.choice(["same", "small", "slice"]) if chance.random() < 0.1 else kind
        index = 9 if chance.random() < 0.03 else 3
        inputs, others = inputs_of(this, data, index), inputs_of(this, data, index)
        got, want = ours.call(inputs), eager.call(others)
        if found := difference(eager, ours, got, want, inputs, others, strict):
            made = ours.captured.stats()
            return f"call {call} ({this}): {found}; {made}", made["replayed"], text + "\n# " + "\n# ".join(told)
    replayed = ours.captured.stats()["replayed"]
    silent = "" if replayed or ours.captured.refusal() else "nothing was replayed, and refusal() is empty"
    return silent, replayed, text + "\n# " + "\n# ".join(told)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=10**9)
    parser.add_argument("--strict", action="store_true", help="strides of results and versions too")
    parser.add_argument("--show", action="store_true", help="the text of each program that differs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    end, differ, replayed, tried = time.monotonic() + options.seconds, 0, 0, 0
    for seed in range(options.seed, options.seed + options.programs):
        if time.monotonic() > end:
            break
        found, count, text = try_program(seed, options.strict)
        tried, replayed = tried + 1, replayed + (count > 0)
        if found:
            differ += 1
            print(f"seed {seed}: {found}", flush=True)
            if options.show:
                print(text, flush=True)
    print(f"{tried} programs, {replayed} replayed, {differ} differ")
    return 1 if differ or not replayed else 0


if __name__ == "__main__":
    sys.exit(main())
