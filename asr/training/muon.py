"""Muon, whose work the processes share."""

from collections.abc import Sequence

import torch
from torch import Tensor

from asr.training.processes import Group

COEFFICIENTS = 3.4445, -4.7750, 2.0315  # Jordan et al. 2024: the polynomial that is steepest at zero
ITERATIONS = 5
TINY = 1e-7  # of a norm, which a matrix of zeros may be divided by


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024): a matrix's step is its momentum with all singular values made alike.

    Times 0.2 √max(rows, columns) it is as large as AdamW's (Liu et al. 2025). Weights and states are those of
    `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")` to the bit; but there each process makes all matrices' steps, and
    a matrix without gradient, of a layer that was left out, takes a whole one, however old its momentum is: here it
    only decays.

    parameters  matrices, or groups of them
    group       the processes, which have the same gradients when they call `step`
    """

    def __init__(self, parameters: Sequence, lr: float, momentum: float, weight_decay: float, group: Group):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.group = group

    @torch.no_grad()
    def step(self) -> None:
        """Change the weights."""
        for settings in self.param_groups:
            matrices, lr = settings["params"], settings["lr"]
            for matrix, direction in zip(matrices, self._directions(matrices, settings["momentum"]), strict=True):
                matrix.mul_(1 - lr * settings["weight_decay"])
                matrix.add_(direction, alpha=-lr * 0.2 * max(matrix.shape) ** 0.5)

    def _directions(self, matrices: Sequence[Tensor], momentum: float) -> list[Tensor]:
        """Make those of this process' share, the largest first; the others' come by a sum, in which they are 0."""
        sizes = [matrix.numel() for matrix in matrices]
        together = torch.zeros(sum(sizes), dtype=torch.bfloat16, device=matrices[0].device)
        directions = [part.view(m.shape) for m, part in zip(matrices, together.split(sizes), strict=True)]
        for place, n in enumerate(sorted(range(len(sizes)), key=lambda n: -sizes[n])):
            kept, gradient = self._momentum(matrices[n], momentum), matrices[n].grad
            if place % self.group.size == self.group.rank:
                ahead = gradient.lerp(kept, momentum)  # Nesterov's: by one gradient
                directions[n].copy_(orthogonal(ahead)).mul_(gradient.any())
        self.group.add(together)
        return directions

    def _momentum(self, matrix: Tensor, momentum: float) -> Tensor:
        """Add the gradient to the momentum, which every process keeps whole, and return it."""
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix.grad)
        return state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)


def orthogonal(matrix: Tensor) -> Tensor:
    """Make the singular values alike, 0.7 to 1.2, by Newton and Schulz's iteration in bf16 → of the same shape."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    X = matrix.bfloat16().T if tall else matrix.bfloat16()
    X = X / X.norm().clamp(min=TINY)
    for _ in range(ITERATIONS):
        A = X @ X.T
        X = torch.addmm(X, torch.addmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return X.T if tall else X
