"""Samples of PyTorch's databases: their tensors taken out, made anew with other data, and compared bit by bit."""
from __future__ import annotations

import ctypes
import random

import torch


class Hole:
    """The place of a tensor in the arguments of a sample."""

    def __init__(self, index):
        self.index = index


def mapped(value, take):
    """The value with `take(tensor)` for each tensor in it."""
    if isinstance(value, torch.Tensor):
        return take(value)
    if type(value) in (list, tuple):
        return type(value)(mapped(part, take) for part in value)
    if type(value) is dict:
        return {key: mapped(part, take) for key, part in value.items()}
    if isinstance(value, tuple):  # a named tuple of results
        return tuple(mapped(part, take) for part in value)
    return value


def tensors_of(value):
    found = []
    mapped(value, found.append)
    return found


def filled(value, tensors):
    """The value with `tensors` in its holes."""
    if isinstance(value, Hole):
        return tensors[value.index]
    if type(value) in (list, tuple):
        return type(value)(filled(part, tensors) for part in value)
    if type(value) is dict:
        return {key: filled(part, tensors) for key, part in value.items()}
    return value


class Sample:
    """Positional and named arguments. A tensor that stands at two places is one tensor."""

    def __init__(self, args, kwargs):
        self.tensors = []
        self.arguments = mapped((tuple(args), dict(kwargs)), self._take)

    def _take(self, tensor):
        for index, known in enumerate(self.tensors):
            if known is tensor:
                return Hole(index)
        self.tensors.append(tensor)
        return Hole(len(self.tensors) - 1)

    def look(self):
        return [(tuple(t.shape), t.dtype, t.stride(), t.storage_offset(), t.requires_grad) for t in self.tensors]

    def is_plain(self):
        return all(type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout == torch.strided and t.device.type == "cpu"
                   and not t.is_quantized for t in self.tensors)

    def wants(self):
        return [t.requires_grad for t in self.tensors]

    def fresh(self):
        """Tensors of their own, with the strides of the sample's."""
        made = []
        for tensor in self.tensors:
            whole = tensor.detach().as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
            made.append(whole.clone().as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()))
        return made


def draws(make, count, most):
    """Lists of `count` samples that differ in their data alone, at most `most` of them; `make()` draws all samples once."""
    drawn = []
    for seed in range(1, count + 1):
        torch.manual_seed(seed)
        random.seed(seed)
        drawn.append([sample for sample, _ in zip(make(), range(400))])
    rows = list(zip(*drawn))
    return rows if len(rows) <= most else random.Random(0).sample(rows, most)


def bits(tensor):
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(plain.data_ptr(), plain.nbytes) if plain.nbytes else b""


def difference(want, got):
    """What differs first in two lists of tensors and None, or ""."""
    if len(want) != len(got):
        return f"{len(want)} tensors and {len(got)}"
    for x, y in zip(want, got):
        if x is None or y is None:
            if x is not y:
                return f"{'none' if x is None else 'a tensor'} and {'none' if y is None else 'a tensor'}"
            continue
        if (x.shape, x.dtype, x.layout, x.requires_grad) != (y.shape, y.dtype, y.layout, y.requires_grad):
            return f"{x.dtype} {tuple(x.shape)} {x.requires_grad} and {y.dtype} {tuple(y.shape)} {y.requires_grad}"
        if x.layout == torch.strided and x.numel() and x.stride() != y.stride():
            return f"strides {x.stride()} and {y.stride()}"
        if bits(x) != bits(y):
            return f"eager {x.flatten()[:4].tolist()}, captured {y.flatten()[:4].tolist()}"
    return ""
