"""Where the package works: systems, versions of Python, and the PyTorch that is installed, which may change under the package."""
import ast
import dis
import shutil
import sys
import types
from pathlib import Path

import pytest
from conftest import python

import overdrive
from overdrive.reads.steps import _OLD_OPERATORS, steps_of

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "python" / "overdrive").rglob("*.py"))
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


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "python")))
def test_the_oldest_python_reads_the_package(source):
    ast.parse(source.read_text(), feature_version=(3, 10))


@pytest.fixture
def copied(tmp_path):
    """The package with libraries for five versions of PyTorch, all of them this build's, beside a PyTorch that only has a version."""
    package = tmp_path / "overdrive"
    shutil.copytree(ROOT / "python" / "overdrive", package, ignore=shutil.ignore_patterns("__pycache__"))
    built = Path(overdrive.native.library.folder()).resolve()
    for minor in ("2.9", "2.11", "2.12", "2.13", "2.15"):
        (package / f"torch{minor}").symlink_to(built)

    def imported(version, code="print(overdrive.native.library.folder())"):
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


class Read:
    """Functions whose instructions differ from version to version."""

    def key_in_all_fields(self, key):
        return key in self.__dict__

    def part_of(self, x):
        return x[1:self.k]

    def of_super(self):
        return super().k + 1

    def item(self, x):
        y = x[3]
        return y

    def keywords(self, x):
        return x.call(self, k=x)


INSTRUCTIONS = {
    "key_in_all_fields": "LOAD_FAST key, LOAD_FAST self, LOAD_ATTR __dict__, CONTAINS_OP, RETURN_VALUE",
    "part_of": "LOAD_FAST x, LOAD_CONST 1, LOAD_FAST self, LOAD_ATTR k, BUILD_SLICE, BINARY_SUBSCR, RETURN_VALUE",
    "of_super": "LOAD_GLOBAL super, LOAD_DEREF __class__, LOAD_FAST self, CALL, LOAD_ATTR k, LOAD_CONST 1, BINARY_OP, RETURN_VALUE",
    "item": "LOAD_FAST x, LOAD_CONST 3, BINARY_SUBSCR, STORE_FAST y, LOAD_FAST y, RETURN_VALUE",
    "keywords": "LOAD_FAST x, LOAD_METHOD call, LOAD_FAST self, LOAD_FAST x, KW_NAMES, CALL, RETURN_VALUE",
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_instructions_of_all_versions_are_read_as_those_of_one(name):
    steps = [f"{step.opname} {step.argval}" if step.opname.startswith(("LOAD", "STORE")) else step.opname
             for step in steps_of(getattr(Read, name).__code__)]
    expected = INSTRUCTIONS[name]
    if name == "of_super" and sys.version_info < (3, 12):
        expected = expected.replace("LOAD_DEREF __class__, LOAD_FAST self, ", "")
    if name == "keywords" and sys.version_info < (3, 11):  # a method that gets keywords is an attribute there
        expected = expected.replace("LOAD_METHOD", "LOAD_ATTR")
    assert ", ".join(steps) == expected


# Of 3.10 to 3.14, instructions that have to do with names and values.
KNOWN = {f"{kind}_{name}" for kind in ("BINARY", "INPLACE") for name in _OLD_OPERATORS} | set("""
    BINARY_OP BINARY_SLICE BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_SLICE CALL CALL_FUNCTION CALL_FUNCTION_EX CALL_FUNCTION_KW CALL_INTRINSIC_1
    CALL_INTRINSIC_2 CALL_KW CALL_METHOD COMPARE_OP DELETE_ATTR DELETE_DEREF DELETE_FAST DELETE_GLOBAL DELETE_NAME DELETE_SUBSCR IMPORT_FROM
    IMPORT_NAME IMPORT_STAR KW_NAMES LOAD_ATTR LOAD_CLASSDEREF LOAD_COMMON_CONSTANT LOAD_CONST LOAD_DEREF LOAD_FAST LOAD_FAST_AND_CLEAR
    LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS
    LOAD_GLOBAL LOAD_METHOD LOAD_NAME LOAD_SMALL_INT LOAD_SUPER_ATTR PRECALL RETURN_CONST SET_FUNCTION_ATTRIBUTE STORE_ATTR STORE_DEREF
    STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST STORE_GLOBAL STORE_NAME STORE_SLICE STORE_SUBSCR""".split())


def test_this_python_has_no_instruction_of_values_that_was_not_looked_at():
    kinds = ("FAST", "GLOBAL", "NAME", "ATTR", "DEREF", "SUBSCR", "SLICE", "CALL", "METHOD", "CONST", "SMALL", "BINARY", "COMPARE", "IMPORT")
    names = {name for name, number in dis.opmap.items() if number < 256 and any(kind in name for kind in kinds)}
    names = {name for name in names - set(getattr(dis, "_specialized_opmap", ())) if not name.startswith("INSTRUMENTED_")}
    assert names <= KNOWN
