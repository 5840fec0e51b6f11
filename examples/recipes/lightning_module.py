"""Lightning: a LightningModule under its Trainer."""
import logging

import lightning
import torch
from recipe import Recipe
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import overdrive

run = Recipe(__doc__)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Regressor(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        if run.compiled:
            self.net = torch.compile(self.net)

    def training_step(self, batch, _):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.net(inputs), targets)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), lr=1e-3)


inputs = torch.randn(2048, 16)
loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True).sin()), batch_size=32, shuffle=True)
model = Regressor()
if run.captured:
    overdrive.integrations.lightning.captured(model)  # overdrive
trainer = lightning.Trainer(max_epochs=120, accelerator="cpu", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
loop = trainer.fit_loop.epoch_loop.automatic_optimization
loop.run = run.timed(loop.run)
trainer.fit(model, loader)
run.done(model, trainer.callback_metrics["loss"])
