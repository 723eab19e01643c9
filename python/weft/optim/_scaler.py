# SPDX-License-Identifier: Apache-2.0
"""Loss scaling with the methods of torch.amp.GradScaler."""

import math

from weft import _array_api, _weft
from weft._context import no_grad


class GradScaler:
    """Scales losses so that gradients of float16 neither vanish nor overflow, as
    torch.amp.GradScaler: `scale(loss).backward()`, perhaps `unscale_(optimizer)` to clip,
    `step(optimizer)`, `update()`. Steps are skipped by the norm of all gradients of an optimizer,
    so that all ranks decide alike."""

    def __init__(
        self,
        device=None,
        init_scale=2.0**16,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
        enabled=True,
    ):
        del device  # gradients may be on any
        self._scaler = _weft.LossScaler(
            init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
        #: By optimizer: whether its gradients are finite, and whether they are unscaled.
        self._found = {}
        self._steps = set()

    def is_enabled(self):
        """Returns whether losses are scaled."""
        return self._scaler._options[3]

    def scale(self, outputs):
        """A tensor, or a list or tuple of them, times the scale."""
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(map(self.scale, outputs))
        return self._scaler.scale(outputs)

    def _norm_is_finite(self, optimizer):
        norm = _weft.gradient_norm(optimizer._parameters)
        return math.isfinite(float(norm))

    def unscale_(self, optimizer):
        """Divides the gradients by the scale, once before a step."""
        if not self.is_enabled():
            return
        if optimizer in self._found:
            raise RuntimeError(
                "unscale_: the gradients of this optimizer are unscaled since the last update, "
                "expected once"
            )
        self._found[optimizer] = self._norm_is_finite(optimizer)
        with no_grad():
            for parameter in optimizer._parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(1 / self.get_scale())

    def step(self, optimizer):
        """The optimizer's step with unscaled gradients, unless they are infinite or NaN."""
        if not self.is_enabled():
            return optimizer.step()
        if optimizer in self._steps:
            raise RuntimeError("step: this optimizer has had its step, expected update() before")
        self._steps.add(optimizer)
        if optimizer in self._found:
            return optimizer.step() if self._found[optimizer] else None
        self._found[optimizer] = self._norm_is_finite(optimizer)
        if self._found[optimizer]:
            optimizer.step(_array_api.asarray(1 / self.get_scale()))
        return None

    def update(self, new_scale=None):
        """Changes the scale after the steps of an iteration, or sets it."""
        if not self.is_enabled():
            return
        if new_scale is not None:
            self._scaler._set(float(new_scale), self._scaler.growth_tracker)
        elif not self._found:
            raise RuntimeError("update: no gradients were looked at, expected step() before")
        else:
            self._scaler.update(all(self._found.values()))
        self._found, self._steps = {}, set()

    def get_scale(self):
        """Returns the factor of the next loss."""
        return self._scaler.get_scale()

    def get_growth_factor(self):
        """Returns the factor by which the scale grows."""
        return self._scaler._options[0]

    def get_backoff_factor(self):
        """Returns the factor by which the scale shrinks after an overflow."""
        return self._scaler._options[1]

    def get_growth_interval(self):
        """Returns after how many steps without an overflow the scale grows."""
        return self._scaler._options[2]

    def state_dict(self):
        """The keys of PyTorch's; {} of a scaler that is not enabled."""
        if not self.is_enabled():
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self.get_growth_factor(),
            "backoff_factor": self.get_backoff_factor(),
            "growth_interval": self.get_growth_interval(),
            "_growth_tracker": self._scaler.growth_tracker,
        }

    def load_state_dict(self, state_dict):
        """Takes what state_dict() returned, or PyTorch's."""
        if not self.is_enabled():
            return
        names = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
        missing = [name for name in names if name not in state_dict]
        if missing:
            raise ValueError(
                f"load_state_dict: {missing[0]!r} is missing, expected a state of a GradScaler"
            )
        values = [state_dict[name] for name in names]
        self._scaler = _weft.LossScaler(float(values[0]), *values[1:4], True)
        self._scaler._set(float(values[0]), int(values[4]))
