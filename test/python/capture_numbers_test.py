"""Numbers that a captured step is given: values of its program, whatever they are in a call."""
import math
import warnings

import pytest
import torch
from torch import nn

import overdrive


def batch(i):
    generator = torch.Generator().manual_seed(i)
    return torch.randn(4, 8, generator=generator), torch.randn(4, 2, generator=generator)


def net_and_optimizer():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    return net, torch.optim.Adam(net.parameters(), lr=1e-2)


def train(loss_of, numbers, captured):
    """Steps with a call's numbers each; what they leave, and the step."""
    net, optimizer = net_and_optimizer()

    def update(x, y, *given):
        optimizer.zero_grad()
        loss = loss_of(net, x, y, *given)
        loss.backward()
        optimizer.step()
        return loss

    step = overdrive.capture(update, optimizer=optimizer) if captured else update
    seen = []
    for i, given in enumerate(numbers):
        loss = step(*batch(i), *(given if isinstance(given, tuple) else (given,)))
        seen.append((loss.item(), [p.tolist() for p in net.parameters()]))
    return seen, step


def same(loss_of, numbers):
    """Trains both ways; the captured step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen, step = train(loss_of, numbers, True)
    assert str(seen) == str(train(loss_of, numbers, False)[0])
    return step


def mixed(net, x, y, beta):
    """As an operand, as an argument of operators, and in arithmetic of the program's."""
    z = net(x)
    loss = nn.functional.mse_loss(z, y) + beta * z.square().mean() + (1 - beta) * z.abs().mean() - z.mean() / (2 * beta)
    return loss + torch.add(z, y, alpha=beta).mean() + z.clamp(-beta, beta).sum() + torch.lerp(z.detach(), y, beta).mean()


RAMP = [0.01 * i for i in range(1, 40)]


def test_a_number_that_is_another_one_in_each_call_is_replayed():
    step = same(mixed, RAMP)
    assert step.stats()["replayed"] >= len(RAMP) - 6 and step.refusal() == ""
    assert "numbers of the call are values of the program" in step.explain()


@pytest.mark.parametrize("numbers", [
    [0.1] * 12 + [0.2] * 12 + [0.3] * 12 + [0.4] * 4,
    [0.0, 0.0, *RAMP[:20], 0.0, 1.0, -1.0, *RAMP[5:12]],
    [(-1) ** i * 0.07 * i for i in range(1, 30)],
    [0.3, 0.6, 0.3, 0.6, 0.3, 0.9] * 5,
    [*RAMP[:10], math.nan, math.inf, -math.inf, 1e-40, *RAMP[:10]],
])
def test_every_sequence_of_numbers_has_the_bits_of_eager(numbers):
    assert same(mixed, numbers).stats()["replayed"] > 0


def test_two_numbers_are_told_apart():
    numbers = [(0.1 + 0.01 * i, 0.5 - 0.01 * i) for i in range(12)] + [(0.3, 0.3)] * 4 + [(0.2, 0.7), (0.7, 0.2)] * 3
    step = same(lambda net, x, y, a, b: (a * net(x) - b * y).square().mean() + a * b * net(x).mean(), numbers)
    assert step.stats()["replayed"] >= 10


def test_only_the_number_that_changes_is_open():
    numbers = [(0.1 + 0.01 * i, 0.25) for i in range(15)] + [(0.5, 0.75), (0.6, 0.75)]
    step = same(lambda net, x, y, a, b: (a * net(x) - b * y).square().mean(), numbers)
    assert step.stats()["replayed"] >= 9


def test_a_branch_on_the_number_is_looked_at_in_each_call():
    def loss(net, x, y, beta):
        z = net(x)
        loss = nn.functional.mse_loss(z, y)
        return loss + beta * z.mean() if beta > 0.2 else loss

    step = same(loss, [*RAMP, *RAMP[::-1], 0.1, 0.3, 0.1, 0.3])
    assert step.stats()["replayed"] > 60


def truncated(net, x, y, beta):
    return nn.functional.mse_loss(net(x), y) * (int(beta * 20) + 1)


def exponential(net, x, y, beta):
    return nn.functional.mse_loss(net(x), y) * (2.0 if math.exp(beta) > 1.2 else 1.0)


def stepwise(net, x, y, beta):
    return nn.functional.mse_loss(net(x), y) * (1.5 + beta // 0.25)


def dropped(net, x, y, beta):
    return nn.functional.mse_loss(nn.functional.dropout(net(x), beta), y)


def power(net, x, y, beta):
    return (net(x).abs() + 1).pow(beta).mean()


def of_a_class(net, x, y, beta):
    return nn.functional.mse_loss(net(x), y) * (3.0 if type(beta) is float else 2.0)


@pytest.mark.parametrize("loss", [truncated, exponential, stepwise, dropped, power, of_a_class])
def test_what_cannot_be_followed_has_a_recording_for_each_value(loss):
    step = same(loss, [*RAMP, *[0.3, 0.6] * 12])
    assert step.stats()["replayed"] > 0 or "there is another value of argument 3" in step.refusal()


def test_a_number_that_is_kept_has_a_recording_for_each_value():
    kept = []

    def loss(net, x, y, beta):
        kept.append(beta)
        return beta * nn.functional.mse_loss(net(x), y)

    step = same(loss, RAMP[:24])
    assert "which has a recording for each value since the function keeps it after the call" in step.refusal()
    assert all(isinstance(float(value), float) for value in kept)


def test_an_error_of_the_function_leaves_the_numbers_right():
    net, optimizer = net_and_optimizer()

    def update(x, y, beta):
        loss = beta * nn.functional.mse_loss(net(x), y)
        if beta > 0.35:
            raise ValueError("too much")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    step = overdrive.capture(update, optimizer=optimizer)
    seen = []
    for beta in [0.1, 0.5, 0.2, 0.3, 0.4, 0.25, 0.15, 0.5, 0.22, 0.24, 0.26, 0.9, 0.31]:
        try:
            seen.append(step(*batch(len(seen)), beta).item() / beta)
        except ValueError:
            seen.append("error")
    assert [one == "error" for one in seen] == [b > 0.35 for b in [0.1, 0.5, 0.2, 0.3, 0.4, 0.25, 0.15, 0.5, 0.22, 0.24, 0.26, 0.9, 0.31]]
    assert step.stats()["replayed"] > 0


def test_a_parameter_that_becomes_another_tensor_makes_a_recording_of_two_numbers_again():
    """With one number in both recordings, nothing would show where it stands."""
    net, optimizer = net_and_optimizer()
    state = torch.zeros(2)

    def update(x, y, beta):
        with torch.no_grad():
            state.mul_(1 - beta).add_(net(x).mean(0), alpha=beta)
        return state * beta

    step = overdrive.capture(update)
    twin = torch.zeros(2)
    for i, beta in enumerate([*RAMP[:10], *[0.5] * 6, *RAMP[:10]]):
        if i == 8:
            with torch.no_grad():
                net[2].weight = nn.Parameter(net[2].weight * 2)
        x, y = batch(i)
        with torch.no_grad():
            twin.mul_(1 - beta).add_(net(x).mean(0), alpha=beta)
        assert torch.equal(step(x, y, beta), twin * beta), i
    assert step.stats()["replayed"] > 8


def test_without_guards_each_value_has_a_recording():
    net, _ = net_and_optimizer()
    step = overdrive.capture(lambda x, beta: net(x) * beta, guards="promised")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(24):
            x = batch(i)[0]
            with torch.no_grad():
                assert torch.equal(step(x, 0.1 + 0.01 * i), net(x) * (0.1 + 0.01 * i))
    assert step.stats()["replayed"] == 0


def test_a_step_with_open_numbers_is_not_for_a_file(tmp_path):
    _, step = train(mixed, RAMP, True)
    with pytest.raises(RuntimeError, match="it was called with a number"):
        step.save(str(tmp_path / "step.od"))


@pytest.mark.parametrize("check_every", [1, 2, 5])
def test_replays_that_are_compared_have_the_numbers_of_their_call(check_every):
    net, _ = net_and_optimizer()

    def function(x, y, beta):
        return mixed(net, x, y, beta).detach()

    step = overdrive.capture(function, check_every=check_every)
    for i, beta in enumerate(RAMP):
        assert torch.equal(step(*batch(i), beta), function(*batch(i), beta)), i
    made = step.stats()
    assert made["checked"] + made["replayed"] > 25, step.refusal()


def same_as_eager(source, calls, given=lambda i: (), before=lambda i: ""):
    """The same calls of train() of the program, eager and captured, with what is done before each. `o.n`, where there is one, is the same, too."""
    eager, program = {}, {}
    exec(source, eager)
    exec(source, program)
    step = overdrive.capture(program["train"])
    for i in range(calls):
        for each in (eager, program):
            exec(before(i), each)
        x = torch.full((3,), 0.5 + i)
        assert torch.equal(eager["train"](x, *given(i)), step(x, *given(i))), (i, step.refusal())
        if "o" in eager:
            assert type(eager["o"].n) is type(program["o"].n) and eager["o"].n == program["o"].n, i
    return step


# Of a float v that grows from 0.1 by 0.1, and is 3.0 in one call: each answer changes once, long after the recordings.
READS = ["math.sqrt(v) > 1.7", "math.isclose(v, 3.0)", "cos(v) < -0.9", "math.dist([v], [0.0]) > 3", "list(map(math.cos, [v]))[0] < -0.9",
         "cmath.sqrt(v).real > 1.7", "struct.pack('d', v) == struct.pack('d', 3.0)", "array.array('d', [v])[0] > 3", "decimal.Decimal(v) > 3",
         "ctypes.c_double(v).value > 3", "datetime.timedelta(seconds=v).total_seconds() > 3", "json.dumps(v) == '3.0'", "statistics.mean([v, 1.0]) > 2",
         "fractions.Fraction(v) > 3", "complex(v).real > 3", "v.real > 3", "(v * 1.0).real > 3", "v.is_integer() and v > 2", "float.hex(v) > '0x1.8'",
         "float.__gt__(v, 3.0)", "(3.0).__lt__(v)", "operator.gt(v, 3.0)", "operator.mod('%.1f', v) == '3.0'", "'%.1f' % v == '3.0'", "TEXT % v == '3.0'",
         "TEXT.__mod__(v) == '3.0'", "('%.1f %d' % (v, 1))[0] == '3'", "f'{v:.1f}' == '3.0'", "'{:.1f}'.format(v) == '3.0'", "str(v)[0] == '3'",
         "round(v) == 3", "int(v) == 3", "math.floor(v) == 3", "v in {3.0, 4.0}", "[v].count(3.0)", "(3 if type(v) is float else 0) * (v > 3)",
         "divmod(v, 3.0)[0] > 0", "v // 3 > 0", "v ** 2 > 9", "max(v, 3.0) > 3", "sum([v, 1.0]) > 4", "bool(v - 3.0)", "slice(v).stop > 3",
         "__import__('decimal').Decimal(v) > 3", "hash(v) == 3", "v > decimal.Decimal(3)", "decimal.Decimal(3) < v", "fractions.Fraction(3) < v",
         "v * 1j == 3j", "(v + fractions.Fraction(1)) > 4", "'%.1f' % (v or 0.0) == '3.0'",
         "'%.1f' % (v if v else 0.0) == '3.0'", "math.sqrt(v or 1.0) > 1.7",
         "math.sqrt(-v * -1) > 1.7", "math.sqrt(abs(v)) > 1.7", "math.sqrt([v][0]) > 1.7", "math.sqrt(max(v, 0.5)) > 1.7", "math.fsum((v, 1.0)) > 4",
         "math.hypot(*(v, 1.0)) > 3", "math.sqrt(x.numel() * v) > 1.7", "math.sqrt(dict(v=v)['v']) > 1.7", "math.sqrt((lambda: v)()) > 1.7",
         "math.sqrt(v if x.dim() else 1.0) > 1.7", "math.sqrt(types.SimpleNamespace(v=v).v) > 1.7", "[math.sqrt(w) for w in (v,)][0] > 1.7",
         "math.sqrt(locals()['v']) > 1.7", "math.sqrt(eval('v')) > 1.7"]
MODULES = "array, cmath, ctypes, datetime, decimal, fractions, json, math, operator, statistics, struct, types"


@pytest.mark.parametrize("number", ["whole", "float", "given"])
@pytest.mark.parametrize("read", READS)
def test_who_reads_a_float_of_the_call_is_followed_or_seen(read, number):
    """C takes what a float is, and asks none of its methods."""
    update = {"whole": "o.n += 1; v = o.n / 10", "float": "o.n += 0.125; v = o.n", "given": "pass"}[number]
    source = (f"import {MODULES}\nfrom math import cos\nTEXT = '%.1f'\no = types.SimpleNamespace(n={0.0 if number == 'float' else 0})\n"
              f"def train(x, v=0.0):\n {update}\n return x * (2.0 if {read} else 1.0)\n")
    same_as_eager(source, 45, given=lambda i: (i / 10 + 0.1,) if number == "given" else ())


@pytest.mark.parametrize("root", ["math.sqrt(x.size(-1))", "math.sqrt(x.shape[-1])", "math.sqrt(o.width * 2)", "cos(len(x) - 1)"])
def test_a_root_of_a_size_is_none_of_the_float_of_the_call(root):
    source = (f"import {MODULES}\nfrom math import cos\no = types.SimpleNamespace(n=0, width=3)\n"
              f"def train(x, v=0.0):\n o.n += 1\n w = o.n / 10\n return x * (1 / {root}) * v * w\n")
    assert same_as_eager(source, 45, given=lambda i: (i / 10 + 0.13,)).stats()["replayed"] > 20


@pytest.mark.parametrize("value", ["fractions.Fraction(1, 2)", "decimal.Decimal(3)", "None", "True", "2.5", "torch.ones(())"])
def test_a_counter_that_becomes_something_else(value):
    """Between two calls."""
    source = (f"import {MODULES}, torch\no = types.SimpleNamespace(n=0)\ndef train(x):\n if o.n is None: o.n = 0\n o.n += 1\n"
              " return x * (2.0 if o.n > 12 else 1.0)\n")
    step = same_as_eager(source, 30, before=lambda i: f"o.n = {value}" if i in (10, 20) else "")
    assert step.stats()["replayed"] > 3, step.refusal()


# A rate is taken from a table by a count, which an index does not tell: by whatever way it comes there.
INDEXES = {
    "or": "rate = RATES[s.n or 0]", "a method": "rate = RATES[s.number()]", "a property": "rate = RATES[s.prop]", "a method of a dict": "rate = RATES[s.d.get('n', 0)]",
    "values": "rate = max(RATES[n] for n in s.d.values())", "a closure": "n = s.n\n rate = (lambda: RATES[n])()", "a cell": (
        "v = 0\n def f():\n  nonlocal v\n  v = s.n\n f()\n rate = RATES[v]"), "a list": "n = s.n\n rate = [RATES[n] for _ in range(1)][0]",
    "a new dict": "v = {}\n v['a'] = s.n\n rate = RATES[v['a']]", "a new object": "v = types.SimpleNamespace()\n v.a = s.n\n rate = RATES[v.a]",
    "a loop": "for n in s.l: rate = RATES[n]", "unpacked": "n, = s.l\n rate = RATES[n]", "stars": "rate = (lambda n: RATES[n])(*s.l)",
    "keywords": "rate = (lambda n: RATES[n])(**s.d)", "an iterator": "rate = RATES[next(iter(s.l))]", "the last item": "rate = RATES[s.l[-1]]", "a local": (
        "l = s.l\n rate = RATES[max(l)]"), "a getter": "rate = RATES[operator.attrgetter('n')(s)]", "bytes": "rate = RATES[bytes(s.l)[0]]", "a text": (
        "rate = RATES[int('%(n)d' % s.d)]"), "json": "rate = RATES[int(json.dumps(s.l)[1:-1])]", "negative": "rate = RATES[-(-s.n or 0)]",
    "a remainder": "rate = RATES[s.n % 1000 or 0]", "conditional": "rate = RATES[s.n if s.n else 0]", "an own class": "rate = TABLE[s.n or 0]",
}


@pytest.mark.parametrize("read", INDEXES)
def test_an_index_that_is_counted(read):
    source = (f"""
import json, operator, types
class Table(list):
    def __getitem__(self, index): return list.__getitem__(self, index)
RATES = [0.5] * 20 + [0.25] * 100
TABLE = Table(RATES)
class Scheduler:
    n = 0
    def __init__(self): self.n, self.d, self.l = 0, {{'n': 0}}, [0]
    def number(self): return self.n or 0
    @property
    def prop(self): return self.n or 0
s = Scheduler()
def train(x):
 s.n += 1
 s.d['n'] += 1
 s.l[0] += 1
 {INDEXES[read]}
 return x * (2.0 if rate < 0.3 else 1.0)
""")
    same_as_eager(source, 40)


def interpolated(net, x, y, beta):
    """Its gradient is a product by 1 - (1 - beta / 8), which is beta / 8 for numbers with few digits."""
    return torch.lerp(net(x), y, 1 - beta / 8).square().mean()


def interpolated_beside(net, x, y, beta):
    z = net(x)
    return torch.lerp(z, y, 1 - beta / 8).square().mean() + (beta / 8) * z.mean()


def smoothed(net, x, y, beta):
    """Its loss has a product by 1 - label_smoothing inside of it."""
    return nn.functional.cross_entropy(net(x), y, label_smoothing=1 - beta / 8)


def smoothed_beside(net, x, y, beta):
    z = net(x)
    return nn.functional.cross_entropy(z, y, label_smoothing=1 - beta / 8) + (beta / 8) * z.square().mean()


@pytest.mark.parametrize("loss", [interpolated, interpolated_beside, smoothed, smoothed_beside])
def test_a_number_of_libtorchs_that_has_the_bits_of_one_of_the_programs(loss):
    """In the recorded calls alone, in which the numbers have few digits; in float64, whose products have the last bits of a number."""
    torch.set_default_dtype(torch.float64)
    try:
        same(loss, [*(0.5 + 0.25 * i for i in range(14)), *(5.3 - 0.17 * i for i in range(24))])
    finally:
        torch.set_default_dtype(torch.float32)


def rooted(net, x, y, beta):
    return nn.functional.mse_loss(net(x), y) * beta**0.5


def compared_root(net, x, y, beta):
    return nn.functional.mse_loss(net(x), y) * (2.0 if beta**0.5 < 0.4 else 1.0)


@pytest.mark.parametrize("loss", [rooted, compared_root])
def test_a_number_that_becomes_complex_is_an_error_of_the_function(loss):
    """What comes before the error has happened."""
    seen = []
    for captured in (False, True):
        torch.manual_seed(0)
        net, calls = nn.Linear(8, 2), []

        def function(x, y, beta, net=net, calls=calls):
            calls.append(beta) if beta < 0 else None
            loss_ = loss(net, x, y, beta)
            net.zero_grad()
            loss_.backward()
            return loss_

        step, told = overdrive.capture(function) if captured else function, []
        for i, beta in enumerate([*RAMP[5:30], -0.25, -0.5, *RAMP[5:12]]):
            try:
                told.append(step(*batch(i), beta).item())
            except (RuntimeError, TypeError) as error:
                told.append(f"{type(error).__name__}: {error}")
        seen.append((told, list(calls)))
    assert seen[0] == seen[1]
    assert step.stats()["replayed"] > 10, step.refusal()
