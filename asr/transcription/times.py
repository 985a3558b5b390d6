"""Words with times: the tokens of each word, and the frames at which CTC emits them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from asr.models.recognizer import Recognizer
from asr.search.alignment import align
from asr.search.scorer import Hypothesis
from asr.text.tokenizer import Tokenizer
from asr.text.units import units
from asr.transcript import Word


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
    log_probs: Tensor, H_lens: Tensor, hypotheses: Sequence[Hypothesis], recognizer: Recognizer
) -> list[list[Word]]:
    """Align a hypothesis of each utterance with CTC.

    log_probs    (B, T', V) of the recognizer's CTC, H_lens (B,)
    hypotheses   one of each utterance
    returns      the words of each, in seconds from the beginning of its waveform; none where the
                 tokens can't be aligned
    """
    lens = [len(hypothesis.tokens) for hypothesis in hypotheses]
    Y = torch.zeros(len(lens), max(lens, default=0), dtype=torch.long)
    for row, hypothesis in zip(Y, hypotheses, strict=True):
        row[: len(hypothesis.tokens)] = torch.tensor(hypothesis.tokens)
    device = log_probs.device
    found = align(log_probs, H_lens, Y.to(device), torch.tensor(lens, device=device))
    seconds = recognizer.frame_seconds
    return [
        list(_words(hypothesis, starts[:n], ends[:n], seconds, recognizer.tokenizer)) if ok else []
        for hypothesis, starts, ends, n, ok in zip(
            hypotheses,
            found.starts.tolist(),
            found.ends.tolist(),
            lens,
            found.score.isfinite().tolist(),
            strict=True,
        )
    ]


def _words(
    hypothesis: Hypothesis,
    starts: Sequence[int],
    ends: Sequence[int],
    seconds: float,
    tokenizer: Tokenizer,
) -> Iterator[Word]:
    """Make words of a hypothesis; starts, ends: frames of its tokens; seconds: of a frame."""
    for word in words_of(hypothesis.tokens, tokenizer):
        confidence = math.prod(hypothesis.confidences[word.first : word.end])
        start, end = starts[word.first], ends[word.end - 1]
        yield Word(start * seconds, end * seconds, word.text, confidence)
