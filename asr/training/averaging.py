"""Weights worth keeping: those of the best and of the last validated epochs, their averages, and a running average."""

import contextlib
import json
import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from asr.files import make_folder
from asr.models.folder import load_weights, save_weights
from asr.training.checkpoint import digest


class Validated:
    """A folder of validated weights: `epoch-0012.safetensors` and so on, of the `keep` best and the `keep` last epochs.

    table    epoch → value and digest of the file; the training state holds it, so that damage to
             either shows
    """

    def __init__(self, folder: Path, keep: int, higher_is_better: bool):
        self.folder, self.keep = make_folder(folder), keep
        self.sign = -1 if higher_is_better else 1
        self.table: dict[int, tuple[float, str]] = {}

    @property
    def values(self) -> dict[int, float]:
        """Epoch → value of the kept weights, in order of the epochs."""
        return {epoch: self.table[epoch][0] for epoch in sorted(self.table)}

    @property
    def state(self) -> list:
        """What a checkpoint keeps."""
        return [[epoch, *row] for epoch, row in sorted(self.table.items())]

    @state.setter
    def state(self, state: list) -> None:
        self.table = {epoch: (value, digest) for epoch, value, digest in state}

    def adopt(self) -> None:
        """Take in the weights that an earlier version of this toolkit listed in `validated.json`."""
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            listed = json.loads((self.folder / "validated.json").read_text(encoding="utf-8"))
            paths = {epoch: (value, self._path(epoch)) for epoch, value in listed}
            self.table = {
                epoch: (value, digest(path))
                for epoch, (value, path) in paths.items()
                if path.is_file()
            }

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
        save_weights(model, self._path(epoch))
        self.table = {e: row for e, row in self.table.items() if e < epoch}
        self.table[epoch] = (value, digest(self._path(epoch)))
        kept = {*self.best, *self.last}
        self.table = {e: row for e, row in self.table.items() if e in kept}
        for path in self.folder.glob("epoch-*.safetensors"):
            if int(path.stem.removeprefix("epoch-")) not in kept:
                path.unlink(missing_ok=True)
        return self.best[0] == epoch

    def drop_lost(self, log: Callable[[str], None]) -> None:
        """Forget the epochs whose file is missing, or isn't what was written; each is logged."""
        for epoch, (_, written) in sorted(self.table.items()):
            path = self._path(epoch)
            try:
                fault = "" if digest(path) == written else "damaged (it isn't what was written)"
            except OSError as error:
                fault = f"can't be read ({error.strerror})"
            if fault:
                del self.table[epoch]
                log(f"{path}: {fault}, so epoch {epoch} is left out of the averages")

    def load(self, model: nn.Module, epochs: list[int]) -> None:
        """Load the mean of some epochs' weights into the model, summed in float64 in the order of the epochs."""
        sums: dict[str, Tensor] = {}
        for epoch in sorted(epochs):
            load_weights(model, self._path(epoch))
            for name, tensor in model.state_dict().items():
                sums[name] = sums.get(name, 0) + tensor.double()
        own = model.state_dict()
        model.load_state_dict(
            {name: (total / len(epochs)).to(own[name].dtype) for name, total in sums.items()}
        )

    def _path(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:04d}.safetensors"


class RunningAverage:
    """An exponential average of the parameters: A ← A + (1 - decay) (W - A) after each step.

    At first the decay is (1 + step) / (10 + step), so that the initial weights are forgotten soon.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.parameters: list[Tensor] = list(model.parameters())
        self.averages = [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take the weights after optimizer step `step`, from 1 on."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.averages, self.parameters, 1 - decay)

    def load(self, averages: list[Tensor]) -> None:
        """Take up averages as they were saved."""
        torch._foreach_copy_(self.averages, averages)

    @torch.no_grad()
    def put(self) -> None:
        """Make the average the model's weights."""
        torch._foreach_copy_(self.parameters, self.averages)
