"""Twelve calls of a subject, eager and captured: the same data, then other data of the same sizes, then the first again."""
from __future__ import annotations

import signal

import torch
from samples import difference

CALLS = (0, 0, 0, 1, 2, 1, 0, 2, 0, 0, 1, 2)  # which draw of the data each call gets
SECONDS = 20  # for a sample


class TooLong(BaseException):
    """A sample took longer than SECONDS."""


def _too_long(*_):
    raise TooLong


def outcome(subject, sample, seed):
    torch.manual_seed(seed)
    try:
        tensors = subject.call(sample)
    except Exception as error:  # noqa: BLE001 - an error is an outcome
        return f"{type(error).__name__}: {error}".split("\n")[0], [], None
    return "", tensors, torch.get_rng_state()


def eager_differs(make, samples):
    """Why this sample shows nothing, or ""."""
    for sample in dict.fromkeys(samples):
        first, second = (outcome(make(False), sample, 1) for _ in range(2))
        if first[0] and sample is samples[0]:
            return "eager throws"
        if not first[0] and (second[0] or difference(first[1], second[1])):
            return "eager differs from itself"
    return ""


def compared(make, samples):
    """(kind, text) of one sample: skipped, replayed, refused or differs. `make(ours)` makes a side, `samples` are draws of data."""
    if not all(sample.is_plain() for sample in samples):
        return "skipped", "not a dense tensor of the CPU"
    samples = [s if s.look() == samples[0].look() else samples[0] for s in samples]
    if why := eager_differs(make, samples):
        return "skipped", why
    eager, ours = make(False), make(True)
    for number, draw in enumerate(CALLS):
        error, want, state = outcome(eager, samples[draw], number)
        our_error, got, our_state = outcome(ours, samples[draw], number)
        text = f"error {error or 'none'} and {our_error or 'none'}" if error != our_error else difference(want, got)
        if not text and state is not None and not torch.equal(state, our_state):
            text = "the state of random numbers"
        if text:
            return "differs", f"{[look[0] for look in samples[0].look()]} call {number}: {text}; {ours.replayed()} replayed, {ours.refusal()}"
    if ours.replayed():
        return "replayed", ""
    return ("refused", ours.refusal()) if ours.refusal() else ("differs", "nothing is replayed, and refusal() is empty")


def compared_in_time(make, samples):
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS)
    try:
        return compared(make, samples)
    except TooLong:
        return "too long", ""
    finally:
        signal.alarm(0)
