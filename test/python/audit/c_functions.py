"""What a function of C looks at and changes. Which functions are known says Overdrive's own table (overdrive/reads/c_functions.py), whose rows are tested one
by one; a function without a row there ends the audit of a program. What is given to a known one counts as used with all that is in it, but for the few
of these lists.
"""
from __future__ import annotations

import functools
import weakref
from typing import Any

from overdrive.reads import c_functions as table
from overdrive.reads.c_functions import name_of

from places import MADE_IN_PYTHON

# They ask which objects these are, and of which class.
KINDS = {f"builtins.{name}" for name in ("isinstance", "issubclass", "callable", "id")} | {"_abc._abc_instancecheck", "_abc._abc_subclasscheck"}
# They look at nothing.
QUIET = {f"builtins.{name}" for name in ("print", "object.__init__", "object.__init_subclass__", "object.__subclasshook__", "object.__new__", "type.__init__", "BaseException.__init__",
                                         "BaseException.__new__", "generator.close", "generator.throw", "generator.send")}
# Containers do not change by these, whatever the table says of all their methods.
STAYS = set("""index count copy get keys values items fromkeys isdisjoint issubset issuperset union intersection difference symmetric_difference tolist
            tobytes __contains__ __len__ __getitem__ __eq__ __ne__ __lt__ __gt__ __le__ __ge__ __add__ __mul__ __or__ __and__ __sub__ __xor__ __iter__ __reversed__
            __repr__ __str__ __format__ __hash__ __new__ __reduce__ __reduce_ex__ __sizeof__ __dir__ __copy__ __class_getitem__ bisect_left bisect_right
            bisect nlargest nsmallest __missing__""".split())
# They change a container and look at nothing that is in it.
NO_READS = {"append", "appendleft", "extend", "extendleft", "add", "insert", "update", "clear", "__setitem__", "__init__", "__ior__", "__iadd__"}
# They give what lay in a container, and lies there no more: that nobody else holds it does not make it the call's own.
TAKES_OUT = {"pop", "popitem", "popleft", "popright"}
# Classes of C that a program makes objects of.
_CLASSES = set("""str int float complex bool bytes range slice list tuple dict set frozenset OrderedDict deque defaultdict enumerate zip map filter reversed
               property staticmethod classmethod chain repeat product islice count combinations permutations accumulate starmap zip_longest takewhile dropwhile
               groupby cycle partial bytearray array attrgetter itemgetter methodcaller method function cell SimpleNamespace Struct pairwise lock RLock
               compress filterfalse tee mappingproxy partialmethod ContextVar Counter code member_descriptor GenericAlias UnionType Decimal object
               ReferenceType weakref KeyedRef WeakMethod super local timedelta date datetime""".split())
_OF_LIBRARIES = ("torch", "numpy", "pybind11_builtins")


@functools.lru_cache(maxsize=None)
def _is_known_class(kind: type) -> bool:
    of_c = not kind.__flags__ & MADE_IN_PYTHON
    return issubclass(kind, BaseException) or of_c and kind.__module__.partition(".")[0] in _OF_LIBRARIES or (
        kind.__name__ in _CLASSES and (of_c or kind.__module__ in ("collections", "functools", "weakref", "operator")))


def is_known(function: Any, by_library: bool) -> bool:
    if isinstance(function, type):
        return _is_known_class(function)
    if isinstance(function, weakref.ref) or type(function).__module__.partition(".")[0] in _OF_LIBRARIES:
        return True
    return table.row_of(function) is not None or by_library and table.is_for_libraries(function) or name_of(function) in QUIET


def changed_by(function: Any, bound: Any, given: list[Any]) -> Any:
    """The container that it changes, or None."""
    row = None if isinstance(function, type) else table.row_of(function)
    if row is None or row.changes == "-" or function.__name__ in STAYS:
        return None
    changed = bound if row.changes == "self" else given[0] if given else None
    return changed if isinstance(changed, (list, dict, set, bytearray)) or type(changed).__name__ in ("deque", "array", "ContextVar") else None
