"""Words with times: the tokens of each word, the frames at which CTC emits them, and where the word really begins."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from asr.models.boundaries import Boundaries, Example, WordSpan, learn
from asr.models.recognizer import Recognizer
from asr.search.alignment import align
from asr.search.scorer import Hypothesis
from asr.text.tokenizer import Tokenizer
from asr.text.units import units
from asr.transcript import Token, Word

AROUND = 0.2  # seconds of a recording beside the words whose boundaries are looked for
PAUSE = 0.4  # seconds between words that are looked for apart
LONGEST = 30.0  # seconds in which they are looked for together


class Encoded(NamedTuple):
    """Encoder outputs of a batch, H (B, T', D), H_lens (B,), and their features, X (B, T, F), X_lens (B,)."""

    H: Tensor
    H_lens: Tensor
    X: Tensor
    X_lens: Tensor

    def rows(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield what is an utterance's own, H (T', D) and X (T, F)."""
        lens = zip(self.H_lens.tolist(), self.X_lens.tolist(), strict=True)
        for H, X, (T_H, T_X) in zip(self.H, self.X, lens, strict=True):
            yield H[:T_H], X[:T_X]

    @staticmethod
    def of(rows: Iterable[tuple[Tensor, Tensor]]) -> "Encoded":
        """Pad what is each utterance's own."""
        sides = [list(side) for side in zip(*rows, strict=True)]
        lens = [torch.tensor([*map(len, side)], device=side[0].device) for side in sides]
        H, X = (pad_sequence(side, batch_first=True) for side in sides)
        return Encoded(H, lens[0], X, lens[1])


@dataclass(frozen=True)
class TokenWord:
    """A word, or a character of a script without spaces, and its tokens first ≤ n < end."""

    text: str
    first: int
    end: int


def words_of(tokens: Sequence[int], tokenizer: Tokenizer) -> list[TokenWord]:
    """Group the tokens of a text into words; tokens that write nothing, such as spaces, are left out.

    A token that writes several words, as some of Chinese do, belongs to each of them.
    """
    words: list[TokenWord] = []
    first, done = 0, 0  # the token with which the current word begins; words of that which are over
    text, end = "", 0  # what the current word is so far, and the token after its last one

    def written(first: int, end: int) -> list[str]:
        return units(tokenizer.decode(tokens[first:end]))

    for n in range(len(tokens)):
        parts = written(first, n + 1)[done:]
        if parts in ([], [text]):
            continue
        if not text and written(n, n + 1) == parts:
            first = n
        if len(parts) > 1:
            if text:
                words.append(TokenWord(parts[0], first, end if parts[0] == text else n + 1))
                parts = parts[1:]
            words += [TokenWord(part, n, n + 1) for part in parts[:-1]]
            first, done = n, max(0, len(written(n, n + 1)) - 1)
        text, end = parts[-1], n + 1
    return [*words, TokenWord(text, first, end)] if text else words


@torch.no_grad()
def word_times(
    log_probs: Tensor,
    encoded: Encoded,
    hypotheses: Sequence[Hypothesis],
    recognizer: Recognizer,
) -> list[list[Word]]:
    """Align a hypothesis of each utterance with CTC, and see where its words begin and end.

    log_probs    (B, T', V) of the recognizer's CTC
    hypotheses   one of each utterance
    returns      the words of each, in seconds from the beginning of its waveform; none where the
                 tokens can't be aligned
    """
    texts = [h.tokens for h in hypotheses]
    words, places, starts = _aligned(log_probs, encoded.H_lens, texts, recognizer)
    factor, symbols = recognizer.model.encoder.subsampling.factor, recognizer.tokenizer.symbols()
    extractor, offset = recognizer.frontend.extractor, 0.0
    if recognizer.boundaries:
        places = recognizer.boundaries.refine(encoded.X, encoded.X_lens, places)
        # between two frames: in the middle of what both have of the waveform
        offset = (extractor.frame_samples - extractor.shift_samples) / 2

    def seconds(frame: int) -> float:
        return (offset + frame * extractor.shift_samples) / extractor.sample_rate

    def timed(h: Hypothesis, word: TokenWord, at: WordSpan, starts: Sequence[int]) -> Word:
        own = range(word.first, word.end)
        inner = [min(max(factor * starts[n], at.first), at.end) for n in own[1:]]
        edges = [seconds(frame) for frame in (at.first, *inner, at.end)]
        confidences = [h.confidences[n] for n in own]
        tokens = [
            Token(start, end, symbols[h.tokens[n]], confidence)
            for start, end, n, confidence in zip(
                edges[:-1], edges[1:], own, confidences, strict=True
            )
        ]
        return Word(edges[0], edges[-1], word.text, math.prod(confidences), tuple(tokens))

    return [
        [timed(h, word, at, begun) for word, at in zip(row, found, strict=True)]
        for h, row, found, begun in zip(hypotheses, words, places, starts, strict=True)
    ]


def place(
    log_probs: Tensor, H_lens: Tensor, texts: Sequence[Sequence[int]], recognizer: Recognizer
) -> tuple[list[list[TokenWord]], list[list[WordSpan]]]:
    """Find the words of texts and their frames of features by CTC; none where tokens can't be aligned."""
    return _aligned(log_probs, H_lens, texts, recognizer)[:2]


def _aligned(
    log_probs: Tensor, H_lens: Tensor, texts: Sequence[Sequence[int]], recognizer: Recognizer
) -> tuple[list[list[TokenWord]], list[list[WordSpan]], list[list[int]]]:
    """As `place`; and the encoder frames with which CTC begins to emit each token."""
    lens = [len(tokens) for tokens in texts]
    Y = pad_sequence([torch.tensor(tokens, dtype=torch.long) for tokens in texts], batch_first=True)
    found = align(log_probs, H_lens, Y.to(H_lens.device), torch.tensor(lens, device=H_lens.device))
    factor = recognizer.model.encoder.subsampling.factor
    words = [
        words_of(tokens, recognizer.tokenizer) if ok else []
        for tokens, ok in zip(texts, found.score.isfinite().tolist(), strict=True)
    ]
    starts, ends = found.starts.tolist(), found.ends.tolist()
    places = [
        [WordSpan(w.text, factor * begun[w.first], factor * over[w.end - 1]) for w in row]
        for row, begun, over in zip(words, starts, ends, strict=True)
    ]
    return words, places, starts


@torch.no_grad()
def refined(
    recognizer: Recognizer, read: Callable[[int, int], np.ndarray], words: Sequence[Word]
) -> list[Word]:
    """Find where words of a recording begin and end, near their times by CTC, in seconds from its beginning.

    read  (first sample, samples) → waveform at the recognizer's rate
    """
    if not recognizer.boundaries:
        return list(words)
    fbank, moved = recognizer.frontend.extractor, list(words)
    rate, hop, device = fbank.sample_rate, fbank.shift_samples, recognizer.boundaries.bias.device
    for group in _groups(words):
        begin = max(0, round((words[group[0]].start - AROUND) * rate) // hop)  # in frames
        end = round((words[group[-1]].end + AROUND) * rate)
        waveform = read(begin * hop, max(end - begin * hop, fbank.frame_samples))
        X, X_lens = recognizer.frontend(
            torch.from_numpy(waveform)[None].to(device),
            torch.tensor([len(waveform)], device=device),
        )  # (1, T, F)
        times = [(words[n].start * rate / hop, words[n].end * rate / hop) for n in group]
        places = [
            WordSpan(words[n].text, round(a) - begin, round(b) - begin)
            for n, (a, b) in zip(group, times, strict=True)
        ]
        [found] = recognizer.boundaries.refine(X, X_lens, [places])
        offset = begin * hop + (fbank.frame_samples - hop) / 2
        for n, place in zip(group, found, strict=True):
            first, last = ((offset + frame * hop) / rate for frame in place[1:])
            moved[n] = replace(words[n], start=first, end=last)
    return moved


def _groups(words: Sequence[Word]) -> Iterator[list[int]]:
    """Number words that are heard, apart at pauses, and where a group would become long."""
    group: list[int] = []
    for n, word in enumerate(words):
        if word.start == word.end:
            continue
        last = words[group[-1]].end if group else word.start
        if group and (word.start - last > PAUSE or word.end - words[group[0]].start > LONGEST):
            yield group
            group = []
        group.append(n)
    if group:
        yield group


@torch.no_grad()
def learn_boundaries(
    recognizer: Recognizer, batches: Iterable[tuple[Encoded, Sequence[Sequence[int]]]]
) -> Boundaries | None:
    """Learn where words begin and end from utterances and their texts, as tokens; None if there are too few."""
    examples = []
    for encoded, texts in batches:
        log_probs = recognizer.model.ctc_log_probs(encoded.H)  # (B, T', V)
        _, places = place(log_probs, encoded.H_lens, texts, recognizer)
        examples += [Example(X, at) for (_, X), at in zip(encoded.rows(), places, strict=True)]
    return learn(examples)
