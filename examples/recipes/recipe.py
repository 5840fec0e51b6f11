"""What the recipes share: the command line, the clock of the training part, and the digest of what was trained."""
import argparse
import hashlib
import json
import statistics
import time
import warnings

import torch
import torch._dynamo  # noqa: F401 - PyTorch imports it with the first optimizer, which Pyro makes in the first step

import overdrive

MODES = ("stock", "switched", "captured", "compiled")


class Recipe:
    """One run of a recipe. Lines that end in ``# overdrive`` are those that a user adds to a program."""

    def __init__(self, description):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--mode", choices=MODES, default="captured")
        parser.add_argument("--explain", action="store_true", help="print overdrive.explain() at the end")
        self._arguments = parser.parse_args()
        self.captured, self.compiled = (self._arguments.mode == mode for mode in ("captured", "compiled"))
        self._cpu, self._wall = [], []
        torch.manual_seed(0)
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        if self._arguments.mode in ("switched", "captured"):
            overdrive.install()

    def timed(self, function):
        """The function, each of its calls on the clock."""

        def call(*inputs, **keywords):
            cpu, wall = time.process_time(), time.perf_counter()
            try:
                return function(*inputs, **keywords)
            finally:
                self._cpu.append(time.process_time() - cpu)
                self._wall.append(time.perf_counter() - wall)

        return call

    def done(self, *trained):
        """Prints one line of JSON. `trained`: modules, and tensors."""
        tensors = []
        for one in trained:
            tensors += one.state_dict().values() if isinstance(one, torch.nn.Module) else [one]
        digest = hashlib.sha256()
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        first, late = max(1, min(20, len(self._cpu) // 4)), len(self._cpu) // 2
        step = statistics.median(self._cpu[late:])
        # A compiler works in processes and threads of its own.
        times = self._wall if self.compiled else self._cpu
        warm_up = sum(times[:first]) - first * statistics.median(times[late:])
        if self._arguments.explain:
            print(overdrive.explain())
        print(json.dumps({"mode": self._arguments.mode, "digest": digest.hexdigest()[:16], "steps": len(self._cpu),
                          "step": step, "part": sum(self._cpu), "whole": time.process_time(),
                          "warm_up": warm_up}))
