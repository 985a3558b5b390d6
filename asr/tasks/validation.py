"""Validation: loss, token accuracy, the word error rates of greedy search on the dev set, and alignments to look at.

What counts as a word is that of the mixed error rate (`asr.text.units`): in Mandarin, for one, each
character.

B batch, U labels, T' encoder frames, H attention heads.
"""

from collections.abc import Iterable, Sequence

import jiwer
import numpy as np
import torch
from torch import Tensor

from asr.data.batches import Batch
from asr.device import autocast
from asr.models.hybrid import Hybrid
from asr.models.recognizer import Recognizer
from asr.search.greedy import attention_greedy, ctc_greedy
from asr.search.scorer import Hypothesis
from asr.text.units import units


@torch.no_grad()
def alignments(recognizer: Recognizer, batch: Batch, n: int) -> dict[str, Tensor]:
    """Attention of the decoder to the encoder's frames, given the labels: of the head that aligns most.

    Each utterance has its own head, the one whose weights lie most on a path of increasing frames:
    some heads align, others watch the ends or spread, and the mean shows neither (AN4's and mini's
    models, four utterances each: on that path lie 18 to 44 % of such a head's weight, 12 to 23 % of
    the mean's). The recognizer is left in evaluation mode.

    n        of the batch's first utterances
    returns  utterance id → (U + 1, T') float32 on the CPU, rows that sum to 1; the last row is
             <eos>'s
    """
    recognizer.eval()
    H, H_lens = recognizer.encode(batch.waveforms[:n], batch.wave_lens[:n])  # (n, T', D)
    decoded = recognizer.model.decode(H, H_lens, batch.Y[:n], batch.Y_lens[:n], attention=True)
    heads = torch.cat(list(decoded.cross), 1).float().cpu()  # (n, layers · H, U + 1, T')
    return {
        id: most_aligned(weights[:, : U + 1, :T])
        for id, weights, U, T in zip(
            batch.ids[:n], heads, batch.Y_lens.tolist(), H_lens.tolist(), strict=False
        )
    }


def most_aligned(heads: Tensor) -> Tensor:
    """Of weights (H, U, T'), those (U, T') that have the largest sum along a path t_0 < t_1 < … < t_(U - 1).

    Of heads that are equal the first; nothing else is asked of labels that outnumber the frames.
    """
    paths = heads[:, 0]  # (H, T'), the best that ends in each frame
    for weights in heads.unbind(1)[1:]:
        before = paths.cummax(1).values.roll(1, 1)
        before[:, 0] = -torch.inf
        paths = weights + before
    return heads[paths.amax(1).argmax()]


def middle(durations: Sequence[float] | np.ndarray, ids: Sequence[str], n: int) -> list[int]:
    """Indices of n utterances of about median length, shortest first; the order of the utterances doesn't matter."""
    order = sorted(range(len(ids)), key=lambda index: (durations[index], ids[index]))
    first = max(0, (len(order) - n) // 2)
    return order[first : first + n]


LONGEST = 400  # labels of a greedy hypothesis


@torch.no_grad()
def count(recognizer: Recognizer, batches: Iterable[Batch], precision: str = "fp32") -> Tensor:
    """What `metrics` are made of.

    returns   (batches, 6) float64 on the CPU: loss, correct tokens, tokens; words, errors of
              attention and of CTC greedy search
    """
    model = recognizer.eval().model
    device = next(recognizer.parameters()).device
    counts = []
    for batch in batches:
        moved = batch.to(device)
        with autocast(device, precision):
            X, X_lens = recognizer.frontend(moved.waveforms, moved.wave_lens)  # (B, T, F)
            encoded = model.encoder(X, X_lens)
            loss = model.loss(X, X_lens, moved.Y, moved.Y_lens, encoded=encoded)
            attention, ctc = _greedy(model, encoded.H, encoded.H_lens)
        references = [
            _words(recognizer, y[:n].tolist()) for y, n in zip(batch.Y, batch.Y_lens, strict=True)
        ]
        words = sum(len(text.split()) for text in references)
        errors = [_errors(recognizer, references, hypotheses) for hypotheses in (attention, ctc)]
        counts.append([float(loss.total), float(loss.correct), float(loss.tokens), words, *errors])
    return torch.tensor(counts, dtype=torch.float64).view(-1, 6)


def metrics(counts: Tensor) -> dict[str, float]:
    """Metrics of a dev set, of the sum of its counts, (6,).

    returns   loss (per target token), accuracy, wer (attention greedy) and ctc_wer (CTC greedy),
              the rates as fractions
    """
    loss, correct, tokens, words, attention, ctc = counts.tolist()
    return {
        "loss": loss / tokens,
        "accuracy": correct / tokens,
        "wer": attention / words,
        "ctc_wer": ctc / words,
    }


def _greedy(model: Hybrid, H: Tensor, H_lens: Tensor) -> tuple[list[Hypothesis], list[Hypothesis]]:
    """The hypotheses of greedy search by attention and by CTC, of H (B, T', D)."""
    decoder, limits = model.decoder, H_lens.clamp(max=LONGEST)
    attention = attention_greedy(
        decoder.step, decoder.start(H, H_lens), len(H), model.sos_eos, limits
    )
    return attention, ctc_greedy(model.ctc_log_probs(H), H_lens)


def _errors(recognizer: Recognizer, references: list[str], hypotheses: Sequence[Hypothesis]) -> int:
    output = jiwer.process_words(references, [_words(recognizer, h.tokens) for h in hypotheses])
    return output.substitutions + output.deletions + output.insertions


def _words(recognizer: Recognizer, ids: Sequence[int]) -> str:
    """The text of token ids with spaces between all that counts as a word."""
    return " ".join(units(recognizer.tokenizer.decode(ids)))
