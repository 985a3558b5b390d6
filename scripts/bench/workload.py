"""What every implementation of the benchmark computes: sizes, utterances, and the length of every search.

Imported in each implementation's own environment, so it needs nothing but torch. Inputs are random feature frames,
the same for all; computing features from waveforms is no part of the benchmark.
"""

import torch
from torch import Tensor

ENCODER_LAYERS, DECODER_LAYERS, D_MODEL, HEADS, FF = 12, 6, 256, 4, 2048
CHANNELS = 256  # of the two convolutions that subsample by 4
MELS, VOCABULARY = 80, 5000  # blank 0, end symbol last
BEAM, CTC_WEIGHT, PRE_BEAM = 10, 0.3, 1.5
STEPS = 30  # of the decoder, in every search
NEVER = -1e4  # bias of the end symbol: no hypothesis ends before the limit
FRAMES_HZ = 100  # frames of 10 ms
PARTS = ("encoder", "attention", "joint")  # encoder alone; with a beam search on the decoder; with one on it and CTC
SECONDS = {
    "eight": (7.2, 5.0, 9.8, 6.3, 11.0, 5.6, 9.0, 8.1),  # 62.0 s
    "many": tuple(round(2 + 23 * (n * 29 % 64) / 63, 2) for n in range(64)),  # 864 s: 2 to 25 s, evenly, out of order
}


def features(workload: str) -> list[Tensor]:
    """Random frames of each utterance, (T, MELS) float32."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(round(s * FRAMES_HZ), MELS, generator=generator) for s in SECONDS[workload]]


def pad(utterances: list[Tensor]) -> tuple[Tensor, Tensor]:
    """(T, F) each → (B, T, F), zeros in the padding, and lengths (B,)."""
    return torch.nn.utils.rnn.pad_sequence(utterances, batch_first=True), torch.tensor([len(x) for x in utterances])
