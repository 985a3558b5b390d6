"""Tables of cases, tiny models, and how closely their results agree."""

import pytest
import torch
import yaml
from torch.testing import assert_close

from asr.models.hybrid import Hybrid, HybridSettings

PART = {"kind": "transformer", "d_model": 12, "layers": 2, "heads": 3, "ff": 16, "dropout": 0.1}
VOCABULARY, FEATURES = 9, 20
each, slow = pytest.mark.parametrize, pytest.mark.slow


def options(text: str) -> dict:
    """Read settings as one writes them: `kernel: 5, chunk: {frames: 2, left: 1}`."""
    return yaml.safe_load(f"{{{text}}}")


def rows(text: str) -> list[list[str]]:
    """Read a table: one row per line, ` | ` between cells; spaces around them are for the eye alone."""
    lines = (line.replace("\\|", "\0") for line in text.strip().splitlines())
    return [[cell.strip().replace("\0", "|") for cell in line.split(" | ")] for line in lines]


def noise(*shape: int, seed: int | None = None) -> torch.Tensor:
    """Draw from the normal distribution, in float64."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.double, generator=generator)


def near(got, expected, atol: float = 0.0, **more) -> None:
    """Compare by the absolute difference; by default, to the bit."""
    assert_close(got, expected, rtol=0, atol=atol, **more)


def sizes(text: str = "") -> HybridSettings:
    """Settings of a tiny model; what is said of `both` is of the encoder and of the decoder."""
    given = options(text)
    both = PART | given.pop("both", {})
    encoder = {"channels": 4} | both | given.pop("encoder", {})
    decoder = both | given.pop("decoder", {})
    return HybridSettings(kind="hybrid", encoder=encoder, decoder=decoder, **given)


def hybrid(text: str = "", features: int = FEATURES, vocabulary: int = VOCABULARY) -> Hybrid:
    torch.manual_seed(1)
    return Hybrid(sizes(text), features, vocabulary)


class Malicious:
    """A pickle that would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")
