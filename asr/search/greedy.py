"""Greedy search: the best label at every frame (CTC) or at every step (attention); batched over utterances.

B batch, T encoder frames, V vocabulary, U steps.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from asr.ops import BLANK, length_mask
from asr.search.scorer import Hypothesis


@torch.no_grad()
def ctc_greedy(log_probs: Tensor, H_lens: Tensor) -> list[Hypothesis]:
    """Take the best label of every frame, merge repetitions and remove blanks (id 0).

    log_probs:  (B, T, V), H_lens: (B,)
    returns     B hypotheses; the score is that of the best alignment
    """
    best, labels = log_probs.max(-1)  # (B, T)
    padding = length_mask(H_lens, labels.size(1))  # (B, T)
    repeated = torch.zeros_like(padding)
    repeated[:, 1:] = labels[:, 1:] == labels[:, :-1]
    kept = ~(padding | repeated | (labels == BLANK))  # (B, T)
    scores = best.double().masked_fill(padding, 0.0).sum(1)
    means = (scores / H_lens).exp().tolist()
    rows = zip(*(x.cpu() for x in (labels, best.exp(), kept)), scores.tolist(), means, strict=True)
    return [
        Hypothesis(y[keep].tolist(), score, {"ctc": score}, "end", p[keep].tolist(), mean)
        for y, p, keep, score, mean in rows
    ]


@torch.no_grad()
def attention_greedy(
    step: Callable, state: object, B: int, sos_eos: int, limits: Tensor
) -> list[Hypothesis]:
    """Take the best label at every step until all utterances have ended.

    This is beam search with a beam of 1, in a plainer loop and without its guard against loops.

    step:     (y (B, 1), state) → logits (B, 1, V), state; reads a label, scores the next
    sos_eos:  id of the start/end symbol
    limits:   (B,) int, labels at most
    """
    y = torch.full((B, 1), sos_eos, device=limits.device)
    alive, cut = (
        torch.ones_like(limits, dtype=torch.bool),
        torch.zeros_like(limits, dtype=torch.bool),
    )
    steps, scores = [], []
    for u in range(int(limits.max()) + 1):
        logits, state = step(y, state)
        log_probs = logits[:, 0].float().log_softmax(-1)  # (B, V)
        log_probs[:, BLANK] = -torch.inf  # the blank is no label
        y = log_probs.argmax(-1)
        cut |= alive & (limits <= u) & (y != sos_eos)
        y = y.masked_fill((limits <= u) | ~alive, sos_eos).unsqueeze(1)  # (B, 1)
        scores.append(log_probs.gather(1, y).double().masked_fill(~alive.unsqueeze(1), 0.0))
        steps.append(y)
        alive &= y.squeeze(1) != sos_eos
        if not alive.any():
            break
    Y, gains = torch.cat(steps, 1), torch.cat(scores, 1)  # (B, U), (B, U)
    return [
        _hypothesis(*row, sos_eos)
        for row in zip(Y.tolist(), gains.tolist(), cut.tolist(), strict=True)
    ]


def _hypothesis(Y: list[int], gains: list[float], cut: bool, sos_eos: int) -> Hypothesis:
    tokens, score = [y for y in Y if y != sos_eos], sum(gains)
    confidences = [math.exp(g) for g in gains]
    mean = math.exp(score / (len(tokens) + 1))
    return Hypothesis(
        tokens,
        score,
        {"attention": score},
        "limit" if cut else "end",
        confidences[: len(tokens)],
        mean,
    )
