"""The models of `overdrive bench capture` by AOTInductor: a whole step, traced and compiled. See bench/README.md."""
import os
import tempfile

from timing import run, use_threads

THREADS = use_threads()
import torch  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional as F  # noqa: E402

torch.set_num_threads(THREADS)


def dense(*widths):
    return [part for n, m in zip(widths, widths[1:]) for part in (torch.randn(m, n) * n ** -0.5, torch.zeros(m))]


def run_dense(p, x, activation):
    for i in range(0, len(p), 2):
        x = F.linear(x, p[i], p[i + 1])
        if i + 2 < len(p):
            x = activation(x)
    return x


def mlp():
    return (lambda p, x, y: F.mse_loss(run_dense(p, x, torch.tanh), y)), dense(64, 64, 64, 64), [torch.randn(32, 64),
                                                                                              torch.randn(32, 64)]


def lstm(hidden, batch, steps):
    def loss(p, xs, y):
        h = torch.zeros(batch, hidden)
        c = torch.zeros_like(h)
        for t in range(steps):
            i, f, g, o = (F.linear(xs[t], p[0], p[2]) + F.linear(h, p[1])).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return F.mse_loss(h, y)

    p = [torch.randn(4 * hidden, hidden) * 0.2, torch.randn(4 * hidden, hidden) * 0.2, torch.zeros(4 * hidden)]
    return loss, p, [torch.randn(steps, batch, hidden), torch.randn(batch, hidden)]


def slope(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def pinn():
    def loss(p, points, y):
        x = points.detach().requires_grad_()
        return (slope(slope(run_dense(p, x, torch.tanh), x), x) - y).square().mean()

    return loss, dense(1, 32, 32, 32, 1), [torch.rand(256, 1), torch.randn(256, 1)]


def wgan():
    def loss(p, real, fake, mix):
        def critic(x):
            return run_dense(p, x, lambda h: F.leaky_relu(h, 0.2))

        between = (mix * real + (1 - mix) * fake).detach().requires_grad_()
        penalty = ((slope(critic(between), between).square().sum(1) + 1e-12).sqrt() - 1).square().mean()
        return critic(fake).mean() - critic(real).mean() + 10 * penalty

    return loss, dense(2, 64, 64, 64, 1), [torch.randn(64, 2), torch.randn(64, 2), torch.rand(64, 1)]


def transformer(width=64, heads=4, length=64, batch=4, layers=4, words=64):
    p = [torch.randn(words, width) * 0.1, torch.randn(length, width) * 0.1]
    for _ in range(layers):
        p += [torch.ones(width), torch.zeros(width), *dense(width, 3 * width), *dense(width, width)]
        p += [torch.ones(width), torch.zeros(width), *dense(width, 4 * width), *dense(4 * width, width)]
    p += [torch.ones(width), torch.zeros(width), *dense(width, words)]

    def loss(p, seen, wanted, mask):
        rest = iter(p[2:])

        def normed(x):
            return F.layer_norm(x, (width,), next(rest), next(rest))

        def linear(x):
            return F.linear(x, next(rest), next(rest))

        h = F.embedding(seen, p[0]) + p[1]
        for _ in range(layers):
            q, k, v = linear(normed(h)).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            weights = torch.softmax(q @ k.transpose(-2, -1) * 0.25 + mask, -1)
            h = h + linear((weights @ v).transpose(1, 2).reshape(batch, length, width))
            h = h + linear(F.gelu(linear(normed(h)), approximate="tanh"))
        return F.cross_entropy(linear(normed(h)).view(batch * length, words), wanted)

    return loss, p, [torch.randint(words, (batch, length)), torch.randint(words, (batch * length,)),
                     torch.full((length, length), -1e9).triu(1)]


MODELS = {"mlp 3x64": mlp, "lstm 16": lambda: lstm(16, 8, 20), "lstm 64": lambda: lstm(64, 16, 50), "pinn": pinn,
          "wgan-gp": wgan, "transformer 64": transformer}


def make_step(make):
    loss, parameters, inputs = make()
    count = len(parameters)

    def update(*given):
        p = [w.detach().requires_grad_() for w in given[:count]]
        value = loss(p, *given[count:])
        slopes = torch.autograd.grad(value, p, allow_unused=True)
        return [*(w.detach() if g is None else w.detach() - 1e-3 * g for w, g in zip(p, slopes)), value.detach()]

    given = (*parameters, *inputs)
    traced = make_fx(update)(*given)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        package = torch._inductor.aoti_compile_and_package(torch.export.export(traced, given),
                                                           package_path=os.path.join(folder, "step.pt2"))
        compiled = torch._inductor.aoti_load_package(package)
    state = [list(parameters)]

    def step():
        with torch.no_grad():
            results = compiled(*state[0], *inputs)
        state[0] = results[:count]

    return step


run("AOTInductor", torch.__version__, MODELS, make_step)
