"""C functions of libraries, and functions of C and of Python's library that a library calls, which no row of the tables has."""

# Of tensordict: forms of keys, which are texts and tuples of texts.
PURE = frozenset(f"tensordict._C.{name}" for name in ("unravel_key", "unravel_keys", "unravel_key_list", "_unravel_key_to_tuple"))
# The file that calls them, and why no tensor depends on more than what has guards.
CALLED_BY = {
    # Keys of its caches, made of keyword arguments that are numbers, flags and texts.
    "_pickle.dumps": ("gpytorch/utils/memoize.py", "linear_operator/utils/memoize.py"),
    # Whether an array is printed inside of itself.
    "_thread.get_ident": ("numpy/_core/arrayprint.py", "numpy/core/arrayprint.py"),
    # The line of a warning.
    "sys._getframe": ("pyro/util.py",),
}
