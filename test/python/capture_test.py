"""overdrive.capture: the bits of the same function without it, over 200 steps, or a refusal with its text."""
import gc
import itertools
import re
import sys
import threading
import time
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import overdrive

STEPS = 200


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True)
        self.last = nn.Linear(6, 2)

    def forward(self, x):
        return self.last(self.lstm(x.view(x.size(0), -1, 8))[0][:, -1])


def dropped():
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 2))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05),
    "momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 1e-2, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2, amsgrad=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.05, lr_decay=0.01, weight_decay=0.01),
    "adamax": lambda p: torch.optim.Adamax(p, 1e-2, weight_decay=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, 1e-2, weight_decay=0.01),
    "radam": lambda p: torch.optim.RAdam(p, 1e-2, decoupled_weight_decay=True, weight_decay=0.01),
    "maximize": lambda p: torch.optim.Adam(p, 1e-3, maximize=True, foreach=True),
}


class Training:
    """A model, its optimizer and its step, with or without capture."""

    def __init__(self, make=mlp, optimizer="momentum", captured=False, seed=0, **options):
        torch.manual_seed(seed)
        model = self.model = make()
        self.optimizer = OPTIMIZERS[optimizer](model.parameters())
        optimizer = self.optimizer

        def train(x, y):
            optimizer.zero_grad()
            out = model(x)
            loss = F.mse_loss(out, y)
            loss.backward()
            optimizer.step()
            return loss, {"out": out}

        self.step = overdrive.capture(train, optimizer=optimizer, **options) if captured else train

    def state(self):
        tensors = [*self.model.state_dict().values(), *(p.grad for p in self.model.parameters() if p.grad is not None)]
        for state in self.optimizer.state.values():
            tensors.extend(value for value in state.values() if value is not None)
        versions = [p._version for p in self.model.parameters()]
        return [t.clone() for t in tensors] + [torch.get_rng_state()], versions


def batches(count, sizes=(4,)):
    random = torch.Generator().manual_seed(7)
    for i in range(count):
        size = sizes[i % len(sizes)]
        yield torch.randn(size, 8, generator=random), torch.randn(size, 2, generator=random)


def run(training, count=STEPS, sizes=(4,), between=None):
    torch.manual_seed(3)
    losses = []
    for i, (x, y) in enumerate(batches(count, sizes)):
        if between:
            between(training, i)
        loss, rest = training.step(x, y)
        losses += [loss.detach().clone(), rest["out"].detach().clone()]
    tensors, versions = training.state()
    return losses + tensors, versions


def assert_same(captured, **how):
    make = {key: how.pop(key) for key in ("make", "optimizer") if key in how}
    wanted, versions = run(Training(**make), **how)
    got, versions_here = run(captured, **how)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert a.shape == b.shape and a.stride() == b.stride()
        assert torch.equal(a, b)
    assert versions_here == versions


@pytest.mark.parametrize("make, optimizer", [*((mlp, name) for name in OPTIMIZERS), (Lstm, "momentum"),
                                             (dropped, "adamw")])
def test_two_hundred_steps_have_the_bits_of_eager(make, optimizer):
    captured = Training(make, optimizer, captured=True)
    assert_same(captured, make=make, optimizer=optimizer)
    assert captured.step.refusal() == ""
    assert captured.step.stats()["replayed"] == STEPS - 4


def test_the_engine_may_be_overdrive():
    with overdrive.engine():
        captured = Training(captured=True)
        assert_same(captured)
    assert captured.step.stats()["replayed"] == STEPS - 4


def test_other_sizes_have_a_recording_of_their_own():
    captured = Training(captured=True)
    assert_same(captured, count=60, sizes=(4, 4, 3))
    assert captured.step.stats()["replayed"] == 60 - 2 * 4
    assert captured.step.explain().count("program ") == 2


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_a_scheduler_between_the_calls_needs_no_other_recording(optimizer):
    def between(training, i):
        for group in training.optimizer.param_groups:
            group["lr"] = 0.05 / (1 + i)

    captured = Training(optimizer=optimizer, captured=True)
    assert_same(captured, optimizer=optimizer, count=50, between=between)
    assert captured.step.stats()["recorded"] == 2


def test_every_replay_can_be_compared_with_eager():
    captured = Training(dropped, "adam", captured=True, check_every=3)
    assert_same(captured, make=dropped, optimizer="adam", count=40)
    assert captured.step.stats()["checked"] > 10


def momentum_of_its_own(training, i):
    if i == 10:
        training.optimizer.load_state_dict(training.optimizer.state_dict())


def eval_for_a_while(training, i):
    training.model.train(i % 20 < 10)


def another_layer(training, i):
    if i == 10:
        torch.manual_seed(5)
        training.model[0] = nn.Linear(8, 16)


def another_parameter(training, i):
    if i == 10:
        training.model[0].bias = nn.Parameter(torch.ones(16))


def frozen(training, i):
    if i == 10:
        training.model[0].weight.requires_grad_(False)


def without_momentum(training, i):
    if i == 10:
        training.optimizer.param_groups[0]["momentum"] = 0


def hooks_that_come_and_go(training, i):
    weight = training.model[0].weight
    if i == 10:
        training.hooks = [weight.register_hook(lambda g: g * 2)]
    if i == 25:
        training.hooks.append(weight.register_hook(lambda g: g + 0.01))
    if i == 40:
        training.hooks[0].remove()


def a_hook_of_a_module(training, i):
    if i == 10:
        training.hook = training.model[1].register_forward_hook(lambda module, inputs, out: out * 2)
    if i == 25:
        training.hook.remove()


def another_group(training, i):
    if i == 10:
        extra = torch.ones(3, requires_grad=True)
        extra.grad = torch.ones(3)
        training.optimizer.add_param_group({"params": [extra]})
        training.extra = extra


@pytest.mark.parametrize("between", [momentum_of_its_own, eval_for_a_while, another_layer, another_parameter, frozen,
                                     without_momentum, hooks_that_come_and_go, a_hook_of_a_module,
                                     another_group], ids=lambda f: f.__name__)
def test_a_change_between_two_calls_is_noticed(between):
    make = dropped if between is eval_for_a_while else mlp
    captured = Training(make, captured=True)
    assert_same(captured, make=make, count=60, between=between)
    stats = captured.step.stats()
    assert stats["recorded"] > 2 and stats["replayed"] > 30, stats


def test_a_watched_value_has_a_recording_for_each_value():
    factor = [1.0]
    p = torch.ones(3, requires_grad=True)

    def twice(x):
        return (p * x * factor[0]).sum()

    step = overdrive.capture(twice, watch=lambda: factor[0])
    for i in range(40):
        factor[0] = 1.0 + i % 2
        assert step(torch.ones(3)).item() == 3 * factor[0]
    assert step.stats()["replayed"] == 40 - 2 * 4


@pytest.mark.parametrize("zero", [True, False])
def test_sizes_that_train_other_parameters_leave_the_gradients_of_eager(zero):
    def make(wrap):
        a, b = (torch.full((3,), 0.5, requires_grad=True) for _ in range(2))
        optimizer = torch.optim.SGD([a, b], 0.01)

        def train(x):
            if zero:
                optimizer.zero_grad()
            loss = (a * x).sum() if x.numel() == 1 else (a * b * x).sum()
            loss.backward()
            optimizer.step()
            return loss

        return wrap(train, optimizer=optimizer), (a, b)

    def run_all(step, parameters):
        seen = []
        for i in range(60):
            seen.append(step(torch.full((1 if i % 8 < 5 else 3,), 0.1)).item())
            seen += [(p.tolist(), None if p.grad is None else p.grad.tolist()) for p in parameters]
        return seen

    step, parameters = make(overdrive.capture)
    assert run_all(step, parameters) == run_all(*make(lambda train, optimizer: train))
    assert step.stats()["replayed"] > 10


def refused(function, *inputs, calls=6, **options):
    step = overdrive.capture(function, **options)
    for _ in range(calls):
        step(*inputs)
    assert step.stats()["replayed"] == 0
    assert step.refusal() in step.explain()
    return step.refusal()


def stepping(optimizer, p, extra=lambda: None):
    def train(x):
        optimizer.zero_grad()
        loss = (p * x).sum()
        loss.backward()
        optimizer.step()
        extra()
        return loss

    return train


def test_refusals_say_what_to_do():
    p, x = torch.ones(3, requires_grad=True), torch.ones(3)
    sgd = torch.optim.SGD([p], 0.1)
    assert "item()" in refused(lambda x: x * torch.rand(1).item(), x)
    assert "return tensors" in refused(lambda x: (x * 2, {3}), x)
    assert "returns a number" in refused(lambda x: (x * 2, 3), x, guards="promised")
    assert "ASGD. A captured step understands SGD, Adam, AdamW, Adagrad" in refused(
        stepping(other := torch.optim.ASGD([p]), p), x, optimizer=other)
    assert "does not know; give it by optimizer=" in refused(stepping(sgd, p), x, guards="promised")
    second = torch.optim.Adam([torch.ones(1, requires_grad=True)])
    for given in (sgd, second, None):
        assert "takes a list of several" in refused(stepping(sgd, p, second.step), x, optimizer=given, guards="promised")
    assert "has fused=True" in refused(
        stepping(other := torch.optim.SGD([p], 0.1, fused=True), p), x, optimizer=other)
    assert "a tensor as lr" in refused(
        stepping(other := torch.optim.SGD([p], torch.tensor(0.1)), p), x, optimizer=other)
    assert "changes the optimizer's options" in refused(
        stepping(sgd, p, lambda: sgd.param_groups[0].update(lr=sgd.param_groups[0]["lr"] / 2)), x, optimizer=sgd)
    assert "does not call step()" in refused(lambda x: x + 1, x, optimizer=sgd, guards="promised")
    assert "past the optimizer" in refused(stepping(sgd, p, lambda: torch.optim.SGD.step(sgd)), x, optimizer=sgd)
    sgd.register_step_post_hook(lambda *_: None)
    assert "hooks on step()" in refused(stepping(sgd, p), x, optimizer=sgd)
    model = nn.Dropout()
    assert "modules=" in refused(lambda x: F.dropout(x), x, guards="promised")
    step = overdrive.capture(lambda x: model(x))
    for _ in range(6):
        step(x)
    assert step.refusal() == "" and step.stats()["replayed"] == 2


def test_an_update_that_is_not_the_known_one_is_refused(monkeypatch):
    module = sys.modules["torch.optim.sgd"]
    real = module._single_tensor_sgd

    def other(params, *arguments, **options):
        real(params, *arguments, **options)
        for p in params:
            p.add_(1e-3)

    monkeypatch.setattr(module, "_single_tensor_sgd", other)
    p = torch.ones(3, requires_grad=True)
    sgd = torch.optim.SGD([p], 0.1)
    assert "_single_tensor_sgd() of SGD was replaced" in refused(stepping(sgd, p), torch.ones(3), optimizer=sgd)
    value = torch.ones(3)
    for _ in range(6):
        value = value.add(torch.ones(3), alpha=-0.1).add(1e-3)
    assert torch.equal(p.detach(), value)


def test_calls_under_a_mode_of_python_are_eager():
    step = overdrive.capture(lambda x: x * 2)
    with torch.overrides.BaseTorchFunctionMode():
        for _ in range(6):
            assert step(torch.ones(2)).tolist() == [2, 2]
    assert step.stats()["eager"] == 6 and "A mode of Python is active" in step.refusal()
    assert step.refusal() in step.explain()
    for _ in range(6):
        step(torch.ones(2))
    assert step.stats()["replayed"] == 2


def test_wrong_arguments_are_type_errors():
    with pytest.raises(TypeError, match="takes a function"):
        overdrive.capture(3)
    with pytest.raises(TypeError, match="torch.optim.Optimizer"):
        overdrive.capture(lambda x: x, optimizer=3)
    with pytest.raises(TypeError, match="modules= is 3 and must be a torch.nn.Module or a list"):
        overdrive.capture(lambda x: x, modules=3)
    with pytest.raises(TypeError, match="modules= is"):
        overdrive.capture(lambda x: x, modules=[None])
    with pytest.raises(TypeError, match="watch= is 3 and must be a function"):
        overdrive.capture(lambda x: x, watch=3)
    with pytest.raises(TypeError, match="constant_modes= is 'yes'"):
        overdrive.capture(lambda x: x, constant_modes="yes")
    with pytest.raises(ValueError, match="programs is -1"):
        overdrive.capture(lambda x: x, programs=-1)
    with pytest.raises(TypeError, match="check_every is 0.5"):
        overdrive.capture(lambda x: x, check_every=0.5)
    with pytest.raises(ValueError, match='guards= is 1 and must be "checked" or "promised"'):
        overdrive.capture(lambda x: x, guards=1)
    with pytest.raises(TypeError, match="passes= is 1 and must be True or False"):
        overdrive.capture(lambda x: x, passes=1)
    with pytest.raises(TypeError, match="passes= is 'no' and must be True or False"):
        overdrive.captured(lambda x: x, passes="no")
    with pytest.raises(ValueError, match="lanes is -1"):
        overdrive.capture(lambda x: x, lanes=-1)


def test_lanes_are_drawn(tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step = overdrive.capture(lambda x: x.tanh().sum() + x.exp().sum(), lanes=2)
        for _ in range(12):
            step(torch.ones(3))
        step.lanes_page(str(tmp_path / "lanes.html"))
    finally:
        torch.set_num_threads(threads)
    page = (tmp_path / "lanes.html").read_text(encoding="utf-8")
    assert "test_lanes_are_drawn" in page and '"kind": "simulated"' in page and "aten::tanh" in page


def test_lanes_have_the_bits_of_one_thread():
    def nets(x):
        return torch.stack([(x.mm(x) * k).tanh().sum() for k in range(1, 5)])

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step = overdrive.capture(nets, lanes=2)
        for i in range(30):
            x = torch.randn(32, 32)
            assert torch.equal(step(x), nets(x))
        assert step.stats()["replayed"] > 20
        assert "\nlanes: " in step.explain()
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("passes", [True, False])
def test_passes_leave_out_steps_and_can_be_turned_off(passes):
    def twice(x):
        (x + 1).exp()
        return (x * 3).tanh() * (x * 3).tanh() + torch.ones(4)

    step = overdrive.capture(twice, passes=passes)
    part = overdrive.captured(twice, passes=passes)
    for i in range(9):
        x = torch.arange(4.) - i
        assert torch.equal(step(x), twice(x))
        y, z = x.clone().requires_grad_(), x.clone().requires_grad_()
        part(y).sum().backward()
        twice(z).sum().backward()
        assert torch.equal(y.grad, z.grad)
    assert step.stats()["replayed"] > 2 and part.stats()["backwards"] > 2, step.explain() + part.explain()
    for text in (step.explain(), part.explain()):
        counts = re.search(r"passes: (\d+) steps have the result of another, (\d+) are made once, (\d+) are not needed", text).groups()
        assert all((int(count) > 0) == passes for count in counts), text


@pytest.mark.parametrize("call", [0, 1, 2, 3])
def test_an_exception_of_the_function_arrives_and_the_step_goes_on(call):
    calls = itertools.count()

    def sometimes(x):
        y = x * 2
        if next(calls) == call:
            raise KeyError("mine")
        return y

    step = overdrive.capture(sometimes, guards="promised")  # else an iterator that lives on is refused
    for i in range(10):
        if i == call:
            with pytest.raises(KeyError, match="mine"):
                step(torch.ones(2))
        else:
            assert step(torch.ones(2)).tolist() == [2, 2]
    # An exception in the fourth call, which is compared, begins again with the first recording.
    assert step.stats()["replayed"] >= 3


def test_a_replay_runs_without_the_gil():
    product = torch.ones(400, 400)

    def work(x):
        for _ in range(30):
            x = x @ product
        return x

    step = overdrive.capture(work)
    x = torch.zeros(400, 400)
    for _ in range(5):
        step(x)
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # nobody is asked to give up the GIL
    try:
        thread.start()
        before = counted[0]
        for _ in range(200):
            step(x)
            if counted[0] > before:
                break
        seen = counted[0] - before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert seen > 0


def test_a_step_and_what_it_holds_die():
    model = nn.Linear(3, 3)
    step = overdrive.capture(lambda x: model(x))
    for _ in range(6):
        step(torch.ones(3))
    dead = weakref.ref(step), weakref.ref(model)
    del step, model
    gc.collect()
    assert [each() for each in dead] == [None, None]


def growing(model):
    """Gives a list one item more in each call."""
    losses = []

    def train(x):
        loss = model(x).square().mean()
        loss.backward()
        losses.append(loss.item())
        return loss

    return overdrive.capture(train), losses


def test_a_warning_that_is_an_error_takes_no_call_away(capsys):
    step, losses = growing(nn.Linear(3, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(30):
            step(torch.ones(3))
    assert len(losses) == 30
    assert capsys.readouterr().err.count("has run 20 calls and replayed none") == 1


def test_calls_of_a_refused_step_do_not_search_all_objects(monkeypatch):
    """To ask who holds a container takes longer than a small step."""
    step, _ = growing(nn.Linear(3, 1))
    for _ in range(6):
        step(torch.ones(3))
    asked, usual = [], gc.get_referrers
    monkeypatch.setattr(gc, "get_referrers", lambda *objects: asked.append(objects) or usual(*objects))
    for _ in range(20):
        step(torch.ones(3))
    assert len(asked) < 3 and "len(losses)" in step.refusal()


def test_an_optimizer_of_parameters_that_are_not_made_yet():
    torch.manual_seed(0)
    net = nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(4))
    optimizer = torch.optim.SGD(net.parameters(), 0.05)

    def train(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = overdrive.capture(train, optimizer=optimizer)
    for i in range(20):
        step(torch.randn(6, 4))
    assert step.stats()["replayed"] > 5, step.explain()
