"""What a call of a captured function leaves behind, beside what it returns."""
