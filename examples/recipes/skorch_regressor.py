"""skorch: a regressor of scikit-learn's kind."""
import numpy as np
import torch
from recipe import Recipe
from skorch import NeuralNetRegressor
from torch import nn

import overdrive

run = Recipe(__doc__)
rng = np.random.default_rng(0)
inputs = rng.standard_normal((2048, 16)).astype("float32")
targets = np.sin(inputs.sum(1, keepdims=True)).astype("float32")


def layers():
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


net = NeuralNetRegressor(layers, optimizer=torch.optim.Adam, max_epochs=190, batch_size=32, train_split=None, verbose=0,
                         compile=run.compiled)
net.initialize()
if run.captured:
    overdrive.captured(net.module_)  # overdrive
    overdrive.captured(net.optimizer_)  # overdrive
net.train_step = run.timed(net.train_step)
net.partial_fit(inputs, targets)
run.done(net.module_)
