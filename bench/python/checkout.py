"""Lets `import overdrive` find the package of the checkout's build where none is installed."""
import importlib.util
import sys
from pathlib import Path

_BUILD = Path(__file__).resolve().parents[2] / "build" / "python"

if importlib.util.find_spec("overdrive") is None:
    if not (_BUILD / "overdrive" / "__init__.py").exists():
        sys.exit(f"overdrive is not installed, and {_BUILD} has no package: make build, or pip install .")
    sys.path.insert(0, str(_BUILD))
