"""Groups of utterances in threads of a CPU give what one batch does, at every kind of encoder and number of threads."""

import pytest
import torch
from contracts import encode, padded
from small import FEATURES, each, hybrid, near

from asr.transcription import encoding

KINDS = [
    "positions: rotary",
    "kind: conformer, kernel: 5, positions: relative",
    "kind: e_branchformer, kernel: 5, merge_kernel: 3, cgmlp: 14",
]
LENS = (2300, 61, 2500, 47, 33)  # two are longer than the tables of positions


def make(kind=""):
    return hybrid(f"encoder: {{{kind}}}").encoder.double().eval()


@pytest.fixture
def worth(monkeypatch):
    """Sets the frames that are worth a group."""
    return lambda least, encoder: monkeypatch.setattr(
        encoding, "WORK", least * sum(p.numel() for p in encoder.parameters())
    )


@torch.no_grad()
@each("kind", ["", *KINDS])
@each("count, least", [(1, 0), (2, 0), (2, 20), (4, 99)])
def test_groups_in_threads_give_what_one_batch_does(kind, count, least, threads, worth):
    """Tables that grow meanwhile don't disturb it; what is a group of its own is encoded as alone, to the bit."""
    X, X_lens = padded(FEATURES, LENS)
    threads(1)
    H, H_lens = encode(make(kind), X, X_lens)  # (B, T', D)
    alone, _ = encode(make(kind), X[1:2, :61], X_lens[1:2])
    threads(count)
    encoder = make(kind)
    worth(least, encoder)
    found = encoding.encode_features(encoder, X, X_lens)
    assert found.H_lens.equal(H_lens)
    for row, expected, T in zip(found.H, H, H_lens.tolist(), strict=True):
        near(row[:T], expected[:T], 1e-9)
    if not least:
        near(found.H[1, : alone.size(1)], alone[0])


@torch.no_grad()
def test_threads_compute_in_the_precision_that_is_asked_for(threads, worth):
    encoder, (X, X_lens), kinds = make().float(), padded(FEATURES, LENS[1::2]), []
    worth(0, encoder)
    threads(2)
    encoder.layers[0].ff.inner.register_forward_hook(lambda *some: kinds.append(some[2].dtype))
    for precision in ("fp32", "bf16"):
        encoding.encode_features(encoder, X.float(), X_lens, precision)
    assert kinds == [torch.float32] * 2 + [torch.bfloat16] * 2


def test_groups_are_of_similar_length_and_large_enough():
    assert encoding.group([7, 3, 9, 1, 3, 8, 2], 10) == [[2, 5], [0, 1], [4, 6, 3]]
