"""Training states, written whole and checked by their hash, and weights worth keeping.

Those are the weights of the best and of the last validated epochs, their averages, and a running average.
"""

import contextlib
import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from asr.errors import UserError
from asr.files import make_folder, replacing
from asr.models.folder import load_weights, save_weights

FORMAT = 1  # of a state; one of another format is refused
DIGITS = 16  # of the hash, in a state's name
BLOCK = 1 << 20  # bytes


class Checkpoints:
    """A folder of training states, `state-000012-<the first digits of its content's SHA-256>.pt`, numbered as written.

    A state is a dict of tensors, numbers, texts, lists and dicts of them. It is written to a
    temporary name, synced and renamed, so what has its name is whole; what a disk does to it later
    shows in the hash.

    keep     number of the newest that stay
    log      is called with a word about damaged ones
    """

    def __init__(self, folder: Path, keep: int, log: Callable[[str], None]):
        self.folder, self.keep, self.log = make_folder(folder), keep, log
        self.damaged: set[Path] = set()  # known to be

    def save(self, state: dict) -> Path:
        """Write a state; of the older ones that aren't known to be damaged the `keep` - 1 newest stay."""
        for left in self.folder.glob(".partial-*"):  # by a kill
            left.unlink(missing_ok=True)
        number = max((int(path.name.split("-")[1]) for path in self.paths()), default=0) + 1
        hashed = hashlib.sha256()
        named = lambda: self.folder / f"state-{number:06d}-{hashed.hexdigest()[:DIGITS]}.pt"  # noqa: E731
        with replacing(self.folder / "state.pt", named) as temporary, open(temporary, "wb") as file:
            _save({"format": FORMAT, **state}, _Hashing(file, hashed))
        good = [path for path in self.paths() if path not in self.damaged]
        for old in {*self.damaged, *good[self.keep :]}:
            old.unlink(missing_ok=True)
        return named()

    def load(self) -> dict | None:
        """Read the newest state that isn't damaged; None if there is none at all.

        raises   UserError if all are damaged, one can't be read, or the newest good one is of
                 another format
        """
        paths = self.paths()
        for path in paths:
            if (state := self._read(path)) is not None:
                return state
        if paths:
            raise UserError(
                f"{self.folder}: every training state is damaged; remove them to begin this run anew"
            )
        return None

    def paths(self) -> list[Path]:
        """The states, newest first."""
        return sorted(self.folder.glob("state-*-*.pt"), reverse=True)

    def _read(self, path: Path) -> dict | None:
        """Read a state; None, and a word about it, if it is damaged."""
        try:
            if not path.stem.endswith(f"-{digest(path)}"):
                raise ValueError("it isn't what was written")
            state = torch.load(path, map_location="cpu", weights_only=True)
        except OSError as error:
            raise UserError(
                f"{path}: can't be read ({error.strerror}); fix that, or move it away"
            ) from None
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - torch raises many kinds
            self.damaged.add(path)
            self.log(f"{path}: damaged ({str(error).splitlines()[0]}), so it is passed over")
            return None
        if state["format"] != FORMAT:
            raise UserError(
                f"{path}: got format {state['format']}, expected {FORMAT}: another version has written it"
            )
        return state


class _Hashing:
    """A file to write to, and the hash of what it was given."""

    def __init__(self, file: IO[bytes], hashed):
        self.file, self.hashed = file, hashed
        self.error: OSError | None = None  # that ended the writing

    def write(self, data: bytes) -> int:
        self.hashed.update(data)
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


def _save(state: dict, into: Any) -> None:
    """Write a state into a _Hashing file; of a fault the system's error, where torch raises one of its own after it."""
    try:
        torch.save(state, into)
    except RuntimeError:
        if into.error:
            raise into.error from None
        raise


def digest(path: Path) -> str:
    """The first digits of the SHA-256 of a file's content."""
    hashed = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            hashed.update(block)
    return hashed.hexdigest()[:DIGITS]


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
