"""timm: a small vision transformer."""
import torch
from recipe import Recipe

import overdrive

# timm imports torchvision, whose wheel from pip is for CUDA: two names of its operators are all that a ViT wants of it.
for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
import timm  # noqa: E402

run = Recipe(__doc__)
model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=64, depth=2, num_heads=2, num_classes=10)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def step(images, labels):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


if run.captured:
    step = overdrive.capture(step, optimizer=optimizer)  # overdrive
elif run.compiled:
    model.compile()
step = run.timed(step)
for _ in range(1700):
    step(torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,)))
run.done(model)
