"""scikit-build-core, told where PyTorch is.

pip builds in an environment of its own, which has no PyTorch. Overdrive must be built for the one that it will run with:
that of the environment which pip was started in, when it has one, so that no second PyTorch is fetched. Else the build
asks pip for the newest that Overdrive supports, as pip then does for the environment itself.
"""
import os
import shutil
import subprocess
import sys

from scikit_build_core.build import *  # noqa: F403
from scikit_build_core import build as _build

NEWEST = "torch>=2.11,<2.16"
# Without importing PyTorch, which takes seconds and may print.
_ASK = ("from importlib.util import find_spec; "
        "print(find_spec('torch').submodule_search_locations[0] + '/share/cmake/Torch')")


def _torch_of(arguments):
    """The CMake folder of the PyTorch that a Python started so would import, or ""."""
    done = subprocess.run([sys.executable, *arguments, "-c", _ASK], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _outside():
    # -E: without the variables by which pip hides the environment from its builds.
    return os.environ.get("Torch_DIR", "") or _torch_of(["-E"])


def _announcement(processors):
    """What the next minutes are for. Measured: eight minutes of one processor, and the longest source takes one."""
    minutes = max(2, round(8 / processors))
    return (f"overdrive: compiles its library for this PyTorch on {processors} processors, about {minutes} minutes. "
            "pip install -v shows each file; a wheel from `make wheel` needs no compiler.")


def _announce():
    # pip keeps what a build prints, unless it is called with -v. So the terminal is told, where there is one.
    text = _announcement(len(os.sched_getaffinity(0)))
    print(text, file=sys.stderr, flush=True)
    try:
        with open("/dev/tty", "w") as terminal:
            terminal.write(f"\n  {text}\n")
    except OSError:
        pass


def _is_prebuilt(settings):
    return any("OVERDRIVE_PREBUILT" in key for key in settings or {})


def _check_compiler():
    """Said before PyTorch is fetched, in one sentence: CMake's own words are twenty lines, and come after it."""
    names = os.environ.get("CXX", "").split()[:1] or ["c++", "g++", "clang++"]
    if not any(map(shutil.which, names)):
        raise SystemExit(f"Overdrive is built from its sources, and there is no C++ compiler here ({', '.join(names)}): install GCC 12 "
                         "or clang 16, or newer, for instance by sudo apt-get install g++")


def _with_torch(settings):
    settings = dict(settings or {})
    if not _is_prebuilt(settings):
        _check_compiler()
        folder = _outside() or _torch_of([])
        if not folder:
            raise RuntimeError("Overdrive is built against PyTorch, and there is none here: pip install torch, or "
                               "build without --no-build-isolation.")
        settings["cmake.define.Torch_DIR"] = folder
        _announce()
    return settings


def get_requires_for_build_wheel(config_settings=None):
    if not _is_prebuilt(config_settings):
        _check_compiler()
    needed = list(_build.get_requires_for_build_wheel(config_settings))
    if not _is_prebuilt(config_settings) and not _outside():
        needed.append(NEWEST)
    return needed


def get_requires_for_build_editable(config_settings=None):
    if not _is_prebuilt(config_settings):
        _check_compiler()
    needed = list(_build.get_requires_for_build_editable(config_settings))
    if not _outside():
        needed.append(NEWEST)
    return needed


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _build.build_wheel(wheel_directory, _with_torch(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _build.build_editable(wheel_directory, _with_torch(config_settings), metadata_directory)
