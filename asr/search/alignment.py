"""CTC alignment: the frames of each label on the most probable path, for a batch of known label sequences.

The Viterbi algorithm takes a step per label here, not per frame. A path that enters a state at frame
t and is still there at frame s gains E(s) − E(t − 1), with E the running sum of the state's
emissions. So the best entry for every s is a running maximum over t, which also tells when the
state was entered.

B utterances, T encoder frames, V vocabulary, U labels.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from asr.ops import BLANK

LEAST = -1e6  # an emission of −∞ counts as this, so that sums stay finite


class Alignment(NamedTuple):
    """The frames of labels on the best path.

    starts, ends  (B, U) int64: label u emits at the frames starts ≤ t < ends; 0 beyond Y_lens, and
                  where there is no path
    score         (B,) float64, log probability of the path; −∞ where there is none
    """

    starts: Tensor
    ends: Tensor
    score: Tensor


@torch.no_grad()
def align(log_probs: Tensor, H_lens: Tensor, Y: Tensor, Y_lens: Tensor) -> Alignment:
    """Find the best CTC path of label sequences (Graves et al. 2006, with a maximum in place of the sum).

    log_probs:  (B, T, V), H_lens: (B,) int; what stands beyond is never read
    Y:          (B, U) int, labels, padded with anything; Y_lens: (B,) int
    """
    (B, T, _), U, device = log_probs.shape, Y.size(1), log_probs.device
    labels = Y.masked_fill(torch.arange(U, device=device) >= Y_lens.unsqueeze(1), BLANK)  # (B, U)
    padding = torch.arange(T, device=device) >= H_lens.unsqueeze(1)  # (B, T)

    def sums(emissions: Tensor) -> Tensor:
        """(..., B, T) → (..., B, T + 1) float64, the sum of the emissions before each frame."""
        real = emissions.double().clamp(min=LEAST).masked_fill(padding, 0.0)
        return F.pad(real.cumsum(-1), (1, 0))

    def stay(entering: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Best score in a state before each frame (B, T + 1); when it was entered (B, T)."""
        gain, entry = (entering - sums[:, :-1]).cummax(1)
        return F.pad(sums[:, 1:] + gain, (1, 0), value=-torch.inf), entry

    spoken = log_probs.gather(2, labels.unsqueeze(1).expand(B, T, U)).permute(2, 0, 1)  # (U, B, T)
    in_labels, in_blanks = sums(spoken), sums(log_probs[..., BLANK])
    same = F.pad(labels[:, 1:] == labels[:, :-1], (1, 0), value=True).T.unsqueeze(2)  # (U, B, 1)
    last = H_lens.unsqueeze(1)  # (B, 1)
    blank, label = in_blanks, torch.full_like(in_blanks, -torch.inf)  # (B, T + 1)
    finals = [(blank.gather(1, last), label.gather(1, last))]
    entries: list[tuple[Tensor, Tensor, Tensor]] = []
    for u in range(U):
        direct = label[:, :-1].masked_fill(same[u], -torch.inf)  # (B, T), from the label before
        paused = blank[:, :-1]  # (B, T), from the blank before
        label, begun = stay(torch.maximum(direct, paused), in_labels[u])
        blank, rested = stay(label[:, :-1], in_blanks)
        finals.append((blank.gather(1, last), label.gather(1, last)))
        entries.append((begun, direct > paused, rested))
    in_blank, in_label = (
        torch.cat(ends, 1).gather(1, Y_lens.unsqueeze(1)).squeeze(1)
        for ends in zip(*finals, strict=True)
    )  # (B,)
    score = torch.maximum(in_blank, in_label)
    possible = (score > LEAST / 2) & (H_lens > 0)
    starts, ends = _trace(entries, H_lens, Y_lens, in_blank > in_label, possible)
    return Alignment(starts, ends, score.masked_fill(~possible, -torch.inf))


def _trace(
    entries: list[tuple[Tensor, Tensor, Tensor]],
    H_lens: Tensor,
    Y_lens: Tensor,
    in_blank: Tensor,
    possible: Tensor,
) -> tuple[Tensor, Tensor]:
    """Follow the best paths back from their ends.

    entries   by label, each (B, T): the frame at which the label was entered; whether from the label
              before, not from the blank; the frame at which the blank after it was entered
    in_blank  (B,) bool, whether the path ends in a blank
    returns   starts (B, U), ends (B, U)
    """
    B, U = len(H_lens), len(entries)
    starts, ends = H_lens.new_zeros(2, U, B)
    at, paused = H_lens.clone(), in_blank.clone()  # the state left of frame `at`
    for u in range(U - 1, -1, -1):
        begun, direct, rested = entries[u]
        active = (u < Y_lens) & possible
        before = (at - 1).clamp(min=0).unsqueeze(1)
        end = torch.where(paused, rested.gather(1, before).squeeze(1), at)
        start = begun.gather(1, (end - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
        came = direct.gather(1, start.unsqueeze(1)).squeeze(1)
        starts[u], ends[u] = start.where(active, starts[u]), end.where(active, ends[u])
        at, paused = start.where(active, at), (~came).where(active, paused)
    return starts.T, ends.T
