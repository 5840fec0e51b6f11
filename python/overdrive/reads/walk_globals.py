"""Globals, modules and the environment, as far as code names them."""
from __future__ import annotations

import abc
import builtins
import copyreg
import os
import sys
import types
import warnings
from typing import Any

import torch

from overdrive.reads.names import Names, names_of
from overdrive.reads.owners import kind_of, module_of
from overdrive.reads.walk_names import KnownNames
from overdrive.reads.walk_places import NOT_FOLLOWED, Places
from overdrive.values.read import ANSWER, ENTRY, VALUES


class Globals(Places):
    """Of the code that ran, and of code that is assumed to have run."""

    def _begin(self, known: KnownNames | None) -> None:
        if where := self._attributes.get("is_warn_always_enabled", ""):
            self._read(ANSWER, torch.is_warn_always_enabled, None, "torch.is_warn_always_enabled()", where, NOT_FOLLOWED)
        if known is not None:
            self._take_known(known)
        for (code, _), variables in self._watcher.codes.items():
            self._names_of_protocols(names_of(code), variables)
        for (code, _), variables in self._watcher.codes.items():
            self._globals(names_of(code), variables)
        if any(module_of(code.co_filename) == "copy" for code in self._watcher.standard_codes):
            self._read(VALUES, copyreg.dispatch_table, None, "copyreg.dispatch_table", "", NOT_FOLLOWED)
        if {"modules", "import_module", "__import__"} & {*self._attributes, *self._all_globals}:
            self.notes.keys(sys.modules)
            for text in self._strings if "sys" in self._all_globals else self._strings & sys.modules.keys():
                self._read(ENTRY, sys.modules, text, f"sys.modules[{text!r}]", "", 0)
            for text, where in self._found.modules.items():
                self._read(ENTRY, sys.modules, text, f"sys.modules[{text!r}]", where, 0)
        matches = next((where for code in self._codes if (where := names_of(code).matches)), "")
        if where := self._all_globals.get("isinstance", self._all_globals.get("issubclass", matches)):
            self._read(ANSWER, abc.get_cache_token, None, "the classes that abstract ones know (register())", where, NOT_FOLLOWED)
        if where := self._attributes.get("warn", self._all_globals.get("warn", "")):
            self._read(ANSWER, _errors_of_warnings, None, "the filters of warnings", where, NOT_FOLLOWED)
        for name in ("environ", "environb", "getenv", "getenvb"):
            if where := self._attributes.get(name, self._all_globals.get(name, "")):
                self._dict(getattr(os.environ, "_data", {}), "os.environ", where, 0)

    def _take_known(self, known: KnownNames) -> None:
        for names, more in zip((self._attributes, self._nn_attributes, self._standard_attributes), known.attributes):
            names.update((name, where) for name, where in more.items() if name not in names)
        for code, variables in known.assumed.items():
            if code not in self._codes:
                self._take_assumed(code, variables)

    def _take_assumed(self, code: types.CodeType, variables: dict[str, Any]) -> None:
        self._codes.add(code)
        self._assumed[code] = variables
        self._take(code)
        self._take_strings(self._codes)
        self._globals(names_of(code), variables)

    def _dict(self, value: dict[Any, Any], name: str, where: str, depth: int) -> None:
        """All of it."""
        raise NotImplementedError

    def _globals(self, names: Names, variables: dict[str, Any]) -> None:
        for name, where in names.globals.items():
            self._read(ENTRY, variables, name, name, where, 0)
            if name not in variables:
                found = _builtins_of(variables)
                is_pythons = found is vars(builtins) and name in found and _is_pythons_own(found[name])
                self._read(ENTRY, found, name, name, where, NOT_FOLLOWED if is_pythons else 0)
        for text in names.strings if "globals" in names.globals else ():
            if text.isidentifier():
                self._read(ENTRY, variables, text, text, names.globals["globals"], 0)
        for (name, level), where in names.imports.items():
            path = name if level == 0 else _absolute(name, level, variables)
            parts = path.split(".")
            for count in range(1, len(parts) + 1):
                one = ".".join(parts[:count])
                self._read(ENTRY, sys.modules, one, one, where, 0)

    def _names_of_protocols(self, names: Names, variables: dict[str, Any]) -> None:
        """isinstance() with a class of typing.Protocol asks for each of its members."""
        for name, where in names.globals.items() if "isinstance" in names.globals else ():
            kind = variables.get(name)
            if isinstance(kind, type) and getattr(kind, "_is_protocol", False):
                self.notes.give_up()
                members = {*getattr(kind, "__annotations__", {}), *(key for key in vars(kind) if not key.startswith("_"))}
                self._attributes.update(dict.fromkeys(members, where))
                self._optional.update(dict.fromkeys(members, where))

    def _assume(self, function: Any, name: str, left: int, depth: int) -> None:
        """A function that a cache hides has run before, and what it read then counts: it, and what it calls by name."""
        if not isinstance(function, types.FunctionType) or kind_of(function.__code__.co_filename) != "user":
            return
        code = function.__code__
        if code not in self._codes:
            self._take_assumed(code, function.__globals__)
            self._looks_again = True
        self._into(function, name, "", depth + 1)
        cells = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
        for value in [*map(function.__globals__.get, names_of(code).globals), *cells] if left else ():
            if isinstance(value, types.FunctionType) and value.__code__ not in self._codes:
                self._assume(value, value.__name__, left - 1, depth + 1)


def _errors_of_warnings() -> tuple[str, ...]:
    """The filters, where one of them makes an error of a warning."""
    # Since 3.14 catch_warnings() may keep them in a context variable (-X context_aware_warnings).
    filters = getattr(warnings, "_get_filters", lambda: warnings.filters)()
    return tuple(map(str, filters)) if any(each[0] == "error" for each in filters) else ()


def _builtins_of(variables: dict[str, Any]) -> dict[str, Any]:
    """Where code finds what is not in its variables, which may have builtins of their own."""
    found: Any = variables.get("__builtins__", builtins)
    return found if isinstance(found, dict) else vars(found)


def _absolute(name: str, level: int, variables: dict[str, Any]) -> str:
    package = str(variables.get("__package__") or str(variables.get("__name__", "")).rpartition(".")[0])
    base = package.split(".")
    return ".".join([*base[:len(base) - level + 1], *([name] if name else [])])


def _is_pythons_own(value: Any) -> bool:
    return isinstance(value, (types.BuiltinFunctionType, type)) or value is None or value is NotImplemented or value is Ellipsis
