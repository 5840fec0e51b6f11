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
