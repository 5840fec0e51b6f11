"""The fuzzers of captured programs look at themselves: what they compare, that they find a mistake, and that they make it small."""
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "fuzz"), str(HERE / "databases")]

import batch  # noqa: E402
import compare  # noqa: E402
import twins  # noqa: E402
from facts import Facts, first_difference  # noqa: E402
from notebook import Notebook  # noqa: E402
from samples import Sample  # noqa: E402
from shrink import shrink  # noqa: E402
from subjects import Part, Step, Train  # noqa: E402

BLIND = {"guards": "promised"}  # a captured function that looks at nothing which it reads: a mistake to be found


def world():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    net(torch.ones(3, 2)).sum().backward()
    opt.step()
    t = torch.ones(2)
    return {"net": net, "opt": opt, "box": {"k": [1.0, t]}, "t": t, "u": torch.zeros(2, 3).t()}


def one_bit(space):
    space["net"][0].weight.data.view(torch.int32)[0, 0] ^= 1


CHANGES = {
    "net.0.weight": one_bit, "net.0.bias.grad": lambda s: setattr(s["net"][0].bias, "grad", None), "net.1.running_mean": lambda s: s["net"][1].running_mean.neg_(),
    "net.1": lambda s: s["net"][1].eval(), "opt state[0]['momentum_buffer']": lambda s: next(iter(s["opt"].state.values()))["momentum_buffer"].add_(1),
    "opt groups[0]['lr']": lambda s: s["opt"].param_groups[0].update(lr=0.2), "box['k'][0]": lambda s: s["box"]["k"].__setitem__(0, 2.0),
    "t": lambda s: s.update(t=torch.ones(2)), "u": lambda s: s.update(u=torch.zeros(3, 2)), "net.0.bias": lambda s: s["net"][0].bias.requires_grad_(False),
}


@pytest.mark.parametrize("place", CHANGES)
def test_one_change_is_a_difference_at_its_place(place):
    one, other = world(), world()
    assert first_difference(Facts(one).found, Facts(other).found) == ""
    CHANGES[place](other)
    assert first_difference(Facts(one).found, Facts(other).found).startswith(place + ":")


def test_an_error_in_one_side_is_a_difference_and_the_program_goes_on():
    program = Notebook(["n = [0]\ndef f(x):\n    return x * 2\nf = capture(f)", "raise ValueError('a')", "out = f(data(1))"])
    assert twins.difference(program).difference == ""
    program.cells[2] = "if hasattr(f, 'stats'):\n    raise ValueError('ours')"
    assert "error" in twins.difference(program).difference


@pytest.mark.parametrize("kind", ["steps", "loops"])
def test_a_captured_function_without_guards_is_found_and_made_small(kind):
    for seed in range(60):
        program = batch.made(kind, seed)
        if twins.difference(program, BLIND).difference:
            break
    else:
        pytest.fail("60 programs, and nothing was found")
    small = shrink(program, lambda smaller: bool(twins.difference(smaller, BLIND).difference), 40)
    text = small.text()
    assert len(text.splitlines()) < len(program.text().splitlines()) / 2, text
    assert twins.difference(Notebook.from_text(text), BLIND).difference, "the file does not repeat it"
    assert not twins.difference(Notebook.from_text(text)).difference, text


@pytest.mark.parametrize("kind", batch.KINDS)
def test_most_programs_are_replayed(kind):
    outcomes = [twins.difference(batch.made(kind, seed)) for seed in range(900, 910)]
    assert [outcome.difference for outcome in outcomes] == [""] * len(outcomes)
    assert sum(outcome.replayed > 0 for outcome in outcomes) >= 4


def test_the_same_seed_makes_the_same_program():
    assert batch.made("steps", 5).text() == batch.made("steps", 5).text() != batch.made("steps", 6).text()


@pytest.mark.parametrize("form", [Step, Part, Train])
def test_databases_replay_a_sample_and_see_a_bit_that_differs(form):
    def samples():
        return [Sample((torch.randn(3, generator=torch.Generator().manual_seed(seed)).requires_grad_(),), {}) for seed in range(3)]

    def wrong(x):  # the second recording proves it equal; other data would not
        return x.tanh() * (1 if x.detach().sum().tolist() > -1e9 else 2)

    assert compare.compared(lambda ours: form(torch.tanh, samples()[0], ours), samples()) == ("replayed", "")
    what, text = compare.compared(lambda ours: form((lambda x: x.tanh() * 1.0000001) if ours else torch.tanh, samples()[0], ours), samples())
    assert what == "differs" and "call 0" in text, text
    what, text = compare.compared(lambda ours: form(wrong, samples()[0], ours), samples())
    assert what == "refused" and text
