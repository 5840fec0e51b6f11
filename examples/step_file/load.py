"""Takes back what the C++ program has trained, and tells how many digits it knows:

    python load.py digits.od state.pt
"""
import sys

import torch

import overdrive

step = overdrive.load_step(sys.argv[1])
missing, unexpected = step.load_state(sys.argv[2])
print(f"{len(step.named_tensors())} tensors, {len(missing)} missing, {len(unexpected)} unexpected")

model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(16, 32, 3), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Flatten(), torch.nn.Linear(128, 10))
state = torch.load(sys.argv[2])
model.load_state_dict({name: state[name] for name in model.state_dict()})
model.eval()
images = torch.rand(50, 1, 8, 8)
assert torch.equal(model(images).argmax(1), step.call("predict", images))
print("the model has the predictions of the step")
