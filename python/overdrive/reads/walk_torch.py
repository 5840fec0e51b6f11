"""PyTorch's own objects, and the variables and classes of its Python."""
from __future__ import annotations

import functools
from collections.abc import Container, Iterable
from typing import Any

import torch

from overdrive.reads.names import names_of
from overdrive.reads.optimizers import is_of_the_program, kind_of_optimizer
from overdrive.reads.torch_reads import reads_of_torch
from overdrive.reads.walk_objects import Objects, named_by
from overdrive.reads.walk_places import NOT_FOLLOWED
from overdrive.values.modules import FLAGS_OF_HOOKS, IN_MODULES, NAMED, hooks_of
from overdrive.values.read import ATTRIBUTE, ENTRY, ITEM, KEYS, KIND, SIZE, VALUES, Read, entries_of
from overdrive.values.same import is_number, is_torchs

# What gives all of a group, or what its key names as a value.
_GIVE_ALL = {"values", "items", "copy", "get", "pop", "setdefault", "update"}
# Attributes of PyTorch's optimizers that the walk looks at itself, and what their step() writes.
_OF_OPTIMIZERS = {"param_groups", "state", "defaults", "_step_count", "_opt_called", "_zero_grad_profile_name", "_patch_step_function"}
_GUARDED = {*IN_MODULES, *FLAGS_OF_HOOKS, "training"}
_HOOKS_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_HOOKS_ON_STEP = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


class OfTorch(Objects):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Values of PyTorch's own code, beside those that names lead to.
        self.of_torch: dict[tuple[int, int, Any], Read] = {}
        self.modules: dict[Any, None] = {}
        # Tensors that the program names, whose gradients and flags the function may look at.
        self.leaves: dict[int, Any] = {}
        # How many names the walk had that this one goes on from.
        self._names_before = 0
        self._names_of_modules: dict[str, str] | None = None

    def change(self, read: Read) -> None:
        """Another value at a place that this walk has found."""
        for known in (self.reads, self.of_torch):
            if read.place in known:
                known[read.place] = read

    def _tensor(self, tensor: Any, name: str, depth: int) -> None:
        """What the code may ask of it that no operator sees."""
        self.leaves[id(tensor)] = tensor
        self._named[id(tensor)] = (tensor, name, "", depth)
        self.notes.attribute(tensor, "_backward_hooks")
        self.notes.attribute(tensor, "_post_accumulate_grad_hooks")
        for read in hooks_of(tensor, name):
            self.reads.setdefault(read.place, read)
        self._hooks((tensor._backward_hooks, tensor._post_accumulate_grad_hooks), name, depth)
        self._attributes_of_a_tensor(tensor, name, depth)
        pieces = self._found.pieces_of(tensor)
        self._whole_of(tensor.__dict__, (), pieces, name, depth)
        for key in ("requires_grad", "is_leaf", "retains_grad", "grad"):
            where = named_by(self._attributes, pieces, key)
            # No operator gives a gradient to what needs none, but the program may.
            if where and not (key == "grad" and tensor.requires_grad):
                self._read(ATTRIBUTE, tensor, key, f"{name}.{key}", where, depth)

    def _hooks(self, of_one: Iterable[Any], name: str, depth: int) -> None:
        """Functions that no name leads to."""
        for hooks in of_one:
            for hook in hooks.values() if hooks else ():
                self._into(hook, f"a hook of {name}", "", depth + 1)

    def _attributes_of_a_tensor(self, tensor: Any, name: str, depth: int) -> None:
        self._class_values(type(tensor), tensor.__dict__, name, depth)
        pieces = self._found.pieces_of(tensor)
        for key in _HOOKS_OF_TENSORS:
            if where := named_by(self._attributes, pieces, key):
                self._read(ATTRIBUTE, tensor, key, f"{name}.{key}", where, NOT_FOLLOWED)
        # Of objects that nobody knows, none is asked for its version.
        if (where := named_by(self._attributes, pieces, "_version")) and not tensor.is_inference() and where not in self._found.anywhere.values():
            self._read(ATTRIBUTE, tensor, "_version", f"{name}._version", where, depth)
        self._entries(tensor.__dict__, self._attributes, name, depth)
        for key, where in self._asked.items():
            if not hasattr(tensor, key):
                self._read(ENTRY, tensor.__dict__, key, f"{name}.{key}", where, depth)
        if not is_torchs((kind := type(tensor)).__module__):
            self._class_values(kind, tensor.__dict__, name, depth)

    def _module(self, module: Any, name: str, depth: int) -> None:
        self.modules[module] = None
        self._named[id(module)] = (module, name, "", depth)
        own, kind, entries = _own_of_modules(), type(module), module.__dict__
        if self._names_of_modules is None:
            self._names_of_modules = {key: where for key, where in self._nn_attributes.items() if key not in own}
        self._entries(entries, self._names_of_modules, name, depth)
        self._same_dict(module, name)
        pieces = self._found.pieces_of(module)
        self._whole_of(entries, own, pieces, name, depth)
        self._whole_of_classes(kind, pieces, depth)
        self._kept_by_pytorch(entries, pieces, name, depth)
        if functions := self._functions_of_torch(kind):
            self._absent_in(entries).add_table(functions, name)
        # What __getattr__() gives, as a parameter, may come in its own place.
        self._absent_in(entries).add_table(self._names_of_modules, name)
        self._hooks((module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks), name, depth)
        self.notes.contents(module._modules)
        for parameters in (module._parameters, module._buffers):
            self.notes.contents(parameters)
            for key, tensor in parameters.items():
                if tensor is not None:
                    self._hooks((tensor._backward_hooks, tensor._post_accumulate_grad_hooks), name, depth)
                    self._whole_of(tensor.__dict__, (), self._found.pieces_of(tensor), f"{name}.{key}", depth)
                    # What else is asked of one whose name is in code, or in a list, is found behind that name.
                    self._attributes_of_a_tensor(tensor, f"{name}.{key}", depth)
        if asked := self._asked_of(kind):
            known = asked.keys() & own.union(module._parameters, module._buffers, module._modules)
            self._absent(kind, entries, {key: where for key, where in asked.items() if key not in known} if known else asked, name, depth)
        self._class_values(kind, entries, name, depth)

    def _kept_by_pytorch(self, entries: dict[str, Any], pieces: dict[str, str], name: str, depth: int) -> None:
        """What every module has, and code asks for. What PyTorch's own asks for in each call has guards of its own (values/modules.py)."""
        for key in _own_of_modules():
            names = self._attributes if key in _GUARDED else self._nn_attributes
            if where := named_by(names, pieces, key):
                # Those of parameters, buffers and children are guarded by their keys and values.
                self._read(ENTRY, entries, key, f"{name}.{key}", where, NOT_FOLLOWED if key in NAMED else depth)

    def _optimizer(self, optimizer: Any, name: str, depth: int) -> None:
        self.leaves.update((id(parameter), parameter) for group in optimizer.param_groups for parameter in group["params"])
        self.notes.attribute(optimizer, "param_groups")
        if is_of_the_program(optimizer):
            hooks = [Read(VALUES, optimizer.__dict__.get(key, {}), None, f"a hook on step() of {name}") for key in _HOOKS_ON_STEP]
            for read in [*hooks, Read(ENTRY, optimizer.__dict__, "state", f"{name}.state")]:
                self.reads.setdefault(read.place, read)
        for read in [Read(KIND, optimizer, None, f"the class of {name}"), Read(ENTRY, optimizer.__dict__, "param_groups", f"{name}.param_groups")]:
            self.reads.setdefault(read.place, read)
        pieces = self._found.pieces_of(optimizer)
        if not is_of_the_program(optimizer):
            self._class_values(kind_of_optimizer(optimizer), optimizer.__dict__, name, depth)
            self._whole_of(optimizer.__dict__, _OF_OPTIMIZERS, pieces, name, depth)
            self._same_dict(optimizer, name)
            self._entries(optimizer.__dict__, {key: where for key, where in self._attributes.items() if key not in _OF_OPTIMIZERS}, name, depth)
            self._absent(type(optimizer), optimizer.__dict__, self._optional, name, depth)
        self.notes.contents(optimizer.param_groups)
        for group in optimizer.param_groups:
            self.notes.keys(group)
            self.notes.contents(group["params"])
        # zero_grad() reaches those that are in the groups now.
        for read in [Read(SIZE, parameters, None, f"the parameters of {name}") for parameters in [
                optimizer.param_groups, *(group["params"] for group in optimizer.param_groups)]]:
            self.reads.setdefault(read.place, read)
        if where := named_by(self._attributes, pieces, "defaults"):
            self._read(ENTRY, optimizer.__dict__, "defaults", f"{name}.defaults", where, depth)
        if where := named_by(self._attributes, pieces, "state"):
            read = Read(ENTRY, optimizer.__dict__, "state", f"{name}.state", where)
            self.reads.setdefault(read.place, read)
            if is_of_the_program(optimizer):
                self._into(optimizer.state, f"{name}.state", where, depth + 1)
            else:  # what the program keeps there beside the tensors of step()
                numbers = [(entries, key) for entries in optimizer.state.values() if isinstance(entries, dict) for key, value in entries.items()
                           if value is not None and is_number(value)]
                for entries, key in numbers:
                    self._read(ENTRY, entries, key, f"{name}.state[...][{key!r}]", where, depth)
            self._read(SIZE, optimizer.state, None, f"len({name}.state)", where, NOT_FOLLOWED)
            for key in [key for key in optimizer.state if is_number(key)]:
                self._read(ENTRY, optimizer.state, key, f"{name}.state[{key!r}]", where, depth)
        where = named_by(self._attributes, pieces, "param_groups")
        if not where:
            return
        named = [names for names in map(names_of, self._codes) if "param_groups" in names.attributes]
        takes_all = not named or any(names.by_keys or _GIVE_ALL & names.attributes.keys() for names in named)
        for index, group in enumerate(optimizer.param_groups):
            self._read(KEYS, group, None, f"the keys of {name}.param_groups[{index}]", where, NOT_FOLLOWED)
            for key in [key for key in group if key != "params" and (takes_all or key in self._strings)]:
                self._read(ENTRY, group, key, f"{name}.param_groups[{index}][{key!r}]", where, depth)
            item = Read(ITEM, optimizer.param_groups, index, f"{name}.param_groups[{index}]", where)
            self.reads.setdefault(item.place, item)

    def _torchs(self, known: Container[Any]) -> None:
        """What the program may change in PyTorch's own modules and classes, once all modules are met."""
        self._entries(entries_of(torch.Tensor), self._attributes, "torch.Tensor", 0)
        names = self._names_of_torch()
        if len(names) > self._names_before:
            known = {}
        kinds = dict.fromkeys(type(module) for module in self.modules if module not in known)
        for read in reads_of_torch(self._watcher, names, kinds, not self._is_of_one_call, self.notes):
            if read.place not in self._left:
                self.of_torch.setdefault(read.place, read)


@functools.lru_cache(maxsize=1)
def _own_of_modules() -> frozenset[str]:
    return frozenset(torch.nn.Module().__dict__)
