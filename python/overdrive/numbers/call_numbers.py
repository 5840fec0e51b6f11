"""Numbers that are others in each call of a captured step, as values of its program: arguments, and what the step itself counts.

Note [Numbers of a call]
A replay runs no Python, so a number that is another one in each call must be put where the recording has it. The recorded function
gets its floats as tracked ones (numbers/tracked.py), which compute as floats do and note how: ``1 - beta`` is a number of the call, too. The
library finds in two recordings with other numbers where each of them stands (replay/run/call_numbers.h). Comparisons are noted with
their answers, which each call gives again. One that is 0, 1, -1 or out of the range of float is noted so, too: operators and
derivatives are others there. A function that looks at a number in another way has a recording for each value.

A counter (numbers/counters.py) is such a number, too: it has a place in the program instead of one among the arguments, and each replay
puts there what the function would. There are no recordings for each value of a counter, since no value comes again: calls that
look at one in another way, and those that give the answers by which they came to it, run eagerly.
"""
from __future__ import annotations

import ctypes
import os
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from overdrive.numbers.counters import SOMEWHERE, Counter
from overdrive.numbers.executed import Executed, Place
from overdrive.numbers.tracked import MOST_NUMBERS, Book, Tracked, TrackedWhole, plain
from overdrive.numbers.uses import asks_for_type, below_a_float, may_tell_it_apart
from overdrive.values.keys import Number
from overdrive.values.same import same_value

# What code that runs apart leaves in a counter: no number of the call's.
_APART = "None"
_ALSO_APART = "code that runs apart changes it, and so does the function, or it is a float"
_SMALLEST, _LARGEST = 1e-30, 1e30
# Recorded runs after which the numbers stand in the program, and runs without a replay after which they never will.
_PROOF, _MOST_RUNS = 2, 32


def is_any(value: float) -> bool:
    """Whether operators do the same with it as with most numbers. The power of a negative one is complex."""
    return type(value) is float and _SMALLEST < abs(value) < _LARGEST and abs(value) != 1.0


class Open(Number):
    """In the key of a call: whatever float stands here."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None)

    def __eq__(self, other: object) -> bool:
        return self is other or isinstance(other, Number) and type(other.value) is float

    __hash__ = None


class Shared(ctypes.Structure):
    """What the library reads of a call (python/bindings/captures.h)."""

    _fields_ = [("variant", ctypes.c_int64), ("closed", ctypes.c_int64), ("count", ctypes.c_int64), ("values", ctypes.c_double * MOST_NUMBERS)]


class _Texts:
    """What a recorded call makes of its numbers ``v``: floats of the program, answers, whole numbers, and what it leaves in counters."""

    def __init__(self, book: Book, left: Sequence[str]) -> None:
        self.floats = {text: value for text, value in book.floats.items() if is_any(value)}
        self.wholes, self.left = book.wholes, list(left)
        self._asked = {**book.answers, **{f"(repr({text}) == {repr(value)!r})": True for text, value in book.floats.items() if not is_any(value)}}
        self.make: Any = None
        self.leave: Any = None
        self.ask: Any = None
        self._compile()

    def _compile(self) -> None:
        self.make, self.leave = _function_of(self.floats), _function_of(self.left)
        self.ask = _function_of(self._asked) if self._asked else None
        self.answers = tuple(self._asked.values())

    def are_those_of(self, other: _Texts) -> bool:
        return (list(self.floats) == list(other.floats) and list(self.wholes) == list(other.wholes) and self.left == other.left
                and self._asked == other._asked)

    def keep_what_was_equal(self, other: _Texts) -> None:
        """A whole number that was the same in both recordings may have decided something, and must be the same in each call. One
        that was not is none of the program's: the recordings would differ."""
        for text, value in self.wholes.items():
            if other.wholes[text] == value:
                self._asked[f"({text} == {value})"] = True
        self._compile()


def _function_of(texts: Iterable[str]) -> Any:
    return eval(f"lambda v: ({''.join(text + ',' for text in texts)})", {})  # noqa: S307 - made here


class CallNumbers:
    """The numbers of one set of values: how those of the program are made of them. Calls that do not fit go elsewhere."""

    def __init__(self, template: tuple[Any, ...], counters: Sequence[Counter], given: Shared) -> None:
        self.template, self.counters = template, counters
        self.places = tuple(i for i, part in enumerate(template) if isinstance(part, Open))
        self._given = given
        self._values: list[Any] = []
        # Of the last recording, and of the one before.
        self._recorded: list[Any] = []
        self._recorded_before: list[Any] = []
        # Counters by their index in the values that the first run did not change, and what they are.
        self._fixed: dict[int, Any] = {}
        # Whole counters by their index that an operator was given without a word, with its line; code of the run under way.
        self._untold: dict[int, str] = {}
        self._ran: list[types.CodeType] = []
        # Which uses of counters the recorded call came to.
        self.executed = Executed(())
        self._recordings = self._runs = self._replays = 0
        self._texts: _Texts | None = None
        # What the run under way makes of them; none where it is not recorded.
        self.book: Book | None = None
        self._left: list[str] = []
        # Of the run under way: of counters that code which runs apart has changed, what is told since.
        self._after_apart: dict[int, Book] = {}
        # Why each value has a recording of its own, or, with counters, why none is replayed; the answers that calls give which are not.
        self.refusal = ""
        self._way: tuple[list[type], Any, tuple[bool, ...]] | None = None
        # Whether it is that one recording makes other numbers of them than another one, maybe for other sizes.
        self.differs = False
        # Whether a counter has come to rest since the first recording, as a rate does after a warm-up: a call that finds and leaves the
        # same value cannot show its place.
        self.stands_still = False

    @property
    def doubt(self) -> int:
        """The less of it, the sooner a call that they take is theirs."""
        return 1 if self.is_proven else 2 if self._texts is not None else 3

    @property
    def is_proven(self) -> bool:
        return self._recordings >= _PROOF

    def take(self, template: tuple[Any, ...]) -> bool:
        """Gives the library the numbers of a call; False: it is not for these recordings."""
        arguments = [template[place].value for place in self.places]
        if self.refusal and not self.counters or not all(map(is_any, arguments)):
            return False
        counted = [counter.now() for counter in self.counters]
        if any(type(value) not in (int, float) for value in counted):  # the program has put something else there, or taken it away
            return False
        values = arguments + counted
        if any(not same_value(values[index], value) for index, value in self._fixed.items()):
            return False
        if self.refusal and self._way is not None:
            self._values = values
            self._give([])
            return self._goes_that_way(values)
        made: Sequence[float] = [value for index, value in enumerate(values) if type(value) is float and index not in self._fixed]
        if self._texts is not None:
            if any(type(a) is not type(b) for a, b in zip(values, self._recorded)):
                return False
            if not self.is_proven and any(a == b for a, b in zip(arguments, self._recorded)):
                return False
            try:
                made = self._texts.make(values)
                answers = () if self._texts.ask is None else self._texts.ask(values)
            except (ArithmeticError, TypeError):
                return False
            if answers != self._texts.answers or not all(map(is_any, made)):
                return False
        elif self._runs and not all(map(is_any, made)):
            return False
        self._values = values
        self._give(made)
        return True

    def _goes_that_way(self, values: list[Any]) -> bool:
        """Whether a call comes to what is refused."""
        assert self._way is not None
        kinds, ask, answers = self._way
        try:
            return [*map(type, values)] == kinds and bool(ask(values) == answers)
        except (ArithmeticError, TypeError):
            return False

    def _give(self, numbers: Sequence[float]) -> None:
        self._given.values[:len(numbers)] = numbers
        self._given.count = len(numbers)

    def begin(self, recorded: bool) -> tuple[Any, ...]:
        """The template of the call that runs, with its numbers; in the first recordings tracked ones."""
        self._runs += 1
        self._after_apart.clear()
        is_tracked = recorded and not self.refusal and (not self.is_proven or bool(self.counters))
        self.book = Book() if is_tracked else None
        values = [value if self.book is None or index in self._fixed else self.book.tracked(value, f"v[{index}]")
                  for index, value in enumerate(self._values)]
        for counter, value in zip(self.counters, values[len(self.places):]):
            # A replay that is taken back has left there what code that runs apart has.
            if self.book is not None or counter.is_apart:
                counter.put(value)
        if not self.places:
            return self.template
        parts = list(self.template)
        for place, value in zip(self.places, values):
            parts[place] = Number(value)
        return tuple(parts)

    def enter_apart(self) -> list[Any]:
        """Code that runs apart finds plain numbers. What stood there."""
        found = [counter.now() for counter in self.counters]
        for counter, before in zip(self.counters, found):
            counter.put(plain(before))
        return found

    def leave_apart(self, found: Sequence[Any]) -> None:
        """What it has changed tells whether the function uses it afterwards."""
        for index, (counter, before) in enumerate(zip(self.counters, found), len(self.places)):
            now = counter.now()
            if same_value(now, plain(before)) and not counter.is_apart:
                counter.put(before)
                continue
            if self.book is None:
                continue
            # Operators do not tell where they get a float from.
            is_of_call = isinstance(before, TrackedWhole) and before.text == f"v[{index}]" or index in self._after_apart
            if type(now) is not int or not is_of_call:
                self.refusal = self.refusal or _ALSO_APART
            book = self._after_apart[index] = Book()
            counter.put(book.tracked(now, _APART))

    def settle(self) -> None:
        """After the function has run, or has thrown: plain numbers stand in the places of counters."""
        self._left = []
        for index, counter in enumerate(self.counters, len(self.places)):
            now = counter.now()
            if (book := self._after_apart.get(index)) is not None:
                is_left = isinstance(now, (Tracked, TrackedWhole)) and now.book is book and now.text == _APART
                if not is_left:
                    self.refusal = self.refusal or _ALSO_APART
                counter.put(plain(now))
                self._left.append(_APART)
            elif isinstance(now, (Tracked, TrackedWhole)):
                counter.put(plain(now))
                self._left.append(now.text)
            else:
                self._left.append(repr(now) if type(now) in (int, float) else "")

    def silent_uses(self, known: Collection[types.CodeType]) -> Iterator[Place]:
        """Of counters in this code, which may not tell."""
        for counter in self.counters:
            yield from counter.uses_that_do_not_tell(known)
            yield from counter.operators(known)

    def look_at(self, ran: Iterable[types.CodeType], known: Collection[types.CodeType]) -> None:
        """Of a call that ran, the first of which has no tracked numbers: a function may ask for their class, and code of any call may
        use a counter where nothing tells."""
        self._ran = list(ran)
        book = self.book
        asked = next((text for code in self._ran if (text := asks_for_type(code))), "")
        if asked and (self.places or any(counter.makes_a_float(known) for counter in self.counters)):
            self.refusal = self.refusal or asked
        if book is not None and book.floats:
            for how in filter(None, (below_a_float(code, book.sites) for code in self._ran)):
                book.look(how)
        # A use that tells nothing may also ask what object the number is, and a recorded call is the program's.
        is_safe = not any(may_tell_it_apart(code) for code in known if f"{os.sep}torch{os.sep}" not in code.co_filename)
        for counter in self.counters:
            for place, where in counter.uses_that_do_not_tell(known).items():
                if place[1] == SOMEWHERE or not is_safe or book is not None and self.executed.may_have_run(place):
                    self.refusal = self.refusal or f"the function uses it for something else than arithmetic and comparisons ({where})"

    def end(self, recorded: bool, replays: Callable[[], int]) -> None:
        """After the function has run, and nothing of the call is alive but what the program keeps. ``replays``: how many there were, those
        that were compared among them."""
        book, self.book = self.book, None
        for after in self._after_apart.values():
            after.close()
            if after.is_used():
                self.refusal = self.refusal or "the function uses it after code that runs apart has changed it"
        first = len(self.places)
        if self._runs == 1 and not recorded and not self._recordings:
            now = [counter.now() for counter in self.counters]
            # A whole number tells by itself whether the function uses it.
            self._fixed = {first + index: value for index, value in enumerate(now)
                           if type(value) is float and same_value(value, self._values[first + index])}
        if not recorded and self._texts is not None and not self.is_proven:
            self.stands_still = any(self._stands_still(index, counter) for index, counter in enumerate(self.counters, first))
        # Other sizes are in another recording, with the same texts.
        is_another = recorded and self.is_proven
        if recorded and (is_another or book is None) and not self._is_left_as_before(book):
            self.refusal, self.differs = self.refusal or "the function makes other numbers of it in another recording", True
        if recorded:
            self._recordings += 1
            self._recorded_before, self._recorded = self._recorded, list(self._values)
        if recorded and any(not same_value(self.counters[index - first].now(), value) for index, value in self._fixed.items()):
            self.refusal, self.differs = self.refusal or "the function changes it in some of these calls", True
        if book is not None:
            book.close()
            self._look_for_untold(book)
            if not is_another:
                self._note(book)
        if self._runs > _MOST_RUNS and not self.counters:
            before, self._replays, self._runs = self._replays, replays(), 0
            if self._replays == before:
                self.refusal = self.refusal or "the recordings do not show where it stands"
        if self.refusal:
            self._give([])

    def abandon(self) -> None:
        """After the function has thrown: the program has plain numbers alone."""
        book, self.book = self.book, None
        for each in (book, *self._after_apart.values()):
            if each is not None:
                each.close()

    def _stands_still(self, index: int, counter: Counter) -> bool:
        value = self._values[index]
        return (type(value) is float and index not in self._fixed and same_value(value, self._recorded[index])
                and same_value(value, counter.now()))

    def _is_left_as_before(self, book: Book | None) -> bool:
        """Whether the counters have what the texts make of the call's numbers, and, where this is told, by the same texts."""
        if not all(left is None or same_value(counter.now(), left) for counter, left in zip(self.counters, self.left())):
            return False
        return book is None or bool(book.looked) or self._texts is None or self._left_texts() == self._texts.left

    def _left_texts(self) -> list[str]:
        first = len(self.places)
        return [f"v[{first + index}]" if first + index in self._fixed else text for index, text in enumerate(self._left)]

    def left(self) -> Sequence[Any]:
        """What a replay of the call leaves in the counters; nothing as long as that is not known."""
        return self._texts.leave(self._values) if self.counters and self._texts is not None else ()

    def replayed(self) -> None:
        self._runs = 0
        for counter, value in zip(self.counters, self.left()):
            if value is not None:
                counter.put(value)

    def _look_for_untold(self, book: Book) -> None:
        """Such a counter is a constant of the recording. A call that finds another value there is of another one."""
        for index, counter in enumerate(self.counters, len(self.places)):
            untold = (line for place, line in counter.operators(self._ran).items() if place not in book.sites and self.executed.may_have_run(place))
            where = next((line for text, line in book.untold.items() if f"v[{index}]" in text), "") or next(untold, "")
            if where and index not in self._untold:
                self._untold[index] = where
                if self.is_proven and self._recordings > _PROOF:
                    self.refusal, self.differs = self.refusal or f"an operator is given it that does not tell ({where})", True

    def _let_go_of_unused(self, book: Book) -> None:
        """Whole numbers that the function leaves as they are, and makes nothing of."""
        for index in [index for index in range(len(self.places), len(self._values)) if index not in self._untold]:
            text = f"v[{index}]"
            made = [*book.wholes, *book.floats, *book.answers, *self._left]
            if text in book.wholes and sum(text in each for each in made) <= 1 + (self._left[index - len(self.places)] == text):
                del book.wholes[text]

    def _note(self, book: Book) -> None:
        if book.looked or not all(self._left):
            self.refusal = book.looked or "the function puts something else there"
            self._way = [*map(type, self._values)], _function_of(book.answers_before), tuple(book.answers_before.values())
            return
        self._let_go_of_unused(book)
        texts = _Texts(book, self._left_texts())
        if self._texts is not None and not self._texts.are_those_of(texts):
            self.refusal, self.differs = "the function makes other numbers of it in each call", True
            return
        if self._texts is not None:
            texts.keep_what_was_equal(self._texts)
            for index, where in self._untold.items():
                if not same_value(self._values[index], self._recorded_before[index]):
                    self.refusal = f"an operator is given it that does not tell, as those of tensors and floats are ({where})"
                    return
        self._texts = texts
        self._give(list(texts.floats.values()))


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
