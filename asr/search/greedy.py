"""Greedy search: the best label at every frame (CTC) or at every step (attention); batched over utterances.

B batch, T encoder frames, V vocabulary, U steps.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from asr.search.hypothesis import Hypothesis


def ctc_greedy(log_probs: Tensor, H_lens: Tensor) -> list[Hypothesis]:
    """Best label a frame, repetitions merged, blanks (id 0) removed.

    log_probs:  (B, T, V), H_lens: (B,)
    returns     B hypotheses; the score is that of the best alignment
    """
    best, labels = log_probs.max(-1)  # (B, T)
    real = torch.arange(labels.size(1), device=labels.device) < H_lens.unsqueeze(1)  # (B, T)
    repeated = torch.zeros_like(real)
    repeated[:, 1:] = labels[:, 1:] == labels[:, :-1]
    kept = real & ~repeated & (labels != 0)  # (B, T)
    scores = (best * real).sum(1).tolist()
    tokens = [row[keep].tolist() for row, keep in zip(labels.cpu(), kept.cpu(), strict=True)]
    return [Hypothesis(t, s, {"ctc": s}) for t, s in zip(tokens, scores, strict=True)]


def attention_greedy(step: Callable, state: object, B: int, sos_eos: int, limits: Tensor) -> list[Hypothesis]:
    """Best label a step until every utterance has ended.

    step:     (y (B,), state) → logits (B, V), state; reads a label, scores the next
    sos_eos:  id of the start/end symbol
    limits:   (B,) int, labels at most
    """
    y = torch.full((B,), sos_eos, device=limits.device)
    alive, scores, steps = torch.ones_like(y, dtype=torch.bool), torch.zeros(B, device=y.device), []
    for u in range(int(limits.max()) + 1):
        logits, state = step(y, state)
        log_probs = logits.float().log_softmax(-1)  # (B, V)
        log_probs[:, 0] = -torch.inf  # the blank is no label
        full = limits <= u
        best, y = log_probs.max(-1)
        y = torch.where(full, sos_eos, y)
        scores += torch.where(alive & ~full, best, 0)
        y = torch.where(alive, y, sos_eos)
        steps.append(y)
        ended_by_limit = alive & full if u == 0 else ended_by_limit | (alive & full)
        alive = alive & (y != sos_eos)
        if not alive.any():
            break
    columns = torch.stack(steps, 1).cpu()  # (B, U)
    tokens = [row[row != sos_eos].tolist() for row in columns]
    cut = ended_by_limit.tolist()
    return [Hypothesis(t, s, {"attention": s}, not c) for t, s, c in zip(tokens, scores.tolist(), cut, strict=True)]
