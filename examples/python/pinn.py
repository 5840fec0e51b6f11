"""A net that solves Burgers' equation u_t + u u_x = 0.01/pi u_xx: the loss holds second derivatives of the net."""
import math

import torch
from torch import nn
from training import main


def make(points=128):
    model = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(),
                          nn.Linear(20, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = torch.rand(points, 1) * 2 - 1  # where the solution is known: at the beginning, and at both ends

    def known():
        at_begin = model(torch.cat([begin, torch.zeros_like(begin)], 1)) + (math.pi * begin).sin()
        times = torch.rand(points // 2, 1)
        ends = [model(torch.cat([torch.full_like(times, x), times], 1)) for x in (-1.0, 1.0)]
        return at_begin.square().mean() + sum(end.square().mean() for end in ends)

    def step():
        x = (torch.rand(points, 1) * 2 - 1).requires_grad_()
        t = torch.rand(points, 1).requires_grad_()
        u = model(torch.cat([x, t], 1))
        u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
        residual = u_t + u * u_x - 0.01 / math.pi * u_xx
        loss = residual.square().mean() + known()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


if __name__ == "__main__":
    main(make, "net for Burgers' equation", steps=200)
