"""Numbers that a captured function reads out of tensors and only returns: a replay reads them when it has run."""
import functools
import threading

import pytest
import torch

import overdrive


class Training:
    """A linear model, and steps that return numbers of their loss."""

    def __init__(self):
        torch.manual_seed(0)
        self.net = torch.nn.Linear(4, 3)
        self.opt = torch.optim.SGD(self.net.parameters(), 0.1)

    def update(self, x):
        self.opt.zero_grad()
        loss = self.net(x).square().mean()
        loss.backward()
        self.opt.step()
        return loss

    def alone(self, x):
        return self.update(x).item()

    def in_a_tuple(self, x):
        loss = self.update(x)
        return loss.item(), (x > 0).sum().item(), [(x > 0).all().item(), None]

    def by_a_name(self, x):
        loss = self.update(x)
        value = loss.item()
        worst = x.max().item()
        return {"loss": value, "worst": worst, "tensor": loss}

    def before_a_change(self, x):
        loss = self.update(x)
        total = loss.detach()
        value = total.item()
        total.mul_(2)
        return value, total

    def under_a_mode(self, x):
        loss = self.update(x)
        with torch.no_grad():
            value = (loss * 2).item()
        return value

    def in_turn(self, x):
        loss = self.update(x)
        if len(x) > 4:
            return loss.item()
        return loss.item(), loss.detach().double().item()

    def in_a_finally(self, x):
        loss = self.update(x)
        try:
            return loss.item()
        finally:
            loss = None

    def with_arithmetic(self, x):
        loss = self.update(x)
        right, value = (x > 0).sum().item(), loss.item()
        value /= len(x)
        return {"loss": loss.item() / len(x), "right": 100.0 * right / x.numel(), "direct": 2 * (x > 0).sum().item() - 1, "value": value,
                "both": loss.item() * loss.item(), "whole": right // 2}

    def with_numbers(self, x):
        loss = self.update(x)
        return loss, len(x), self.opt.param_groups[0]["lr"], x.shape, "text", True, torch.float32, {"n": x.numel() / 3, "nothing": None}

    def by_a_count(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        return self.update(x), self.calls

    def converted(self, x):
        return float(self.update(x)), 1

    def divided_by(self, x):
        return 1.0 / self.update(x).item(), self.net.bias.sum().item() / (x > 100).sum().item()

    def with_a_tensor(self, x):
        return self.update(x).item() * x

    def as_an_argument(self, x):
        loss = self.update(x)
        return max(0.0, loss.item())

    def compared(self, x):
        value = self.update(x).item()
        return value if value < 0.3 else -value

    def read_elsewhere(self, x):
        return self.alone(x)

    def multiplied(self, x):
        loss = self.update(x)
        return x.sum() * loss.item()

    def kept(self, x):
        value = self.update(x).item()

        def told():
            return value

        return told()


def trained(name, is_captured, **options):
    training = Training()
    function = functools.partial(Training.__dict__[name], training)
    step = overdrive.capture(function, **options) if is_captured else function
    torch.manual_seed(1)
    return [repr(step(torch.randn(4 + call % 3 // 2, 4))).replace(", grad_fn=<MeanBackward0>", "").replace(", grad_fn=<MulBackward0>", "")
            for call in range(40)], step


@pytest.mark.parametrize("options", [{}, {"check_every": 1}, {"guards": "promised"}], ids=["usual", "each checked", "promised"])
@pytest.mark.parametrize("name", ["alone", "in_a_tuple", "by_a_name", "before_a_change", "under_a_mode", "in_turn", "in_a_finally", "with_arithmetic",
                                  "with_numbers"])
def test_numbers_that_are_only_returned(name, options):
    want, _ = trained(name, False)
    if options.get("guards") == "promised":
        options = {**options, "constant_numbers": True}
    got, step = trained(name, True, **options)
    assert want == got
    made = step.stats()
    assert made["replayed"] + made["checked"] > 20 or "guards" in options, step.refusal()


@pytest.mark.parametrize("name", ["compared", "read_elsewhere", "multiplied", "kept", "as_an_argument", "by_a_count", "converted", "with_a_tensor"])
def test_numbers_that_something_else_sees(name):
    want, _ = trained(name, False)
    got, step = trained(name, True)
    assert want == got
    assert step.stats()["replayed"] == 0 and step.refusal()


def test_a_division_by_a_number_of_a_tensor_is_where_eager_has_it():
    states = []
    for is_captured in (False, True):
        training = Training()
        function = overdrive.capture(training.divided_by) if is_captured else training.divided_by
        torch.manual_seed(1)
        for _ in range(12):
            with pytest.raises(ZeroDivisionError, match="division by zero"):
                function(torch.randn(4, 4))
        states.append(training.net.weight.tolist())
    assert states[0] == states[1]


def test_results_that_are_other_numbers_when_a_guard_is():
    """A number of the program's is that of the call, and one that a scheduler gives the optimizer."""
    def train(captured):
        training, config, seen = Training(), {"beta": 0.5}, []
        scheduler = torch.optim.lr_scheduler.StepLR(training.opt, 10, 0.5)

        def function(x):
            return {"loss": training.update(x).item(), "beta": config["beta"], "lr": training.opt.param_groups[0]["lr"]}

        step = overdrive.capture(function) if captured else function
        torch.manual_seed(1)
        for call in range(60):
            config["beta"] = 0.5 if call % 30 < 20 else 0.25
            seen.append(step(torch.randn(4, 4)))
            scheduler.step()
        return seen, step

    (want, _), (got, step) = train(False), train(True)
    assert want == got
    assert step.stats()["replayed"] > 20, step.refusal()


def test_an_error_of_item_is_eagers():
    step = overdrive.capture(lambda x: x.mul(2).item())
    for call in range(12):
        assert step(torch.full((1,), float(call))) == 2.0 * call
        with pytest.raises(RuntimeError, match="a Tensor with 2 elements cannot be converted to Scalar"):
            step(torch.ones(2))
    assert step.stats()["replayed"] > 4 and "item" not in vars(torch.Tensor)


def test_two_threads_that_record():
    """Each reads its own numbers, and PyTorch has its item() again."""
    seen, errors = [[], []], []

    def run(number):
        try:
            step = overdrive.capture(lambda x: x.mul(number + 1).sum().item())
            for call in range(200):
                seen[number].append(step(torch.full((3,), float(call))))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and "item" not in vars(torch.Tensor)
    assert seen == [[3.0 * call for call in range(200)], [6.0 * call for call in range(200)]]
