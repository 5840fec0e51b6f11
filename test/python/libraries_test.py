"""What PyTorch builds on its engine: functorch, checkpoint, compile, AMP, data loaders, several processes."""
import pickle
import re

import pytest
import torch
import torch.nn.functional as F
from conftest import on, python, same_on_both, variables_of
from torch import nn
from torch.utils.checkpoint import checkpoint


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.LayerNorm(16), nn.Dropout(0.3), nn.Linear(16, 3))


MODELS = {
    "mlp": (net, lambda: torch.randn(8, 6)),
    "conv": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                                   nn.Flatten(), nn.Linear(64, 3)), lambda: torch.randn(2, 2, 8, 8)),
    "gru": (lambda: nn.GRU(5, 7, num_layers=2, batch_first=True), lambda: torch.randn(2, 6, 5)),
    "transformer": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), lambda: torch.randn(2, 5, 16)),
    "embedding": (lambda: nn.EmbeddingBag(20, 4, sparse=True), lambda: torch.randint(0, 20, (3, 4))),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS])
def test_training_has_the_bits_of_stock(name, optimizer):
    if name == "embedding" and optimizer is not torch.optim.SGD:
        pytest.skip("PyTorch's optimiser takes no sparse gradients")

    def scenario(note):
        make, data = MODELS[name]
        torch.manual_seed(3)
        model, x = make(), data()
        opt = optimizer(model.parameters(), lr=1e-2)

        def closure():
            opt.zero_grad()
            out = model(x)
            loss = (out[0] if isinstance(out, tuple) else out).square().mean()
            loss.backward()
            note(loss)
            return loss

        for _ in range(3):
            opt.step(closure)
        note(list(model.parameters()), [p.grad for p in model.parameters()])

    same_on_both(scenario)


def test_gradcheck(engine):
    x, w = (torch.randn(3, 3, dtype=torch.double, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: (a @ b).tanh().cumsum(0) / (1 + b * b), (x, w))
    assert torch.autograd.gradcheck(lambda a: a.exp().prod(), (x,), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(lambda a: (a.sin() * a).sum(1), (x,))


def test_functorch():
    from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vjp, vmap

    def scenario(note):
        model, x, y = net().eval(), torch.randn(8, 6), torch.randn(8, 3)
        parameters = dict(model.named_parameters())

        def loss(p, a, b):
            return F.mse_loss(functional_call(model, p, (a.unsqueeze(0),)), b.unsqueeze(0))

        note(list(vmap(grad(loss), (None, 0, 0))(parameters, x, y).values()))
        f = lambda a: (a.sin() * a).sum()
        note(jacrev(lambda a: a.tanh() * a)(x[0]), jacfwd(lambda a: a.tanh() * a)(x[0]))
        note(hessian(f)(x[0]), grad(grad(lambda a: a**3))(torch.tensor(2.0)))
        out, back = vjp(lambda a: a @ a.T, x)
        note(back(torch.ones_like(out)))
        (x.requires_grad_().exp().sum()).backward()

    same_on_both(scenario)


def test_functional_autograd():
    def scenario(note):
        x = torch.randn(4)
        f = lambda a: (a * a.sin()).sum()
        note(torch.autograd.functional.jacobian(lambda a: a.exp() * a, x))
        note(torch.autograd.functional.jacobian(lambda a: a.exp() * a, x, vectorize=True))
        note(torch.autograd.functional.hessian(f, x), torch.autograd.functional.vhp(f, x, torch.ones(4)))
        note(torch.autograd.functional.hvp(f, x, torch.ones(4)))
        y = torch.randn(3, requires_grad=True)
        note(torch.autograd.grad(y.exp(), y, torch.eye(3), is_grads_batched=True))

    same_on_both(scenario)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    def scenario(note):
        model, x = net(), torch.randn(8, 6, requires_grad=True)
        runs = [0]

        def counted(part):
            def run(a):
                runs[0] += 1
                return part(a)
            return run

        h = x
        for part in (model[:2], model[2:]):
            h = checkpoint(counted(part), h, use_reentrant=reentrant)
        h.square().sum().backward()
        note(runs, x.grad, [p.grad for p in model.parameters()])

    notes = same_on_both(scenario)
    assert notes[-1][0] == [4]


def test_checkpoint_refuses_what_stock_refuses():
    def scenario(note):
        def changes(a, calls=[]):
            calls.append(1)
            return a.exp() if len(calls) % 2 else a.repeat(2).exp()[:3]

        x = torch.randn(3, requires_grad=True)
        y = checkpoint(changes, x, use_reentrant=False)
        try:
            y.sum().backward()
        except Exception as error:
            note(type(error).__name__)
        x = torch.randn(3, requires_grad=True)
        y = checkpoint(torch.exp, x, use_reentrant=True)
        try:
            torch.autograd.grad(y.sum(), x)
        except RuntimeError as error:
            note(str(error))
        torch.randn(3, requires_grad=True).exp().sum().backward()

    assert len(same_on_both(scenario)) == 2


@pytest.mark.filterwarnings("ignore")
def test_compile_beside():
    def scenario(note):
        torch._dynamo.reset()
        model, x = net().eval(), torch.randn(8, 6)
        compiled = torch.compile(model, backend="aot_eager")
        for _ in range(2):
            compiled(x).square().sum().backward()
        note([p.grad for p in model.parameters()])

    same_on_both(scenario)


@pytest.mark.forwards("compiled autograd")
@pytest.mark.filterwarnings("ignore")
def test_compiled_autograd_goes_to_stock(engine):
    from torch._dynamo import compiled_autograd

    import overdrive

    x = torch.randn(4, requires_grad=True)
    with compiled_autograd._enable(lambda graph: graph):
        (x.exp() * x).sum().backward()
    torch.testing.assert_close(x.grad, (1 + x.detach()) * x.detach().exp())
    x.exp().sum().backward()
    if engine == "overdrive":
        assert overdrive.stats()["forwarded"] == {"compiled autograd": 1}


def test_mixed_precision_on_the_cpu():
    def scenario(note):
        model, x = net(), torch.randn(8, 6)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).square().mean()
        scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        note(loss, scaler.get_scale(), list(model.parameters()))

    same_on_both(scenario)


def test_pickling_and_state():
    def scenario(note):
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.randn(4, 6)).sum().backward()
        optimizer.step()
        copy = pickle.loads(pickle.dumps(model))
        copy(torch.ones(4, 6)).sum().backward()
        note([p.grad for p in copy.parameters()], list(copy.parameters()))

    same_on_both(scenario)


def test_parametrisations_and_hooks_of_modules():
    def scenario(note):
        torch.manual_seed(0)
        layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
        layer.register_full_backward_hook(lambda m, gi, go: note("module", list(gi), list(go)))
        layer.register_full_backward_pre_hook(lambda m, go: note("before", list(go)))
        x = torch.randn(2, 4, requires_grad=True)
        layer(x).square().sum().backward()
        note(x.grad, [p.grad for p in layer.parameters()])

    same_on_both(scenario)


def test_tensors_of_other_kinds():
    def scenario(note):
        z = torch.randn(3, dtype=torch.cfloat, requires_grad=True)
        (z * z.conj()).real.sum().backward()
        note(z.grad)
        x = torch.randn(4, 4, requires_grad=True)
        s = torch.randn(4, 4).relu().to_sparse()
        torch.sparse.mm(s, x).sum().backward()
        note(x.grad)
        n = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged, requires_grad=True)
        (n * 2).sin().values().sum().backward()
        note(n.grad.values())
        v = torch.randn(6, requires_grad=True)
        w = v * 1
        w[::2].mul_(3)
        w.view(2, 3)[1].add_(1)
        w.square().sum().backward()
        note(v.grad)

    same_on_both(scenario)


class Wrapped(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})


def test_subclasses_and_modes():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Log(TorchDispatchMode):
        def __init__(self, note):
            super().__init__()
            self.note = note

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.note(str(function))
            return function(*args, **(kwargs or {}))

    def scenario(note):
        x = torch.randn(3).as_subclass(Wrapped).requires_grad_()
        (x * x).sum().backward()
        note(type(x.grad).__name__, x.grad.as_subclass(torch.Tensor))
        y = torch.randn(3, requires_grad=True)
        with Log(note):
            (y.exp() * y).sum().backward()

    assert len(same_on_both(scenario)) > 5


LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 12
    def __getitem__(self, i):
        w = torch.full((3,), float(i), requires_grad=True)
        (w * w).sum().backward()          # in a worker that was forked
        return w.grad
if __name__ == "__main__":
    model = torch.nn.Linear(3, 1)
    torch.nn.init.ones_(model.weight)
    for batch in DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context="fork"):
        model(batch).sum().backward()
    print(model.weight.grad.tolist())
"""

# Both wait before they end: a thread of Gloo that lets go of its last work while the interpreter ends asks for the
# interpreter's lock, and LibTorch aborts (seldom, and with either engine).
DDP = """
import sys, time, torch, torch.distributed as dist, torch.multiprocessing as mp
def work(rank, store):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(3):
        optimizer.zero_grad()
        ddp(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()
    if rank == 0:
        print([p.sum().item().hex() for p in ddp.parameters()], flush=True)
    dist.destroy_process_group()
    time.sleep(1)
if __name__ == "__main__":
    mp.spawn(work, args=(sys.argv[1],), nprocs=2)
"""

FSDP = """
import sys, time, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (1,))
for layer in model:
    if list(layer.parameters()): fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(5, 4)).square().mean().backward()
    optimizer.step()
print([p.to_local().sum().item().hex() for p in model.parameters()])
dist.destroy_process_group()
time.sleep(1)
"""

QUEUE = """
import torch, torch.multiprocessing as mp
def work(queue, model):
    model(torch.ones(2, 3)).sum().backward()
    queue.put([p.grad for p in model.parameters()])
    queue.get()
if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).share_memory()
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue, model))
    process.start()
    print([g.tolist() for g in queue.get()])
    queue.put(None)
    process.join()
    print(process.exitcode)
"""


@pytest.mark.parametrize("program", [LOADER, DDP, FSDP, QUEUE], ids=["loader", "ddp", "fsdp", "queue"])
def test_programs_of_several_processes(program, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(program)
    outputs = {}
    for name in ("stock", "overdrive"):
        done = python([script, tmp_path / f"store_{name}"], {**variables_of(name), "OMP_NUM_THREADS": "1"})
        outputs[name] = done.stdout
        if name == "overdrive":
            assert re.search(r"backwards? on Overdrive, 0 on stock", done.stderr)
    assert outputs["stock"] == outputs["overdrive"] != ""


def test_both_engines_in_turn():
    def scenario(note):
        x = torch.randn(4, requires_grad=True)
        x.exp().sum().backward()
        note(x.grad)

    assert on("stock", scenario) == on("overdrive", scenario) == on("stock", scenario)
