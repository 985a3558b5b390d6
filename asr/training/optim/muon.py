"""Muon for the matrices of layers, whose work the processes share, and AdamW for all else."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from asr.device import has_bf16
from asr.training.distributed.group import Group
from asr.training.layers import blocks
from asr.training.optim.adam import AdamFamily, by_rate, parameter_groups

MOMENTUM = 0.95
COEFFICIENTS = (
    3.4445,
    -4.7750,
    2.0315,
)  # Jordan et al. 2024: the polynomial that is steepest at zero
ITERATIONS = 5
TINY = 1e-7  # of a norm, which a matrix of zeros may be divided by


class MuonSettings(AdamFamily):
    """Muon (Jordan et al. 2024) for the matrices of the layers, AdamW for all else.

    A matrix's step is its momentum with all singular values made alike, so that what few examples
    teach is learned as soon as the rest. It is as large as AdamW's: one rate serves both (Liu et
    al. 2025).
    """

    shards: ClassVar[bool] = False  # singular values are those of whole matrices
    kind: Literal["muon"]

    def build(self, model: nn.Module, group: Group = Group()) -> "torch.optim.Optimizer | Together":  # noqa: B008
        """Make the optimizer of a model's parameters.

        group  the processes, which share the work on matrices
        """
        matrices = layer_matrices(model)
        adamw = torch.optim.AdamW(parameter_groups(model, self, matrices), **self.arguments())
        if not matrices:
            return adamw
        groups = [group for group in by_rate(model, matrices, self.lr) if group["params"]]
        return Together(adamw, Muon(groups, self.lr, MOMENTUM, self.weight_decay, group))


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024): a matrix's step is its momentum with all singular values made alike.

    Times 0.2 √max(rows, columns) it is as large as AdamW's (Liu et al. 2025). Weights and states
    are those of `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")`: to the bit on a CPU with
    instructions for bf16; to rounding on other CPUs, which compute the products in fp32, and on a
    GPU, where the matrices of one shape are one product. But PyTorch's makes all matrices' steps in
    each process, and a matrix without gradient, of a layer that was left out, takes a whole one,
    however old its momentum is: here it only decays.

    parameters  matrices, or groups of them
    group       the processes, which have the same gradients when they call `step`
    """

    def __init__(
        self, parameters: Sequence, lr: float, momentum: float, weight_decay: float, group: Group
    ):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.group = group

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Change the weights."""
        for settings in self.param_groups:
            if settings["params"][0].grad is None:  # the whole group is frozen
                continue
            groups, lr = alike(settings["params"]), settings["lr"]
            sizes = [len(group) * group[0].numel() for group in groups]
            together = groups[0][0].new_zeros(sum(sizes), dtype=torch.bfloat16)
            parts = [
                part.view(len(group), *group[0].shape)
                for group, part in zip(groups, together.split(sizes), strict=True)
            ]
            self._make_directions(groups, parts, settings["momentum"])
            self.group.add(together)
            for group, part in zip(groups, parts, strict=True):
                torch._foreach_mul_(group, 1 - lr * settings["weight_decay"])
                alpha = -lr * 0.2 * max(group[0].shape) ** 0.5
                torch._foreach_add_(group, part.float().unbind(), alpha=alpha)

    def _make_directions(
        self, groups: list[list[Tensor]], parts: list[Tensor], momentum: float
    ) -> None:
        """Fill in those of this process' share; the others' come by a sum, in which they are 0.

        groups  matrices of one shape; parts: of each group, (matrices, rows, columns)
        """
        size, first = self.group.size, self.group.rank
        for group, part in zip(groups, parts, strict=True):
            own = slice(first % size, None, size)
            first -= len(group)
            gradients: Any = [matrix.grad for matrix in group]
            kept = [self._momentum(matrix) for matrix in group]
            torch._foreach_lerp_(kept, gradients, 1 - momentum)
            for G, M, direction in batches(gradients[own], kept[own], part[own]):
                ahead = G.lerp(M, momentum)  # Nesterov's: by one gradient
                direction.copy_(orthogonal(ahead)).mul_(G.flatten(-2).any(-1)[..., None, None])

    def _momentum(self, matrix: Tensor) -> Tensor:
        """The momentum of a matrix, which every process keeps whole."""
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        return state["momentum_buffer"]


def alike(matrices: Sequence[Tensor]) -> list[list[Tensor]]:
    """Group matrices of one shape, the largest first."""
    shape = attrgetter("shape")
    ranked = sorted(matrices, key=lambda matrix: (-matrix.numel(), matrix.shape))
    return [list(group) for _, group in groupby(ranked, shape)]


def batches(*matrices: Any) -> Iterable[tuple[Tensor, ...]]:
    """Matrices of one shape as a GPU takes them, all in one product; on a CPU one by one, which is as fast."""
    if matrices[-1].device.type == "cpu" or not matrices[0]:
        return zip(*matrices, strict=True)
    *lists, batch = matrices
    return [(*map(torch.stack, lists), batch)]


class Together:
    """Optimizers that share a model's parameters out among them; has what training asks of an optimizer."""

    def __init__(self, *parts: torch.optim.Optimizer):
        self.parts = parts

    @property
    def param_groups(self) -> list[dict]:
        """The groups of all."""
        return [group for part in self.parts for group in part.param_groups]

    @property
    def state(self) -> dict[Tensor, dict]:
        """By parameter, what its optimizer keeps of it."""
        return {parameter: kept for part in self.parts for parameter, kept in part.state.items()}

    def step(self) -> None:
        """Change the weights."""
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict:
        """What `load_state_dict` takes."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state: dict) -> None:
        """Take up a state."""
        for part, its in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(its)


def layer_matrices(model: nn.Module) -> list[Tensor]:
    """The trained weights of the linear maps within layers: neither embeddings nor projections to the vocabulary."""
    maps = dict.fromkeys(
        m for block in blocks(model) for m in block.modules() if isinstance(m, nn.Linear)
    )
    return [linear.weight for linear in maps if linear.weight.requires_grad]


def orthogonal(matrix: Tensor) -> Tensor:
    """Make the singular values alike, 0.7 to 1.2, by Newton and Schulz's iteration in bf16 → of the same shape.

    matrix  (rows, columns), or (n, rows, columns): n of them
    """
    a, b, c = COEFFICIENTS
    tall = matrix.shape[-2] > matrix.shape[-1]
    add_product = torch.addmm if matrix.dim() == 2 else torch.baddbmm
    emulated = matrix.device.type == "cpu" and not has_bf16()  # twelve times fp32's time
    X = matrix if emulated else matrix.bfloat16()
    X = X.mT if tall else X
    X = X / X.norm(dim=(-2, -1), keepdim=True).clamp(min=TINY)
    for _ in range(ITERATIONS):
        A = X @ X.mT
        X = add_product(X, add_product(A, A, A, beta=b, alpha=c), X, beta=a)
    return X.mT if tall else X
