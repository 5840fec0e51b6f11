"""What a captured step finds by itself: optimizers that nobody has named, those of the program's own classes, and the object that it is a
method of."""
import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import overdrive


class Lion(torch.optim.Optimizer):
    """As people write one: a state for each parameter, numbers out of the groups."""

    def __init__(self, parameters, lr=1e-2, beta=0.9, decay=0.01):
        super().__init__(parameters, {"lr": lr, "beta": beta, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                p.mul_(1 - group["lr"] * group["decay"])
                p.add_(state["m"].lerp(p.grad, 0.1).sign_(), alpha=-group["lr"])
                state["m"].mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])


class Lookahead(torch.optim.Optimizer):
    """Around another optimizer, with a counter in an attribute."""

    def __init__(self, inner, every=5):
        self.inner, self.every, self.calls = inner, every, 0
        self.param_groups, self.state, self.defaults = inner.param_groups, inner.state, inner.defaults
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    def step(self, closure=None):
        self.inner.step()
        self.calls += 1
        if self.calls % self.every == 0:
            with torch.no_grad():
                for slow, p in zip(self.slow, self.param_groups[0]["params"]):
                    slow.add_(p - slow, alpha=0.5)
                    p.copy_(slow)


class Halved(torch.optim.SGD):
    """PyTorch's update inside of another step()."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad.mul_(0.5)
        return super().step(closure)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def batch(seed):
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :3].argmax(1)


def trained(make, capture, between=lambda i, optimizer: None, calls=30):
    """Losses and parameters of a program without and with a capture, and the captured step."""
    sides, step = [], None
    for captured in (False, True):
        model = net()
        optimizer = make(model.parameters())

        def train(x, y, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        step = capture(train, optimizer) if captured else train
        losses = []
        for i in range(calls):
            losses.append(step(*batch(i % 3)).item())
            between(i, optimizer)
        sides.append((losses, [p.detach().clone() for p in model.parameters()]))
    (want, parameters), (got, others) = sides
    assert want == got
    assert all(map(torch.equal, parameters, others))
    return step


UNNAMED, NAMED = (lambda train, optimizer: overdrive.capture(train)), (lambda train, optimizer: overdrive.capture(train, optimizer=optimizer))
both = pytest.mark.parametrize("capture", [UNNAMED, NAMED], ids=["unnamed", "named"])


@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.Adam(p, 1e-2), lambda p: torch.optim.RMSprop(p, 1e-2),
], ids=["sgd", "adam", "rmsprop"])
def test_an_optimizer_that_nobody_named(make):
    def between(i, optimizer):
        if i == 15:
            optimizer.param_groups[0]["lr"] /= 2

    step = trained(make, UNNAMED, between)
    assert step.refusal() == "" and step.stats()["replayed"] > 10


def test_two_optimizers_one_of_which_steps_seldom():
    sides = []
    for captured in (False, True):
        model = net()
        often, seldom = torch.optim.Adam(model[0].parameters(), 1e-2), torch.optim.SGD(model[2].parameters(), 0.1)

        def train(x, y, is_fifth, model=model, often=often, seldom=seldom):
            often.zero_grad(), seldom.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            often.step()
            if is_fifth:
                seldom.step()
            return loss

        step = overdrive.capture(train) if captured else train
        sides.append([step(*batch(i), i % 5 == 4).item() for i in range(60)])
    assert sides[0] == sides[1] and step.stats()["replayed"] > 30, step.refusal()


@both
def test_an_optimizer_of_the_programs_own(capture):
    """Its step() is code as other code is: numbers that it reads are looked at, and so are its groups, its state and its hooks."""
    kept, called = [], []

    def between(i, optimizer):
        if i in (10, 50):
            optimizer.param_groups[0]["lr"] /= 2
        if i == 20:
            kept.append(copy.deepcopy(optimizer.state_dict()))
        if i == 30:
            optimizer.load_state_dict(kept.pop(0))
        if i == 60:
            optimizer.register_step_post_hook(lambda *_: called.append(i))

    step = trained(Lion, capture, between, calls=70)
    assert step.stats()["replayed"] > 25 and len(called) == 18


@both
def test_an_optimizer_around_another_counts_in_replays(capture):
    step = trained(lambda p: Lookahead(torch.optim.SGD(p, 0.1)), capture, calls=60)
    assert step.refusal() == "" and step.stats()["replayed"] > 20


@both
def test_an_update_of_pytorchs_inside_of_another_is_refused(capture):
    step = trained(lambda p: Halved(p, 0.1), capture, calls=10)
    assert step.stats()["replayed"] == 0
    assert step.refusal().startswith("The optimizer is Halved. A captured step understands SGD") and "capture_found_test.py:" in step.refusal()


class Bare(torch.optim.Optimizer):
    """A step() without a closure, which returns something."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    def step(self):
        for p in self.param_groups[0]["params"]:
            p.data -= self.param_groups[0]["lr"] * p.grad
        return 7


def test_a_captured_optimizer_of_the_programs_own():
    """It stays its own, with its arguments and what it returns."""
    p = nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3)
    optimizer = overdrive.captured(Bare([p]))
    assert [optimizer.step() for _ in range(6)] == [7] * 6
    assert "It is of a class of your own" in overdrive.part_of(optimizer).refusal()
    assert abs(p[0].item() - 0.4) < 1e-6


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sparse_gradients_are_refused_and_not_an_error(momentum):
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        table = nn.Embedding(10, 4, sparse=True)
        optimizer = torch.optim.SGD(table.parameters(), 0.1, momentum=momentum)

        def train(places, table=table, optimizer=optimizer):
            optimizer.zero_grad()
            loss = table(places).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        step = overdrive.capture(train, optimizer=optimizer) if captured else train
        sides.append([step(torch.tensor([1, 2, i % 3])).item() for i in range(10)])
    assert sides[0] == sides[1]
    assert "leave sparse=True out" in step.refusal() and "capture_found_test.py:" in step.refusal()


def trainer(of_step, of_forward):
    """A class whose methods are decorated."""
    class Trainer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()
            self.optimizer = torch.optim.Adam(self.parameters(), 1e-2)
            self.scale = 1.0

        @of_step
        def train_on(self, x, y):
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self(x), y) * self.scale
            loss.backward()
            self.optimizer.step()
            return loss

        @of_forward
        def forward(self, x):
            return self.net(x).tanh() * self.scale

    return Trainer()


def plain(function):
    return function


@pytest.mark.parametrize("step, forward", [
    (overdrive.capture, plain), (overdrive.capture(check_every=5), plain), (plain, overdrive.captured), (overdrive.capture, overdrive.captured),
], ids=["step", "step with options", "part", "both"])
def test_methods_of_a_class(step, forward):
    """Each object has recordings of its own, and its copies begin without."""
    sides = []
    for decorators in ((plain, plain), (step, forward)):
        first = trainer(*decorators)
        losses = [first.train_on(*batch(i)).item() for i in range(12)]
        second = copy.deepcopy(first)
        third = copy.copy(first)
        first.scale = 2.0
        for i in range(12):
            losses += [one.train_on(*batch(i)).item() for one in (first, second, third)]
        sides.append(losses)
    assert sides[0] == sides[1]
    replayed = [method.stats()["replayed"] for one in (first, second) for method in (one.train_on, one.forward) if hasattr(method, "stats")]
    assert max(replayed[:len(replayed) // 2]) > 10 and max(replayed[len(replayed) // 2:]) > 4
    assert "net.0.weight" in first.state_dict() and not any("overdrive" in name for name in first.state_dict())


def test_a_method_lives_as_long_as_its_object():
    import gc
    import weakref

    one = trainer(overdrive.capture, plain)
    for i in range(8):
        one.train_on(*batch(i))
    step = weakref.ref(one.train_on)
    assert step().stats()["replayed"] > 0
    del one
    gc.collect()
    assert step() is None


class Holds:
    """A step in an attribute, made of a bound method."""

    def __init__(self):
        self.net = net()
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)
        self.run = overdrive.capture(self.train_on, optimizer=self.optimizer)

    def train_on(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss


def test_an_object_that_holds_a_step_is_copied_and_pickled():
    one = Holds()
    for i in range(8):
        one.run(*batch(i))
    two, three = copy.deepcopy(one), pickle.loads(pickle.dumps(one))
    assert isinstance(two.run, overdrive.CapturedStep) and two.run is not one.run
    losses = [[each.run(*batch(i)).item() for i in range(12)] for each in (one, two, three)]
    assert losses[0] == losses[1] == losses[2]
    assert one.run.stats()["replayed"] > 10 and two.run.stats()["replayed"] > 4


def test_a_pickle_of_before_the_package_had_rooms_is_read():
    assert pickle.loads(b"coverdrive._methods\nitself\n(I7\ntR.") == 7


def test_a_plain_function_is_not_copied():
    step = overdrive.capture(lambda x: x + 1)
    assert copy.deepcopy({"step": step})["step"] is step


class Config:
    def __init__(self):
        self.scale, self.inner = 1.0, {"power": 2.0}


def train_step(model, optimizer, x, y, config=None, device=torch.device("cpu"), names=("a", "b"), empty=()):
    """As most people write one: with all that it needs as arguments."""
    model.train()
    optimizer.zero_grad()
    config = Config() if config is None else config
    scale, power = config.scale, config.inner["power"]
    del config
    loss = F.cross_entropy(model(x.to(device)), y) * scale ** power
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return {"loss": loss}


def test_a_step_that_gets_its_model_and_optimizer():
    """Other ones have recordings of their own, and so have other values that it reads of them."""
    sides = []
    for captured in (False, True):
        step = overdrive.capture(train_step) if captured else train_step
        models = [net(), nn.Sequential(net(), nn.Dropout(0.2), nn.Linear(3, 3))]
        optimizers = [torch.optim.AdamW(model.parameters(), 1e-2) for model in models]
        config, losses = Config(), []
        for i in range(64):
            which = i // 16 % 2
            config.scale = 1.0 if i < 40 else 2.0
            config.inner["power"] = 2.0 if i < 52 else 3.0
            losses.append(step(models[which], optimizers[which], *batch(i % 4), config=config, device=torch.device("cpu"), names=["a", "b"], empty=[])
                          ["loss"].item())
        sides.append(losses)
    assert sides[0] == sides[1]
    assert step.refusal() == "" and step.stats()["replayed"] > 24, step.explain()


class Batch:
    def __init__(self, x, y):
        self.x, self.y = x, y


def test_another_object_in_each_call_is_told():
    model = net()

    def train(some):
        return F.cross_entropy(model(some.x), some.y)

    step = overdrive.capture(train)
    for i in range(30):
        assert step(Batch(*batch(i))).item() == train(Batch(*batch(i))).item()
    assert "another value of argument 1, an object of Batch; give its tensors and numbers one by one" in step.refusal()
