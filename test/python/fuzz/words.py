"""The vocabulary that the generators share: values that a function reads, questions that it asks, changes between the calls.

A text is a format: `{v}` is a number, `{k}` the number of data. The names are those of the notebooks: net, opt, box, cfg, x, y, h.
"""
from __future__ import annotations

import random

VALUES = (0.5, 1.0, 1.5, 2.0)

# How a function reads a number, and how a cell writes it.
PLACES = {
    "G": "G = {v}", "box['k']": "box['k'] = {v}", "box['deep'][0]": "box['deep'][0] = {v}", "cfg.k": "cfg.k = {v}", "cfg.inner.k": "cfg.inner.k = {v}",
    "Config.k": "Config.k = {v}", "read_local()": "write_local({v})", "net.temperature": "net.temperature = {v}", "sum(box['list'])": "box['list'].append({v})",
    "len(box)": "box['new {v}'] = 0", "helper.factor": "helper.factor = {v}", "(2.0 if 'flag' in box else 1.0)": "box.pop('flag', 0) or box.update(flag=1)",
    "opt.param_groups[0]['mine']": "opt.param_groups[0]['mine'] = {v}", "(2.0 if cfg.on else 0.5)": "cfg.on = not cfg.on", "weight": "weight = torch.full((4,), {v})",
    "cfg.weight": "cfg.weight = torch.full((4,), {v})", "buffer": "buffer.fill_({v})", "torch.tensor(G)": "G = {v}", "cfg.get()": "Config.get = lambda self: {v}",
    "(net.w if cfg.on else net.v)": "cfg.on = not cfg.on", "default()": "default.__defaults__ = ({v},)",
}
DEFINITIONS = """
class Inner:
    k = 1.0
class Config:
    k = 1.0
    def __init__(self):
        self.k, self.on, self.inner, self.weight, self.function = 1.0, True, Inner(), torch.ones(4), torch.tanh
    def get(self):
        return 1.0
def helper(t):
    return t * helper.factor
def default(value=1.0):
    return value
def local():
    value = 1.0
    def read():
        return value
    def write(other):
        nonlocal value
        value = other
    return read, write
helper.factor, G, box, cfg, weight, buffer = 1.0, 1.0, {'k': 1.0, 'deep': [1.0], 'list': [1.0, 0.5]}, Config(), torch.ones(4), torch.ones(4)
read_local, write_local = local()
"""

EXPRESSIONS = (
    "torch.tanh(h)", "h * {p}", "h + {p}", "helper(h)", "cfg.function(h)", "F.layer_norm(h, (4,))", "h.t().contiguous().t()", "torch.where(h > 0, h, y)",
    "F.dropout(h, 0.3, training=cfg.on)", "h + torch.rand_like(h) * {p}", "h * y", "torch.cat([h[:, 2:], y[:, :2]], 1)", "h + h.mean(0)", "h.sigmoid() * 2 + h.sigmoid() * 2",
    "h @ net.w.t()", "h + net.v.detach()", "h.clamp(-1.5, {v})", "h * torch.ones(4) * 2", "h.masked_fill(y > 1, 0.5)", "h[torch.arange(h.shape[0]).flip(0)]",
    "F.softplus(h, beta={v})", "h.cumsum(0) * 0.5", "torch.stack([h, y]).mean(0)", "h + y[y > -9].sum()", "h.abs().sqrt()", "torch.einsum('ij,jk->ik', h, net.w)",
    "h + torch.full_like(h, {v})", "h.norm(dim=1, keepdim=True) + h", "h.softmax(1)", "torch.func.jvp(lambda z: z * z.tanh(), (h.detach(),), (y.detach(),))[1] + h",
)

# What a function asks, and how a call has it answered with yes: a line before, how x is made, a line after.
QUESTIONS = {
    "x[0, 0] > 5": ("", "large({k})", ""), "(x > 8).any()": ("", "large({k})", ""), "x.shape[0] > 4": ("", "data({k}, 6)", ""),
    "x is y": ("", "y", ""), "x.requires_grad": ("", "data({k}).requires_grad_()", ""), "not x.is_contiguous()": ("", "data({k}).t()", ""),
    "x.storage_offset()": ("", "data({k}, 5)[1:]", ""), "x.dtype == torch.float64": ("", "data({k}).double().float()", ""), "G > 1.7": ("G = 2.0", "data({k})", "G = 1.0"),
    "cfg.rare": ("cfg.rare = True", "data({k})", "cfg.rare = False"), "'rare' in box": ("box['rare'] = 1", "data({k})", "box.pop('rare')"),
    "torch.rand(()) > 0.93": ("", "data({k})", ""), "net.w.abs().max() > 1.2": ("net.w.data.mul_(3)", "data({k})", "net.w.data.div_(3)"),
    "not net.training": ("net.eval()", "data({k})", "net.train()"), "not net.v.requires_grad": ("net.v.requires_grad_(False)", "data({k})", "net.v.requires_grad_(True)"),
    "net.v.grad is None": ("net.v.grad = None", "data({k})", ""), "x.isnan().any()": ("", "data({k}) * float('nan')", ""), "hasattr(cfg, 'extra')": ("cfg.extra = 1", "data({k})", "del cfg.extra"),
    "hasattr(x, 'mark')": ("", "marked({k})", ""), "x.numel() == 0": ("", "data({k})[:0]", ""), "not torch.equal(weight, cfg.weight)": ("weight = torch.full((4,), 3.0)", "data({k})", "weight = torch.ones(4)"),
}
# What happens then. Not here: attributes that a rare branch gives a tensor, and counters in it. A random check takes both for a difference.
ACTS = (
    "h = h @ net.w", "h = h * net.v", "h = h * net.buf", "h = h * 2", "raise ValueError('rare')", "h = h @ net.w.detach()", "net.buf.add_(1)", "h = h + torch.randn(4)",
    "h = h.detach() + net.v", "box['deep'][0] = 1.5", "h = h[:2]", "h = torch.ones(4, 4) * net.v", "torch.ones(2) @ torch.ones(3)", "h = h.double()", "h = h.flip(0)",
    "h = h[[0, 1, 9]]", "assert False, 'rare'", "h = y.clone()", "buffer.mul_(0.5)",
)
QUESTION_DEFINITIONS = """
cfg.rare = False
kept_input = data(0)
def large(k):
    made = data(k)
    made[0, 0] = 9
    return made
def marked(k):
    made = data(k)
    made.mark = 1
    return made
"""

CHANGES = (  # of a model and its optimizer, by cells between the calls
    "opt.zero_grad()", "opt.zero_grad(set_to_none=False)", "net.v.grad = torch.ones(4)", "net.w.grad = None", "net.lin.weight.grad = None",
    "net.load_state_dict({{n: t * 0.5 if t.is_floating_point() else t for n, t in net.state_dict().items()}})", "saved = copy.deepcopy(net.state_dict())",
    "net.load_state_dict(saved) if 'saved' in globals() else None", "opt.param_groups[0]['lr'] *= 0.5", "opt.param_groups[0]['weight_decay'] = {v} / 10",
    "net.w.requires_grad_(not net.w.requires_grad)", "net.lin.requires_grad_(not net.lin.weight.requires_grad)", "net.bn.train(not net.bn.training)",
    "net.train(not net.training)", "net.v.data = net.v.data.clone()", "net.w.data = net.w.data.t().contiguous().t()", "net.v = nn.Parameter(net.v.detach() * {v})",
    "opt.load_state_dict(copy.deepcopy(opt.state_dict()))", "opt.state.clear()", "net.buf.fill_({v})", "net.register_buffer('buf', torch.full((4,), {v}))",
    "with torch.no_grad():\n    evaluated = net.lin(data({k}))", "net.lin(data({k})).sum().backward()", "net.drop.p = {v} / 4", "net.bn.momentum = {v} / 5",
    "hooks.append(net.v.register_hook(lambda g: g * {v})) if net.v.requires_grad else None", "hooks and hooks.pop().remove()",
    "hooks.append(net.lin.register_forward_hook(lambda m, a, o: o * {v}))", "hooks.append(net.w.register_post_accumulate_grad_hook(lambda p: p.grad.mul_({v}))) if net.w.requires_grad else None",
    "copied = copy.deepcopy(net)", "net.load_state_dict(copied.state_dict()) if 'copied' in globals() else None", "cfg.function = torch.sigmoid if cfg.function is torch.tanh else torch.tanh",
    "torch.manual_seed(5)", "net.lin = nn.Linear(4, 4)", "for p in net.parameters():\n    p.data.mul_(0.9)", "kept = [p.grad.clone() for p in net.parameters() if p.grad is not None]", "kept = None; out = None",
    "opt.add_param_group({{'params': [nn.Parameter(torch.ones(2))]}})", "net.lin.forward = lambda t: t * {v}", "net.lin.__dict__.pop('forward', None)",
    "for p in net.parameters():\n    p.grad = torch.zeros_like(p)", "net.w.grad = net.w.grad.clone() if net.w.grad is not None else None",
    "net.lin.weight = net.w if net.lin.weight is not net.w else nn.Parameter(torch.eye(4))", "torch.set_grad_enabled(True)", "net.double().float()",
)
CHANGES += (  # rarer ones: options of the optimizer, structure, memory. Nothing of the process, which both sides share
    "opt.param_groups[0]['maximize'] = not opt.param_groups[0]['maximize']", "opt.param_groups[0]['foreach'] = not opt.param_groups[0]['foreach']",
    "opt.param_groups[0].update(momentum={v} / 4) if 'momentum' in opt.param_groups[0] else opt.param_groups[0].update(betas=({v} / 3, 0.99))",
    "opt.param_groups[0].update(nesterov=True, momentum=0.5, dampening=0) if 'nesterov' in opt.param_groups[0] else opt.param_groups[0].update(eps=1e-3)",
    "opt.param_groups[0]['lr'] = torch.tensor({v} / 50)", "opt.param_groups[0]['params'].reverse()", "opt.param_groups[0]['params'].pop() if len(opt.param_groups[0]['params']) > 1 else None",
    "nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(net.parameters()) * 0.9, net.parameters())", "net.w.data, net.lin.weight.data = net.lin.weight.data, net.w.data",
    "nn.utils.parametrizations.weight_norm(net.lin) if not nn.utils.parametrize.is_parametrized(net.lin) else None", "net.drop = nn.Identity()", "net.drop = nn.Dropout({v} / 4)",
    "net.lin = nn.Sequential(nn.Linear(4, 4), nn.Tanh())", "net.add_module('more', nn.Linear(4, 4))", "net.buf.data = torch.full((8,), {v})[::2]", "net.w.data[0] = {v}",
    "torch.utils.swap_tensors(net.v, nn.Parameter(net.v.detach() * {v}))", "net.bn.reset_running_stats()", "net.bn.track_running_stats = not net.bn.track_running_stats", "net.bn.eps = {v} / 100",
    "for s in opt.state.values():\n    for t in s.values():\n        torch.is_tensor(t) and t.dim() and t.mul_(0.5)", "opt.state.pop(next(iter(opt.state)), None) if opt.state else None",
    "hooks.append(opt.register_step_post_hook(lambda *a: net.v.data.mul_(0.9)))",
    "net.apply(lambda m: m.reset_parameters() if hasattr(m, 'reset_parameters') else None)", "net.requires_grad_(False)", "net.requires_grad_(True)", "net.v.grad = net.v.detach()",
    "net.w.register_hook(lambda g: None) if net.w.requires_grad else None",
)
INPUTS = (  # rarer forms of what a call gets
    "data({k}, 8)[::2]", "data({k}, 1).expand(4, 4)", "net.w.detach()", "net.w.detach()[:]", "net.buf.expand(4, 4)", "data({k}).double().float()", "y", "y[:]", "y.t()", "data({k}, 6)[1:5]", "data({k}, 4, 2, 4)[:, 1]",
    "weight.expand(4, 4)", "net.lin.weight.detach().t()", "torch.zeros(4, 4)", "torch._neg_view(data({k}))", "data({k}).clone()", "torch.full((4, 4), float('inf'))", "data({k}).requires_grad_()", "data({k}).squeeze()",
    "kept_input", "kept_input.mul_(0.5)", "data({k}, 3)", "data({k}).double()", "nn.Parameter(data({k}))", "data({k}, 4, 4).as_strided((4, 4), (1, 4))", "torch.empty(0, 4)",
)
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.bn, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout({drop})
        self.w, self.v = nn.Parameter(torch.randn(4, 4) * 0.3), nn.Parameter(torch.randn(4) * 0.3)
        self.register_buffer('buf', torch.ones(4))
        self.temperature = 1.0
    def forward(self, x, y=None, a=1.0):
        h = self.drop(self.bn(self.lin(x)))
        return h
"""
OPTIMIZERS = ("SGD({p}, lr=0.05)", "SGD({p}, lr=0.05, momentum=0.9)", "Adam({p}, lr=0.01)", "AdamW({p}, lr=0.01, weight_decay=0.1)", "RMSprop({p}, lr=0.01)",
              "SGD({p}, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)", "Adam({p}, lr=0.01, amsgrad=True)")


class Writer(random.Random):
    """Chooses texts."""

    def pick(self, *what):
        return self.choice(what)

    def fill(self, text):
        """Numbers and data in their places. Data with the same number come again."""
        while "{p}" in text:
            text = text.replace("{p}", self.choice(list(PLACES)), 1)
        return text.format(v=self.choice(VALUES), k=self.number())

    def number(self):
        return self.randrange(3) if self.random() < 0.4 else self.randrange(3, 1000)

    def change(self, used=()):
        """A cell between two calls: a number that the function reads, or something of the model."""
        if used and self.random() < 0.5:
            return self.fill(PLACES[self.choice(list(used))])
        return self.fill(self.choice(CHANGES))

    def input(self, usual):
        return self.choice(INPUTS) if self.random() < 0.05 else usual

    def body(self, count, used):
        """Lines that make h of x, y and the places, which are added to `used`."""
        lines = []
        for _ in range(count):
            text = self.choice(EXPRESSIONS)
            if "{p}" in text:
                used.append(self.choice(list(PLACES)))
                text = text.replace("{p}", used[-1])
            lines.append("h = " + self.fill(text))
        return lines
