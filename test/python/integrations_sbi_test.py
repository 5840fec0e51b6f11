"""overdrive.integrations.sbi: epochs with the bits of the library's own. A stand-in has what the adapter uses of an inference."""
import pytest
import torch
from torch import nn

import overdrive
from overdrive.step.reasons import steps as every_step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))

    def loss(self, x):
        return self.layers(x).sin().square().sum(1)


class Inference:
    """As sbi's trainers: `train()` makes net and optimizer, and every epoch goes through the loader."""

    def __init__(self, asks):
        self._asks, self.sums = asks, []

    def _get_losses(self, batch, loss_args):
        losses = self._neural_net.loss(batch[0]) * loss_args["factor"]
        if not torch.isfinite(losses).all():
            raise ValueError("NaN/Inf present in the loss.")
        if self._asks:
            self.sums.append(losses.sum().item())
        return losses

    def _train_epoch(self, train_loader, clip_max_norm, loss_args):
        total = 0
        for batch in train_loader:
            self.optimizer.zero_grad()
            losses = self._get_losses(batch=batch, loss_args=loss_args)
            total += losses.sum().item()
            torch.mean(losses).backward()
            if clip_max_norm is not None:
                nn.utils.clip_grad_norm_(self._neural_net.parameters(), max_norm=clip_max_norm)
            self.optimizer.step()
        return total / (len(train_loader) * train_loader.batch_size)

    def train(self, epochs, clip_max_norm, loss_args):
        torch.manual_seed(0)
        self._neural_net = Net()
        self.optimizer = torch.optim.Adam(self._neural_net.parameters(), lr=1e-2)
        data = torch.utils.data.TensorDataset(torch.randn(36, 3))
        loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
        averages = []
        for _ in range(epochs):
            averages.append(self._train_epoch(loader, clip_max_norm, loss_args))
            with torch.no_grad():
                averages.append(self._get_losses(batch=next(iter(loader)), loss_args=loss_args).sum().item())
        return averages, [parameter.detach().clone() for parameter in self._neural_net.parameters()]


def parts_of(run):
    """What `run()` returns, and the captured steps and parts that it makes, by what they stand for."""
    before = set(every_step)
    result, made = run(), {}
    for step in set(every_step) - before:
        made.setdefault(step.title().partition(" (")[0].rpartition(".")[2], []).append(step)
    return result, made


@pytest.mark.parametrize("clip_max_norm", [None, 0.1])
def test_a_batch_is_one_step(clip_max_norm):
    captured, plain = overdrive.integrations.sbi.captured(Inference(False)), Inference(False)
    for factor in (1.0, 2.0):  # another training makes another net
        ours, made = parts_of(lambda factor=factor: captured.train(12, clip_max_norm, {"factor": factor}))
        theirs = plain.train(12, clip_max_norm, {"factor": factor})
        assert ours[0] == theirs[0] and all(map(torch.equal, ours[1], theirs[1]))
        assert sorted(made) == ["loss", "update"] and [step.stats()["replayed"] > 30 for step in made["update"]] == [True], overdrive.explain()


def test_a_batch_that_cannot_be_one_step_is_replayed_in_parts():
    captured, plain = overdrive.integrations.sbi.captured(Inference(True)), Inference(True)
    ours, made = parts_of(lambda: captured.train(12, 5.0, {"factor": 1.0}))
    theirs = plain.train(12, 5.0, {"factor": 1.0})
    assert ours[0] == theirs[0] and all(map(torch.equal, ours[1], theirs[1])) and captured.sums == plain.sums
    assert sorted(made) == ["loss", "step() of Adam"]  # the step is gone
    assert [step.stats()["replayed"] > 20 for steps in made.values() for step in steps] == [True, True], overdrive.explain()
