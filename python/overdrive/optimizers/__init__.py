"""PyTorch's optimizers in a captured step."""
