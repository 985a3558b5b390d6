"""One optimiser step: losses and gradients of this process' batches, added over the processes, clipped, applied."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from asr.errors import UserError
from asr.features.noise import utterance_seed
from asr.training import memory
from asr.training.device import autocast
from asr.training.processes import Group
from asr.training.task import Task


@dataclass(frozen=True)
class Report:
    """What a step was, over all processes.

    sums      the loss's, by name
    norm      of the gradient per token, before it was clipped
    amount    of data, in the task's unit
    faulty    places of the batches whose loss isn't finite
    asked     sums of the processes' wishes
    """

    sums: dict[str, float]
    norm: float
    amount: float
    faulty: list[int]
    asked: list[int]

    @property
    def applied(self) -> bool:
        """Whether the weights have changed: not where loss or gradient weren't finite."""
        return math.isfinite(self.norm) and not self.faulty


class Step:
    """Computes steps.

    copies     Replicas or Shards: the model, its gradients and optimiser
    precision  "fp32" or "bf16"; seed, with the step and the batch's place in it, decides dropout
    places     batches of a step, at most, over all processes
    say        is told when a batch doesn't fit in memory
    """

    def __init__(
        self,
        task: Task,
        copies: Any,
        group: Group,
        *,
        precision: str,
        clip: float,
        seed: int,
        places: int,
        say: Callable[[str], None],
    ):
        self.task, self.copies, self.group = task, copies, group
        self.precision, self.clip, self.seed, self.places, self.say = precision, clip, seed, places, say
        self.device = next(copies.model.parameters()).device
        self.too_large = math.inf  # elements of a batch that didn't fit

    def run(self, share: Sequence[tuple], epoch: int, step: int, factor: float, asked: Sequence[int]) -> Report:
        """One step over this process' share of its batches.

        share:   (place in the step, batch, weight) each, as `copies.share` has chosen them
        factor:  sets the learning rates, of those that the optimiser was made with
        asked:   numbers that are added over the processes
        """
        names = self.task.sums
        sums = self.gradients(share, epoch, step)  # (names + 1 + places,)
        sums = torch.cat([sums, torch.tensor([float(n) for n in asked], dtype=sums.dtype, device=sums.device)])
        self.group.add(sums)
        figures, n = sums.tolist(), len(names)
        faulty = [place for place, fault in enumerate(figures[n + 1 : n + 1 + self.places]) if fault]
        totals = dict(zip(names, figures, strict=False))
        norm = self.update(totals["tokens"], factor, skip=bool(faulty))
        return Report(totals, norm, figures[n], faulty, [int(wish) for wish in figures[n + 1 + self.places :]])

    def update(self, tokens: float, factor: float, skip: bool = False) -> float:
        """Add the gradients over the processes, clip, and change the weights, unless they aren't finite or `skip`.

        returns  the norm of the gradient per token, before it was clipped
        """
        norm = float(self.copies.finish(tokens, self.clip))
        for group in self.copies.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
        if math.isfinite(norm) and not skip:
            self.copies.optimizer.step()
        return norm

    def gradients(self, share: Sequence[tuple], epoch: int, step: int) -> Tensor:
        """Add up the gradients of batches; what doesn't fit in memory is split, and all begun again.

        returns  the loss's sums, the amount, and 1 at the place of each batch whose loss isn't finite, float64
        raises   UserError if a single example doesn't fit
        """
        parts = [((place,), batch, weight) for place, batch, weight in share]
        while True:
            failed = self._try(parts, epoch, step)
            if not isinstance(failed, int):
                return failed
            parts[failed : failed + 1] = self._halves(*parts[failed], step)

    def _try(self, parts: list[tuple], epoch: int, step: int) -> Tensor | int:
        """Compute all parts; or the number of the first that doesn't fit in memory."""
        self.copies.zero()
        sums = torch.zeros(len(self.task.sums) + 1 + self.places, dtype=torch.float64, device=self.device)
        for n, (path, batch, weight) in enumerate(parts):
            if batch.elements >= self.too_large and self.copies.independent and len(batch) > 1:
                return n
            try:
                self._add(sums, path, batch, weight, epoch, step)
            except RuntimeError as error:  # torch.OutOfMemoryError is one
                if not memory.is_out(error):
                    raise
                self._note(batch, step, error)
                return n
        return sums

    def _add(self, sums: Tensor, path: tuple, batch: Any, weight: float, epoch: int, step: int) -> None:
        torch.manual_seed(utterance_seed(self.seed, "dropout", step, *path))
        batch, amount = batch.to(self.device), self.task.amount(batch)
        with autocast(self.device, self.precision):
            loss = self.task.loss(self.copies.model, batch, epoch)
        (loss.total * weight).backward()
        values = [torch.as_tensor(getattr(loss, name), dtype=sums.dtype) for name in self.task.sums]
        sums[: len(values)] += torch.stack(values) * weight
        sums[len(values)] += amount * weight
        sums[len(values) + 1 + path[0]] += ~loss.total.isfinite()

    def _note(self, batch: Any, step: int, error: Exception) -> None:
        """Remember how large a batch was that didn't fit, or give up."""
        what = f"step {step}: a batch of {len(batch)} examples, {self.task.amount(batch):.0f} {self.task.unit}"
        if not self.copies.independent or len(batch) == 1:
            how = "smaller batches" if len(batch) > 1 else "a smaller maximal length"
            raise UserError(
                f"{what}, doesn't fit in memory; set {how} in data, training.activation_checkpointing=true, or a "
                "smaller model"
            ) from error
        self.too_large = min(self.too_large, batch.elements)
        self.say(f"{what}, doesn't fit in memory: from now on such batches are computed in halves")

    def _halves(self, path: tuple, batch: Any, weight: float, step: int) -> list[tuple]:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return [((*path, n), half, weight) for n, half in enumerate(batch.halves())]
