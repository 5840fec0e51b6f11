"""Schedulers of learning rates that a captured function steps. They step apart: in each call, in replays too."""
from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from overdrive.effects.apart import apart
from overdrive.native.recording import _refuse
from overdrive.optimizers.all import Optimizers


def is_scheduler(value: Any) -> bool:
    return isinstance(value, torch.optim.lr_scheduler.LRScheduler)


class Schedulers:
    """Those that runs of one captured function were seen to step."""

    def __init__(self) -> None:
        self._all: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()

    def __contains__(self, scheduler: Any) -> bool:
        return scheduler in self._all

    def add(self, scheduler: Any) -> None:
        self._all[scheduler] = None

    @contextlib.contextmanager
    def apart(self, optimizers: Optimizers) -> Iterator[None]:
        """Inside, ``step()`` of those whose optimizer gives its options to replays is a function that runs apart."""
        turned = [scheduler for scheduler in list(self._all) if "step" not in vars(scheduler)
                  and optimizers.carries_options_of(getattr(scheduler, "optimizer", None))]
        for scheduler in turned:
            scheduler.step = _Apart(scheduler, optimizers)
        try:
            yield
        finally:
            for scheduler in turned:
                if isinstance(vars(scheduler).get("step"), _Apart):
                    del scheduler.step
                else:
                    _refuse(f"The function replaces step() of {type(scheduler).__name__}; do so outside the function.")


def _scheduled_by(scheduler: Any) -> Any:
    """The optimizer whose options it changes; None: it may be any. PyTorch's own schedulers change those of their own one."""
    return scheduler.optimizer if type(scheduler).__module__ == torch.optim.lr_scheduler.__name__ else None


class _Stepping(threading.local):
    # Some schedulers step others.
    is_inside = False


_stepping = _Stepping()


class _Apart:
    """In the place of ``step()`` of one scheduler, on one thread. The recording holds it, and not the scheduler."""

    def __init__(self, scheduler: Any, optimizers: Optimizers) -> None:
        self._scheduler: Any = weakref.ref(scheduler)
        self._optimizers, self._thread = optimizers, threading.get_ident()
        self._has_stepped = False

    def __call__(self, *metrics: Any, **keywords: Any) -> Any:
        scheduler = self._scheduler()
        is_plain = not keywords and all(isinstance(metric, torch.Tensor) for metric in metrics)
        if not is_plain or _stepping.is_inside or threading.get_ident() != self._thread:
            if not is_plain and isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                _refuse("The function gives a scheduler's step() a number, and a replay has that of the recording; give it the tensor, "
                        "scheduler.step(loss).")
            return type(scheduler).step(scheduler, *metrics, **keywords)
        self._optimizers.note_scheduler(_scheduled_by(scheduler))
        apart(self._step, *metrics)
        if not self._has_stepped:  # but in a replay that was taken back
            self._optimizers.put_options_left()
        return None

    def _step(self, *metrics: Any) -> None:
        """In each call. Options of the call are those of before."""
        scheduler = self._scheduler()
        optimizer = _scheduled_by(scheduler)
        self._optimizers.keep_options(optimizer)
        _stepping.is_inside = self._has_stepped = True
        try:
            type(scheduler).step(scheduler, *metrics)
        finally:
            _stepping.is_inside = False
        self._optimizers.note_options_left(optimizer)
