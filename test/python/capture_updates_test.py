"""Updates of optimizers in captured steps and parts beside eager ones, where gradients are no plain inputs: they lie in a parameter's
memory, or the update changes them, or some calls make no update."""
import pytest
import torch

import overdrive


def numbers(net, opt):
    """Parameters, gradients and the state of the optimizer, bit by bit."""
    found = {name: p.detach().clone() for name, p in net.named_parameters()}
    found.update({f"{name}.grad": p.grad.clone() for name, p in net.named_parameters() if p.grad is not None})
    for index, state in enumerate(opt.state.values()):
        found.update({f"{index}.{key}": value.clone() for key, value in state.items() if torch.is_tensor(value)})
    return found


def assert_same(want, got):
    assert want.keys() == got.keys()
    for name in want:
        assert torch.equal(want[name], got[name]), name


KINDS = {"sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), "adamw": lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1)}


@pytest.mark.parametrize("calls_before", [0, 3, 10])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("as_part", [False, True], ids=["step", "part"])
def test_a_gradient_in_the_memory_of_its_parameter(as_part, kind, calls_before):
    """Eager's update changes the gradient in the middle, because it is the parameter; recordings updated by the gradient of the begin."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 4)
        opt = KINDS[kind](net.parameters())
        update = opt.step
        if captured and as_part:
            update = overdrive.captured(opt).step
        elif captured:
            update = overdrive.capture(lambda opt=opt: opt.step(), optimizer=opt)
        seen = []
        for call in range(calls_before + 8):
            for p in net.parameters():
                p.grad = torch.randn(p.shape) if call < calls_before else p.detach()
            update()
            seen.append(numbers(net, opt))
        sides.append(seen)
    for want, got in zip(*sides):
        assert_same(want, got)


@pytest.mark.parametrize("options", [{}, {"foreach": True}], ids=["one by one", "foreach"])
def test_an_update_that_changes_the_gradients(options):
    """SGD's update with nesterov=True adds momentum to the gradients themselves with foreach=True."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 4)
        opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.5, nesterov=True, **options)

        def function(x, net=net, opt=opt):
            loss = net(x).square().mean()
            loss.backward()
            opt.step()
            return loss

        step = overdrive.capture(function, optimizer=opt) if captured else function
        seen = []
        for _ in range(10):
            step(torch.randn(3, 4))
            seen.append(numbers(net, opt))
        sides.append(seen)
        if captured and options:
            assert "changes the gradients" in step.refusal()
        elif captured:
            assert step.stats()["replayed"] > 0, step.refusal()
    for want, got in zip(*sides):
        assert_same(want, got)
