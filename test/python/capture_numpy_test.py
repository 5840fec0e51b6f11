"""NumPy in captured steps: arrays under tensors, numbers and arrays that the function reads."""
import mmap

import pytest
import torch

import overdrive


@pytest.fixture
def np():
    return pytest.importorskip("numpy", reason="NumPy is not installed")


def beside_eager(make, inputs, calls=16):
    """The function of make() captured, and another one eagerly: equal bits in every call. The step."""
    function, before = make()
    twin, before_twin = make()
    step = overdrive.capture(function)
    for i in range(calls):
        before(i)
        before_twin(i)
        got, expected = step(*inputs(i)), twin(*inputs(i))
        assert torch.equal(got, expected), f"call {i}: {got} and {expected}"
    return step


def row(i):
    return (torch.arange(4.0) + i,)


@pytest.mark.parametrize("offset", [0, 4, 16, 48])
def test_inputs_of_arrays_are_replayed_wherever_they_lie(np, offset):
    raw = np.zeros(64 * 8 + 128, "u1")
    start = -raw.ctypes.data % 64 + offset
    array = raw[start:start + 64 * 8].view("f4").reshape(64, 2)
    weight = torch.ones(2, 3, requires_grad=True)

    def function(x):
        weight.grad = None
        loss = (x @ weight).square().mean()
        loss.backward()
        return loss

    step = overdrive.capture(function)
    for i in range(12):
        array[:] = i
        got, gradient = step(torch.as_tensor(array)), weight.grad.clone()
        assert torch.equal(got, function(torch.as_tensor(array)).detach())
        assert torch.equal(gradient, weight.grad)
    assert step.stats()["replayed"] > 0, step.refusal()


def test_memory_that_cannot_be_written_is_read(np, tmp_path):
    np.save(tmp_path / "data.npy", np.arange(1 << 14, dtype=np.float32).reshape(-1, 16))
    data = torch.from_numpy(np.load(tmp_path / "data.npy", mmap_mode="r"))
    weight = torch.ones(16, requires_grad=True)

    def function(rows):
        weight.grad = None
        loss = (data[rows] * weight).sum()
        loss.backward()
        return loss

    step = overdrive.capture(function, check_every=3)
    for i in range(20):
        rows = torch.arange(4) + i
        assert torch.equal(step(rows), data[rows].sum())
    assert step.stats()["replayed"] > 0, step.refusal()


def test_an_array_under_a_tensor_outside_may_be_written_between_calls(np):
    def make():
        array = np.ones(4, "f4")
        tensor = torch.from_numpy(array)

        def before(i):
            array[1] = i

        return lambda x: x * tensor, before

    assert beside_eager(make, row).stats()["replayed"] > 0


@pytest.mark.parametrize("read", ["a[0] * x", "x * float(a.sum())", "x + torch.tensor(a[1])", "x * len(a)"])
def test_another_content_of_an_array_is_recorded_anew(np, read):
    def make():
        a = np.ones(3, "f4")

        def before(i):
            a[i % 2] = 1 + i // 8

        return eval(f"lambda x: {read}", {"a": a, "torch": torch, "float": float, "len": len}), before

    step = beside_eager(make, row, calls=24)
    assert step.stats()["replayed"] > 0, step.refusal()


@pytest.mark.parametrize("kind", ["void", "record"])
def test_a_row_of_a_structured_array_is_no_number(np, kind):
    def make():
        table = np.ones(2, [("k", "f8")])
        row = table[0] if kind == "void" else table.view(np.recarray)[0]

        def before(i):
            (row if i % 2 else table)["k"] = 1 + i // 8

        return lambda x: x * float(row["k"]), before

    assert beside_eager(make, row, calls=32).stats()["replayed"] > 0


@pytest.mark.parametrize("read, change", [
    ("2.0 if a.flags.writeable else 1.0", "a.flags.writeable = False"),
    ("float(len(a.dtype.names[0]))", "a.dtype.names = 'kk', 'j'"),
    ("a.k", "a.k = 2.0"),
    ("float(a['k'][0])", "a.dtype = [('k', 'i8'), ('j', 'f8')]"),
    ("2.0 if a.T.strides == a.strides else 1.0", "a.shape = 2, 1"),
])
def test_what_an_array_is_beside_its_content(np, read, change):
    kind = type("A", (np.ndarray,), {})
    program = {"a": np.ones(2, [("k", "f8"), ("j", "f8")]).view(kind), "len": len}
    program["a"].k = 1.0
    function = eval(f"lambda x: x * ({read})", program)
    step = overdrive.capture(function)
    for i in range(24):
        if i == 12:
            exec(change, program)
        assert torch.equal(step(*row(i)), function(*row(i))), i
    assert step.stats()["replayed"] > 8, step.refusal()


def test_numbers_of_numpy_are_values(np):
    def make():
        class Options:
            rate = np.float32(2)

        options = Options()

        def before(i):
            options.rate = np.float32(2 + i // 8)  # another object in each call

        return lambda x: x * options.rate.item(), before

    assert beside_eager(make, row).stats()["replayed"] > 0


@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "bool"])
def test_numbers_of_numpy_are_arguments(np, kind):
    step = beside_eager(lambda: (lambda x, k: x * k, lambda i: None),
                        lambda i: (*row(i), np.dtype(kind).type(i // 8 % 2)))
    assert step.stats()["replayed"] > 0


def test_zero_has_a_sign(np):
    def make():
        box = {"k": np.float32(0)}

        def before(i):
            box["k"] = np.float32(-0.0 if i > 7 else 0.0)

        return lambda x: torch.copysign(x, box["k"].item() * torch.ones(4)), before

    beside_eager(make, row)


@pytest.mark.parametrize(("read", "reason"), [
    ("float(np.asarray(y)[1])", "numpy"), ("torch.as_tensor(np.add(y, 1.0)).sum()", "numpy"),
    ("float(np.from_dlpack(y)[1])", "DLPack"), ("float(y.numpy()[1])", "numpy"), ("y.storage()[0]", "untyped_storage")])
@pytest.mark.filterwarnings("ignore")
def test_what_reads_a_tensor_of_the_step_is_refused_by_name(np, read, reason):
    function = eval(f"lambda x: (lambda y: x * {read})(x * 2)", {"np": np, "torch": torch, "float": float})
    step = overdrive.capture(function)
    for _ in range(8):
        step(torch.arange(4.0))  # the same data: nothing else would tell
    assert reason in step.refusal() and "capture_numpy_test" not in step.refusal().split(reason)[0], step.refusal()
    assert step.stats()["replayed"] == 0


@pytest.mark.parametrize("value", ["-1", "nan"])
def test_parts_that_the_program_fills_through_an_array_are_refused(np, value):
    kind = torch.long if value == "-1" else torch.float32

    def function(x, y):
        made = torch.empty(4, dtype=kind)
        made[0:1] = y
        made.numpy()[1:] = float(value)
        return made + 1, (x * 3).cumsum(0)

    step = overdrive.capture(function)
    for i in range(8):
        x, y = torch.ones(4) * i, torch.tensor([i])
        assert torch.equal(step(x, y)[0].nan_to_num(7), function(x, y)[0].nan_to_num(7))
    assert step.stats()["replayed"] == 0 and "numpy()" in step.refusal()


def test_an_array_that_is_too_long_to_look_at_is_refused_by_name(np):
    table = np.ones(1 << 16)
    step = overdrive.capture(lambda x: x * float(table[3]))
    for _ in range(6):
        step(torch.ones(2))
    assert "`table`, an array of" in step.refusal() and step.stats()["replayed"] == 0


def test_pythons_own_arrays_are_looked_at():
    memory = mmap.mmap(-1, 8)
    for values in (bytearray([1, 2, 3]), memoryview(bytearray([1, 2, 3])), memoryview(memory)):
        step = overdrive.capture(lambda x: x * values[0])
        for i in range(16):
            values[0] = 1 + i // 8
            assert torch.equal(step(torch.ones(2)), torch.ones(2) * (1 + i // 8))
        assert step.stats()["replayed"] > 0, step.refusal()


class Places:
    """Arrays that a function makes tensors of: as an attribute, in a list, in a dict, of a class."""
    of_class = None

    def __init__(self, np):
        self.places, self.weights = np.array([2, 0]), np.array([1.5, -2.0], "f4")
        self.several, self.named = [np.array([0, 1])], {"last": np.array([3, 3])}
        type(self).of_class = np.array([1, 2])


@pytest.mark.parametrize("use", [
    "x[box.places]", "x[box.several[0]] + x[box.named['last']]", "x[box.of_class]", "x[:2] * torch.from_numpy(box.weights)",
    "x[torch.as_tensor(box.places)] * torch.tensor(box.weights)", "x[np.arange(2)] * torch.from_numpy(np.full(2, 3.0))",
    "x.index_put((torch.from_numpy(box.places),), torch.zeros(2)) * w"])
def test_tensors_of_arrays_are_constants_of_the_recording(np, use):
    """An array that changes between the calls is seen."""
    def make():
        box, w = Places(np), torch.ones(1, requires_grad=True)

        def before(i):
            for array in (box.places, box.several[0], box.named["last"], box.of_class):
                array[0] = 2 if i >= 12 and array is box.of_class else 1 if i >= 12 else array[0]
            box.weights[1] = -2 + i // 12

        function = eval(f"lambda x: {use}", {"box": box, "np": np, "torch": torch, "w": w})

        def train(x):
            w.grad = None
            loss = (function(x) * w).square().sum()
            loss.backward()
            return torch.stack([loss, w.grad[0]])

        return train, before

    step = beside_eager(make, row, calls=30)
    assert step.stats()["replayed"] > 10, step.refusal()


@pytest.mark.parametrize("kind", ["array", "list"])
def test_an_index_of_an_array_in_a_part(np, kind):
    def make():
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 3)

        class Fill:
            places = np.arange(3) if kind == "array" else [0, 1, 2]

            def __call__(self, x):
                m = torch.zeros(8, 3, 3)
                m[..., self.places, self.places] = net(x)
                return m[:, self.places]

        return Fill(), net

    (fill, net), (twin, other) = make(), make()
    part = overdrive.captured(lambda x: fill(x))
    for i in range(30):
        if kind == "array" and i == 15:
            fill.places[2] = twin.places[2] = 0
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(i))
        for function, module in ((part, net), (twin, other)):
            module.zero_grad()
            function(x).square().sum().backward()
        assert torch.equal(net.weight.grad, other.weight.grad) and torch.equal(net.bias.grad, other.bias.grad), i
    assert part.stats()["replayed"] > 10, part.refusal()


@pytest.mark.parametrize(("body", "reason"), [
    ("t = torch.from_numpy(a); t.add_(x); return x * 2", "the content of a"),
    ("b = np.ones(4, 'f4'); t = torch.from_numpy(b); b[1] = 5; return x + t", "changes after it has become a tensor"),
    ("b = np.ones(4, 'f4'); t = torch.from_numpy(b); y = x + t; b[1] = 5; return y + t.sum()", "changes after it has become a tensor"),
    ("t = torch.from_numpy(a); return t", "clone()"),
    ("t = torch.from_numpy(a); box['kept'] = t; return x + t", ""),
    ("w.add_(x); return x + torch.from_numpy(of_w)", "the content of of_w"),
    ("w.add_(x); return x + torch.from_numpy(of_w[1:])[0]", "the content of of_w"),
    ("return x + sum(torch.from_numpy(each) for each in iterated)", "")])
def test_arrays_that_are_no_constants(np, body, reason):
    """Refused, or as eager does it."""
    def make():
        w = torch.zeros(4)
        a = np.ones(4, "f4")
        names = {"a": a, "np": np, "torch": torch, "box": {}, "w": w, "of_w": w.numpy(), "iterated": iter([a] * 100)}
        exec("def function(x):\n    " + body.replace("; ", "\n    "), names)

        def before(i):
            a[:] = 1 + i // 8

        return names["function"], before

    function, before = make()
    twin, before_twin = make()
    step = overdrive.capture(function)
    for i in range(24):
        before(i), before_twin(i)
        x = torch.full((4,), float(max(i - 10, 0)))  # nothing is written in the calls that are recorded
        assert torch.equal(step(x), twin(x)), f"call {i}: {step.refusal()}"
    assert reason in step.refusal(), step.refusal()
    if reason:
        assert step.stats()["replayed"] == 0


def test_the_constant_that_is_masked(np):
    """Seen with PEFT: tobytes() of numpy.ma.masked raises, and nothing that named it was replayed."""
    masked = np.ma.masked
    step = overdrive.capture(lambda x: x * 2 if masked is not None else x)
    for i in range(8):
        step(*row(i))
    assert step.refusal() == "" and step.stats()["replayed"] > 2


def test_another_mask_of_an_array_is_recorded_anew(np):
    values = np.ma.masked_array([1.0, 2.0, 4.0], mask=[False, False, True])
    step = overdrive.capture(lambda x: x * float(values.sum()))
    for i in range(16):
        if i == 8:
            values.mask[1] = True
        assert step(*row(i))[1].item() == (i + 1) * (3.0 if i < 8 else 1.0)
    assert step.stats()["replayed"] > 4


@pytest.mark.parametrize("wrap", ["step", "part"])
def test_a_learning_rate_of_numpy_that_rounds_otherwise_is_refused(np, wrap):
    """NumPy computes with a float32 and Python with a float64."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 6)
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        if captured and wrap == "part":
            overdrive.captured(opt)

        def function(x, net=net, opt=opt):
            opt.zero_grad()
            net(x).square().mean().backward()
            opt.step()
            return x

        step = overdrive.capture(function) if captured and wrap == "step" else function
        weights = []
        for call in range(40):
            if call >= 20:
                opt.param_groups[0]["lr"] = np.float32(0.01 / (call + 1))
            step(torch.randn(5, 4))
            weights.append(net.weight.detach().clone())
        sides.append(weights)
    assert all(map(torch.equal, *sides))
    if wrap == "step":
        assert "a number of NumPy's as lr" in step.refusal()
