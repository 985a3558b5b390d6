"""A whole copy of the model in each process; gradients are added in one reduction, once a step.

With `Shards` (shards.py) it is one of the two ways to spread a training over processes.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from asr.training.processes import Group
from asr.training.together import Together


class Replicas:
    """The model, its optimiser and its gradients, which are views of one flat tensor: added, scaled and clipped as one.

    PyTorch's DistributedDataParallel adds gradients while the backward pass of a step's last batch goes on. Here a
    step's batches are computed without a word between the processes, so that one may split a batch that is too large
    for its memory, and have fewer batches than others; the one reduction takes a hundredth of a step on GPUs.
    """

    independent = True  # within a step no process waits for another

    def __init__(
        self, model: nn.Module, optimizer: Callable[[nn.Module, Group], torch.optim.Optimizer | Together], group: Group
    ):
        self.model, self.group = model, group
        self.optimizer = optimizer(model, group)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.gradient = torch.zeros(sum(p.numel() for p in trained), device=trained[0].device)
        for parameter, part in zip(trained, self.gradient.split([p.numel() for p in trained]), strict=True):
            parameter.grad = part.as_strided(parameter.size(), parameter.stride())  # channels-last ones stay so

    def share(self, step: list) -> list[tuple[int, list, float]]:
        """This process' batches of a step: (place in the step, batch, weight of its loss)."""
        group = self.group
        return [(n, step[n], 1.0) for n in range(group.rank, len(step), group.size)]

    def zero(self) -> None:
        """Begin a step."""
        self.gradient.zero_()

    def finish(self, tokens: float, clip: float) -> Tensor:
        """Turn the gradients of the processes' sums into that of the mean per token, and clip its norm.

        returns  the norm before
        """
        self.group.add(self.gradient)
        self.gradient /= tokens
        norm = self.gradient.norm()
        self.gradient *= (clip / (norm + 1e-6)).clamp(max=1.0)
        return norm

    def whole(self) -> nn.Module:
        """The model with its weights as they are now, to validate and to save."""
        return self.model

    def state(self) -> dict:
        """Weights and the optimiser's state."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict) -> None:
        """Take up a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for parameter, moments in self.optimizer.state.items():
            for name, moment in moments.items():
                if moment.shape == parameter.shape:  # in its memory order, which the fused kernels take for granted
                    moments[name] = torch.empty_like(parameter, requires_grad=False).copy_(moment)
