"""overdrive.install(optimizers=True) and python -m overdrive --optimizers: optimizers that nobody gives to captured()."""
import copy
import gc
import pickle
import sys
import weakref

import pytest
import torch
from conftest import python
from torch import nn
from torch.nn import functional as F

import overdrive
from overdrive.step.optimizers_made import CALLS_FIRST

O = torch.optim  # noqa: E741


@pytest.fixture(autouse=True)
def off_before_and_after(monkeypatch):
    monkeypatch.setenv("OVERDRIVE_CAPTURE_CHECK", "0")
    overdrive.uninstall()
    yield
    overdrive.uninstall()


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


def train(model, optimizer, i):
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(i))

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x[:, :2])
        loss.backward()
        return loss

    if isinstance(optimizer, O.LBFGS):
        return optimizer.step(closure)
    loss = closure()
    optimizer.step()
    return loss


def trained(make, on, steps=CALLS_FIRST + 14, between=lambda optimizer, i: None):
    """What a program without a line of Overdrive has after its steps, and its optimizer."""
    overdrive.install(optimizers=True) if on else overdrive.uninstall()
    torch.manual_seed(0)
    model = mlp()
    optimizer = make(list(model.parameters()))
    notes = []
    for i in range(steps):
        notes.append(train(model, optimizer, i).detach())
        between(optimizer, i)
    notes += [p.detach() for p in model.parameters()]
    notes += [v for p in model.parameters() for v in optimizer.state[p].values() if isinstance(v, torch.Tensor)]
    return notes, optimizer


def same_on_both(make, **options):
    ours, optimizer = trained(make, True, **options)
    eager, plain = trained(make, False, **options)
    assert len(ours) == len(eager) and all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(ours, eager))
    assert isinstance(optimizer, type(plain)) and type(optimizer).__name__ == type(plain).__name__
    return optimizer


def stats_of(make, **options):
    ours, optimizer = trained(make, True, **options)
    return overdrive.part_of(optimizer).stats(), ours


@pytest.mark.parametrize("make", [
    lambda p: O.SGD(p, 0.05, momentum=0.9, nesterov=True), lambda p: O.Adam(p, 1e-2, amsgrad=True), lambda p: O.AdamW(p, 1e-2),
    lambda p: O.Adagrad(p), lambda p: O.Adamax(p), lambda p: O.NAdam(p), lambda p: O.RAdam(p), lambda p: O.RMSprop(p, centered=True),
    lambda p: O.Adadelta(p), lambda p: O.Rprop(p), lambda p: O.Adam([{"params": p[:2], "lr": 0.1}, {"params": p[2:]}])])
def test_an_optimizer_is_captured_where_it_is_made(make):
    same_on_both(make)
    stats, _ = stats_of(make)
    assert stats["replayed"] > 5


@pytest.mark.parametrize("make", [lambda p: O.ASGD(p), lambda p: O.LBFGS(p, max_iter=3), lambda p: O.Adafactor(p), lambda p: O.Adam(p, torch.tensor(0.01))])
def test_one_that_is_not_understood_updates_eagerly_and_says_so(make, recwarn):
    same_on_both(make)
    _, optimizer = trained(make, True, steps=CALLS_FIRST + 30)
    assert not [w for w in recwarn if "captured" in str(w.message)]
    part = overdrive.part_of(optimizer)
    assert part.stats()["replayed"] == 0 and part.refusal()


def test_the_first_calls_are_eager_and_say_so():
    _, optimizer = trained(O.SGD, True, steps=8)
    assert "first calls" in overdrive.part_of(optimizer).refusal()


def test_uninstall_makes_them_pytorchs_again():
    plain = O.Optimizer.__init__
    overdrive.install(optimizers=True)
    overdrive.install(optimizers=True)
    overdrive.install()
    model = mlp()
    optimizer, given = O.Adam(model.parameters()), overdrive.captured(O.SGD(mlp().parameters(), 0.1))
    scheduler = O.lr_scheduler.StepLR(optimizer, 3)
    for i in range(CALLS_FIRST + 8):
        train(model, optimizer, i)
        scheduler.step()
    assert overdrive.part_of(optimizer).stats()["replayed"] > 0
    overdrive.uninstall()
    overdrive.uninstall()
    assert O.Optimizer.__init__ is plain and type(optimizer) is O.Adam and overdrive.part_of(optimizer) is None
    assert overdrive.part_of(given) is not None
    assert type(O.Adam(model.parameters())) is O.Adam
    train(model, optimizer, 0)
    scheduler.step()
    overdrive.install()
    assert type(O.Adam(model.parameters())) is O.Adam


def test_uninstall_beneath_a_replacement_of_the_programs(monkeypatch):
    """A program that has put its own function around the constructor keeps it."""
    overdrive.install(optimizers=True)
    inner = O.Optimizer.__init__

    def init(self, *arguments):
        inner(self, *arguments)

    monkeypatch.setattr(O.Optimizer, "__init__", init)
    assert overdrive.part_of(O.SGD(mlp().parameters())) is not None
    overdrive.uninstall()
    assert O.Optimizer.__init__ is init and type(O.SGD(mlp().parameters())) is O.SGD
    monkeypatch.undo()
    overdrive.uninstall()


def test_a_bound_engine_of_tools_leaves_them_captured():
    """compare() switches to stock and back."""
    overdrive.install(optimizers=True)
    model = mlp()
    optimizer = O.SGD(model.parameters(), 0.1)
    assert overdrive.compare(lambda: train(model, optimizer, 0), steps=2, rounds=2, progress=False).equal
    assert overdrive.part_of(optimizer) is not None and overdrive.part_of(O.SGD(model.parameters())) is not None


class Own(O.Adam):
    """Finishes its work after PyTorch's constructor."""

    def __init__(self, parameters):
        super().__init__(parameters)
        self.late = 1


def test_classes_of_the_program_are_left_alone():
    optimizer = same_on_both(Own)
    assert type(optimizer) is Own
    overdrive.install(optimizers=True)
    assert overdrive.part_of(Own(mlp().parameters())) is None
    with pytest.raises(ValueError, match="empty parameter list"):
        O.SGD([])


@pytest.mark.parametrize("scheduler", [lambda o: O.lr_scheduler.CosineAnnealingLR(o, 10), lambda o: O.lr_scheduler.OneCycleLR(o, 0.1, 40),
                                       lambda o: O.lr_scheduler.LambdaLR(o, lambda i: 0.9 ** i)])
def test_schedulers(scheduler, recwarn):
    made = {}

    def between(optimizer, i):
        made.setdefault(id(optimizer), scheduler(optimizer)) if i == 0 else made[id(optimizer)].step()

    same_on_both(lambda p: O.Adam(p, 1e-2), between=between)
    made.clear()
    stats, _ = stats_of(lambda p: O.Adam(p, 1e-2), between=between)
    assert stats["replayed"] > 5 and not [w for w in recwarn if "optimizer.step" in str(w.message)]


def test_a_gradient_scaler():
    def run(on):
        overdrive.install(optimizers=True) if on else overdrive.uninstall()
        torch.manual_seed(0)
        model, scaler = mlp(), torch.amp.GradScaler("cpu", init_scale=16.0)
        optimizer = O.Adam(model.parameters(), 1e-2)
        for i in range(CALLS_FIRST + 10):
            x = torch.randn(6, 8, generator=torch.Generator().manual_seed(i))
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.mse_loss(model(x), x[:, :2])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return [p.detach() for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(run(True), run(False)))


def test_states_copies_and_files():
    def between(optimizer, i):
        if i == CALLS_FIRST + 6:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    optimizer = same_on_both(lambda p: O.Adam(p, 1e-2), between=between)
    overdrive.install(optimizers=True)
    for kind in (O.SGD, O.LBFGS):
        optimizer = kind(mlp().parameters(), lr=0.1)
        assert overdrive.part_of(optimizer) is not None and isinstance(optimizer, kind)
        for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
            assert type(other) is kind and overdrive.part_of(other) is None


def test_hooks_of_step_run_once_each():
    calls = {True: 0, False: 0}

    def run(on):
        def count(*_):
            calls[on] += 1

        def make(parameters):
            optimizer = O.SGD(parameters, 0.1)
            optimizer.register_step_pre_hook(count)
            optimizer.register_step_post_hook(count)
            return optimizer

        return trained(make, on)[0]

    assert all(torch.equal(a, b) for a, b in zip(run(True), run(False)))
    assert calls[True] == calls[False] == 2 * (CALLS_FIRST + 14)


def test_an_optimizer_dies_with_its_last_name():
    overdrive.install(optimizers=True)
    for steps, capture in ((1, overdrive.step.methods.itself), (CALLS_FIRST + 8, overdrive.step.methods.itself), (8, overdrive.captured)):
        model = mlp()
        optimizer = capture(O.Adam(model.parameters()))
        for i in range(steps):
            train(model, optimizer, i)
        alive = weakref.ref(optimizer)
        del optimizer, model
        gc.collect()
        assert alive() is None


def test_a_whole_step_may_hold_one():
    overdrive.install(optimizers=True)
    model = mlp()
    optimizer = O.Adam(model.parameters())
    step = overdrive.capture(lambda x: [optimizer.zero_grad(), loss := model(x).square().mean(), loss.backward(), optimizer.step()][1])
    for _ in range(12):
        step(torch.ones(6, 8))
    assert step.stats()["replayed"] > 0, step.refusal()


@pytest.mark.parametrize(("is_unlimited", "replay", "gives_way"), [(False, 100, True), (False, 10, False), (True, 100, False)])
def test_replays_that_are_slower_than_plain_calls_give_way(monkeypatch, is_unlimited, replay, gives_way):
    """By the clock of the test: `replay` microseconds from one replay to the next, and 20 from one plain call to the next."""
    now = [1]
    monkeypatch.setattr("overdrive.step.budget.clock", lambda: now[0])
    monkeypatch.setattr("overdrive.step.budget.is_unlimited", lambda always: is_unlimited)
    monkeypatch.setattr("overdrive.step.budget._SHORT", 0)
    replayed = [0]

    def time_passes(optimizer, i):
        made = overdrive.part_of(optimizer).stats()["replayed"] if i >= CALLS_FIRST else 0
        now[0] += 1000 * (replay if made > replayed[0] else 20)
        replayed[0] = made

    steps = CALLS_FIRST + 120
    ours, optimizer = trained(lambda p: O.Adam(p, 0.05), True, steps=steps, between=time_passes)
    part = overdrive.part_of(optimizer)
    assert part.stats()["calls"] == steps and ("Replays are not faster here" in part.refusal()) == gives_way
    assert (part.stats()["replayed"] < 60) == gives_way
    replayed[0] = part.stats()["replayed"]
    part.reset()
    for _ in range(10):
        optimizer.step()
    assert part.stats()["replayed"] > replayed[0]
    eager, _ = trained(lambda p: O.Adam(p, 0.05), False, steps=steps)
    assert all(torch.equal(a, b) for a, b in zip(ours[:steps], eager[:steps]))


def test_wrong_arguments():
    with pytest.raises(TypeError, match="optimizers is 1; it takes True or False"):
        overdrive.install(optimizers=1)


PROGRAM = """
import os, subprocess, sys
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(30):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
assert not any(place.endswith("_start") for place in sys.path), sys.path
overdrive = sys.modules.get("overdrive")
part = overdrive and overdrive.part_of(optimizer)
print("captured" if part and part.stats()["replayed"] else "plain", overdrive and overdrive.installed(), model.weight.sum().item().hex(), flush=True)
if sys.argv[1:] == ["child"]:
    subprocess.run([sys.executable, sys.argv[0]], check=True)
"""


def test_the_command_captures_in_the_program_and_its_children(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    plain = python([script]).stdout
    assert plain.startswith("plain None ")
    bits = plain.split()[-1]
    always = {"OVERDRIVE_CAPTURE_ALWAYS": "1"}
    assert python(["-m", "overdrive", "--optimizers", script, "child"], always).stdout.splitlines() == [f"captured True {bits}"] * 2
    assert python(["-m", "overdrive", "--optimizers", "-c", PROGRAM], always).stdout == f"captured True {bits}\n"
    assert python(["-m", "overdrive", "--optimizers", script], {"OVERDRIVE": "0"}).stdout == plain


def test_the_command_runs_a_sitecustomize_that_it_hides(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.theirs = __file__\n")
    place = [str(tmp_path), *(p for p in sys.path if p)]
    done = python(["-m", "overdrive", "--optimizers", "-c", "import sys, sitecustomize; print(sys.theirs == sitecustomize.__file__)"],
                  {"PYTHONPATH": ":".join(place)})
    assert done.stdout == "True\n"


@pytest.mark.parametrize(("options", "command", "words"), [
    (["-E"], ["-c", "0"], "-E, -I and -S"), ([], ["-I", "-c", "0"], "--optimizers is followed by the program; give -I")])
def test_options_of_python_under_which_nothing_would_be_captured(options, command, words):
    # -E is for a package that is on Python's own path: run it as a script.
    code = f"import sys; sys.path[:0] = {sys.path!r}; from overdrive.__main__ import main; sys.exit(main({['--optimizers', *command]!r}))"
    done = python([*options, "-c", code], check=False)
    assert done.returncode == 2 and words in done.stderr.splitlines()[-1]


def test_a_python_that_overdrive_has_no_library_for_is_told(tmp_path):
    package = tmp_path / "torch" / "optim"
    package.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "optimizer.py").write_text("class Optimizer:\n    pass\n")
    facts = tmp_path / "torch-2.5.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.5\n")
    code = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport torch.optim.optimizer\nprint(torch.optim.optimizer.Optimizer.__init__)"
    done = python(["-m", "overdrive", "--optimizers", "-c", code])
    assert "overdrive: optimizers are not captured: " in done.stderr and "slot wrapper" in done.stdout


def test_the_command_compares_with_a_third_column(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM.replace('"captured" if part and part.stats()["replayed"] else "plain", overdrive and overdrive.installed(), ', ""))
    done = python(["-m", "overdrive", "compare", "--optimizers", "--runs=1", script])
    assert done.stderr.count("with captured optimizers") == 1 and "+ optimizers: output: equal" in done.stdout
    header = next(line for line in done.stdout.splitlines() if "on stock" in line)
    assert header.count("ratio") == 2 and "+ optimizers" in header
    assert all(len(line.split()) == 10 for line in done.stdout.splitlines() if line.startswith("  CPU time"))
    assert python(["-m", "overdrive", "compare", "--optimizers", script, "x", "y"], check=True).returncode == 0
