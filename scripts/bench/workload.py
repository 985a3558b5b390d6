"""What every implementation of the benchmarks computes: sizes, utterances, labels, and the length of every search.

Imported in each implementation's own environment, so it needs nothing but torch. Inputs of decoding
and training are random feature frames, the same for all; features have a benchmark of their own, on
random waveforms.
"""

import torch
from torch import Tensor

ENCODER_LAYERS, DECODER_LAYERS, D_MODEL, HEADS, FF = 12, 6, 256, 4, 2048
CHANNELS = 256  # of the two convolutions that subsample by 4
MELS, VOCABULARY = 80, 5000  # blank 0, end symbol last
BEAM, CTC_WEIGHT, PRE_BEAM = 10, 0.3, 1.5
STEPS = 30  # of the decoder, in every search
NEVER = -1e4  # bias of the end symbol: no hypothesis ends before the limit
DROPOUT, SMOOTHING, CLIP = 0.1, 0.1, 5.0  # of training
LABELS = (20, 40)  # of an utterance, at least and at most
IGNORE = -1  # padding of labels
SAMPLE_RATE, FRAMES_HZ = 16000, 100  # frames of 10 ms
PARTS = (
    "encoder",
    "attention",
    "joint",
)  # encoder alone; with a beam search on the decoder; with one on it and CTC
SECONDS = {
    "four": (3.6, 2.5, 4.9, 3.2),  # 14.2 s
    "eight": (7.2, 5.0, 9.8, 6.3, 11.0, 5.6, 9.0, 8.1),  # 62.0 s
    "many": tuple(
        round(2 + 23 * (n * 29 % 64) / 63, 2) for n in range(64)
    ),  # 864 s: 2 to 25 s, evenly, out of order
}


def features(workload: str) -> list[Tensor]:
    """Random frames of each utterance, (T, MELS) float32."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(round(s * FRAMES_HZ), MELS, generator=generator) for s in SECONDS[workload]]


def labels(workload: str) -> list[Tensor]:
    """Random labels of each utterance, (U,) int64: no blank, no symbol that a peer has an id for."""
    generator = torch.Generator().manual_seed(2)
    lens = torch.randint(LABELS[0], LABELS[1] + 1, (len(SECONDS[workload]),), generator=generator)
    return [torch.randint(2, VOCABULARY - 1, (int(U),), generator=generator) for U in lens]


def waveforms(workload: str) -> list[Tensor]:
    """Random samples of each utterance, (S,) float32 in [-1, 1]."""
    generator = torch.Generator().manual_seed(3)
    return [
        (0.1 * torch.randn(round(s * SAMPLE_RATE), generator=generator)).clamp(-1, 1)
        for s in SECONDS[workload]
    ]


def pad(utterances: list[Tensor], value: float = 0.0) -> tuple[Tensor, Tensor]:
    """(T, …) each → (B, T, …), with the value in the padding, and lengths (B,)."""
    padded = torch.nn.utils.rnn.pad_sequence(utterances, batch_first=True, padding_value=value)
    return padded, torch.tensor([len(x) for x in utterances])
