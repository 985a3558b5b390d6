"""Kaldi's log-mel filterbank features of a padded batch of waveforms.

B batch, S samples, T frames, N samples per frame, F mel bins. The formulas are those of Kaldi's
`compute-fbank-feats`; its option names are in brackets.
"""

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from asr.config import Settings
from asr.device import in_threads
from asr.ops import zero_padding
from asr.seeding import normals

INT16_SCALE = 32768.0  # Kaldi reads waveforms as 16-bit integers
LOG_FLOOR = torch.finfo(torch.float32).eps  # Kaldi floors energies here before the logarithm
BAND = 16  # mel bins per band: their filters are zero except in a few neighboring rows
MOST_FILTERS = 1 << 22  # mel bins times samples per frame; 80 times 400 is usual
BLOCK = 1024  # frames: few enough to stay in a core's cache from the waveform to the logarithm


class FbankSettings(Settings):
    """Sample rate of the model and size of its features; everything else has Kaldi's default."""

    sample_rate: int = Field(ge=1000, le=400_000)  # Hz
    mels: int = Field(80, gt=0, le=512)
    frame_ms: float = Field(25.0, ge=5, le=100)
    shift_ms: float = Field(10.0, ge=1, le=100)
    low_hz: float = Field(20.0, ge=0)
    high_hz: float | None = None  # None = half the sample rate
    dither: float = Field(0.0, ge=0)  # standard deviation on the 16-bit scale, in training only
    mel_floor: float = Field(LOG_FLOOR, gt=0)  # least energy of a bin, on the 16-bit scale

    @model_validator(mode="after")
    def _edges_in_order(self):
        check_edges(self.sample_rate, self.low_hz, self.high_hz or self.sample_rate / 2)
        return self

    @model_validator(mode="after")
    def _filters_fit_in_memory(self):
        samples = self.sample_rate * self.frame_ms / 1000
        if samples * self.mels > MOST_FILTERS:
            raise ValueError(
                f"mels: got {self.mels} of frames of {samples:.0f} samples, expected less of either"
            )
        return self


class Fbank(nn.Module):
    """Waveforms and lengths → log-mel features and lengths, each utterance as Kaldi computes it alone.

    sample_rate:  Hz
    mels:         F [num-mel-bins]
    frame_ms, shift_ms:  [frame-length], [frame-shift]; frames lie within the waveform
                         [snip-edges=true]
    low_hz, high_hz:     edges of the mel bins [low-freq], [high-freq]; None = half the sample rate
    dither:       standard deviation of noise on the 16-bit scale [dither], in training only
    mel_floor:    smaller energies are raised to this, on the 16-bit scale; Kaldi's by default. At
                  the level of quiet parts of other recordings, it makes the digital silence of
                  noise gates and codecs look like them
    """

    window: Tensor  # (N,) [window-type=povey]
    filters: Tensor  # (N_fft / 2, F)

    def __init__(
        self,
        sample_rate: int,
        mels: int = 80,
        frame_ms: float = 25.0,
        shift_ms: float = 10.0,
        low_hz: float = 20.0,
        high_hz: float | None = None,
        dither: float = 0.0,
        mel_floor: float = LOG_FLOOR,
    ):
        super().__init__()
        self.sample_rate, self.mels, self.features = sample_rate, mels, mels
        self.dither, self.mel_floor = dither, mel_floor
        self.frame_samples = int(sample_rate * frame_ms / 1000)
        self.shift_samples = int(sample_rate * shift_ms / 1000)
        self.fft_size = 1 << (self.frame_samples - 1).bit_length()  # [round-to-power-of-two=true]
        # in float32, like Kaldi: in bands without sound, features are rounding errors, which powers
        # of two don't change
        window = torch.hann_window(self.frame_samples, periodic=False).pow(0.85) * INT16_SCALE
        filters = mel_filters(sample_rate, self.fft_size, mels, low_hz, high_hz or sample_rate / 2)
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("filters", filters, persistent=False)
        self.bands = bands(filters)

    def forward(
        self, waveforms: Tensor, lens: Tensor, seeds: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute features on the waveforms' device, in float32 even under autocast.

        waveforms:  (B, S) float in [-1, 1]; anything beyond lens is never read
        lens:       (B,) int, samples
        seeds:      (B,) int64; with them and in training mode, dither is added
        returns     X (B, T, F), exact zeros beyond X_lens, and X_lens (B,)
        raises      ValueError with index and length of an utterance shorter than one frame; only on
                    a CPU, because training and transcription check this before
        """
        X_lens = self.lengths(lens)  # (B,)
        if X_lens.device.type == "cpu" and (X_lens < 1).any():  # on a GPU, this would wait for it
            n = int(X_lens.argmin())
            raise ValueError(
                f"utterance {n} of the batch: got {int(lens[n])} samples, expected {self.frame_samples} or more"
            )
        with torch.autocast(waveforms.device.type, enabled=False):
            signal = waveforms.float()  # (B, S)
            if self.training and self.dither and seeds is not None:
                signal = signal + self.dither / INT16_SCALE * normals(seeds, signal.size(1))
            frames = signal.unfold(1, self.frame_samples, self.shift_samples)  # (B, T, N)
            in_blocks = signal.device.type == "cpu" and not signal.requires_grad
            compute = self._in_blocks if in_blocks else self._at_once
            return compute(frames, X_lens), X_lens  # (B, T, F)

    def lengths(self, samples):
        """Count the frames of `samples`, an int or (B,) int tensor; not positive if shorter than one frame."""
        return (samples - self.frame_samples) // self.shift_samples + 1

    def is_like(self, other: nn.Module) -> bool:
        """Whether another extractor gives the same features, but for dither."""
        names = ("sample_rate", "frame_samples", "shift_samples", "mel_floor")
        return (
            isinstance(other, Fbank)
            and all(getattr(self, name) == getattr(other, name) for name in names)
            and torch.equal(self.filters, other.filters)
        )

    def _at_once(self, frames: Tensor, X_lens: Tensor) -> Tensor:
        """Frames (B, T, N) → X (B, T, F), zeros beyond X_lens"""
        return zero_padding(self._log_mels(frames), X_lens)

    def _in_blocks(self, frames: Tensor, X_lens: Tensor) -> Tensor:
        """Compute the same, but faster on a CPU: blocks stay in its cache, and padding is skipped."""
        X = frames.new_zeros(*frames.shape[:2], self.mels)  # (B, T, F)

        def compute(block: tuple[int, int, int]) -> None:
            n, start, end = block
            X[n, start:end] = self._log_mels(frames[n, start:end])

        in_threads(
            compute,
            [(n, *piece) for n, T in enumerate(X_lens.tolist()) for piece in pieces(T, BLOCK)],
        )
        return X

    def _log_mels(self, frames: Tensor) -> Tensor:
        """Frames (..., N) → (..., F)"""
        frames = frames - frames.mean(-1, keepdim=True)  # [remove-dc-offset=true]
        frames[..., 1:] -= 0.97 * frames[..., :-1]  # [preemphasis-coefficient=0.97]
        frames[..., 0] -= 0.97 * frames[..., 0]
        frames *= self.window
        spectrum = torch.fft.rfft(frames, self.fft_size)[..., :-1]  # without the Nyquist bin
        squares = torch.view_as_real(spectrum).square_()  # (..., N_fft/2, 2)
        power = squares[..., 0] + squares[..., 1]  # (..., N_fft/2) [use-power=true]
        energies = torch.cat(
            [power[..., a:b] @ self.filters[a:b, c:d] for a, b, c, d in self.bands], -1
        )  # (..., F)
        return energies.clamp_(min=self.mel_floor).log_()


def pieces(length: int, most: int) -> list[tuple[int, int]]:
    """Return starts and ends of the fewest pieces of similar size that are no longer than `most`.

    >>> pieces(10, 4)
    [(0, 3), (3, 6), (6, 10)]
    """
    count = -(-length // most)
    return [(n * length // count, (n + 1) * length // count) for n in range(count)]


def check_edges(sample_rate: int, low_hz: float, high_hz: float) -> None:
    """Refuse edges of the mel bins that don't lie in order within 0 and half the sample rate."""
    if not 0 <= low_hz < high_hz <= sample_rate / 2:
        raise ValueError(
            f"mel edges: got {low_hz} to {high_hz} Hz, expected 0 <= low < high <= {sample_rate / 2}"
        )


def mel(hz):
    """Convert Hz to Kaldi's mel scale: 1127 ln(1 + f / 700)."""
    return 1127.0 * torch.log1p(torch.as_tensor(hz, dtype=torch.float64) / 700.0)


def mel_filters(
    sample_rate: int, fft_size: int, mels: int, low_hz: float, high_hz: float
) -> Tensor:
    """Make triangular filters, equally wide on the mel scale: (fft_size / 2, mels) float32.

    raises   ValueError if the edges don't lie in order within 0 and half the sample rate
    """
    check_edges(sample_rate, low_hz, high_hz)
    low, high = mel(low_hz), mel(high_hz)
    delta = (high - low) / (mels + 1)
    left = low + delta * torch.arange(mels, dtype=torch.float64)  # (F,)
    bins = mel(sample_rate / fft_size * torch.arange(fft_size // 2, dtype=torch.float64)).unsqueeze(
        1
    )  # (N_fft/2, 1)
    up, down = (bins - left) / delta, (left + 2 * delta - bins) / delta  # (N_fft/2, F)
    return torch.minimum(up, down).clamp(min=0).float()


def bands(filters: Tensor) -> list[tuple[int, int, int, int]]:
    """List the non-zero blocks of the filters, sixteen mel bins at a time: rows a to b, columns c to d.

    filters   (N_fft / 2, F)
    """
    found = []
    for start in range(0, filters.size(1), BAND):
        rows = filters[:, start : start + BAND].any(1).nonzero().flatten().tolist() or [0]
        found.append((rows[0], rows[-1] + 1, start, min(start + BAND, filters.size(1))))
    return found
