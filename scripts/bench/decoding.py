"""What a worker of decode.py does with its implementation.

    {"workload": "eight", "part": "joint", "batches": [[0, 3], [1, 2]]}  →  {"seconds": 1.234}

Every answer has been checked: STEPS decoder steps for each batch, and hypotheses as long as they
must be.
"""

import time
from argparse import Namespace
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from scripts.bench import worker, workload


class Implementation(Protocol):
    """What is timed.

    encode(X (B, T, MELS), X_lens (B,)) → whatever `search` takes
    search(encoded, joint: bool)        → the number of labels of each utterance's best hypothesis
    steps    decoder steps done so far
    labels   that a hypothesis of STEPS decoder steps has, as this implementation counts
    """

    steps: int
    labels: int
    encode: Callable
    search: Callable


def serve(build: Callable[[Namespace], Implementation], *packages: str) -> None:
    """Answer the requests of decode.py."""

    def answering(args: Namespace) -> Callable[[dict], dict]:
        implementation = build(args)
        utterances = {name: workload.features(name) for name in workload.SECONDS}

        def answer(request: dict) -> dict:
            batches = [
                tuple(
                    x.to(args.device)
                    for x in workload.pad([utterances[request["workload"]][n] for n in batch])
                )
                for batch in request["batches"]
            ]
            return {"seconds": measure(implementation, batches, request["part"], args.device)}

        return answer

    worker.serve(answering, *packages)


@torch.no_grad()
def measure(
    implementation: Implementation, batches: list[tuple[Tensor, Tensor]], part: str, device: str
) -> float:
    """Time a part over all batches, and check what was done."""
    before, lengths = implementation.steps, []
    worker.wait(device)
    begun = time.perf_counter()
    for X, X_lens in batches:
        encoded = implementation.encode(X, X_lens)
        if part != "encoder":
            lengths += implementation.search(encoded, part == "joint")
    worker.wait(device)
    seconds = time.perf_counter() - begun
    if part != "encoder":
        steps, expected = implementation.steps - before, workload.STEPS * len(batches)
        assert steps == expected, f"got {steps} decoder steps, expected {expected}"
        assert len(lengths) == sum(len(X) for X, _ in batches), f"got {len(lengths)} hypotheses"
        assert set(lengths) == {implementation.labels}, (
            f"got lengths {lengths}, expected {implementation.labels}"
        )
    return seconds
