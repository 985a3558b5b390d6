"""What a worker of train.py does with its implementation.

    {"workload": "eight"}                 →  {"seconds": 1.2, "loss": 8.5, "parameters": 30938376,
                                          "peak_mb": 2900}
    {"workload": "eight", "flops": true}  →  {"flops": 4.5e11}

A step is forward, backward, clipping and the optimizer's, on all utterances of the workload in one
padded batch; every loss has been checked to be finite. The peak is of the process so far on a CPU,
of the step on a GPU.
"""

import math
import resource
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from scripts.bench import worker, workload

LR = 1e-3


class Implementation(Protocol):
    """What is timed.

    model    what is trained
    loss(X (B, T, MELS), X_lens (B,), Y (B, U), Y_lens (B,)) → scalar with gradient; Y padded with
    workload.IGNORE
    step(the same)   one optimizer step → the loss, a number
    """

    model: nn.Module
    loss: Callable
    step: Callable


class Plain:
    """The step as peers do it: zeroed gradients are None, PyTorch's clipping and Adam with its defaults."""

    def __init__(self, model: nn.Module, args: Namespace):
        self.model = model.to(args.device).train()
        self.autocast = {
            "device_type": args.device,
            "dtype": torch.bfloat16,
            "enabled": args.precision == "bf16",
        }
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LR)

    def loss(self, *batch: Tensor) -> Tensor:
        """Of the model's own, under autocast."""
        with torch.autocast(**self.autocast):
            return self.model(*batch)

    def step(self, *batch: Tensor) -> float:
        """One optimizer step."""
        self.optimizer.zero_grad()
        loss = self.loss(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), workload.CLIP)
        self.optimizer.step()
        return float(loss.detach())


def serve(
    build: Callable[[Namespace], Implementation],
    *packages: str,
    inputs: Callable[[str], list[Tensor]] = workload.features,
) -> None:
    """Answer the requests of train.py; inputs: of a workload's name."""

    def answering(args: Namespace) -> Callable[[dict], dict]:
        if args.d_model:
            workload.HEADS, workload.D_MODEL, workload.CHANNELS = (
                args.d_model // 64,
                args.d_model,
                args.d_model,
            )
        implementation = build(args)

        def answer(request: dict) -> dict:
            batch = [x.to(args.device) for x in whole(request["workload"], inputs)]
            if request.get("flops"):
                return {"flops": count_flops(implementation, batch)}
            return measure(implementation, batch, args.device)

        return answer

    worker.serve(answering, *packages)


def whole(
    name: str, inputs: Callable[[str], list[Tensor]] = workload.features
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All utterances of a workload: X (B, T, MELS), or what else inputs are, X_lens (B,), Y (B, U), Y_lens (B,)."""
    return *workload.pad(inputs(name)), *workload.pad(workload.labels(name), workload.IGNORE)


def measure(implementation: Implementation, batch: list[Tensor], device: str) -> dict:
    """Time one step, and check its loss."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    worker.wait(device)
    begun = time.perf_counter()
    loss = implementation.step(*batch)
    worker.wait(device)
    seconds = time.perf_counter() - begun
    assert math.isfinite(loss), f"got a loss of {loss}"
    parameters = sum(p.numel() for p in implementation.model.parameters())
    return {"seconds": seconds, "loss": loss, "parameters": parameters, "peak_mb": peak(device)}


def peak(device: str) -> int:
    """MB."""
    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return torch.cuda.max_memory_allocated() >> 20


def count_flops(implementation: Implementation, batch: list[Tensor]) -> int:
    """Floating-point operations of forward and backward, padding included: products of matrices and convolutions."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        implementation.loss(*batch).backward()
    return counter.get_total_flops()
