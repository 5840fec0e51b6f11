"""What the trainers share: the command line, the loop, and the comparison of two runs."""
import argparse
import time

import torch

import overdrive


def train(make, steps, every=20):
    """`make()` returns a model and its step function. Returns losses, parameters and CPU seconds."""
    torch.manual_seed(0)
    model, step = make()
    losses = []
    begin = time.process_time()
    for number in range(steps):
        losses.append(step().item())
        if number % every == 0 or number == steps - 1:
            print(f"  step {number:4}: loss {losses[-1]:.6f}", flush=True)
    return losses, [p.detach().clone() for p in model.parameters()], time.process_time() - begin


def main(make, description, steps=100):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--engine", choices=["stock", "overdrive", "both"], default="overdrive")
    parser.add_argument("--steps", type=int, default=steps)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = {}
    for name in ("stock", "overdrive"):
        if arguments.engine not in (name, "both"):
            continue
        print(f"{description}, on {name}")
        if name == "overdrive":
            with overdrive.engine():
                runs[name] = train(make, arguments.steps)
        else:
            runs[name] = train(make, arguments.steps)
    if arguments.engine == "both":
        stock, ours = runs["stock"], runs["overdrive"]
        same = stock[0] == ours[0] and all(torch.equal(a, b) for a, b in zip(stock[1], ours[1]))
        print(f"bits {'equal' if same else 'DIFFER'}; CPU time {stock[2]:.2f} s on stock, {ours[2]:.2f} s on Overdrive "
              f"({ours[2] / stock[2]:.3f})")
        raise SystemExit(0 if same else 1)
