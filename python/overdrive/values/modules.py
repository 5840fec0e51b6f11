"""What stands in PyTorch's modules and on its tensors, as values: parameters, buffers, children and hooks."""
from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import torch

from overdrive.values.read import ENTRY, KEYS, KIND, VALUES, Read


def is_scripted(module: Any) -> bool:
    """Made by TorchScript, which keeps what the module has where no guard looks."""
    return isinstance(module, torch.jit.ScriptModule)


# Dicts of modules whose keys are names, and dicts of hooks, with those of their flags, which nobody reads where there is no hook.
NAMED = ("_parameters", "_buffers", "_modules")
_HOOKS = {"_forward_pre_hooks": ("_forward_pre_hooks_with_kwargs",),
          "_forward_hooks": ("_forward_hooks_with_kwargs", "_forward_hooks_always_called"), "_backward_pre_hooks": (), "_backward_hooks": ()}
IN_MODULES = (*NAMED, *_HOOKS, "_compiled_call_impl")
FLAGS_OF_HOOKS = tuple(flags for each in _HOOKS.values() for flags in each)


def structure_of(modules: Iterable[Any], left: Container[tuple[int, int, Any]] = ()) -> list[Read]:
    """Parameters, buffers, children and hooks of modules, and the hooks of all modules. Without buffers at places that calls give tensors."""
    import torch.nn.modules.module as every

    reads = [Read(VALUES, hooks, None, "the hooks of all modules")
             for hooks in (every._global_forward_pre_hooks, every._global_forward_hooks,
                           every._global_backward_pre_hooks, every._global_backward_hooks)]
    for module in modules:
        name = f"a parameter, buffer, child or hook of {type(module).__name__}"
        entries = module.__dict__
        for key in (*NAMED, *_HOOKS):
            if key == "_buffers" and any((ENTRY, id(entries[key]), each) in left for each in entries[key]):
                reads += [Read(ENTRY, entries[key], each, name) for each in entries[key] if (ENTRY, id(entries[key]), each) not in left]
            else:
                reads.append(Read(VALUES, entries[key], None, name))
            if entries[key]:
                reads.append(Read(KEYS, entries[key], None, f"the name of {name}"))
        for key in _HOOKS:
            reads += [Read(kind, entries[flags], None, f"the flags of {name}") for flags in _HOOKS[key] if entries[key] for kind in (KEYS, VALUES)]
        # Each of these by its place, too: __setstate__() and module.__dict__.update() put others there.
        reads += [Read(ENTRY, entries, key, name) for key in IN_MODULES]
        reads.append(Read(ENTRY, entries, "forward", f"forward() of {type(module).__name__}"))
        reads.append(Read(KIND, module, None, f"the class of {type(module).__name__}"))
        for parameter in module._parameters.values():
            reads.extend(hooks_of(parameter, name))
    return reads


def hooks_of(tensor: Any, name: str) -> list[Read]:
    """Its hooks in Python: C++ sees one object for all hooks of a tensor, and sees it come."""
    if tensor is None:
        return []
    return [Read(VALUES, hooks, None, f"a hook of {name}")
            for hooks in (tensor._backward_hooks, tensor._post_accumulate_grad_hooks) if isinstance(hooks, dict)]
