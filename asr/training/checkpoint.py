"""Checkpoints: the training state to continue from, the best weights, and their average."""

import json
import math
from pathlib import Path

import torch
from torch import nn

from asr.errors import UserError
from asr.files import make_folder, replacing, write_text
from asr.models.folder import load_weights, save_weights


class Checkpoints:
    """The folder `checkpoints/` of a run.

    last.pt                       training state, replaced whole
    epoch-0012.safetensors        weights of the `keep` best validated epochs
    best.json                     their epochs and values, best first
    """

    def __init__(self, folder: Path, keep: int, higher_is_better: bool):
        self.folder, self.keep = make_folder(folder), keep
        self.sign = -1 if higher_is_better else 1
        self.last = self.folder / "last.pt"

    def save_state(self, state: dict) -> None:
        """Write the training state: a dict of tensors, numbers, texts, lists and dicts of them."""
        with replacing(self.last) as temporary:
            torch.save(state, temporary)

    def load_state(self) -> dict | None:
        """Read the training state, None if there's none yet.

        raises   UserError if the file is damaged
        """
        if not self.last.exists():
            return None
        try:
            return torch.load(self.last, map_location="cpu", weights_only=True)
        except Exception as error:  # noqa: BLE001 - torch raises many kinds
            reason = str(error).splitlines()[0]
            raise UserError(f"{self.last}: damaged ({reason}); remove it to begin this run anew") from None

    @property
    def best(self) -> list[tuple[int, float]]:
        """(epoch, value) of the kept weights, best first."""
        try:
            return [tuple(pair) for pair in json.loads((self.folder / "best.json").read_text())]
        except FileNotFoundError:
            return []

    def add(self, model: nn.Module, epoch: int, value: float) -> bool:
        """Keep an epoch's weights if it is among the best; True if it is the very best."""
        best = sorted([*(b for b in self.best if b[0] != epoch), (epoch, value)], key=self._rank)
        kept = best[: self.keep]
        if epoch in (e for e, _ in kept):
            save_weights(model, self._path(epoch))
        write_text(self.folder / "best.json", json.dumps(kept) + "\n")
        for dropped, _ in best[self.keep :]:
            self._path(dropped).unlink(missing_ok=True)
        return kept[0][0] == epoch

    def load_best(self, model: nn.Module) -> None:
        """Load the best epoch's weights into the model."""
        load_weights(model, self._path(self.best[0][0]))

    def load_average(self, model: nn.Module) -> None:
        """Load the mean of the kept weights into the model, summed in float64."""
        paths = [self._path(epoch) for epoch, _ in self.best]
        sums: dict[str, torch.Tensor] = {}
        for path in paths:
            load_weights(model, path)
            for name, tensor in model.state_dict().items():
                sums[name] = sums.get(name, 0) + tensor.double()
        own = model.state_dict()
        model.load_state_dict({n: (s / len(paths)).to(own[n].dtype) for n, s in sums.items()})

    def _rank(self, validated: tuple[int, float]) -> tuple:
        """Sort key, best first; of equals the earlier, and last what is no number."""
        epoch, value = validated
        return (1, 0.0, epoch) if math.isnan(value) else (0, self.sign * value, epoch)

    def _path(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:04d}.safetensors"
