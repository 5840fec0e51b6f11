"""The workloads: each name makes a list of parameters and a step function. Small, as most programs' nodes are."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def sgd_step(parameters, loss_of):
    parameters = list(parameters)
    optimizer = torch.optim.SGD(parameters, lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss

    return parameters, step


def mlp():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
    return sgd_step(model.parameters(), lambda: F.cross_entropy(model(x), y))


def lstm(steps, width=32, batch=8):
    def make():
        of_input, of_state = nn.Linear(16, 4 * width), nn.Linear(width, 4 * width)
        x = torch.randn(steps, batch, 16)

        def loss():
            hidden = memory = torch.zeros(batch, width)
            for now in x:
                take, forget, update, give = (of_input(now) + of_state(hidden)).chunk(4, 1)
                memory = forget.sigmoid() * memory + take.sigmoid() * update.tanh()
                hidden = give.sigmoid() * memory.tanh()
            return hidden.square().mean()

        return sgd_step([*of_input.parameters(), *of_state.parameters()], loss)

    return make


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.split, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.split(self.first(x)).view(batch, length, 3, self.heads, -1).transpose(1, 3).unbind(2)
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.join(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.second(x))


def transformer():
    model = nn.Sequential(nn.Embedding(50, 64), *[Block(64) for _ in range(4)], nn.LayerNorm(64), nn.Linear(64, 50))
    x, y = torch.randint(0, 50, (2, 32)), torch.randint(0, 50, (64,))
    return sgd_step(model.parameters(), lambda: F.cross_entropy(model(x).flatten(0, 1), y))


def actor_critic():
    """Learns after each of ten moves."""
    memory, policy, value = nn.GRUCell(8, 32), nn.Linear(32, 4), nn.Linear(32, 1)
    parameters = [*memory.parameters(), *policy.parameters(), *value.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    seen = torch.randn(10, 1, 8)

    def step():
        state = torch.zeros(1, 32)
        for move, now in enumerate(seen):
            state = memory(now, state.detach())
            chances, worth = policy(state).log_softmax(1), value(state)
            surprise = 1 - worth
            loss = (surprise.square() - surprise.detach() * chances[:, move % 4]).sum()
            loss = loss + 0.01 * (chances.exp() * chances).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss

    return parameters, step


def tanh_net(inputs, width):
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width),
                         nn.Tanh(), nn.Linear(width, 1))


def pinn():
    model, places = tanh_net(2, 20), torch.rand(64, 2)

    def loss():
        at = places.clone().requires_grad_()
        u = model(at)
        (first,) = torch.autograd.grad(u.sum(), at, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), at, create_graph=True)
        return (first[:, 1:] + u * first[:, :1] - 0.01 * second[:, :1]).square().mean()

    return sgd_step(model.parameters(), loss)


def wgan_gp():
    critic = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    real, made = torch.randn(32, 64), torch.randn(32, 64)

    def loss():
        between = (0.3 * real + 0.7 * made).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        return critic(made).mean() - critic(real).mean() + 10 * (slope.norm(2, 1) - 1).square().mean()

    return sgd_step(critic.parameters(), loss)


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


def python_functions():
    """Every second node is Python's."""
    layer, x = nn.Linear(16, 16), torch.randn(8, 16)

    def loss():
        h = layer(x)
        for _ in range(30):
            h = Tanh.apply(h) * 1.1
        return h.square().mean()

    return sgd_step(layer.parameters(), loss)


def hooks():
    """A hook in Python on every tensor."""
    layer, x = nn.Linear(16, 16), torch.randn(8, 16)

    def hooked(tensor):
        tensor.register_hook(lambda g: None)
        return tensor

    def loss():
        h = hooked(layer(x))
        for _ in range(30):
            h = hooked(hooked(h.tanh()) * 1.1)
        return h.square().mean()

    return sgd_step(layer.parameters(), loss)


def checkpointed(reentrant):
    def make():
        parts = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU()) for _ in range(6))
        x = torch.randn(32, 64, requires_grad=True)

        def loss():
            h = x
            for part in parts:
                h = checkpoint(part, h, use_reentrant=reentrant)
            x.grad = None
            return h.square().mean()

        return sgd_step(parts.parameters(), loss)

    return make


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
                                  nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        return F.relu(x + self.body(x))


def conv_net():
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), Residual(16), Residual(16), nn.AvgPool2d(2), Residual(16),
                          nn.Flatten(), nn.Linear(16 * 64, 10))
    x, y = torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))
    return sgd_step(model.parameters(), lambda: F.cross_entropy(model(x), y))


def two_nodes():
    x = torch.ones(1, requires_grad=True)

    def step():
        x.grad = None
        loss = x.exp()
        loss.backward()
        return loss

    return [x], step


def two_nodes_grad():
    x = torch.ones(1, requires_grad=True)
    return [x], lambda: torch.autograd.grad(x.exp(), x)[0]


# name: (how to make it, steps in a round)
WORKLOADS = {
    "mlp": (mlp, 10), "lstm_20": (lstm(20), 2), "lstm_50": (lstm(50), 1), "lstm_200": (lstm(200), 1),
    "transformer": (transformer, 2), "actor_critic": (actor_critic, 1), "pinn": (pinn, 4), "wgan_gp": (wgan_gp, 5),
    "python_functions": (python_functions, 4), "hooks": (hooks, 5), "checkpoint_reentrant": (checkpointed(True), 3),
    "checkpoint": (checkpointed(False), 2), "conv_net": (conv_net, 2), "two_nodes": (two_nodes, 200),
    "two_nodes_grad": (two_nodes_grad, 200),
}
