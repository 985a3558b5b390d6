"""Calibrated confidences: how often words and texts of a raw confidence are right, as a model's folder says."""

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from asr.config import Settings, dump
from asr.config import load as load_settings
from asr.errors import UserError
from asr.files import write_text
from asr.logging import logger
from asr.model_files import CALIBRATION, DIGEST, WEIGHTS, read_header

NEAREST = 1e-6  # to 0 and 1: a confidence is read as no nearer
Slope = Annotated[float, Field(ge=0, le=1000)]


class BetaCurve(Settings):
    """Beta calibration: p → sigmoid(a ln p − b ln(1 − p) + c).

    Kull, Silva Filho and Flach, AISTATS 2017. It never falls, since a and b are 0 or more, so the
    order of confidences stays; a = b = 1 with c = 0 changes nothing, and a = b is Platt's.
    """

    a: Slope
    b: Slope
    c: Annotated[float, Field(ge=-1000, le=1000)]

    def __call__(self, confidence: float) -> float:
        """Map a confidence from 0 to 1 to another; NaN, which is unknown, stays."""
        p = min(max(confidence, NEAREST), 1 - NEAREST)  # NaN stays NaN
        logit = self.a * math.log(p) - self.b * math.log1p(-p) + self.c
        return (1 + math.tanh(logit / 2)) / 2


class Calibration(Settings):
    """The file `calibration.yaml` of a model folder.

    method      by which the curves were fitted
    weights     digest of the weights that they were fitted for
    search      options of the search that they were fitted for, as far as they change its scores
    words       of a word's confidence: the chance that it is right
    utterances  of an utterance's or segment's: the chance that its whole text is right
    """

    method: Literal["beta"] = "beta"
    weights: str
    search: dict[str, str | int | float | bool]
    words: BetaCurve
    utterances: BetaCurve

    def save(self, folder: str | Path) -> None:
        """Write it into a model folder, whole or not at all."""
        write_text(Path(folder) / CALIBRATION, dump(self))


def load(folder: str | Path) -> Calibration | None:
    """Read the calibration of a model folder; None if it has none, or one of other weights, which is a warning.

    raises   UserError if the file is damaged; names the key path and the fix
    """
    path = Path(folder) / CALIBRATION
    if not path.exists():
        return None
    try:
        found = load_settings(Calibration, path)
    except UserError as error:
        raise UserError(
            f"{error}; calibrate again (asr-decode --calibrate), or remove the file"
        ) from None
    if found.weights == digest(folder):
        return found
    logger.warning(
        f"{path}: is of other weights than {WEIGHTS}, so confidences are raw; calibrate again"
    )
    return None


def is_calibration(path: Path) -> bool:
    """Whether a file is a calibration, perhaps damaged: a line begins with one of its settings, or all are empty."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    empty = not any(line.strip("\0 ") for line in lines)  # as after a loss of power
    return empty or any(line.partition(":")[0] in Calibration.model_fields for line in lines)


def digest(folder: str | Path) -> str:
    """Digest of a model folder's weights, as their file says; "" if it doesn't."""
    return read_header(Path(folder) / WEIGHTS).metadata.get(DIGEST, "")
