"""Notebooks with two models, each captured, that are trained in two threads at the same time, and in one thread in between."""
from __future__ import annotations

from notebook import Notebook
from words import Writer

CALLS = 14
LAYERS = ("nn.Linear(4, 4)", "nn.Tanh()", "nn.LayerNorm(4)", "nn.BatchNorm1d(4)", "nn.GELU()", "nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))", "nn.PReLU()")
OPTIMIZERS = ("SGD(self.net.parameters(), 0.05, momentum=0.9)", "Adam(self.net.parameters(), 0.01)", "AdamW(self.net.parameters(), 0.01)")
WORLD = """
class World:
    def __init__(self, net, optimizer, as_parts):
        self.net, self.factor, self.losses, self.opt = net, 1.0, [], None
        self.opt = optimizer(self)
        if as_parts:
            captured(self.net)
            self.opt = captured(self.opt)
            self.step = self.train
        else:
            self.step = capture(lambda x: self.train(x), optimizer=self.opt)
    def train(self, x):
        self.opt.zero_grad()
        h = self.net(x) * self.factor
        if x.shape[0] > 4:
            h = h * 2
        if QUESTION:
            raise ValueError('rare')
        loss = h.square().mean()
        loss.backward()
        self.opt.step()
        return loss
    def run(self, numbers, rows=4):
        self.losses = [self.step(data(k, rows)).detach().clone() for k in numbers]
"""


class Threaded(Writer):
    def notebook(self):
        def net():
            return f"nn.Sequential({', '.join(['nn.Linear(4, 4)', *(self.choice(LAYERS) for _ in range(self.randint(1, 4)))])})"

        def world():
            return f"World({net()}, lambda self: torch.optim.{self.choice(OPTIMIZERS)}, {self.random() < 0.5})"

        question = self.pick("False", "x[0, 0].item() > 2.5", "(x > 2.9).any()")
        worlds = ["a = " + world(), "b = " + self.pick(world(), world(), "World(a.net, lambda self: a.opt, False) if False else " + world())]
        cells = [WORLD.replace("QUESTION", question), "torch.manual_seed(3)\n" + "\n".join(worlds)]
        for _ in range(CALLS):
            numbers = [[self.number() for _ in range(self.pick(1, 3, 8, 20))] for _ in range(2)]
            rows = [self.pick(4, 4, 4, 6) for _ in range(2)]
            a, b = (f"{name}.run({n}, {r})" for name, n, r in zip("ab", numbers, rows))
            cells.append(self.pick(f"together(lambda: {a}, lambda: {b})", f"together(lambda: {a}, lambda: {b})", f"together(lambda: {a}, lambda: {b})", f"{a}\n{b}",
                                   f"together(lambda: {b}, lambda: {a})", self.fill("a.factor = {v}"), "b.net.eval()", "b.net.train()", self.fill("a.opt.param_groups[0]['lr'] = {v} / 50"),
                                   "b.net.load_state_dict(copy.deepcopy(b.net.state_dict()))", "a.net[0].requires_grad_(not a.net[0].weight.requires_grad)"))
        return Notebook(cells)


def notebook(seed):
    return Threaded(seed).notebook()
