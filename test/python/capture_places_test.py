"""What a captured step leaves in attributes, whichever way its calls go: by an argument, a flag, the size or the values of its input.

The program reads them elsewhere, so that each replay leaves what the function would, or the step is refused."""
import random

import pytest
import torch

import overdrive

# The body of a function of x, `way` and the object m, whose `p` holds anything, and `n` and `k` a number.
BODIES = {
    "kept, by an argument": "m.n = 4 if way else m.n",
    "kept, by a flag": "m.n = 4 if m.on else m.n",
    "kept, by the size": "m.n = 4 if x.shape[0] > 2 else m.n",
    "kept, by the values": "m.n = 4 if x.sum() > 2 else m.n",
    "kept in a variable": "n = m.n\n    if way:\n        n = 4\n    m.n = n",
    "exchanged": "m.n, m.k = m.k, m.n",
    "its negative": "m.n = -m.n",
    "the one before": "m.k = m.n\n    m.n = x.shape[0]",
    "a shape": "m.p = x.shape",
    "a shape, by an argument": "m.p = x.shape if way else m.p",
    "a tuple": "m.p = (m.n, 4) if way else (4, m.n)\n    m.n = m.p[0]",
    "a text, by the size": "m.p = 'a' if x.shape[0] > 2 else 'b'",
    "nothing, by the size": "m.p = None if x.shape[0] > 2 else 3",
    "a list": "m.p = [x.shape[0], 4]",
    "a list, by an argument": "m.p = [x.shape[0], 4] if way else m.p",
    "a list or a tuple": "m.p = [m.n, 3] if x.shape[0] > 2 else (1, 2)",
    "a list or a number": "m.p = [3] if x.shape[0] > 2 else 5",
    "a tensor, by the size": "m.p = x + 1 if x.shape[0] > 2 else None",
    "a tensor, at times": "if x.shape[0] > 2:\n        m.p = x + 1",
    "a tensor or a number": "m.p = x + 1 if x.shape[0] > 2 else 3",
    "a tensor in a tuple": "m.p = (x + 1, 3) if x.shape[0] > 2 else (1, 2)",
}


def program_of(body):
    program = {"__name__": "program", "torch": torch}
    exec("class Holder:\n    pass\n\nm = Holder()\nm.n, m.k, m.p, m.on = 1, 7, None, False\n"
         f"def function(x, way=False):\n    {body}\n    return x * 2\n", program)
    return program


def texts(holder):
    return {name: repr(value) for name, value in vars(holder).items()}


@pytest.mark.parametrize("seed", [0, 1, 4, 6, 7, 8, 10, 17])
@pytest.mark.parametrize("body", BODIES)
def test_attributes_are_those_of_eager(body, seed):
    eager, ours, choose = program_of(BODIES[body]), program_of(BODIES[body]), random.Random(seed)
    captured = overdrive.capture(ours["function"])
    for number in range(40):
        x = torch.full((choose.choice([2, 3]), 2), float(choose.choice([0, 1, 2])))
        arguments = (x, choose.random() < 0.5) if "way" in BODIES[body] else (x,)
        change = choose.choice(["none"] * (8 if seed % 2 else 2) + ["n", "k", "on"])
        for m in (eager["m"], ours["m"]):
            if change == "n":
                m.n, m.p = 1 + number % 3 * 1000, (1, number % 3) if seed % 2 else None
            elif change != "none":
                setattr(m, change, number if change == "k" else not m.on)
        assert torch.equal(eager["function"](*arguments), captured(*arguments))
        assert texts(eager["m"]) == texts(ours["m"]), (number, captured.refusal())


def test_a_number_that_is_kept_is_replayed():
    program = program_of("m.n = 4 if way else m.n")
    captured = overdrive.capture(program["function"])
    for number in range(60):
        if number % 20 == 0:
            program["m"].n = 100 + number
        captured(torch.ones(2), number % 20 > 5)
        assert program["m"].n == (4 if number % 20 > 5 else 100 + number // 20 * 20)
    assert captured.stats()["replayed"] > 20, captured.refusal()


def test_a_shape_of_batches_of_two_sizes_is_replayed():
    program = program_of("m.p = x.shape")
    captured = overdrive.capture(program["function"])
    for number in range(24):
        captured(torch.ones(2 if number % 3 else 3))
        assert program["m"].p == torch.Size([2 if number % 3 else 3])
    assert captured.stats()["replayed"] > 10, captured.refusal()
