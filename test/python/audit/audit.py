"""Audits captured steps: each recording is followed (tracer.py), and when it is replayed for the first time, what was seen is compared with what the
step knows (guards.py).

    with auditing() as found:
        ...  # a program
    print(found.told())
"""
from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import weakref
from collections.abc import Iterator
from typing import Any

import torch

import overdrive
from overdrive.native.library import call
from overdrive.reads.code import is_watched, unwatched
from overdrive.step.api import CapturedStep
from overdrive.step.part import PartRunner
from overdrive.step.run import Runner
from overdrive.step.variant import REPLAYED

import excused
from guards import Known
from places import MISSING, Place
from tracer import Tracer
from value_stack import is_known

# Recordings of one set of values that are kept for its first replay.
_MOST = 4


class Found:
    """Of the programs of one block. Each difference once, by its line, with how often."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.excuses: collections.Counter[str] = collections.Counter()
        self.differences: collections.Counter[str] = collections.Counter()
        self.ends: collections.Counter[str] = collections.Counter()

    def add(self, other: dict[str, dict[str, int]]) -> None:
        for name, counter in vars(self).items():
            counter.update(other[name])

    def told(self) -> str:
        return "\n".join([f"{dict(self.counts)}, excused {dict(self.excuses)}", *(f"  not audited: {count} x {reason}" for reason, count in self.ends.most_common()),
                          *(f"  differs: {line}" for line in self.differences)])


class _Pending:
    """Of one step: by the number of a set of values, the recordings that were followed."""

    def __init__(self) -> None:
        self.tracers: dict[int, list[Tracer]] = {}
        # What was compared, and how much the step knew then.
        self.compared: dict[int, tuple[int, int]] = {}


def _unseen(function: Any) -> Any:
    """Its code passes for Overdrive's, which neither the walk nor the auditor takes for the program's."""
    function.__code__ = function.__code__.replace(co_filename=os.path.join(os.path.dirname(overdrive.__file__), "_audited.py"))
    return function


class Auditor:
    def __init__(self) -> None:
        self.found = Found()
        self._of: weakref.WeakKeyDictionary[Any, _Pending] = weakref.WeakKeyDictionary()
        self._is_following = False

    def pending(self, step: Any) -> _Pending:
        known = self._of.get(step)
        if known is None:
            known = self._of[step] = _Pending()
            self.found.counts["steps"] += 1
        return known

    @_unseen
    def follow(self, step: Any, run: Any, inputs: Any) -> Any:
        """A recorded call."""
        with unwatched():
            tracer = self.begin(step, run, inputs)
        try:
            return run(step, inputs)
        finally:
            with unwatched():
                if tracer is not None:
                    self.finish(step, tracer)

    def begin(self, step: Any, run: Any, inputs: Any) -> Tracer | None:
        if self._is_following or not step._subject.guarded:
            return None
        self._is_following = True
        tracer = Tracer(run.__code__)
        for value in arguments_of([*inputs.by_place, *inputs.by_name.values()] if hasattr(inputs, "by_place") else inputs):
            tracer.call.make(value)
        tracer.start()
        return tracer

    def finish(self, step: Any, tracer: Tracer) -> None:
        tracer.stop()
        self._is_following = False
        self.found.counts["recordings"] += 1
        if step._chooser.variant is not None:
            known = self.pending(step).tracers.setdefault(step._chooser.variant.number, [])
            known.append(tracer)
            del known[:-_MOST]

    def replayed(self, step: Any) -> None:
        """Compares the last recording of the values that the call has found, and again when the step has learned more of what it changes."""
        variant, pending = step._chooser.variant, self.pending(step)
        tracers = pending.tracers.get(variant.number, []) if variant is not None else []
        known = Known(step, variant) if tracers else None
        if known is not None and pending.compared.get(variant.number) != (knows := (id(tracers[-1]), known.count())):
            pending.compared[variant.number] = knows
            self.compare(known, tracers[-1])

    def compare(self, known: Known, tracer: Tracer) -> None:
        found, seen = self.found, tracer.call
        if tracer.end:
            found.ends[tracer.end] += 1
            return
        found.counts["audited"] += 1
        found.counts["read"] += len(seen.read)
        found.counts["written"] += len(seen.written)
        # What nothing of the program holds any more was reached by a place that is looked at itself.
        found.counts["gone"] += sum(not place.is_alive() for place in (*seen.read.values(), *seen.written.values()))
        for place in seen.read.values():
            if place.is_alive() and not known.reads(place) and not (place.by_torch and known.is_of_optimizer(place)):
                self._tell("reads", place, "")
        for place in seen.written.values():
            if place.is_alive() and (reason := known.changes(place)) and not known.is_of_optimizer(place) and not is_unchanged(place):
                self._tell("writes", place, f" ({reason})")

    def _tell(self, verb: str, place: Place, reason: str) -> None:
        if name := excused.excuse(place):
            self.found.excuses[name] += 1
            if unknown := excused.unknown(place):
                self.found.ends[f"{place.where}: a value of a library, {unknown}"] += 1
        else:
            self.found.differences[f"{verb} {place.told()}{reason}"] += 1


def is_unchanged(place: Place) -> bool:
    """Whether the call has left what stood there."""
    return place.kind == "entry" and place.was(dict.get(place.holder, place.key, MISSING))


def arguments_of(value: Any) -> Iterator[Any]:
    """Containers and tensors among the arguments, which the template of a call has."""
    if isinstance(value, torch.Tensor):
        yield value
    if isinstance(value, (list, tuple, dict)) or dataclasses.is_dataclass(value):
        yield value
        for item in value if isinstance(value, (list, tuple)) else (value if isinstance(value, dict) else vars(value)).values():
            yield from arguments_of(item)


@contextlib.contextmanager
def auditing() -> Iterator[Found]:
    """Inside, recorded calls of all steps of this thread are followed."""
    if not is_known():
        raise RuntimeError("The auditor reads the value stacks of CPython 3.11 and 3.13")
    auditor = Auditor()
    library = CapturedStep._call_library

    def called(step: Any, tensors: Any) -> Any:
        results = library(step, tensors)
        if step._forms.last is REPLAYED:
            auditor.replayed(step._runner)
        return results

    kinds = [(kind, kind.apply) for kind in (Runner, PartRunner)]
    for kind, apply in kinds:
        kind.apply = _followed(auditor, apply)  # type: ignore[method-assign]
    CapturedStep._call_library = called  # type: ignore[method-assign]
    try:
        yield auditor.found
    finally:
        for kind, apply in kinds:
            kind.apply = apply  # type: ignore[method-assign]
        CapturedStep._call_library = library  # type: ignore[method-assign]


def _followed(auditor: Auditor, apply: Any) -> Any:
    @_unseen
    def followed(step: Any, inputs: Any) -> Any:
        if call("Recording.is_active") and is_watched():
            return auditor.follow(step, apply, inputs)
        return apply(step, inputs)

    return followed


def note(found: Found, failed: bool) -> None:
    """Writes what was found in a program, a line of JSON, to $OVERDRIVE_TEST_AUDIT."""
    found.counts.update(programs=1, failed=int(failed))
    with open(os.environ["OVERDRIVE_TEST_AUDIT"], "a") as file:
        print(json.dumps(vars(found)), file=file)
