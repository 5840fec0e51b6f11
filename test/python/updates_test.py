"""The operators of an update have the bits of PyTorch's own functions, on all memory and for all values.

A captured step compares each update that it records on the values of that call. Here are the others: sizes on both
sides of every loop's end, addresses off every line, NaNs of several kinds, denormal numbers.
"""
import itertools

import pytest
import torch

import overdrive
from overdrive.optimizers.rules import rule_of

O = torch.optim  # noqa: E741
KINDS = {
    "SGD": (O.SGD, {}), "SGD decay": (O.SGD, {"weight_decay": 0.01}), "SGD momentum": (O.SGD, {"momentum": 0.9, "dampening": 0.2}),
    "SGD nesterov": (O.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}), "Adam": (O.Adam, {}),
    "Adam decay": (O.Adam, {"weight_decay": 0.1, "betas": (0.3, 0.4), "eps": 1e-3}), "Adam amsgrad": (O.Adam, {"amsgrad": True}),
    "AdamW": (O.AdamW, {"weight_decay": 0.1}), "Adagrad": (O.Adagrad, {"lr_decay": 0.1}), "Adagrad decay": (O.Adagrad, {"weight_decay": 0.1}),
    "Adamax": (O.Adamax, {}), "Adamax decay": (O.Adamax, {"weight_decay": 0.1, "eps": 1e-2}), "NAdam": (O.NAdam, {}),
    "NAdam decay": (O.NAdam, {"weight_decay": 0.1}), "NAdam decoupled": (O.NAdam, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "RAdam": (O.RAdam, {"betas": (0.9, 0.7)}), "RAdam decay": (O.RAdam, {"weight_decay": 0.1, "betas": (0.4, 0.999)})}
BITS = {torch.float32: torch.int32, torch.float64: torch.int64, torch.bfloat16: torch.int16}
SIZES = [1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 511, 512, 513, 1023, 1024, 1025, 1039, 1055, 2049, 5000]
SPECIAL = [float("nan"), -float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, -1e-40, 5e-324, -5e-324, 1e-310, 3e38, -3e38, 1e300, 1.0]
# NaNs, signalling and quiet, of both signs, with numbers in them.
NANS = {torch.float32: [0x7FC00001, -0x3FFFFE, 0x7F800003, -1], torch.float64: [0x7FF8000000000001, -0x7FFFFFFFFFFFE, 0x7FF0000000000003, -1]}


def special_values(dtype):
    return torch.cat([torch.tensor(SPECIAL, dtype=torch.float64).to(dtype), torch.tensor(NANS[dtype], dtype=BITS[dtype]).view(dtype)])


def values(shape, dtype, special, generator, positive=False, offset=0):
    size = max(1, int(torch.tensor(shape).prod())) if shape else 1
    flat = torch.empty(size + offset, dtype=dtype)[offset:]
    flat.copy_(torch.randn(size, generator=generator, dtype=torch.float64) * 10 ** torch.empty(size, dtype=torch.float64).uniform_(-4, 2, generator=generator))
    if positive:  # but for some of the special ones
        flat.abs_()
    if special:
        pool = special_values(dtype)
        some = torch.randint(size, (max(1, size // 3),), generator=generator)
        flat[some] = pool[torch.randint(len(pool), some.shape, generator=generator)]
    return flat.view(shape)


def lists(kind, options, shapes, dtype, special, seed, layout):
    """Parameters, gradients, states and the group, as _init_group() gives them after some steps."""
    generator = torch.Generator().manual_seed(seed)
    offsets = itertools.cycle([0, 1, 3, 5] if layout == "off" else [0])

    def of(shape, positive=False):
        made = values(shape, dtype, special, generator, positive, next(offsets))
        if layout == "transposed" and len(shape) == 2:
            made = made.t().contiguous().t()
        return made

    parameters = [torch.nn.Parameter(of(shape)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = of(parameter.shape).as_subclass(torch.Tensor)
    optimizer = kind(parameters, lr=0.01, **options)
    with torch.no_grad():
        saved = [parameter.detach().clone() for parameter in parameters]
        optimizer.step()
        optimizer.step()
        for parameter, before in zip(parameters, saved):
            parameter.copy_(before)
    for number, parameter in enumerate(parameters):
        for key, tensor in optimizer.state[parameter].items():
            if not isinstance(tensor, torch.Tensor):
                continue
            if key == "step":
                tensor.fill_([0, 1, 4, 5, 6, 100, 10 ** 6][(number + seed) % 7])
            elif key == "mu_product":
                tensor.fill_(0.7)
            else:
                optimizer.state[parameter][key] = of(parameter.shape, positive=key != "exp_avg" and key != "momentum_buffer")
    rule, group = rule_of(kind), optimizer.param_groups[0]
    taken, gradients, states = [], [], [[] for _ in range(rule.states)]
    optimizer._init_group(group, taken, gradients, *states)
    return rule, group, taken, gradients, states


def copied(tensors):
    """With the same strides, and the same place in a line of the cache."""
    copies = []
    for tensor in tensors:
        whole = torch.empty(tensor.untyped_storage().nbytes() // tensor.element_size(), dtype=tensor.dtype)
        copies.append(whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(tensor.detach()))
    return copies


def check(name, shapes, dtype=torch.float32, special=False, seed=0, layout="plain"):
    kind, options = KINDS[name]
    rule, group, parameters, gradients, states = lists(kind, options, shapes, dtype, special, seed, layout)
    eager, ours = [(copied(parameters), copied(gradients), [copied(each) for each in states]) for _ in range(2)]
    numbers = torch.tensor([float(value) for value in rule.numbers(group)], dtype=torch.float64)
    with torch.no_grad():
        for _ in range(2):
            rule.function()(*eager[:2], *eager[2], **rule.options(group))
            getattr(torch.ops.overdrive, rule.operator)(ours[0], ours[1], *ours[2], numbers)
    for what, a, b in [("parameter", eager[0], ours[0]), ("gradient", eager[1], ours[1]), *(("state", x, y) for x, y in zip(eager[2], ours[2]))]:
        for shape, x, y in zip(shapes, a, b):
            same = x.view(BITS[x.dtype]) == y.view(BITS[y.dtype])
            assert same.all(), (name, what, shape, layout, x[~same][:3].tolist(), y[~same][:3].tolist())


@pytest.fixture(autouse=True)
def defined():
    overdrive.capture(lambda x: x + 1)(torch.ones(1))  # the first captured step defines the operators


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("special", [False, True])
def test_sizes_types_and_places(name, special):
    for seed, (dtype, layout) in enumerate(itertools.product([torch.float32, torch.float64], ["plain", "off"])):
        check(name, [(size,) for size in SIZES], dtype, special, seed, layout)


@pytest.mark.parametrize("name", KINDS)
def test_shapes_that_are_not_contiguous(name):
    shapes = [(3, 5), (64, 64), (7, 1), (1, 9), (1, 1), ()]
    for layout in ("plain", "off", "transposed"):
        check(name, shapes, torch.float32, True, 1, layout)
    check(name, shapes, torch.bfloat16, False, 1)


@pytest.mark.parametrize("name", KINDS)
def test_denormal_numbers_that_are_flushed(name):
    if not torch.set_flush_denormal(True):
        pytest.skip("the processor flushes none")
    try:
        check(name, [(size,) for size in SIZES], torch.float32, True, 3, "off")
        check(name, [(100,), (2049,)], torch.float64, True, 3)
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_large_tensors_on_several_threads(threads):
    """A kernel divides its elements among threads, and the rest of each thread's vectors is another loop's."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for name in KINDS:
            check(name, [(32767,), (32768,), (70001,), (257, 311)], torch.float32, True, 5)
    finally:
        torch.set_num_threads(before)


def test_memory_that_overlaps_is_an_error_or_pytorchs_result():
    base = torch.arange(40.0)
    parameter, gradient = base[:20], base[10:30]
    numbers = torch.tensor([0.1, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    with pytest.raises(RuntimeError, match="unsupported operation"):
        torch.ops.overdrive.sgd_([parameter], [gradient], [], numbers)
