"""A notebook's namespace, eager or captured: executes cells and notes what they left. Random numbers are the side's own."""
from __future__ import annotations

import queue
import threading

import torch
from facts import Facts, bits

import overdrive

IMPORTS = """
import contextlib, copy, torch
from torch import nn
from torch.nn import functional as F
"""

MANY = 20  # calls after which a captured function that replays nothing must say why


def data(k, rows=4, *shape):
    """The data with number k: the same in each call, others for another number."""
    return torch.randn(rows, *(shape or (4,)), generator=torch.Generator().manual_seed(k)).clamp(-3, 3)


def without_graph(result, known=None):
    """What a captured step returns is detached; a tensor that it returns twice is one tensor."""
    known = {} if known is None else known
    if isinstance(result, torch.Tensor):
        return known.setdefault(id(result), (result, result.detach()))[1]
    if type(result) in (list, tuple):
        return type(result)(without_graph(part, known) for part in result)
    if type(result) is dict:
        return {key: without_graph(part, known) for key, part in result.items()}
    return result


class Threads:
    """Threads that live as long as the side: each function runs on the thread of its place, all of them at the same time."""

    def __init__(self):
        self._queues = []

    def together(self, *functions):
        while len(self._queues) < len(functions):
            self._queues.append(queue.SimpleQueue())
            threading.Thread(target=self._serve, args=(self._queues[-1],), daemon=True).start()
        results, done = [None] * len(functions), queue.SimpleQueue()
        for place, function in enumerate(functions):
            self._queues[place].put((place, function, results, done))
        # By their places: which thread fails first is nobody's promise.
        errors = dict(done.get() for _ in functions)
        for place in range(len(functions)):
            if errors[place] is not None:
                raise errors[place]
        return results

    @staticmethod
    def _serve(tasks):
        torch.set_num_threads(1)  # a new thread's first product may use more, and rounds in another way
        while (task := tasks.get()) is not None:
            place, function, results, done = task
            error = None
            try:
                results[place] = function()
            except Exception as raised:  # noqa: BLE001 - the program's
                error = raised
            del function, task
            done.put((place, error))
            del error, results

    def end(self):
        for tasks in self._queues:
            tasks.put(None)


class Side:
    def __init__(self, ours, settings=None):
        self.captured, self.threads = [], Threads()
        self._ours, self._settings = ours, settings or {}
        self.namespace = {"__name__": "program"}
        exec(IMPORTS, self.namespace)
        self.namespace.update(capture=self._capture, captured=self._part, data=data, together=self.threads.together)
        torch.manual_seed(7)
        self._random = torch.get_rng_state()

    def _capture(self, function, **options):
        if not self._ours:
            return lambda *args: without_graph(function(*args))
        self.captured.append(overdrive.capture(function, **self._settings, **options))
        return self.captured[-1]

    def _part(self, target, **options):
        if not self._ours:
            return target
        made = overdrive.captured(target, **self._settings, **options)
        self.captured.append(overdrive.part_of(made) if isinstance(made, torch.nn.Module) else made)
        return made

    def run(self, cell):
        """{place: fact} after the cell; its error is at the place `error`."""
        torch.set_rng_state(self._random)
        error = ""
        try:
            exec(compile(cell, "<cell>", "exec"), self.namespace)
        except Exception as raised:  # noqa: BLE001 - the program's
            error = f"{type(raised).__name__}: {raised}".split("\n")[0]
        self._random = torch.get_rng_state()
        facts = Facts(self.namespace).found
        facts["error"], facts["random numbers"] = error, bits(self._random)
        return facts

    def replayed(self):
        counts = (part.stats() for part in self.captured if hasattr(part, "stats"))
        return sum(count.get("replayed", 0) for count in counts)

    def silent(self):
        """A captured step or part that replayed nothing in many calls and gives no reason, or ""."""
        for part in self.captured:
            if hasattr(part, "refusal") and part.stats().get("calls", 0) >= MANY and not part.stats()["replayed"] and not part.refusal():
                return f"nothing is replayed, and refusal() is empty: {part.stats()}"
        return ""

    def end(self):
        self.threads.end()
        self.namespace.clear()
