"""Tensors that are exchanged by torch.utils.swap_tensors() while a captured step knows them."""
import pytest
import torch

import overdrive


def test_tensors_of_a_captured_step_may_be_swapped():
    p, q = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.zeros(2))
    step = overdrive.capture(lambda x: x * p)
    x = torch.full((2,), 3.0)
    for _ in range(6):
        assert torch.equal(step(x), x)
    assert step.stats()["replayed"] > 0
    torch.utils.swap_tensors(p, q)
    for _ in range(6):
        assert torch.equal(step(x), torch.zeros(2))
    assert step.stats()["replayed"] > 2, step.explain()
    assert "swap" in step.explain()


def test_a_module_that_is_converted_by_swaps_trains_on_its_new_parameters():
    def train(captured):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)

        def function(x):
            model.zero_grad(set_to_none=True)
            loss = model(x).square().mean()
            loss.backward()
            return loss

        step = overdrive.capture(function) if captured else function
        losses = [step(torch.ones(3, 4)).item() for _ in range(6)]
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            model.zero_grad(set_to_none=True)  # PyTorch swaps a gradient, too, and nobody else may have it
            model.to(torch.float64)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)
        losses += [step(torch.ones(3, 4, dtype=torch.float64)).item() for _ in range(6)]
        return losses, model.weight.grad, step

    (losses, gradient, _), (ours, our_gradient, step) = train(False), train(True)
    assert ours == losses and torch.equal(our_gradient, gradient)
    assert step.stats()["replayed"] >= 4, step.explain()


def test_a_swap_inside_of_the_function_is_an_error_that_names_the_step():
    p, q = torch.ones(2), torch.zeros(2)

    def function(x):
        torch.utils.swap_tensors(p, q)
        return x * p

    step = overdrive.capture(function)
    with pytest.raises(overdrive.OverdriveError, match="swap_tensors.. was called while a captured step was under way"):
        step(torch.ones(2))
