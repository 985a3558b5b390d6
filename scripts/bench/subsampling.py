"""Compare subsamplings by channels and kind: seconds of the encoder and of a training step, in turn, of `eight`.

    python -m scripts.bench.subsampling

A separable one convolves each channel by itself and then mixes all channels, in each convolution
after the first (FastConformer, Rekesh et al. 2023). No setting makes it; this script shows why.
Seconds of one thread are CPU time, so that other work on the machine changes them less.
"""

import argparse
import statistics
import time

import torch
from torch import nn

from asr.cli.command import command
from asr.device import tuned
from asr.models.hybrid import Hybrid
from asr.nn.subsampling import Subsampling
from scripts.bench import ours, report, training, workload

WAYS = {"full, 256": (256, False), "full, 128": (128, False), "full, 64": (64, False)}
WAYS["separable, 256"] = 256, True


def separate(subsampling: Subsampling) -> None:
    """Put a depthwise and a pointwise convolution in place of each one after the first."""
    parts: list[nn.Module] = []
    for module in subsampling.convolutions:
        if isinstance(module, nn.Conv2d) and (C := module.in_channels) > 1:
            by_channel = nn.Conv2d(C, C, module.kernel_size, module.stride, groups=C)  # type: ignore[arg-type]
            parts += [by_channel, nn.Conv2d(C, C, 1)]
        else:
            parts.append(module)
    subsampling.convolutions = nn.Sequential(*parts).to(memory_format=torch.channels_last)


def build(channels: int, separable: bool) -> Hybrid:
    """Make the workload's model with another subsampling."""
    before, workload.CHANNELS = workload.CHANNELS, channels
    model = ours.build()
    workload.CHANNELS = before
    if separable:
        separate(model.encoder.subsampling)
    return model


class Way:
    """A model, its optimizer and its samples."""

    def __init__(self, channels: int, separable: bool):
        self.model = build(channels, separable)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.encoder: list[float] = []
        self.step: list[float] = []

    def sample(self, batch: tuple, now) -> None:
        """Time the encoder, then a training step."""
        self.model.eval()
        with torch.no_grad():
            began = now()
            self.model.encoder(*batch[:2])
            self.encoder.append(now() - began)
        self.model.train()
        began = now()
        self.optimizer.zero_grad()
        self.model.loss(*batch).total.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), workload.CLIP)
        self.optimizer.step()
        self.step.append(now() - began)


@command
def main(argv: list[str]) -> None:
    """Measure and tell; the first sample of each doesn't count."""
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("--threads", type=int, default=1, help="default 1")
    args.add_argument("--repeats", type=int, default=3, help="default 3")
    given = args.parse_args(argv)
    torch.set_num_threads(given.threads)
    now = time.process_time if given.threads == 1 else time.perf_counter
    ways, batch = {name: Way(*way) for name, way in WAYS.items()}, tuple(training.whole("eight"))
    with tuned(torch.device("cpu")):
        for _ in range(1 + given.repeats):
            for way in ways.values():
                way.sample(batch, now)
    rows, first = [], next(iter(ways.values()))
    for name, way in ways.items():
        row = [name, f"{sum(p.numel() for p in way.model.parameters()) / 1e6:.1f}"]
        for samples, before in ((way.encoder[1:], first.encoder), (way.step[1:], first.step)):
            median = statistics.median(samples)
            row += [f"{median:.2f}", f"{min(samples):.2f}-{max(samples):.2f}"]
            row.append(f"{median / statistics.median(before[1:]):.2f}")
        rows.append(row)
    print(report.heading(report.circumstances("cpu"), given.threads))
    heads = ("", "M", "encoder_s", "spread", "ratio", "step_s", "spread", "ratio")
    print(report.table(heads, rows))


if __name__ == "__main__":
    main()
