"""Gradients of several calls that add up, as people write it: zero_grad() takes them away after the update, outside of the captured
function, in another one, or inside where the caller says that a call is the last."""
import pytest
import torch
from torch.nn.functional import cross_entropy

import overdrive

CALLS = 150


def trained(way, *, parts, captured, set_to_none=True, changed=lambda call, net: None):
    """What each call leaves behind, and the counts of the captured functions."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)

    def loss_of(x, y):
        loss = cross_entropy(net(x), y) / parts
        loss.backward()
        return loss

    def update():
        opt.step()
        opt.zero_grad(set_to_none=set_to_none)

    def whole(x, y, last):
        loss = loss_of(x, y)
        if last:
            update()
        return loss

    first, second, both = loss_of, update, whole
    if captured:
        first, both = overdrive.capture(loss_of), overdrive.capture(whole)
        if way == "two functions":
            second = overdrive.capture(update)
    seen = []
    for call in range(CALLS):
        changed(call, net)
        x, y, last = torch.randn(5, 8), torch.randint(0, 4, (5,)), call % parts == parts - 1
        if way == "a flag":
            loss = both(x, y, last)
        else:
            loss = first(x, y)
            if last:
                second()
        kept = [loss.detach().clone()]
        for p in net.parameters():
            kept += [p.detach().clone(), None if p.grad is None else p.grad.clone()]
        seen.append(kept)
    functions = {"a flag": [both], "two functions": [first, second], "outside": [first]}[way]
    return seen, [f.stats() for f in functions] if captured else []


def assert_same(way, **options):
    want, _ = trained(way, captured=False, **options)
    got, counts = trained(way, captured=True, **options)
    for call, (a, b) in enumerate(zip(want, got)):
        for x, y in zip(a, b):
            assert (x is None) == (y is None) and (x is None or torch.equal(x, y)), f"call {call}"
    return counts


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("way", ["outside", "two functions", "a flag"])
def test_gradients_add_up(way, parts, set_to_none):
    for stats in assert_same(way, parts=parts, set_to_none=set_to_none):
        assert stats["replayed"] > stats["calls"] // 2, stats


def test_a_gradient_of_the_callers_own_is_added_to():
    """Which is another tensor each time."""

    def gives(call, net):
        if call > 40 and call % 3 == 0:
            net[0].weight.grad = torch.full_like(net[0].weight, 0.01 * call)

    assert_same("outside", parts=4, changed=gives)


def test_an_update_alone_that_takes_away_what_eager_code_leaves():
    net = torch.nn.Linear(4, 2)
    opt = torch.optim.SGD(net.parameters(), 0.1)

    def update():
        opt.step()
        opt.zero_grad()

    update = overdrive.capture(update)
    for _ in range(40):
        net(torch.randn(3, 4)).square().mean().backward()
        update()
    assert "uses a gradient that was there before the call and that the call takes away" in update.refusal()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_with_a_weight_that_is_another_in_each_call(set_to_none):
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 2)
        opt = torch.optim.SGD(net.parameters(), 0.1)

        def function(x, weight, net=net):
            loss = net(x).square().mean() * weight
            loss.backward()
            return loss

        step = overdrive.capture(function) if captured else function
        seen = []
        for call in range(CALLS):
            seen.append([step(torch.randn(3, 4), 0.1 + 0.01 * call).item(), net.weight.tolist()])
            if call % 4 == 3:
                opt.step()
                opt.zero_grad(set_to_none=set_to_none)
        sides.append(seen)
    assert sides[0] == sides[1]
    assert step.stats()["replayed"] > 80, step.refusal()
