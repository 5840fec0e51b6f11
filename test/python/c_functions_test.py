"""Each row of the table of C functions: another value of what the function reads is another result, and a captured step has eager's."""
import sys
import threading
import types

import pytest
import torch

import overdrive
from overdrive.reads.c_functions import name_of, row_of, rows

# Of each name in the table: an expression of the value V that calls it and gives a number, two values, and modules that it names. Lists,
# dicts and their like are changed in place.
EXAMPLES = {
    "builtins.id": ("V[0] if id(V) else 0", [2.0], [3.0]),
    "builtins.callable": ("2.0 if callable(V) else 3.0", len, 1),
    "posix.fspath": ("len(os.fspath(V))", "ab", "abc"),
    "posix._path_normpath": ("len(os.path.normpath(V))", "a//b", "a//bcd"),
    "_contextvars.ContextVar.get": ("V.get()", "context 2.0", "context 3.0"),
    "_abc._abc_instancecheck": ("2.0 if isinstance(V, collections.abc.Sized) else 3.0", [1], 1),
    "_abc._abc_subclasscheck": ("2.0 if issubclass(type(V), collections.abc.Sized) else 3.0", [1], 1),
    "builtins.globals": ("globals()['V']", 2.0, 3.0),
    "builtins.locals": ("V + len(locals())", 2.0, 3.0),
    "builtins.isinstance": ("2.0 if isinstance(V, int) else 3.0", 1, "a"),
    "builtins.issubclass": ("2.0 if issubclass(V, int) else 3.0", bool, str),
    "builtins.hash": ("hash(V) % 7 + 1", 2, 3),
    "builtins.type.mro": ("len(type(V).mro())", 2, True),
    "builtins.__import__": ("__import__('math').floor(V)", 2.0, 3.0),
    "builtins.compile": ("eval(compile('V', 'a', 'eval'))", 2.0, 3.0),
    "builtins.exec": ("exec('V') or V", 2.0, 3.0),
    "builtins.eval": ("eval('V')", 2.0, 3.0),
    "builtins.getattr": ("getattr(V, 'k')", "space 2.0", "space 3.0"),
    "builtins.hasattr": ("2.0 if hasattr(V, 'k') else 3.0", "space 2.0", 1),
    "builtins.iter": ("next(iter(V))", [2.0], [3.0]),
    "builtins.next": ("next(iter(V))", [2.0], [3.0]),
    "builtins.vars": ("vars(V)['k']", "space 2.0", "space 3.0"),
    "builtins.dir": ("len(dir(V))", "space 2.0", 1),
    "builtins.object.*": ("len(V.__format__(''))", "space 2.0", "space 3.25"),
    "builtins.len": ("len(V)", [1, 2], [1, 2, 3]),
    "builtins.any": ("2.0 if any(V) else 3.0", [1], [0]),
    "builtins.all": ("2.0 if all(V) else 3.0", [1], [0]),
    "builtins.repr": ("len(repr(V))", [1], [10]),
    "builtins.ascii": ("len(ascii(V))", [1], [10]),
    "builtins.sorted": ("sorted(V)[0]", [2.0, 4.0], [3.0, 4.0]),
    "builtins.min": ("min(V)", [2.0, 4.0], [3.0, 4.0]),
    "builtins.max": ("max(V)", [2.0, 4.0], [2.0, 5.0]),
    "builtins.sum": ("sum(V)", [2.0, 4.0], [3.0, 4.0]),
    "builtins.list.*": ("V.index(3)", [1, 3], [3, 1]),
    "builtins.dict.*": ("V.get('k', 5.0)", {"k": 2.0}, {"j": 2.0}),
    "builtins.set.*": ("len(V.union([1]))", {1}, {2}),
    "collections.OrderedDict.*": ("next(reversed(V.values()))", "ordered 1 2", "ordered 2 1"),
    "collections.deque.*": ("V.count(1) + 1", "deque 1", "deque 2"),
    "collections.defaultdict.*": ("len(V.copy())", "default 1", "default 1 2"),
    "builtins.tuple.*": ("V.index(3)", (1, 3), (3, 1)),
    "builtins.frozenset.*": ("len(V.union([1]))", frozenset([1]), frozenset([2])),
    "builtins.mappingproxy.*": ("V.get('k', 5.0)", "proxy k", "proxy j"),
    "builtins.dict_keys.*": ("2.0 if V.keys().isdisjoint(['k']) else 3.0", {"k": 1}, {"j": 1}),
    "builtins.dict_items.*": ("2.0 if V.items().isdisjoint([('k', 1)]) else 3.0", {"k": 1}, {"k": 2}),
    "builtins.slice.*": ("slice(V).indices(9)[1]", 2, 3),
    "builtins.range.*": ("range(9)[V:].index(4) + 1", 2, 3),
    "_bisect.*": ("bisect.bisect(V, 2) + 1", [1, 3], [3, 4]),
    "_heapq.*": ("heapq.heappushpop(list(V), 9)", [2.0], [3.0]),
    "_collections._count_elements": ("collections.Counter(V)[1] + 1", [1], [2]),
    "_functools.reduce": ("functools.reduce(lambda a, b: a + b, V)", [1.0, 2.0], [1.0, 3.0]),
    "_functools.cmp_to_key": ("sorted(V, key=functools.cmp_to_key(lambda a, b: a - b))[0]", [2.0, 4.0], [3.0, 4.0]),
    "itertools.*": ("list(itertools.chain.from_iterable(V))[0]", [[2.0]], [[3.0]]),
    "builtins.bytearray.*": ("V.count(b'a') + 1", bytearray(b"a"), bytearray(b"b")),
    "array.array.*": ("V.index(2) + 1", "array 1 2", "array 2 1"),
    "builtins.abs": ("abs(V)", -2.0, -3.0),
    "builtins.divmod": ("divmod(V, 2)[0]", 4, 6),
    "builtins.pow": ("pow(V, 2)", 2.0, 3.0),
    "builtins.round": ("round(V)", 2.2, 3.2),
    "builtins.bin": ("len(bin(V))", 1, 9),
    "builtins.hex": ("len(hex(V))", 1, 99),
    "builtins.oct": ("len(oct(V))", 1, 99),
    "builtins.chr": ("len(chr(V).encode())", 65, 300),
    "builtins.ord": ("ord(V)", "a", "b"),
    "builtins.format": ("len(format(V))", 1, 10),
    "builtins.str.*": ("V.count('a') + 1", "a", "b"),
    "builtins.bytes.*": ("V.count(b'a') + 1", b"a", b"b"),
    "builtins.int.*": ("V.bit_length()", 1, 9),
    "builtins.float.*": ("V.as_integer_ratio()[0]", 2.0, 3.0),
    "builtins.complex.*": ("V.conjugate().real", 2j + 2, 2j + 3),
    "_operator.*": ("operator.neg(V)", 2.0, 3.0), "_operator.mod": ("operator.mod(V, 5.0)", 2.0, 3.0), "_operator.imod": ("operator.imod(V, 5.0)", 2.0, 3.0),
    "math.*": ("math.sqrt(V)", 4.0, 9.0),
    "cmath.*": ("cmath.sqrt(V).real", 4.0, 9.0),
    "_struct.*": ("struct.unpack('d', struct.pack('d', V))[0]", 2.0, 3.0),
    "_json.*": ("len(json.dumps(V))", "a", "ab"),
    "_sre.*": ("len(re.sub('a', 'bb', V))", "a", "aa"),
    "re.*": ("re.match('a*', V).end() + 1", "a", "aa"),
    "unicodedata.*": ("len(unicodedata.name(V))", "a", "?"),
    "_codecs.*": ("len(codecs.encode(V, 'utf-8'))", "a", "aa"),
    "zlib.*": ("zlib.crc32(V) % 7 + 1", b"a", b"d"),
    "binascii.*": ("len(binascii.hexlify(V))", b"a", b"aa"),
    "datetime.timedelta.*": ("V.total_seconds()", "seconds 2", "seconds 3"),
    "datetime.time.*": ("len(V.isoformat())", "time 0", "time 1"),
    "datetime.timezone.*": ("V.utcoffset(None).total_seconds() + 1", "zone 1", "zone 2"),
}
# Rows that give the function nothing: what they change is compared with what was there. Each with why no number comes of it.
NOTHING_COMES = {
    "_thread.allocate_lock", "_thread.lock.*", "_thread.RLock.*", "_multiprocessing.SemLock.*", "sys.intern",
    "builtins.BaseException.with_traceback", "gc.collect", "gc.enable", "gc.disable",
    "builtins.generator.close", "builtins.generator.throw", "builtins.generator.send", "builtins.frame.clear",
    "sys.is_finalizing", "sys.audit", "_weakref.proxy", "_abc._abc_init", "_typing._idfunc", "builtins.__build_class__", "builtins.property.*",
    "builtins.function.*", "builtins.method.*", "builtins.setattr", "builtins.delattr", "builtins.object.__setattr__", "builtins.object.__delattr__",
    "builtins.code.*", "builtins.print", "_warnings.warn", "_warnings.warn_explicit", "_warnings._filters_mutated", "builtins.dict_values.*",
    "builtins.enumerate.*", "builtins.reversed.*", "builtins.zip.*", "builtins.map.*", "builtins.filter.*", "builtins.memoryview.*", "builtins.bool.*",
    "_statistics.*", "_string.*",
    "builtins.type.__new__", "builtins.type.__init__", "builtins.type.__call__", "builtins.type.__repr__", "builtins.type.__getattribute__",
    "builtins.type.__setattr__", "builtins.type.__delattr__", "builtins.type.__or__", "builtins.type.__ror__", "builtins.type.__prepare__",
    "builtins.type.__instancecheck__", "builtins.type.__subclasscheck__",
    "_contextvars.ContextVar.set", "_contextvars.ContextVar.reset",
    "_io.TextIOWrapper.write", "_io.TextIOWrapper.flush", "_io.StringIO.write", "_io.BytesIO.write", "_io.BufferedWriter.write",
    "_io.BufferedWriter.flush"}
MODULES = ("os collections collections.abc bisect heapq functools itertools operator math cmath struct json re unicodedata codecs zlib binascii "
           "contextvars array datetime").split()


def made(text):
    """Values that no literal writes, which are other objects for each call of this."""
    if not isinstance(text, str) or " " not in text:
        return text
    import array
    import collections
    import contextvars
    import datetime

    kind, *parts = text.split()
    whole = int(float(parts[0])) if parts[0][0].isdigit() else 0
    if kind == "context":
        variable = contextvars.ContextVar(text)
        variable.set(float(parts[0]))
        return variable
    return {
        "space": lambda: types.SimpleNamespace(k=float(parts[0])), "ordered": lambda: collections.OrderedDict((part, float(part)) for part in parts),
        "deque": lambda: collections.deque([whole]), "default": lambda: collections.defaultdict(int, {part: 1 for part in parts}),
        "proxy": lambda: types.MappingProxyType({parts[0]: 2.0}), "array": lambda: array.array("d", map(float, parts)),
        "seconds": lambda: datetime.timedelta(seconds=whole), "date": lambda: datetime.date(2026, 1, whole),
        "time": lambda: datetime.time(1, 1, 1, whole), "datetime": lambda: datetime.datetime(2026, 1, whole),
        "zone": lambda: datetime.timezone(datetime.timedelta(hours=whole))}[kind]()


def alter(names, before, after):
    """In place where that is possible, so that the object stays the same."""
    if isinstance(before, (list, bytearray)) and type(before) is type(after):
        before[:] = after
    elif isinstance(before, (dict, set)) and type(before) is type(after):
        before.clear()
        before.update(after)
    else:
        names["V"] = after


@pytest.mark.parametrize("name", EXAMPLES)
def test_another_value_is_noticed(name):
    noticed(*EXAMPLES[name])


def noticed(expression, first, second):
    names = {"V": made(first), **{module.partition(".")[0]: __import__(module) for module in MODULES}}
    exec(f"def function(x): return x * float({expression})", names)
    function = names["function"]
    step = overdrive.capture(function)
    for i in range(14):
        if i == 8:
            alter(names, names["V"], made(second))
        x = torch.full((2,), float(i + 1))
        assert torch.equal(step(x), function(x)), (i, step.refusal())
    assert step.stats()["replayed"] > 4, step.explain()


@pytest.mark.parametrize(("expression", "first", "second"), [
    ("V.toordinal() % 7 + 1", "date 1", "date 2"), ("V.isoweekday()", "datetime 1", "datetime 2")], ids=["date", "datetime"])
def test_another_date_is_noticed(expression, first, second):
    noticed(expression, first, second)


def test_each_row_has_an_example():
    assert set(rows()) == EXAMPLES.keys() | NOTHING_COMES and not EXAMPLES.keys() & NOTHING_COMES


def test_what_is_in_no_row_is_refused():
    import os
    import pickle
    import time

    for function, named in ((lambda x: x * len(pickle.dumps(1)), "_pickle.dumps()"), (lambda x: x * min(1.0, time.monotonic()), "time.monotonic()"),
                            (lambda x: x * (os.urandom(1)[0] * 0 + 1), "posix.urandom()"), (lambda x: x * len(type(x).__subclasses__()), "__subclasses__()")):
        step = overdrive.capture(function)
        for _ in range(8):
            step(torch.ones(2))
        assert step.stats()["replayed"] == 0 and named in step.refusal() and "c_functions_test.py" in step.refusal(), step.refusal()


LOCK, STATE = threading.RLock(), types.SimpleNamespace(k=1.0)


@pytest.mark.parametrize("function", [
    lambda x: x * (2 if LOCK._is_owned() else 1), lambda x: x * STATE.__reduce_ex__(2)[2]["k"], lambda x: x * len(type(STATE).__dir__(STATE)),
    lambda x: x * (2 if torch._C._is_multithreading_enabled() else 1), lambda x: x * (2 if torch._C._is_view_replay_enabled() else 1),
    lambda x: x * (2 if torch._C._get_cudnn_allow_tf32() else 1)], ids=["lock", "reduce", "dir", "threads of the engine", "views", "tf32"])
def test_what_libraries_alone_may_ask_is_refused(function):
    step = overdrive.capture(function)
    for _ in range(8):
        assert torch.equal(step(torch.ones(2)), function(torch.ones(2)))
    assert step.stats()["replayed"] == 0 and "guard" in step.refusal(), step.refusal()


def test_pytorchs_functions_are_operators_or_known():
    assert row_of(torch.add) and row_of(torch.nn.functional.linear) and row_of(torch.ones(1).mul_) and row_of(torch._C._set_grad_enabled)
    assert name_of(torch.ones(1).data_ptr).endswith("data_ptr") and row_of(sys.getsizeof) is None
