"""Random modules and loops, captured beside an eager twin: `parts_fuzz.py [--seed N] [--programs N] [--seconds S] [--show]`.

A program is a text: a module of PyTorch's layers with numbers, flags, masks, keywords and containers, hooks on it and on its
parameters, and a loop that another person might have written around it: accumulation, evaluation, several calls before a
backward, checkpoints, optimizers and schedulers, changes of the module between the calls. After each step results, their
structure, parameters, gradients, buffers, optimizer state, random numbers, errors and the order of the hooks must be equal.
"""
import argparse
import ctypes
import random
import sys
import time
import warnings

import torch

import overdrive
from overdrive.step.part import _ModuleCall

STEPS = 24

# Of (batch, 8) to (batch, 8).
PLAIN = (
    "nn.Linear(8, 8)", "nn.Linear(8, 8, bias=False)", "nn.LayerNorm(8)", "nn.BatchNorm1d(8)", "nn.BatchNorm1d(8, momentum=None)",
    "nn.RMSNorm(8)", "nn.GroupNorm(2, 8)", "nn.Dropout(0.3)", "nn.AlphaDropout(0.2)", "nn.FeatureAlphaDropout(0.2)", "nn.ReLU()",
    "nn.ReLU(inplace=True)", "nn.ELU(inplace=True)", "nn.CELU()", "nn.SELU()", "nn.GELU()", "nn.GELU('tanh')", "nn.SiLU()", "nn.Mish()",
    "nn.Hardswish()", "nn.Hardtanh()", "nn.Hardshrink(0.1)", "nn.Softshrink(0.1)", "nn.Softplus()", "nn.Softsign()",
    "nn.Tanhshrink()", "nn.Threshold(0.1, 0.2)", "nn.LeakyReLU(0.1)", "nn.PReLU()", "nn.PReLU(8)", "nn.RReLU()", "nn.LogSigmoid()",
    "nn.Softmax(1)", "nn.LogSoftmax(1)", "nn.Softmin(1)", "nn.Identity()", "nn.ReLU6()", "nn.Hardsigmoid()",
    "parametrizations.weight_norm(nn.Linear(8, 8))", "parametrizations.spectral_norm(nn.Linear(8, 8))",
    "parametrizations.orthogonal(nn.Linear(8, 8))", "nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 8))",
    "nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.1), nn.ReLU(), nn.Linear(4, 8), nn.LayerNorm(8))", "Counted(nn.Linear(8, 8))",
    "Residual(nn.Linear(8, 8))", "Residual(nn.Sequential(nn.Linear(8, 8), nn.GELU()))", "Noisy()", "Mapped(nn.Linear(8, 8))",
)
# How another shape comes and goes.
SHAPED = (
    ("nn.Conv1d(2, 2, 3, padding=1)", "{m}({x}.view(-1, 2, 4)).flatten(1)"), ("nn.ConvTranspose1d(2, 2, 3, padding=1)", "{m}({x}.view(-1, 2, 4)).flatten(1)"),
    ("nn.Conv2d(2, 2, 3, padding=1, groups=2)", "{m}({x}.view(-1, 2, 2, 2)).flatten(1)"), ("nn.BatchNorm2d(2)", "{m}({x}.view(-1, 2, 2, 2)).flatten(1)"),
    ("nn.InstanceNorm1d(2, affine=True)", "{m}({x}.view(-1, 2, 4)).flatten(1)"), ("nn.MaxPool1d(3, 1, 1)", "{m}({x})"),
    ("nn.AvgPool1d(3, 1, 1)", "{m}({x})"), ("nn.AdaptiveAvgPool1d(8)", "{m}({x})"), ("nn.LocalResponseNorm(2)", "{m}({x}.view(-1, 2, 4)).flatten(1)"),
    ("nn.PixelShuffle(2)", "{m}({x}.view(-1, 8, 1, 1)).flatten(1)[:, :4].repeat(1, 2)"), ("nn.Upsample(scale_factor=2)", "{m}({x}[:, None, :4]).flatten(1)"),
    ("nn.Dropout1d(0.3)", "{m}({x}.view(-1, 2, 4)).flatten(1)"), ("nn.Dropout2d(0.3)", "{m}({x}.view(-1, 2, 2, 2)).flatten(1)"),
    ("nn.Bilinear(8, 8, 8)", "{m}({x}, {y})"), ("nn.GRUCell(8, 8)", "{m}({x}, {y})"), ("nn.RNNCell(8, 8)", "{m}({x}, {y})"), ("nn.LSTMCell(8, 8)", "sum({m}({x}))"),
    ("nn.LSTM(8, 8, batch_first=True)", "{m}({x}[:, None].expand(-1, 3, -1))[0][:, -1]"), ("nn.GRU(8, 8, 2, dropout=0.1)", "{m}({x}[None])[0][0]"),
    ("nn.RNN(8, 4, bidirectional=True)", "{m}(torch.stack([{x}, {y}]))[0].mean(0)"), ("nn.GLU(1)", "{m}(torch.cat([{x}, {y}], 1))"),
    ("nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1)", "{m}({x}[None], {y}[None], {y}[None])[0][0]"),
    ("nn.MultiheadAttention(8, 2)", "{m}({x}[:, None], {x}[:, None], {x}[:, None], need_weights=False)[0][:, 0]"),
    ("nn.TransformerEncoderLayer(8, 2, 16)", "{m}({x}[:, None])[:, 0]"),
    ("nn.TransformerDecoderLayer(8, 2, 16, norm_first=True)", "{m}({x}[:, None], {y}[:, None])[:, 0]"),
    ("nn.Embedding(8, 8)", "{x} + {m}({y}.argmax(1))"), ("nn.EmbeddingBag(8, 8)", "{x} * {m}({y}.argsort(1))"), ("nn.CosineSimilarity(1)", "{x} * {m}({x}, {y})[:, None]"),
    ("nn.PairwiseDistance()", "{x} * {m}({x}, {y})[:, None]"), ("nn.Fold((1, 8), (1, 1))", "{m}({x}[:, None]).flatten(1)"),
    ("nn.ParameterList([torch.full((8,), 0.5), torch.ones(8)])", "{x} * {m}[0] + {m}[1]"), ("nn.ModuleDict({{'a': nn.Linear(8, 8), 'b': nn.Tanh()}})", "{m}['b']({m}['a']({x}))"),
    ("nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])", "sum(m({x}) for m in {m})"),
)
VALUES = (0.5, 1.0, 1.5, 2.0)
BETWEEN = (  # what happens to the module before a step
    "net.train(not net.training)", "net.eval()", "net.train()", "net.scale = {v}", "net.flag = not net.flag", "net.last.requires_grad_(not net.last.weight.requires_grad)",
    "net.requires_grad_({b})", "net.load_state_dict({{k: t * 0.9 if t.is_floating_point() else t for k, t in net.state_dict().items()}})",
    "net.last.weight = nn.Parameter(net.last.weight.detach() * {v})", "net.last.weight.data = net.last.weight.data * {v}", "net.last.weight.data.mul_({v})",
    "net.table['a'] = {v}", "net.numbers.append({v})", "net.numbers[0] = {v}", "net.buffer.fill_({v})", "net.last = nn.Linear(8, 8)",
    "handles.append(net.register_forward_hook(lambda m, a, o: log.append('forward')))", "handles.append(net.register_forward_pre_hook(lambda m, a: log.append('pre')))",
    "handles.append(net.last.register_forward_hook(lambda m, a, o: o * {v}))", "handles.append(net.last.register_full_backward_hook(lambda m, i, o: log.append('full')))",
    "handles.append(net.last.weight.register_hook(lambda g: (log.append('hook'), g * {v})[1]) if net.last.weight.requires_grad else torch.nn.Parameter(torch.ones(1)).register_hook(print))",
    "handles.append(net.last.bias.register_post_accumulate_grad_hook(lambda p: log.append('post')) if net.last.bias.requires_grad else torch.nn.Parameter(torch.ones(1)).register_hook(print))",
    "[h.remove() for h in handles]; handles.clear()", "net = copy.deepcopy(net); remake()", "net.last.forward = lambda x: x * {v}",
    "net.last.__dict__.pop('forward', None)", "torch.set_flush_denormal(False)", "net.half_of = {b}", "opt.param_groups[0]['lr'] = {v} / 50", "schedule.step()",
    "net.last.weight.grad = None", "net.last.bias.grad = torch.ones(8)", "net.zero_grad(set_to_none=False)", "opt.load_state_dict(opt.state_dict())",
    "parametrize.is_parametrized(net.last) or parametrizations.weight_norm(net.last)", "torch.manual_seed(5)",
)
TRAIN = "opt.zero_grad(set_to_none={b}); out = net({a}); loss = loss_of(out); back(loss); {clip}opt.step(); got.append(out)"
STEP = (  # what a step is
    TRAIN, TRAIN, TRAIN, TRAIN,
    "with torch.no_grad(): got.append(net({a}))", "with torch.inference_mode(): got.append(copied(net({a})))",
    "opt.zero_grad(); outs = [net(batch(k)) for k in range(3)]; [back(loss_of(out)) for out in (outs if {b} else outs[::-1])]; opt.step(); got.append(outs)",
    "out = net({a}); loss = loss_of(out); back(loss, retain_graph=True); back(loss); got.append(out); opt.step()",
    "opt.zero_grad(); out = net({a}); got.append(torch.autograd.grad(loss_of(out), [p for p in net.parameters() if p.requires_grad][:2], allow_unused=True) if loss_of(out).requires_grad else out)",
    "z = batch(7).requires_grad_(); out = net(z); back(loss_of(out)); got += [out, z.grad]", "z = batch(7).requires_grad_(); out = net(z * 2); got += [out, torch.autograd.grad(loss_of(out), z, allow_unused=True)]",
    "z = net(batch(6)); z = first(z); out = net(z); opt.zero_grad(); back(loss_of(out)); opt.step(); got.append(out)",
    "out = checkpoint(net, {x}, use_reentrant=False); opt.zero_grad(); back(loss_of(out)); got.append(out)",
    "with torch.autocast('cpu', enabled={b}): out = net({a}); loss = loss_of(out)\n    opt.zero_grad(); back(loss); opt.step(); got.append(out)",
    "got.append(torch.func.functional_call(net, {{k: p.detach() * {v} for k, p in net.named_parameters()}}, ({x},)))",
    "net(batch(5)[:, :4])", "out = net({a}); del out", "out = net({a}); back(loss_of(out) * {v}); got.append(out)",
    "out = net({x}); got.append(torch.autograd.grad(first(out), [p for p in net.parameters() if p.requires_grad][-1:], torch.ones_like(first(out)) * {v}, allow_unused=True) if first(out).requires_grad else 0)",
    "out = first(net({x})); got += [out, out.is_leaf]; out.detach().mul_({v})",
    "xs = [batch(k) for k in range(3)]; outs = in_threads(lambda x: copied(net.eval()(x)), xs); got += outs",
    "with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t): out = net({x})\n    back(loss_of(out)); got.append(out)",
    "out = net({x}); first(out).register_hook(lambda g: g * {v}) if first(out).requires_grad else 0; back(loss_of(out)); got.append(out)",
    "out = net({x}); back(first(out)[:, :3].sum()); got.append(out)", "out = net({x}); back(first(out).sum()); got.append(out)",
)


class Writer:
    """Writes the text of one program."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.layers, self.lines, self.names = [], [], ["x"]

    def pick(self, *what):
        return self.random.choice(what)

    def expression(self):
        x, y, chance = self.pick(*self.names), self.pick(*self.names), self.random.random()
        if chance < 0.45:
            return f"{self.layer(self.pick(*PLAIN))}({x})"
        if chance < 0.65:
            layer, call = self.pick(*SHAPED)
            return call.format(m=self.layer(layer.replace("{{", "{").replace("}}", "}")), x=x, y=y)
        if chance < 0.7 and self.layers:
            name, text = self.pick(*enumerate(self.layers))
            if text in PLAIN:
                return f"self.layer{name}({x})"
        return self.pick(
            f"{x} + {y}", f"{x} * self.scale", f"{x} * self.table['a']", f"{x} * sum(self.numbers)", f"torch.cat([{x}[:, 4:], {y}[:, :4]], 1)",
            f"({x} * 2 if self.flag else {x})", f"({x} * 2 if mask is not None else {x})", f"{x} * scale", f"{x}.masked_fill({y} > 1, 0.5)",
            f"({x} if self.training else {x} * 3)", f"{x} + self.buffer", f"F.dropout({x}, 0.2, self.training)", f"{x} * torch.rand_like({x})",
            f"({x} * 2 if x.requires_grad else {x})", f"({x} * 2 if torch.is_grad_enabled() else {x})", f"{x} * x.shape[0]", f"{x}.detach() + {y}",
            f"({x} if {x}.isfinite().all() else {y})", f"({x} * 2 if {y}.mean() > 0.3 else {x})", f"{x} + {y}[{y} > -3].sum()",
            f"{x} + {x}[:, {y}[0] > -9].sum()", f"{x} * ({y} > 4).sum().item()",
            f"{x}.tanh() * 2 + {x}.tanh() * 2", f"{x} * (torch.ones(8) * 2)", f"({x} * self.scale) * ({x} * self.scale)",
            f"{x} * torch.tensor([self.scale] * 8)", f"F.normalize({x}, dim=1)", f"{x} * (extra['bias'] if extra else 1)", f"self.last({x})",
            f"torch.where({x} > 0, {x}, {y})", f"{x}[torch.arange(x.shape[0]).flip(0)]", f"{x}.t().contiguous().t()", f"{x} @ self.square", f"{x}.split(4, 1)[0].repeat(1, 2)")

    def layer(self, text):
        self.layers.append(text)
        return f"self.layer{len(self.layers) - 1}"

    def statement(self):
        chance, name = self.random.random(), f"t{len(self.names)}"
        if chance < 0.84:
            self.lines.append(f"{name} = {self.expression()}")
        elif chance < 0.92:
            self.lines.append(f"{name} = {self.pick(*self.names)} * 1")
            self.lines.append(f"{name}{self.pick('.mul_(2)', '[0].fill_(1)', '.tanh_()', '.add_(x)', '[:, 0].mul_(self.scale)', '.clamp_(-1, 1)')}")
        else:
            self.lines.append(self.pick("self.buffer.lerp_(x.detach().mean(0), 0.5)", "with torch.no_grad(): self.buffer.mul_(0.5)", "self.seen = self.seen + 1",
                                        "if x.shape[0] > 100 or x[0, 0].item() > 50: raise ValueError('large')", "assert not self.broken", "self.kept = x.mean()"))
            return
        self.names.append(name)

    def program(self):
        for _ in range(self.random.randint(2, 7)):
            self.statement()
        last, other = self.names[-1], self.pick(*self.names[1:] or ["x * 1"])
        result = self.pick(last, last, last, f"({last}, {other} * 2)", f"{{'out': {last}, 'n': 3, 'none': None}}", f"Output({last}, {other} + 1)", f"Pair({last}, [{other} * 3])", f"({last}, {last})", f"Plain({last})")
        init = "\n".join(f"        self.layer{i} = {text}" for i, text in enumerate(self.layers))
        forward = "\n".join("        " + line for line in self.lines)
        clip = self.pick("", "", "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0); ")
        call = self.pick("x", "x", "x, mask=None", "x, x > 0", "x, scale=i % 2 + 1", "x, extra={'bias': x.mean(0)}", "x, None, scale=2.0, extra=None", "x[:3]", "x.t().contiguous().t()")
        optimizer = self.pick("SGD(p, 0.02)", "SGD(p, 0.02, momentum=0.9)", "Adam(p, 0.01)", "AdamW(p, 0.01)", "RMSprop(p, 0.01)")
        fill = dict(a=call, x=call if call == "x[:3]" else "x", clip=clip)
        main = self.pick(TRAIN, self.pick(*STEP))
        steps = []
        for i in range(STEPS):
            before = self.pick(*BETWEEN) if self.random.random() < 0.12 else "0"
            step = main if self.random.random() < 0.75 else self.pick(*STEP)
            values = dict(v=self.pick(*VALUES), b=self.pick("True", "False"))
            steps.append(f"def step{i}(net, i, x, got):\n    global opt\n    {before.format(**values)}\n    {step.format(**fill, **values)}\n    return net")
        what = self.pick("net", "net", "net", "net.layer0" if self.layers else "net", "net and net.last")
        text = HEAD + init + MIDDLE + forward + f"\n        return {result}\n" + TAIL.replace("OPTIMIZER", optimizer).replace("WHAT", what)
        return text.replace("BOTH", str(self.random.random() < 0.6)).replace("PASSES", str(self.random.random() < 0.75)) + "\n".join(steps), what


HEAD = '''
import copy, threading, torch, overdrive
from collections import namedtuple
from dataclasses import dataclass
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint
Pair = namedtuple("Pair", "a b")
@dataclass
class Output:
    out: torch.Tensor
    more: torch.Tensor
class Plain:
    def __init__(self, out):
        self.out, self.sizes = out, out.shape
class Counted(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.calls = inner, 0
    def forward(self, x):
        self.calls += 1
        return self.inner(x)
class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return x + self.inner(x)
class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x) * 0.1 if self.training else x
class Mapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        made = {"x": x, "y": [self.inner(x)]}
        return made["x"] * made["y"][0]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.flag, self.numbers, self.table, self.seen, self.broken = 1.0, True, [1.0, 0.5], {"a": 1.0}, 0, False
        self.last = nn.Linear(8, 8)
        self.register_buffer("buffer", torch.ones(8))
        self.register_buffer("square", torch.eye(8) * 0.9)
'''
MIDDLE = '''
    def forward(self, x, mask=None, *, scale=1.0, extra=None):
'''
TAIL = '''
log, handles = [], []
def first(out):
    if isinstance(out, torch.Tensor):
        return out
    return first(out["out"] if isinstance(out, dict) else out[0] if isinstance(out, (tuple, list)) else out.out)
def loss_of(out):
    return (first(out).float() * 0.3).square().mean()
def back(loss, **options):
    if loss.requires_grad:
        loss.backward(**options)
def copied(out):
    return first(out).clone()
def batch(k):
    return torch.randn(5, 8, generator=torch.Generator().manual_seed(k))
def in_threads(function, xs):
    results = [None] * len(xs)
    def run(k):
        torch.set_num_threads(1)  # a new thread's first product may use more, and rounds in another way
        with torch.no_grad():
            results[k] = function(xs[k])
    for k in range(len(xs)):  # one after the other: random numbers are the process's
        thread = threading.Thread(target=run, args=(k,))
        thread.start()
        thread.join()
    return results
def remake():
    pass
def build(captured):
    global opt, schedule
    torch.default_generator.manual_seed(3)
    net = Net()
    p = list(net.parameters())
    opt = torch.optim.OPTIMIZER
    schedule = torch.optim.lr_scheduler.StepLR(opt, 2, 0.9)
    if captured:
        overdrive.captured(WHAT, passes=PASSES)
        if BOTH:
            opt = overdrive.captured(opt, passes=PASSES)
    return net
'''


class Side:
    """The program, eager or captured, with random numbers of its own."""

    def __init__(self, text, captured):
        self.variables = {"__name__": "program"}
        exec(compile(text, "<program>", "exec"), self.variables)
        self.net = self.variables["build"](captured)
        self.random = torch.get_rng_state()

    def step(self, i):
        torch.set_rng_state(self.random)
        got, error = [], ""
        try:
            self.net = self.variables[f"step{i}"](self.net, i, self.variables["batch"](i if i < 8 or i > 16 else 99), got)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}".split("\n")[0][:80]
        self.random = torch.get_rng_state()
        state = [(name, p, p.grad, p.requires_grad) for name, p in self.net.named_parameters()]
        kept = [list(s.values()) for s in self.variables["opt"].state.values()]
        return {"error": error, "results": plain(got), "state": plain(state), "buffers": plain(list(self.net.named_buffers())),
                "counters": (self.net.seen, [m.calls for m in self.net.modules() if hasattr(m, "calls")]),
                "optimizer": plain(kept), "hooks": list(self.variables["log"]), "random": plain(self.random)}

    def parts(self):
        calls = [m._compiled_call_impl for m in self.net.modules() if isinstance(m._compiled_call_impl, _ModuleCall)]
        return [call.part for call in calls if call.part is not None]


def plain(value):
    if isinstance(value, torch.Tensor):
        kept = value.detach().contiguous()
        bits = ctypes.string_at(kept.data_ptr(), kept.nbytes) if kept.nbytes else b""
        return ("tensor", tuple(value.shape), str(value.dtype), value.requires_grad, bits)
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [plain(part) for part in value])
    if value is None or isinstance(value, (int, float, str)):
        return value
    return (type(value).__name__, plain(vars(value)))


def try_program(seed):
    """What differs, or ""; how many calls were replayed; the text."""
    text, _ = Writer(seed).program()
    try:
        Side(text, False)
    except Exception as error:  # noqa: BLE001 - no program
        return f"no program: {type(error).__name__}: {error}", 0, text
    found, replayed = difference(text, captured=True)
    if found and difference(text, captured=False)[0]:
        return "", 0, text  # stock has other bits in each run, as a checkpoint of RReLU
    return found, replayed, text


def difference(text, captured):
    eager, ours = Side(text, False), Side(text, captured)
    for i in range(STEPS):
        want, got = eager.step(i), ours.step(i)
        if got["error"] == want["error"] and "needed for gradient computation" in got["error"]:
            break  # how many leaves got their gradients before the error is nobody's promise
        for what in want:
            if want[what] != got[what]:
                told = f": {got[what]!r}, eager's is {want[what]!r}" if what in ("error", "hooks", "counters") else ""
                return f"step {i}: {what}{told}", 0
    return "", sum(part.stats()["replayed"] for part in ours.parts())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=10**9)
    parser.add_argument("--show", action="store_true", help="the text of each program that differs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    end, differ, replayed, tried = time.monotonic() + options.seconds, 0, 0, 0
    for seed in range(options.seed, options.seed + options.programs):
        if time.monotonic() > end:
            break
        found, count, text = try_program(seed)
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
