"""Notebooks with captured steps: rare branches, several optimizers, gradients that come and go, and changes between the calls."""
from __future__ import annotations

from notebook import Notebook
from words import ACTS, DEFINITIONS, NET, OPTIMIZERS, QUESTION_DEFINITIONS, QUESTIONS, Writer

CALLS = 40
GROUPS = {1: ("list(net.parameters())",), 2: ("list(net.lin.parameters())", "[net.w, net.v, *net.bn.parameters()]"),
          3: ("list(net.lin.parameters())", "[net.w, net.v]", "list(net.bn.parameters())")}
LOSSES = ("h.square().mean()", "h.square().sum() * 0.01", "F.mse_loss(h, y[:h.shape[0]].to(h.dtype) if y.shape == h.shape else h.detach())", "h.mean() + net.w.square().sum() * 0.01",
          "(h * h.detach()).mean()")
RESULTS = ("h.detach()", "loss.detach()", "loss", "(h, loss)", "{'h': h.detach(), 'loss': loss, 'n': None}", "[h, [loss, h]]", "h[:, 1:]", "None", "(loss, net.w * 2)", "(h, h.t())")
RARE_RESULTS = ("(loss, x)", "(loss, net.buf)", "(loss, net.w.grad.clone())", "net.w")


class Step(Writer):
    """Writes one notebook."""

    def __init__(self, seed):
        super().__init__(seed)
        self.used = []
        self.optimizers = self.pick(1, 1, 1, 2, 3)
        self.inside = self.random() < 0.8  # step() is called by the function
        self.zero = self.pick("begin", "middle", "end", "outside", "every third", "never")
        self.none = self.random() < 0.6
        self.rare = [(self.choice(list(QUESTIONS)), self.choice(ACTS), self.pick(5, 7, 11, 23)) for _ in range(self.randint(0, 3))]

    def names(self):
        return ["opt", "opt2", "opt3"][:self.optimizers]

    def zeroing(self):
        return [f"{name}.zero_grad(set_to_none={self.none})" for name in self.names()]

    def function(self, name):
        lines = [*(self.zeroing() if self.zero == "begin" else []), "y = x if y is None else y", "h = net(x)"]
        for question, act, _ in self.rare:
            lines += [*self.body(self.randint(0, 2), self.used), f"if {question}:", f"    {act}"]
        lines += self.body(self.randint(0, 3), self.used)
        if self.random() < 0.2:
            lines += ["if a > 1.2:", "    h = h * a"]
        if self.zero == "middle":
            lines += self.zeroing()
        lines += [f"loss = {self.choice(LOSSES)}"]
        lines += self.pick(["loss.backward()"], ["loss.backward()"], ["loss.backward()"], ["loss.backward(retain_graph=True)", "loss.backward()"], ["loss.backward(inputs=[net.w, net.v])"],
                           ["wanted = [p for p in net.parameters() if p.requires_grad]", "for p, g in zip(wanted, torch.autograd.grad(loss, wanted, allow_unused=True)):", "    p.grad = g"],
                           ["for part in h.split(2):", "    (part.square().mean() + loss * 0).backward(retain_graph=True)"])
        lines += self.pick([], [], [], ["torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)"], ["torch.nn.utils.clip_grad_value_(net.parameters(), 0.1)"])
        if self.inside:
            lines += [f"{name}.step()" for name in self.names()]
        if self.zero == "end":
            lines += self.zeroing()
        lines += self.pick([], [], ["with torch.no_grad():", "    buffer.lerp_(h.detach().float().mean(0), 0.5)"], ["with torch.no_grad():", "    net.buf.mul_(0.9).add_(net.v.detach())"],
                           ["cfg.last = loss.detach()"], ["for p, q in zip(target.parameters(), net.parameters()):", "    p.data.mul_(0.9).add_(q.data, alpha=0.1)"])
        lines += [f"return {self.choice(RESULTS if self.random() < 0.95 else RARE_RESULTS)}"]
        options = [f"optimizer=[{', '.join(self.names())}]"] if self.inside else []
        options += self.pick([], [], ["modules=net"])
        return "\n    ".join(["def function(x, y=None, a=1.0):", *lines]) + f"\n{name} = capture({', '.join(['function', *options])})"

    def definitions(self):
        groups = GROUPS[self.optimizers]
        model = ["torch.manual_seed(3)", "net, target = Net(), Net()",
                 *(f"{name} = torch.optim.{self.choice(OPTIMIZERS).format(p=group)}" for name, group in zip(self.names(), groups)), "opt.param_groups[0]['mine'] = 1.0"]
        return [DEFINITIONS + "hooks, out, y = [], None, None" + QUESTION_DEFINITIONS, NET.format(drop=self.pick("0.0", "0.2")), "\n".join(model)]

    def call(self, number, name):
        before, x, after = "", "data({k})", ""
        for question, _, every in self.rare:
            if number % every == every - 1:
                before, x, after = QUESTIONS[question]
        x = self.input(x)
        lines = [before, "y = " + (self.pick("data({k})", "None") if self.random() < 0.03 else self.second), f"x = {x}"]
        if self.zero == "outside" or self.zero == "every third" and number % 3 == 0:
            lines += self.zeroing()
        call = self.pick("x, y", "x, y", "x", "x, y, {v}", "x, x", "x, x[:]", "x, None, {v}") if self.random() < 0.04 else self.usual
        call = f"{name}({call})"
        if self.carries and number % 4:
            lines += ["x = next((t for t in (out if isinstance(out, tuple) else [out]) if torch.is_tensor(t) and t.shape == (4, 4)), x)"]
        if self.random() < 0.02:
            lines += ["with torch.no_grad():", f"    out = {call}"]
        elif self.random() < 0.04:
            lines += [f"out = [{call} for k in range(3)]"]
        else:
            lines += [f"out = {call}"]
        if not self.inside:
            lines += [f"{name}.step()" for name in self.names()]
        return self.fill("\n".join(line for line in [*lines, after] if line))

    def notebook(self):
        self.usual = self.pick("x, y", "x, y", "x", "x, y, 2.0", "x, x")
        self.carries = self.random() < 0.15  # a result is the next call's input
        self.second = self.pick("data({k})", "data({k})", "None")
        definitions = self.definitions()
        functions = [self.function(name) for name in self.pick(["step"], ["step"], ["step"], ["step", "step2"])]
        cells = [*definitions, *functions]
        for number in range(CALLS):
            if self.random() < 0.12 and number > 2:
                cells.append(self.change(self.used))
            if self.random() < 0.015:
                cells += self.pick([*definitions[1:], *functions], definitions[2:], functions)  # cells that are run again
            cells.append(self.call(number, "step2" if len(functions) > 1 and number % 3 == 1 else "step"))
        return Notebook(cells)


def notebook(seed):
    return Step(seed).notebook()
