"""Speech as Silero's network finds it (the optional package silero-vad), in a stream of any length."""

import importlib
import warnings
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from asr.errors import UserError

CHUNK = 0.032  # seconds, of which the network tells the probability of speech
CERTAIN, PERHAPS = 0.5, 0.35  # a stretch of speech reaches the one, and stays above the other


class Silero:
    """The network, and what it remembers of a recording; one recording at a time.

    rate     of the model's waveforms, Hz
    raises   UserError that names the fix if the package isn't installed
    """

    def __init__(self, rate: int):
        self.rate = 8000 if rate == 8000 else 16_000  # Hz; it knows no others
        self.chunk = round(CHUNK * self.rate)  # samples
        self.network = _network()
        self.network.reset_states()

    def __call__(self, waveform: np.ndarray) -> np.ndarray:
        """Give the next chunks of a recording their probabilities, (samples,) → (chunks,).

        Only the last part of a recording may end within a chunk.
        """
        import torch

        padded = np.pad(waveform, (0, -len(waveform) % self.chunk))
        with torch.no_grad():
            chunks = torch.from_numpy(padded).view(-1, 1, self.chunk)
            return np.array([self.network(chunk, self.rate).item() for chunk in chunks])


def speech(probabilities: np.ndarray, frames: int, hop: float) -> np.ndarray:
    """Tell which frames of `hop` seconds are speech, (chunks,) → (frames,) bool."""
    edges = np.flatnonzero(np.diff(probabilities >= PERHAPS, prepend=False, append=False))
    found = np.zeros(len(probabilities), bool)
    for first, end in edges.reshape(-1, 2):
        found[first:end] = probabilities[first:end].max() >= CERTAIN
    chunks = ((np.arange(frames) + 0.5) * hop / CHUNK).astype(int)  # at the frames' middles
    return found[np.minimum(chunks, len(found) - 1)]


def check() -> None:
    """See that the package can be imported.

    raises   UserError that names the fix
    """
    _package()


@cache
def _network() -> Any:
    with warnings.catch_warnings():  # PyTorch would have TorchScript's files converted
        warnings.simplefilter("ignore")
        return _package().load_silero_vad()


def _package() -> ModuleType:
    import torch

    threads = torch.get_num_threads()
    try:
        return importlib.import_module("silero_vad")
    except (ImportError, OSError) as error:
        raise UserError(
            f"silero-vad can't be imported ({error}); pip install silero-vad", argument="vad"
        ) from None
    finally:
        torch.set_num_threads(threads)  # its import allows one alone
