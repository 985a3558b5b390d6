"""Weights worth keeping: those of the best and of the last validated epochs, their averages, and a running average."""

import json
import math
from pathlib import Path

import torch
from torch import Tensor, nn

from asr.files import make_folder, write_text
from asr.models.folder import load_weights, save_weights


class Validated:
    """A folder of validated weights.

    epoch-0012.safetensors   weights of the `keep` best and the `keep` last validated epochs
    validated.json           their epochs and values
    """

    def __init__(self, folder: Path, keep: int, higher_is_better: bool):
        self.folder, self.keep = make_folder(folder), keep
        self.sign = -1 if higher_is_better else 1

    @property
    def values(self) -> dict[int, float]:
        """Epoch → value of the kept weights, in order of the epochs."""
        try:
            return dict(map(tuple, json.loads((self.folder / "validated.json").read_text())))
        except FileNotFoundError:
            return {}

    @property
    def best(self) -> list[int]:
        """The best epochs, the very best first; of equals the earlier, and last what is no number."""
        values = self.values
        return sorted(values, key=lambda epoch: (*self.rank(values[epoch]), epoch))[: self.keep]

    @property
    def last(self) -> list[int]:
        """The last epochs, in order."""
        return sorted(self.values)[-self.keep :]

    def rank(self, value: float) -> tuple:
        """Sort key of a value, the best first."""
        return (1, 0.0) if math.isnan(value) else (0, self.sign * value)

    def add(self, model: nn.Module, epoch: int, value: float) -> bool:
        """Take an epoch's weights in, drop those that are neither among the best nor the last; True if the very best.

        What is known of later epochs is forgotten: a continued run comes to them again.
        """
        values = {e: v for e, v in self.values.items() if e < epoch} | {epoch: value}
        save_weights(model, self._path(epoch))
        self._write(values)
        kept = {*self.best, *self.last}
        self._write({e: v for e, v in values.items() if e in kept})
        for path in self.folder.glob("epoch-*.safetensors"):
            if int(path.stem.removeprefix("epoch-")) not in kept:
                path.unlink(missing_ok=True)
        return self.best[0] == epoch

    def load(self, model: nn.Module, epochs: list[int]) -> None:
        """Load the mean of some epochs' weights into the model, summed in float64 in the order of the epochs."""
        sums: dict[str, Tensor] = {}
        for epoch in sorted(epochs):
            load_weights(model, self._path(epoch))
            for name, tensor in model.state_dict().items():
                sums[name] = sums.get(name, 0) + tensor.double()
        own = model.state_dict()
        model.load_state_dict({name: (total / len(epochs)).to(own[name].dtype) for name, total in sums.items()})

    def _write(self, values: dict[int, float]) -> None:
        write_text(self.folder / "validated.json", json.dumps(sorted(values.items())) + "\n")

    def _path(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:04d}.safetensors"


class RunningAverage:
    """An exponential average of the parameters: A ← A + (1 - decay) (W - A) after each step.

    At first the decay is (1 + step) / (10 + step), so that the initial weights are forgotten soon.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.parameters = list(model.parameters())
        self.averages = [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take the weights after optimiser step `step`, from 1 on."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.averages, self.parameters, 1 - decay)

    def load(self, averages: list[Tensor]) -> None:
        """Take up averages as they were saved."""
        torch._foreach_copy_(self.averages, averages)

    @torch.no_grad()
    def put(self) -> None:
        """Make the average the model's weights."""
        torch._foreach_copy_(self.parameters, self.averages)
