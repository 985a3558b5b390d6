"""Greedy search: the best label at every frame (CTC) or at every step (attention); batched over utterances.

B batch, T encoder frames, V vocabulary, U steps.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from asr.nn.masks import length_mask
from asr.search.hypothesis import Hypothesis

BLANK = 0


@torch.no_grad()
def ctc_greedy(log_probs: Tensor, H_lens: Tensor) -> list[Hypothesis]:
    """Best label a frame, repetitions merged, blanks (id 0) removed.

    log_probs:  (B, T, V), H_lens: (B,)
    returns     B hypotheses; the score is that of the best alignment
    """
    best, labels = log_probs.max(-1)  # (B, T)
    padding = length_mask(H_lens, labels.size(1))  # (B, T)
    repeated = torch.zeros_like(padding)
    repeated[:, 1:] = labels[:, 1:] == labels[:, :-1]
    kept = ~(padding | repeated | (labels == BLANK))  # (B, T)
    scores = best.double().masked_fill(padding, 0.0).sum(1).tolist()
    tokens = [row[keep].tolist() for row, keep in zip(labels.cpu(), kept.cpu(), strict=True)]
    return [Hypothesis(t, s, {"ctc": s}) for t, s in zip(tokens, scores, strict=True)]


@torch.no_grad()
def attention_greedy(step: Callable, state: object, B: int, sos_eos: int, limits: Tensor) -> list[Hypothesis]:
    """Best label a step until every utterance has ended: beam search with a beam of 1, by a plainer loop.

    step:     (y (B,), state) → logits (B, V), state; reads a label, scores the next
    sos_eos:  id of the start/end symbol
    limits:   (B,) int, labels at most
    """
    y = torch.full((B,), sos_eos, device=limits.device)
    scores = torch.zeros(B, dtype=torch.float64, device=y.device)
    alive, cut = torch.ones_like(y, dtype=torch.bool), torch.zeros_like(y, dtype=torch.bool)
    steps = []
    for u in range(int(limits.max()) + 1):
        logits, state = step(y, state)
        log_probs = logits.float().log_softmax(-1)  # (B, V)
        log_probs[:, BLANK] = -torch.inf  # the blank is no label
        y = log_probs.argmax(-1)
        cut |= alive & (limits <= u) & (y != sos_eos)
        y = y.masked_fill((limits <= u) | ~alive, sos_eos)
        scores += log_probs.gather(1, y.unsqueeze(1)).squeeze(1).masked_fill(~alive, 0.0)
        steps.append(y)
        alive &= y != sos_eos
        if not alive.any():
            break
    tokens = [[label for label in row if label != sos_eos] for row in torch.stack(steps, 1).tolist()]  # (B, U)
    return [
        Hypothesis(t, s, {"attention": s}, not c) for t, s, c in zip(tokens, scores.tolist(), cut.tolist(), strict=True)
    ]
