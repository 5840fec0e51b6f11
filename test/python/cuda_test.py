"""The package on a CUDA device: programs as people write them, with the bits of stock. Skipped where PyTorch sees no device.

The programs ask PyTorch for kernels that give the same bits in each run, where it has a choice.
"""
import contextlib
import json
import os
import threading

import pytest
import torch
from conftest import python
from torch import nn
from torch.utils.checkpoint import checkpoint

import overdrive

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS begins
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")
CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def same_kernels_in_each_run():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def bits(tensors):
    return [None if t is None else t.detach().to_dense().cpu() if t.is_sparse else t.detach().cpu() for t in tensors]


def alike(a, b):
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def same_on_both(program, forwards=False):
    """The tensors that `program()` returns, on stock twice and on Overdrive: nothing differs, and nothing was given to stock."""
    def run():
        torch.manual_seed(0)
        return bits(program())

    overdrive.uninstall()
    stock, again = run(), run()
    assert all(map(alike, stock, again)), "stock differs from itself"
    overdrive.reset_stats()
    with overdrive.engine():
        ours = run()
    stats = overdrive.stats()
    assert stats["backwards"] > 0
    assert forwards or not stats["forwarded"], stats["forwarded"]
    assert len(ours) == len(stock) > 0
    differing = [i for i, (a, b) in enumerate(zip(ours, stock)) if not alike(a, b)]
    assert not differing, differing


def net(width=64):
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4)).to(CUDA)


def train(model, x, y, steps=10, make=torch.optim.Adam, loss_of=nn.functional.mse_loss, **options):
    optimizer = make(model.parameters(), lr=0.01, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
    return [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters())]


def batch(rows=32):
    return torch.randn(rows, 16, device=CUDA), torch.randn(rows, 4, device=CUDA)


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": False}, {"capturable": True}], ids=str)
def test_a_net_trains(options):
    same_on_both(lambda: train(net(), *batch(), **options))


def test_convolutions_with_batch_norm_and_dropout_train():
    def program():
        model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout(0.2), nn.Conv2d(16, 16, 3),
                              nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)).to(CUDA)
        return train(model, torch.randn(8, 3, 16, 16, device=CUDA), torch.randn(8, 4, device=CUDA), make=torch.optim.SGD, momentum=0.9)

    same_on_both(program)


def test_a_transformer_trains():
    def program():
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(CUDA)
        return train(model, torch.randn(4, 12, 32, device=CUDA), torch.randn(4, 12, 32, device=CUDA), steps=4)

    same_on_both(program)


def test_an_lstm_trains():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTM(16, 24, 2, batch_first=True)

        def forward(self, x):
            return self.cell(x)[0][:, -1]

    same_on_both(lambda: train(Last().to(CUDA), torch.randn(8, 9, 16, device=CUDA), torch.randn(8, 24, device=CUDA), steps=4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_mixed_precision_with_a_scaler(dtype):
    def program():
        model, (x, y) = net(), batch()
        optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda", init_scale=2.0**20)
        for _ in range(8):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype):
                loss = nn.functional.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        return [*model.parameters(), torch.tensor(scaler.get_scale())]

    same_on_both(program)


def test_a_forward_on_a_side_stream():
    def program():
        x, side = torch.randn(1 << 18, device=CUDA, requires_grad=True), torch.cuda.Stream()
        got = []
        for _ in range(10):
            x.grad = None
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = x
                for _ in range(30):
                    y = torch.sin(y) * 1.01
            torch.cuda.current_stream().wait_stream(side)
            y.sum().backward()
            got.append(x.grad * 1)  # on the caller's stream
        return got

    same_on_both(program)


def test_two_streams_meet_in_one_leaf():
    def program():
        w, sides = torch.randn(256, 256, device=CUDA, requires_grad=True), [torch.cuda.Stream() for _ in range(2)]
        got = []
        for _ in range(5):
            w.grad, parts = None, []
            for side in sides:
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    parts.append((w @ w).tanh().sum())
            for side in sides:
                torch.cuda.current_stream().wait_stream(side)
            torch.autograd.backward(parts)
            got.append(w.grad.clone())
        return got

    same_on_both(program)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    def program():
        class Blocks(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.3), nn.Tanh()) for _ in range(4))

            def forward(self, x):
                for block in self.blocks:
                    x = checkpoint(block, x, use_reentrant=reentrant)
                return x

        x = torch.randn(8, 16, device=CUDA, requires_grad=True)
        return train(Blocks().to(CUDA), x, torch.randn(8, 16, device=CUDA), steps=4) + [x.grad]

    same_on_both(program)


def test_saved_tensors_kept_in_the_memory_of_the_cpu():
    def program():
        model, (x, y) = net(), batch()
        for pin in (False, True):
            with torch.autograd.graph.save_on_cpu(pin_memory=pin):
                loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
        return [p.grad for p in model.parameters()]

    same_on_both(program)


@pytest.mark.parametrize("schedulable", [False, True])
def test_our_offload_gives_the_bits_of_stock(schedulable):
    def gradients(packer):
        torch.manual_seed(0)
        model, (x, y) = net(256), batch(512)
        for _ in range(3):
            with overdrive.saved_tensors(packer, schedulable=schedulable) if packer else contextlib.nullcontext():
                loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
        return bits(p.grad for p in model.parameters())

    with overdrive.engine():
        assert all(map(alike, gradients(overdrive.offload_to_cpu()), gradients(None)))


def test_a_whole_step_in_a_cuda_graph():
    def program():
        model, (x, y) = net(), batch()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, capturable=True)

        def step():
            optimizer.zero_grad(set_to_none=True)
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        for _ in range(10):
            x.copy_(torch.randn(x.shape))
            graph.replay()
        return model.parameters()

    same_on_both(program)


def test_graphed_callables():
    def program():
        model, (x, y) = net(), batch()
        graphed = torch.cuda.make_graphed_callables(model, (x.clone(),))
        return train(graphed, x, y, steps=5)

    same_on_both(program)


def test_what_a_compiler_made():
    def program():
        torch._dynamo.reset()
        model, (x, y) = net(), batch()
        return train(torch.compile(model), x, y, steps=4)

    same_on_both(program)


def test_hooks_and_updates_within_the_backward():
    def program():
        model, (x, y) = net(), batch()
        seen = []

        def update(p):
            p.data.sub_(p.grad, alpha=0.01)

        for p in model.parameters():
            p.register_hook(lambda g: seen.append(g.norm()) or g * 2)
            p.register_post_accumulate_grad_hook(update)
        model[2].register_full_backward_hook(lambda m, gi, go: seen.extend(g.sum() for g in (*gi, *go)))
        for _ in range(3):
            model.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
        return [*model.parameters(), *seen]

    same_on_both(program)


def test_second_derivatives():
    def program():
        model, (x, _) = net(), batch()
        x.requires_grad_()
        (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        (g.norm(dim=1) - 1).square().mean().backward()
        return [x.grad, *(p.grad for p in model.parameters())]

    same_on_both(program)


def test_a_model_on_both_devices():
    def program():
        first, second, (x, y) = nn.Linear(16, 32).to(CUDA), nn.Linear(32, 4), batch()
        for _ in range(5):
            nn.functional.mse_loss(second(torch.relu(first(x)).cpu()), y.cpu()).backward()
        return [p.grad for p in (*first.parameters(), *second.parameters())]

    same_on_both(program)


def test_sparse_and_complex_gradients():
    def program():
        table = nn.Embedding(50, 8, sparse=True).to(CUDA)
        z = torch.randn(6, 6, dtype=torch.complex64, device=CUDA, requires_grad=True)
        (table(torch.arange(20, device=CUDA)).sum() + (z @ z).abs().sum()).backward()
        return [table.weight.grad, torch.view_as_real(z.grad)]

    same_on_both(program)


def test_threads_train_models_of_their_own():
    def program():
        made = [net() for _ in range(4)]
        data, trained = [batch() for _ in made], [None] * len(made)

        def work(i):
            with torch.cuda.stream(torch.cuda.Stream()):
                trained[i] = bits(train(made[i], *data[i], steps=20))

        torch.cuda.synchronize()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(made))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [t for of_one in trained for t in of_one]

    same_on_both(program)


def test_an_error_of_a_node_is_stocks_and_the_next_backward_runs():
    def error():
        x = torch.ones(4, device=CUDA, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g: torch.empty(1 << 50, device=CUDA))
        with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
            y.sum().backward()
        return str(caught.value).split(".")[0]

    overdrive.uninstall()
    stock = error()
    with overdrive.engine():
        assert error() == stock
        x = torch.ones(4, device=CUDA, requires_grad=True)
        (x * 3).sum().backward()
        assert x.grad.tolist() == [3.0] * 4


def test_a_distributed_model(tmp_path):
    def program():
        with contextlib.ExitStack() as stack:
            torch.distributed.init_process_group("nccl", init_method=f"file://{tmp_path}/{len(list(tmp_path.iterdir()))}", rank=0, world_size=1)
            stack.callback(torch.distributed.destroy_process_group)
            model = nn.parallel.DistributedDataParallel(net(), device_ids=[0])
            return train(model, *batch())

    same_on_both(program)


def test_a_trace_names_the_nodes_of_the_device(tmp_path):
    path = tmp_path / "trace.json"
    with overdrive.engine():
        model, (x, y) = net(), batch()
        with overdrive.trace(path):
            nn.functional.mse_loss(model(x), y).backward()
    assert {"MseLossBackward0", "AddmmBackward0"} <= {event["name"] for event in json.loads(path.read_text())["traceEvents"]}


def test_a_captured_step_or_part_stays_eager_and_right():
    """Captures are for the CPU: on a device they say so, and train as written."""
    def program(kind):
        torch.manual_seed(0)
        model, (x, y) = net(), batch()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        if kind == "part":
            overdrive.captured(model)
        call = overdrive.capture(step) if kind == "step" else step
        for _ in range(8):
            call(x, y)
        if kind == "step":
            assert "CPU" in call.refusal()
        return bits(model.parameters())

    with overdrive.engine():
        eager = program("eager")
        for kind in ("step", "part"):
            assert all(map(alike, program(kind), eager)), kind


def test_a_process_ends_with_devices_in_use():
    done = python(["-c", "import overdrive, torch; overdrive.install()\n"
                   "w = torch.randn(64, 64, device='cuda', requires_grad=True)\n"
                   "v = torch.randn(64, 64, requires_grad=True)\n"
                   "for _ in range(3): ((w @ w).cpu() @ v).sum().backward()\nprint('end')"])
    assert done.stdout == "end\n"
    # cuBLAS may say that it had no context on the thread of a device. PyTorch warns of it on its own threads, too.
    assert "terminate" not in done.stderr and "Error" not in done.stderr, done.stderr
