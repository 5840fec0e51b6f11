"""Hooks and their order, custom functions, what a backward leaves behind."""
import gc
import weakref

import pytest
import torch
from conftest import same_on_both
from torch.utils.checkpoint import checkpoint

import overdrive


def test_hooks_run_in_the_order_of_stock():
    def scenario(note):
        x = torch.randn(3, requires_grad=True)
        y = x.exp()
        z = y * x
        for name, tensor in (("x", x), ("y", y), ("z", z)):
            tensor.register_hook(lambda g, name=name: note(name, "first", g))
            tensor.register_hook(lambda g, name=name: note(name, "doubles", g) or 2 * g)
            tensor.register_hook(lambda g, name=name: note(name, "last", g))
        y.retain_grad()
        y.grad_fn.register_prehook(lambda gs: note("exp before", list(gs)))
        y.grad_fn.register_hook(lambda gi, go: note("exp after", list(gi), list(go)))
        z.grad_fn.register_hook(lambda gi, go: note("mul after", [g is not None for g in gi]))
        x.register_post_accumulate_grad_hook(lambda p: note("accumulated", p.grad))
        z.sum().backward()
        note("grads", x.grad, y.grad)

    same_on_both(scenario)


def test_hooks_may_be_removed_while_they_run():
    def scenario(note):
        x = torch.ones(2, requires_grad=True)
        handles = []

        def once(g):
            note("once", g)
            handles[0].remove()

        y = x * 2
        handles.append(y.register_hook(once))
        for _ in range(2):
            y.sum().backward(retain_graph=True)
        note(x.grad)

    same_on_both(scenario)


def test_a_hook_adds_nodes_and_runs_a_backward_of_its_own():
    def scenario(note):
        x = torch.randn(4, requires_grad=True)
        w = torch.randn(4, requires_grad=True)

        def inner(g):
            with torch.enable_grad():
                (w * w).sum().backward()
            note("inner", w.grad)

        y = x.tanh()
        y.register_hook(inner)
        (y * y).sum().backward()
        note(x.grad, w.grad)

    same_on_both(scenario)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, note):
        ctx.save_for_backward(x)
        ctx.note = note
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        ctx.note("backward of Cube", g, ctx.needs_input_grad, torch.is_grad_enabled(),
                 torch._C._current_autograd_node().name())
        return 3 * x * x * g, None


@pytest.mark.parametrize("create_graph", [False, True])
def test_python_functions(create_graph):
    def scenario(note):
        x = torch.randn(5, requires_grad=True)
        y = Cube.apply(x.sin(), note)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=create_graph)
        note(g)
        if create_graph:
            note(torch.autograd.grad(g.sum(), x))

    same_on_both(scenario)


class Pair(torch.autograd.Function):
    """Two outputs, one of which nobody uses; gradients are not materialised."""

    @staticmethod
    def forward(ctx, x, note):
        ctx.set_materialize_grads(False)
        ctx.note = note
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        ctx.note("Pair", a is None, b is None)
        return (2 * a if a is not None else None), None


def test_gradients_that_are_not_there():
    def scenario(note):
        x = torch.ones(2, requires_grad=True)
        first, _ = Pair.apply(x, note)
        first.sum().backward()
        note(x.grad)
        _, second = Pair.apply(x, note)
        note(torch.autograd.grad(second.sum(), x, allow_unused=True))

    same_on_both(scenario)


def test_multi_grad_hooks_and_graph_hooks():
    def scenario(note):
        a, b = (torch.randn(3, requires_grad=True) for _ in range(2))
        c, d = a * b, a + b
        torch.autograd.graph.register_multi_grad_hook((c, d), lambda gs: note("all", list(gs)))
        torch.autograd.graph.register_multi_grad_hook((c, d), lambda g: note("any", g), mode="any")
        (c.exp() + d).sum().backward()
        note(a.grad, b.grad)

    same_on_both(scenario)


def test_saved_tensor_hooks_of_pytorch(engine):
    packed, unpacked = [], []
    x = torch.randn(4, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or len(packed) - 1,
                                                  lambda i: unpacked.append(i) or packed[i]):
        y = (x * x.exp()).sum()
    y.backward()
    assert sorted(unpacked) == list(range(len(packed))) and len(packed) >= 3
    torch.testing.assert_close(x.grad, (1 + x.detach()) * x.detach().exp())
    with torch.autograd.graph.save_on_cpu():
        y = (x * x).sum()
    y.backward()


def test_callbacks_run_at_the_end():
    def scenario(note):
        x = torch.ones(2, requires_grad=True)

        def hook(g):
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: note("first callback", x.grad))
            engine.queue_callback(lambda: note("second callback", x.grad))
            note("hook", x.grad is None)

        y = x * 3
        y.register_hook(hook)
        y.sum().backward()
        note("after", x.grad)

    same_on_both(scenario)


def test_queue_callback_outside_of_a_backward_is_refused(engine):
    with pytest.raises(RuntimeError, match="Final callbacks can only be installed during backward pass"):
        torch.autograd.Variable._execution_engine.queue_callback(lambda: None)
    torch.ones(1, requires_grad=True).exp().backward()


def test_is_checkpoint_valid(engine):
    seen = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append(torch.autograd.Variable._execution_engine.is_checkpoint_valid()))
    y.sum().backward(retain_graph=True)
    torch.autograd.grad(y.sum(), x)
    assert seen == [True, False]


def test_what_a_graph_holds_dies_with_it(engine):
    class Kept:
        pass

    kept = Kept()
    gone = weakref.ref(kept)
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.grad_fn.metadata["kept"] = kept
    y.register_hook(lambda g, kept=kept: None)
    y.sum().backward()
    del y, kept
    gc.collect()
    assert gone() is None


def test_the_task_can_be_asked():
    def scenario(note):
        x = torch.ones(2, requires_grad=True)
        y = x.exp()
        z = y * 2
        z.register_hook(lambda g: note("in a task", torch._C._current_graph_task_id() >= 0,
                                       torch._C._will_engine_execute_node(y.grad_fn),
                                       torch._C._current_autograd_node().name()))
        torch.autograd.grad(z.sum(), x, retain_graph=True)
        torch.autograd.grad(z.sum(), z, retain_graph=True)
        z.sum().backward()
        note("outside", torch._C._current_graph_task_id())

    assert same_on_both(scenario)[-1] == ["outside", -1]


def plain_backward():
    x = torch.ones(3, requires_grad=True)
    (x.exp() * x).sum().backward()


def ran_without_surroundings():
    overdrive.reset_stats()
    plain_backward()
    stats = overdrive.stats()
    return stats["frames_elided"] == 1 and stats["own_nodes"].get("ExpBackward0") == 1


@pytest.mark.parametrize("scope", [lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t),
                                   lambda: overdrive.saved_tensors(overdrive.keep())], ids=["of Python", "keep"])
def test_saved_tensor_hooks_cost_other_backwards_nothing_once_they_are_gone(scope):
    x = torch.ones(3, requires_grad=True)
    with overdrive.engine():
        gc.collect()
        assert ran_without_surroundings()
        with scope():
            loss = x.exp().sum()
        assert not ran_without_surroundings()
        loss.backward(retain_graph=True)
        assert not ran_without_surroundings()
        del loss
        assert ran_without_surroundings()
        checkpoint(torch.exp, x, use_reentrant=False).sum().backward()
        gc.collect()
        assert ran_without_surroundings()


def test_hooks_that_pack_inside_a_backward_see_its_task():
    def scenario(note):
        def pack(t):
            note(torch._C._current_graph_task_id() != -1, t)
            return t

        x = torch.ones(2, requires_grad=True)
        y = x.exp() * x
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        note("forward over")
        note(torch.autograd.grad(first.sum(), x))

    same_on_both(scenario)
