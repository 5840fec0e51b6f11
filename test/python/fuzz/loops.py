"""Notebooks with a captured module, or a captured optimizer too, in a loop that another person might have written.

Rare branches in the forward, several calls in flight, accumulation, partial gradients, frozen halves, evaluation in between, copies of
the model, and cells that define it anew.
"""
from __future__ import annotations

from notebook import Notebook
from words import ACTS, DEFINITIONS, NET, OPTIMIZERS, QUESTION_DEFINITIONS, QUESTIONS, Writer

STEPS = 36
RETURN = ("return h", "return h", "return torch.tanh(h) * self.v", "return h, h * 2", "return {'h': h, 'n': 3}", "return h.sum(), [h]", "return h.t()")
ASKED = [question for question in QUESTIONS if ".grad " not in question]  # a part does not look at gradients that come and go
BACKWARDS = (  # of `got`, what the calls returned
    "sum(losses).backward()", "sum(losses).backward()", "for loss in losses:\n    loss.backward()", "for loss in losses[::-1]:\n    loss.backward()",
    "for loss in losses:\n    loss.backward(retain_graph=True)\n    loss.backward()", "losses[0].backward(inputs=[net.w, net.v], retain_graph=True)\nsum(losses).backward()",
    "wanted = [p for p in net.parameters() if p.requires_grad]\nfor p, g in zip(wanted, torch.autograd.grad(sum(losses), wanted, allow_unused=True)):\n    p.grad = g",
    "losses[-1].backward()", "pass", "del got, losses", "grads = torch.autograd.grad(losses[0], [net.w, net.lin.bias], allow_unused=True)",
    "(losses[0] * 0).backward()", "first(got[0]).backward(torch.ones_like(first(got[0])))", "first(got[0])[:2].sum().backward()",
    "for loss in losses:\n    (loss * 0.5).backward()", "first(got[-1]).register_hook(lambda g: g * 2) if first(got[-1]).requires_grad else None\nsum(losses).backward()",
)
CHANGES = (  # of the loop alone
    "other = copy.deepcopy(net)\nother_opt = torch.optim.SGD(other.parameters(), 0.05)", "other = captured(copy.deepcopy(net))\nother_opt = torch.optim.SGD(other.parameters(), 0.05)",
    "other = net", "net.eval()\nwith torch.no_grad():\n    evaluated = first(net(data({k})))\nnet.train()", "with torch.inference_mode():\n    evaluated = first(net(data({k}))).clone()",
    "net.w.requires_grad_(False)\nnet.lin.requires_grad_(True)", "net.w.requires_grad_(True)\nnet.lin.requires_grad_(False)", "late = first(net(data({k}))).mean()",
    "late.backward() if late is not None and late.requires_grad else None\nlate = None", "net = net.float()", "net.zero_grad()", "state = copy.deepcopy(net.state_dict()), copy.deepcopy(opt.state_dict())",
    "if state:\n    net.load_state_dict(state[0])\n    opt.load_state_dict(state[1])", "torch.func.functional_call(net, dict(net.named_parameters()), (data({k}),))",
    "opt = torch.optim.SGD(net.parameters(), 0.05)\nopt.param_groups[0]['mine'] = 1.0", "net.load_state_dict(net.state_dict(), assign=True)",
)


class Loop(Writer):
    def __init__(self, seed):
        super().__init__(seed)
        self.used = []
        self.rare = [(self.choice(ASKED), self.choice(ACTS), self.pick(5, 7, 11, 23)) for _ in range(self.randint(0, 3))]
        self.calls = self.pick(1, 1, 1, 2, 3)
        self.backward, self.zero = self.choice(BACKWARDS[:9]), self.pick("begin", "middle", "end", "every third")
        self.none, self.wants = self.random() < 0.6, self.random() < 0.2

    def module(self):
        lines = ["y = x if y is None else y"]
        for question, act, _ in self.rare:
            lines += [*self.body(self.randint(0, 2), self.used), f"if {question}:", f"    {act}"]
        lines += self.body(self.randint(0, 3), self.used)
        lines += self.pick([], [], ["self.kept = h.mean()"], ["with torch.no_grad():", "    self.buf.mul_(0.9)"])
        lines += [self.choice(RETURN)]
        text = "\n        ".join(lines).replace("net.", "self.")
        return NET.format(drop=self.pick("0.0", "0.2")).replace("return h", text)

    def model(self):
        optimizer = f"torch.optim.{self.choice(OPTIMIZERS).format(p='net.parameters()')}"
        return "\n".join(["torch.manual_seed(3)", "net = captured(Net())", f"opt = {f'captured({optimizer})' if self.random() < 0.7 else optimizer}",
                          "opt.param_groups[0]['mine'] = 1.0", "other, other_opt, state = net, opt, None"])

    def calling(self, number, name):
        lines = ["got = []"]
        for call in range(self.calls):
            before, x, after = "", "data({k})" + (".requires_grad_()" if self.wants else ""), ""
            for question, _, every in self.rare:
                if number % every == every - 1 and (call == 0 or number % 2):
                    before, x, after = QUESTIONS[question]
            how = self.pick("x, y=y", "x", "x, a={v}", "x, x", "x, y[:]") if self.random() < 0.05 else self.usual
            lines += [before, "y = data({k})", f"x = {self.input(x)}", f"got.append({name}({how}))", after]
        return [line for line in lines if line]

    def step(self, number):
        name = "other" if self.random() < 0.04 else "net"
        zero = [f"opt.zero_grad(set_to_none={self.none})"]
        lines = [*(zero if self.zero == "begin" else []), *self.calling(number, name), *(zero if self.zero == "middle" else []),
                 "losses = [first(part).square().mean() for part in got]", *(self.choice(BACKWARDS) if self.random() < 0.08 else self.backward).split("\n")]
        lines += self.clip
        lines += ["other_opt.step()"] if name == "other" and self.random() < 0.5 else ["opt.step()"]
        if self.zero == "end" or self.zero == "every third" and number % 3 == 2:
            lines += zero
        return self.fill("\n".join(lines))

    def notebook(self):
        self.usual = self.pick("x", "x", "x, y", "x, y, {v}", "x, a=2.0", "x, x")
        self.clip = self.pick([], [], ["torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)"])
        words = DEFINITIONS + "hooks, got, y, late = [], None, None, None\n" + QUESTION_DEFINITIONS + FIRST
        module, model = self.module(), self.model()
        cells = [words, module, model]
        for number in range(STEPS):
            if self.random() < 0.15 and number > 2:
                cells.append(self.fill(self.choice(CHANGES)) if self.random() < 0.4 else self.change(self.used))
            if self.random() < 0.02:
                cells += self.pick([module, model], [model])  # cells that are run again
            cells.append(self.step(number))
        return Notebook(cells)


FIRST = """
def first(result):
    while not isinstance(result, torch.Tensor):
        result = result['h'] if isinstance(result, dict) else result[0]
    return result
"""


def notebook(seed):
    return Loop(seed).notebook()
