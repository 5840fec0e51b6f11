"""Hooks of a Python process: they work where no scope of ours is open, and where both are the innermost decides.
Ours serve Python's own backward too, but not compiled autograd."""
import ctypes
import sys

import torch
from torch._dynamo import compiled_autograd

overdrive = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
plugin = ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL)


def check(condition, what):
    if not condition:
        sys.exit("FAILED: " + what)


check(overdrive.overdrive_install() == 1, "install")
x = torch.ones(3, requires_grad=True)
packed = []
pythons = torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t)

with pythons:
    y = (x * 2).exp().sum()
y.backward()
check(len(packed) > 0 and plugin.pack_count() == 0, "Python's hooks alone")

plugin.open_scope()
y = (x * 2).exp().sum()
plugin.close_scope()
y.backward()
check(plugin.pack_count() == 1, "ours alone")
check(torch.allclose(x.grad, 4 * (torch.ones(3) * 2).exp()), "gradients")

del packed[:]
plugin.open_scope()
with pythons:
    (x * 2).exp().sum().backward()
check(packed and plugin.pack_count() == 1, "Python's inside ours")
(x * 2).exp().sum().backward()
check(plugin.pack_count() == 2, "ours again")
plugin.close_scope()

del packed[:]
with pythons:
    plugin.open_scope()
    (x * 2).exp().sum().backward()
    plugin.close_scope()
    check(not packed and plugin.pack_count() == 3, "ours inside Python's")
    (x * 2).exp().sum().backward()
check(packed and plugin.pack_count() == 3, "Python's again")

try:
    with torch.autograd.graph.disable_saved_tensors_hooks("no hooks in here"):
        with pythons:
            check(False, "disabling")
except RuntimeError as error:
    check("no hooks in here" in str(error), "disabling: " + str(error))
# Compiled autograd takes hooks of Python only (LibTorch's rule). It says so, and the graph is as it was.
x.grad = None
plugin.open_scope()
y = (x * 2).exp().sum()
plugin.close_scope()
try:
    with compiled_autograd._enable(lambda graph: graph):
        y.backward()
    check(False, "compiled autograd ran a graph of ours")
except RuntimeError as error:
    check("only supports python saved tensor hooks" in str(error), "compiled autograd: " + str(error))
y.backward()
check(torch.equal(x.grad, 2 * (torch.ones(3) * 2).exp()), "the graph that compiled autograd refused")
with compiled_autograd._enable(lambda graph: graph):
    (x * 2).exp().sum().backward()
check(torch.equal(x.grad, 4 * (torch.ones(3) * 2).exp()), "compiled autograd without hooks")
check(overdrive.overdrive_uninstall() == 1, "uninstall")
