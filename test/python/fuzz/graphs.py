"""Notebooks whose graphs are made of captured parts and eager operators in between. The parts share weights, are called
several times, and in another order in another call: the order of hooks and of the gradients' sums must be eager's."""
from __future__ import annotations

from notebook import Notebook
from words import Writer

CALLS = 45
WEIGHTS = 3
WORDS = f"""
torch.manual_seed(7)
pool = nn.ParameterList([nn.Parameter(torch.randn(6, 6) * 0.4) for _ in range({WEIGHTS})])
log, loss, v = [], None, []
opt = torch.optim.SGD(pool.parameters(), lr=0.02)
def lossy(tensors):
    return [t.square().mean() for t in tensors if t.requires_grad]
"""
HOOKS = """
for j, p in enumerate(pool):
    p.register_hook(lambda g, j=j: log.append((j, g.clone())))
    p.register_post_accumulate_grad_hook(lambda p, j=j: log.append((j, 'post')))
"""
OPERATORS = ("{a} @ pool[{w}]", "{a} @ pool[{w}]", "{a} + {b}", "torch.tanh({a}) * torch.sigmoid({b})", "F.linear({a}, pool[{w}], pool[{w}][0])", "torch.tanh({a})",
             "{a} + pool[{w}].sum(0)", "torch.cat([{a}, {b}], 1)[:, :6]", "{a} + {b}.mean(0)", "{a} + {b}.detach()", "{a} * 1", "torch.where({a} > 0, {a}, {b})")
BACKWARDS = (
    "sum(losses).backward()", "for loss in losses:\n    loss.backward(retain_graph=True)", "sum(losses).backward(retain_graph=True)\nlosses[0].backward()",
    "grads = torch.autograd.grad(sum(losses), list(pool), allow_unused=True)", "sum(losses).backward(inputs=[pool[0]], retain_graph=True)\nsum(losses).backward()",
    "losses[-1].backward(retain_graph=True)\nlosses[0].backward()",
)


class Graph(Writer):
    def expression(self, names, cells=()):
        a, b, w = self.choice(names), self.choice(names), self.randrange(WEIGHTS)
        if cells and self.random() < 0.65:
            cell = self.choice(cells)
            return f"{cell}({a}, {b})"
        return self.choice(OPERATORS).format(a=a, b=b, w=w)

    def cell(self, number, known):
        """A function of two tensors that reads the pool, and may call another one."""
        lines, names = [f"def cell{number}(x, y):"], ["x", "y"]
        for place in range(self.randint(1, 6)):
            inner = [f"cell{k}" for k in range(number) if known[k]] if self.random() < 0.2 else ()
            lines.append(f"    t{place} = {self.expression(names, inner)}")
            names.append(f"t{place}")
        single = self.random() < 0.75
        lines.append(f"    return {names[-1]}" if single else f"    return ({names[-1]}, {names[-2]} * 1)")
        if self.random() < 0.8:
            lines.append(f"cell{number} = captured(cell{number})")
        return "\n".join(lines), single

    def forward(self, singles):
        """Lines that append to v."""
        lines, count = ["v = [data({k}, 3, 6)" + (".requires_grad_()" if self.leaf else "") + ", data({k}, 3, 6)]"], 2
        for _ in range(self.randint(2, 8)):
            names = [f"v[{place}]" for place in range(count)]
            if self.random() < 0.65:
                cell = self.randrange(len(singles))
                call = f"cell{cell}({self.choice(names)}, {self.choice(names)})"
                lines.append(f"v.append({call})" if singles[cell] else f"v.extend({call})")
                count += 1 if singles[cell] else 2
            else:
                lines.append(f"v.append({self.expression(names)})")
                count += 1
        return lines

    def plan(self, singles):
        lines = self.pick(["opt.zero_grad()"], ["opt.zero_grad()"], ["opt.zero_grad(set_to_none=False)"], [])
        lines += ["log.clear()", *self.forward(singles), "losses = lossy(v[2:])" if self.random() < 0.3 else "losses = lossy([v[-1], v[len(v) // 2]])"]
        if self.random() < 0.4:
            lines += [*self.forward(singles), "losses += lossy(v[-1:])"]
        return "\n".join([*lines, "if losses:", *("    " + line for line in self.choice(BACKWARDS).split("\n")), *self.pick([], ["del v, losses"]), "opt.step()"])

    def notebook(self):
        self.leaf = self.random() < 0.4
        cells, singles = [WORDS], []
        for number in range(self.randint(1, 4)):
            text, single = self.cell(number, singles)
            cells.append(text)
            singles.append(single)
        if self.random() < 0.5:
            cells.append(HOOKS)
        plans = [self.plan(singles) for _ in range(self.pick(1, 1, 2, 3))]
        for call in range(CALLS):
            if self.random() < 0.05:
                cells.append(self.fill(self.pick("pool[1].requires_grad_(not pool[1].requires_grad)", "pool[0].data.mul_({v})", "pool[0].grad = None", "pool[2].data = pool[2].data.clone()",
                                                 "with torch.no_grad():\n    evaluated = cell0(data({k}, 3, 6), data({k}, 3, 6))", "hook = v[0].register_hook(lambda g: g * 2) if len(v) and v[0].requires_grad else None")))
            cells.append(self.fill(plans[call // 3 % len(plans)]))
        return Notebook(cells)


def notebook(seed):
    return Graph(seed).notebook()
