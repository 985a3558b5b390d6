"""Rescoring: the attention decoder scores the complete hypotheses of another search, and reorders them.

B utterances, N hypotheses of each at most, U labels, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from asr.search.scorer import Hypothesis

SCORES = 1 << 25  # label scores at once: bounds the memory


@torch.no_grad()
def rescore(
    nbests: Sequence[Sequence[Hypothesis]],
    decoder: Callable[[Tensor, Tensor, Tensor], Tensor],
    H: Tensor,
    H_lens: Tensor,
    sos_eos: int,
    weight: float,
    vocabulary: int,
) -> list[list[Hypothesis]]:
    """Add attention's score at CTC's expense: score + weight · (ln p(labels, end | H) - CTC's score).

    If CTC's weight was 1 in the search, the sum is that of the joint search.

    decoder:  (Y (B·N, U), H (B, T, D), H_lens (B,)) → logits (B·N, U, V), N rows for each of H
    nbests:   whose scores include "ctc"
    returns   the lists, best first, with the scores added as "attention"
    """
    N, U = (
        max(map(len, nbests), default=0),
        max((len(h.tokens) for nbest in nbests for h in nbest), default=0),
    )
    if not N:
        return [list(nbest) for nbest in nbests]
    rows = max(1, SCORES // (N * (U + 1) * vocabulary))  # utterances at once
    found = []
    for b in range(0, len(nbests), rows):
        part = nbests[b : b + rows]
        scores = _score(
            part, N, decoder, H[b : b + rows], H_lens[b : b + rows], sos_eos
        )  # (rows, N)
        found += [
            _sort(nbest, row, weight) for nbest, row in zip(part, scores.tolist(), strict=True)
        ]
    return found


def _score(
    nbests: Sequence[Sequence[Hypothesis]],
    N: int,
    decoder: Callable[[Tensor, Tensor, Tensor], Tensor],
    H: Tensor,
    H_lens: Tensor,
    sos_eos: int,
) -> Tensor:
    """Return ln p of each hypothesis, (B, N)."""
    rows = [h.tokens for nbest in nbests for h in nbest] + [[]]
    filled = torch.tensor(
        [[n < len(nbest) for n in range(N)] for nbest in nbests]
    ).flatten()  # (B·N,)
    index = (filled.cumsum(0) - 1).masked_fill(~filled, len(rows) - 1)
    labels = [torch.tensor(rows[n], dtype=torch.long) for n in index.tolist()]
    Y = pad_sequence([torch.cat([torch.tensor([sos_eos]), y]) for y in labels], True, sos_eos).to(
        H.device
    )
    targets = pad_sequence([torch.cat([y, torch.tensor([sos_eos])]) for y in labels], True, -1).to(
        H.device
    )
    log_probs = decoder(Y, H, H_lens).float().log_softmax(-1)  # (B·N, U + 1, V)
    scores = log_probs.gather(2, targets.clamp(min=0).unsqueeze(2)).squeeze(2)  # (B·N, U + 1)
    return scores.masked_fill(targets < 0, 0.0).double().sum(1).view(len(nbests), N)


def _sort(
    nbest: Sequence[Hypothesis], attention: Sequence[float], weight: float
) -> list[Hypothesis]:
    """Add attention's scores; best first."""
    rescored = [
        replace(
            h, score=h.score + weight * (a - h.scores["ctc"]), scores={"attention": a, **h.scores}
        )
        for h, a in zip(nbest, attention, strict=False)  # the list may be shorter than the longest
    ]
    return sorted(rescored, key=lambda h: -h.score)
