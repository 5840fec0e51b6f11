"""Numbers that a captured step is given, as values of its program: what the function makes of them while it is recorded.

Note [Numbers of a call]
A replay runs no Python, so a number that is another one in each call must be put where the recording has it. The recorded function
gets its floats as Tracked ones, which compute as floats do and note how: ``1 - beta`` is a number of the call, too. The library
finds in two recordings with other numbers where each of them stands (replay/run/call_numbers.h). Comparisons are noted with
their answers, which each call gives again. A function that looks at a number in another way has a recording for each value, as
every value has that is 0, 1, -1 or out of the range of float: operators and derivatives are others there.
"""
from __future__ import annotations

import operator
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from overdrive._capture_texts import Number
from overdrive._code import line_of_caller
from overdrive._names import names_of

_SMALLEST, _LARGEST = 1e-30, 1e30
MOST_NUMBERS, _LONGEST_TEXT = 32, 400
# Recorded runs after which the numbers stand in the program, and runs without a replay after which they never will.
_PROOF, _MOST_RUNS = 2, 8


def is_any(value: float) -> bool:
    """Whether operators do the same with it as with most numbers."""
    return _SMALLEST < abs(value) < _LARGEST and abs(value) != 1.0


class Open(Number):
    """In the key of a call: whatever float stands here."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None)

    def __eq__(self, other: object) -> bool:
        return self is other or isinstance(other, Number) and type(other.value) is float

    __hash__ = None


class Book:
    """What one recorded call makes of its numbers: each by the text that makes it of ``v``, and answers of comparisons."""

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}
        self.answers: dict[str, bool] = {}
        # Why each value needs a recording of its own.
        self.looked = ""
        self.is_open = True
        self._made: list[weakref.ref[Tracked]] = []

    def look(self, how: str) -> None:
        if self.is_open and not self.looked:
            where = line_of_caller()
            self.looked = how + (f" ({where})" if where else "")

    def tracked(self, value: float, text: str) -> Any:
        if not self.is_open or self.looked:
            return value
        if len(text) > _LONGEST_TEXT or len(self.numbers) >= MOST_NUMBERS:
            self.look("the function makes very many numbers of it")
            return value
        self.numbers[text] = value
        made = Tracked(value)
        made.text, made.book = text, self
        self._made.append(weakref.ref(made))
        return made

    def answered(self, text: str, answer: bool) -> bool:
        if self.is_open:
            self.answers[text] = answer
        return answer

    def close(self) -> None:
        if any(made() is not None for made in self._made):
            self.look("the function keeps it after the call")
        self.is_open = False


class Tracked(float):
    """A number of a call that is recorded, or one that was made of it."""

    text: str
    book: Book

    def _text_of(self, other: Any) -> str:
        """An operand as a text; "": it is none."""
        if isinstance(other, Tracked):
            return other.text if other.book is self.book else ""
        return f"({other!r})" if type(other) in (int, float) and -_LARGEST < other < _LARGEST else ""

    def __bool__(self) -> bool:
        return self.book.answered(f"bool({self.text})", bool(float.__pos__(self)))


def _plain(value: Any) -> Any:
    return float.__pos__(value) if isinstance(value, Tracked) else value


def _arithmetic(name: str, symbol: str, function: Callable[[Any, Any], Any], swapped: bool) -> Callable[[Any, Any], Any]:
    def method(self: Tracked, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented  # a tensor knows what to do
        a, b = (_plain(other), _plain(self)) if swapped else (_plain(self), _plain(other))
        result, text = function(a, b), self._text_of(other)
        if not text or type(result) is not float:
            self.book.look(f"the function computes with it ({name})")
            return result
        return self.book.tracked(result, f"({text} {symbol} {self.text})" if swapped else f"({self.text} {symbol} {text})")

    return method


def _comparison(name: str, symbol: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Tracked, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        answer, text = function(_plain(self), _plain(other)), self._text_of(other)
        if not text:
            self.book.look(f"the function compares it ({name})")
            return answer
        return self.book.answered(f"({self.text} {symbol} {text})", answer)

    return method


def _sign(symbol: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: self.book.tracked(function(_plain(self)), f"{symbol}({self.text})")


def _look(name: str) -> Callable[..., Any]:
    usual = getattr(float, name)

    def method(self: Tracked, *arguments: Any) -> Any:
        self.book.look(f"the function calls {name}() of it")
        return usual(_plain(self), *arguments)

    return method


for _name, _symbol, _function in (("add", "+", operator.add), ("sub", "-", operator.sub), ("mul", "*", operator.mul),
                                  ("truediv", "/", operator.truediv), ("floordiv", "//", operator.floordiv),
                                  ("mod", "%", operator.mod), ("pow", "**", operator.pow)):
    setattr(Tracked, f"__{_name}__", _arithmetic(_name, _symbol, _function, False))
    setattr(Tracked, f"__r{_name}__", _arithmetic(_name, _symbol, _function, True))
for _name, _symbol, _function in (("lt", "<", operator.lt), ("le", "<=", operator.le), ("gt", ">", operator.gt),
                                  ("ge", ">=", operator.ge), ("eq", "==", operator.eq), ("ne", "!=", operator.ne)):
    setattr(Tracked, f"__{_name}__", _comparison(_name, _symbol, _function))
for _name, _symbol, _one in (("neg", "-", operator.neg), ("pos", "+", operator.pos), ("abs", "abs", operator.abs)):
    setattr(Tracked, f"__{_name}__", _sign(_symbol, _one))
for _name in ("__int__", "__float__", "__trunc__", "__floor__", "__ceil__", "__round__", "__hash__", "__str__", "__repr__",
              "__format__", "__divmod__", "__rdivmod__", "__getnewargs__", "__reduce_ex__", "is_integer", "as_integer_ratio",
              "hex", "conjugate"):
    if hasattr(float, _name):
        setattr(Tracked, _name, _look(_name))


class CallNumbers:
    """The open numbers of one set of values: how those of the program are made of them. Calls that do not fit go elsewhere."""

    def __init__(self, template: tuple[Any, ...], given: Any, count: Any) -> None:
        self.template = template
        self.places = tuple(i for i, part in enumerate(template) if isinstance(part, Open))
        # Of the library: the numbers of the call, and how many there are.
        self._given, self._count = given, count
        self._values: list[float] = []
        self._recorded: list[float] = []
        self._recordings = self._runs = 0
        self._texts: tuple[list[str], dict[str, bool]] | None = None
        self._make: Callable[[list[float]], tuple[float, ...]] | None = None
        self._ask: Callable[[list[float]], tuple[bool, ...]] | None = None
        self._book: Book | None = None
        # Why each value has a recording of its own.
        self.refusal = ""

    def take(self, template: tuple[Any, ...]) -> bool:
        """Gives the library the numbers of a call; False: it is not for these recordings."""
        values = [template[place].value for place in self.places]
        if self.refusal or not all(map(is_any, values)):
            return False
        made: tuple[float, ...] | list[float] = values
        if self._make is not None:
            if self._recordings < _PROOF and any(a == b for a, b in zip(values, self._recorded)):
                return False
            try:
                made = self._make(values)
                answers = () if self._ask is None else self._ask(values)
            except ArithmeticError:
                return False
            assert self._texts is not None
            if answers != tuple(self._texts[1].values()) or not all(map(is_any, made)):
                return False
        self._values = values
        self._give(made)
        return True

    def _give(self, numbers: tuple[float, ...] | list[float]) -> None:
        self._given[:len(numbers)] = numbers
        self._count.value = len(numbers)

    def begin(self, recorded: bool) -> tuple[Any, ...]:
        """The template of the call that runs, with its numbers; in the first recordings tracked ones."""
        self._runs += 1
        self._book = Book() if recorded and self._recordings < _PROOF and not self.refusal else None
        parts = list(self.template)
        for index, (place, value) in enumerate(zip(self.places, self._values)):
            parts[place] = Number(value if self._book is None else self._book.tracked(value, f"v[{index}]"))
        return tuple(parts)

    def look_at(self, codes: Iterable[types.CodeType]) -> None:
        """Of a call that ran, the first of which has no tracked numbers: a function may ask for their class."""
        for code in codes:
            if "type" in names_of(code).globals:
                self.refusal = self.refusal or f"the function asks for type() ({names_of(code).globals['type']})"

    @property
    def book(self) -> Book | None:
        return self._book

    def end(self, recorded: bool) -> None:
        """After the function has run, and nothing of the call is alive but what the program keeps."""
        book, self._book = self._book, None
        if recorded:
            self._recordings += 1
            self._recorded = list(self._values)
        if book is not None:
            book.close()
            self._note(book)
        if self._runs > _MOST_RUNS:
            self.refusal = self.refusal or "the recordings do not show where it stands"
        if self.refusal:
            self._give([])

    def replayed(self) -> None:
        self._runs = 0

    def _note(self, book: Book) -> None:
        texts = list(book.numbers), book.answers
        if book.looked or not all(map(is_any, book.numbers.values())):
            self.refusal = book.looked or "the function makes 0, 1 or -1 of it"
        elif self._texts is not None and self._texts != texts:
            self.refusal = "the function makes other numbers of it in each call"
        elif self._texts is None:
            self._texts = texts
            self._make = eval(f"lambda v: ({''.join(text + ',' for text in texts[0])})", {})  # noqa: S307 - made here
            self._ask = eval(f"lambda v: ({''.join(text + ',' for text in texts[1])})", {}) if texts[1] else None  # noqa: S307
        if not self.refusal:
            self._give(list(book.numbers.values()))


def opened(known: tuple[Any, ...], template: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The template with the floats left open that differ between the two; None: something else differs, or nothing."""
    if len(known) != len(template):
        return None
    parts: list[Any] = []
    for a, b in zip(known, template):
        both = isinstance(a, Number) and isinstance(b, Number) and type(b.value) is float
        if isinstance(a, Open) and both:
            parts.append(a)
        elif a == b:
            parts.append(b)
        elif both and type(a.value) is float:
            parts.append(Open())
        else:
            return None
    return tuple(parts) if any(isinstance(part, Open) for part in parts) else None
