"""Lightning: a step of automatic optimization, from training_step to the update, as one captured step. What it logs are results."""
from __future__ import annotations

import dis
from typing import Any

from overdrive.integrations._lightning_step import Steps
from overdrive.step.optimizer_part import parts_of_plain

_HOOKS = ("on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step")
# Where the program has one of them, the step stays Lightning's.
_METHODS = (*_HOOKS, "backward", "optimizer_zero_grad", "configure_gradient_clipping", "optimizer_step", "log")


def captured(module: Any, **options: Any) -> Any:
    """The LightningModule, whose steps replay under a ``Trainer``. Call it once, before ``fit()``. ``options`` are those of
    :func:`overdrive.capture`.

    What is not covered keeps Lightning's own step: hooks around the backward, of the program or of a callback; another precision
    than 32 bits; other strategies than one CPU; accumulated gradients; and a ``training_step`` that reads ``batch_idx``.
    """
    own = type(module)
    base = next(one for one in own.__mro__ if one.__name__ == "LightningModule")
    if all(getattr(own, name) is getattr(base, name) for name in _METHODS) and _reads_the_batch_alone(own.training_step):
        module.__class__ = _class_for(own, base, Steps(module, base, _is_covered, options))
    return module


def _reads_the_batch_alone(function: Any) -> bool:
    """Whether nobody reads the numbers beside the batch. False where the code cannot be looked at."""
    code = getattr(function, "__code__", None)
    takes_any = 12  # *args, **kwargs
    if code is None or hasattr(function, "__wrapped__") or code.co_flags & takes_any:
        return False
    read = {name for one in dis.get_instructions(code) for name in (one.argval if isinstance(one.argval, tuple) else (one.argval,))}
    return not read.intersection(code.co_varnames[2:code.co_argcount])


def _class_for(own: Any, base: Any, steps: Steps) -> Any:
    """The module's class with another step. A copy of the module, and one that comes out of a file, is a plain one."""

    def optimizer_step(self: Any, epoch: int, number: int, optimizer: Any, closure: Any = None) -> None:
        if not steps.take(self, optimizer, closure):
            base.optimizer_step(self, epoch, number, optimizer, closure)

    def log(self: Any, name: str, value: Any, *given: Any, **named: Any) -> None:
        if not steps.keep_log(name, value, given, named):
            base.log(self, name, value, *given, **named)

    return type(own.__name__, (own,), {"optimizer_step": optimizer_step, "log": log,
                                       "__reduce_ex__": lambda self, protocol: parts_of_plain(self, own, protocol),
                                       "__module__": own.__module__, "__qualname__": own.__qualname__})


def _is_covered(trainer: Any) -> bool:
    """Whether Lightning's own step would do no more than the captured one."""
    plain = type(trainer.precision_plugin).__name__ == "Precision" and type(trainer.strategy).__name__ == "SingleDeviceStrategy"
    return plain and trainer.strategy.root_device.type == "cpu" and not any(
        name in vars(kind) for one in trainer.callbacks for kind in type(one).__mro__ if kind.__name__ != "Callback" for name in _HOOKS)
