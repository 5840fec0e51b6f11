"""overdrive.integrations.lightning: the fit of a LightningModule with the bits of Lightning's own loop."""
import copy
import logging
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import overdrive
from overdrive.step.reasons import steps

lightning = pytest.importorskip("lightning", reason="Lightning is not installed: tools/setup.sh recipes, and run this with .deps/recipes/bin/python")
from overdrive.integrations.lightning import captured  # noqa: E402

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Regressor(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("loss", loss)
        self.log_dict({"twice": loss * 2, "seven": 7.0})
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), lr=1e-2)


class ReadsTheIndex(Regressor):
    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx) * (1 if batch_idx % 2 else 2)


class HasAHook(Regressor):
    def on_after_backward(self):
        self.net[0].weight.grad.mul_(0.5)


class ReturnsADict(Regressor):
    def training_step(self, batch, batch_idx):
        return {"loss": super().training_step(batch, None), "seen": batch[0].sum()}


class Scheduled(Regressor):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Halves(lightning.Callback):
    def on_after_backward(self, trainer, module):
        module.net[0].weight.grad.mul_(0.5)


def fit(module, callbacks=(), **options):
    """What the module has after the fit, what it has logged, and how many of its steps were replayed."""
    torch.manual_seed(5)
    inputs = torch.randn(100, 6)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True).sin()), batch_size=8, shuffle=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                    enable_model_summary=False, callbacks=list(callbacks), **options)
        trainer.fit(module, loader)
    metrics = {name: value.clone() for name, value in trainer.callback_metrics.items()}
    return [parameter.detach().clone() for parameter in module.parameters()], metrics, trainer.global_step


def replayed(known):
    """Of the captured steps that there are, but for those that were known."""
    return sum(step.stats()["replayed"] for step in steps if step not in known)


def same(ours, eager):
    assert all(map(torch.equal, ours[0], eager[0]))
    assert ours[1].keys() == eager[1].keys() and all(torch.equal(ours[1][name], eager[1][name]) for name in eager[1])
    assert ours[2] == eager[2]


@pytest.mark.parametrize("kind, options", [
    (Regressor, {}), (Regressor, {"gradient_clip_val": 0.1}), (Regressor, {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}),
    (ReturnsADict, {}), (Scheduled, {})])
def test_a_fit_has_the_bits_of_lightnings(kind, options):
    eager, module = fit(kind(), **options), captured(kind())
    known = set(steps)
    same(fit(module, **options), eager)
    # Three epochs of twelve batches and a smaller one, and a few calls of each size run Python.
    assert replayed(known) >= 30, overdrive.explain()
    assert type(module).__name__ == kind.__name__


@pytest.mark.parametrize("kind, callbacks, options", [
    (ReadsTheIndex, (), {}), (HasAHook, (), {}), (Regressor, (Halves(),), {}), (Regressor, (), {"accumulate_grad_batches": 2})])
def test_what_is_not_covered_keeps_lightnings_step(kind, callbacks, options):
    eager, module = fit(kind(), callbacks, **options), captured(kind())
    known = set(steps)
    same(fit(module, callbacks, **options), eager)
    assert replayed(known) == 0


def test_a_second_fit_and_another_learning_rate():
    def twice(module):
        first = fit(module)
        module.net[0].weight.data.mul_(0.5)
        return first, fit(module)

    for ours, eager in zip(twice(captured(Regressor())), twice(Regressor())):
        same(ours, eager)


def test_a_copy_and_one_out_of_a_file_are_plain():
    module = captured(Regressor())
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(other) is Regressor
        assert all(map(torch.equal, module.state_dict().values(), other.state_dict().values()))
