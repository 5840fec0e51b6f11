"""Overdrive in a process that holds Python, by the C functions alone: it serves Python's backwards, and all that goes
through the engine's seams (saved-tensor hooks, checkpoint, anomaly mode) goes on working."""
import ctypes
import json
import sys
import warnings

warnings.filterwarnings("ignore")
import torch  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

overdrive = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)


def stats():
    text = ctypes.create_string_buffer(65536)
    overdrive.overdrive_stats_json(text, len(text))
    return json.loads(text.value)


def check(condition, what):
    if not condition:
        sys.exit("FAILED: " + what)


check(overdrive.overdrive_install() == 1, "install")
check(overdrive.overdrive_installed() == 1, "installed")

x = torch.ones(3, requires_grad=True)
(x * x).sum().backward()
check(torch.equal(x.grad, torch.full((3,), 2.0)), "a plain backward")

packed, unpacked = [], []
with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: unpacked.append(1) or t):
    y = (x * x).sum()
y.backward()
check(len(packed) == 2 and len(unpacked) == 2, "saved_tensors_hooks")

with torch.autograd.graph.save_on_cpu():
    y = (x.exp() * x).sum()
y.backward()

layer = torch.nn.Linear(3, 3)
checkpoint(layer, x, use_reentrant=False).sum().backward()
checkpoint(layer, x, use_reentrant=True).sum().backward()
check(layer.weight.grad is not None, "checkpoint")

with torch.autograd.detect_anomaly(check_nan=True):
    zero = torch.zeros(1, requires_grad=True)
    try:
        (zero / zero).sum().backward()
        check(False, "anomaly mode saw no NaN")
    except RuntimeError as error:
        check("returned nan values" in str(error), "anomaly mode: " + str(error))

served = stats()
check(served["backwards"] >= 5 and not served["forwarded"], f"Overdrive served them: {served}")
check(overdrive.overdrive_uninstall() == 1, "uninstall")
check(overdrive.overdrive_installed() == 0, "not installed")
(x * x).sum().backward()
check(stats()["backwards"] == served["backwards"], "stock runs them again")
print("ok", stats())
