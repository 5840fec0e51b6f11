"""Saved-tensor packers of C++ under Python programs."""
import copy
import gc
import os
import sys
import threading

import pytest
import torch
from torch import nn

import overdrive


@pytest.fixture(autouse=True)
def on_overdrive():
    with overdrive.engine():
        yield


def gradients(scope, depth=4, width=64):
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)])
    x = torch.randn(32, width, requires_grad=True)
    with scope:
        loss = model(x).square().mean()
    gc.collect()
    loss.backward()
    return [x.grad, *[p.grad for p in model.parameters()]]


@pytest.fixture
def plain():
    return gradients(overdrive.saved_tensors(None))


def test_exact_packers_give_the_same_bits(plain, tmp_path):
    for packer in (overdrive.keep(), overdrive.spill_to_disk(tmp_path), overdrive.spill_to_disk(),
                   overdrive.compose(overdrive.keep(), overdrive.spill_to_disk(tmp_path)),
                   overdrive.min_bytes(5000, overdrive.spill_to_disk(tmp_path, drop_cached=True))):
        for schedulable in (False, True):
            actual = gradients(overdrive.saved_tensors(packer, schedulable=schedulable))
            assert all(torch.equal(a, b) for a, b in zip(plain, actual)), (packer, schedulable)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{}, {"block": 64}, {"type": "bfloat16"}, {"rounding": "stochastic", "seed": 3}])
def test_quantise_is_near(plain, options):
    packer = overdrive.quantise(**options)
    actual = gradients(overdrive.saved_tensors(packer))
    assert not all(torch.equal(a, b) for a, b in zip(plain, actual)), "nothing was packed"
    for a, b in zip(plain, actual):
        torch.testing.assert_close(a, b, rtol=0.1, atol=0.05 * a.abs().max().item())
    # Stochastic rounding depends on the numbers of the nodes, which go on.
    if options.get("rounding") != "stochastic":
        again = gradients(overdrive.saved_tensors(packer))
        assert all(torch.equal(a, b) for a, b in zip(actual, again))


def test_min_bytes_of_a_scope(plain):
    actual = gradients(overdrive.saved_tensors(overdrive.quantise(), min_bytes=1 << 30))
    assert all(torch.equal(a, b) for a, b in zip(plain, actual))


def test_a_graph_keeps_its_packer(plain):
    scope = overdrive.saved_tensors(overdrive.spill_to_disk())
    actual = gradients(scope)
    del scope
    gc.collect()
    assert all(torch.equal(a, b) for a, b in zip(plain, actual))


@pytest.mark.parametrize("call", [lambda: overdrive.quantise(block=7), lambda: overdrive.quantise(type="int4"),
                                  lambda: overdrive.quantise(rounding="up"), lambda: overdrive.spill_to_disk(min_bytes=-1),
                                  lambda: overdrive.offload_to_cpu(min_bytes=-1)])
def test_options_that_cannot_be(call):
    with pytest.raises(overdrive.OverdriveError, match=r"\(\) was given|takes|must be"):
        call()


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises((overdrive.OverdriveError, RuntimeError), match="nowhere"):
        gradients(overdrive.saved_tensors(overdrive.spill_to_disk(tmp_path / "nowhere")))


def test_a_file_name_is_any_bytes(tmp_path):
    folder = os.fsencode(tmp_path) + b"/\xff"
    with pytest.raises(overdrive.OverdriveError, match="spill_to_disk cannot make a file in .*\ufffd" if sys.version_info >= (3, 11) else "not UTF-8"):
        overdrive.spill_to_disk(folder)
    os.mkdir(folder)
    overdrive.spill_to_disk(folder)


def test_a_scope_inside_of_a_trace_is_no_part_of_it(plain):
    def function(x):
        with overdrive.saved_tensors(overdrive.quantise()):
            return x.exp()

    nodes = torch.jit.trace(function, torch.ones(3, requires_grad=True)).graph.nodes()
    assert [node.kind() for node in nodes] == ["aten::exp"]


def test_a_scope_is_unseen_by_modes_and_profilers():
    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    seen = []
    with Seen(), torch.profiler.profile() as profiler, overdrive.saved_tensors(overdrive.keep()):
        torch.ones(3).exp()
    assert seen == ["aten.ones.default", "aten.exp.default"]
    assert not [event.name for event in profiler.events() if "overdrive" in event.name]


def test_a_copy_of_a_packer_is_refused_instead_of_freed_twice():
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(overdrive.keep())


def test_the_engine_has_to_be_installed():
    overdrive.uninstall()
    with pytest.raises(overdrive.OverdriveError, match="not the default engine"):
        with overdrive.saved_tensors(overdrive.keep()):
            pass


def test_the_innermost_scope_decides_of_whichever_kind():
    packed = []
    pytorchs = torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t)
    x = torch.randn(64, 64, requires_grad=True)

    def packed_by_pytorch():
        del packed[:]
        (x * 2).exp().sum().backward()
        return len(packed) > 0

    with overdrive.saved_tensors(overdrive.quantise()):
        assert not packed_by_pytorch()
        with pytorchs:
            assert packed_by_pytorch()
            with overdrive.saved_tensors(overdrive.keep()):
                assert not packed_by_pytorch()
            assert packed_by_pytorch()
        assert not packed_by_pytorch()


def test_checkpoint_inside_a_scope(plain):
    from torch.utils.checkpoint import checkpoint

    def run(scope):
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)])
        x = torch.randn(32, 64, requires_grad=True)
        runs = [0]

        def layer(part, a):
            runs[0] += 1
            return part(a)

        h = x
        with scope:
            for part in model:
                h = checkpoint(layer, part, h, use_reentrant=False)
            loss = h.square().mean()
        loss.backward()
        assert runs[0] == 8
        return [x.grad, *[p.grad for p in model.parameters()]]

    actual = run(overdrive.saved_tensors(overdrive.spill_to_disk()))
    assert all(torch.equal(a, b) for a, b in zip(plain, actual))


def test_scopes_belong_to_their_thread():
    packed = []

    def work():
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t):
            torch.ones(4, requires_grad=True).exp().sum().backward()

    with overdrive.saved_tensors(overdrive.quantise()):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert packed


def test_a_change_in_place_is_an_error():
    x = torch.randn(64, 64, requires_grad=True)
    with overdrive.saved_tensors(overdrive.keep()):
        y = x.exp()
        z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_packers_name_themselves():
    packer = overdrive.compose(overdrive.quantise(block=64), overdrive.min_bytes(100, overdrive.keep()))
    assert repr(packer) == ("overdrive.compose(overdrive.quantise(type='int8', rounding='nearest', block=64, seed=0), "
                            "overdrive.min_bytes(100, overdrive.keep()))")
