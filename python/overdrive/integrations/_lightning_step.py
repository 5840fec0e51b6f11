"""The captured steps of one LightningModule: one for each structure of a batch."""
from __future__ import annotations

import numbers
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

from overdrive.step.api import capture


class Steps:
    def __init__(self, module: Any, base: Any, is_covered: Callable[[Any], bool], options: dict[str, Any]) -> None:
        self._module: Any = weakref.ref(module)
        self._base, self._is_covered, self._options = base, is_covered, options
        # Of one fit: its optimizer, whether the step is covered there, and the captured steps.
        self._optimizer: Any = None
        self._covered = False
        self._steps: dict[Any, Any] = {}
        # What a training_step under way logs; None elsewhere.
        self._logged: dict[Any, Any] | None = None

    def keep_log(self, name: str, value: Any, given: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Whether a call of log() is one of the captured training_step, and waits for its replay."""
        if self._logged is None:
            return False
        if isinstance(value, numbers.Number):
            value = torch.tensor(value, dtype=torch.get_default_dtype())  # as Lightning does
        self._logged[len(self._logged), name, given, tuple(named.items())] = value
        return True

    def take(self, module: Any, optimizer: Any, closure: Any) -> bool:
        """Makes the step, unless it is to be Lightning's."""
        trainer = module.trainer
        if module is not self._module() or trainer.accumulate_grad_batches != 1 or not hasattr(closure, "_step_fn"):
            return False
        if self._optimizer is not optimizer.optimizer:
            self._optimizer, self._covered = optimizer.optimizer, self._is_covered(trainer)
            self._steps.clear()
        batch, *others = closure._step_fn.args[0].values()
        tensors, form = _pytree.tree_flatten(batch)
        if not self._covered or closure._backward_fn is None or not all(isinstance(one, torch.Tensor) for one in tensors):
            return False
        result = sys.modules[type(closure).__module__].ClosureResult.from_training_step_output
        step = self._steps.get(str(form))
        if step is None:
            update = self._update_of(lambda *given: module.training_step(_pytree.tree_unflatten(given, form), *others), result, trainer)
            step = self._steps[str(form)] = capture(update, optimizer=optimizer.optimizer, **self._options)
        output, logged = step(*tensors)
        if changed := step.changes_of_its_own():
            step.give_up(f"training_step changes {changed}, which a replay would not; return it, or log it.")
        before, module._current_fx_name = module._current_fx_name, "training_step"
        for (_, name, given, named), value in logged.items():
            self._base.log(module, name, value, *given, **dict(named))
        module._current_fx_name = before
        progress = trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.zero_grad
        for note in (progress.increment_ready, progress.increment_started, progress.increment_completed):
            note()
        closure._result = result(output)
        return True

    def _update_of(self, training_step: Callable[..., Any], result: Callable[..., Any], trainer: Any) -> Callable[..., Any]:
        optimizer, most, by_value = self._optimizer, trainer.gradient_clip_val, trainer.gradient_clip_algorithm == "value"
        clip = torch.nn.utils.clip_grad_value_ if by_value else torch.nn.utils.clip_grad_norm_

        def update(*tensors: Any) -> Any:
            self._logged = {}
            try:
                output = training_step(*tensors)
            finally:
                logged, self._logged = self._logged, None
            loss = result(output).closure_loss
            optimizer.zero_grad()
            if loss is not None:
                loss.backward()
            if most:
                clip([one for group in optimizer.param_groups for one in group["params"]], most)
            optimizer.step()
            return output, logged

        return update
