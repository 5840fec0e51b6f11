"""Updates of optimizers in captured steps and parts beside eager ones, where gradients are no plain inputs: they lie in a parameter's
memory, or the update changes them, or some calls make no update."""
import contextlib
import copy
import gc
import sys
import types
import weakref

import pytest
import torch
from torch.optim import optimizer as every_optimizer

import overdrive


def numbers(net, opt):
    """Parameters, gradients and the state of the optimizer, bit by bit."""
    found = {name: p.detach().clone() for name, p in net.named_parameters()}
    found.update({f"{name}.grad": p.grad.clone() for name, p in net.named_parameters() if p.grad is not None})
    for index, state in enumerate(opt.state.values()):
        found.update({f"{index}.{key}": value.clone() for key, value in state.items() if torch.is_tensor(value)})
    return found


def assert_same(want, got):
    assert want.keys() == got.keys()
    for name in want:
        assert torch.equal(want[name], got[name]), name


KINDS = {"sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), "adamw": lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
         "fused": lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1, fused=True)}


@pytest.mark.parametrize("calls_before", [0, 3, 10])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("as_part", [False, True], ids=["step", "part"])
def test_a_gradient_in_the_memory_of_its_parameter(as_part, kind, calls_before):
    """Eager's update changes the gradient in the middle, because it is the parameter; recordings updated by the gradient of the begin."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 4)
        opt = KINDS[kind](net.parameters())
        update = opt.step
        if captured and as_part:
            update = overdrive.captured(opt).step
        elif captured:
            update = overdrive.capture(lambda opt=opt: opt.step(), optimizer=opt)
        seen = []
        for call in range(calls_before + 8):
            for p in net.parameters():
                p.grad = torch.randn(p.shape) if call < calls_before else p.detach()
            update()
            seen.append(numbers(net, opt))
        sides.append(seen)
    for want, got in zip(*sides):
        assert_same(want, got)


@pytest.mark.parametrize("options", [{}, {"foreach": True}], ids=["one by one", "foreach"])
def test_an_update_that_changes_the_gradients(options):
    """SGD's update with nesterov=True adds momentum to the gradients themselves with foreach=True."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 4)
        opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.5, nesterov=True, **options)

        def function(x, net=net, opt=opt):
            loss = net(x).square().mean()
            loss.backward()
            opt.step()
            return loss

        step = overdrive.capture(function, optimizer=opt) if captured else function
        seen = []
        for _ in range(10):
            step(torch.randn(3, 4))
            seen.append(numbers(net, opt))
        sides.append(seen)
        if captured and options:
            assert "changes the gradients" in step.refusal()
        elif captured:
            assert step.stats()["replayed"] > 0, step.refusal()
    for want, got in zip(*sides):
        assert_same(want, got)


@pytest.mark.parametrize("way", ["step(optimizer)", "of the class"])
def test_gradients_that_accumulate_over_calls_have_a_recording_with_an_update_and_one_without(way):
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 4)
        opt = torch.optim.AdamW(net.parameters(), 0.01)
        for p in net.parameters():
            p.grad = torch.zeros_like(p)

        def function(x, last, net=net, opt=opt):
            loss = net(x).square().mean() / 4
            loss.backward()
            if last:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                opt.step() if way == "step(optimizer)" else torch.optim.AdamW.step(opt)
                opt.zero_grad(set_to_none=False)
            return loss

        step = overdrive.capture(function, optimizer=opt) if captured else function
        seen = []
        for call in range(40):
            step(torch.randn(3, 4), call % 4 == 3)
            seen.append(numbers(net, opt))
        sides.append(seen)
        if captured and way == "step(optimizer)":
            assert step.stats()["replayed"] > 24 and step.refusal() == "", step.refusal()
        elif captured:
            assert "past the optimizer" in step.refusal()
    for want, got in zip(*sides):
        assert_same(want, got)


WRITES = {
    "the argument": lambda groups, lr: [group.update(lr=lr) for group in groups],
    "of the argument": lambda groups, lr: [group.update(lr=lr * factor) for group, factor in zip(groups, (1.5, 0.5))],
    "one of them": lambda groups, lr: groups[1].update(lr=lr),
    "a decay": lambda groups, lr: [group.update(lr=group["lr"] * 0.99) for group in groups],
    "a mean": lambda groups, lr: [group.update(lr=0.9 * group["lr"] + 0.1 * lr) for group in groups],
    "two options": lambda groups, lr: [group.update(lr=lr, weight_decay=lr * 10) for group in groups],
}


@pytest.mark.parametrize("check_every", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WRITES)
def test_a_learning_rate_that_the_function_writes_before_its_update(name, kind, check_every):
    write, sides = WRITES[name], []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 4)
        opt = KINDS[kind]([{"params": [net.weight]}, {"params": [net.bias], "lr": 5e-3}])

        def function(x, lr, net=net, opt=opt):
            write(opt.param_groups, lr)
            loss = net(x).square().mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss

        step = overdrive.capture(function, optimizer=opt, check_every=check_every) if captured else function
        seen = []
        for call in range(48):
            if call == 30:
                opt.param_groups[0]["lr"] = 7e-3  # by the program
            step(torch.randn(3, 4), 2e-3 if call % 5 == 0 else 1e-3 * (1.5 + call % 7))
            seen.append((numbers(net, opt), [(type(group["lr"]), group["lr"], group["weight_decay"]) for group in opt.param_groups]))
        sides.append(seen)
        if captured:
            assert step.refusal() == "" and step.stats()["replayed"] > (10 if check_every else 24), step.explain()
    for (want, options), (got, ours) in zip(*sides):
        assert_same(want, got)
        assert options == ours


def test_two_learning_rates_in_one_call_are_refused():
    net = torch.nn.Linear(4, 4)
    opt = torch.optim.SGD(net.parameters(), 0.1)

    def function(x, lr):
        net(x).square().mean().backward()
        opt.step()
        opt.param_groups[0]["lr"] = lr
        opt.step()
        opt.zero_grad()

    step = overdrive.capture(function, optimizer=opt)
    for call in range(12):
        step(torch.randn(3, 4), 1e-3 * (1 + call))
    assert "changes the optimizer's options" in step.refusal()


@pytest.mark.parametrize("holder, name", [("optimizer", "zero_grad"), ("class", "zero_grad"), ("class", "step"), ("torch", "backward")])
def test_a_method_that_is_replaced_later(holder, name, monkeypatch):
    """As profilers and libraries do, of the object, of its class or of PyTorch."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        opt = torch.optim.SGD(net.parameters(), 0.1)

        def function(x, net=net, opt=opt):
            opt.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            opt.step()
            return loss

        step, seen = overdrive.capture(function) if captured else function, []
        with monkeypatch.context() as patch:
            for call in range(16):
                if call == 10:
                    where = {"optimizer": opt, "class": torch.optim.SGD, "torch": torch.autograd}[holder]
                    old = getattr(where, name)
                    patch.setattr(where, name, (lambda *_, **__: None) if name == "zero_grad" else lambda *a, old=old, **k: (old(*a, **k), None)[1]
                                  if name == "step" else old(a[0] * 2, *a[1:], **k))
                step(torch.randn(4, 3))
                seen.append(numbers(net, opt))
        sides.append(seen)
        assert not captured or step.stats()["replayed"] > 3, step.refusal()
    for want, got in zip(*sides):
        assert_same(want, got)


FUSED = {"adam": (torch.optim.Adam, {}), "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}), "amsgrad": (torch.optim.Adam, {"amsgrad": True}),
         "maximize": (torch.optim.AdamW, {"maximize": True, "weight_decay": 0.1}), "decay": (torch.optim.Adam, {"weight_decay": 0.1})}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", FUSED)
@pytest.mark.parametrize("as_part", [False, True], ids=["step", "part"])
def test_fused_updates(as_part, kind, dtype):
    """fused=True is what Hugging Face's Trainer makes its optimizer with. Its kernel rounds otherwise than the update of single tensors."""
    make, options = FUSED[kind]
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(5, 33), torch.nn.Tanh(), torch.nn.Linear(33, 3)).to(dtype)
        opt = make(net.parameters(), lr=0.01, fused=True, **options)

        def train(x, net=net, opt=opt):
            opt.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            opt.step()
            return loss

        part = overdrive.captured(opt) if captured and as_part else None
        step = overdrive.capture(train) if captured and not as_part else train
        seen = []
        for call in range(24):
            opt.param_groups[0]["lr"] = 0.01 / (1 + call)
            step(torch.randn(4, 5, dtype=dtype))
            seen.append(numbers(net, opt))
        sides.append(seen)
    for want, got in zip(*sides):
        assert_same(want, got)
    assert (overdrive.part_of(part) if as_part else step).stats()["replayed"] > 10


def test_what_is_asked_of_a_fused_optimizer_is_no_operator_of_the_step():
    """It is asked once or twice in a call; a compared replay met what one of the questions had made, and was an error."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(4)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
        opt, state = torch.optim.Adam(net.parameters(), lr=0.01, fused=True), types.SimpleNamespace(rate=1.5)

        def train(x, net=net, opt=opt, state=state):
            loss = torch.nn.functional.mse_loss(net(x), x)
            opt.param_groups[0]["lr"] = 0.01 * (1 + float(state.rate))
            if loss > 0.5:
                state.rate = not state.rate
            loss.backward()
            torch.nn.utils.clip_grad_value_(net.parameters(), 0.1)
            opt.step()

        step = overdrive.capture(train, optimizer=opt, always=True) if captured else train
        seen = []
        for _ in range(40):
            step(torch.randn(4, 3))
            seen.append(numbers(net, opt))
        sides.append(seen)
    for want, got in zip(*sides):
        assert_same(want, got)


def halve(optimizer, *_):
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                p.grad.mul_(0.5)


@contextlib.contextmanager
def of_the_class(opt):
    before = torch.optim.AdamW.step

    def step(self, closure=None):
        halve(self)
        return before(self, closure)

    torch.optim.AdamW.step = step
    try:
        yield
    finally:
        torch.optim.AdamW.step = before


@contextlib.contextmanager
def of_the_object(opt):
    def step(closure=None):
        halve(opt)
        return torch.optim.AdamW.step(opt, closure)

    opt.step = step
    try:
        yield
    finally:
        del opt.step


@contextlib.contextmanager
def hooked(opt, register):
    handle = register(halve)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def set_to(holder, **values):
    space = holder if isinstance(holder, dict) else holder.__dict__
    before = {key: space[key] for key in values if key in space}
    space.update(values)
    try:
        yield
    finally:
        for key in values:
            del space[key]
        space.update(before)


CHANGES = {
    "a hook": lambda opt: hooked(opt, opt.register_step_pre_hook),
    "a hook of all": lambda opt: hooked(opt, every_optimizer.register_optimizer_step_pre_hook),
    "step() of the class": of_the_class,
    "step() of the object": of_the_object,
    "a scaler": lambda opt: set_to(opt, grad_scale=torch.tensor(2.0), found_inf=torch.tensor(0.0)),
    "a scaler that skips": lambda opt: set_to(opt, grad_scale=torch.tensor(2.0), found_inf=torch.tensor(1.0)),
    "a rate that is a tensor": lambda opt: set_to(opt.param_groups[0], lr=torch.tensor(0.02)),
    "another kind": lambda opt: set_to(opt.param_groups[0], fused=None, foreach=True),
    "differentiable": lambda opt: set_to(opt.param_groups[0], fused=None, differentiable=True),
    "maximize": lambda opt: set_to(opt.param_groups[0], maximize=True),
}


@pytest.mark.parametrize("with_closure", [False, True], ids=["", "closure"])
@pytest.mark.parametrize("fused", [False, True], ids=["", "fused"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_the_function_changes_of_its_update_is_seen_where_it_steps(change, fused, with_closure):
    """The question whether step() can be recorded is asked before the call, and again inside of it."""
    if "scaler" in change and not fused:
        pytest.skip("PyTorch's scaler gives it to fused updates alone")
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 4)
        opt = torch.optim.AdamW(net.parameters(), 0.01, weight_decay=0.1, fused=fused)

        def function(x, net=net, opt=opt):
            def loss_of():
                loss = net(x).square().mean()
                opt.zero_grad()
                loss.backward()
                return loss

            loss = None if with_closure else loss_of()
            with CHANGES[change](opt):
                return opt.step(loss_of) if with_closure else opt.step() or loss

        step = overdrive.capture(function, optimizer=opt) if captured else function
        seen = []
        for _ in range(8):
            step(torch.randn(3, 4))
            seen.append(numbers(net, opt))
        sides.append(seen)
        assert "step" not in opt.__dict__
        if captured and change not in ("maximize", "another kind"):
            assert step.stats()["replayed"] == 0 and step.refusal()
    for want, got in zip(*sides):
        assert_same(want, got)


def replace_state(opt):
    for state in opt.state.values():
        state.update({key: value.clone() for key, value in state.items() if torch.is_tensor(value)})


RARE = {
    "clear": lambda opt: opt.state.clear(),
    "pop": lambda opt: opt.state.pop(opt.param_groups[0]["params"][0]),
    "other tensors": replace_state,
    "a group": lambda opt: opt.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", RARE)
@pytest.mark.parametrize("way", ["flag", "count"])
def test_a_call_in_which_the_function_changes_the_state_of_its_optimizer(way, change, kind):
    """The recordings of the calls before are for the state that was there before."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 4)
        opt, count = KINDS[kind](net.parameters()), [0]

        def function(x, flag, net=net, opt=opt, count=count):
            count[0] += 1
            if flag or way == "count" and count[0] == 22:
                RARE[change](opt)
            loss = net(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss

        step = overdrive.capture(function, optimizer=opt, check_every=10**6) if captured else function
        seen = []
        for call in range(40):
            step(torch.randn(3, 4), way == "flag" and call == 21)
            seen.append(numbers(net, opt))
        sides.append(seen)
        assert not captured or step.stats()["replayed"] > 10, step.refusal()
    for want, got in zip(*sides):
        assert_same(want, got)


@pytest.mark.parametrize("inside", [False, True], ids=["between", "inside"])
@pytest.mark.parametrize("option, value, kind", [
    ("betas", (-1.0, 0.999), "adamw"), ("betas", (1.0, 0.999), "adamw"), ("betas", None, "adamw"), ("betas", (0.9,), "fused"), ("nesterov", None, "sgd"),
    ("nesterov", "yes", "sgd"), ("momentum", None, "sgd"), ("decoupled_weight_decay", None, "adamw"), ("lr", "x", "sgd"), ("eps", 1j, "adamw")])
def test_options_that_no_constructor_takes(option, value, kind, inside):
    """Eager's formulas divide by zero, take them for true, or throw, in the middle of a call."""
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 4)
        opt = KINDS[kind](net.parameters())

        def function(x, flag, net=net, opt=opt):
            if flag and inside:
                opt.param_groups[0][option] = value
            loss = net(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss

        step, seen = overdrive.capture(function, optimizer=opt) if captured else function, []
        before = opt.param_groups[0][option]
        for call in range(30):
            if call == 16 and not inside:
                opt.param_groups[0][option] = value
            if call == 24:
                opt.param_groups[0][option] = before
            try:
                step(torch.randn(3, 4), call == 16)
                error = ""
            except Exception as raised:  # noqa: BLE001 - whatever eager's is
                error = f"{type(raised).__name__}: {raised}"
            seen.append((error, numbers(net, opt)))
        sides.append(seen)
        assert not captured or step.stats()["replayed"] > 6, step.refusal()
    for (want_error, want), (got_error, got) in zip(*sides):
        assert want_error == got_error
        assert_same(want, got)


@pytest.mark.parametrize("late", [False, True], ids=["before", "later"])
@pytest.mark.parametrize("where", ["the class", "the object", "its module"])
def test_a_function_of_pytorchs_update_that_is_replaced(where, late, monkeypatch):
    adam = sys.modules[torch.optim.Adam.__module__]

    def replace(optimizer):
        if where == "its module":
            own = adam._single_tensor_adam
            monkeypatch.setattr(adam, "_single_tensor_adam", lambda params, grads, *rest, **keywords: own(
                params, [grad * 2 + 1 for grad in grads], *rest, **keywords))
            return
        own = torch.optim.Adam._init_group

        def with_other_gradients(self, group, parameters, gradients, *rest):
            has_complex = own(self, group, parameters, gradients, *rest)
            gradients[:] = [gradient * 2 + 1 for gradient in gradients]
            return has_complex

        if where == "the class":
            monkeypatch.setattr(torch.optim.Adam, "_init_group", with_other_gradients)
        else:
            optimizer._init_group = types.MethodType(with_other_gradients, optimizer)

    def train(wrap):
        monkeypatch.undo()
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.Adam(model.parameters(), 0.1)

        def function(x):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()

        step = wrap(function)
        for call in range(24):
            if call == 12 * late:
                replace(optimizer)
            step(torch.randn(3, 2))
            yield model.weight.tolist()

    assert list(train(lambda function: overdrive.capture(function, check_every=10 ** 6, always=True))) == list(train(lambda function: function))


def test_zero_grad_of_the_class_is_replaced_after_a_capture(monkeypatch):
    model = torch.nn.Linear(2, 2)
    optimizer = overdrive.captured(torch.optim.SGD(model.parameters(), 0.1), always=True)
    cleared = []
    for call in range(24):
        if call == 12:
            monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", lambda self, set_to_none=True: cleared.append(call))
        optimizer.zero_grad()
        model(torch.randn(3, 2)).sum().backward()
        optimizer.step()
    assert cleared == list(range(12, 24))


def test_an_optimizer_that_is_made_in_each_call_is_named_and_dies():
    model = torch.nn.Linear(2, 2)
    made = []

    def function(x):
        copied = copy.deepcopy(model)
        optimizer = torch.optim.SGD(copied.parameters(), 0.1, momentum=0.9)
        made.append(weakref.ref(optimizer))
        copied(x).sum().backward()
        optimizer.step()
        with torch.no_grad():
            model.weight.lerp_(copied.weight, 0.5)

    step = overdrive.capture(function)
    for _ in range(12):
        step(torch.randn(3, 2))
    assert "steps another optimizer or scheduler (SGD) in each call" in step.refusal()
    gc.collect()
    assert not any(one() for one in made)


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("captured", ["step", "optimizer"])
def test_an_update_in_inference_mode_is_pytorchs(captured, kind):
    """There nothing counts changes, and an operator that asks for the count throws."""
    def train(is_captured):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 3)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
        if is_captured and captured == "optimizer":
            overdrive.captured(optimizer, check_every=10 ** 6, always=True)

        def update():
            optimizer.step()

        step = overdrive.capture(update, always=True) if is_captured and captured == "step" else update
        for call in range(40):
            optimizer.zero_grad()
            model(torch.randn(2, 3)).square().sum().backward()
            with torch.inference_mode(20 <= call < 30):
                step()
            yield model.weight.tolist()

    assert list(train(True)) == list(train(False))


@pytest.mark.parametrize("begins", [0, 20])
def test_two_parameters_with_one_gradient_that_the_update_changes(begins):
    def train(is_captured):
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(2, 2)) for _ in range(2)]
        optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, foreach=True)
        if is_captured:
            overdrive.captured(optimizer, check_every=10 ** 6, always=True)
        for call in range(30):
            parameters[0].grad = torch.randn(2, 2)
            parameters[1].grad = torch.randn(2, 2) if call < begins else parameters[0].grad
            optimizer.step()
            yield [(each.tolist(), each.grad.tolist()) for each in parameters]

    assert list(train(True)) == list(train(False))


def test_a_rate_that_is_not_a_number_is_pytorchs():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), foreach=True, amsgrad=True, weight_decay=0.1)
    optimizer.param_groups[0]["lr"] = float("nan")
    step = overdrive.captured(optimizer, always=True)
    for _ in range(6):
        model(torch.randn(3, 2)).sum().backward()
        step.step()
    assert "has nan as lr" in overdrive.part_of(step).refusal()
