"""Validation: loss, token accuracy and the word error rates of greedy search on the dev set.

What counts as a word is that of the mixed error rate (`asr.text.units`): in Mandarin, for one, each
character.
"""

from collections.abc import Iterable, Sequence

import jiwer
import torch
from torch import Tensor

from asr.data.dataset import Batch
from asr.device import autocast
from asr.models.recognizer import Recognizer
from asr.search.greedy import attention_greedy, ctc_greedy
from asr.search.hypothesis import Hypothesis
from asr.text.units import units

LONGEST = 400  # labels of a greedy hypothesis


@torch.no_grad()
def count(recognizer: Recognizer, batches: Iterable[Batch], precision: str = "fp32") -> Tensor:
    """What `metrics` are made of.

    returns   (batches, 6) float64 on the CPU: loss, correct tokens, tokens; words, errors of
              attention and of CTC greedy search
    """
    recognizer.eval()
    device = next(recognizer.parameters()).device
    counts = []
    for batch in batches:
        moved = batch.to(device)
        with autocast(device, precision):
            loss = recognizer.loss(moved.waveforms, moved.wave_lens, moved.Y, moved.Y_lens)
            attention, ctc = _greedy(recognizer, moved)
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


def _greedy(recognizer: Recognizer, batch: Batch) -> tuple[list[Hypothesis], list[Hypothesis]]:
    """The hypotheses of greedy search by attention and by CTC."""
    H, H_lens = recognizer.encode(batch.waveforms, batch.wave_lens)
    model, decoder = recognizer.model, recognizer.model.decoder
    limits = H_lens.clamp(max=LONGEST)
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
