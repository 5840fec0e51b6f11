"""Places that no guard looks at, by the guide's own words (docs/guide/capturing.md, *Not seen*, and *From Python*). Each row counts what it excuses."""
from __future__ import annotations

import builtins
import dataclasses
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from overdrive.reads.code import file_of
from overdrive.reads.owners import kind_of
from overdrive.reads.torch_reads import is_torchs
from overdrive.step.learn import _WRITTEN_FIRST
from overdrive.values.same import is_number

from places import MISSING, Gone, Place

_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodType,
         types.GetSetDescriptorType, types.MemberDescriptorType, property, classmethod, staticmethod)
# Those that a recording asks for by other means, or that no tensor depends on.
_KNOWN = set("""
    logging.DEBUG torch._VF.vf torch.autograd.graph.log torch.autograd.variable._execution_engine torch.preserve_format torch.nn.modules.module._global_backward_hooks
    torch.nn.modules.module._global_backward_pre_hooks torch.nn.modules.module._global_forward_hooks
    torch.nn.modules.module._global_forward_pre_hooks""".split())
_OF_MODULES = frozenset(torch.nn.Module().__dict__)


def _module_of(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, dict):
        return str(value.get("__name__", ""))
    return str(getattr(value, "__module__", "") or "") if isinstance(value, (type, types.FunctionType)) else ""


def _is_of_the_library(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and (name in sys.builtin_module_names or kind_of(file_of(module) or "<frozen") != "user")


def _of_torch(place: Place) -> bool:
    """PyTorch's own variables, classes and functions, beside the functions that a program may patch: torch_reads.py says which."""
    if place.by_torch and place.owner is place.holder and isinstance(place.holder, (dict, list, set)):
        return True  # a container that nothing of the program's led to
    return is_torchs(_module_of(place.owner)) or is_torchs(_module_of(place.holder))


def _of_torchs_objects(place: Place) -> bool:
    """Objects that PyTorch's own Python makes: of its modules, optimizers, schedulers and distributions the numbers are looked at."""
    kind = type(place.owner)
    if not is_torchs(kind.__module__) or not place.by_torch and not isinstance(place.owner, torch.nn.Module):
        return False
    return place.kind == "class" or kind_of(file_of(sys.modules.get(kind.__module__))) != "nn"


def _of_library(place: Place) -> bool:
    """*settings of the standard library, functions of it that are patched*"""
    if place.kind == "code":
        return kind_of(place.holder.__code__.co_filename) != "user"
    if place.holder is sys.modules:
        return _is_of_the_library(str(place.key))
    return _is_of_the_library(_module_of(place.owner)) or place.holder is vars(builtins) or (
        type(place.owner).__module__ == "logging" or type(place.owner).__module__ == "os" and place.kind in ("class", "dict", "absent"))


def _of_modules(place: Place) -> bool:
    """Dicts that every module has, whose contents are guarded as its structure."""
    module, key = place.owner, place.key
    if isinstance(module, torch.nn.Module) and any(place.holder is vars(module).get(name) for name in _OF_MODULES - {"training"}):
        return place.by_torch
    if not isinstance(module, torch.nn.Module) or key == "training" or not any(
            place.holder is each for each in (vars(module), module._parameters, module._buffers, module._modules)):
        return False
    if place.kind == "absent":
        if place.by_torch and not callable(getattr(type(module), str(key), None)):
            return True
        known = {*module._parameters, *module._buffers, *module._modules}
        return key in known or hasattr(torch.nn.Module, str(key)) and not callable(getattr(torch.nn.Module, key)) and key != "forward"
    return place.kind in ("entry", "has") and key in _OF_MODULES


def _of_ours(place: Place) -> bool:
    """Overdrive's own objects."""
    if isinstance(place.value, Gone) and place.value.kind.__module__.startswith("overdrive"):
        return True
    return any(_module_of(each).startswith("overdrive") or type(each).__module__.startswith("overdrive") for each in (place.owner, place.holder))


def _of_names(place: Place) -> bool:
    """*names of functions and classes*, and descriptions of fields, which no program changes"""
    return (place.kind == "entry" and isinstance(place.key, str) and place.key in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__dataclass_fields__",
                                                                                     "__dataclass_params__", "__wrapped__")
            or place.kind == "absent" and str(place.key).startswith("__dataclass")
            or isinstance(place.owner, type) and place.where.startswith("dataclasses.py") or isinstance(place.owner, dataclasses.Field) or type(place.owner).__module__ in ("dataclasses", "typing", "inspect", "enum"))


def _of_numbers(place: Place) -> bool:
    """Numbers, texts and settings of enumerations count by value, with their classes."""
    return is_number(place.holder) or is_number(place.owner)


def _of_tensors(place: Place) -> bool:
    """Attributes that a tensor has not got, and *whether a parameter that no operator uses has a `.grad` or hooks*."""
    return isinstance(place.owner, torch.Tensor) and (place.kind in ("tensor", "class", "dict") or place.value is MISSING and place.by_torch)


def _written_first(place: Place) -> bool:
    """Attributes of libraries that each call writes before it reads them (step/learn.py)."""
    return place.key in _WRITTEN_FIRST


def _of_caches(place: Place) -> bool:
    """*what a cached function would compute anew after `cache_clear()`*"""
    return place.kind == "cache"


def _of_weak_references(place: Place) -> bool:
    """*What the function finds by a weak reference alone lives as long as the recording.*"""
    return type(place.owner).__module__ in ("weakref", "_weakrefset")


def _of_optimizers(place: Place) -> bool:
    """Optimizers of PyTorch's, whose options and states the step knows itself, as far as PyTorch's code asks for them, and its step()."""
    return (place.by_torch or place.kind in ("class", "dict") or place.key in ("step", "zero_grad")) and isinstance(place.owner, torch.optim.Optimizer) and is_torchs(type(place.owner).__module__)


ROWS: tuple[tuple[str, Callable[[Place], bool]], ...] = (
    ("PyTorch's Python", _of_torch), ("PyTorch's objects", _of_torchs_objects), ("Python's library", _of_library), ("structure of modules", _of_modules), ("Overdrive's own", _of_ours), ("names and fields", _of_names),
    ("numbers", _of_numbers), ("tensors", _of_tensors), ("written first", _written_first), ("caches", _of_caches), ("weak references", _of_weak_references), ("optimizers", _of_optimizers))


def excuse(place: Place) -> str:
    return next((name for name, holds in ROWS if holds(place)), "")


def unknown(place: Place) -> str:
    """The name of a library's variable, if it holds a value and no code, and is not in the list: it may be a setting that a program changes."""
    kind = place.value.kind if isinstance(place.value, Gone) else type(place.value)
    module = _module_of(place.owner) or type(place.owner).__module__
    name = f"{module}.{place.key if isinstance(place.key, str) else type(place.owner).__name__}"
    is_code = issubclass(kind, _CODE) or place.kind in ("class", "dict", "code", "absent", "cache") or place.key in ("__defaults__", "__kwdefaults__") or getattr(kind, "__module__", "").startswith("typing")
    is_code = is_code or type(place.owner) in (dict, list, set)  # nobody's variable
    return "" if is_code or not _is_of_the_library(module) or name in _KNOWN else name
