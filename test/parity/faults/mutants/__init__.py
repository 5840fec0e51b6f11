"""The seeded mistakes of `make mutate`: those of the suite, and one table for each top folder."""
from mutants import checkpoint, engine, forward_ad, hooks, inspect, replay
from table import SUITE

ALL = (SUITE + engine.ENGINE + hooks.HOOKS + forward_ad.FORWARD_AD + checkpoint.CHECKPOINT + replay.REPLAY +
       inspect.INSPECT)
