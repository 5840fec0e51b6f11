"""Two more steps for C++ programs of a few lines:

    python define_more.py letters letters.od    # a GRU that reads a text, for letters.cpp
    python define_more.py cart cart.od          # SAC's update and its policy, for cart.cpp
"""
import copy
import sys

import torch
from torch import nn
from torch.nn import functional as F

import overdrive


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.gru, self.next = nn.Embedding(128, 24), nn.GRU(24, 48, batch_first=True), nn.Linear(48, 128)

    def forward(self, text):
        return self.next(self.gru(self.letters(text))[0])


def letters(path):
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def train(text):  # each letter tells the next one
        optimizer.zero_grad()
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    step = overdrive.capture(train, optimizer=optimizer)
    for _ in range(6):
        step(torch.randint(128, (16, 33)))
    step.save(path)


def cart(path):
    """A state is a place and a speed, an action a push from -1 to 1."""
    def net(given, made):
        return nn.Sequential(nn.Linear(given, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, made))

    actor, critics = net(2, 2), nn.ModuleList([net(3, 1), net(3, 1)])
    slow = copy.deepcopy(critics).requires_grad_(False)
    of_actor = torch.optim.Adam(actor.parameters(), lr=3e-3)
    of_critics = torch.optim.Adam(critics.parameters(), lr=3e-3)

    def chosen(states):
        mean, spread = actor(states).chunk(2, 1)
        spread = spread.clamp(-5, 1)
        noise = torch.randn_like(mean)
        action = torch.tanh(mean + noise * spread.exp())
        return action, -0.5 * noise.square() - spread - torch.log(1 - action.square() + 1e-6)

    def least(nets, states, actions):
        both = torch.cat([states, actions], 1)
        return torch.minimum(nets[0](both), nets[1](both))

    def update(states, actions, rewards, after):
        with torch.no_grad():
            next_actions, logs = chosen(after)
            wanted = rewards + 0.95 * (least(slow, after, next_actions) - 0.05 * logs)
        of_critics.zero_grad()
        both = torch.cat([states, actions], 1)
        loss = F.mse_loss(critics[0](both), wanted) + F.mse_loss(critics[1](both), wanted)
        loss.backward()
        of_critics.step()
        of_actor.zero_grad()
        own, logs = chosen(states)
        (0.05 * logs - least(critics, states, own)).mean().backward()
        of_actor.step()
        with torch.no_grad():
            for old, new in zip(slow.parameters(), critics.parameters()):
                old.lerp_(new, 0.02)
        return loss

    @torch.no_grad()
    def act(states):
        return chosen(states)[0]

    steps = {"update": overdrive.capture(update, optimizer=[of_critics, of_actor]), "act": overdrive.capture(act)}
    for _ in range(6):
        steps["update"](torch.randn(64, 2), torch.rand(64, 1), torch.randn(64, 1), torch.randn(64, 2))
        steps["act"](torch.randn(1, 2))
    overdrive.save_steps(path, steps, names={"actor": actor, "critics": critics, "slow": slow})


torch.manual_seed(0)
torch.set_num_threads(1)
{"letters": letters, "cart": cart}[sys.argv[1]](sys.argv[2])
