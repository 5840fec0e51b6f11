"""The wheel, installed into an empty environment. It holds no PyTorch; a .pth file shows the one that is here."""
import importlib.util
import io
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OVERDRIVE", "PYTHON", "LD_PRELOAD"))}
    done = subprocess.run([str(a) for a in arguments], env={**environment, **variables}, text=True, capture_output=True,
                          timeout=300)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if made := os.environ.get("OVERDRIVE_TEST_WHEEL"):  # tools/check_pythons.sh tries one with every Python
        return Path(made)
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, ROOT / "tools/make_wheel.py", folder, os.environ["OVERDRIVE_TEST_BUILD"])
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip()
    Path(site, "pytorch.pth").write_text(str(Path(torch.__file__).parents[1]))
    return python


def test_one_wheel_is_for_every_python_and_for_the_systems_that_pytorch_is_for(wheel):
    # auditwheel has looked. A newer compiler or C library than Debian 12's may make a wheel for newer systems.
    newer = tuple(map(int, platform.libc_ver()[1].split("."))) > (2, 36)
    tag = "manylinux_2_" if newer else f"manylinux_2_28_{platform.machine()}.whl"
    assert wheel.name.startswith(f"overdrive-0.2.0-py3-none-{tag}")


def test_it_brings_no_library_of_others(wheel):
    with zipfile.ZipFile(wheel) as archive:
        libraries = {Path(name).name for name in archive.namelist() if ".so" in name}
    assert libraries == {"liboverdrive.so", "liboverdrive_autoload.so"}


def test_a_build_says_first_that_it_compiles_and_for_how_long(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "python")
    import build_backend

    said = []
    monkeypatch.setattr(build_backend, "open", lambda *a: said.append(a) or io.StringIO(), raising=False)
    monkeypatch.setattr(build_backend._build, "build_wheel", lambda folder, settings, metadata: capsys.readouterr().err)
    monkeypatch.setattr(build_backend, "_check_compiler", lambda: None)
    monkeypatch.setenv("Torch_DIR", "/a/torch")
    assert "overdrive: compiles its library for this PyTorch on " in build_backend.build_wheel("folder")
    assert said == [("/dev/tty", "w")]
    assert build_backend.build_wheel("folder", {"cmake.define.OVERDRIVE_PREBUILT": "/built"}) == ""
    assert "on 2 processors, about 4 minutes." in build_backend._announcement(2)
    assert "on 64 processors, about 2 minutes." in build_backend._announcement(64)


def test_it_works_where_it_is_installed(installed):
    out = run(installed, "-c", "import overdrive, torch\noverdrive.install()\nx = torch.ones(2, requires_grad=True)\n"
                               "(x * x).sum().backward()\nprint(overdrive.__file__, x.grad.tolist(), overdrive.stats()['backwards'])")
    assert str(installed.parents[1]) in out and out.endswith(" [2.0, 2.0] 1\n")


def test_the_command_works_where_it_is_installed(installed, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import torch, overdrive\ntorch.ones(1, requires_grad=True).exp().backward()\n"
                      "print(overdrive.installed(), overdrive.stats()['backwards'])\n")
    assert run(installed, "-m", "overdrive", script) == "True 1\n"


def test_its_libraries_find_nothing_by_a_path_of_the_machine_that_built_them(installed):
    folder = Path(run(installed, "-c", "import overdrive; print(overdrive.native.library.folder())").strip())
    for library in folder.glob("*.so"):
        shown = run("readelf", "-d", library)
        paths = [line.rsplit("[", 1)[1].rstrip("]") for line in shown.splitlines() if "PATH)" in line]
        assert paths in ([], ["$ORIGIN"]), (library, paths)


def test_without_a_compiler_the_build_ends_in_one_sentence_before_anything_is_fetched():
    backend = Path(importlib.util.find_spec("scikit_build_core").origin).parents[1]
    for kind in ("wheel", "editable"):
        done = subprocess.run([sys.executable, "-c", f"import build_backend; build_backend.get_requires_for_build_{kind}()"],
                              env={"PATH": "/nonexistent", "PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{backend}"}, text=True, capture_output=True,
                              timeout=300)
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith("Overdrive is built from its sources, and there is no C++ compiler here (c++,")
        assert done.stderr.count("\n") == 1
