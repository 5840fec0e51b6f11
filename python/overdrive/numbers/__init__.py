"""Numbers that are others in each call of a captured function."""
