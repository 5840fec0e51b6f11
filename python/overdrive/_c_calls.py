"""C functions of libraries, and those that a library calls, which no row of the table has (_c_functions.py)."""

# Of tensordict: forms of keys, which are texts and tuples of texts.
PURE = frozenset(f"tensordict._C.{name}" for name in ("unravel_key", "unravel_keys", "unravel_key_list", "_unravel_key_to_tuple"))
# The file that calls them, and why no tensor depends on more than what has guards.
CALLED_BY = {
    # Keys of its caches, made of keyword arguments that are numbers, flags and texts.
    "_pickle.dumps": ("gpytorch/utils/memoize.py", "linear_operator/utils/memoize.py"),
    # The line of a warning.
    "sys._getframe": ("pyro/util.py",),
}
