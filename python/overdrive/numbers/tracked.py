"""Numbers that tell what a recorded function makes of them: Python's own, with the text of how each was made.

``1 - beta`` of a tracked ``beta`` is tracked, and a comparison is noted with its answer. What looks at a number in another way is
noted as a look: then the texts do not tell all that the function makes of it.
"""
from __future__ import annotations

import gc
import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from overdrive.numbers.operands import may_be_given_a_number
from overdrive.reads.code import line_of_caller

_LARGEST = 1e30
# Floats go to the library, whole numbers do not.
MOST_NUMBERS, _MOST_WHOLES, _LONGEST_TEXT = 32, 1024, 400


class Book:
    """What one recorded call makes of its numbers: each by the text that makes it of ``v``, and answers of comparisons."""

    def __init__(self) -> None:
        self.floats: dict[str, float] = {}
        self.wholes: dict[str, int] = {}
        self.answers: dict[str, bool] = {}
        # Operators by which the function has told what it makes of them: code, and where in it.
        self.sites: set[tuple[types.CodeType, int]] = set()
        # Whole numbers by their texts that met what is no number, as a tensor, with the line.
        self.untold: dict[str, str] = {}
        # Why the texts do not tell all, and the answers until then: a call that gives the same ones looks, too.
        self.looked = ""
        self.answers_before: dict[str, bool] = {}
        self.is_open = True
        self._made: list[Number] = []

    def look(self, how: str) -> None:
        if self.is_open and not self.looked:
            where = line_of_caller()
            self.looked = how + (f" ({where})" if where else "")
            self.answers_before = dict(self.answers)

    def tracked(self, value: Any, text: str) -> Any:
        if not self.is_open or self.looked:
            return value
        numbers: dict[str, Any] = self.floats if type(value) is float else self.wholes
        if len(text) > _LONGEST_TEXT or len(numbers) >= (MOST_NUMBERS if type(value) is float else _MOST_WHOLES):
            self.look("the function makes very many numbers of it")
            return value
        numbers[text] = value
        made: Number = float.__new__(Tracked, value) if type(value) is float else int.__new__(TrackedWhole, value)
        made.text, made.book = text, self
        self._made.append(made)
        return made

    def answered(self, text: str, answer: bool) -> bool:
        if self.is_open:
            self.answers[text] = answer
        return answer

    def is_used(self) -> bool:
        """Whether more was made of its one number than a place in which it stands."""
        return bool(self.looked or self.answers or len(self.floats) + len(self.wholes) > 1)

    def gives_a_float(self, frame: types.FrameType) -> bool:
        """Whether the function of C that the frame calls may be given a float of the call, by which it does not tell."""
        return any(isinstance(number, Tracked) for number in _kept(self._made)) and may_be_given_a_number(frame)

    def close(self) -> None:
        """After the call. What the program keeps of the numbers becomes plain."""
        for made in _kept(self._made):
            self.look("the function keeps it after the call")
            _make_plain(made, self._made)
        self._made.clear()
        self.is_open = False


class Tracked(float):
    """A float of a call that is recorded, or one that was made of its numbers. Who calls its class gets a plain one."""

    text: str
    book: Book

    def __new__(cls, *arguments: Any) -> Any:
        return float(*arguments)


class TrackedWhole(int):
    """The same for a whole number."""

    text: str
    book: Book

    def __new__(cls, *arguments: Any) -> Any:
        return int(*arguments)


Number = Tracked | TrackedWhole


def plain(value: Any) -> Any:
    if isinstance(value, Tracked):
        return float.__pos__(value)
    return int.__pos__(value) if isinstance(value, TrackedWhole) else value


def _kept(numbers: list[Number]) -> tuple[Number, ...]:
    """Those that others have than the list. How many counts a loop adds is not the same in all versions of Python."""
    counts = [sys.getrefcount(number) for number in [*numbers, int.__new__(TrackedWhole)]]
    nobodys = counts.pop() + 1  # the last one is not in `numbers`
    return tuple(number for number, count in zip(numbers, counts) if count > nobodys)


def _make_plain(kept: Number, ours: list[Number]) -> None:
    """In the containers and objects that have it, and are not ours."""
    for holder in gc.get_referrers(kept):
        if isinstance(holder, types.CellType):
            holder.cell_contents = plain(kept)
        elif isinstance(holder, list) and holder is not ours:
            _exchange(holder, enumerate(holder), kept)
        else:
            values = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
            _exchange(values, values.items(), kept)


def _exchange(values: Any, items: Iterable[tuple[Any, Any]], kept: Number) -> None:
    number = plain(kept)
    for key, value in list(items):
        if value is kept:
            values[key] = number


def _text_of(self: Number, other: Any) -> str:
    """An operand as a text; "": it is none."""
    if isinstance(other, (Tracked, TrackedWhole)):
        return other.text if other.book is self.book else ""
    return f"({other!r})" if type(other) in (int, float) and -_LARGEST < other < _LARGEST else ""


def _note_site(number: Number) -> None:
    frame = sys._getframe(2)
    number.book.sites.add((frame.f_code, frame.f_lasti))


def _note_untold(number: Number, other: Any) -> None:
    """The other one's method goes on, and tells nothing. A recording sees what a tensor makes of a float."""
    if isinstance(number, TrackedWhole):
        number.book.untold.setdefault(number.text, line_of_caller())
    elif not isinstance(other, torch.Tensor):
        number.book.look(f"the function gives it to an operator of {type(other).__name__}")


def _arithmetic(name: str, symbol: str, function: Callable[[Any, Any], Any], swapped: bool) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            _note_untold(self, other)
            return NotImplemented  # a tensor knows what to do
        _note_site(self)
        a, b = (plain(other), plain(self)) if swapped else (plain(self), plain(other))
        result, text = function(a, b), _text_of(self, other)
        if not text or type(result) not in (int, float):
            self.book.look(f"the function computes with it ({name})")
            return result
        return self.book.tracked(result, f"({text} {symbol} {self.text})" if swapped else f"({self.text} {symbol} {text})")

    return method


def _comparison(name: str, symbol: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            _note_untold(self, other)
            return NotImplemented
        _note_site(self)
        answer, text = function(plain(self), plain(other)), _text_of(self, other)
        if not text:
            self.book.look(f"the function compares it ({name})")
            return answer
        return self.book.answered(f"({self.text} {symbol} {text})", answer)

    return method


def _sign(symbol: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: self.book.tracked(function(plain(self)), f"{symbol}({self.text})")


def _look(kind: type, name: str) -> Callable[..., Any]:
    usual = getattr(kind, name)

    def method(self: Any, *arguments: Any) -> Any:
        self.book.look(f"the function calls {name}() of it")
        return usual(plain(self), *arguments)

    return method


def _attribute(name: str) -> Any:
    def attribute(self: Any) -> Any:
        self.book.look(f"the function asks it for `{name}`")
        return getattr(plain(self), name)

    return property(attribute)


ARITHMETIC = (("add", "+", operator.add), ("sub", "-", operator.sub), ("mul", "*", operator.mul), ("truediv", "/", operator.truediv),
               ("floordiv", "//", operator.floordiv), ("mod", "%", operator.mod), ("pow", "**", operator.pow))
_OF_BITS = (("and", "&", operator.and_), ("or", "|", operator.or_), ("xor", "^", operator.xor), ("lshift", "<<", operator.lshift),
            ("rshift", ">>", operator.rshift))
COMPARISONS = (("lt", "<", operator.lt), ("le", "<=", operator.le), ("gt", ">", operator.gt), ("ge", ">=", operator.ge),
                ("eq", "==", operator.eq), ("ne", "!=", operator.ne))
_LOOKS = ("__int__", "__float__", "__trunc__", "__floor__", "__ceil__", "__round__", "__hash__", "__str__", "__repr__", "__format__",
          "__divmod__", "__rdivmod__", "__getnewargs__", "__reduce_ex__", "__invert__", "is_integer", "as_integer_ratio", "hex",
          "conjugate", "bit_length", "bit_count", "to_bytes")


def _teach(kind: Any, usual: type) -> None:
    """The methods by which a kind of number tells what is made of it. Errors name it as the usual one."""
    kind.__name__ = usual.__name__
    for name, symbol, function in (*ARITHMETIC, *(_OF_BITS if usual is int else ())):
        setattr(kind, f"__{name}__", _arithmetic(name, symbol, function, False))
        setattr(kind, f"__r{name}__", _arithmetic(name, symbol, function, True))
    for name, symbol, function in COMPARISONS:
        setattr(kind, f"__{name}__", _comparison(name, symbol, function))
    for name, symbol, one in (("neg", "-", operator.neg), ("pos", "+", operator.pos), ("abs", "abs", operator.abs)):
        setattr(kind, f"__{name}__", _sign(symbol, one))
    for name in _LOOKS:
        if hasattr(usual, name):
            setattr(kind, name, _look(usual, name))
    for name in ("real", "imag"):
        setattr(kind, name, _attribute(name))
    kind.__bool__ = lambda self: self.book.answered(f"bool({self.text})", bool(plain(self)))


_teach(Tracked, float)
_teach(TrackedWhole, int)
