"""Our side of train.py; see training.py."""

import contextlib

import torch
from torch import Tensor, nn

from asr.device import autocast, tuned
from asr.training.optim.adam import AdamSettings
from scripts.bench import ours, training, workload


class Ours:
    """The step of asr-train: the loss is a sum, so gradients are divided by the number of target tokens."""

    def __init__(self, args):
        self.device, self.precision = torch.device(args.device), args.precision
        self.tuned = contextlib.ExitStack()  # until the process ends
        self.tuned.enter_context(tuned(self.device))
        self.model = ours.build(args.device).train()
        self.optimizer = AdamSettings(kind="adam", lr=training.LR).build(self.model)
        self.compute = torch.compile(self.model.loss) if args.compile else self.model.loss
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)

    def loss(self, *batch: Tensor) -> Tensor:
        """Sum over the batch; never compiled."""
        with autocast(self.device, self.precision):
            return self.model.loss(*batch).total

    def step(self, *batch: Tensor) -> float:
        """One optimizer step → the loss per target token."""
        self.optimizer.zero_grad(set_to_none=False)
        with autocast(self.device, self.precision):
            loss = self.compute(*batch)
        loss.total.backward()
        tokens = int(loss.tokens)
        torch._foreach_div_([p.grad for p in self.model.parameters()], tokens)
        nn.utils.clip_grad_norm_(self.model.parameters(), workload.CLIP)
        self.optimizer.step()
        return float(loss.total.detach()) / tokens


if __name__ == "__main__":
    training.serve(Ours)
