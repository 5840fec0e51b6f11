"""What a program uses beside captured steps: the engine's switch, saved tensors, checkpoints, and looks at backwards and steps."""
