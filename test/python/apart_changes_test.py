"""What code that runs apart changes, and the captured function looks at: the same bits, or a refusal."""
import types

import pytest
import torch

import overdrive


def note_best(s, value):
    """As early stopping counts: a number that goes on or is 0 again, a float, a flag."""
    s.seen.append(value)
    if value < s.best:
        s.best, s.bad = value, 0
    else:
        s.bad += 1
    s.total += value
    s.is_late = s.bad > 2
    s.last = value


def halves(s, gradients):
    for gradient in gradients:
        gradient.mul_(0.5)


def nothing(s, loss):
    return loss


def by_bad(s, loss):
    return loss * 0.5 if s.bad > 2 else loss


def by_flag(s, loss):
    return loss * 0.5 if s.is_late else loss


def by_float(s, loss):
    return loss * 0.5 if s.total > 40 else loss


def by_number(s, loss):
    return loss * (1.0 + 0.001 * s.total)


def counts(s, loss):
    s.calls += 1
    return loss * 0.5 if s.bad > 2 and s.calls > 3 else loss


def writes(s, loss):
    s.last = 0.5
    return loss


def writes_flag(s, loss):
    s.is_late = False
    return loss


def writes_the_flag_back(s, loss):
    s.is_late = True
    return loss


def counts_the_same(s, loss):
    s.bad += 1
    return loss


def after_by(look):
    return lambda s, gradients: halves(s, gradients) if look(s) else None


BEFORE = {"nothing": nothing, "a number": by_bad, "a flag": by_flag, "a float": by_float, "a float as a number": by_number, "beside a counter": counts,
          "written": writes, "a flag that is written": writes_flag, "a flag that is changed back": writes_the_flag_back,
           "counted by both": counts_the_same}
AFTER = {"nothing": lambda s, gradients: None, "a number": after_by(lambda s: s.bad > 2), "a flag": after_by(lambda s: s.is_late),
         "a float": after_by(lambda s: s.total > 40), "a list": after_by(lambda s: len(s.seen) > 50),
         "a list that is empty or not": after_by(lambda s: not s.seen), "items": after_by(lambda s: s.seen and s.seen[-1] > 1)}


def fails_seldom(s, value):
    """It has counted when it fails."""
    note_best(s, value)
    if len(s.seen) % 13 == 12:
        raise ValueError("a failure")


def trained(before, after, note, is_captured):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    s = types.SimpleNamespace(bad=0, best=1e9, total=0.0, is_late=False, last=0.0, calls=0, seen=[])

    def step(x, y):
        optimizer.zero_grad()
        loss = before(s, (model(x) - y).square().mean())
        loss.backward()
        overdrive.apart(lambda loss: note(s, loss.item()), loss)
        after(s, [parameter.grad for parameter in model.parameters()])
        optimizer.step()
        return loss

    run = overdrive.capture(step) if is_captured else step
    generator = torch.Generator().manual_seed(1)
    seen = []
    for i in range(120):
        x, y = torch.randn(8, 4, generator=generator) * (1 + (i % 17 == 0)), torch.randn(8, 1, generator=generator)
        try:
            loss = run(x, y).item()
        except ValueError:
            loss = -1.0
        seen.append((loss, model.weight.sum().item(), s.bad, s.best, s.total, s.is_late, s.last, s.calls, len(s.seen)))
        if i % 40 == 39:
            s.best = 1e9
    return seen, run


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER)
def test_values_that_code_apart_changes(before, after):
    expected, _ = trained(before, after, note_best, False)
    got, step = trained(before, after, note_best, True)
    first = next((i for i, pair in enumerate(zip(expected, got)) if pair[0] != pair[1]), None)
    assert first is None, (first, expected[first], got[first], step.stats(), step.refusal())
    assert step.stats()["replayed"] > 60 or step.refusal(), step.stats()


@pytest.mark.parametrize("before", [nothing, by_bad, counts, by_flag], ids=["nothing", "a number", "beside a counter", "a flag"])
def test_code_that_fails_when_it_has_changed_something(before):
    expected, _ = trained(before, AFTER["nothing"], fails_seldom, False)
    got, step = trained(before, AFTER["nothing"], fails_seldom, True)
    first = next((i for i, pair in enumerate(zip(expected, got)) if pair[0] != pair[1]), None)
    assert first is None, (first, expected[first], got[first], step.stats(), step.refusal())
    assert sum(each[0] == -1.0 for each in got) == 9


def note_in(change):
    """In the tenth call code apart makes a change, once."""
    def note(s, value):
        s.calls += 1
        if s.calls == 10:
            change(s)

    return note


LISTS = {"a list that shrinks": lambda s: s.items.remove(1), "a list that is cleared": lambda s: s.items.clear(), "a list that grows": lambda s: s.items.append(5),
         "a dict without its key": lambda s: s.table.pop("k"), "a dict with another key": lambda s: s.table.update(other=3), "a set": lambda s: s.names.add("b"),
         "an attribute that is gone": lambda s: delattr(s, "flag"), "an attribute that comes": lambda s: setattr(s, "late", 1),
         "another function": lambda s: setattr(s, "function", torch.sigmoid), "a rate": lambda s: s.opt.param_groups[0].update(lr=0.5)}


@pytest.mark.parametrize("look", ["before", "after", "both"])
@pytest.mark.parametrize("row", LISTS)
def test_a_change_that_comes_in_a_replay(row, look):
    """What the step looks at is as it was, before, and is put back in the program's own containers."""
    sides = []
    for is_captured in (False, True):
        torch.manual_seed(0)
        weight = torch.ones(4, requires_grad=True)
        opt = torch.optim.SGD([weight], 0.1)
        s = types.SimpleNamespace(calls=0, items=[1, 2], table={"k": 1, "z": 2}, names={"a"}, flag=True, function=torch.tanh, opt=opt)

        def seen(loss, s=s):
            loss = loss * len(s.items) * (2 if 1 in s.items else 1) * s.table.get("k", 7) * sum(s.table.values()) * (3 if "b" in s.names else 1)
            return s.function(loss) * getattr(s, "late", 2) * (2 if hasattr(s, "flag") else 1)

        def step(x, s=s, weight=weight, opt=opt, note=note_in(LISTS[row])):
            opt.zero_grad()
            loss = (weight * x).square().mean()
            if look != "after":
                loss = seen(loss)
            overdrive.apart(lambda value: note(s, value), loss)
            if look != "before":
                loss = seen(loss)
            loss.backward()
            opt.step()
            return loss

        run = overdrive.capture(step, always=True) if is_captured else step
        found = []
        for _ in range(20):
            found.append((run(torch.randn(4)).item(), weight.tolist(), s.items, dict(s.table), s.names, s.calls, sorted(vars(s)), opt.param_groups[0]["lr"]))
        sides.append([repr(each) for each in found])
    assert sides[0] == sides[1]
    assert run.stats()["replayed"] > 3 or run.refusal()
