"""CTC posteriors of a recording of any length: encoded in windows that overlap, read block by block.

No window is longer than the longest recording of the training. Of each, the frames of the middle
are kept: those near its ends lack the context that they have within the recording. Windows begin at
frames of one grid, so the frames of all windows together are those of the whole recording.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from asr.audio import load as audio
from asr.models.recognizer import Recognizer
from asr.nn.encoder import WHOLE
from asr.transcription.encoding import encode
from asr.transcription.pipeline import BATCH_SECONDS
from asr.transcription.recordings import Recording

UNKNOWN = 30.0  # seconds of a window, if the longest recording of the training isn't known
CONTEXT = 2.0  # seconds that are left out at each end, and no more than a quarter of the window

Reader = Callable[[int, int], np.ndarray]  # first sample, number of samples → waveform


class Window(NamedTuple):
    """Encoder frames: begin ≤ n < end are encoded, first ≤ n < last are kept."""

    begin: int
    end: int
    first: int
    last: int


def windows(frames: int, most: int, context: int, grid: int = 1) -> list[Window]:
    """Cover frames with windows of at most `most` frames, of which `context` at each end are left out.

    grid   windows begin at its multiples, where the chunks of an encoder begin

    >>> windows(10, 6, 1)[:2]
    [Window(begin=0, end=5, first=0, last=4), Window(begin=3, end=9, first=4, last=8)]
    """
    if frames <= most:
        return [Window(0, frames, 0, frames)]
    least = max(1, most - grid + 1)  # a window begins up to grid − 1 frames earlier
    step, found = max(grid, (least - 2 * context) // grid * grid), []
    for first in range(0, frames, step):
        begin = max(0, min(first - context, frames - least)) // grid * grid
        end = min(frames, first + step + context)
        found.append(Window(begin, end, first, min(first + step, frames)))
    return found


def windows_of(recognizer: Recognizer, samples: int) -> list[Window]:
    """Choose the windows of a recording by what the recognizer was trained on."""
    longest = recognizer.longest if math.isfinite(recognizer.longest) else UNKNOWN
    most = max(4, recognizer.encoder_frames(round(longest * recognizer.sample_rate)))
    chunks = recognizer.model.encoder.chunk
    grid = chunks.default if chunks and chunks.default < WHOLE else 1
    context = min(round(CONTEXT / recognizer.frame_seconds), most // 4)
    return windows(recognizer.encoder_frames(samples), most, context, grid)


def reader(recording: Recording, rate: int) -> Reader:
    """Read parts of a recording at a rate, in Hz."""

    def read(first: int, samples: int) -> np.ndarray:
        start = first / rate
        duration = min(samples / rate, recording.duration - start)
        part = audio.load(
            recording.path, rate, recording.start + start, duration, recording.channel
        )
        return np.pad(part[:samples], (0, max(0, samples - len(part))))

    return read


def reader_of(waveform: np.ndarray) -> Reader:
    """Take parts of a waveform."""
    return lambda first, samples: waveform[first : first + samples]


@torch.no_grad()
def ctc_log_probs(
    recognizer: Recognizer, read: Reader, samples: int, precision: str = "fp32"
) -> Iterator[tuple[int, Tensor]]:
    """Yield the log posteriors of consecutive frames of a recording, (n, V) on the CPU, after the first one's number.

    read      gives parts of the waveform
    samples   of the whole at the recognizer's rate
    """
    extractor, subsampling = recognizer.frontend.extractor, recognizer.model.encoder.subsampling
    hop = (subsampling.frames(2) - subsampling.frames(1)) * extractor.shift_samples
    found = windows_of(recognizer, samples)
    device = next(recognizer.parameters()).device
    seconds = found[0].end * recognizer.frame_seconds
    size = max(1, int(BATCH_SECONDS[device.type] / seconds))
    for n in range(0, len(found), size):
        batch = found[n : n + size]
        waveforms = [
            read(w.begin * hop, (w.end - w.begin - 1) * hop + recognizer.shortest_samples)
            for w in batch
        ]
        H = encode(recognizer, waveforms, precision).H  # (B, T', D)
        log_probs = recognizer.model.ctc_log_probs(H).cpu()  # (B, T', V)
        for window, row in zip(batch, log_probs, strict=True):
            yield window.first, row[window.first - window.begin : window.last - window.begin]
