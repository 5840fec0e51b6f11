"""Hugging Face: a small GPT-2, in a loop of one's own."""
import torch
from recipe import Recipe
from transformers import GPT2Config, GPT2LMHeadModel

import overdrive

run = Recipe(__doc__)
config = GPT2Config(vocab_size=128, n_positions=32, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def step(text):
    optimizer.zero_grad()
    loss = model(input_ids=text, labels=text, use_cache=False).loss
    loss.backward()
    optimizer.step()


if run.captured:
    step = overdrive.capture(step, optimizer=optimizer)  # overdrive
elif run.compiled:
    model.compile()
step = run.timed(step)
for _ in range(1000):
    step(torch.randint(0, 128, (4, 32)))
run.done(model)
