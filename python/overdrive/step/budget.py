"""What recordings of a captured function may cost: CPU time of this thread, counted in plain calls of the program.

Note [A budget of time]
A call that is recorded, compared or looked at in vain takes longer than a plain one. Its time is booked. Replays pay it back, each the
difference between a plain call and a replay, and plain calls pay a hundredth of their own. While more is owed than _UNPROVEN plain calls
take, replays have not shown that another recording pays: one is made for sizes and values that come again when there were others, or a
rest, in between, and none for those that stay for a few calls and never come again. Above _FREE nothing new is recorded; above _UNDER_WAY
a recording that is under way waits, too. Where some are refused and none has come to its first replay, both are less (_IN_VAIN). Plain
calls and replays are timed from one call to the next, so that a backward and an update are in it, and only a few of each are timed.
"""
from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

# Tests put another in its place.
clock: Callable[[], int] = time.thread_time_ns

# Plain calls whose time recordings may take in advance: for whatever comes, for what has come again, and with those of a recording that is
# under way. A set of values costs some fifty, and a step that goes a few ways by what it counts, or has a dozen sizes, needs as many sets
# before it pays.
_UNPROVEN, _FREE, _UNDER_WAY = 16, 1500, 3000
# Both, where all is in vain so far: a set of values is refused after two calls, and another one takes four to its first replay.
_IN_VAIN = 40, 60
# The most plain calls that are made in turn to pay, and the part of what is owed that they pay at least.
_LONGEST, _LEAST_PAID = 512, 0.25
# Between two looks, of two calls each, at what comes again.
_SHORTEST, _LONG = 16, 128
# By how many rests each is twice as long as the one before.
_MOST_RESTS = 8
# Of the time of plain calls, what they pay.
_SHARE = 0.01
# Plain calls, or replays, that are timed in turn: one more than there are times between them.
TIMED = 4
# Replays from one that is timed to the next, which go without Python.
_QUICK = 16
# Nanoseconds of a call that is watched, below which a replay gains nothing; and by how much one that is not watched is shorter. The first
# watched call of a process takes longer for other reasons.
_SHORT, _WATCHED = 40_000, 10
# From one replay to the next: a call of Python's is a small part of more.
_SMALL = 200_000
# By how much replays are slower before that is believed, and before they are not timed once more themselves: comparisons, and what other parts
# record, lie between calls and in the first times.
_SLOWER, _MUCH_SLOWER = 1.1, 2


def is_unlimited(always: bool) -> bool:
    return always or os.environ.get("OVERDRIVE_CAPTURE_ALWAYS") == "1"


class Budget:
    """Of one captured function. Used by the thread that is in its call; knows times, and not what is recorded."""

    __slots__ = ("is_off", "is_in_vain", "eager", "own", "replay", "timing", "slow", "_is_in_doubt", "_spent", "_look", "_paid", "_replays",
                 "_began", "_at", "_thread")

    def __init__(self, always: bool) -> None:
        # Whether calls are replayed whatever that costs.
        self.is_off = is_unlimited(always)
        # Whether recordings so far were refused.
        self.is_in_vain = False
        # Nanoseconds from one plain call to the next, of the plain call alone, and from one replay to the next; 0: not known.
        self.eager = self.own = self.replay = 0
        # Calls that are timed from now on.
        self.timing = 0
        # Calls that were booked, and what they took.
        self.slow = self._spent = self._look = 0
        # What replays and plain calls have brought, and the replays of that.
        self._paid = 0.0
        self._replays = 0
        # Since when the call under way takes longer; 0: it does not. Of the last timed call, and its thread.
        self._began = self._at = self._thread = 0
        # Whether replays were slower, and both are timed again.
        self._is_in_doubt = False

    def tick(self, was_replay: bool, calls: int) -> None:
        """A call that is timed begins. The one before was a replay, or a plain call. ``calls``: it, and those that went without Python since."""
        now, thread = clock(), threading.get_ident()
        if self._at and self._thread == thread:
            taken = max((now - self._at) // calls, 1)
            if was_replay:
                self.replay = min(self.replay or taken, taken)
            else:
                self.eager = min(self.eager or taken, taken)
        self.timing -= 1
        self._at, self._thread = now if self.timing else 0, thread

    def begin_quick(self) -> int:
        """How many of the next calls go without Python; 0: all. The time from here on is theirs, not that of the call that hands over."""
        if self._at and self._thread == threading.get_ident():
            self._at = clock()
        return _QUICK << self._is_in_doubt if self.timing else 0

    def end_plain(self) -> None:
        """The plain call that began with tick() is over."""
        if self._at and self._thread == threading.get_ident():
            taken = max(clock() - self._at, 1)
            self.own = min(self.own or taken, taken)

    def time_calls(self) -> None:
        self.timing, self._at = TIMED, 0

    def begin(self) -> None:
        """From here on the call takes longer than a plain one, or than a replay."""
        if not (self._began or self.is_off):
            self._began = clock()

    @property
    def is_begun(self) -> bool:
        return self._began != 0

    def end(self, ran: bool) -> None:
        """It is over, and has run the function, or has not."""
        if self._began:
            self._look = max(clock() - self._began, 0)
            self._spent += self._look
            self._began = 0
            self.slow += ran

    def drop(self) -> None:
        """It has ended by an error."""
        self._began = self._at = 0

    def owed(self, replays: int) -> float:
        """How many plain calls recordings have cost that nothing has paid yet. ``replays``: how many there were."""
        gain = max(self.eager - self.replay, 0) if self.replay else 0
        self._paid += gain * (replays - self._replays)
        self._replays = replays
        # More than all is not paid: what comes later is measured by what it brings itself.
        spent = self._spent - self.slow * self.own
        self._paid = min(self._paid, spent) if spent > 0 else 0.0
        return (spent - self._paid) / self.eager

    def state(self, owed: float) -> int:
        """0: new recordings may begin; 1: those of what has come again; 2: those that are under way go on; 3: nothing is recorded."""
        free, under_way = _IN_VAIN if self.is_in_vain else (_FREE, _UNDER_WAY)
        return int(owed > _UNPROVEN) + int(owed > free) + int(owed > under_way)

    def calls_for(self, owed: float) -> int:
        """How many plain calls pay for it, or for a part. They are booked as if they had been made."""
        calls = min(int(owed / _SHARE) + 1, _LONGEST)
        self._paid += max(calls * _SHARE, owed * _LEAST_PAID) * self.eager
        return calls

    def calls_for_a_look(self, rests: int) -> int:
        """How many plain calls pay for the last look, and for each rest before this one twice as many."""
        return int(max(self._look - self.own, 0) / (_SHARE * self.eager)) + 1 << min(rests, _MOST_RESTS)

    def rest(self, owed: float, rests: int) -> int:
        """How many plain calls come in turn before the next look. Where looks show what comes again, rests are neither short nor long."""
        state = self.state(owed)
        if state > 1:
            return self.calls_for(owed)
        return min(max(2 * self.calls_for_a_look(0), _SHORTEST), _LONG) if state else self.calls_for_a_look(rests)

    def is_short(self, watched: int) -> bool:
        """Whether a call that took so long while it was watched is too short to gain anything."""
        return watched < _SHORT

    def may_be_short(self, watched: int) -> bool:
        """Whether that is so for all that is known, and plain calls tell."""
        return watched < _SHORT * _WATCHED

    def is_short_plainly(self) -> bool:
        return 0 < self.own * _WATCHED < _SHORT

    def wants_plain_calls(self) -> bool:
        """Whether replays are so short that plain ones have to be timed beside them."""
        return 0 < self.replay < _SMALL and not self.eager

    def is_slower(self) -> bool:
        """Whether that is sure. Plain calls are timed a second time first, since they may have returned at once when they began."""
        slower = 0 < self.replay < _SMALL and 0 < self.eager * _SLOWER < self.replay
        if not slower or self._is_in_doubt:
            return slower
        self._is_in_doubt = True
        if self.replay < self.eager * _MUCH_SLOWER:
            self.time_calls()
        self.eager = self.own = 0
        return False

    def told(self) -> str:
        return f"a replay takes {self.replay / 1e3:.4g} us and a plain call {self.eager / 1e3:.4g} us, with what lies between two calls"
