"""Hugging Face: a small BERT that classifies, in a loop of one's own."""
import torch
from recipe import Recipe
from transformers import BertConfig, BertForSequenceClassification

import overdrive

run = Recipe(__doc__)
config = BertConfig(vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
                    max_position_embeddings=32, problem_type="single_label_classification")
model = BertForSequenceClassification(config)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def step(text, mask, labels):
    optimizer.zero_grad()
    loss = model(input_ids=text, attention_mask=mask, labels=labels).loss
    loss.backward()
    optimizer.step()


if run.captured:
    step = overdrive.capture(step, optimizer=optimizer)  # overdrive
elif run.compiled:
    model.compile()
step = run.timed(step)
for _ in range(800):
    mask = (torch.arange(32) < torch.randint(8, 33, (8, 1))).long()
    step(torch.randint(0, 128, (8, 32)), mask, torch.randint(0, 2, (8,)))
run.done(model)
