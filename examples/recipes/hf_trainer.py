"""Hugging Face: GPT-2 under the Trainer."""
import tempfile

import torch
from recipe import Recipe
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import overdrive

run = Recipe(__doc__)
config = GPT2Config(vocab_size=128, n_positions=32, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
texts = torch.randint(0, 128, (4400, 32))
data = [{"input_ids": text, "labels": text} for text in texts]
if run.captured:
    overdrive.captured(model)  # overdrive
elif run.compiled:
    model.compile()
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, per_device_train_batch_size=4, num_train_epochs=1, save_strategy="no", report_to=[],
                                  use_cpu=True, disable_tqdm=True, logging_strategy="no")
    trainer = Trainer(model, arguments, train_dataset=data)
    trainer.create_optimizer()
    if run.captured:
        overdrive.captured(trainer.optimizer)  # overdrive
    trainer.training_step = run.timed(trainer.training_step)
    trainer.train()
run.done(model)
