"""What recordings cost is compared with what replays bring, by a clock that the tests move: a call takes as long as the test says."""
import types

import pytest
import torch
from torch import nn

import overdrive
from overdrive.step import budget as _budget
from overdrive.step.learn import Learner

# Of a plain call, of a replay, and of what a recording does beside the function.
CALL, REPLAY, RECORDING = 1_000_000, 500_000, 10_000_000
FREE = _budget._FREE


class Clock:
    """Nanoseconds. Time passes in recordings, and where a program says so."""

    def __init__(self, monkeypatch):
        self.now = 1
        monkeypatch.setattr(_budget, "clock", lambda: self.now)
        monkeypatch.setattr(_budget, "is_unlimited", lambda always: False)
        monkeypatch.setattr(_budget, "_SHORT", 0)
        # Fewer calls than users have show the same.
        for name, calls in {"_FREE": 40, "_UNDER_WAY": 120, "_LEAST_PAID": 0}.items():
            monkeypatch.setattr(_budget, name, calls)
        monkeypatch.setattr("overdrive.step.pace._RUNS_UNTIMED", 6)
        learn = Learner.learn

        def learned(*arguments):
            self.now += RECORDING
            return learn(*arguments)

        monkeypatch.setattr(Learner, "learn", learned)

    def passes(self, nanoseconds):
        self.now += nanoseconds


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.factor = 1

    def forward(self, x):
        return self.body(x) * self.factor


def program(clock, change=lambda i, net: None, rows=lambda i: 4, captured=True):
    """Calls of a module, each with its backward. A replay takes half of the time of any other call."""
    torch.manual_seed(0)
    net = Net()
    if captured:
        overdrive.captured(net)
    part = overdrive.part_of(net) if captured else None
    seen = []

    def run(calls):
        for _ in range(calls):
            i = len(seen)
            change(i, net)
            replayed = part.stats()["replayed"] if captured else 0
            net.zero_grad()
            out = net(torch.randn(rows(i), 8, generator=torch.Generator().manual_seed(i)))
            out.sum().backward()
            clock.passes(REPLAY if captured and part.stats()["replayed"] > replayed else CALL)
            seen.append((out.detach(), *(p.grad.clone() for p in net.parameters())))
        return seen

    return run, part


def same(a, b):
    return all(torch.equal(x, y) for one, other in zip(a, b, strict=True) for x, y in zip(one, other, strict=True))


def each_sixth(i, net):
    net.factor = 1 + i // 6


def test_values_that_change_in_each_sixth_call_stop_recordings_before_they_cost_much(clock):
    run, part = program(clock, each_sixth)
    seen = run(200)
    assert same(seen, program(clock, each_sixth, captured=False)[0](200))
    made = part.stats()
    assert made["recorded"] + made["checked"] <= 12, part.explain()
    assert "nothing is gained" in part.refusal() and "factor" in part.refusal()


def test_a_dozen_of_sizes_has_room_for_its_recordings(clock, monkeypatch):
    monkeypatch.setattr(_budget, "_FREE", FREE)
    run, part = program(clock, rows=lambda i: 2 + i % 12)
    assert same(run(200), program(clock, rows=lambda i: 2 + i % 12, captured=False)[0](200))
    assert part.stats()["replayed"] > 100, part.explain()


def test_new_sizes_in_each_call_stop_the_look_at_them(clock):
    run, part = program(clock, rows=lambda i: 1 + i)
    assert same(run(120), program(clock, rows=lambda i: 1 + i, captured=False)[0](120))
    assert "calls run eagerly" in part.refusal()
    assert part.stats()["recorded"] == 0


def test_two_values_in_turn_get_two_recordings_once_the_first_has_paid(clock):
    def change(i, net):
        net.factor = 1 + i // 50 % 2

    run, part = program(clock, change)
    assert same(run(300), program(clock, change, captured=False)[0](300))
    assert part.stats()["replayed"] > 220, part.explain()
    assert part.refusal() == ""


def test_after_a_while_of_eager_calls_recordings_begin_again(clock, monkeypatch):
    monkeypatch.setattr(_budget, "_SHARE", 0.5)  # a shorter while
    values = {"change": each_sixth}
    run, part = program(clock, lambda i, net: values["change"](i, net))
    run(200)
    replayed = part.stats()["replayed"]
    values["change"] = lambda i, net: None
    run(450)
    assert part.stats()["replayed"] > replayed + 50, part.refusal()


def test_reset_forgets_what_was_spent(clock):
    run, part = program(clock, each_sixth)
    run(100)
    assert part.refusal() != ""
    part.reset()
    run(3)
    assert part.stats()["recorded"] > 0 and "nothing is gained" not in part.refusal()


def test_replays_that_are_slower_than_plain_calls_end_and_say_so(clock):
    part = overdrive.captured(lambda x: x.sin().cos())
    for _ in range(120):
        replayed = part.stats()["replayed"]
        with torch.no_grad():
            part(torch.randn(4))
        clock.passes(100_000 if part.stats()["replayed"] > replayed else 20_000)
    assert "Replays are not faster here" in part.refusal()
    assert part.stats()["replayed"] < 60


@pytest.mark.parametrize("stay_slower", [False, True])
def test_replays_that_are_somewhat_slower_are_timed_once_more(clock, stay_slower):
    """What another part records lies in the times of the first replays."""
    part = overdrive.captured(lambda x: x.sin().cos())
    for _ in range(240):
        replayed = part.stats()["replayed"]
        with torch.no_grad():
            part(torch.randn(4))
        is_slow = part.stats()["replayed"] > replayed and (stay_slower or replayed < 60)
        clock.passes(30_000 if is_slow else 20_000)
    assert ("Replays are not faster here" in part.refusal()) == stay_slower
    assert (part.stats()["replayed"] > 200) != stay_slower


def test_replays_are_timed_as_they_go(clock):
    """A replay is faster than a plain call where it goes without Python, and slower through it. Only calls through Python were timed."""
    part = overdrive.captured(lambda x: x.sin().cos())
    quick = 0
    for _ in range(200):
        replayed, hits = part.stats()["replayed"], part._quick.armed.hits
        with torch.no_grad():
            part(torch.randn(4))
        is_quick = part._quick.armed.hits > hits
        clock.passes(10_000 if is_quick else 90_000 if part.stats()["replayed"] > replayed else 20_000)
        quick += is_quick
    assert part.refusal() == "" and quick > 100


def test_a_refused_step_is_looked_at_seldom(clock):
    def function(x):
        return x * 2 if x.sum().item() > 0 else x

    step = overdrive.capture(function)
    for i in range(60):
        assert torch.equal(step(torch.full((4,), i + 1.0)), torch.full((4,), 2 * (i + 1.0)))
        clock.passes(CALL)
    assert step.stats()["replayed"] == 0 and "item()" in step.refusal() and "calls run eagerly" in step.refusal()
    assert step.refusal().count("calls run eagerly") == 1


def test_where_all_recordings_are_refused_few_are_made(clock, monkeypatch):
    """Early stopping as it is written: a number of the data goes to an object, whose values are others in nearly every call."""
    monkeypatch.setattr(_budget, "_FREE", FREE)
    monkeypatch.setattr(_budget, "_UNDER_WAY", 2 * FREE)
    torch.manual_seed(0)
    stopper, target = types.SimpleNamespace(count=0, best=None, is_over=False), torch.randn(12, 1)
    net = nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 1))
    optimizer = torch.optim.Adam(net.parameters(), 5e-3)

    def look(score):
        if stopper.best is None:
            stopper.best = score
        elif score < stopper.best:
            stopper.count += 1
            if stopper.count >= 7:
                stopper.is_over = True
        else:
            stopper.best, stopper.count = score, 0

    def function(x, y):
        optimizer.zero_grad()
        loss = nn.functional.smooth_l1_loss(net(x), y)
        loss.backward()
        optimizer.step()
        look(-loss.item())
        return loss.detach()

    step = overdrive.capture(function, optimizer=optimizer)
    for _ in range(110):
        x = torch.randn(64, 12)
        step(x, x @ target)
        clock.passes(CALL)
    made = step.stats()
    assert made["replayed"] == 0 and made["recorded"] <= 12 and "calls run eagerly" in step.refusal(), (made, step.refusal())


def test_a_reason_is_told_once_however_often_calls_rest_for_it(clock):
    kept = []

    def function(x):
        kept.append(x * 2)  # lives on after the next call
        return kept[-1].tanh()

    part = overdrive.captured(function, guards="promised")
    rests = set()
    for _ in range(120):
        part(torch.ones(4, requires_grad=True)).sum().backward()
        clock.passes(CALL)
        told = part.refusal()
        assert told.count("is still held after the next") <= 1 and told.count("capture_budget_test.py:") <= 1, told
        assert told.count("calls run eagerly") <= 1, told
        rests.add(part._pace.rests)
    assert len(rests) > 3 and "is still held after the next" in told, told


def test_a_call_that_takes_no_time_is_not_recorded(clock, monkeypatch):
    monkeypatch.setattr(_budget, "_SHORT", 1000)
    part = overdrive.captured(lambda x: x * 2)
    for i in range(20):
        assert part(torch.full((2,), float(i)))[0].item() == 2 * i
    assert part.stats()["recorded"] == 0 and "so little time" in part.refusal()


@pytest.mark.parametrize("captured", [nn.Tanh, lambda: lambda x: x * 2])
def test_a_part_of_one_operator_is_not_recorded_though_its_first_call_takes_long(clock, monkeypatch, captured):
    """What is made once in a process, and the watch itself, lie in the first call. A few plain ones tell, and the part says why it rests."""
    monkeypatch.setattr(_budget, "_SHORT", 40_000)
    function = captured()

    def slow_at_first(x, calls=[]):  # noqa: B006
        clock.passes(3_000 if calls else 100_000)
        calls.append(None)
        return function(x)

    part = overdrive.captured(slow_at_first)
    for i in range(20):
        x = torch.full((2,), float(i))
        assert torch.equal(part(x), function(x))
    made = part.stats()
    assert made["recorded"] == 0 and made["eager"] == made["calls"] == 20 and "so little time" in part.refusal()


def test_always_has_no_budget(monkeypatch):
    monkeypatch.setenv("OVERDRIVE_CAPTURE_ALWAYS", "0")
    assert overdrive.captured(lambda x: x, always=True)._pace.budget.is_off
    assert not overdrive.captured(lambda x: x)._pace.budget.is_off


def test_sizes_that_stay_for_six_calls_get_few_recordings(clock, monkeypatch):
    """No replay has paid for the first ones, and none of them comes again."""
    monkeypatch.setattr(_budget, "_FREE", FREE)
    run, part = program(clock, rows=lambda i: 2 + i // 6)
    assert same(run(200), program(clock, rows=lambda i: 2 + i // 6, captured=False)[0](200))
    made = part.stats()
    assert made["recorded"] + made["checked"] <= 9 and "still recorded" not in part.refusal() and "calls run eagerly" in part.refusal()


@pytest.mark.parametrize("calls", [2, 3, 6])
def test_values_that_come_again_are_recorded_though_nothing_has_paid(clock, monkeypatch, calls):
    monkeypatch.setattr(_budget, "_FREE", FREE)

    def change(i, net):
        net.factor = 1 + i // calls % 4

    run, part = program(clock, change)
    assert same(run(300), program(clock, change, captured=False)[0](300))
    assert part.stats()["replayed"] > 120
    assert part.refusal() == ""


def test_a_value_that_stays_at_last_is_recorded_though_nothing_has_paid(clock, monkeypatch):
    monkeypatch.setattr(_budget, "_FREE", FREE)

    def change(i, net):
        net.factor = 1 + min(i, 60) // 6

    run, part = program(clock, change)
    assert same(run(300), program(clock, change, captured=False)[0](300))
    assert part.stats()["replayed"] > 100


def test_a_step_that_took_no_time_is_recorded_once_it_does_its_work(monkeypatch):
    monkeypatch.setattr(_budget, "is_unlimited", lambda always: False)
    monkeypatch.setattr(_budget, "_FREE", 10**9)
    monkeypatch.setattr(_budget, "_SHORT", 10**12)
    step = overdrive.capture(lambda x: x * 2)
    step(torch.ones(2))
    assert step._pace.rest > 4000 and "so little time" in step.refusal()
    monkeypatch.setattr(_budget, "_SHORT", 0)
    for i in range(12):
        assert torch.equal(step(torch.full((2,), float(i))), torch.full((2,), 2.0 * i))
    assert step.stats()["replayed"] > 2, step.refusal()


def test_a_value_that_was_another_one_in_each_of_the_first_calls_and_stays_then():
    """As the length of a memory that fills."""
    memory = []
    step = overdrive.capture(lambda x: x * len(memory), always=True)
    for i in range(200):
        memory.extend([i] * (len(memory) < 24))
        assert torch.equal(step(torch.full((2,), float(i))), torch.full((2,), float(i * len(memory))))
    assert step.stats()["replayed"] > 60, step.refusal()


def test_steps_that_are_switched_off_are_not_looked_at(monkeypatch):
    monkeypatch.setenv("OVERDRIVE_CAPTURE", "0")
    step, part = overdrive.capture(lambda x: x * 2), overdrive.captured(lambda x: x * 2)
    for each in (step, part):
        for i in range(12):
            assert torch.equal(each(torch.full((2,), float(i))), torch.full((2,), 2.0 * i))
        each.reset()
        assert torch.equal(each(torch.ones(2)), torch.full((2,), 2.0))
        assert not each._chooser.variants and each.stats()["eager"] == 13 and "OVERDRIVE_CAPTURE=0" in each.refusal()
