"""Python functions of Python's own library that a captured function may call: a closed table by modules, as that of C is by functions.

A row is a module, which its submodules belong to, or one function of it. The code that calls is the program's or an installed library's; what
Python's library calls itself is no entry. PyTorch's own Python asks for what a recording looks at by other means.
"""
from __future__ import annotations

import functools
import types
from typing import Any

from overdrive.reads.c_functions import _names
from overdrive.reads.owners import is_installed, module_of

# What they tell depends on what they are given, which has guards, and on C functions, which have rows. Objects that are kept in their classes, as
# configurations and events, are looked at by the attributes that their code names.
_PURE = _names("""
__future__ _collections_abc _markupbase _py_abc _sitebuiltins _weakrefset abc ast base64 bisect cmath cmd codecs collections colorsys configparser
contextlib copy copyreg csv dataclasses difflib enum fnmatch fractions functools genericpath graphlib heapq html importlib._bootstrap
importlib._bootstrap_external importlib.import_module io json keyword multiprocessing.sharedctypes multiprocessing.synchronize numbers opcode
operator pprint pyclbr quopri re reprlib shlex sre_compile sre_constants sre_parse stat statistics string stringprep struct textwrap token tomllib
types typing weakref argparse.__contains__ argparse.__eq__ argparse.__init__
os.__contains__ os.__getitem__ os.__iter__ os.__len__ os.copy os.decode os.encode os.fsdecode os.fsencode os.get os.getenv os.getenvb
os.check_str os.encodekey os.decodevalue os.encodevalue os.fspath os._fspath
posixpath.basename posixpath.commonpath posixpath.commonprefix posixpath.dirname posixpath.isabs posixpath.join posixpath.normcase
posixpath.normpath posixpath.split posixpath.splitdrive posixpath.splitext posixpath.splitroot posixpath._get_sep
pathlib.__bytes__ pathlib.__eq__ pathlib.__fspath__ pathlib.__ge__ pathlib.__gt__ pathlib.__hash__ pathlib.__init__ pathlib.__le__ pathlib.__lt__
pathlib.__new__ pathlib.__repr__ pathlib.__reduce__ pathlib.__rtruediv__ pathlib.__str__ pathlib.__truediv__ pathlib.anchor pathlib.as_posix
pathlib.drive pathlib.is_absolute pathlib.is_relative_to pathlib.joinpath pathlib.match pathlib.name pathlib.parent pathlib.parents pathlib.parts
pathlib.relative_to pathlib.root pathlib.stem pathlib.suffix pathlib.suffixes pathlib.with_name pathlib.with_stem pathlib.with_suffix
queue.empty queue.full queue.qsize
threading.__enter__ threading.__exit__ threading.acquire threading.clear threading.is_set threading.isSet threading.release threading.set
""")
# Installed libraries ask these of their own code, messages and threads; a program may ask to decide.
_FOR_LIBRARIES = _names("argparse calendar gettext importlib inspect locale logging pkgutil platform sysconfig threading unittest")
# They show something, and no tensor depends on it. What they return may tell which settings they have, and is nothing or one of their objects.
_SHOWS = _names("linecache logging traceback warnings _py_warnings")
PURE, SHOWS, OTHER = "pure", "shows", "other"
# A module that another one imports late and hands over in a cache: from Python 3.12 on, isinstance() of a protocol asks inspect.getattr_static().
_IMPORTED_LATE = {"typing": "inspect"}


@functools.lru_cache(maxsize=4096)
def kind_of_function(module: str, name: str) -> str:
    parts = module.split(".")
    names = {f"{module}.{name}", *(".".join(parts[:count + 1]) for count in range(len(parts)))}
    return SHOWS if names & _SHOWS else PURE if names & _PURE else OTHER


@functools.lru_cache(maxsize=4096)
def library_may_ask(module: str, file: str) -> bool:
    """Whether the code of an installed library, in this file, may call any function of the module."""
    return module.partition(".")[0] in _FOR_LIBRARIES and is_installed(file)


def shows(value: Any) -> bool:
    """Whether it is an object of what shows something, as a logger: its attributes are looked at."""
    return type(value).__module__.partition(".")[0] in _SHOWS


def names_its_module(variables: dict[str, Any], imports: set[str], code: types.CodeType) -> bool:
    """Whether code of Python's library calls another of its modules by a name of its own, and not a function that it was given."""
    module = module_of(code.co_filename)
    own = variables.get("__name__")
    return (own == module or _IMPORTED_LATE.get(str(own)) == module or any(name == module or name.startswith(f"{module}.") for name in imports)
            or any(module in (getattr(value, "__name__", None), getattr(value, "__module__", None)) for value in list(variables.values())))
