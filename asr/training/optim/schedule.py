"""Learning rate over time: the factor on the optimizer's learning rate."""

import math
from typing import Literal

from pydantic import Field

from asr.config import Settings

FLOOR = 0.01  # share of the learning rate that a cosine ends with


class NoamSettings(Settings):
    """The paper's schedule (section 5.3): linear warm-up, then the inverse square root; `lr` is its peak."""

    kind: Literal["noam"]
    warmup: int = Field(gt=0)  # optimizer steps

    def factor(self, step: int, progress: float) -> float:
        """1 at step = warmup; the paper's d_model^-0.5 · warmup^-0.5 is the lr to give for its curve."""
        return min(step / self.warmup, math.sqrt(self.warmup / step))


class CosineSettings(Settings):
    """Linear warm-up, then half a cosine down to FLOOR of the rate at the end of the training."""

    kind: Literal["cosine"]
    warmup: int = Field(gt=0)  # optimizer steps

    def factor(self, step: int, progress: float) -> float:
        """The warm-up caps the cosine."""
        return min(
            step / self.warmup,
            FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * progress)) / 2,
        )


class WSDSettings(Settings):
    """Linear warm-up, a stable rate, and a decay to 0 in the last share of the training (Hu et al. 2024).

    The rate before the decay doesn't depend on the training's length.
    """

    kind: Literal["wsd"]
    warmup: int = Field(gt=0)  # optimizer steps
    decay: float = Field(0.2, gt=0.0, le=1.0)  # share of the training
    shape: Literal["linear", "1-sqrt"] = "1-sqrt"  # the better one of Hägele et al. (2024)

    def factor(self, step: int, progress: float) -> float:
        """The warm-up caps the decay."""
        decayed = max(0.0, 1 - (1 - progress) / self.decay)  # share of the decay that is over
        fall = decayed if self.shape == "linear" else math.sqrt(decayed)
        return min(step / self.warmup, 1 - fall)


class ConstantSettings(Settings):
    """Linear warm-up, then constant."""

    kind: Literal["constant"]
    warmup: int = Field(gt=0)  # optimizer steps

    def factor(self, step: int, progress: float) -> float:
        """1 from step = warmup on."""
        return min(step / self.warmup, 1.0)
