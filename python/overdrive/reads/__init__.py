"""What a call of a captured function depends on: the code that ran, the names in it, and the values that these lead to."""
