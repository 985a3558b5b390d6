"""Prove that the decoder step by step is the decoder at once: step(y, state) = forward, for any hypotheses.

The reference is `forward` on the whole prefix of each hypothesis, in float64.
"""

import torch
from small import PART, each, near, noise
from torch.testing import assert_close

from asr.nn.decoder import TransformerDecoder
from asr.nn.transformer import StackSettings

V, SOS = 11, 10
SIZES = {name: value for name, value in PART.items() if name != "kind"}
H, H_LENS = noise(3, 6, 7, seed=2), torch.tensor([6, 2, 4])
SHAPES = {
    "pre-norm": {"norm": "pre"},
    "post-norm": {"norm": "post"},
    "tied": {"tied": True},
    "d_k and d_v": {"d_k": 5, "d_v": 3},
    "swish": {"activation": "swish"},
}


def build(tied=False, **options):
    """A decoder with weights so large that a mistake shows."""
    torch.manual_seed(1)
    decoder = TransformerDecoder(StackSettings(**SIZES | options), V, 7).double().eval()
    if tied:
        decoder.tie()
    for parameter in decoder.parameters():
        parameter.data += torch.randn_like(parameter) * 0.2
    return decoder


def labels(*shape):
    return torch.randint(1, V, shape, generator=torch.Generator().manual_seed(3))


def whole(decoder, Y, rows=(0, 1, 2)):
    """Logits (B, K, U, V) of each hypothesis of Y (B, K, U), of the utterances `rows`, at once."""
    rows = torch.tensor(rows).repeat_interleave(Y.size(1))
    return decoder(Y.flatten(0, 1), H[rows], H_LENS[rows]).logits.unflatten(0, (-1, Y.size(1)))


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
    decoder, Y = build(**SHAPES[shape]), labels(3, K, 30)
    logits, state = walk(decoder, decoder.start(H, H_LENS, K), Y)
    assert_close(logits, whole(decoder, Y))
    assert state.tree.lens.tolist() == [30] * 3 and state.tree.longest == 30
    assert state.cross_caches[0][0].size(0) == 3  # of utterances, not of hypotheses
    together = decoder(Y.flatten(0, 1), H, H_LENS).logits  # H's rows aren't repeated
    assert_close(together.unflatten(0, (3, K)), logits)


def test_states_are_values():
    """A step leaves its state as it was: two ways can go on from one, and both know their own past."""
    decoder, Y = build(), torch.full((3, 2, 1), SOS)
    _, state = walk(decoder, decoder.start(H, H_LENS, 2), Y)
    ways = labels(2, 3, 2)
    states = [decoder.step(y, state)[1] for y in ways]
    for y, way in zip(ways.unsqueeze(-1), states, strict=True):
        logits, _ = decoder.step(y[..., 0], way)
        assert_close(logits, whole(decoder, torch.cat([Y, y, y], 2))[:, :, -1])


def test_a_search_in_small_is_forward():
    """K = 4 hypotheses change places at every step, utterances leave and come; the past is that of the parents."""
    decoder, K = build(norm="post"), 4
    torch.manual_seed(4)
    state, start = begin(decoder, [0, 1], K), torch.full((K, 1), SOS)
    Y = {
        0: start,
        1: start,
    }  # what the hypotheses of each utterance have read, in the batch's order
    selected = {7: [1, 0], 11: [1], 12: [0, 2], 19: [1, 0], 28: [1], 29: [0, 2]}
    for step in range(40):
        y, parents = torch.randint(1, V, (len(Y), K)), torch.randint(K, (len(Y), K))
        logits, state = decoder.step(y, state)
        for n, b in enumerate(Y):
            read = torch.cat([Y[b], y[n, :, None]], 1)
            assert_close(logits[n], whole(decoder, read[None], [b])[0, :, -1])
            Y[b] = read[parents[n]]
        state = state.reorder(parents)
        if step in (12, 29):
            state, Y = state.merge(begin(decoder, [2, 1], K)), Y | {2: start, 1: start}
        if step in selected:
            state = state.select(torch.tensor(selected[step]))
            Y = {b: Y[b] for b in (list(Y)[n] for n in selected[step])}


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
def test_step_under_bf16_autocast_is_near_forward():
    decoder, Y = build(), labels(3, 1, 5)
    expected = whole(decoder, Y).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, _ = walk(decoder.float(), decoder.start(H.float(), H_LENS), Y)
    near(logits.float(), expected, 0.1)
