"""The package: switching, counts, saved tensors, comparison, checkpointing, the command, the examples in its docs."""
import doctest
import functools
import importlib
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import python, variables_of

import overdrive
from overdrive.__main__ import preload_library, preloading

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def off_before_and_after():
    overdrive.uninstall()
    yield
    overdrive.uninstall()


def backward():
    x = torch.ones(2, requires_grad=True)
    x.exp().sum().backward()
    return x.grad


def test_switching():
    assert not overdrive.installed()
    overdrive.reset_stats()
    backward()
    assert overdrive.stats()["backwards"] == 0
    overdrive.install()
    overdrive.install()
    backward()
    assert overdrive.installed() and overdrive.stats()["backwards"] == 1
    overdrive.uninstall()
    overdrive.uninstall()
    backward()
    assert not overdrive.installed() and overdrive.stats()["backwards"] == 1


def test_blocks_nest_and_put_back():
    with overdrive.engine():
        with overdrive.engine():
            assert overdrive.installed()
        assert overdrive.installed()
    assert not overdrive.installed()
    overdrive.install()
    with pytest.raises(ZeroDivisionError), overdrive.engine():
        1 / 0
    assert overdrive.installed()


def test_a_block_has_options_and_puts_them_back():
    def fails():
        with pytest.raises(RuntimeError, match="second time") as caught:
            loss = torch.ones(2, requires_grad=True).exp().sum()
            loss.backward()
            loss.backward()
        return str(caught.value)

    def compared():
        before = overdrive.stats()["checked"]
        backward()
        return overdrive.stats()["checked"] - before

    with overdrive.engine():
        plain = fails()
        with overdrive.engine(errors="note", check_every=1):
            assert fails().startswith(plain.split("\n")[0]) and "ExpBackward0" in fails() and compared() == 1
            with overdrive.engine():
                assert compared() == 0  # its options are the environment's
        assert "ExpBackward0" not in plain and fails() == plain and compared() == 0
    with overdrive.engine(threads="caller", exact="always", own_nodes=False, nan="off"):
        backward()


@pytest.mark.parametrize("option, text", [
    ({"threads": "many"}, 'engine\\(\\) was given threads = "many"; it takes "auto", "caller" and "device"'),
    ({"errors": "loud"}, 'errors = "loud"'), ({"exact": 1}, "engine: exact is 1; it takes a string"),
    ({"own_nodes": 1}, "engine: own_nodes is 1"), ({"check_every": -1}, "engine: check_every is -1")])
def test_an_option_that_cannot_be_is_named(option, text):
    before = overdrive.installed()
    with pytest.raises((overdrive.OverdriveError, TypeError, ValueError), match=text), overdrive.engine(**option):
        pass
    assert overdrive.installed() == before


def test_switching_inside_a_backward():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda g: overdrive.install())
    z = y * 2
    z.register_hook(lambda g: overdrive.uninstall())
    overdrive.install()
    z.sum().backward()
    assert overdrive.installed()
    torch.testing.assert_close(x.grad, 2 * x.detach().exp())


def test_a_bad_variable_is_an_error():
    done = python(["-c", "import overdrive\noverdrive.install()"], {"OVERDRIVE_THREADS": "foo"}, check=False)
    assert done.returncode == 1
    assert 'OverdriveError: OVERDRIVE_THREADS is "foo", but must be one of auto|caller|device.' in done.stderr


def test_an_unknown_variable_is_named():
    done = python(["-c", "import overdrive\noverdrive.install()"], {"OVERDRIVE_THREAD": "caller"})
    assert "OVERDRIVE_THREAD is set" in done.stderr and "OVERDRIVE_THREADS?" in done.stderr


def test_shadow_mode_checks_backwards_of_python():
    done = python(["-c", "import torch, overdrive\noverdrive.install()\n"
                         "for _ in range(4): torch.ones(2, requires_grad=True).exp().sum().backward()\n"
                         "print(overdrive.stats()['checked'])"], {"OVERDRIVE_CHECK": "2"})
    assert done.stdout == "2\n"


def test_torch_may_be_imported_before_or_after():
    for order in ("torch, overdrive", "overdrive, torch"):
        done = python(["-c", f"import {order}\noverdrive.install()\n"
                             "torch.ones(1, requires_grad=True).exp().backward()\nprint(overdrive.stats()['backwards'])"])
        assert done.stdout == "1\n"


def test_importing_the_package_does_not_import_torch():
    assert python(["-c", "import sys, overdrive\nprint('torch' in sys.modules)"]).stdout == "False\n"


def test_another_torch_is_an_import_error_that_names_both(tmp_path):
    fake = tmp_path / "torch"
    fake.mkdir()
    (fake / "__init__.py").write_text("__version__ = '1.2.3'\n")
    done = python(["-c", "import torch, overdrive"], {"PYTHONPATH": f"{tmp_path}:{Path(overdrive.__file__).parents[1]}"},
                  check=False)
    assert done.returncode == 1
    assert f"ImportError: overdrive was built for torch {overdrive.built_for()[0]}, and this is torch 1.2.3" in done.stderr


def ours(stderr):
    """The lines that Overdrive printed. PyTorch prints of its own, such as a warning where there is no numpy."""
    return [line.removeprefix("overdrive: ") for line in stderr.splitlines() if line.startswith("overdrive: ")]


def test_the_preload_library_alone():
    code = "import torch\nx = torch.ones(2, requires_grad=True)\n(x * x).sum().backward()\nprint(x.grad.tolist())"
    done = python(["-c", code], variables_of("overdrive"))
    assert done.stdout == "[2.0, 2.0]\n"
    lines = ours(done.stderr)
    assert lines[0].startswith("installed") and lines[1].startswith("1 backward on Overdrive, 0 on stock")
    assert json.loads(lines[2])["backwards"] == 1


def test_the_preload_library_in_a_folder_with_blanks(tmp_path):
    folder = tmp_path / "my programs"
    folder.mkdir()
    for name in ("liboverdrive.so", "liboverdrive_autoload.so"):
        (folder / name).symlink_to(os.path.join(os.path.dirname(preload_library()), name))
    code = "import torch\ntorch.ones(2, requires_grad=True).exp().sum().backward()"
    done = python(["-c", code], {**preloading(str(folder / "liboverdrive_autoload.so")), "OVERDRIVE_VERBOSE": "1"})
    assert "1 backward on Overdrive" in done.stderr
    with pytest.raises(SystemExit, match="has no way to write a colon"):
        preloading("/a:b/liboverdrive_autoload.so")


def test_the_preload_library_and_the_package_share_one_engine():
    code = ("import torch, overdrive\nx = torch.ones(2, requires_grad=True)\nx.exp().sum().backward()\n"
            "print(overdrive.installed(), overdrive.stats()['backwards'])")
    assert python(["-c", code], variables_of("overdrive")).stdout == "True 1\n"


@pytest.mark.parametrize("first", ["install", "uninstall", "installed"])
def test_the_package_may_come_first_under_the_preload_library(first):
    code = (f"import torch, overdrive\noverdrive.{first}()\nx = torch.ones(2, requires_grad=True)\nx.exp().sum().backward()\n"
            "print(overdrive.installed(), overdrive.stats()['backwards'])")
    expected = "False 0\n" if first == "uninstall" else "True 1\n"
    assert python(["-c", code], variables_of("overdrive")).stdout == expected


@pytest.mark.parametrize("call, words", [
    ("keep_memory(1 << 64)", "keep_memory: bytes is 18446744073709551616"), ("keep_memory(1.5)", "takes a whole number"),
    ("quantise(block=(1 << 64) + 64)", "quantise: block"), ("quantise(block='a')", "takes a whole number"),
    ("quantise(type=None)", "it takes a string"), ("saved_tensors(overdrive.keep).__enter__()", "call it"),
    ("saved_tensors('keep').__enter__()", "takes a packer"), ("stopping(seconds=-3).__enter__()", "it takes 0 and more"),
    ("saved_tensors(overdrive.keep(), min_bytes=-5).__enter__()", "min_bytes is -5")])
def test_arguments_without_sense_are_errors_that_say_so(call, words):
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        eval(f"overdrive.{call}", {"overdrive": overdrive})


def test_the_command_keeps_the_interpreters_options_and_the_switch(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, torch\ntorch.ones(1, requires_grad=True).exp().backward()\nprint(sys.flags.optimize)\n")
    done = python(["-O", "-m", "overdrive", script], {"OVERDRIVE": "0"})
    assert done.stdout == "1\n" and "runs on stock" in done.stderr
    compared = python(["-m", "overdrive", "compare", script], {"OVERDRIVE_VERBOSE": "1"})
    assert "DIFFERS" not in compared.stdout


SELF_SWITCHED = """
import overdrive, torch
with overdrive.engine():
    torch.ones(1, requires_grad=True).exp().backward()
overdrive.install()
torch.ones(1, requires_grad=True).exp().backward()
print(overdrive.installed(), overdrive.stats()["backwards"], overdrive.stats()["installs_held_off"])
"""


def test_overdrive_zero_holds_off_a_program_that_switches_itself(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SELF_SWITCHED)
    assert python([script]).stdout == "True 2 0\n"
    assert python([script], {"OVERDRIVE": "0"}).stdout == "False 0 2\n"
    # So the comparison's first run is stock's.
    done = python(["-m", "overdrive", "compare", script], check=False)
    assert "-False 0 2" in done.stdout and "+True 2 0" in done.stdout


@pytest.mark.parametrize("switch", ["0", "1"])
def test_a_bad_value_is_an_error_whether_overdrive_is_on_or_off(switch):
    variables = {"OVERDRIVE": switch, "OVERDRIVE_VERBOSE": "yes"}
    code = "import torch, overdrive\ntry:\n    overdrive.install()\nexcept overdrive.OverdriveError as e:\n    print(e)"
    words = 'OVERDRIVE_VERBOSE is "yes", but must be one of 0|1|2.'
    assert words in python(["-c", code], variables).stdout
    program = ["-c", "import torch\ntorch.ones(1, requires_grad=True).exp().backward()"]
    for arguments in (["-m", "overdrive", *program], program):
        done = python(arguments, {**variables_of("overdrive"), **variables}, check=False)
        # No program ends for an engine: it runs on stock, and a line says why.
        assert done.returncode == 0 and done.stderr.endswith(f"overdrive: not installed, the stock engine stays: {words}\n")


def test_a_switch_that_is_neither_on_nor_off_is_an_error():
    words = 'OVERDRIVE is "of", but must be one of 0|1.'
    for arguments in (["-m", "overdrive", "-c", "0"], ["-m", "overdrive", "compare", "-c", "0"]):
        done = python(arguments, {"OVERDRIVE": "of"}, check=False)
        assert done.returncode == 2 and done.stderr == f"overdrive: {words}\n" and done.stdout == ""
    done = python(["-c", "import overdrive; overdrive.install()"], {"OVERDRIVE": "of"}, check=False)
    assert f"OverdriveError: {words}" in done.stderr


SCRIPT = """
import sys, torch
torch.manual_seed(0)
x = torch.randn(4, requires_grad=True)
(x.exp() * x).sum().backward()
print(sys.argv[1:], [v.hex() for v in x.grad.tolist()], __name__)
sys.exit(3 if "fail" in sys.argv else 0)
"""


def test_the_command_runs_a_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = python(["-m", "overdrive", script, "a", "--b"], {"OVERDRIVE_VERBOSE": "1"})
    assert "['a', '--b']" in done.stdout and "__main__" in done.stdout
    assert "1 backward on Overdrive" in done.stderr
    assert python(["-m", "overdrive", script, "fail"], check=False).returncode == 3
    assert "['x'] " in python(["-m", "overdrive", "-c", SCRIPT, "x"]).stdout
    assert python(["-m", "overdrive"], check=False).returncode == 2


def test_the_command_compares_a_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = python(["-m", "overdrive", "compare", "--runs", "2", script, "a"])
    assert "output: equal" in done.stdout and "CPU time" in done.stdout and "peak memory" in done.stdout
    assert done.stderr.count("run 2 of 2") == 2
    script.write_text("import os\nprint(os.environ['OVERDRIVE'])\n")
    done = python(["-m", "overdrive", "compare", script], check=False)
    assert done.returncode == 1 and "output DIFFERS" in done.stdout and "-0" in done.stdout and "+1" in done.stdout


def test_the_command_says_when_a_comparison_means_nothing(tmp_path):
    # Nothing of PyTorch in it: the processes start at once.
    failing = python(["-m", "overdrive", "compare", "-c", "import sys; sys.exit('no data here')"], check=False)
    assert failing.returncode == 1
    assert "exit status: 1 on both" in failing.stdout and "    no data here" in failing.stdout
    itself = python(["-m", "overdrive", "compare", "-c", "import os; print(os.getpid())"], check=False)
    assert itself.returncode == 1 and "differs between two runs on stock too" in itself.stdout
    assert "the outputs differ: once more on stock" in itself.stderr
    for bad in (["--runsx", "3"], ["--runs"], ["--runs=0"], ["--rounds", "2"], []):
        done = python(["-m", "overdrive", "compare", *bad], check=False)
        assert done.returncode == 2 and "overdrive: " in done.stderr.splitlines()[-1], bad


def test_an_interrupted_comparison_ends_its_program(tmp_path):
    begun = tmp_path / "begun"
    code = f"import os, time\nopen({str(begun)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OVERDRIVE")}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    with subprocess.Popen([sys.executable, "-m", "overdrive", "compare", "-c", code], stderr=subprocess.PIPE, text=True,
                          env=environment) as command:
        while not (begun.exists() and begun.read_text()):
            assert command.poll() is None
            time.sleep(0.01)
        command.send_signal(signal.SIGINT)
        assert command.communicate(timeout=60)[1].splitlines()[-1] == "overdrive: interrupted"
    assert command.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)


def training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.5), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    x = torch.randn(16, 6)

    def step():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    return model, optimizer, step


def test_compare_finds_equal_bits_and_puts_everything_back(capfd):
    model, optimizer, step = training()
    before = [p.detach().clone() for p in model.parameters()]
    random = torch.get_rng_state()
    result = overdrive.compare(step, steps=4, rounds=3, progress=True)
    assert result.equal, result.differences
    assert result.cpu_ratio > 0 and result.cpu_interval[0] <= result.cpu_ratio <= result.cpu_interval[1]
    assert "bits      equal" in str(result)
    assert capfd.readouterr().err.count("round") == 3
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    assert torch.equal(random, torch.get_rng_state()) and not optimizer.state and not overdrive.installed()


def test_compare_finds_a_difference():
    model, _, step = training()

    def differs():
        loss = step()
        if overdrive.installed():
            with torch.no_grad():
                model[0].bias[0] += 1e-6
        return loss

    result = overdrive.compare(differs, steps=3, rounds=1, state={"model": model})
    assert not result.equal and any("model.0.bias" in d for d in result.differences)


class Noisy(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.dropout(x.tanh() * x, 0.2)


@pytest.mark.parametrize("how", [{}, {"segments": 4}, {"segments": 100}, {"revolve": 1}, {"revolve": 3}, {"revolve": 99}])
def test_checkpoint_sequential(how):
    def gradients(run):
        torch.manual_seed(0)
        layers = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(4, 4), Noisy()) for _ in range(11)])
        x = torch.randn(3, 4, requires_grad=True)
        run(layers, x).square().sum().backward()
        return [x.grad, *[p.grad for p in layers.parameters()]]

    expected = gradients(lambda layers, x: layers(x))
    with overdrive.engine():
        actual = gradients(lambda layers, x: overdrive.checkpoint_sequential(layers, x, **how))
    assert all(torch.equal(a, b) for a, b in zip(expected, actual))


def test_checkpoint_sequential_runs_no_layer_more_often_than_the_schedule_says():
    @functools.lru_cache(maxsize=None)
    def extra(layers, states):
        if layers <= 1:
            return 0
        if states == 1:
            return layers * (layers - 1) // 2
        return min(split + extra(layers - split, states - 1) + extra(split, states) for split in range(1, layers))

    for states in (1, 2, 3, 5):
        runs = [0]

        def layer(x):
            runs[0] += 1
            return x.sin()

        x = torch.ones(2, requires_grad=True)
        overdrive.checkpoint_sequential([layer] * 12, x, revolve=states).sum().backward()
        # All run once forward and once with a graph; what is beyond that is the schedule's.
        assert runs[0] <= 2 * 12 + extra(12, states), (states, runs)
    with pytest.raises(ValueError, match="segments or revolve"):
        overdrive.checkpoint_sequential([layer], x, segments=2, revolve=2)
    with pytest.raises(ValueError, match="revolve=0"):
        overdrive.checkpoint_sequential([layer], x, revolve=0)


def test_checkpoint_sequential_plans_long_chains_at_once():
    for layers, states in ((300, 300), (500, 240)):
        x = torch.ones(2, requires_grad=True)
        overdrive.checkpoint_sequential([torch.sin] * layers, x, revolve=states).sum().backward()
        expected = torch.ones(2, requires_grad=True)
        value = expected
        for _ in range(layers):
            value = value.sin()
        value.sum().backward()
        assert torch.equal(x.grad, expected.grad)


@pytest.mark.parametrize("name", sorted(m.name for m in pkgutil.walk_packages(overdrive.__path__, "overdrive.")
                                       if m.name != "overdrive.__main__" and not m.name.startswith("overdrive.integrations.")))
def test_the_examples_in_the_documentation(name):
    module = importlib.import_module(name)
    torch.manual_seed(0)
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("document", ["README.md", "docs/guide/python.md", "docs/guide/capturing.md",
                                      "docs/guide/not_faster.md", "docs/guide/step_files.md", "docs/recipes/second_derivatives.md"])
def test_the_python_of_the_documents_runs(document, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.S)
    assert blocks
    overdrive.reset_stats()
    exec(compile("\n".join(blocks), document, "exec"), {"__name__": "document"})
    if not re.search("captur|recipes|step_files", document):  # whose blocks look at their own counts
        assert overdrive.stats()["backwards"] > 0


def test_everything_public_is_documented():
    for name in overdrive.__all__:
        assert getattr(overdrive, name).__doc__, name


def test_the_package_has_no_other_name_for_what_python_has():
    assert (Path(overdrive.__file__).parent / "py.typed").exists()
    assert sys.modules["overdrive"].__version__
