"""What the workers of pretrained.py have in common: an encoder of waveforms with CTC, on waveforms.

B batch, S samples, T' frames of the encoder, D its width, U labels.
"""

from argparse import Namespace
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from scripts.bench import training, workload
from scripts.bench.training import Plain

BLANK = 0
STRIDES = [(10, 5), *[(3, 2)] * 4, *[(2, 2)] * 2]  # (kernel, stride) of wav2vec 2.0's convolutions


class Loss(nn.Module):
    """An encoder, a linear map, and CTC.

    encoder  X (B, S), X_lens (B,) samples → H (B, T', D)
    """

    def __init__(self, encoder: nn.Module, width: int):
        super().__init__()
        self.encoder, self.out = encoder, nn.Linear(width, workload.VOCABULARY)

    def forward(self, X: Tensor, X_lens: Tensor, Y: Tensor, Y_lens: Tensor) -> Tensor:
        """Mean over the labels."""
        H = self.encoder(X, X_lens)  # (B, T', D)
        log_probs = self.out(H).log_softmax(-1).transpose(0, 1)  # (T', B, V)
        lens = frames(X_lens)
        assert H.size(1) == int(lens.max()), f"got {H.size(1)} frames, expected {int(lens.max())}"
        return F.ctc_loss(log_probs, Y.clamp(min=BLANK), lens, Y_lens, BLANK)


def frames(lens: Tensor) -> Tensor:
    """Samples → frames, (B,)."""
    for kernel, stride in STRIDES:
        lens = (lens - kernel) // stride + 1
    return lens


def serve(encoder: Callable[[str], tuple[nn.Module, int]], *packages: str) -> None:
    """Answer the requests of pretrained.py; encoder: of a folder, with its width."""

    def build(args: Namespace) -> Plain:
        return Plain(Loss(*encoder(args.source)), args)

    training.serve(build, *packages, inputs=workload.waveforms)
