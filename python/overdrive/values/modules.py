"""What stands in PyTorch's modules and on its tensors, as values: parameters, buffers, children and hooks."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from overdrive.values.read import ENTRY, KIND, VALUES, Read


def is_scripted(module: Any) -> bool:
    """Made by TorchScript, which keeps what the module has where no guard looks."""
    import torch

    return isinstance(module, torch.jit.ScriptModule)


_IN_MODULES = ("_parameters", "_buffers", "_modules", "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks",
               "_compiled_call_impl")


def structure_of(modules: Iterable[Any]) -> list[Read]:
    """Parameters, buffers, children and hooks of modules, and the hooks of all modules."""
    import torch.nn.modules.module as every

    reads = [Read(VALUES, hooks, None, "the hooks of all modules")
             for hooks in (every._global_forward_pre_hooks, every._global_forward_hooks,
                           every._global_backward_pre_hooks, every._global_backward_hooks)]
    for module in modules:
        name = f"a parameter, buffer, child or hook of {type(module).__name__}"
        for inside in (module._parameters, module._buffers, module._modules, module._forward_pre_hooks,
                       module._forward_hooks, module._backward_pre_hooks, module._backward_hooks):
            reads.append(Read(VALUES, inside, None, name))
        # Each of these by its place, too: __setstate__() and module.__dict__.update() put others there.
        reads += [Read(ENTRY, module.__dict__, key, name) for key in _IN_MODULES]
        reads.append(Read(ENTRY, module.__dict__, "forward", f"forward() of {type(module).__name__}"))
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
