"""advise() times a step in all ways, says which is fastest, and puts everything back; adapters are imported when they are named."""
import pytest
import torch

import overdrive


def trained(width=32):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def train(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, train


def test_it_times_each_way_with_one_and_with_all_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        advice = overdrive.advise(trained()[2], torch.randn(4, 8), steps=5)
        assert set(advice.times) == {(way, count) for way in ("stock", "switched", "captured") for count in (1, 2)}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert all(seconds > 0 for seconds in advice.times.values())
    assert advice.times[advice.way, advice.threads] <= advice.times["stock", 2]
    assert f"torch.set_num_threads({advice.threads})" in str(advice)


def test_it_puts_everything_back():
    model, optimizer, train = trained()
    for _ in range(3):
        train(torch.randn(4, 8))
    before = [value.clone() for value in model.state_dict().values()]
    moments = [value.clone() for state in optimizer.state.values() for value in state.values()]
    x = torch.randn(4, 8)
    random = torch.get_rng_state()
    overdrive.advise(train, x, steps=3)
    assert all(map(torch.equal, before, model.state_dict().values()))
    assert all(map(torch.equal, moments, [value for state in optimizer.state.values() for value in state.values()]))
    assert not overdrive.installed()
    assert torch.equal(torch.get_rng_state(), random)


def test_a_step_that_is_refused_is_no_way():
    model, optimizer, _ = trained()

    def train(x):
        optimizer.zero_grad()
        loss = model(x).square().mean() * float(torch.rand(()).item())
        loss.backward()
        optimizer.step()

    advice = overdrive.advise(train, torch.randn(4, 8), steps=3)
    assert "item()" in advice.refusal and advice.way != "captured"
    assert "capture() is refused: item()" in str(advice)


def test_numbers_that_it_cannot_take():
    with pytest.raises(ValueError, match="steps=0"):
        overdrive.advise(trained()[2], torch.randn(4, 8), steps=0)


def test_adapters_are_named():
    with pytest.raises(AttributeError, match="no adapter 'keras'; there are deepxde"):
        overdrive.integrations.keras  # noqa: B018 - the name is what is tested
    with pytest.raises(AttributeError, match="module 'overdrive' has no attribute 'integration'"):
        overdrive.integration  # noqa: B018
    assert overdrive.integrations.stable_baselines3.captured.__doc__  # imports no library
