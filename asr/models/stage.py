"""How far a training is, for what begins late in it or ends early."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """Where in a training a batch is computed: late, unless said otherwise.

    epoch   epochs that are done
    step    of the optimizer, from 1
    """

    epoch: float = math.inf
    step: float = math.inf


LATE = Stage()
