"""New weights into a model in place, bucket by bucket, with every name accounted for."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from napmem_rl.errors import BackendError


class WeightLoader:
    """Takes the buckets of one update at a time. Tied weights count once: any one of their names will do."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._targets: dict[str, torch.Tensor] = dict(model.state_dict(keep_vars=True))
        self._received: set[int] = set()

    @torch.no_grad()
    def load(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Copy one bucket.

        Raises:
            BackendError: a name the model does not have, or another shape. Nothing of the bucket is then copied.
        """
        unknown = sorted(set(weights) - set(self._targets))
        if unknown:
            known = next(iter(self._targets))
            raise BackendError.of("weight update", f"{len(unknown)} names are not the model's", got=unknown[:4], expected=f"names such as {known}")
        for name, weight in weights.items():
            if weight.shape != self._targets[name].shape:
                raise BackendError.of(f"weight update, {name}", "has another shape", got=tuple(weight.shape), expected=str(tuple(self._targets[name].shape)))
        for name, weight in weights.items():
            self._targets[name].copy_(weight)
            self._received.add(self._targets[name].data_ptr())

    def finish(self) -> None:
        """Close an update.

        Raises:
            BackendError: some weight was not sent under any of its names.
        """
        missing = sorted(name for name, target in self._targets.items() if target.data_ptr() not in self._received)
        self.forget()
        if missing:
            raise BackendError.of("weight update", f"{len(missing)} weights were not sent", got=missing[:4], expected="every weight of the model")

    def forget(self) -> None:
        """Give up an update: the next bucket starts a new one."""
        self._received.clear()
