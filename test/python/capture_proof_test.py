"""A captured step gives its function the caller's own tensors, and leaves what eager leaves where it throws."""
import overdrive
import pytest
import torch
import torch.nn.functional as F
from overdrive.reads.walk import Walk


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def equal_calls(function, inputs, calls=12, **options):
    step = overdrive.capture(function, **options)
    for i in range(calls):
        assert torch.equal(function(*inputs(i)), step(*inputs(i))), i
    return step.stats()["replayed"]


def test_a_function_sees_which_tensor_it_has():
    def same(x, y):
        return x * 2 if x is y else x * y

    step = overdrive.capture(same)
    for i in range(12):
        x = torch.full((2,), float(i))
        assert torch.equal(step(x, x), x * 2)
    assert step.stats()["replayed"] > 4


def test_a_function_sees_attributes_classes_and_views():
    def scaled(value):
        value.scale = 3.0
        return value

    cases = ((lambda x: x * x.scale, lambda i: scaled(torch.ones(2) * i)),
             (lambda x: x * (2 if isinstance(x, torch.nn.Parameter) else 3),
              lambda i: torch.nn.Parameter(torch.ones(2) * i, requires_grad=False)),
             (lambda x: x * (2 if x._is_view() else 3), lambda i: (torch.ones(2, 2) * i)[0]))
    for function, make in cases:
        assert equal_calls(function, lambda i, make=make: (make(i),)) > 4


def test_attention_of_a_tensor_with_itself():
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def attend(query, key, value):
        return attention(query, key, value, need_weights=False)[0].detach()

    def inputs(i):
        x = torch.sin(torch.arange(80.0).reshape(2, 5, 8) * (i + 1))
        return x, x, x

    assert equal_calls(attend, inputs, modules=attention) > 4


def test_tensors_that_become_views_in_place():
    def transform(x):
        return torch.view_as_real(torch.stft(x.flatten()[:10], 7, hop_length=1, window=torch.ones(7), center=False,
                                             return_complex=True)) + 0

    def turned(x):
        y = x.cumsum(0)
        y.t_()
        return y * 1

    for function in (transform, turned):
        assert equal_calls(function, lambda i: (torch.sin(torch.arange(16.0).reshape(4, 4) * (i + 1)),)) > 4


@pytest.mark.parametrize("function", [
    lambda x: F.binary_cross_entropy(x, torch.ones(2)),
    lambda x: torch.zeros(3).scatter_reduce_(0, x.long(), torch.ones(2), "sum"),
    lambda x: torch.zeros(3).index_reduce_(0, x.long(), torch.ones(2), "prod"),
    lambda x: F.embedding_bag(x.long()[None], torch.ones(3, 2)),
    lambda x: 5 % (7 - x).long(),
    lambda x: torch.segment_reduce(torch.ones(1), "sum", lengths=x.long())])
def test_an_operator_that_throws_on_its_data_leaves_the_step_alive(function):
    good, bad = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 7.0])
    with pytest.raises(Exception) as expected:
        function(bad)
    step = overdrive.capture(lambda x: function(x) + 0)
    for _ in range(8):
        step(good)
    with pytest.raises(type(expected.value)) as error:
        step(bad)
    assert str(error.value) == str(expected.value)
    before = step.stats()["replayed"]
    for _ in range(4):
        assert torch.equal(step(good), function(good) + 0)
    assert step.stats()["replayed"] >= before + 3, step.explain()


def test_steps_that_are_switched_off_are_eager(monkeypatch):
    for name in ("OVERDRIVE", "OVERDRIVE_CAPTURE"):
        monkeypatch.setenv(name, "0")
        step = overdrive.capture(lambda x: x * 2)
        for _ in range(8):
            step(torch.ones(2))
        assert step.stats()["eager"] == 8
        monkeypatch.delenv(name)


def test_recordings_have_numbers_that_no_other_has():
    # By its address, a recording had the structure of the results of an earlier one, and was refused.
    step = overdrive.capture(lambda x: x * 2)
    numbers = []
    for _ in range(20):
        step(torch.ones(2))
        numbers.append(overdrive.native.library.call("Capture.current", step._capture))
        step.reset()
    assert 0 not in numbers and len(set(numbers)) == 20, numbers


@pytest.mark.parametrize("function", [
    lambda x: x + torch.zeros_like(torch.empty(2, 2)), lambda x: x * torch.bernoulli(torch.empty(2).expand(2, 2), 0.5),
    lambda x: torch.func.grad(lambda y: F.dropout(y * y, 0.3).sum())(x)], ids=["zeros_like", "bernoulli", "dropout under grad"])
def test_empty_memory_whose_sizes_alone_are_used(function):
    """It has other bytes in each call, and nobody reads them."""
    step, sides = overdrive.capture(function, always=True), []
    for run in (function, step):
        torch.manual_seed(0)
        seen = []
        for _ in range(40):
            seen.append(run(torch.randn(2, 2)))
            junk = [torch.randn(4) for _ in range(3)]
        sides.append(seen)
        del junk
    assert all(map(torch.equal, *sides))
    assert step.stats()["replayed"] > 20, step.refusal()


def test_the_error_of_a_comparison_names_what_changed(monkeypatch):
    """As if no guard looked at an attribute."""
    usual = Walk._read
    monkeypatch.setattr(Walk, "_read", lambda walk, kind, holder, key, *rest: None if key == "epoch" else usual(walk, kind, holder, key, *rest))

    class Trainer:
        def __init__(self):
            self.epoch, self.other, self.calls = 1, 2, 0

        def step(self, x):
            self.calls += 1
            return x * self.epoch + self.other

    trainer = Trainer()
    step = overdrive.capture(trainer.step, check_every=1, always=True)
    for _ in range(8):
        step(torch.ones(2))
    assert step.stats()["replayed"] + step.stats()["checked"] > 2, step.refusal()
    trainer.epoch = 3
    with pytest.raises(RuntimeError, match=r"(?s)a replay differs from the eager call.*there changed: `self\.epoch` \(1, then 3\)\."):
        step(torch.ones(2))
