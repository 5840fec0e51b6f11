"""Numbers and flags that a captured function changes itself, and by which it decides."""
import contextlib
import types

import counters_fuzz
import pytest
import torch
from torch import nn

import overdrive

CALLS = 60


class Agent:
    """Trains a net, and copies it to its target now and then."""

    updates = 0

    def __init__(self, every=15):
        torch.manual_seed(0)
        self.net, self.target, self.every = nn.Linear(6, 4), nn.Linear(6, 4), every
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def learn(self, x):
        self.updates += 1
        self.optimizer.zero_grad()
        loss = (self.net(x) - self.target(x).detach() - 1).square().mean()
        loss.backward()
        self.optimizer.step()
        if self.updates % self.every == 0:
            self.target.load_state_dict(self.net.state_dict())
        return loss


def run(agent, captured, calls=CALLS, between=lambda agent, i: None):
    step = overdrive.capture(agent.learn, optimizer=agent.optimizer) if captured else agent.learn
    results = []
    for i in range(calls):
        between(agent, i)
        results.append(step(torch.randn(8, 6)).item())
    return results, [*agent.target.parameters(), *agent.net.parameters()], step


def assert_same(make, replayed, **how):
    (wanted, weights, _), (got, weights_here, step) = run(make(), False, **how), run(make(), True, **how)
    assert got == wanted, step.explain()
    assert all(map(torch.equal, weights_here, weights))
    assert step.stats()["replayed"] >= replayed, step.explain()
    return step


@pytest.mark.parametrize("every", [2, 5, 15])
def test_a_target_that_is_updated_now_and_then(every):
    assert_same(lambda: Agent(every), 36)


class Cell(Agent):
    """Counts in the first item of a list: many functions of PyTorch's that run have a [0] of their own."""

    def __init__(self):
        super().__init__()
        self.count = [0]
        self.sizes = [1, 1]

    def learn(self, x):
        self.count[0] += 1
        loss = (self.net(x) - self.target(x).detach() - 1).square().mean() / 4
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        if self.count[0] % 4 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss


class Pooled(Cell):
    """PyTorch's function takes the list, and looks at its items."""

    def learn(self, x):
        self.sizes[0] = self.sizes[0] % 3 + 1
        loss = nn.functional.adaptive_avg_pool2d(self.net(x)[None], self.sizes).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def test_a_count_in_a_list():
    assert_same(Cell, 20)


def test_a_list_of_counts_that_a_function_of_pytorchs_takes():
    assert_same(Pooled, 0)


def test_the_counter_goes_on_in_replays_and_may_be_set():
    agent = Agent()
    run(agent, True)
    assert agent.updates == CALLS and type(agent.updates) is int

    def between(agent, i):
        if i in (31, 47):
            agent.updates = 11

    assert_same(Agent, 40, between=between)


class Annealed(Agent):
    rate = 0.9

    def learn(self, x):
        self.updates += 1
        self.rate *= 0.97
        self.optimizer.zero_grad()
        loss = ((self.net(x) - 1).square() * (self.rate + min(1.0, self.updates / 40))).mean()
        loss.backward()
        self.optimizer.step()
        return loss


def test_weights_that_come_of_what_is_counted():
    assert_same(Annealed, 40)


TEXTS = {"a formatted string": 'f"{s.updates:4} of {s.every!r}"', "a percent sign": '"%d updates" % s.updates', "format": '"{} of {}".format(s.updates, 5)',
         "str": "str(s.updates)", "a table": "TABLE[s.updates]", "a function of its own": "told(s.updates)", "a slice": "TABLE[:s.updates]"}


@pytest.mark.parametrize("text", TEXTS)
def test_calls_that_tell_the_count_otherwise_are_eager_and_the_others_replayed(text, capsys):
    """Instructions that do not run in a call decide nothing there."""
    program = {"TABLE": list(range(999)), "told": lambda n: [n, TEXTS]}
    exec(f"def tell(s):\n if s.updates % 10 == 0:\n  print({TEXTS[text]})\n", program)
    tell = program["tell"]

    class Told(Agent):
        def learn(self, x):
            loss = super().learn(x)
            tell(self)
            return loss

    assert_same(Told, 36)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == lines[6:] and len(set(lines)) > 4


class Clamped(Agent):
    """The weight begins at 0, goes on, and comes to rest at 1, where operators and derivatives are others."""

    def learn(self, x):
        self.optimizer.zero_grad()
        loss = (self.net(x) - 1).square().mean() * min(1.0, self.updates / 20)
        loss.backward()
        self.optimizer.step()
        if self.updates < 20:
            self.updates += 1
        return loss


def test_a_weight_that_is_1_in_the_end():
    assert_same(Clamped, 40)


class Listed(Agent):
    weights = [0.5] * 9 + [2.0] * CALLS

    def learn(self, x):
        self.updates += 1
        self.optimizer.zero_grad()
        loss = (self.net(x) - 1).square().mean() * self.weights[self.updates]
        loss.backward()
        self.optimizer.step()
        return loss


def test_an_index_that_is_counted_is_refused_by_its_line():
    step = assert_same(Listed, 0)
    assert all(text in step.refusal() for text in ("The function counts in", ".updates`", "capture_counters_test.py", "give it")), step.refusal()


class Restored(Agent):
    def learn(self, x):
        self.net.train()
        return super().learn(x)


def test_a_mode_that_the_function_sets_is_set_by_replays():
    """The evaluation between the calls leaves the other one."""
    def between(agent, i):
        assert i < 1 or agent.net.training
        agent.net.eval()

    assert_same(Restored, 40, between=between)


class Toggled(Agent):
    is_odd = False

    def learn(self, x):
        self.is_odd = not self.is_odd
        loss = super().learn(x)
        return loss * 3 if self.is_odd else loss


def test_a_flag_that_goes_to_and_fro():
    assert_same(Toggled, 20)


def test_an_error_leaves_a_plain_number():
    state = types.SimpleNamespace(n=0)

    def function(x):
        state.n += 1
        if state.n > 4 and x.shape[0] == 1:
            raise ValueError(f"after {state.n}")
        return x * 2 if state.n % 7 else x

    step, results = overdrive.capture(function), []
    for i in range(30):
        x = torch.ones(1 if i % 5 == 4 else 2)
        try:
            results.append(step(x).sum().item())
        except ValueError as error:
            results.append(str(error))
        assert type(state.n) is int and state.n == i + 1, step.explain()
    assert results == [f"after {n}" if n > 4 and n % 5 == 0 else (2.0 if n % 5 == 0 else 4.0) / (1 if n % 7 else 2) for n in range(1, 31)]


@pytest.mark.parametrize("how_many", [1, 60])
def test_what_only_counts_goes_on(how_many):
    """The program reads it elsewhere, as the number of steps after which it saves a checkpoint."""
    states = [types.SimpleNamespace(n=0, seen=0, total=0.0) for _ in range(how_many)]

    def function(x):
        for state in states:
            state.n += 1
            state.seen += len(x)
        states[0].total += 0.5
        return x * 2

    step = overdrive.capture(function)
    for call in range(40):
        step(torch.ones(2 + call % 2))
        assert [state.n for state in states] == [call + 1] * how_many
    assert states[-1].seen == 100 and states[0].total == 20.0
    assert step.stats()["replayed"] > 20, step.refusal()


def test_an_argument_that_the_function_keeps_is_a_plain_float():
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)

    def function(x, rate):
        optimizer.param_groups[0]["lr"] = rate
        return x * 2

    step = overdrive.capture(function)
    for i in range(12):
        step(torch.ones(2), 0.1 + i / 100)
        assert type(optimizer.param_groups[0]["lr"]) is float


@pytest.mark.parametrize("most", [1, 1.0], ids=["whole", "float"])
def test_a_rate_that_comes_to_rest_after_a_warm_up(most):
    """Two recordings that found and left the same rate could not show where it stands, and calls were eager from then on."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        opt = torch.optim.Adam(net.parameters(), 0.01)
        state = types.SimpleNamespace(calls=0)

        def function(x, net=net, opt=opt, state=state):
            state.calls += 1
            for group in opt.param_groups:
                group["lr"] = 0.1 * min(most, state.calls / 10)
            opt.zero_grad()
            net(x).square().mean().backward()
            opt.step()

        step = overdrive.capture(function, optimizer=opt) if captured else function
        seen = []
        for _ in range(40):
            step(torch.randn(4, 3))
            seen.append((net.weight.tolist(), opt.param_groups[0]["lr"], state.calls))
        sides.append(seen)
    assert sides[0] == sides[1]
    assert step.stats()["replayed"] >= 20, step.explain()


@pytest.mark.parametrize("hides", [True, False], ids=["of the class", "of the object"])
def test_a_scale_of_the_loss_that_doubles(hides):
    """It hid that of the class in a recorded call, and nothing looked at it from then on."""
    sides = []
    for captured in (False, True):
        class State:
            scale, good = 1024.0, 0

        state, w = State(), torch.ones(1, requires_grad=True)
        if not hides:
            state.scale = 1024.0
        opt = torch.optim.SGD([w], 0.001)

        def function(x, state=state, w=w, opt=opt):
            opt.zero_grad()
            loss = (w * x).sum() * state.scale
            loss.backward()
            opt.step()
            state.good += 1
            if state.good == 5:
                state.scale *= 2
                state.good = 0
            return loss

        step = overdrive.capture(function) if captured else function
        sides.append([(step(torch.ones(1)).item(), state.scale, state.good, w.grad.item(), w.item()) for _ in range(40)])
    assert sides[0] == sides[1]


def test_an_object_that_a_recorded_call_makes_is_looked_at():
    """As a cache of settings is made when it is first asked for, in a rare branch."""
    sides = []
    for captured in (False, True):
        net = types.SimpleNamespace(settings=None)

        def function(x, net=net):
            if x.numel() > 2 and net.settings is None:
                net.settings = types.SimpleNamespace(factor=2.0)
            return x * (1.0 if net.settings is None else net.settings.factor)

        step, seen = overdrive.capture(function) if captured else function, []
        for call in range(60):
            if call == 40:
                net.settings = types.SimpleNamespace(factor=5.0)
            if call == 50:
                net.settings = None
            seen.append(step(torch.ones(3 if call > 9 else 2)).tolist())
        sides.append(seen)
    assert sides[0] == sides[1]


@pytest.mark.parametrize("is_global", [False, True])
def test_a_count_whose_name_is_that_of_another_variable(is_global):
    """An attribute is no variable: `o.n += 1` beside a model that is called `n`."""
    body = "def train(x):\n o.n += 1\n return n(x).sum() * (2.0 if o.n > 12 else 1.0)\n"
    source = body if is_global else "def make(o, n):\n " + body.replace("\n", "\n ") + "return train\n"

    def program():
        torch.manual_seed(0)
        names = {"o": types.SimpleNamespace(n=0), "n": torch.nn.Linear(2, 2)}
        exec(source, names)
        return names["train"] if is_global else names["make"](names["o"], names["n"]), names["o"]

    (eager, one), (train, other) = program(), program()
    step = overdrive.capture(train)
    for i in range(30):
        x = torch.full((2, 2), 0.1 * i)
        assert torch.equal(eager(x), step(x)) and one.n == other.n, i
    assert step.stats()["replayed"] > 10, step.refusal()


PROGRAM = """
def made(start):
    def step(x):
        y = net(x)
        y = y + (1.0 if o.n0 % 11 else 0.5)
        if (slots.n1 + 1) % 13 == 0 and o.n0 > 2:
            y = torch.lerp(y, x[:, 1:4], weights[int(o.n0) // 11 % 4])
        y = y + weights[slots.n1 % 4]
        o.n0 = (o.n0 + 1) % 5
        if slots.n1 < 12: slots.n1 += 1
        if x[0, 0] > 9: raise ValueError('the data')
        loss = y.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    def put(i, value):
        if i == 0: o.n0 = value
        elif i == 1: slots.n1 = value
    return step, put
"""


def test_a_float_that_becomes_an_index():
    """It was none before, so that nothing was said of it."""
    events = {0: [(-1, 0)], 3: [(1, 0.3)], 31: [(1, 1)]}
    (eager, _), (captured, _) = (counters_fuzz.run(PROGRAM, None, [0.9, 5], events, each) for each in (False, True))
    assert all(map(counters_fuzz.same, eager, captured))


def test_a_number_that_stays_when_a_recorded_call_throws_is_plain():
    box = types.SimpleNamespace(n=0, at=0, is_bad=False)

    def function(x):
        box.at = box.n
        box.n += 1
        if box.is_bad:
            raise ValueError("a bad batch")
        return x * 2

    step = overdrive.capture(function)
    for call in range(24):
        box.is_bad = call % 5 in (2, 3)
        with contextlib.suppress(ValueError):
            step(torch.ones(2))
        assert (type(box.n), type(box.at), box.n, box.at) == (int, int, call + 1, call)


def test_a_count_beside_flags_that_take_turns():
    """Each run is the first with its flags, until it is known that the count goes on."""
    def run(captured):
        torch.manual_seed(0)
        net, counts = nn.Linear(6, 3), types.SimpleNamespace(updates=0)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def train(x, is_first, is_last):
            if is_first:
                optimizer.zero_grad()
            loss = net(x).square().mean() / 2
            loss.backward()
            if is_last:
                optimizer.step()
            counts.updates += 1
            return loss

        step = overdrive.capture(train, always=True) if captured else train
        return [(step(torch.randn(4, 6), i % 2 == 0, i % 2 == 1).item(), counts.updates) for i in range(60)], step

    (wanted, _), (got, step) = run(False), run(True)
    assert got == wanted and step.stats()["replayed"] > 24, step.refusal()


def test_a_count_of_which_calls_told_becomes_what_has_no_such_answer():
    """Between two calls, so that the operator is the function's error, in its middle."""
    def run(captured):
        counts, total = types.SimpleNamespace(n=5), torch.zeros(2)

        def train(x):
            total.add_(x)
            if counts.n & 1:
                print(f"{counts.n}", end="")
            counts.n = (counts.n + 1) % 5
            return total * 2

        step, seen = overdrive.capture(train) if captured else train, []
        for i in range(30):
            if i == 18:
                counts.n = 0.3
            with contextlib.suppress(TypeError):
                step(torch.ones(2))
            if i == 19:
                counts.n = 2
            seen.append((total.tolist(), counts.n))
        return seen

    assert run(True) == run(False)
