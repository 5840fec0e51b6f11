"""The models of `overdrive bench capture` and `bench lanes` in JAX: a whole step, compiled, with its memory given back. See bench/README.md."""
from timing import run, use_threads

use_threads()
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

random = np.random.default_rng(0)


def normal(*sizes, scale=1.0):
    return jnp.asarray(random.standard_normal(sizes) * scale, jnp.float32)


def dense(*widths):
    return [(normal(m, n, scale=n ** -0.5), jnp.zeros(m)) for n, m in zip(widths, widths[1:])]


def run_dense(layers, x, activation):
    for i, (weight, bias) in enumerate(layers):
        x = x @ weight.T + bias
        if i + 1 < len(layers):
            x = activation(x)
    return x


def mlp(width, batch):
    return nets([width] * 4, 1, batch)


def nets(widths, count, batch):
    """Nets that see the same input and do not know each other."""
    def loss(p, x, y):
        return sum(jnp.mean((run_dense(net, x, jnp.tanh) - y) ** 2) for net in p)

    return loss, [dense(*widths) for _ in range(count)], (normal(batch, widths[0]), normal(batch, widths[-1]))


def lstm(hidden, batch, steps, layers=1):
    """One cell above the other."""
    def loss(p, xs, y):
        zero = jnp.zeros((batch, hidden))
        for w, u, b in p:
            def cell(state, x, w=w, u=u, b=b):
                h, c = state
                i, f, g, o = jnp.split(x @ w.T + b + h @ u.T, 4, axis=1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), h

            (h, _), xs = jax.lax.scan(cell, (zero, zero), xs)
        return jnp.mean((h - y) ** 2)

    p = [(normal(4 * hidden, hidden, scale=0.2), normal(4 * hidden, hidden, scale=0.2), jnp.zeros(4 * hidden))
         for _ in range(layers)]
    return loss, p, (normal(steps, batch, hidden), normal(batch, hidden))


def pinn():
    def loss(p, x, y):
        def net(point):
            return run_dense(p, point[None], jnp.tanh)[0, 0]

        def second(point):
            slope = jax.grad(net)
            return jax.grad(lambda q: slope(q)[0])(point)[0]

        return jnp.mean((jax.vmap(second)(x)[:, None] - y) ** 2)

    return loss, dense(1, 32, 32, 32, 1), (jnp.asarray(random.random((256, 1)), jnp.float32), normal(256, 1))


def wgan():
    def loss(p, real, fake, mix):
        def critic(x):
            return run_dense(p, x, lambda h: jax.nn.leaky_relu(h, 0.2))

        slope = jax.grad(lambda x: critic(x).sum())(mix * real + (1 - mix) * fake)
        penalty = jnp.mean((jnp.sqrt((slope ** 2).sum(1) + 1e-12) - 1) ** 2)
        return critic(fake).mean() - critic(real).mean() + 10 * penalty

    inputs = normal(64, 2), normal(64, 2), jnp.asarray(random.random((64, 1)), jnp.float32)
    return loss, dense(2, 64, 64, 64, 1), inputs


def transformer(width=64, heads=4, length=64, batch=4, layers=4, words=64):
    def norm():
        return jnp.ones(width), jnp.zeros(width)

    blocks = [(norm(), dense(width, 3 * width)[0], dense(width, width)[0], norm(), dense(width, 4 * width)[0],
               dense(4 * width, width)[0]) for _ in range(layers)]
    p = (normal(words, width, scale=0.1), normal(length, width, scale=0.1), blocks, norm(), dense(width, words)[0])

    def normed(x, scales):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(variance + 1e-5) * scales[0] + scales[1]

    def linear(x, layer):
        return x @ layer[0].T + layer[1]

    def loss(p, seen, wanted, mask):
        h = p[0][seen] + p[1]
        for first, to_qkv, back, second, up, down in p[2]:
            qkv = linear(normed(h, first), to_qkv).reshape(batch, length, 3, heads, width // heads)
            q, k, v = qkv.transpose(2, 0, 3, 1, 4)
            weights = jax.nn.softmax(q @ k.swapaxes(-2, -1) * 0.25 + mask, -1)
            h = h + linear((weights @ v).swapaxes(1, 2).reshape(batch, length, width), back)
            h = h + linear(jax.nn.gelu(linear(normed(h, second), up), approximate=True), down)
        chances = jax.nn.log_softmax(linear(normed(h, p[3]), p[4]).reshape(batch * length, words))
        return -jnp.take_along_axis(chances, wanted[:, None], 1).mean()

    mask = jnp.triu(jnp.full((length, length), -1e9, jnp.float32), 1)
    inputs = (jnp.asarray(random.integers(words, size=(batch, length))),
              jnp.asarray(random.integers(words, size=batch * length)), mask)
    return loss, p, inputs


MODELS = {"mlp 3x64": lambda: mlp(64, 32), "mlp 3x512": lambda: mlp(512, 64), "lstm 16": lambda: lstm(16, 8, 20),
          "lstm 64": lambda: lstm(64, 16, 50), "lstm 64, two": lambda: lstm(64, 16, 50, layers=2), "pinn": pinn,
          "wgan-gp": wgan, "transformer 64": transformer, "ensemble 8x64": lambda: nets([64, 64, 64, 1], 8, 32),
          "twin critics": lambda: (*nets([20, 256, 256, 1], 2, 256), adam)}


def sgd(p, slopes, state):
    return jax.tree.map(lambda w, g: w - 1e-3 * g, p, slopes), state


def adam(p, slopes, state):
    """As torch::optim::Adam with its defaults; the state is its moments, and how many steps there were."""
    first, second, steps = state
    steps = steps + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, slopes)
    rate, scale = 1e-3 / (1 - 0.9 ** steps), jnp.sqrt(1 - 0.999 ** steps)
    p = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) / scale + 1e-8), p, first, second)
    return p, (first, second, steps)


def make_step(make):
    loss, parameters, inputs, *optimizer = make()
    rule = optimizer[0] if optimizer else sgd
    state = (jax.tree.map(jnp.zeros_like, parameters), jax.tree.map(jnp.zeros_like, parameters),
             jnp.zeros(())) if rule is adam else ()

    def update(trained, *given):
        p, state = trained
        value, slopes = jax.value_and_grad(loss)(p, *given)
        return rule(p, slopes, state), value

    compiled = jax.jit(update, donate_argnums=0)
    trained = [(parameters, state)]

    def step():
        trained[0], value = compiled(trained[0], *inputs)
        value.block_until_ready()

    return step


run("JAX", jax.__version__, MODELS, make_step)
