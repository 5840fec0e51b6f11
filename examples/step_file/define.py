"""Defines a net for the digits and its training, and writes both to a file that a C++ program trains:

    python define.py digits.od
"""
import sys

import torch

import overdrive

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(16, 32, 3), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Flatten(), torch.nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)


def train(images, labels):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss


@torch.no_grad()
def predict(images):
    return model(images).argmax(1)


# A few calls on anything of the right sizes: ten tell what an eager call takes, then a step is recorded, checked, and from
# then on replayed.
steps = {"train": overdrive.capture(train, optimizer=optimizer, eager_calls=10), "predict": overdrive.capture(predict, eager_calls=10)}
for _ in range(15):
    steps["train"](torch.rand(50, 1, 8, 8), torch.randint(10, (50,)))
model.eval()
for _ in range(15):
    steps["predict"](torch.rand(50, 1, 8, 8))
overdrive.save_steps(sys.argv[1], steps, names={"": model})
