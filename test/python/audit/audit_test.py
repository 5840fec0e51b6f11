"""The auditor itself: places of single lines, what is no use, its tables, and that it finds a guard which is missing."""
import collections
import dataclasses
import dis
import functools
import operator
import pathlib
import sys

import pytest
import torch

import overdrive

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import audit  # noqa: E402

import guards  # noqa: E402
import opcodes  # noqa: E402
import tracer  # noqa: E402
import value_stack  # noqa: E402

pytestmark = pytest.mark.skipif(not value_stack.is_known(), reason="the auditor reads the value stacks of CPython 3.11 and 3.13")


class Holder:
    common = 7

    def __init__(self, **values):
        vars(self).update(values)

    @property
    def twice(self):
        return self.k * 2

    def __getattr__(self, name):
        return self.other[name]


class Slotted:
    __slots__ = ("s",)


@dataclasses.dataclass
class Data:
    k: float = 1.0


def followed(function, *arguments):
    """What a call reads and writes, as texts, and why it ends."""
    def run():
        return function(*arguments)

    one = tracer.Tracer(run.__code__)
    for value in arguments:
        one.call.make(value)
    one.start()
    try:
        run()
    finally:
        one.stop()
    return ({f"{place.kind} {place.key}" for place in one.call.read.values()}, {f"{place.kind} {place.key}" for place in one.call.written.values()}, one.end)


o = Holder(k=2.0, other={"missing": 3.0}, box={"a": 1, "b": {"c": 2}}, numbers=[1, 2, 3], unread=9)
slotted = Slotted()
slotted.s = 4
data = Data()
bound = functools.partial(pow, 2.0)
context = __import__("contextvars").ContextVar("context")
context.set(1.0)


def closed():
    cell = 5

    def inner():
        return cell + 1
    return inner


def made_here():
    mine = Holder(k=o.k, other={})
    mine.extra = 1
    return mine.extra


def through_arguments():
    def callee(a, *rest, b=1, **more):
        return b
    return callee(o.k, b=o.numbers[1])


def generated():
    return sum(value for value in (o.k, 1) if value)


def unpacked():
    first, second, third = o.numbers
    return second + 1


def caught():
    try:
        return 1 / (o.k - 2.0)
    except ZeroDivisionError:
        return o.unread + 1


def matched():
    exec(MATCH, {"data": data, "Data": Data})


# A statement that Python 3.9 has not.
MATCH = "match data:\n    case Data(k=1.0):\n        pass"


READS = {
    "attribute": (lambda: o.k + 1, {"entry k"}, {"entry unread"}),
    "class": (lambda: o.common + 1, {"entry common", "absent common"}, set()),
    "property": (lambda: o.twice, {"entry twice", "entry k"}, set()),
    "__getattr__": (lambda: o.missing + 1, {"absent missing", "entry missing"}, set()),
    "item of a dict": (lambda: o.box["b"]["c"] + 1, {"entry b", "entry c"}, {"entry a"}),
    "key that is missing": (lambda: o.box.get("q", 1), {"absent q"}, {"entry a"}),
    "key in a dict": (lambda: "a" in o.box, {"has a"}, {"entry a"}),
    "item of a list": (lambda: o.numbers[-1] + 1, {"item 2", "size None"}, {"item 0"}),
    "loop": (lambda: [each for each in o.numbers], {"item 0", "item 2"}, set()),
    "len": (lambda: len(o.numbers), {"size None"}, {"item 0"}),
    "sum": (lambda: sum(o.numbers), {"item 1"}, set()),
    "slot": (lambda: slotted.s + 1, {"slot s"}, set()),
    "cell": (lambda: closed()(), set(), set()),
    "getattr": (lambda: getattr(o, "k") + 1, {"entry k"}, set()),
    "hasattr": (lambda: hasattr(data, "q"), {"absent q"}, set()),
    "attrgetter": (lambda: operator.attrgetter("k")(o) + 1, {"entry k"}, set()),
    "vars": (lambda: vars(o)["k"] + 1, {"entry k"}, {"entry unread"}),
    "all of vars": (lambda: list(vars(data).values()), {"keys None", "entry k"}, set()),
    "text": (lambda: f"{o.k}", {"entry k"}, set()),
    "branch": (lambda: 1 if o.k else 2, {"entry k"}, set()),
    "star": (lambda: max(*o.numbers), {"item 2"}, set()),
    "sorted": (lambda: sorted(o.numbers, key=lambda each: each * o.k), {"item 2", "entry k"}, set()),
    "partial": (lambda: bound(o.k), {"entry bound", "entry k"}, set()),
    "tensor": (lambda: torch.ones(2) * o.k, {"entry k"}, set()),
    "made here": (made_here, set(), {"entry extra"}),
    "arguments": (through_arguments, {"item 1", "entry k"}, {"entry unread"}),
    "generator": (generated, {"entry k"}, set()),
    "unpacking": (unpacked, {"item 0", "item 1"}, set()),
    "error": (caught, {"entry k", "entry unread"}, set()),
    "match": (matched, {"entry k"}, set()),
    "context": (lambda: context.get() + 1, {"context None"}, set()),
    "iterator": (lambda: next(iterator), {"iterator None"}, set()),
}
iterator = iter([1.0] * 100)


@pytest.mark.parametrize("row", READS)
def test_what_is_used_is_a_place(row):
    function, expected, others = READS[row]
    read, _, end = followed(function)
    assert not end
    assert expected <= read and not others & read, read


def change(line):
    return eval(f"lambda: {line}", {"o": o, "slotted": slotted, "setattr": setattr, "operator": operator})


@pytest.mark.parametrize("line, expected", [
    ("setattr(o, 'j', 1)", "entry j"), ("o.__dict__.update(j=1)", "contents None"), ("o.box.__setitem__('j', 1)", "entry j"), ("o.numbers.append(1)", "contents None"),
    ("operator.setitem(o.numbers, 0, 1)", "an unknown thing"), ("o.box.pop('j', 0)", "contents None"), ("setattr(slotted, 's', 4)", "slot s")])
def test_what_is_written_is_a_place(line, expected):
    o.box["j"] = 0
    _, written, end = followed(change(line))
    del o.numbers[3:]
    assert expected in written or expected == "an unknown thing", (written, end)


def test_unknown_things_end_the_audit():
    assert followed(lambda: sys.gettotalrefcount if hasattr(sys, "gettotalrefcount") else sys.getswitchinterval())[2].endswith("a function of C, sys.getswitchinterval()")


def test_every_instruction_has_a_row():
    asynchronous = {name for name in dis.opmap if any(part in name for part in ("ASYNC", "AITER", "ANEXT", "AWAITABLE"))}
    inner = {name for name in dis.opmap if name.startswith(("INSTRUMENTED", "SETUP_", "ENTER_EXECUTOR", "LOAD_SUPER_METHOD", "LOAD_ZERO_SUPER", "LOAD_METHOD", "JUMP"))}
    unknown = dis.opmap.keys() - opcodes.ROWS.keys() - asynchronous - inner
    # Of errors in groups, generators that are thrown into, modules and the prompt.
    assert unknown <= {"EXTENDED_ARG", "CHECK_EG_MATCH", "PREP_RERAISE_STAR", "IMPORT_STAR", "PRINT_EXPR", "CLEANUP_THROW", "RESERVED", "INTERPRETER_EXIT",
                       "EXIT_INIT_CHECK", "POP_BLOCK", "BUILD_SET_NULL"}, unknown


def program(function, calls=9, change=None):
    with audit.auditing() as found:
        step = overdrive.capture(function, always=True)
        for _ in range(calls):
            step(torch.ones(2))
    return found, step


def trained():
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters())

    def train(x):
        optimizer.zero_grad()
        loss = model(x).square().sum() * o.k
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss
    return train


PROGRAMS = {"values": lambda x: x * o.k + o.numbers[1] + o.box["b"]["c"] + o.common + slotted.s, "training": trained(),
            "counting": lambda x: setattr(o, "seen", vars(o).get("seen", 0) + 1) or x * 2}


@pytest.mark.parametrize("row", PROGRAMS)
def test_a_step_guards_what_it_reads(row):
    found, step = program(PROGRAMS[row])
    assert not found.ends and not found.differences, found.told()
    assert found.counts["audited"] or not step.stats()["replayed"]


def test_a_guard_that_is_missing_is_told(monkeypatch):
    """Of the guards of a step, each that the program's own values have is taken away in turn."""
    usual = guards.Known.__init__
    for name in ("k", "numbers", 1):
        def without(self, step, variant, name=name):
            usual(self, step, variant)
            self._reads = {place: read for place, read in self._reads.items() if place[2] != name}
        monkeypatch.setattr(guards.Known, "__init__", without)
        found, _ = program(lambda x: x * o.k + o.numbers[1])
        assert len(found.differences) == 1 and f"[{name!r}]" in next(iter(found.differences)), found.told()


def test_the_auditor_changes_nothing():
    """The same replays and guards with it as without."""
    counts = collections.Counter()
    for audits in (False, True):
        train = trained()
        if audits:
            _, step = program(train, calls=20)
        else:
            step = overdrive.capture(train, always=True)
            for _ in range(20):
                step(torch.ones(2))
        counts[step.stats()["replayed"], len(step._chooser.variant.reads)] += 1
    assert len(counts) == 1, counts
