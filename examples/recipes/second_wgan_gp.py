"""Second derivatives: the critic of a WGAN with gradient penalty, and its generator."""
import torch
from recipe import Recipe
from torch import nn

import overdrive

run = Recipe(__doc__)
generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
for_generator = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
for_critic = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))


def train_critic(real, noise, mix):
    for_critic.zero_grad()
    made = generator(noise).detach()
    between = (mix * real + (1 - mix) * made).requires_grad_()
    slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
    loss = critic(made).mean() - critic(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()
    loss.backward()
    for_critic.step()
    return loss


def train_generator(noise):
    for_generator.zero_grad()
    loss = -critic(generator(noise)).mean()
    loss.backward(inputs=list(generator.parameters()))
    for_generator.step()
    return loss


if run.captured:
    train_critic = overdrive.capture(train_critic, optimizer=for_critic)  # overdrive
    train_generator = overdrive.capture(train_generator, optimizer=for_generator)  # overdrive
elif run.compiled:
    train_critic, train_generator = torch.compile(train_critic), torch.compile(train_generator)


@run.timed
def step():
    for _ in range(3):
        angle = 6.2832 * torch.rand(64, 1)
        train_critic(torch.cat([angle.cos(), angle.sin()], 1), torch.randn(64, 8), torch.rand(64, 1))
    train_generator(torch.randn(64, 8))


for _ in range(1750):
    step()
run.done(generator, critic)
