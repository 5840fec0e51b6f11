"""C functions that a library calls and no row of the table has (_c_functions.py): the file that calls them, and why no tensor depends on more than
what has guards."""

CALLED_BY = {
    # Keys of its caches, made of keyword arguments that are numbers, flags and texts.
    "_pickle.dumps": ("gpytorch/utils/memoize.py",),
    # The line of a warning.
    "sys._getframe": ("pyro/util.py",),
}
