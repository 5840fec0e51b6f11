"""Which values of a captured step are constants, and which are data that the host has read."""
import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import overdrive

ROWS = torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(1))
EIGHT = torch.arange(8.0)


def gradient_of_packed(x, lengths):
    x = x.clone().requires_grad_()
    (pack_padded_sequence(x, lengths).data * torch.arange(9.0)[:, None]).sum().backward()
    return x.grad


def padded(x, lengths):
    packed = pack_padded_sequence(x, lengths)
    return pad_packed_sequence(PackedSequence(packed.data * 2, packed.batch_sizes))[0] * 1


HOST_READS = {
    "pack_padded_sequence": (gradient_of_packed, (ROWS, torch.tensor([4, 4, 1])), (ROWS, torch.tensor([4, 3, 2]))),
    "pad_packed_sequence": (padded, (ROWS, torch.tensor([4, 4, 1])), (ROWS, torch.tensor([4, 3, 2]))),
    "tensor_split": (lambda x, i: torch.tensor_split(x, i)[0].sum(), (EIGHT, torch.tensor([2])),
                     (EIGHT, torch.tensor([5]))),
    "max_pool1d": (lambda x: F.max_pool1d(x[None, None], 2) * 1, (EIGHT,), (EIGHT * 3,)),
    "tolist": (lambda x: x * sum(x.tolist()), (EIGHT,), (EIGHT * 3,)),
}


@pytest.mark.parametrize("name", HOST_READS)
def test_values_that_the_host_reads_are_no_constants(name):
    function, before, after = HOST_READS[name]
    step = overdrive.capture(function)
    for _ in range(6):
        step(*before)
    for _ in range(3):
        assert torch.equal(function(*after), step(*after))
    if name == "tolist":
        assert "brings data to the program" in step.refusal()
    else:  # by other values
        assert step.stats()["recorded"] > 2, step.explain()


@pytest.mark.parametrize("expression", [
    lambda x: x * torch.tensor([1.0, 2.0]),
    lambda x: x * torch.tensor(3.0),
    lambda x: x[[0, 2, 1]] + 1,
    lambda x: x.index_add(0, torch.tensor([0, 0, 2]), x),
], ids=["a list", "a number", "places", "an index"])
def test_tables_of_numbers_inside_are_constants_of_the_recording(expression):
    step = overdrive.capture(lambda x: expression(x).square())
    for i in range(10):
        x = torch.randn(3, 2)
        assert torch.equal(step(x), expression(x).square())
    assert step.refusal() == ""
    assert step.stats()["replayed"] == 6


def test_state_without_dimensions_that_is_assigned_anew_goes_on():
    def make():
        state = {"scale": torch.tensor(8.0), "best": torch.tensor(2.0)}

        def function(x):
            loss = x.sum()
            state["scale"] = torch.where(torch.isfinite(loss), state["scale"], state["scale"] * 0.5)
            state["best"] = torch.minimum(state["best"], loss.nan_to_num(posinf=9.0))
            return state["scale"] * 1, state["best"] * 1
        return function

    eager, step = make(), overdrive.capture(make())
    for i in range(12):
        x = torch.ones(3) * (float("inf") if i == 6 else 0.1 if i == 8 else 1.0 + i)
        assert [t.item() for t in step(x)] == [t.item() for t in eager(x)]
    assert step.stats()["replayed"] > 2, step.refusal()


@pytest.mark.parametrize("update", [
    lambda p, rate: p.mul_(1 - rate),
    lambda p, rate: p.lerp_(p.grad, rate),
    lambda p, rate: p.clamp_(-rate, rate),
    lambda p, rate: torch._foreach_lerp_([p], [p.grad], rate),
    lambda p, rate: p.sub_(p.grad * torch.tensor(rate)),
    lambda p, rate: torch.add(p, p.grad, alpha=-rate, out=p),
    lambda p, rate: p.data.copy_(p - rate * p.grad),
], ids=["mul_", "lerp_", "clamp_", "_foreach_lerp_", "tensor", "out", "copy_"])
def test_numbers_that_change_a_parameter_are_never_stale(update):
    results = []
    for captured in (False, True):
        p, rate = torch.nn.Parameter(torch.ones(3)), [0.1]

        def function(x, p=p, rate=rate):
            p.grad = None
            (p * x).sum().backward()
            with torch.no_grad():
                update(p, rate[0])
            return p.sum()

        step = overdrive.capture(function) if captured else function
        for i in range(12):
            rate[0] = 0.1 if i < 8 else 0.01
            step(torch.ones(3) * (i + 1))
        results.append(p.detach().clone())
    assert torch.equal(*results)


def test_our_own_hooks_on_saved_tensors_are_called():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))

    def function(x):
        net.zero_grad()
        loss = net(x).pow(2).sum()
        loss.backward()
        return loss

    with overdrive.engine():
        step, x = overdrive.capture(function, modules=net), torch.randn(32, 64)
        for _ in range(6):
            step(x)
        with overdrive.saved_tensors(overdrive.quantise(block=64)):
            function(x)
            wanted = net[0].weight.grad.clone()
            step(x)
        assert torch.equal(net[0].weight.grad, wanted)


WEIGHT = torch.nn.Parameter(torch.linspace(-1, 1, 8))
# Views that are conjugated or negated by whoever reads them.
LAZY = {
    "a spectral layer": lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(WEIGHT), 8).square().sum(),
    "a long convolution": lambda x: (torch.fft.irfft(torch.fft.rfft(x, 16) * torch.fft.rfft(WEIGHT, 16), 16)[:, :8] * x).sum(),
    "a spectrogram": lambda x: torch.stft((x * WEIGHT).repeat(1, 4), 16, return_complex=True, window=torch.hann_window(16)).abs().sum(),
    "an imaginary part": lambda x: (torch.complex(x, WEIGHT.expand_as(x)).conj() * torch.complex(WEIGHT.expand_as(x), x)).imag.sum(),
    "conjugated and copied": lambda x: torch.view_as_real(torch.fft.rfft(x).conj().clone()).sum() * WEIGHT.sum(),
    "conjugated in a list": lambda x: torch.cat([torch.fft.rfft(x).conj(), torch.fft.rfft(x * 2)]).real.sum() * WEIGHT.sum(),
    "conjugated and transposed": lambda x: (torch.fft.rfft(x * WEIGHT).mH * 2).abs().sum(),
    "conjugated and added": lambda x: torch.fft.rfft(x).add_(torch.fft.rfft(x * 2).conj()).abs().sum() * WEIGHT.sum(),
    "a negated view": lambda x: (torch.fft.rfft(x * WEIGHT).conj().imag * 3).sum(),
    "expanded": lambda x: (torch.fft.rfft(x).conj()[:, :1].expand(-1, 4) * 2).real.sum() * WEIGHT.sum(),
}


@pytest.mark.parametrize("captured", [overdrive.capture, overdrive.captured])
@pytest.mark.parametrize("name", LAZY)
def test_views_that_conjugate_or_negate(name, captured):
    def result(function, x):
        WEIGHT.grad = None
        loss = function(x)
        if loss.requires_grad:
            loss.backward()
        return loss.detach(), WEIGHT.grad.clone()

    function = LAZY[name]

    def train(x):
        WEIGHT.grad = None
        loss = function(x)
        loss.backward()
        return loss.detach(), WEIGHT.grad

    step = captured(function if captured is overdrive.captured else train)
    for i in range(14):
        x = torch.randn(3, 8, generator=torch.Generator().manual_seed(i))
        expected = result(function, x)
        got = result(step, x) if captured is overdrive.captured else step(x)
        assert torch.equal(expected[0], got[0]) and torch.equal(expected[1], got[1]), i
    assert step.stats()["replayed"] > 6, step.refusal()


@pytest.mark.parametrize("function", [lambda x: torch.fft.rfft(x).conj(), lambda x: torch.fft.rfft(x).conj().mul_(2).real])
def test_views_that_conjugate_where_a_replay_has_none(function):
    step = overdrive.capture(function)
    for _ in range(6):
        assert torch.equal(step(EIGHT), function(EIGHT))
    assert "that is not ordinary" in step.refusal()
