"""Validation: loss, token accuracy and the word error rates of greedy search on the dev set."""

from collections.abc import Iterable

import jiwer
import torch

from asr.data.batches import Batch
from asr.models.recognizer import Recognizer
from asr.search.greedy import attention_greedy, ctc_greedy
from asr.training.device import autocast


@torch.no_grad()
def validate(recognizer: Recognizer, batches: Iterable[Batch], precision: str = "fp32") -> dict[str, float]:
    """Figures of a recogniser on batches.

    returns   loss (per target token), accuracy, wer (attention greedy) and ctc_wer (CTC greedy), the rates as fractions
    """
    recognizer.eval()
    device = next(recognizer.parameters()).device
    sums = {"loss": 0.0, "correct": 0.0, "tokens": 0.0}
    references, attention, ctc = [], [], []
    for batch in batches:
        batch = batch.to(device)
        with autocast(device, precision):
            loss = recognizer.loss(batch.waveforms, batch.wave_lens, batch.Y, batch.Y_lens)
            H, H_lens = recognizer.encode(batch.waveforms, batch.wave_lens)
            decoder = recognizer.model.decoder
            state, limits = decoder.start(H, H_lens), H_lens.clamp(max=400)
            attention += attention_greedy(decoder.step, state, len(H), recognizer.model.sos_eos, limits)
            ctc += ctc_greedy(recognizer.model.ctc_log_probs(H), H_lens)
        sums["loss"] += float(loss.total)
        sums["correct"] += float(loss.correct)
        sums["tokens"] += float(loss.tokens)
        references += [y[:n].tolist() for y, n in zip(batch.Y, batch.Y_lens, strict=True)]
    decode = recognizer.tokenizer.decode
    texts = [decode(y) for y in references]
    return {
        "loss": sums["loss"] / sums["tokens"],
        "accuracy": sums["correct"] / sums["tokens"],
        "wer": jiwer.wer(texts, [decode(h.tokens) for h in attention]),
        "ctc_wer": jiwer.wer(texts, [decode(h.tokens) for h in ctc]),
    }
