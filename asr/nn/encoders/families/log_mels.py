"""Log-mel features as encoders were trained on; the formulas are those of transformers' feature extractors.

B batch, S samples, N samples of the Fourier transform, T frames, F mel bins. Each utterance has the
features that it has alone.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asr import imports
from asr.ops import length_mask, zero_padding

RATE, SHIFT, WINDOW = 16000, 160, 400  # Hz; samples
WHISPER_FLOOR, WHISPER_RANGE = 1e-10, 8.0  # of energies; of their decimal logarithms
PARAKEET_FLOOR, PARAKEET_EPSILON, PREEMPHASIS = 2.0**-24, 1e-5, 0.97
KALDI_FFT, KALDI_FLOOR, KALDI_EPSILON, INT16 = 512, 2.0**-23, 1e-7, 32768.0


class LogMels(nn.Module):
    """Spectrograms on mel bins whose triangles are Slaney's; frame t is around sample t · SHIFT.

    fft:      N
    mels:     F
    window:   (WINDOW,)
    reflect:  whether samples beyond an utterance's ends are its own, mirrored; else zeros
    """

    window: Tensor  # (N,)
    filters: Tensor  # (N / 2 + 1, F)

    def __init__(self, fft: int, mels: int, window: Tensor, reflect: bool):
        super().__init__()
        self.fft, self.reflect = fft, reflect
        make = imports.transformers("transformers.audio_utils").mel_filter_bank
        slaney = {"norm": "slaney", "mel_scale": "slaney"}
        filters = torch.from_numpy(make(fft // 2 + 1, mels, 0.0, RATE / 2, RATE, **slaney))
        margin = (fft - WINDOW) // 2
        self.register_buffer("window", F.pad(window, (margin, margin)), persistent=False)
        self.register_buffer("filters", filters.float(), persistent=False)

    def energies(self, X: Tensor, X_lens: Tensor) -> Tensor:
        """X (B, S), zeros beyond X_lens → (B, T, F), T = S // SHIFT; in X's own type, even under autocast"""
        half, last = self.fft // 2, (X_lens - 1).unsqueeze(1)  # (B, 1)
        if self.reflect:
            places = torch.arange(-half, X.size(1) + half, device=X.device).abs()
            places = last - (last - places).abs()  # (B, S + N)
            X = X.gather(1, places.clamp(0, X.size(1) - 1))
        else:
            X = F.pad(X, (half, half))
        frames = X.unfold(1, self.fft, SHIFT)[:, :-1]  # (B, T, N)
        with torch.autocast(X.device.type, enabled=False):
            spectrum = torch.view_as_real(torch.fft.rfft(frames * self.window.to(X.dtype)))
            return spectrum.square().sum(-1) @ self.filters.to(X.dtype)


class WhisperMels(LogMels):
    """Waveforms → log-mels of WHISPER_RANGE decades below the loudest, about -1 to 1."""

    def __init__(self, mels: int):
        super().__init__(WINDOW, mels, torch.hann_window(WINDOW), reflect=True)

    def forward(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """X (B, S), zeros beyond X_lens → (B, T, F), zeros beyond the lengths (B,)"""
        lens = X_lens // SHIFT  # (B,)
        E = self.energies(X, X_lens).clamp(min=WHISPER_FLOOR).log10()  # (B, T, F)
        padding = length_mask(lens, E.size(1)).unsqueeze(2)
        loudest = E.masked_fill(padding, -torch.inf).amax((1, 2), keepdim=True)  # (B, 1, 1)
        return zero_padding((torch.maximum(E, loudest - WHISPER_RANGE) + 4) / 4, lens), lens


class ParakeetMels(LogMels):
    """Waveforms → log-mels, of which each bin has mean 0 and variance 1 in an utterance."""

    def __init__(self, mels: int):
        window = torch.hann_window(WINDOW, periodic=False)
        super().__init__(512, mels, window, reflect=False)

    def forward(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """X (B, S), zeros beyond X_lens → (B, T, F), zeros beyond the lengths (B,)"""
        lens = X_lens // SHIFT  # (B,)
        X = torch.cat([X[:, :1], X[:, 1:] - PREEMPHASIS * X[:, :-1]], 1)  # (B, S)
        E = (self.energies(zero_padding(X, X_lens), X_lens) + PARAKEET_FLOOR).log()  # (B, T, F)
        mean, deviation = moments(E, lens)  # (B, 1, F)
        return zero_padding((E - mean) / (deviation + PARAKEET_EPSILON), lens), lens


class KaldiMels(nn.Module):
    """Waveforms → Kaldi's filterbank in float64, of which each bin has mean 0 and variance 1 in an utterance.

    In float64 whatever the encoder's type is: bins without sound are rounding errors otherwise.
    Transformers' extractor rounds spectra, logarithms and means to float32.
    """

    window: Tensor  # (WINDOW,)
    filters: Tensor  # (N / 2 + 1, F)

    def __init__(self, mels: int):
        super().__init__()
        make = imports.transformers("transformers.audio_utils").mel_filter_bank
        kaldi = {"mel_scale": "kaldi", "triangularize_in_mel_space": True}
        filters = torch.from_numpy(make(KALDI_FFT // 2 + 1, mels, 20.0, RATE / 2, RATE, **kaldi))
        hann = torch.hann_window(WINDOW, periodic=False, dtype=torch.double)
        self.register_buffer("window", hann.pow(0.85) * INT16, persistent=False)
        self.register_buffer("filters", filters, persistent=False)

    def forward(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """X (B, S) → (B, T, F), zeros beyond the lengths (B,); a frame lies within the samples"""
        window, filters = self.window.double(), self.filters.double()
        lens = (X_lens - WINDOW) // SHIFT + 1  # (B,)
        frames = X.double().unfold(1, WINDOW, SHIFT)  # (B, T, WINDOW)
        frames = frames - frames.mean(-1, keepdim=True)
        before = torch.cat([frames[..., :1], frames[..., :-1]], -1)
        spectrum = torch.fft.rfft((frames - PREEMPHASIS * before) * window, KALDI_FFT)
        power = torch.view_as_real(spectrum).square().sum(-1)  # (B, T, N / 2 + 1)
        with torch.autocast(X.device.type, enabled=False):
            E = (power @ filters).clamp(min=KALDI_FLOOR).log()  # (B, T, F)
        mean, deviation = moments(E, lens, KALDI_EPSILON)  # (B, 1, F)
        return zero_padding((E - mean) / deviation, lens), lens


def moments(E: Tensor, lens: Tensor, epsilon: float = 0.0) -> tuple[Tensor, Tensor]:
    """Mean and deviation of an utterance's own frames, E (B, T, F) → two of (B, 1, F).

    The sum of squares is over T - 1, as transformers' extractors have it; `epsilon` is added to the
    variance.
    """
    padding = length_mask(lens, E.size(1)).unsqueeze(2)  # (B, T, 1)
    count = lens.view(-1, 1, 1)
    mean = E.masked_fill(padding, 0).sum(1, keepdim=True) / count
    squares = (E - mean).masked_fill(padding, 0).square().sum(1, keepdim=True)
    return mean, (squares / (count - 1).clamp(min=1) + epsilon).sqrt()
