"""Which names the code uses that ran in a captured function."""
from __future__ import annotations

import os
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

from overdrive.reads.code import Watcher
from overdrive.reads.names import NAMERS, asked_by, names_of
from overdrive.values.read import Read

# Functions of data sets, samplers and loaders that look at items.
_TAKES_ITEMS = ("__getitem__", "__getitems__", "__iter__", "__next__", "fetch")


# Functions of PyTorch's optimizers and schedulers that go through all attributes.
_WHOLE_OPTIMIZER = ("state_dict", "__repr__", "__getstate__")


class FoundOtherwise(NamedTuple):
    """Attributes that code finds by other means than their names, as ``vars()`` and ``attrgetter()`` do. Keeps nothing alive."""

    names: set[str]
    # Parts of names by which all attributes are found, by the addresses of dicts and objects.
    whole: dict[int, set[str]]

    def add(self, more: FoundOtherwise) -> None:
        self.names.update(more.names)
        for address, pieces in more.whole.items():
            self.whole.setdefault(address, set()).update(pieces)

    def has(self, read: Read) -> bool:
        key = read.key
        return isinstance(key, str) and (key in self.names or any(piece in key for piece in self.whole.get(id(read.holder), ())))


class KnownNames(NamedTuple):
    """What an earlier walk has found out on its way, so that the next need not go the same way twice: attributes that values name, for
    the program's objects, PyTorch's and those of Python's library, and code that is assumed to have run."""

    attributes: tuple[dict[str, str], dict[str, str], dict[str, str]]
    assumed: dict[types.CodeType, dict[str, Any]]


class WalkNames:
    """Names by which values are found, each with its line; more come on the way of a walk."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.refusals: list[str] = []
        # Objects are looked at again when more names are known.
        self._looks_again = False
        self._codes = {code for code, _ in watcher.codes}
        # Code that is not known to have run, with its globals.
        self._assumed: dict[types.CodeType, dict[str, Any]] = {}
        self._attributes: dict[str, str] = {}
        self._nn_attributes: dict[str, str] = {}
        self._standard_attributes: dict[str, str] = {}
        self._strings: set[str] = set()
        # Names of attributes that are values; FoundOtherwise.whole.
        self._values: set[str] = set()
        self._whole: dict[int, set[str]] = {}
        # Attributes whose absence is a value.
        self._optional: dict[str, str] = {}
        # Of these, those of tensors and modules, of which there are many, and those that only methods ask of their own object.
        self._asked: dict[str, str] = {}
        self._asked_of_self: dict[types.CodeType, dict[str, str]] = {}
        # Objects of which attributes are found by names that are values.
        self._found = watcher.by_names
        # Where values may be names of attributes, and of modules.
        self._by_strings, self._by_modules = watcher.by_names.by_strings, watcher.by_names.any_module
        if watcher.by_names.is_refused:
            self.refusals.append(f"The function finds modules by names that it computes ({self._by_modules}); write the names.")
        # Names whose values the code takes, and does not call at once.
        self._passed: set[str] = set()
        # Functions of modules whose values it takes, by their ways.
        self._passed_chains: set[tuple[str, ...]] = set()
        for code in self._codes:
            self._take(code)
        self._take_strings(self._codes)
        if any(names_of(code).catches for code in self._codes):
            for code in watcher.failed:
                names = names_of(code)
                self._optional.update(names.attributes)
                (self._asked_of_self.setdefault(code, {}) if code.co_varnames[:1] == ("self",) else self._asked).update(names.attributes)
        for code in watcher.nn_codes:
            self._nn_attributes.update(names_of(code).attributes)
            if code.co_name in _WHOLE_OPTIMIZER and f"{os.sep}optim{os.sep}" in code.co_filename:
                self.refusals.append(f"The function asks an optimizer or a scheduler for all that it has ({code.co_name}()), which no guard looks "
                                     "at; call it outside of the function.")
        for code in watcher.standard_codes:
            self._standard_attributes.update(names_of(code).attributes)
        for name, where in watcher.by_names.names.items():
            self._optional.setdefault(name, where)
            self._asked.setdefault(name, where)
            for known in (self._attributes, self._nn_attributes, self._standard_attributes):
                known.setdefault(name, where)
        # Whether PyTorch's code went through data sets, or asked for their lengths alone.
        self._takes_items = any(code.co_name in _TAKES_ITEMS for code in watcher.nn_codes)
        self._operators = {name for code in self._codes for name in names_of(code).operators}
        self._formatted = {name for code in self._codes for name in names_of(code).formatted}

    def names(self) -> set[str]:
        """Attributes that the program's code names."""
        return {*self._attributes, *(["__dict__"] if self._found.has_tensors() else [])}

    def known_names(self) -> KnownNames:
        return KnownNames((self._attributes, self._nn_attributes, self._standard_attributes), self._assumed)

    def goes_by_strings(self) -> bool:
        """Whether values may be names of attributes."""
        return bool(self._by_strings)

    def _names_of_torch(self) -> set[str]:
        return {*self._nn_attributes, *self._operators}

    def _take(self, code: types.CodeType) -> None:
        """More code that ran, or may run."""
        names, asked = names_of(code), asked_by(code)
        self._asked.update(asked.of_others)
        if asked.of_self:
            self._asked_of_self.setdefault(code, {}).update(asked.of_self)
        self._strings |= names.strings
        self._passed |= names.passed.keys()
        self._passed_chains |= names.passed_chains
        self._optional.update(asked.by_strings)
        self._optional.update(names.caught)
        for name, where in [*names.attributes.items(), *asked.by_strings.items()]:
            for known in (self._attributes, self._nn_attributes, self._standard_attributes):
                known.setdefault(name, where)
        for name, line in names.passed.items():
            if name in NAMERS:
                self.refusals.append(f"The function gives {name}() to another one ({line}), so that no guard knows which names it takes; write the "
                                     "names.")
        if names.any_global:
            self.refusals.append(f"The function finds globals by names that it computes ({names.any_global}); write the names, or keep "
                                 "the values in a dict.")

    def _take_strings(self, codes: Iterable[types.CodeType]) -> None:
        """A string of one function may name an attribute for another one."""
        self._all_globals = {name: where for code in codes for name, where in names_of(code).globals.items()}
        for text in self._strings if self._by_strings else ():
            if text.isidentifier():
                self._values.add(text)
                for known in (self._attributes, self._nn_attributes, self._standard_attributes):
                    known.setdefault(text, self._by_strings)

    def _note_string(self, text: str) -> None:
        """A value that may be the name of an attribute, as an alias is."""
        for part in text.split("."):
            if part.isidentifier():
                self._note_attribute(part, self._by_strings)

    def _note_optional(self, name: str, where: str) -> None:
        """One that an object may not have."""
        self._optional.setdefault(name, where)
        self._asked.setdefault(name, where)
        self._note_attribute(name, where)

    def found_otherwise(self) -> FoundOtherwise:
        return FoundOtherwise({*self._values, *self._optional, *self._found.names}, self._whole)

    def _note_attribute(self, name: str, where: str) -> None:
        self._values.add(name)
        if name not in self._attributes:
            for known in (self._attributes, self._nn_attributes, self._standard_attributes):
                known.setdefault(name, where)
            self._looks_again = True
