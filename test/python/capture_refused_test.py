"""What a captured step does not know, it refuses: programs that were silently wrong, because a value was guarded only if a name led to it. Each
is right in every call, or refused by name."""
import abc
import asyncio
import builtins
import contextlib
import copy
import copyreg
import ctypes
import datetime
import decimal
import enum
import functools
import gc
import importlib
import inspect
import io
import itertools
import locale
import logging
import mmap
import multiprocessing
import operator
import os
import re
import subprocess
import sys
import threading
import time
import types
import warnings

import pytest
import torch

import overdrive

X = torch.ones(2, 3)


class Config:
    def __init__(self):
        self.train = types.SimpleNamespace(rate=0.1)


CONFIG, PATH, NAMES, ENDS, FUTURES, TABLE = Config(), "train.rate", ["OVERDRIVE_TEST_RATE"], [None, None], [None], {}
EVENT, SETTINGS = multiprocessing.Event(), types.ModuleType("overdrive_test_settings")
MODULE, KEYS = "overdrive_test_settings", ["a"]


def both(make, call, calls=30):
    """The same calls, eager and captured; each must have the same bits. The captured step."""
    sides = []
    for capture in (lambda function: function, overdrive.capture):
        torch.manual_seed(0)
        program = make()
        step, results = capture(program.train), []
        for i in range(calls):
            results.append(call(program, step, i).detach().clone())
        sides.append(results)
    for i, (eager, captured) in enumerate(zip(*sides)):
        assert torch.equal(eager, captured), (i, eager, captured, step.refusal())
    return step


class Counting:
    """A count that goes on in some calls alone, and an operator that is given it without a word."""

    def __init__(self, use, goes_on):
        self.n, self.micro = 1, 0
        self.use, self.goes_on = use, goes_on
        self.mean = torch.zeros(())
        self.w = torch.ones(3, requires_grad=True)
        self.optimizer = torch.optim.SGD([self.w], lr=0.01)

    def train(self, x, *flags):
        self.optimizer.zero_grad()
        self.micro += 1
        loss = self.use(self, (self.w * x).sum())
        loss.backward()
        self.optimizer.step()
        if self.goes_on(self, x, *flags):
            self.n += 1
        return loss


def moves_the_mean(program, loss):
    program.mean.mul_(1 - 0.1 * program.n).add_(loss.detach())
    return loss + program.mean


USES = {
    "behind a float's power": lambda program, loss: loss * 0.9 ** program.n, "a tensor divided by it": lambda program, loss: loss / program.n,
    "a float divided by it": lambda program, loss: loss * (1.0 / program.n), "a buffer by it": moves_the_mean,
    "a tensor's power": lambda program, loss: loss.abs().pow(program.n)}
GO_ON = {
    "every fourth call": (lambda program, x: program.micro % 4 == 0, lambda i: ()),
    "a smaller batch": (lambda program, x: len(x) < 4, lambda i: ()),
    "a flag": (lambda program, x, last, epoch: last, lambda i: (i % 4 == 3, 2 if i < 21 else 3))}


@pytest.mark.parametrize("goes_on", GO_ON)
@pytest.mark.parametrize("use", USES)
def test_a_count_that_goes_on_in_some_calls(use, goes_on):
    rule, flags = GO_ON[goes_on]
    both(lambda: Counting(USES[use], rule), lambda program, step, i: step(torch.full((2 if i % 7 == 5 else 4, 3), i % 7 / 8 + 0.125), *flags(i)), calls=40)


class Refreshing:
    """A tensor that some calls put anew, and all read."""

    def __init__(self):
        self.base, self.table, self.refresh = torch.ones(()), {"scale": torch.ones(())}, False
        self.w = torch.ones(3, requires_grad=True)
        self.optimizer = torch.optim.SGD([self.w], lr=0.01)

    def train(self, x, refresh):
        self.optimizer.zero_grad()
        loss = (self.w * x).sum() * self.base * self.table["scale"]
        loss.backward()
        self.optimizer.step()
        if refresh:
            self.base = x.sum().detach()
        if self.refresh:
            self.table["scale"] = x.mean()
        return loss


@pytest.mark.parametrize("where", ["an attribute", "a dict", "both"])
def test_a_tensor_that_some_calls_put_anew(where):
    def call(program, step, i):
        program.refresh = where != "an attribute" and i % 6 == 5
        return step(torch.full((4, 3), i % 7 / 8 + 0.125), where != "a dict" and i % 5 == 4)

    both(Refreshing, call, calls=40)


def test_a_tensor_that_is_there_in_some_calls_alone():
    class Program:
        def __init__(self):
            self.base, self.w = None, torch.ones(3)

        def train(self, x, refresh):
            loss = (self.w * x).sum() * (1.0 if self.base is None else 2.0)
            if refresh:
                self.base = x.sum()
            return loss

    both(Program, lambda program, step, i: step(torch.full((3,), float(i)), i == 12))


def test_what_a_part_of_the_calls_leaves_still_replays():
    class Program:
        def __init__(self):
            self.last, self.w = None, torch.ones(3, requires_grad=True)

        def train(self, x, log):
            loss = (self.w * x).sum()
            if log:
                self.last = loss
            return loss

    step = both(Program, lambda program, step, i: step(torch.full((3,), float(i)), i % 5 == 4), calls=60)
    assert step.stats()["replayed"] > 30, step.explain()


def from_a_generator():
    for k in itertools.count():
        yield 0.1 if k < 8 else 0.5


class Rate:
    """A lasting tensor moves by a rate that no name leads to."""

    def __init__(self, rate):
        self.rate, self.values, self.buffer = rate, from_a_generator(), io.StringIO("0.1\n" * 8 + "0.5\n" * 30)
        self.w, self.target = torch.ones(3), torch.zeros(3)

    def train(self, x):
        self.target.lerp_(self.w * x, self.rate(self))
        return self.target * 1


def rate_of_a_file(program, path=os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytest.ini")):
    with open(path) as file:
        return len(file.read()) / 1e6


# Each with what the refusal names; "": it replays, and another value is noticed.
RATES = {
    "datetime.now": (lambda program: 0.1 if datetime.datetime.now() < ENDS[0] else 0.5, "datetime.datetime.now()"),
    "time.clock_gettime": (lambda program: 0.1 if time.clock_gettime(time.CLOCK_MONOTONIC) < ENDS[1] else 0.5, "time.clock_gettime()"),
    "a clock that map calls": (lambda program: min(map(time.clock_gettime, [time.CLOCK_MONOTONIC])) * 0 + 0.1, "clock_gettime"),
    "os.path.exists": (lambda program: 0.5 if os.path.exists(NAMES[0]) else 0.1, "posix.stat()"),
    "open": (rate_of_a_file, "io.open()"),
    "an environment variable": (lambda program: float(os.environ[NAMES[0]]), ""),
    "an event": (lambda program: 0.5 if EVENT.is_set() else 0.1, ""),
    "reduce(getattr)": (lambda program: functools.reduce(getattr, PATH.split("."), CONFIG), "gives getattr() to another one"),
    "attrgetter": (lambda program: operator.attrgetter(PATH)(CONFIG), ""),
    "sys.modules": (lambda program: sys.modules[MODULE].TAU, ""),
    "import_module": (lambda program: importlib.import_module(MODULE).TAU, ""),
    "a module by pieces": (lambda program: sys.modules[MODULE[:10] + MODULE[10:]].TAU, "finds modules by names that it computes"),
    "a future": (lambda program: 0.5 if FUTURES[0].done() else 0.1, "_asyncio.Future.done()"),
    "a generator": (lambda program: next(program.values), "`self.values`, an iterator that lives on"),
    "a file in memory": (lambda program: float(program.buffer.readline()), "readline()"),
    "str of a dict": (lambda program: 0.5 if str(TABLE).startswith("{'b'") else 0.1, ""),
    "an item by a key that is a value": (lambda program: TABLE[KEYS[0]] / 10, ""),
}


def change(i):
    """Before call `i`: all of it changes at the tenth."""
    is_late = i >= 9
    if i == 0:
        ENDS[:] = datetime.datetime.now() + datetime.timedelta(days=1), time.clock_gettime(time.CLOCK_MONOTONIC) + 1e6
        FUTURES[0] = asyncio.Future(loop=LOOP)
        EVENT.clear()
    elif i == 9:
        ENDS[:] = datetime.datetime.now(), time.clock_gettime(time.CLOCK_MONOTONIC)
        FUTURES[0].set_result(1)
        EVENT.set()
    os.environ[NAMES[0]] = "0.5" if is_late else "0.1"
    CONFIG.train.rate = SETTINGS.TAU = 0.5 if is_late else 0.1
    TABLE.clear()
    TABLE.update({"b": 2, "a": 5} if is_late else {"a": 1, "b": 2})


LOOP = asyncio.new_event_loop()


@pytest.mark.parametrize("kind", RATES)
def test_a_rate_that_no_plain_name_leads_to(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, MODULE, SETTINGS)
    monkeypatch.setenv(NAMES[0], "0.1")
    rate, named = RATES[kind]

    def call(program, step, i):
        change(i)
        return step(torch.full((3,), float(i % 3 + 1)))

    step = both(lambda: Rate(rate), call, calls=20)
    if named:
        assert named in step.refusal() and step.stats()["replayed"] == 0, step.refusal()
    else:
        assert step.stats()["replayed"] > 8, step.explain()


class Whole(int):
    pass


class Text(str):
    pass


class Always:
    """Equal to everything of its class, as far as its own comparison says."""

    def __init__(self, rate):
        self.rate = rate

    def __eq__(self, other):
        return True

    __hash__ = None


SAME = {
    "a complex zero": (complex(-1.0, 0.0), complex(-1.0, -0.0), lambda x, value: x * torch.sqrt(torch.tensor(value)).imag),
    "minus zero": (0.0, -0.0, lambda x, value: x * torch.atan2(torch.tensor(value), torch.tensor(-1.0))),
    "a flag and a number": (1, True, lambda x, value: x * (2.0 if value is True else 3.0)),
    "an integer of another class": (Whole(1), 1, lambda x, value: x * (2.0 if type(value) is int else 3.0)),
    "a text of another class": (Text("a"), "a", lambda x, value: x * (2.0 if type(value) is str else 3.0)),
    "a tuple of such": ((0.0, 1), (-0.0, 1), lambda x, value: x * torch.atan2(torch.tensor(value[0]), torch.tensor(-1.0))),
    "a key of another class": ({1: 2.0}, {True: 2.0}, lambda x, value: x * (2.0 if next(iter(value)) is True else 3.0)),
    "a comparison of one's own": ([Always(2.0)], [Always(3.0)], lambda x, value: x * value[0].rate),
}


@pytest.mark.parametrize("kind", SAME)
@pytest.mark.parametrize("as_argument", [False, True], ids=["a global", "an argument"])
def test_equal_means_the_same_bits(kind, as_argument):
    first, second, use = SAME[kind]
    box = types.SimpleNamespace(value=first)
    step = overdrive.capture(use) if as_argument else overdrive.capture(lambda x: use(x, box.value))
    for i in range(24):
        box.value = first if i < 12 else second
        x = torch.full((2,), float(i + 1))
        assert torch.equal(step(x, box.value) if as_argument else step(x), use(x, box.value)), (i, step.refusal())


def test_what_watch_returns_is_looked_at_inside():
    values = [1.0]
    step = overdrive.capture(lambda x: x * sys.intern("a").count("a") * values[0], watch=lambda: values, guards="promised", constant_numbers=True)
    for i in range(12):
        values[0] = 1.0 if i < 8 else 2.0
        assert torch.equal(step(X), X * values[0]), i


class Long:
    def __init__(self):
        self.tensors = [torch.ones(()) for _ in range(1100)]
        self.pairs = tuple([1.0] for _ in range(1100))
        self.chain = node = types.SimpleNamespace(k=1.0, next=None)
        for _ in range(120):
            node.next = node = types.SimpleNamespace(k=1.0, next=None)


def last_of(node):
    while node.next is not None:
        node = node.next
    return node


@pytest.mark.parametrize(("read", "alter", "named"), [
    (lambda long, x: x * long.tensors[1050], lambda long: long.tensors.__setitem__(1050, torch.full((), 2.0)), "has 1100 items"),
    (lambda long, x: x * long.pairs[1050][0], lambda long: long.pairs[1050].__setitem__(0, 2.0), "has 1100 items"),
    (lambda long, x: x * last_of(long.chain).k, lambda long: setattr(last_of(long.chain), "k", 2.0), "steps behind a name")],
    ids=["a list", "a tuple", "a chain"])
def test_a_limit_is_a_refusal(read, alter, named):
    long = Long()
    step = overdrive.capture(lambda x: read(long, x))
    for i in range(12):
        if i == 8:
            alter(long)
        assert torch.equal(step(X), read(long, X)), i
    assert named in step.refusal(), step.refusal()


def test_a_class_that_an_abstract_one_gets_to_know():
    class Abstract(abc.ABC):
        pass

    value = Config()
    step = overdrive.capture(lambda x: x * (2 if isinstance(value, Abstract) else 3))
    for i in range(20):
        if i == 12:
            Abstract.register(Config)
        assert torch.equal(step(X), X * (2 if i >= 12 else 3)), i
    assert step.stats()["replayed"] > 8, step.explain()


def test_a_builtin_that_is_replaced(monkeypatch):
    step = overdrive.capture(lambda x: x * max(2, 1))
    for i in range(20):
        if i == 12:
            monkeypatch.setattr(builtins, "max", lambda *_: 7)
        assert torch.equal(step(X), X * (7 if i >= 12 else 2)), i
    assert step.stats()["replayed"] > 8, step.explain()


def keep_a_thread(box):
    """Another thread until `box` lets it go."""
    box.stop = threading.Event()
    box.threads.append(threading.Thread(target=box.stop.wait, daemon=True))
    box.threads[0].start()


def plain(a):
    """text"""


class Named:
    pass


class Kinds(enum.Enum):
    RATE = 2.0


@functools.lru_cache(maxsize=1)
def from_a_small_cache(key):
    return [RATE[0]]


def evicts(box):
    """The cached result is dropped, and its key is computed anew."""
    RATE[0] = 5.0
    from_a_small_cache("another")


def through_a_stack(box):
    with contextlib.ExitStack() as stack:
        return stack.enter_context(contextlib.nullcontext(threading.active_count))()


def of_recorded_warnings(box):
    with warnings.catch_warnings(record=True) as caught:
        warnings.warn("a", stacklevel=1)
    return 1 + len(caught)


class Asking:
    count = functools.cached_property(lambda self: threading.active_count())


LOG, TENTH, TABLE_OF_NAMES = logging.getLogger("overdrive.test"), decimal.Decimal(1) / 10, types.ModuleType("overdrive_test_names")
TABLE_OF_NAMES.rate0, RATE, OF_C = 2.0, [2.0], ctypes.CDLL(None).getpid


# What Python's own library keeps: how it is read, how it changes, and what the refusal names; "": another value is noticed.
KEPT_BY_PYTHON = {
    "the level that counts": (lambda box: LOG.getEffectiveLevel(), lambda box, patch: LOG.setLevel(11), "logging.Logger.getEffectiveLevel()"),
    "a level that is enabled": (lambda box: 1 + LOG.isEnabledFor(20), lambda box, patch: LOG.setLevel(50), "logging.Logger.isEnabledFor()"),
    "a logger's own level": (lambda box: logging.getLogger("overdrive.test").level, lambda box, patch: LOG.setLevel(12), ""),
    "handlers": (lambda box: 1 + LOG.hasHandlers(), lambda box, patch: patch.setattr(LOG, "propagate", False), "logging.Logger.hasHandlers()"),
    "warnings that were shown": (of_recorded_warnings, lambda box, patch: None, "warnings.catch_warnings.__enter__()"),
    "the filters of warnings": (lambda box: 1 + len(warnings.filters), lambda box, patch: patch.setattr(warnings, "filters", []), ""),
    "how many threads": (lambda box: threading.active_count(), lambda box, patch: keep_a_thread(box), "threading.active_count()"),
    "the thread": (lambda box: len(threading.current_thread().name),
                   lambda box, patch: patch.setattr(threading.main_thread(), "name", "another"), "threading.current_thread()"),
    "a function of threads that map calls": (lambda box: sum(map(lambda ask: ask(), [threading.active_count])),
                                             lambda box, patch: keep_a_thread(box), "threading.active_count()"),
    "one that a cached property calls": (lambda box: Asking().count, lambda box, patch: keep_a_thread(box), "threading.active_count()"),
    "one that came through a stack": (through_a_stack, lambda box, patch: keep_a_thread(box), "threading.active_count()"),
    "an event": (lambda box: 2 if box.event.is_set() else 3, lambda box, patch: box.event.set(), ""),
    "the context of decimal": (lambda box: float(TENTH / 3), lambda box, patch: patch.setattr(decimal.getcontext(), "prec", 3), ""),
    "its rounding": (lambda box: float(round(TENTH / 3, 2)), lambda box, patch: patch.setattr(decimal.getcontext(), "rounding", "ROUND_UP"), ""),
    "a signature": (lambda box: len(inspect.signature(plain).parameters), lambda box, patch: None, "inspect.signature()"),
    "the locale": (lambda box: 1 + len(locale.setlocale(locale.LC_ALL)), lambda box, patch: None, "locale.setlocale()"),
    "the folder": (lambda box: len(os.path.abspath("a")), lambda box, patch: patch.chdir("/"), "abspath()"),
    "another function of paths": (lambda box: len(os.path.basename(box.path)), lambda box, patch: setattr(box, "path", "a/bcd"), ""),
    "a whole environment": (lambda box: len(os.get_exec_path()), lambda box, patch: patch.setenv("PATH", "/a"), "os.get_exec_path()"),
    "whether Python collects": (lambda box: 1 + gc.isenabled(), lambda box, patch: None, "gc.isenabled()"),
    "a copy by a table": (lambda box: copy.copy(box.named).k,
                          lambda box, patch: patch.setitem(copyreg.dispatch_table, Named, lambda _: (made_otherwise, ())), ""),
    "names in a module": (lambda box: len(dir(TABLE_OF_NAMES)), lambda box, patch: patch.setattr(TABLE_OF_NAMES, "more", 1, raising=False), ""),
    "a module's value by a name of pieces": (lambda box: getattr(TABLE_OF_NAMES, f"rate{box.zero}"),
                                             lambda box, patch: patch.setattr(TABLE_OF_NAMES, "rate0", 3.0), ""),
    "all values of a module": (lambda box: sum(value for value in vars(TABLE_OF_NAMES).values() if isinstance(value, float)),
                               lambda box, patch: patch.setattr(TABLE_OF_NAMES, "rate0", 3.0), ""),
    "a function's text": (lambda box: len(plain.__doc__), lambda box, patch: patch.setattr(plain, "__doc__", "longer text"), ""),
    "a function's name": (lambda box: len(plain.__qualname__), lambda box, patch: patch.setattr(plain, "__qualname__", "longer"), ""),
    "a class's name": (lambda box: len(type(box.named).__name__), lambda box, patch: setattr(Named, "__name__", "Longer"), ""),
    "a member of an enum": (lambda box: Kinds.RATE.value, lambda box, patch: patch.setattr(Kinds.RATE, "_value_", 3.0), ""),
    "a cache that drops results": (lambda box: from_a_small_cache("a")[0], lambda box, patch: evicts(box), ""),
    "a pointer": (lambda box: box.pointer[1], lambda box, patch: box.pointer.__setitem__(1, 3.0), "a pointer of ctypes"),
    "pointers in a structure": (lambda box: box.structure.p[1], lambda box, patch: box.pointer.__setitem__(1, 3.0), "a pointer of ctypes"),
    "a scanner": (lambda box: len(box.scanner.search().group()), lambda box, patch: None, "_sre.SRE_Scanner.search()"),
    "a lock that a thread may take again": (lambda box: 1 + box.lock.acquire(False), lambda box, patch: None, "_thread.RLock.acquire()"),
    "the error under way": (lambda box: 1 if sys.exc_info()[1] is None else 2, lambda box, patch: None, "sys.exc_info()"),
    "a function of ctypes": (lambda box: OF_C(), lambda box, patch: None, "a function of ctypes"),
}


class WithPointer(ctypes.Structure):
    _fields_ = [("p", ctypes.POINTER(ctypes.c_double))]


def made_otherwise():
    named = Named()
    named.k = 7.0
    return named


@pytest.mark.parametrize("kind", KEPT_BY_PYTHON)
def test_what_pythons_library_keeps(kind, monkeypatch):
    read, alter, named = KEPT_BY_PYTHON[kind]
    LOG.setLevel(10)
    from_a_small_cache.cache_clear()
    RATE[0] = 2.0
    box = types.SimpleNamespace(event=threading.Event(), stop=threading.Event(), threads=[], zero=0, path="a/b", named=Named())
    box.named.k = 2.0
    box.lock, box.scanner, box.pointer = threading.RLock(), re.compile("a").scanner("a" * 99), (ctypes.c_double * 2)(1.0, 2.0)
    box.pointer = ctypes.cast(box.pointer, ctypes.POINTER(ctypes.c_double))
    box.structure = WithPointer(box.pointer)
    step = overdrive.capture(lambda x: x * read(box))
    try:
        for i in range(20):
            if i == 11:
                alter(box, monkeypatch)
            x = torch.full((2,), float(i % 3 + 1))
            assert torch.equal(step(x), x * read(box)), (i, step.refusal())
    finally:
        box.stop.set()
        for thread in box.threads:
            thread.join()
    if sys.version_info < (3, 11):  # which has no names of classes in code
        named = named and named.rpartition(".")[2]
    if named:
        assert named in step.refusal() and step.stats()["replayed"] == 0, step.refusal()
    else:
        assert step.stats()["replayed"] > 8, step.explain()


@pytest.mark.parametrize("body", ["x is box.last", "box.last is x", "any(x is each for each in box.all)", "d is box.d", "not (d['t'] is box.last)"])
def test_whether_an_argument_is_an_object_of_the_program(body):
    box = types.SimpleNamespace(last=torch.ones(2), all=[torch.zeros(2), torch.ones(2)], d={"t": torch.ones(2)})
    program = {"box": box}
    exec(f"def function(x, d):\n    return x * (2 if {body} else 1)", program)
    step = overdrive.capture(program["function"])
    for call in range(24):
        x, d = ((torch.ones(2), {"t": torch.ones(2)}), (box.last, box.d), (box.all[1], {"t": box.last}))[call % 3 if call > 11 else 0]
        assert torch.equal(step(x, d), program["function"](x, d)), call
    assert "an argument, is one object of the program's" in step.refusal() or "d['t']" in body, step.refusal()


def test_which_arguments_are_one_is_known():
    step = overdrive.capture(lambda x, y: x * (2 if x is y else 1))
    for call in range(24):
        x = torch.ones(2)
        assert torch.equal(step(x, x if call % 2 else torch.ones(2)), x * (1 + call % 2))
    assert step.stats()["replayed"] > 8, step.refusal()


def test_what_the_program_itself_shows_is_no_output():
    class Handler(logging.Handler):
        def emit(self, record):
            box.k = box.rate

    box, handler = types.SimpleNamespace(k=1.0, rate=1.0), Handler()

    def function(x):
        LOG.warning("a message")
        return x * box.k

    LOG.addHandler(handler)
    try:
        step = overdrive.capture(function)
        for call in range(24):
            box.rate = float(call // 12)
            assert step(torch.ones(2))[0] == call // 12
    finally:
        LOG.removeHandler(handler)
    assert "by emit() of the program" in step.refusal() and step.stats()["replayed"] == 0


@pytest.mark.parametrize("file", ["logging/rate.py", "warnings.py"])
def test_a_file_of_the_program_with_the_name_of_what_shows(file, tmp_path):
    program = {"path": tmp_path / "rate"}
    exec(compile("def function(x):\n    return x * float(open(path).read())", str(tmp_path / file), "exec"), program)
    step = overdrive.capture(program["function"])
    for call in range(24):
        program["path"].write_text(str(call // 12))
        assert step(torch.ones(2))[0] == call // 12
    assert "io.open()" in step.refusal(), step.refusal()


def test_what_is_shown_is_no_reason():
    def train(x):
        LOG.info("a message %s", x.shape)
        logging.getLogger("overdrive.test").debug("another")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("a", stacklevel=1)
        print("shown", file=sys.stderr)
        return x * 2

    step = overdrive.capture(train)
    for _ in range(12):
        step(X)
    assert step.stats()["replayed"] > 6, step.refusal()


# Where the filters of a context are not looked at, a replay goes on and eager raises.
_WARNS = """
import warnings, torch, overdrive

def train(x):
    warnings.warn("a", stacklevel=1)
    return x * 2

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    step = overdrive.capture(train)
    for _ in range(12):
        step(torch.ones(2))
    assert step.stats()["replayed"] > 6, step.refusal()
    warnings.simplefilter("error")
    try:
        step(torch.ones(2))
    except UserWarning:
        print("raised")
"""


@pytest.mark.parametrize("options", [[], pytest.param(["-X", "context_aware_warnings=1"], marks=pytest.mark.skipif(
    sys.version_info < (3, 14), reason="filters are the process's alone"))], ids=["the process", "a context"])
def test_filters_of_warnings_are_looked_at(options):
    done = subprocess.run([sys.executable, *options, "-c", _WARNS], capture_output=True, text=True, timeout=120)
    assert done.stdout == "raised\n", done.stderr


def test_the_refusal_says_where_and_what_to_do():
    step = overdrive.capture(lambda x: x * threading.active_count())
    for _ in range(6):
        step(X)
    for text in ("threading.active_count()", "capture_refused_test.py:", "as an argument", "watch=", 'guards="promised"'):
        assert text in step.refusal(), step.refusal()


@pytest.mark.parametrize("read", [lambda m: m[0], len, lambda m: b"a" in m, lambda m: sum(1 for each in m if each == b"a")])
def test_containers_of_c_are_refused(read):
    """Of what is no container of Python's own, nobody knows when its items change."""
    memory = mmap.mmap(-1, 8192)
    step = overdrive.capture(lambda x: x * float(read(memory)))
    for i in range(16):
        if i == 12:
            memory[0] = 97
            memory.resize(4096)
        assert torch.equal(step(X), X * float(read(memory)))
    assert step.refusal().startswith("The function may look into `memory`, of a class of C (mmap.mmap)"), step.refusal()


class NoModule:
    __module__ = property(lambda self: "none")
    rate = 1.0


@pytest.mark.parametrize("value", [re.match("(a)(b)", "ab"), int | float, list[int], NoModule()],
                         ids=["a match", "a union of classes", "a list of integers", "of a class without a module's name"])
def test_containers_of_c_that_stay_as_they_are(value):
    """Configurations have some in their annotations."""
    step = overdrive.capture(lambda x: x * (1.0 if value is not None else 2.0))
    for _ in range(16):
        assert torch.equal(step(X), X)
    assert step.stats()["replayed"] > 8, step.refusal()
