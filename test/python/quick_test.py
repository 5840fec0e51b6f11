"""Calls without Python: they happen, and whatever a call would look at is looked at in them."""
import gc
import threading
import weakref

import overdrive
import pytest
import torch
from torch import nn

ALIKE = 12


def hits(step):
    return step._quick.armed.hits


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def part_of(model):
    return model._compiled_call_impl.part


def warm(step, *given):
    for _ in range(ALIKE):
        step(*given)
    assert hits(step) > 0


def test_calls_of_each_kind_go_without_python():
    model, x = mlp(), torch.randn(5, 4)
    optimizer = overdrive.captured(torch.optim.Adam(model.parameters()))
    overdrive.captured(model)
    for _ in range(20):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    assert hits(part_of(model)) > 0
    assert hits(optimizer._overdrive_update.captured) > 0
    step = overdrive.capture(lambda x: (x * 2, [x + 1][0]))
    warm(step, x)
    a, b = step(x)
    assert torch.equal(a, x * 2) and torch.equal(b, x + 1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor, self.held = 2.0, [3.0]

    def forward(self, x):
        return x * self.factor + self.held[0] * (1 if self.training else 5)


def change_number(layer):
    layer.factor = 4.0


def change_in_a_list(layer):
    layer.held[0] = 7.0


def change_mode(layer):
    layer.eval()


def change_forward(layer):
    layer.forward = lambda x: x - 1


def add_a_hook(layer):
    layer.register_forward_hook(lambda module, given, result: result * 3)


def change_the_class(layer):
    class Other(Layer):
        def forward(self, x):
            return x + 10

    layer.__class__ = Other


@pytest.mark.parametrize("change", [change_number, change_in_a_list, change_mode, change_forward, add_a_hook, change_the_class])
def test_a_change_is_seen(change):
    plain, layer, x = Layer(), overdrive.captured(Layer()), torch.randn(4)
    for _ in range(ALIKE):
        assert torch.equal(layer(x), plain(x))
    assert hits(part_of(layer)) > 0
    for one in (layer, plain):
        change(one)
    for _ in range(ALIKE):
        assert torch.equal(layer(x), plain(x))


def test_arguments_that_are_more_than_tensors():
    part = overdrive.captured(lambda a, b=None: a * 2 if b is None else a * b)
    x = torch.randn(4)
    warm(part, x)
    assert torch.equal(part(x, x), x * x)
    assert torch.equal(part(x, b=3.0), x * 3.0)
    assert torch.equal(part(nn.Parameter(x)), x * 2)
    assert torch.equal(part(x.double()), x.double() * 2)
    step = overdrive.capture(lambda a, b: a.clone().add_(b.clone()))
    warm(step, x, x + 1)
    assert torch.equal(step(x, x), x + x)


def test_an_attribute_of_an_argument():
    part = overdrive.captured(lambda x: x * getattr(x, "_weight", 1.0))
    x = torch.randn(4)
    warm(part, x)
    y = torch.randn(4)
    y._weight = 3.0
    for _ in range(ALIKE):
        assert torch.equal(part(y), y * 3.0)
        assert torch.equal(part(x), x)
    del y._weight
    assert torch.equal(part(y), y)
    y.__dict__["_weight"] = 4.0
    assert torch.equal(part(y), y * 4.0)


def test_a_class_of_tensors():
    class Mine(torch.Tensor):
        pass

    part, x = overdrive.captured(lambda x: x * 2), torch.randn(4)
    warm(part, x)
    assert type(part(x.as_subclass(Mine))) is Mine


def test_modes_see_their_operators():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counts(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen += 1
            return function(*args, **(kwargs or {}))

    part, x = overdrive.captured(lambda x: x * 2), torch.randn(4)
    warm(part, x)
    with Counts() as counts:
        part(x)
    assert counts.seen > 0
    assert torch.equal(torch.func.vmap(part)(torch.ones(3, 4)), torch.full((3, 4), 2.0))


def test_an_update_sees_options_gradients_and_hooks():
    def train(is_captured):
        model, x = mlp(), torch.ones(5, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if is_captured:
            optimizer = overdrive.captured(optimizer)
        for i in range(60):
            optimizer.zero_grad(set_to_none=i % 7 != 3)
            model(x).square().sum().backward()
            group = optimizer.param_groups[0]
            if i >= 20 and i % 5 == 0:
                group["lr"] = 0.1 / i
            if i == 33:
                model[0].bias.grad = None
            if i == 36:
                model[0].bias.grad = model[0].bias.grad.clone().fill_(2.0)
            if i == 40:
                group["weight_decay"] = 0.1
            if i == 45:
                optimizer.register_step_post_hook(lambda optimizer, *_: optimizer.param_groups[0].update(lr=0.01))
            if i == 50:
                optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
            if i == 52:
                optimizer.param_groups[1]["params"][0].grad = torch.ones(2)
            optimizer.step()
        return optimizer, [p.detach().clone() for group in optimizer.param_groups for p in group["params"]]

    _, expected = train(False)
    optimizer, left = train(True)
    assert all(map(torch.equal, expected, left))


def test_zero_grad_that_was_replaced(monkeypatch):
    model, x = mlp(), torch.ones(5, 4)
    optimizer = overdrive.captured(torch.optim.SGD(model.parameters(), lr=0.1))

    def train():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    for _ in range(ALIKE):
        train()
    update = optimizer._overdrive_update
    assert hits(update.captured) > 0 and update.quick_zero_grad() is None
    assert model[0].weight.grad is None
    called = []
    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", lambda self, *_: called.append(self))
    optimizer.zero_grad()
    assert called == [optimizer]


def test_a_gradient_that_ends_may_reset_the_update():
    model, x = mlp(), torch.ones(5, 4)
    optimizer = overdrive.captured(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(ALIKE):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    update = optimizer._overdrive_update.captured
    model(x).sum().backward()
    weakref.finalize(model[0].weight.grad, update.reset)
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_an_error_in_a_call_leaves_the_next_one_as_it_was():
    table = torch.arange(5.0)
    part = overdrive.captured(lambda index: table[index] * 2)
    index = torch.tensor([1, 2])
    warm(part, index)
    with pytest.raises(IndexError):
        part(torch.tensor([1, 9]))
    for _ in range(ALIKE):
        assert torch.equal(part(index), table[index] * 2)


def test_threads_at_once():
    part, wrong = overdrive.captured(lambda x: torch.tanh(x * 2)), []

    def call(seed):
        x = torch.randn(7, generator=torch.Generator().manual_seed(seed))
        for _ in range(200):
            if not torch.equal(part(x), torch.tanh(x * 2)):
                wrong.append(seed)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_part_and_its_arguments_die_as_ever():
    part, x = overdrive.captured(lambda x: x * 2), torch.randn(4)
    warm(part, x)
    dead, gone = weakref.ref(part), weakref.ref(x)
    gc.disable()
    try:
        del part, x
        assert dead() is None and gone() is None
    finally:
        gc.enable()
