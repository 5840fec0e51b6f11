"""Where the package works: systems, versions of Python, and the PyTorch that is installed, which may change under the package."""
import ast
import shutil
import sys
import types
from pathlib import Path

import pytest
from conftest import python

import overdrive

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "python" / "overdrive").glob("*.py"))
SYSTEMS = {
    "macOS": "sys.platform = 'darwin'",
    "Windows": "sys.platform = 'win32'",
    "freebsd14": "sys.platform = 'freebsd14'",
    "a Python of 32 bits": "sys.maxsize = 2**31 - 1",
    "a processor of the kind riscv64": "os.uname = lambda: os.uname_result(('Linux', 'here', '6', '1', 'riscv64'))",
    "Linux without glibc": "def confstr(name): raise ValueError('unrecognized configuration name')\nos.confstr = confstr",
    "a free-threaded Python": "sysconfig.get_config_var = lambda name: name == 'Py_GIL_DISABLED'",
    "glibc 2.17": "os.confstr = lambda name: 'glibc 2.17'",
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_that_no_build_works_on_is_one_sentence(system):
    # What the package imports is imported before, as this system knows it.
    before = "import ctypes, importlib.metadata, subprocess, sysconfig, tempfile, threading, statistics\n"
    done = python(["-c", f"{before}import os, sys\n{SYSTEMS[system]}\nimport overdrive"], check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == ("ImportError: overdrive works on Linux with glibc 2.28 or newer, on x86-64 and "
                                            f"64-bit ARM, and this is {system}.")


@pytest.mark.parametrize("name, version", [("cpython", (3, 15)), ("cpython", (3, 9)), ("pypy", (3, 11))])
@pytest.mark.parametrize("make", ["capture", "captured"])
def test_a_python_that_was_not_tried_is_told_before_the_first_capture(monkeypatch, make, name, version):
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    monkeypatch.setattr(sys, "implementation", types.SimpleNamespace(name=name))
    with pytest.raises(overdrive.OverdriveError, match=f"tried with CPython 3.10 to 3.14, and this is {name} 3.{version[1]},"):
        getattr(overdrive, make)(lambda x: x)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_the_oldest_python_reads_the_package(source):
    ast.parse(source.read_text(), feature_version=(3, 10))


@pytest.fixture
def copied(tmp_path):
    """The package with libraries for five versions of PyTorch, all of them this build's, beside a PyTorch that only has a version."""
    package = tmp_path / "overdrive"
    package.mkdir()
    for source in SOURCES:
        shutil.copy(source, package)
    built = Path(overdrive._library.folder()).resolve()
    for minor in ("2.9", "2.11", "2.12", "2.13", "2.15"):
        (package / f"torch{minor}").symlink_to(built)

    def imported(version, code="print(overdrive._library.folder())"):
        """What a new process says after PyTorch became this version."""
        shutil.rmtree(tmp_path / "site", ignore_errors=True)
        facts = tmp_path / "site" / f"torch-{version}.dist-info"
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        # Without the PyTorch of the tests, which Python would find as well.
        return python(["-S", "-c", f"import overdrive\n{code}"], {"PYTHONPATH": f"{tmp_path}:{tmp_path / 'site'}"}, check=False)

    return imported


def test_a_pytorch_that_is_replaced_has_its_own_library_in_the_next_process(copied):
    for version, minor in (("2.13.0+cpu", "2.13"), ("2.15.0+cu132", "2.15"), ("2.15.1", "2.15"), ("2.11.0", "2.11")):
        done = copied(version)
        assert done.stdout.strip().endswith(f"/torch{minor}"), done.stderr


@pytest.mark.parametrize("version", ["2.10.0", "2.16.0", "2.16.0a0+git1234", "3.0.0"])
def test_a_pytorch_without_a_library_is_told_which_there_are(copied, version):
    done = copied(version)
    assert done.returncode == 1
    assert f"ImportError: overdrive was built for torch 2.9, 2.11, 2.12, 2.13, 2.15, and this is torch {version}." in done.stderr


def test_no_pytorch_is_told_how_to_get_one(copied, tmp_path):
    done = python(["-S", "-c", "import overdrive"], {"PYTHONPATH": str(tmp_path)}, check=False)
    assert done.stderr.splitlines()[-1] == "ImportError: overdrive needs PyTorch, which is not installed: pip install torch"
