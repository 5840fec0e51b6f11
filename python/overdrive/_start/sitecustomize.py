"""Python imports this when it starts, because ``python -m overdrive --optimizers`` has put this folder first on its path.

The program, and each process that it starts, captures the optimizers that it makes. PyTorch is not imported for that: where the program imports
it, ``torch.optim.Optimizer`` is replaced. A ``sitecustomize`` that this one hides is run as ever, and the folder leaves ``sys.path``.
"""
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


class _Finder:
    """Knows one module, and only until it has found it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch.optim.optimizer":
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        if found is not None and found.loader is not None:
            run = found.loader.exec_module

            def run_and_capture(module: Any) -> None:
                run(module)
                _capture(module)

            found.loader.exec_module = run_and_capture  # type: ignore[method-assign]
        return found


def _capture(module: Any) -> None:
    try:
        _overdrive()
        from overdrive.step.optimizers_made import capture_made
    except ImportError as error:  # another Python, which the program starts
        print(f"overdrive: optimizers are not captured: {error}", file=sys.stderr, flush=True)
        return
    capture_made(module.Optimizer)


def _overdrive() -> None:
    """The package beside this folder, which need not be on the program's path."""
    if "overdrive" in sys.modules:
        return
    folder = os.path.dirname(_HERE)
    spec = importlib.util.spec_from_file_location("overdrive", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    assert spec is not None and spec.loader is not None
    sys.modules["overdrive"] = package = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(package)
    except BaseException:
        del sys.modules["overdrive"]
        raise


def _run_hidden() -> None:
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _HERE]
if os.environ.get("OVERDRIVE") != "0":
    sys.meta_path.insert(0, _Finder())
_run_hidden()
