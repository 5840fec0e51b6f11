"""sbi: neural posterior estimation with a masked autoregressive flow."""
import torch
from recipe import Recipe
from sbi.inference import NPE
from sbi.utils import BoxUniform

import overdrive

run = Recipe(__doc__)
prior = BoxUniform(-2 * torch.ones(3), 2 * torch.ones(3))
theta = prior.sample((2500,))
inference = NPE(prior, density_estimator="maf", show_progress_bars=False)
inference.append_simulations(theta, theta + 0.1 * torch.randn_like(theta))
if run.captured:
    overdrive.integrations.sbi.captured(inference)  # overdrive
inference._train_epoch = run.timed(inference._train_epoch)
estimator = inference.train(max_num_epochs=30, training_batch_size=50)
run.done(estimator)
