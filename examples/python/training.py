"""What the trainers share: the command line, the loop, and the comparison of two runs."""
import argparse
import time
from pathlib import Path

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


def text_pieces(batch, length):
    """The number of different letters in the book, and a function that draws a batch of pieces, a letter longer."""
    text = (Path(__file__).resolve().parents[1] / "data" / "alice.txt").read_text()
    letters = sorted(set(text))
    data = torch.tensor([letters.index(letter) for letter in text])

    def draw():
        begin = torch.randint(0, len(data) - length - 1, (batch,))
        return torch.stack([data[b:b + length + 1] for b in begin])

    return len(letters), draw


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
