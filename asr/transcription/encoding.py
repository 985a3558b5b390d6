"""Waveforms in, encoder outputs out.

B batch, S samples, T frames, F features, T' encoder frames, D model width.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from asr.device import autocast, in_threads
from asr.models.recognizer import Recognizer
from asr.nn.encoder import Encoder, EncoderOutput
from asr.nn.encoders.pretrained import PretrainedEncoder
from asr.transcription.times import Encoded

WORK = 3_000_000_000  # weights times frames that are worth a group of their own
MOST_FRAMES = 400  # of such a group: more only take memory, for a small model's convolutions


@torch.no_grad()
def encode(
    recognizer: Recognizer,
    waveforms: Sequence[np.ndarray],
    precision: str = "fp32",
    chunk: int | None = None,
) -> Encoded:
    """Encode waveforms, each (samples,) float32 at the model's rate; chunk: encoder frames of one."""
    device = next(recognizer.parameters()).device
    shortest = recognizer.shortest_samples  # shorter ones are padded with silence
    lens = torch.tensor([max(len(w), shortest) for w in waveforms])
    shape, pinned = (len(waveforms), int(lens.max())), device.type == "cuda"
    padded = torch.zeros(shape, pin_memory=pinned)  # (B, S)
    for row, waveform in zip(padded, waveforms, strict=True):
        row[: len(waveform)] = torch.from_numpy(waveform)
    with autocast(device, precision):
        inputs = (x.to(device, non_blocking=True) for x in (padded, lens))
        X, X_lens = recognizer.frontend(*inputs)  # (B, T, F)
    encoded = encode_features(recognizer.model.encoder, X, X_lens, precision, chunk)
    return Encoded(encoded.H, encoded.H_lens, X, X_lens)


def encode_features(
    encoder: Encoder | PretrainedEncoder,
    X: Tensor,
    X_lens: Tensor,
    precision: str = "fp32",
    chunk: int | None = None,
) -> EncoderOutput:
    """Encode X (B, T, F), X_lens (B,) to H (B, T', D), H_lens (B,); no gradients.

    On a CPU, threads encode groups of utterances of similar length, if there are enough groups for
    all threads. Then hardly anything is computed of the padding, and no thread waits for the others
    after each operation.
    """
    groups = _groups(encoder, X_lens) if X.device.type == "cpu" else []
    if len(groups) < torch.get_num_threads():
        with autocast(X.device, precision):
            return encoder(X, X_lens, chunk=chunk)
    found = dict[int, tuple[Tensor, Tensor]]()

    def compute(some: list[int]) -> None:
        lens = X_lens[some]  # (b,), the longest first
        with autocast(X.device, precision):  # which is a thread's own
            encoded = encoder(X[some, : lens[0]], lens, chunk=chunk)
        found.update(zip(some, zip(encoded.H, encoded.H_lens, strict=True), strict=True))

    in_threads(compute, groups)
    rows = [found[b] for b in range(len(X))]
    H = pad_sequence([H[:T] for H, T in rows], batch_first=True)  # (B, T', D)
    return EncoderOutput(H, torch.stack([T for _, T in rows]))


def _groups(encoder: Encoder | PretrainedEncoder, X_lens: Tensor) -> list[list[int]]:
    """Group utterances, so that each group is worth a thread's time."""
    weights = sum(p.numel() for p in encoder.parameters())
    frames = min(max(1, WORK // weights), MOST_FRAMES)
    return group(encoder.subsampling.lengths(X_lens).tolist(), frames)


def group(lens: Sequence[int], least: int) -> list[list[int]]:
    """Group indices by length, the longest first, each group padded to `least` or more but the last.

    >>> group([2, 9, 3, 3], 6)
    [[1], [2, 3], [0]]
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(lens)), key=lambda index: -lens[index]):
        if not groups or lens[groups[-1][0]] * len(groups[-1]) >= least:
            groups.append([])
        groups[-1].append(index)
    return groups
