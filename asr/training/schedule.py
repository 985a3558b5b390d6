"""Learning rate over time: the factor on the optimiser's learning rate."""

import math
from typing import Literal

from pydantic import Field

from asr.config import Settings


class NoamSettings(Settings):
    """The paper's schedule (section 5.3): linear warm-up, then the inverse square root; `lr` is its peak."""

    kind: Literal["noam"]
    warmup: int = Field(gt=0)  # optimiser steps

    def factor(self, step: int, progress: float) -> float:
        """1 at step = warmup; the paper's d_model^-0.5 · warmup^-0.5 is the lr to give for its curve."""
        return min(step / self.warmup, math.sqrt(self.warmup / step))


class CosineSettings(Settings):
    """Linear warm-up, then half a cosine down to `floor` at the end of the training."""

    kind: Literal["cosine"]
    warmup: int = Field(gt=0)  # optimiser steps
    floor: float = Field(0.01, ge=0.0, le=1.0)

    def factor(self, step: int, progress: float) -> float:
        """The warm-up caps the cosine."""
        return min(step / self.warmup, self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2)


class ConstantSettings(Settings):
    """Linear warm-up, then constant."""

    kind: Literal["constant"]
    warmup: int = Field(gt=0)  # optimiser steps

    def factor(self, step: int, progress: float) -> float:
        """1 from step = warmup on."""
        return min(step / self.warmup, 1.0)
