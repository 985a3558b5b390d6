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
    sums = torch.stack([scores, (scores / H_lens).exp()], 1)  # (B, 2)
    packed = torch.cat(
        [sums, labels, best.exp(), kept], 1
    ).cpu()  # (B, 2 + 3 · T) float64: one wait
    frames = packed[:, 2:].unflatten(1, (3, -1))  # (B, 3, T)
    return [
        Hypothesis(
            y[keep > 0].long().tolist(), score, {"ctc": score}, "end", p[keep > 0].tolist(), mean
        )
        for (y, p, keep), (score, mean) in zip(frames, packed[:, :2].tolist(), strict=True)
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
    packed = torch.cat([cut.unsqueeze(1), Y, gains], 1)  # (B, 1 + 2 · U) float64: one wait
    return [_hypothesis(*row, sos_eos=sos_eos) for row in packed.tolist()]


def _hypothesis(cut: float, *steps: float, sos_eos: int) -> Hypothesis:
    U = len(steps) // 2
    tokens, gains = [int(y) for y in steps[:U] if y != sos_eos], steps[U:]
    score = sum(gains)
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
