"""Random steps that count and decide by what they have counted, captured and eager: `counters_fuzz.py [--seed N] [--programs N] [--seconds S] [--show]`.

A program is a text: places of numbers and flags (attributes, slots, cells, items, entries, globals, classes), ways to count, and what
is made of it: branches, weights, indices, texts. Between the calls the program sets places anew now and then, and a call may end
in an error. After each call results and parameters must be equal, and errors.
"""
import argparse
import random
import sys
import time
import types
import warnings

import torch
from torch import nn

import overdrive

CALLS = 40
PLACES = ("o.n{i}", "slots.n{i}", "entries['n{i}']", "items[{i}]", "Kind.n{i}", "cell{i}", "global{i}")
COUNTS = ("{n} += 1", "{n} += 1", "{n} += 2", "{n} = {n} + 1", "{n} -= 1", "{n} = 0 if {n} >= 9 else {n} + 1", "{n} += len(x)", "{n} = ({n} + 1) % 5",
          "{n} *= 0.97", "{n} = max(0.05, {n} - 0.03)", "{n} = min(1.0, {n} + 0.05)", "{n} = not {n}", "if {n} < 12: {n} += 1", "{n} += {m}")
CONDITIONS = ("{n} % {k} == 0", "{n} % {k} == 0", "{n} > {k}", "{n} < {k}", "{n}", "not {n} % {k}", "{n} // {k} == 1", "{k} < {n} < 20", "{n} & 1", "{n} == {m}",
              "({n} + 1) % {k} == 0 and {m} > 2", "{n} * 2 > {m}", "math.sqrt(abs({n}) * 0.5) > 2", "math.fmod({n} / 2, {k}) > 1")
WEIGHTS = ("{n} / 20", "0.9 ** {n}", "min(1.0, {n} * 0.05)", "1 / (1 + {n} * 0.1)", "weights[{n} % 4]", "weights[int({n}) // 11 % 4]", "scheduled({n})",
           "math.exp(-{n} / 9)", "float({n} > {k})", "1.0 if {n} % {k} else 0.5", "float(str(len(str({n}))))", "{n} * 0.01",
           "len(f\"{{{n}:.2f}}\") * 0.1", "{n} / 8 - 1", "min(1.0, {n} / 12)", "max(-1.0, 1 - {n} / 8)")
OPERATORS = ("y = y * ({w})", "y = y + ({w})", "y = torch.add(y, x[:, :3], alpha={w})", "y = torch.lerp(y, x[:, 1:4], {w})", "y = y.tanh()",
             "buffer.lerp_(y.detach().mean(0), 0.1)", "buffer.zero_()", "y = y + buffer.clone()")
TOLD = ("{n} = 0", "word = f\"{{{n}}} of {{{m}!r}}\"", "word = '%s' % ({n},)", "scheduled({n})", "whole({n})")
ALIKE = ("t{j} = {n}\n    if t{j} % {k} == 0: {f}", "last = {n}\n    {f}", "o.copy = {n}\n    {f}", "log['n'] = {n}\n    {f}")


def program(random_):
    places = [random_.choice(PLACES).format(i=i) for i in range(random_.randint(1, 3))]
    lines = []

    def some(text, **more):
        return text.format(n=random_.choice(places), m=random_.choice(places), k=random_.randint(2, 17), j=len(lines), **more)

    def operator():
        return some(random_.choice(OPERATORS), w=some(random_.choice(WEIGHTS)))

    body = []
    for place in places:
        body.append(random_.choice(COUNTS).format(n=place, m=random_.choice(places)))
    for _ in range(random_.randint(1, 4)):
        kind = random_.random()
        if kind < 0.5:
            inner = random_.choice((operator(), some(random_.choice(COUNTS)), *map(some, TOLD)))
            body += [f"if {some(random_.choice(CONDITIONS))}:", "    " + inner]
        elif kind < 0.6:
            body.append(some(random_.choice(ALIKE), f=operator()))
        else:
            body.append(operator())
        lines.append("")
    pieces = body if random_.random() < 0.5 else body[len(places):] + body[:len(places)]
    names = [place for place in places if place.startswith("cell")], [place for place in places if place.startswith("global")]
    text = [f"global {', '.join(names[1])}"] * bool(names[1]) + [f"nonlocal {', '.join(names[0])}"] * bool(names[0])
    text += ["y = net(x)", *pieces, "if x[0, 0] > 9: raise ValueError('the data')", "loss = y.square().mean()", "optimizer.zero_grad()",
             "loss.backward()", "optimizer.step()", "return loss"]
    inner = "".join("        " + line.replace("\n", "\n    ") + "\n" for line in text)
    setters = "".join(f"        elif i == {i}: {place} = value\n" for i, place in enumerate(places))
    outer = "".join(f"    {name} = start[{places.index(name)}]\n" for name in names[0])
    head = "".join(f"        {kind} {', '.join(group)}\n" for kind, group in (("global", names[1]), ("nonlocal", names[0])) if group)
    return (f"def made(start):\n{outer}    def step(x):\n{inner}    def put(i, value):\n{head}        if i < 0: pass\n{setters}    return step, put\n"), places


class Slots:
    __slots__ = ("n0", "n1", "n2")


def whole(n):
    return n is None or type(n) is int


def scheduled(n):
    return 0.25 if n < 15 else 0.5


def run(text, places, start, events, captured):
    import math

    torch.manual_seed(1)
    net, buffer = nn.Linear(4, 3), torch.zeros(3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    kind = type("Kind", (), {})
    space = {"torch": torch, "math": math, "net": net, "optimizer": optimizer, "buffer": buffer, "weights": [0.5, 0.5, 0.5, 0.75], "o": types.SimpleNamespace(),
             "slots": Slots(), "entries": {}, "items": [0] * 3, "Kind": kind, "log": {}, "scheduled": scheduled, "whole": whole}
    exec(text, space)  # noqa: S102 - made here
    step, put = space["made"](start)
    for i, value in enumerate(start):
        put(i, value)
    if captured:
        step = overdrive.capture(step, optimizer=optimizer)
    seen = []
    for i in range(CALLS):
        for index, value in events.get(i, ()):
            put(index, value)
        x = torch.randn(2, 4)
        if ("error",) in events.get(i, ()) or any(index < 0 for index, _ in events.get(i, ())):
            x[0, 0] = 10.0
        try:
            loss = step(x).item()
        except (ValueError, TypeError, ZeroDivisionError, OverflowError, RuntimeError) as error:
            loss = f"{type(error).__name__}: {error}"
        seen.append((loss, [p.detach().clone() for p in [*net.parameters(), buffer]]))
    return seen, step


def same(a, b):
    return (a[0] == b[0] or a[0] != a[0] and b[0] != b[0]) and all(torch.equal(x.isnan(), y.isnan()) and torch.equal(x.nan_to_num(), y.nan_to_num())
                                                                   for x, y in zip(a[1], b[1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    end, seed, replayed, failed = time.monotonic() + arguments.seconds, arguments.seed, 0, 0
    while seed < arguments.seed + arguments.programs if arguments.programs else time.monotonic() < end:
        random_ = random.Random(seed)
        text, places = program(random_)
        start = [random_.choice((0, 0, 1, 5, 0.5, 0.9, False, 3)) for _ in places]
        events = {}
        for _ in range(random_.choice((0, 0, 1, 3))):
            events.setdefault(random_.randrange(CALLS), []).append((random_.randrange(-1, len(places)), random_.choice((0, 1, 7, 0.3))))
        eager, _ = run(text, places, start, events, False)
        captured, step = run(text, places, start, events, True)
        counts = step.stats()
        replayed += counts["replayed"]
        if arguments.show:
            print(text, start, events, counts, step.refusal(), sep="\n")
        wrong = next((i for i, (a, b) in enumerate(zip(eager, captured)) if not same(a, b)), None)
        if wrong is not None:
            failed += 1
            print(f"seed {seed}: call {wrong} differs: {eager[wrong][0]} and {captured[wrong][0]}\n{text}{start} {events}\n{counts} {step.refusal()}")
        seed += 1
    print(f"{seed - arguments.seed} programs, {(seed - arguments.seed) * CALLS} calls, {replayed} replayed, {failed} differ")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
