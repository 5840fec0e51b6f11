"""Random steps with numbers as arguments, captured and eager: `numbers_fuzz.py [--seed N] [--programs N] [--seconds S] [--show]`.

A program is a text: arithmetic of the numbers, comparisons and branches on it, operators that take what comes of it. The
sequences of numbers stay, change, come back, cross branches, and have values in them that operators treat apart. After each call
results and parameters must be equal, and errors. Nothing tells the program which numbers its captured step leaves open.
"""
import argparse
import random
import sys
import time
import warnings

import torch
from torch import nn

import overdrive

CALLS = 28
APART = (0.0, 1.0, -1.0, 2.0, 0.5, 1e-3, -0.25, 1e-40, 3e5, float("nan"), float("inf"))
OPERATORS = ("y = y * {n}", "y = y + {n}", "y = {n} - y", "y = torch.add(y, x[:, :3], alpha={n})", "y = y.clamp(max={n})", "y = y / (abs({n}) + 0.5)",
             "y = torch.lerp(y, x[:, 1:4], {n})", "y = torch.where(y > {n}, y, x[:, :3])", "y = y.masked_fill(y < {n}, {m})",
             "y = torch.addcmul(y, x[:, :3], y, value={n})", "y = y - torch.full_like(y, {n})", "y = y.pow(2) * {n}", "y = y.tanh() * {n} + {m}",
             "y = F.leaky_relu(y, {n})", "y = F.dropout(y, 0.25) * {n}", "y = y.mul({n}).sub({m})", "y = torch.sub(y, x[:, :3], alpha={m})", "y = y.pow({n})",
             "y = F.smooth_l1_loss(y, x[:, :3], reduction='none', beta=abs({n}))", "y = y * torch.tensor({n})", "y = y * float({n})", "y = y * round({n}, 1)",
             "with torch.no_grad(): buffer.mul_(1 - {n} * 0.01).add_(y.detach().mean(0), alpha={n})", "with torch.no_grad(): first.mul_({n})")
ARITHMETIC = ("1 - {n}", "{n} * 2", "{n} * {m}", "{n} + {m}", "-{n}", "abs({n})", "{n} / 3", "{n} ** 2", "{n} // 0.25", "{n} % 0.3", "min({n}, {m})", "max({n}, 0.2)", "2 / {n}",
              "{n} if {n} > {m} else {m}", "math.exp({n})")
CONDITIONS = ("{n} > {m}", "{n} < 0.3", "{n}", "{n} >= 0.5 and {m} < 1", "not {n}", "{n} == {m}", "0.1 < {n} < 0.6", "math.sqrt(abs({n})) > 0.6",
              "'%.1f' % {n} == '0.3'", "math.isclose({n}, {m}, abs_tol=0.1)", "{n}.real > 0.3")


def program(random_):
    numbers, lines = ["a", "b"], ["y = net(x)"]

    def some(text):
        return text.format(n=random_.choice(numbers), m=random_.choice(numbers))

    for i in range(random_.randint(2, 7)):
        kind = random_.random()
        if kind < 0.3:
            lines.append(f"c{i} = " + some(random_.choice(ARITHMETIC if random_.random() < 0.9 else ARITHMETIC[-1:])))
            numbers.append(f"c{i}")
        elif kind < 0.45:
            lines += [f"if {some(random_.choice(CONDITIONS))}:", "    " + some(random_.choice(OPERATORS)), "else:",
                      "    " + some(random_.choice(OPERATORS))]
        else:
            lines.append(some(random_.choice(OPERATORS[:14] if random_.random() < 0.7 else OPERATORS)))
    lines += ["loss = y.square().mean()", "optimizer.zero_grad()", "loss.backward()", "optimizer.step()", "return loss"]
    return "def step(x, a, b):\n" + "".join(f"    {line}\n" for line in lines)


def sequence(random_):
    """Numbers for each call: of a schedule, that stay for a while, that come back, and apart ones between."""
    kind, known, result = random_.choice(("ramp", "held", "any", "few")), [random_.uniform(-1, 1) for _ in range(3)], []
    slope, now, random_share = random_.uniform(0.001, 0.05), random_.uniform(0.05, 0.5), random_.choice((0, 0, 0.1, 0.3))
    for i in range(CALLS):
        if kind == "ramp" or kind == "held" and i % 7 == 6:
            now += slope
        elif kind == "any":
            now = random_.uniform(-1, 2)
        elif kind == "few":
            now = random_.choice(known)
        result.append(random_.choice(APART) if random_.random() < random_share else now)
    return result


def outcome(text, captured, numbers):
    """What each call returns or raises, and leaves; and the step."""
    torch.manual_seed(5)
    net = nn.Linear(4, 3)
    env = {"net": net, "torch": torch, "F": nn.functional, "buffer": torch.zeros(3), "first": net.bias,
           "optimizer": torch.optim.SGD(net.parameters(), lr=0.01)}
    if "math." in text:
        import math

        env["math"] = math
    exec(text, env)  # noqa: S102
    step = overdrive.capture(env["step"], optimizer=env["optimizer"]) if captured else env["step"]
    seen, generator = [], torch.Generator().manual_seed(9)
    for given in zip(*numbers):
        x = torch.randn(5, 4, generator=generator)
        try:
            told = step(x, *given).detach().clone()
        except (RuntimeError, ArithmeticError, ValueError, TypeError) as error:
            told = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        seen.append((told, [p.detach().clone() for p in net.parameters()], env["buffer"].clone(), torch.get_rng_state()))
    return seen, step


def equal(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and torch.equal(a.view(torch.uint8) if a.dim() else a.reshape(1).view(torch.uint8),
                                                  b.view(torch.uint8) if b.dim() else b.reshape(1).view(torch.uint8))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    end, replayed, calls, seed, with_open = time.monotonic() + arguments.seconds, 0, 0, arguments.seed, 0
    while seed < arguments.seed + arguments.programs and time.monotonic() < end:
        random_ = random.Random(seed)
        text, numbers = program(random_), (sequence(random_), sequence(random_))
        if arguments.show:
            print(text, *numbers, sep="\n")
        (wanted, _), (got, step) = outcome(text, False, numbers), outcome(text, True, numbers)
        for call, (a, b) in enumerate(zip(wanted, got)):
            if not equal(a, b):
                print(f"seed {seed}, call {call}: eager {a[0]}, captured {b[0]}\n{text}{step.explain()}")
                return 1
        made = step.stats()
        if not made["replayed"] and not step.refusal():
            print(f"seed {seed}: nothing was replayed, and refusal() is empty\n{text}")
            return 1
        replayed, calls, seed = replayed + made["replayed"], calls + made["calls"], seed + 1
        with_open += "numbers of the call" in step.explain()
    print(f"{seed - arguments.seed} programs from seed {arguments.seed}, {replayed} of {calls} calls replayed, open numbers in {with_open}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
