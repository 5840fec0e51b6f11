"""torch.compile() beside captured steps and parts: Dynamo goes around them, and the bits are those of eager."""
import pytest
import torch

import overdrive

STEPS = 12


def program(kind="SGD"):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1) if kind == "Adam" else torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, torch.randn(STEPS, 4, 6)


def train(model, optimizer, xs, call, update):
    for x in xs:
        optimizer.zero_grad()
        call(model, x).square().sum().backward()
        update()
    return [parameter.detach().clone() for parameter in model.parameters()]


def called(model, x):
    return model(x)


def same(a, b):
    return all(torch.equal(one, other) for one, other in zip(a, b))


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def in_eager(kind="SGD"):
    model, optimizer, xs = program(kind)
    return train(model, optimizer, xs, called, optimizer.step)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_a_compiled_model_and_a_captured_optimizer(kind, backend):
    model, optimizer, xs = program(kind)
    compiled = torch.compile(model, backend=backend)
    overdrive.captured(optimizer)
    assert same(train(model, optimizer, xs, lambda _, x: compiled(x), optimizer.step), in_eager(kind))
    assert overdrive.part_of(optimizer).stats()["replayed"] > 0, overdrive.explain()


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_the_step_of_a_captured_optimizer_inside_of_a_compiled_function(kind):
    model, optimizer, xs = program(kind)
    overdrive.captured(optimizer)

    @torch.compile(backend="eager")
    def update():
        optimizer.step()

    assert same(train(model, optimizer, xs, called, update), in_eager(kind))
    assert overdrive.part_of(optimizer).stats()["replayed"] > 0, overdrive.explain()


@pytest.mark.parametrize("what", ["model", "optimizer", "both"])
def test_a_loop_that_is_compiled_as_a_whole(what):
    """An optimizer that is not captured has Dynamo's bits, which are not eager's in all versions."""
    def compiled(what):
        model, optimizer, xs = program()
        if what in ("model", "both"):
            overdrive.captured(model)
        if what in ("optimizer", "both"):
            overdrive.captured(optimizer)

        @torch.compile(backend="eager")
        def loop(xs):
            for x in xs:
                optimizer.zero_grad()
                model(x).square().sum().backward()
                optimizer.step()

        loop(xs)
        return [parameter.detach() for parameter in model.parameters()]

    assert same(compiled(what), compiled("") if what == "model" else in_eager())


def test_a_captured_step_inside_of_a_compiled_function_sees_what_it_reads():
    scale = [1.0]
    step = overdrive.capture(lambda x: x * scale[0])

    @torch.compile(backend="eager")
    def call(x):
        return step(x + 1) - 1

    for i in range(STEPS):
        scale[0] = 1.0 + i // 6
        assert torch.equal(call(torch.ones(2)), torch.full((2,), 2.0 * scale[0] - 1))
    assert step.stats()["replayed"] > 0, step.explain()


def test_a_captured_function_inside_of_a_compiled_one_sees_what_it_reads():
    scale = [1.0]
    part = overdrive.captured(lambda x: (x * scale[0]).tanh())

    @torch.compile(backend="eager")
    def call(x):
        return part(x + 1) - 1

    for i in range(STEPS):
        scale[0] = 1.0 + i // 6
        x = torch.ones(2, requires_grad=True)
        call(x).sum().backward()
        y = torch.ones(2, requires_grad=True)
        (((y + 1) * scale[0]).tanh() - 1).sum().backward()
        assert torch.equal(x.grad, y.grad)
    assert part.stats()["replayed"] > 0, part.explain()


def test_a_captured_step_runs_a_compiled_model():
    model, optimizer, xs = program()
    compiled = torch.compile(model, backend="eager")

    def whole(x):
        optimizer.zero_grad()
        loss = compiled(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    step = overdrive.capture(whole, optimizer=optimizer)
    for x in xs:
        step(x)
    assert same([parameter.detach() for parameter in model.parameters()], in_eager())


def test_a_captured_module_whose_caller_is_compiled_with_a_mode():
    model, optimizer, xs = program()
    overdrive.captured(model)
    overdrive.captured(optimizer)
    compiled = torch.compile(called, mode="reduce-overhead")
    try:
        trained = train(model, optimizer, xs, compiled, optimizer.step)
    except Exception as error:
        if "compiler" not in str(error).lower() and "Python.h: No such file" not in str(error):
            raise
        pytest.skip("Inductor finds no compiler here, or no headers of Python")
    for a, b in zip(trained, in_eager()):
        torch.testing.assert_close(a, b)  # Inductor's bits are its own
    assert overdrive.part_of(optimizer).stats()["replayed"] > 0, overdrive.explain()


def test_the_whole_graph_is_refused_in_words():
    step = overdrive.capture(lambda x: x * 2)

    @torch.compile(backend="eager", fullgraph=True)
    def call(x):
        return step(x)

    with pytest.raises(Exception, match="captured step of Overdrive"):
        call(torch.ones(2))
