"""Running sums of a training's steps, and their means."""

import math
from dataclasses import dataclass, field


@dataclass
class Running:
    """Sums over steps; plain numbers, so that a checkpoint holds them to the bit.

    sums     of the loss, by name, "correct" and "tokens" among them; of steps where all of them are finite
    norm     of the gradients, over `steps`: those where it is finite
    amount   in the unit of throughput
    wait     seconds of waiting for data, of `seconds` in all
    """

    sums: dict[str, float] = field(default_factory=dict)
    norm: float = 0.0
    steps: int = 0
    amount: float = 0.0
    wait: float = 0.0
    seconds: float = 0.0

    def add(self, sums: dict[str, float], norm: float, amount: float, wait: float, seconds: float) -> None:
        """Add a step."""
        if all(map(math.isfinite, sums.values())):
            for name, value in sums.items():
                self.sums[name] = self.sums.get(name, 0.0) + value
        if math.isfinite(norm):
            self.norm, self.steps = self.norm + norm, self.steps + 1
        self.amount, self.wait, self.seconds = self.amount + amount, self.wait + wait, self.seconds + seconds

    def losses(self) -> dict[str, float]:
        """Means per target token of the loss's sums, and `accuracy`, the share of targets that were right."""
        means = {name: value / max(self.sums["tokens"], 1) for name, value in self.sums.items() if name != "tokens"}
        if "correct" in means:
            means["accuracy"] = means.pop("correct")
        return means

    def gradient_norm(self) -> float:
        """Mean over the steps where it is finite; NaN if there's none."""
        return self.norm / self.steps if self.steps else math.nan

    def times(self, unit: str) -> dict[str, float]:
        """Throughput, and the share of time spent waiting for data; nothing before a second has been counted."""
        if not self.seconds:
            return {}
        return {f"{unit}_per_second": self.amount / self.seconds, "wait": self.wait / self.seconds}
