"""Values of a program: where one is found, whether it is still the same, how it is taken apart and put back."""
