"""What a namespace holds, as values that two namespaces can be compared by, bit by bit.

Tensors count by shape, type, strides, bits, gradient, and by the first place where the same tensor or the same memory stands.
Modules, optimizers, containers and objects of the program's own classes count by what is in them. Functions, classes
and names with an underscore in front do not count: what a captured function counts itself is one of the guide's limits.
"""
from __future__ import annotations

import ctypes
import types

import torch

PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.Size)
FRESH = "out"  # results of captured steps: tensors that share no memory, where eager's may
UNSEEN = (types.FunctionType, types.ModuleType, types.BuiltinFunctionType, types.MethodType, type)


def bits(tensor):
    if tensor.layout != torch.strided:
        return bits(tensor.coalesce().indices()) + bits(tensor.coalesce().values())
    kept = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(kept.data_ptr(), kept.nbytes) if kept.nbytes else b""


class Facts:
    """{place: fact} of a namespace, e.g. {"net.weight": ..., "out[0]": ...}."""

    def __init__(self, namespace):
        self.found, self._tensors, self._memory, self._objects, self._kept = {}, {}, {}, {}, []
        for name in sorted(namespace):
            if not name.startswith("_"):
                self._add(name, namespace[name])
        self._tensors = self._memory = self._objects = self._kept = None  # nothing of the program is held

    def _add(self, place, value):
        if isinstance(value, torch.Tensor):
            self._add_tensor(place, value)
        elif isinstance(value, PLAIN):
            self.found[place] = repr(value)
        elif isinstance(value, UNSEEN):
            pass
        elif id(value) in self._objects:
            self.found[place] = f"the object at {self._objects[id(value)]}"
        else:
            self._objects[id(value)] = place
            self._kept.append(value)  # so that no other object gets its id
            self._add_object(place, value)

    def _add_object(self, place, value):
        if isinstance(value, torch.nn.Module):
            self._add_module(place, value)
        elif isinstance(value, torch.optim.Optimizer):
            self._add(f"{place} groups", [{k: v for k, v in group.items() if k != "params"} for group in value.param_groups])
            self._add(f"{place} state", [dict(value.state[p]) for group in value.param_groups for p in group["params"] if p in value.state])
        elif isinstance(value, dict):
            self.found[place] = f"{type(value).__name__} of {[k for k in value if isinstance(k, PLAIN)]}"
            for key, part in value.items():
                if isinstance(key, PLAIN):
                    self._add(f"{place}[{key!r}]", part)
        elif isinstance(value, (list, tuple)):
            self.found[place] = f"{type(value).__name__} of {len(value)}"
            for index, part in enumerate(value):
                self._add(f"{place}[{index}]", part)
        elif type(value).__module__ == "program":
            self.found[place] = type(value).__name__
            for name, part in sorted(vars(value).items()):
                if not name.startswith("_"):
                    self._add(f"{place}.{name}", part)

    def _add_module(self, place, module):
        self.found[place] = f"{type(module).__name__}, training={module.training}"
        for table in (module._parameters, module._buffers, module._modules):
            for name, part in table.items():
                self._add(f"{place}.{name}", part)
        for name, part in sorted(vars(module).items()):
            if not name.startswith("_") and name != "training":
                self._add(f"{place}.{name}", part)

    def _add_tensor(self, place, tensor):
        if id(tensor) in self._tensors:
            self.found[place] = f"the tensor at {self._tensors[id(tensor)]}"
            return
        self._tensors[id(tensor)] = place
        strides = tensor.stride() if tensor.layout == torch.strided and tensor.numel() > 1 else ()
        memory = tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided and tensor.numel() else None
        known = place if memory is None else self._memory.setdefault(memory, place)
        shared = place if FRESH in (place[:3], known[:3]) else known
        self.found[place] = (type(tensor).__name__, tuple(tensor.shape), str(tensor.dtype), strides, tensor.requires_grad, tensor.is_leaf,
                             "" if shared == place else f"memory of {shared}", bits(tensor))
        if tensor.is_leaf:
            self._add(f"{place}.grad", tensor.grad)


def shown(fact):
    """A fact as text. Of the bits, the first values."""
    if not isinstance(fact, tuple):
        return str(fact)
    kind, shape, dtype, strides, requires, leaf, shared, raw = fact
    values = list(memoryview(raw[:16]).cast("f")) if dtype == "torch.float32" and raw else raw[:16].hex()
    return f"{kind}{list(shape)} {dtype} strides={strides} requires_grad={requires} leaf={leaf} {shared} {values}"


def first_difference(want, got):
    """Of two {place: fact}, or ""."""
    for place in sorted({*want, *got}, key=lambda name: (name != "error", name)):
        a, b = want.get(place, "nothing"), got.get(place, "nothing")
        if a != b:
            return f"{place}: eager {shown(a)} | captured {shown(b)}"
    return ""
