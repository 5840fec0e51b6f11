"""Step files: what was captured here is trained by a C++ program, which has the small library and no Python, with the bits
of eager steps."""
import os
import subprocess

import pytest
import torch
from conftest import python
from torch import nn
from torch.nn import functional as F

import overdrive

STEPS = 300


def drawn(text):
    """Inputs as step_program.cpp draws them."""
    inputs = []
    for each in [] if text == "-" else text.split(","):
        sizes = [int(size) for size in each.split(":")[0].split("x")]
        inputs.append(torch.randint(int(each.split(":")[1]), sizes) if ":" in each else torch.randn(sizes))
    return inputs


class Case:
    """Functions with their inputs, the modules that they change, and the optimizers."""

    def __init__(self, functions, inputs, modules, optimizers):
        self.functions, self.inputs, self.modules, self.optimizers = functions, inputs, modules, optimizers


def supervised(model, inputs, loss_of, optimizer):
    def train(*given):
        optimizer.zero_grad()
        loss = loss_of(model, *given)
        loss.backward()
        optimizer.step()
        return loss

    return Case({"train": train}, {"train": inputs}, {"": model}, {"train": optimizer})


def mlp():
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    return supervised(model, "16x8,16x2", lambda m, x, y: F.mse_loss(m(x), y), torch.optim.Adam(model.parameters(), 1e-2))


def convolutions():
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2),
                          nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 10))
    return supervised(model, "16x1x8x8,16:10", lambda m, x, y: F.cross_entropy(m(x), y),
                      torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.gru, self.last = nn.Embedding(20, 8), nn.GRU(8, 16, batch_first=True), nn.Linear(16, 20)

    def forward(self, x):
        return self.last(self.gru(self.words(x))[0])


def gru():
    model = Recurrent()
    return supervised(model, "4x6:20,4x6:20", lambda m, x, y: F.cross_entropy(m(x).flatten(0, 1), y.flatten()),
                      torch.optim.Adam(model.parameters(), 1e-2))


class Layered(nn.Module):
    """Layers that oneDNN computes, each direction on its own."""

    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(5, 12, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2), nn.Linear(24, 3)

    def forward(self, x):
        return self.last(self.lstm(x)[0][:, -1])


def lstm():
    model = Layered()
    return supervised(model, "4x6x5,4:3", lambda m, x, y: F.cross_entropy(m(x), y), torch.optim.Adam(model.parameters(), 1e-2))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 32), nn.Embedding(12, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(32, 20)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(12))

    def forward(self, x):
        h = self.words(x) + self.places(torch.arange(12))
        return self.last(self.layers(h, mask=self.mask, is_causal=True))


def transformer():
    model = Transformer()
    return supervised(model, "4x12:20,4x12:20", lambda m, x, y: F.cross_entropy(m(x).flatten(0, 1), y.flatten()),
                      torch.optim.AdamW(model.parameters(), 1e-3))


def pinn():
    model = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))

    def residual(m, points):
        x = points.detach().requires_grad_()
        u = m(x)
        du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        uxx = torch.autograd.grad(du[:, 0].sum(), x, create_graph=True)[0][:, 0]
        return (du[:, 1] + u[:, 0] * du[:, 0] - 0.01 * uxx).square().mean()

    return supervised(model, "32x2", residual, torch.optim.Adam(model.parameters(), 1e-3))


def wgan_gp():
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))
    critic = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    of_generator = torch.optim.Adam(generator.parameters(), 1e-3, betas=(0.5, 0.9))
    of_critic = torch.optim.Adam(critic.parameters(), 1e-3, betas=(0.5, 0.9))

    def train_critic(real):
        of_critic.zero_grad()
        with torch.no_grad():
            fake = generator(torch.randn(16, 4))
        mixed = (real + torch.rand(16, 1) * (fake - real)).requires_grad_()
        slope = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
        loss = critic(fake).mean() - critic(real).mean() + 10 * (slope.norm(2, dim=1) - 1).square().mean()
        loss.backward()
        of_critic.step()
        return loss

    def train_generator():
        of_generator.zero_grad()
        loss = -critic(generator(torch.randn(16, 4))).mean()
        loss.backward()
        of_generator.step()
        return loss

    return Case({"critic": train_critic, "generator": train_generator}, {"critic": "16x8", "generator": "-"},
                {"critic": critic, "generator": generator}, {"critic": of_critic, "generator": of_generator})


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.actor, self.critic = nn.Linear(4, 32), nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, x):
        h = torch.tanh(self.body(x))
        return self.actor(h), self.critic(h).squeeze(-1)


def actor_critic():
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)

    def train(states, actions, returns):
        optimizer.zero_grad()
        logits, values = model(states)
        chances = F.log_softmax(logits, 1)
        advantage = (returns - values).detach()
        chosen = chances.gather(1, actions.unsqueeze(1)).squeeze(1)
        entropy = -(chances.exp() * chances).sum(1).mean()
        loss = -(chosen * advantage).mean() + F.smooth_l1_loss(values, returns) - 0.01 * entropy
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss

    return Case({"train": train}, {"train": "32x4,32:3,32"}, {"": model}, {"train": optimizer})


def soft_actor_critic():
    """Two optimizers and a network that follows another one, in one step."""
    actor, critic, target = (nn.Sequential(nn.Linear(given, 32), nn.ReLU(), nn.Linear(32, made))
                             for given, made in ((4, 2), (5, 1), (5, 1)))
    target.load_state_dict(critic.state_dict())
    of_actor = torch.optim.Adam(actor.parameters(), 1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), 3e-3)

    def chosen(states):
        mean, spread = actor(states).chunk(2, 1)
        return torch.tanh(mean + torch.randn(16, 1) * spread.clamp(-5, 2).exp())

    def update(states, actions, rewards, after):
        with torch.no_grad():
            wanted = rewards + 0.99 * target(torch.cat([after, chosen(after)], 1))
        of_critic.zero_grad()
        error = F.mse_loss(critic(torch.cat([states, actions], 1)), wanted)
        error.backward()
        of_critic.step()
        of_actor.zero_grad()
        value = -critic(torch.cat([states, chosen(states)], 1)).mean()
        value.backward()
        of_actor.step()
        with torch.no_grad():
            for slow, quick in zip(target.parameters(), critic.parameters()):
                slow.lerp_(quick, 0.01)
        return error.detach() + value.detach()

    return Case({"update": update}, {"update": "16x4,16x1,16x1,16x4"},
                {"actor": actor, "critic": critic, "target": target}, {"update": [of_critic, of_actor]})


CASES = [mlp, convolutions, gru, lstm, transformer, pinn, wgan_gp, actor_critic, soft_actor_critic]


def captured(case):
    """The functions as captured steps that replay."""
    steps = {name: overdrive.capture(function, optimizer=case.optimizers.get(name))
             for name, function in case.functions.items()}
    for i in range(10):
        torch.manual_seed(i)
        for name, step in steps.items():
            step(*drawn(case.inputs[name]))
    for step in steps.values():
        assert step.stats()["replayed"] > 0, step.explain()
    return steps


def saved(case, path, **options):
    steps = captured(case)
    names = {name: module for name, module in case.modules.items() if name}
    overdrive.save_steps(path, steps, names=names, **options)
    return steps


def eagerly(case, results):
    """The same steps as step_program.cpp makes them."""
    for i in range(STEPS):
        torch.manual_seed(1000 + i)
        for name, function in case.functions.items():
            results.append(function(*drawn(case.inputs[name])).detach().clone())


def state_of(case):
    """Parameters, buffers and the state of the optimizers, as their names are in the file."""
    state = {}
    for prefix, module in case.modules.items():
        for key, tensor in module.state_dict(keep_vars=True).items():
            state[f"{prefix}.{key}" if prefix else key] = tensor
    names = {id(tensor): name for name, tensor in state.items()}
    for function, optimizer in case.optimizers.items():
        start = f"{function}.optimizer" if len(case.functions) > 1 else "optimizer"
        several = isinstance(optimizer, list)
        for index, each in enumerate(optimizer if several else [optimizer]):
            for parameter, values in each.state.items():
                for key, value in values.items():
                    if isinstance(value, torch.Tensor):
                        state[f"{start}{f'.{index}' if several else ''}.{key}.{names[id(parameter)]}"] = value
    return state


def in_cpp(case, path, tmp_path, steps=STEPS):
    functions = [part for name in case.functions for part in (name, case.inputs[name])]
    done = subprocess.run([os.environ["OVERDRIVE_TEST_STEP_PROGRAM"], path, tmp_path / "state.pt", tmp_path / "results",
                           str(steps), *functions], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [float(number) for number in done.stdout.split()]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_300_steps_of_a_cpp_program_have_the_bits_of_300_eager_steps(make, tmp_path):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    case = make()
    saved(case, tmp_path / "step.od")
    first, step = in_cpp(case, tmp_path / "step.od", tmp_path)
    results = []
    eagerly(case, results)
    numbers = torch.frombuffer(bytearray((tmp_path / "results").read_bytes()), dtype=torch.float32)
    assert torch.equal(numbers, torch.stack(results))
    there, here = torch.load(tmp_path / "state.pt", weights_only=True), state_of(case)
    assert set(here) - set(there) <= {"mask"}, "attention that is causal reads no mask"
    different = [name for name in set(here) & set(there) if not torch.equal(here[name].detach(), there[name])]
    assert different == []
    print(f"{make.__name__}: {first:.1f} ms from load to the first replay, {1000 * step:.1f} us a step, "
          f"{(tmp_path / 'step.od').stat().st_size} bytes")


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_file_without_values_is_small(make, tmp_path):
    torch.manual_seed(0)
    saved(make(), tmp_path / "step.od", values=False)
    assert (tmp_path / "step.od").stat().st_size < 1 << 20
    assert "without values" in overdrive.load_step(tmp_path / "step.od").describe()


def test_another_process_of_python_goes_on(tmp_path):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    case = mlp()
    saved(case, tmp_path / "step.od")
    code = f"""
import overdrive, torch
torch.set_num_threads(1)
step = overdrive.load_step({str(tmp_path / 'step.od')!r})
torch.manual_seed(1000)
step.set_learning_rate(0.5)
for i in range(20):
    x, y = torch.randn(16, 8), torch.randn(16, 2)
    step(x, y)
step.save_state({str(tmp_path / 'state.pt')!r})
"""
    python(["-c", code])
    torch.manual_seed(1000)
    case.optimizers["train"].param_groups[0]["lr"] = 0.5
    for _ in range(20):
        case.functions["train"](*drawn("16x8,16x2"))
    there = torch.load(tmp_path / "state.pt", weights_only=True)
    for name, tensor in state_of(case).items():
        assert torch.equal(tensor.detach(), there[name]), name


def test_a_loaded_step_has_names_numbers_and_a_state(tmp_path):
    torch.manual_seed(0)
    case = mlp()
    model = case.modules[""]
    saved(case, tmp_path / "step.od")
    step = overdrive.load_step(tmp_path / "step.od")
    assert step.functions == ["train"] and len(step.parameters()) == 6
    named = step.named_tensors()
    assert torch.equal(named["0.weight"], model[0].weight) and torch.equal(named["0.weight.grad"], torch.zeros(32, 8))
    assert step.optimizer_numbers()["0.lr"] == 1e-2
    with pytest.raises(TypeError, match="0.eps is 'small', and an optimizer's number is a float"):
        step.set_optimizer_number("0.eps", "small")
    step.set_optimizer_number("0.eps", 1e-6)
    assert step.optimizer_numbers()["0.eps"] == 1e-6
    step(torch.randn(16, 8), torch.randn(16, 2))
    assert not torch.equal(named["0.weight"], model[0].weight)
    model.load_state_dict({name: named[name] for name in model.state_dict()})
    assert torch.equal(named["0.weight"], model[0].weight)
    state = model.state_dict()
    for saved_as in (state, dict(state), dict(model.named_parameters()), {**state, "epoch": 3, "rate": 0.5, "name": None}):
        torch.save(saved_as, tmp_path / "model.pt")
        other = overdrive.load_step(tmp_path / "step.od")
        missing, unexpected = other.load_state(tmp_path / "model.pt")
        assert unexpected == [] and "optimizer.step.0.weight" in missing and "0.weight" not in missing
        assert all(torch.equal(other.named_tensors()[name], tensor) for name, tensor in state.items())
    torch.save({"net": state}, tmp_path / "model.pt")
    assert step.load_state(tmp_path / "model.pt")[1] == [f"net.{name}" for name in state]
    torch.save([1, 2], tmp_path / "model.pt")
    with pytest.raises(RuntimeError, match="it holds no tensors by name"):
        step.load_state(tmp_path / "model.pt")


def test_what_is_not_replayed_cannot_be_saved(tmp_path):
    torch.manual_seed(0)
    case = mlp()
    step = overdrive.capture(case.functions["train"], optimizer=case.optimizers["train"])
    with pytest.raises(overdrive.OverdriveError, match="it was not called yet"):
        step.save(tmp_path / "step.od")
    step(*drawn("16x8,16x2"))
    with pytest.raises(RuntimeError, match="no call of it is replayed yet"):
        step.save(tmp_path / "step.od")
    scaled = overdrive.capture(lambda x, factor: x * factor)
    for i in range(8):
        scaled(torch.randn(4), 0.5)
    with pytest.raises(overdrive.OverdriveError, match="called with a number"):
        scaled.save(tmp_path / "step.od")

    class Decay:
        factor = 0.5

        def train(self, x):
            self.factor *= 0.9
            return x * self.factor

    counting = overdrive.capture(Decay().train)
    for i in range(8):
        counting(torch.randn(4))
    with pytest.raises(overdrive.OverdriveError, match="counts in `self.factor`"):
        counting.save(tmp_path / "step.od")
    model = nn.Linear(8, 2)
    optimizer = torch.optim.Adagrad(model.parameters(), 0.1)

    def train(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step = overdrive.capture(train, optimizer=optimizer)
    for i in range(8):
        step(*drawn("16x8,16x2"))
    assert step.stats()["replayed"] > 0, step.refusal()
    with pytest.raises(RuntimeError, match="overdrive::adagrad_"):
        step.save(tmp_path / "step.od")
    assert not (tmp_path / "step.od").exists()


def test_a_file_has_the_modes_and_values_of_the_last_call(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    train = supervised(model, "8x4,8x1", lambda m, x, y: F.mse_loss(m(x), y), torch.optim.SGD(model.parameters(), 0.1))
    train_step = captured(train)["train"]

    @torch.no_grad()
    def predict(x):
        return model(x)

    predict_step = overdrive.capture(predict)
    for _ in range(6):  # in the other mode first
        predict_step(torch.randn(3, 4))
    model.eval()
    for _ in range(6):
        predict_step(torch.randn(2, 4))
    overdrive.save_steps(tmp_path / "step.od", {"train": train_step, "predict": predict_step})
    loaded = overdrive.load_step(tmp_path / "step.od")
    x = torch.randn(2, 4)
    assert torch.equal(loaded.call("predict", x), predict(x))
    with pytest.raises(RuntimeError, match=r"has programs for: Float\[2, 4\]\."):
        loaded.call("predict", torch.randn(3, 4))
    model.train()
    for i in range(5):
        given = drawn("8x4,8x1")
        torch.manual_seed(i)
        loss = train.functions["train"](*given)
        torch.manual_seed(i)
        assert torch.equal(loaded(*given), loss)
    model.eval()
    assert torch.equal(loaded.call("predict", x), predict(x))


def test_a_learning_rate_that_was_set_since_the_last_call_is_saved(tmp_path):
    torch.manual_seed(0)
    case = mlp()
    step = captured(case)["train"]
    case.optimizers["train"].param_groups[0]["lr"] = 0.25
    step.save(tmp_path / "step.od")
    assert overdrive.load_step(tmp_path / "step.od").optimizer_numbers()["0.lr"] == 0.25


def test_a_small_tensor_that_never_changed_must_not_change(tmp_path):
    weight, scale = torch.ones(4), torch.tensor([2.0])

    def scaled(x):
        return x * scale + weight.sum()

    step = overdrive.capture(scaled)
    for _ in range(8):
        step(torch.randn(4))
    step.save(tmp_path / "step.od", names={"scale": scale})
    loaded = overdrive.load_step(tmp_path / "step.od")
    assert torch.equal(loaded(torch.ones(4)), torch.full((4,), 6.0))
    loaded.named_tensors()["scale"].fill_(3)
    with pytest.raises(RuntimeError, match="scale was the same in all calls that were recorded"):
        loaded(torch.ones(4))
    # Once it has changed between calls, the step is known to read it anew.
    scale.fill_(3)
    for _ in range(3):
        step(torch.randn(4))
    step.save(tmp_path / "step.od", names={"scale": scale})
    loaded = overdrive.load_step(tmp_path / "step.od")
    loaded.named_tensors()["scale"].fill_(5)
    assert torch.equal(loaded(torch.ones(4)), torch.full((4,), 9.0))


def test_so_many_calls_are_eager_before_the_first_is_recorded():
    torch.manual_seed(0)
    case = mlp()
    step = overdrive.capture(case.functions["train"], optimizer=case.optimizers["train"], eager_calls=10)
    for _ in range(16):
        step(*drawn("16x8,16x2"))
    assert step.stats()["eager"] == 10 and step.stats()["replayed"] == 3
    with pytest.raises(ValueError, match="eager_calls is 0; it takes 1 and more"):
        overdrive.capture(case.functions["train"], eager_calls=0)


def test_errors_name_the_file(tmp_path):
    with pytest.raises(RuntimeError, match="nothing.od: it cannot be opened: No such file or directory"):
        overdrive.load_step(tmp_path / "nothing.od")
    with pytest.raises(RuntimeError, match=": it is a folder"):
        overdrive.load_step(tmp_path)
    (tmp_path / "no.od").write_bytes(b"something else")
    with pytest.raises(RuntimeError, match="no.od: this is no step file"):
        overdrive.load_step(tmp_path / "no.od")
    (tmp_path / "no.od").write_bytes(b"")
    with pytest.raises(RuntimeError, match="no.od: the file is empty"):
        overdrive.load_step(tmp_path / "no.od")
    torch.save({"w": torch.zeros(2)}, tmp_path / "state.pt")
    with pytest.raises(RuntimeError, match="state.pt: this is no step file, but a state"):
        overdrive.load_step(tmp_path / "state.pt")
    case = mlp()
    saved(case, tmp_path / "step.od")
    with pytest.raises(RuntimeError, match="most_memory allows more"):
        overdrive.load_step(tmp_path / "step.od", most_memory=1000)
    step = overdrive.load_step(tmp_path / "step.od")
    with pytest.raises(TypeError, match="input 1 of train is float, and a loaded step takes tensors"):
        step(torch.randn(16, 8), 0.5)
    with pytest.raises(RuntimeError, match=r"called with Float\[3, 8\], Float\[3, 2\], and function train has programs for"):
        step(torch.randn(3, 8), torch.randn(3, 2))
