"""Plots of what a model makes of one utterance: features, CTC, words, and where its decoder looks.

T feature frames, F mel bins, T' encoder frames, V labels, U labels of the text, H heads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from asr import imports
from asr.models.recognizer import Recognizer
from asr.search.alignment import align
from asr.transcript import Word
from asr.transcription.encoding import encode
from asr.transcription.options import SearchOptions
from asr.transcription.searcher import Searcher

LONGEST = 60.0  # seconds
NAMED = 60  # labels, at most, that are written beside an axis
END = "<eos>"


@dataclass(frozen=True)
class Observation:
    """What a model makes of a waveform.

    seconds     of the waveform
    features    X (T, F), normalized as the encoder receives them
    posteriors  of CTC (T', V), 0 to 1; label 0 is the blank
    labels      of the text that was found, as text (U,)
    tokens      the same as ids (U,)
    peaks       the frame at which CTC emits each label (U,); empty if it can't emit them all
    words       with times; empty if CTC wasn't trained
    attention   of the decoder to the encoder's frames, given the text: (layers, H, U + 1, T'); the
                last row is the end's
    frame       seconds from one encoder frame to the next
    """

    seconds: float
    features: np.ndarray
    posteriors: np.ndarray
    labels: list[str]
    tokens: list[int]
    peaks: list[int]
    words: list[Word]
    attention: np.ndarray
    frame: float


@torch.no_grad()
def observe(recognizer: Recognizer, waveform: np.ndarray, options: SearchOptions) -> Observation:
    """Transcribe a waveform, (samples,) float32 at the model's rate, and keep what led to the text.

    Nobody can read the plots of one that is longer than LONGEST.
    """
    searcher = Searcher(recognizer, options)
    encoded = encode(recognizer, [waveform], chunk=searcher.chunk)
    H, H_lens = encoded.H, encoded.H_lens
    ((best, *_),) = searcher.search(H, H_lens)
    [words] = searcher.word_times(encoded, [best]) if recognizer.has_times else [[]]
    Y = torch.tensor([best.tokens], dtype=torch.long, device=H.device)
    Y_lens = torch.tensor([len(best.tokens)], device=H.device)
    log_probs = recognizer.model.ctc_log_probs(H)  # (1, T', V)
    found = align(log_probs, H_lens, Y, Y_lens)
    decoded = recognizer.model.decode(H, H_lens, Y, Y_lens, attention=True)
    symbols = recognizer.tokenizer.symbols()
    return Observation(
        max(len(waveform), recognizer.shortest_samples) / recognizer.sample_rate,
        encoded.X[0].float().cpu().numpy(),
        log_probs[0].float().exp().cpu().numpy(),
        [symbols[token] for token in best.tokens],
        list(best.tokens),
        found.starts[0].tolist() if found.score.isfinite().all() else [],
        words,
        torch.cat(list(decoded.cross)).float().cpu().numpy(),
        recognizer.frame_seconds,
    )


def utterance(seen: Observation, title: str) -> Any:
    """Draw features, CTC posteriors and words under each other, over seconds; matplotlib's Figure.

    raises   UserError if matplotlib can't be imported
    """
    width = min(40.0, max(9.0, 3.2 * seen.seconds))
    figure = imports.matplotlib("matplotlib.figure").Figure(
        (width, 7.2), dpi=100, layout="constrained"
    )
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(4, 3.4, 1.1))
    _features(top, seen)
    _posteriors(middle, seen)
    _words(bottom, seen)
    for axes in (top, middle):
        for edge in {edge for word in seen.words for edge in (word.start, word.end)}:
            axes.axvline(edge, color="#888888", lw=0.6, alpha=0.6)
    top.set_title(title, fontsize=11, loc="left", parse_math=False)
    bottom.set_xlabel("seconds")
    bottom.set_xlim(0, seen.seconds)
    return figure


def _features(axes: Any, seen: Observation) -> None:
    """Show X with its low frequencies at the bottom; colors span all but the hundredth at either end."""
    low, high = np.percentile(seen.features, (1, 99))
    bins = seen.features.shape[1]
    axes.imshow(
        seen.features.T,
        aspect="auto",
        origin="lower",
        cmap="magma",
        vmin=low,
        vmax=high,
        extent=(0, seen.seconds, -0.5, bins - 0.5),
    )
    axes.set_ylabel("mel bin")


def _posteriors(axes: Any, seen: Observation) -> None:
    """Draw the blank's probability, and over it that of each label of the text, named where CTC emits it."""
    times = (np.arange(len(seen.posteriors)) + 0.5) * seen.frame
    axes.fill_between(times, seen.posteriors[:, 0], color="#d9dde3", lw=0, label="blank")
    colors = imports.matplotlib("matplotlib").colormaps["tab10"].colors
    for n, token in enumerate(dict.fromkeys(seen.tokens)):
        axes.plot(times, seen.posteriors[:, token], color=colors[n % len(colors)], lw=1.3)
    for label, frame in zip(seen.labels, seen.peaks, strict=False):
        axes.text(times[frame], 1.04, label, ha="center", va="bottom", fontsize=9, parse_math=False)
    axes.set_ylim(0, 1.16)
    axes.set_ylabel("CTC posterior")
    axes.legend(frameon=False, fontsize=9, loc="center right")


def _words(axes: Any, seen: Observation) -> None:
    """Draw a box per word, darker the more confident it is; short words would cover each other's names in one row."""
    for n, word in enumerate(seen.words):
        known = 0.0 if math.isnan(word.confidence) else word.confidence
        middle, width = (word.start + word.end) / 2, word.end - word.start
        axes.barh(0, width, left=word.start, height=0.9, color="#1f6f9f", alpha=0.15 + 0.5 * known)
        text, height = f"{word.text} {known:.2f}", -0.22 if n % 2 else 0.22
        axes.text(middle, height, text, ha="center", va="center", fontsize=9, parse_math=False)
    axes.set_ylim(-0.6, 0.6)
    axes.set_yticks([])
    axes.set_ylabel("words")


def attention(seen: Observation, title: str) -> Any:
    """Draw the decoder's cross-attention, a panel per layer (rows) and head (columns); matplotlib's Figure.

    raises   UserError if matplotlib can't be imported
    """
    return heads(seen.attention, [*seen.labels, END], title, seen.seconds)


def heads(
    weights: np.ndarray,
    labels: Sequence[str],
    title: str,
    seconds: float | None = None,
    columns: Sequence[str] = (),
) -> Any:
    """Draw attention weights (layers, H, U, T'), a panel per layer and head; matplotlib's Figure.

    labels    of the rows, (U,)
    seconds   that the columns span, or else `columns`: their labels, (T',)
    """
    layers, heads, rows, width = weights.shape
    wide = 3.2 if seconds is not None else min(8.0, max(3.2, 0.18 * width))
    size = (1.2 + wide * heads, 0.8 + layers * min(8.0, max(2.2, 0.15 * rows)))
    right = (seconds, 0.0) if seconds is not None else (width - 0.5, -0.5)
    figure = imports.matplotlib("matplotlib.figure").Figure(size, dpi=80, layout="constrained")
    panels = figure.subplots(layers, heads, sharex=True, sharey=True, squeeze=False)
    for layer, row in enumerate(panels):
        for head, axes in enumerate(row):
            axes.imshow(
                weights[layer, head],
                aspect="auto",
                cmap="Blues",
                vmin=0,
                vmax=1,
                interpolation="nearest",
                extent=(right[1], right[0], rows - 0.5, -0.5),
            )
            axes.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=9, loc="left")
        _name(row[0], labels)
    for axes in panels[-1]:
        if seconds is not None:
            axes.set_xlabel("seconds")
        elif len(columns) <= NAMED:
            axes.set_xticks(range(width), columns, fontsize=8, rotation=90, parse_math=False)
        else:
            axes.set_xlabel("source token")
    figure.suptitle(title, fontsize=11, parse_math=False)
    return figure


def _name(axes: Any, labels: Sequence[str]) -> None:
    """Write the labels beside the axis, if there is room for them."""
    if len(labels) <= NAMED:
        axes.set_yticks(range(len(labels)), labels, fontsize=8, parse_math=False)
    else:
        axes.set_ylabel("label")
