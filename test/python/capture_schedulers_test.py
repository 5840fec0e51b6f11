"""Schedulers of learning rates that the captured function steps, beside eager: rates, weights and the schedulers' own state after each call."""
import math
import warnings

import pytest
import torch
from torch.optim import lr_scheduler as schedulers

import overdrive

CALLS = 70


class Own(schedulers.LRScheduler):
    """As people write one."""

    def get_lr(self):
        return [base * math.cos(self.last_epoch / 60) for base in self.base_lrs]


KINDS = {
    "step": lambda opt: schedulers.StepLR(opt, 5),
    "exponential": lambda opt: schedulers.ExponentialLR(opt, 0.99),
    "cosine": lambda opt: schedulers.CosineAnnealingLR(opt, 50),
    "restarts": lambda opt: schedulers.CosineAnnealingWarmRestarts(opt, 10),
    "one cycle": lambda opt: schedulers.OneCycleLR(opt, 0.1, total_steps=100),
    "cycle": lambda opt: schedulers.CyclicLR(opt, 0.01, 0.1, step_size_up=7, cycle_momentum=False),
    "lambda": lambda opt: schedulers.LambdaLR(opt, lambda call: min(1.0, call / 10) * max(0.0, (90 - call) / 80)),
    "linear": lambda opt: schedulers.LinearLR(opt, total_iters=20),
    "constant": lambda opt: schedulers.ConstantLR(opt),
    "in turn": lambda opt: schedulers.SequentialLR(opt, [schedulers.LinearLR(opt, total_iters=10), schedulers.CosineAnnealingLR(opt, 60)], [10]),
    "chained": lambda opt: schedulers.ChainedScheduler([schedulers.ExponentialLR(opt, 0.99), schedulers.StepLR(opt, 7)]),
    "own": Own,
}
OPTIMIZERS = {"sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), "adamw": lambda p: torch.optim.AdamW(p, 0.01)}


class Training:
    """A model with an optimizer and a scheduler. ``call`` is one call of the function."""

    def __init__(self, optimizer, scheduler):
        torch.manual_seed(0)
        self.net = torch.nn.Linear(4, 3)
        self.opt = OPTIMIZERS[optimizer](self.net.parameters())
        self.scheduler = scheduler(self.opt)

    def update(self, x):
        self.opt.zero_grad()
        loss = self.net(x).square().mean()
        loss.backward()
        self.opt.step()
        return loss

    def step(self, x):
        loss = self.update(x)
        self.scheduler.step()
        return loss

    def state(self, loss):
        texts = {key: str(value) for key, value in self.scheduler.state_dict().items() if "schedulers" not in key and "lambdas" not in key}
        return [loss.tolist(), self.net.weight.tolist(), [repr(group["lr"]) for group in self.opt.param_groups], texts, "step" in vars(self.scheduler)]


def both(make, step, between=lambda training, call: None, calls=CALLS, **options):
    """The states of an eager and of a captured training after each call, and the captured step."""
    seen = []
    for captured in (False, True):
        training = make()
        function = lambda *given, training=training: step(training, *given)  # noqa: E731 - what is captured
        run = overdrive.capture(function, **options) if captured else function
        states = []
        torch.manual_seed(1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for call in range(calls):
                between(training, call)
                states.append(training.state(run(torch.randn(5, 4))))
        texts = {str(one.message) for one in caught if "lr_scheduler.step()" in str(one.message)}
        seen.append((states, texts))
    assert seen[0] == seen[1]
    return run


@pytest.mark.parametrize("check_every", [0, 1, 7])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", KINDS)
def test_rates_of_every_call(kind, optimizer, check_every):
    step = both(lambda: Training(optimizer, KINDS[kind]), Training.step, check_every=check_every)
    made = step.stats()
    assert made["replayed"] + made["checked"] > 55, step.refusal()


def test_a_plateau_is_given_the_loss():
    def train(training, x):
        loss = training.update(x)
        training.scheduler.step(loss)
        return loss

    step = both(lambda: Training("adamw", lambda opt: schedulers.ReduceLROnPlateau(opt, patience=3)), train)
    assert step.stats()["replayed"] > 55, step.refusal()


def test_another_scheduler_and_one_that_is_set_back():
    def between(training, call):
        if call == 25:
            training.scheduler = schedulers.ExponentialLR(training.opt, 0.9)
        if call == 45:
            training.opt.param_groups[0]["lr"] = 0.05
            training.scheduler.load_state_dict({**training.scheduler.state_dict(), "last_epoch": 2})

    step = both(lambda: Training("sgd", KINDS["cosine"]), Training.step, between)
    assert step.stats()["replayed"] > 45, step.refusal()


def test_in_some_calls_alone():
    def train(training, x):
        loss = training.update(x)
        if training.ends:
            training.scheduler.step()
        return loss

    def between(training, call):
        training.ends = call % 4 == 3

    step = both(lambda: Training("adamw", KINDS["exponential"]), train, between)
    assert step.stats()["replayed"] > 45, step.refusal()


class Pair(Training):
    """Two optimizers in one step, each with a scheduler."""

    def __init__(self):
        super().__init__("adamw", KINDS["step"])
        self.other = torch.nn.Linear(4, 3)
        self.opts = [self.opt, OPTIMIZERS["sgd"](self.other.parameters())]
        self.schedulers = [self.scheduler, KINDS["cosine"](self.opts[1])]

    def step(self, x):
        for opt in self.opts:
            opt.zero_grad()
        loss = (self.net(x) - self.other(x)).square().mean()
        loss.backward()
        for opt in self.opts:
            opt.step()
        for scheduler in self.schedulers:
            scheduler.step()
        return loss

    def state(self, loss):
        return [*super().state(loss), self.other.weight.tolist(), repr(self.opts[1].param_groups[0]["lr"])]


def test_two_optimizers_with_a_scheduler_each():
    step = both(Pair, Pair.step)
    assert step.stats()["replayed"] > 55, step.refusal()


def test_each_optimizer_before_its_own_scheduler():
    def train(training, x):
        for opt in training.opts:
            opt.zero_grad()
        loss = (training.net(x) - training.other(x)).square().mean()
        loss.backward()
        for opt, scheduler in zip(training.opts, training.schedulers):
            opt.step()
            scheduler.step()
        return loss

    step = both(Pair, train)
    assert step.stats()["replayed"] > 55, step.refusal()


@pytest.mark.parametrize("counts", [True, False])
def test_an_update_in_every_fourth_call_that_the_function_counts_itself(counts):
    """As accelerate counts micro-batches, and its scheduler the calls that it skips."""
    def train(training, x):
        training.calls += 1
        training.is_last = training.calls % 4 == 0
        loss = training.net(x).square().mean()
        loss.backward()
        if training.is_last:
            training.opt.step()
            training.scheduler.step()
            training.opt.zero_grad()
        elif counts:
            training.scheduler._step_count += 1
        return loss

    def make():
        training = Training("adamw", KINDS["cosine"])
        training.calls = 0
        return training

    step = both(make, train, calls=160)
    assert step.stats()["replayed"] > 80, step.refusal()


def test_a_plateau_that_is_given_a_number_says_what_to_give_it():
    def train(training, x):
        loss = training.update(x)
        training.scheduler.step(loss.item())
        return loss

    step = both(lambda: Training("adamw", lambda opt: schedulers.ReduceLROnPlateau(opt, patience=3)), train)
    assert "give it the tensor, scheduler.step(loss)" in step.refusal()


def closure_of(training):
    """A backward that the update itself calls for."""
    def closure():
        training.opt.zero_grad()
        loss = training.net.weight.square().sum() + training.net.bias.square().sum()
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("last", [
    lambda training: training.opt.step(), lambda training: training.opt.step(closure_of(training)), lambda training: training.opt.param_groups[0].update(lr=0.05),
    lambda training: training.opt.param_groups[0].update(lr=training.opt.param_groups[0]["lr"] * 0.5)], ids=["an update", "an update by a closure", "a rate", "half of it"])
def test_what_comes_after_the_scheduler_is_as_eager_has_it(last):
    def train(training, x):
        loss = training.step(x)
        last(training)
        return loss

    both(lambda: Training("adamw", KINDS["exponential"]), train, calls=40)


def weighed_by_the_rate(training, x):
    training.opt.zero_grad()
    loss = training.net(x).square().mean() * training.opt.param_groups[0]["lr"]
    loss.backward()
    training.opt.step()
    training.scheduler.step()
    return loss


def noting_the_rate(training, x):
    loss = training.step(x)
    training.noted = training.scheduler.get_last_lr()[0]
    return loss


@pytest.mark.parametrize("train", [weighed_by_the_rate, noting_the_rate])
@pytest.mark.parametrize("kind", ["step", "in turn", "lambda"])
def test_a_rate_that_the_function_looks_at(kind, train):
    """A replay in which the scheduler changes it is taken back, and the scheduler has made its step."""
    both(lambda: Training("sgd", KINDS[kind]), train)


def test_an_optimizer_whose_rate_is_a_guard():
    """RMSprop has a recording for each rate."""
    def make():
        training = Training("sgd", KINDS["step"])
        training.opt = torch.optim.RMSprop(training.net.parameters(), 0.01)
        training.scheduler = schedulers.StepLR(training.opt, 20)
        return training

    both(make, Training.step)


def test_an_error_of_a_scheduler_is_the_programs():
    training = Training("sgd", lambda opt: schedulers.OneCycleLR(opt, 0.1, total_steps=30))
    step = overdrive.capture(lambda x: training.step(x))
    with pytest.raises(ValueError, match="total steps"):
        for _ in range(40):
            step(torch.randn(5, 4))
    assert step.stats()["replayed"] > 10


def test_a_step_that_the_function_puts_into_its_scheduler_stays():
    def train(wrap):
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

        def function(x):
            if len(x) == 3:
                scheduler.step = lambda: None
            elif len(x) == 1:
                vars(scheduler).pop("step", None)
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            scheduler.step()

        step = wrap(function)
        for call in range(60):
            step(torch.randn({22: 3, 31: 1, 40: 3, 50: 1}.get(call, 2), 2))
            yield optimizer.param_groups[0]["lr"], model.weight.tolist()

    assert list(train(lambda function: overdrive.capture(function, check_every=10 ** 6, always=True))) == list(train(lambda function: function))
