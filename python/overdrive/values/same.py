"""Which values count by what they are and not by which object they are, and when two of them are the same."""
from __future__ import annotations

import ctypes
import enum
import struct
import sys
import types
from array import array
from collections.abc import Iterable
from typing import Any

import torch

_OF_C = ctypes._SimpleCData.__mro__[1]
FUNCTION_OF_C = type(ctypes.pythonapi.Py_DecRef).__mro__[-3]
# Py_TPFLAGS_HEAPTYPE.
MADE_IN_PYTHON = 1 << 9
# Classes of most values, of which is_number() need not ask more.
_NUMBERS = frozenset((type(None), bool, int, float, str, bytes, complex))
# Classes whose equal values have the same bits.
_EQUAL_IS_SAME = frozenset((int, bool, str, bytes, range))
_NO_NUMBERS = frozenset((type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, dict, list, tuple, set,
                         frozenset, property, classmethod, staticmethod))


def is_torchs(name: str) -> bool:
    """Whether a module, by its name, is PyTorch's own. A class may have something else in the place of a name."""
    return isinstance(name, str) and name.partition(".")[0] == "torch"


def has_attributes(value: Any) -> bool:
    """Whether an object may have attributes beside what its class in C keeps: some of its own, or those of a class of the program."""
    kind = type(value)
    return bool(kind.__dictoffset__ or kind.__flags__ & MADE_IN_PYTHON) and not is_torchs(kind.__module__)


def is_number(value: Any) -> bool:
    """Whether the value counts, and not which object it is."""
    kind = type(value)
    if kind in _NUMBERS or kind in _NO_NUMBERS:
        return kind in _NUMBERS
    return isinstance(value, (int, float, str, bytes, complex)) or is_setting(value) or is_scalar(value)


def is_scalar(value: Any) -> bool:
    """Whether it is a number of NumPy's, as ``numpy.float32(2)``, and no row of a structured array."""
    if type(value).__module__ != "numpy":
        return False
    numpy = sys.modules["numpy"]
    return isinstance(value, numpy.generic) and not isinstance(value, numpy.void)


def is_array(value: Any) -> bool:
    """Whether the program may change its bytes in place: an array of NumPy's or Python's own, or a value of C's."""
    numpy = sys.modules.get("numpy")
    return isinstance(value, (array, bytearray, memoryview)) or is_of_c(value) or numpy is not None and isinstance(
        value, (getattr(numpy, "ndarray", ()), getattr(numpy, "void", ())))


def is_of_c(value: Any) -> bool:
    """Whether ctypes made it, and it is no function, as what multiprocessing.Value() shares."""
    return isinstance(value, _OF_C) and not isinstance(value, FUNCTION_OF_C)


def has_pointers(kind: Any) -> bool:
    """Whether values of a class of ctypes lead to memory that is not theirs."""
    if issubclass(kind, ctypes._SimpleCData):
        return kind._type_ in ("P", "z", "Z", "O")
    if issubclass(kind, ctypes.Array):
        return has_pointers(kind._type_)
    fields = [field[1] for each in kind.__mro__ for field in vars(each).get("_fields_", ())]
    return issubclass(kind, ctypes._Pointer) or any(map(has_pointers, fields))


def bytes_of(value: Any) -> tuple[Any, ...]:
    if is_of_c(value):
        return (bytes(value),)
    if isinstance(value, (array, bytearray, memoryview)):
        try:
            view = memoryview(value)
        except ValueError:  # it was released
            return ()
        return view.shape, view.format, view.readonly, view.tobytes()
    # Classes of arrays may have another tobytes(): numpy.ma.masked has one that raises, and a mask has bytes of its own.
    asarray = sys.modules["numpy"].asarray
    content, mask = asarray(value).tobytes(), asarray(getattr(value, "_mask", False)).tobytes()
    return value.shape, value.strides, str(value.dtype), value.flags.writeable, content, mask, repr(getattr(value, "_fill_value", None))


def states_of(generators: Iterable[Any]) -> list[bytes]:
    """Of NumPy's generators and its global one, where each is in its numbers."""
    import pickle

    module = sys.modules.get("numpy.random")
    states = [] if module is None else [module.get_state()]
    for generator in generators:
        states.append(generator.get_state() if hasattr(generator, "get_state") else getattr(generator, "bit_generator", generator).state)
    return [pickle.dumps(state) for state in states]


def frozen(value: Any) -> Any:
    """A value as it is now, which a change in place makes another one."""
    if isinstance(value, torch.Tensor):
        return value, None if value.is_inference() else value._version
    if is_array(value):
        return bytes_of(value)
    if isinstance(value, dict):
        return type(value), [*value], [frozen(item) for item in value.values()]
    if isinstance(value, (tuple, list, set, frozenset)):
        return type(value), [frozen(item) for item in value]
    return value


def is_all_numbers(value: Any) -> bool:
    """Whether it is a tuple that counts by its values."""
    return isinstance(value, tuple) and all(map(is_number, tuple.__iter__(value)))


def items_of(value: Any) -> list[Any]:
    """What a list or a tuple has, whatever its class says."""
    return list((list if isinstance(value, list) else tuple).__iter__(value))


def size_of(value: Any) -> int:
    """How many items a container has, whatever its class says."""
    base = next((base for base in (list, dict, tuple, set, frozenset) if isinstance(value, base)), None)
    return len(value) if base is None else base.__len__(value)


def is_setting(value: Any) -> bool:
    return isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum))


def same_value(a: Any, b: Any) -> bool:
    """Whether both have the same class and the same bits. 1 is neither 1.0 nor True, and a class of the program has no say in it (``__eq__``)."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind in _EQUAL_IS_SAME:
        return bool(a == b)
    if kind is float:
        return struct.pack("d", a) == struct.pack("d", b)
    if kind is complex:
        return struct.pack("dd", a.real, a.imag) == struct.pack("dd", b.real, b.imag)
    if is_scalar(a):
        return bool(a.dtype == b.dtype and a.tobytes() == b.tobytes())
    if isinstance(a, (tuple, list)):
        a_has, b_has = items_of(a), items_of(b)
        return len(a_has) == len(b_has) and all(map(same_value, a_has, b_has)) and (not kind.__dictoffset__ or same_value(vars(a), vars(b)))
    if kind in (set, frozenset):
        return len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, dict):
        return same_value([*a], [*b]) and all(map(same_value, a.values(), b.values()))
    if kind is slice:
        return same_value((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return _is_device(a) and bool(a == b)


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device)
