"""Prove that the decoder step by step is the decoder at once: step(y, state) = forward, for any hypotheses.

The reference is `forward` on the whole prefix of each hypothesis, in float64.
"""

import torch
from contracts import padded
from scorers import check_walk
from small import PART, each, hybrid, near, noise, options
from torch import nn
from torch.testing import assert_close

from asr.models.hybrid import DecoderSettings
from asr.nn.decoder import TransformerDecoder
from asr.nn.packed import PackedLinear, pack
from asr.search.neural import NetworkScorer, NetworkState
from asr.transcription.searcher import for_search

V, SOS = 11, 10
H, H_LENS = noise(3, 6, 7, seed=2), torch.tensor([6, 2, 4])
SHAPES = ["norm: pre", "norm: post", "tied: true", "d_k: 5, d_v: 3", "activation: swish"]


def build(shape=""):
    """A decoder with weights so large that a mistake shows."""
    torch.manual_seed(1)
    settings = DecoderSettings(**PART | options(shape))
    decoder = TransformerDecoder(settings, V, 7).double().eval()
    if settings.tied:
        decoder.tie()
    for parameter in decoder.parameters():
        parameter.data += torch.randn_like(parameter) * 0.2
    return decoder


def whole(decoder, Y):
    """Logits (B, K, U, V) of each hypothesis of Y (B, K, U) at once."""
    rows = torch.arange(3).repeat_interleave(Y.size(1))
    return decoder(Y.flatten(0, 1), H[rows], H_LENS[rows]).logits.unflatten(0, (3, -1))


def walk(decoder, state, Y):
    """Logits (B, K, U, V) of stepping through Y (B, K, U)."""
    steps = []
    for y in Y.unbind(2):
        logits, state = decoder.step(y, state)
        steps.append(logits)
    return torch.stack(steps, 2), state


def begin(decoder, rows, K):
    """One hypothesis of each of the utterances reads the start symbol and becomes K; their state."""
    T = int(H_LENS[rows].max())
    state = decoder.start(H[rows, :T], H_LENS[rows])
    _, state = decoder.step(torch.full((len(rows), 1), SOS), state)
    return state.reorder(torch.zeros(len(rows), K, dtype=torch.long))


@each("shape", SHAPES)
@each("K", [1, 3])
def test_step_is_forward_at_every_position(shape, K):
    decoder, Y = build(shape), torch.randint(1, V, (3, K, 30))
    logits, state = walk(decoder, decoder.start(H, H_LENS, K), Y)
    assert_close(logits, whole(decoder, Y))
    assert state.tree.lens.tolist() == [30] * 3 and state.tree.longest == 30
    assert state.cross_caches[0][0].size(0) == 3  # of utterances, not of hypotheses
    together = decoder(Y.flatten(0, 1), H, H_LENS).logits  # H's rows aren't repeated
    assert_close(together.unflatten(0, (3, K)), logits)


class Logits(NetworkScorer):
    """Score by the decoder's logits as they are."""

    def step(self, y, state):
        logits, caches = self.network.step(y, state.caches)
        return NetworkState(caches, logits)


@torch.no_grad()
def test_step_is_forward_whatever_a_search_does():
    decoder, (H, H_LENS) = build("norm: post"), padded(7, (6, 2, 4, 5, 1, 6), fill=0)

    def expected(b, labels):
        return decoder(torch.tensor([[SOS, *labels]]), H[[b], : H_LENS[b]], H_LENS[[b]]).logits[
            0, -1
        ]

    beams = (1, 4, 4, 2, 5, *[3] * 15, *[4] * 20)
    check_walk(Logits(decoder, SOS), H, H_LENS, expected, beams)


@torch.no_grad()
def test_the_cache_holds_what_the_hypotheses_share_once():
    """After 100 labels in common and 20 of their own, K = 5 hypotheses need 200 nodes, not 600."""
    decoder, K = build(), 5
    state = decoder.start(H, H_LENS, K)
    for step in range(120):
        _, state = decoder.step(torch.full((3, K), 1 + step % 9), state)
        if step < 100:
            state = state.reorder(torch.zeros(3, K, dtype=torch.long))
    assert state.tree.compact().mask.size(2) == 100 + 20 * K
    assert state.tree.layers[0].keys.size(2) < 100 + 20 * K + 16 * K


@torch.no_grad()
def test_a_stream_of_utterances_leaves_nothing_behind():
    """Utterances come and go 40 times; the cache and the known longest are those of the ones that are there."""
    decoder, K = build(), 2
    state = begin(decoder, [0, 1], K)
    for _ in range(40):
        for step in range(5):
            _, state = decoder.step(torch.full((2, K), 1 + step), state)
            state = state.reorder(torch.zeros(2, K, dtype=torch.long))
        state = state.select(torch.tensor([1])).merge(begin(decoder, [0], K))
    assert state.tree.lens.tolist() == [6, 1] and state.tree.longest == 6
    assert state.tree.layers[0].keys.shape[:3] <= (2, 3, 6 + 8 * K)


@torch.no_grad()
def test_frames_of_who_has_left_are_not_attended_to():
    state = build().start(H, H_LENS, 2).select(torch.tensor([2, 1]))
    assert state.cross_caches[0][0].size(2) == 4 and state.cross_mask.size(3) == 8


@torch.no_grad()
def test_step_under_bf16_autocast_is_near_forward():
    decoder, Y = build(), torch.randint(1, V, (3, 1, 5))
    expected = whole(decoder, Y).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, _ = walk(decoder.float(), decoder.start(H.float(), H_LENS), Y)
    near(logits.float(), expected, 0.1)


@torch.no_grad()
@each("bias", [True, False])
def test_packed_maps_compute_the_same_from_the_same_parameters(bias):
    plain = nn.Sequential(nn.Linear(400, 700, bias), nn.Linear(700, 9, bias))
    packed, (_, small) = pack(plain), plain
    assert isinstance(packed[0], PackedLinear) and packed[1] is small
    assert [*map(id, packed.parameters())] == [*map(id, plain.parameters())]
    for rows in (1, 7, 33):
        X = torch.randn(2, 400, rows).mT
        near(packed(X), plain(X), 1e-5)


@each("precision, kind", [("fp32", PackedLinear), ("bf16", nn.Linear)])
def test_a_search_has_packed_maps_in_fp32(precision, kind):
    model = hybrid("decoder: {ff: 50000}")
    layer = for_search(model, precision).decoder.layers[0]
    assert type(layer.ff.inner) is type(layer.ff.outer) is kind
    assert type(model.decoder.layers[0].ff.inner) is nn.Linear
