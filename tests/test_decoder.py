"""Prove that the decoder step by step is the decoder at once: step(y, state) = forward, for any hypotheses.

The reference is `forward` on the whole prefix of each hypothesis, in float64.
"""

import pytest
import torch
from torch.testing import assert_close

from asr.nn.decoder import TransformerDecoder
from asr.nn.layers import Dropout
from asr.nn.transformer import StackSettings

V, SOS = 11, 10
SHAPES = {
    "pre-norm": {"norm": "pre"},
    "post-norm": {"norm": "post"},
    "tied": {"tied": True},
    "d_k and d_v": {"d_k": 5, "d_v": 3},
    "swish": {"activation": "swish"},
}


def build(tied=False, layer_dropout=0.0, **options):
    torch.manual_seed(1)
    sizes = {"d_model": 12, "layers": 2, "heads": 3, "ff": 16, "dropout": 0.1}
    decoder = (
        TransformerDecoder(StackSettings(**sizes | options), V, 7, layer_dropout).double().eval()
    )
    if tied:
        decoder.tie()
    with torch.no_grad():  # weights large enough that a mistake shows
        for parameter in decoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return decoder


def memory():
    return torch.randn(
        3, 6, 7, dtype=torch.double, generator=torch.Generator().manual_seed(2)
    ), torch.tensor([6, 2, 4])


def walk(decoder, state, Y):
    """Logits (B, K, U, V) of stepping through Y (B, K, U)."""
    steps = []
    for y in Y.unbind(2):
        logits, state = decoder.step(y, state)
        steps.append(logits)
    return torch.stack(steps, 2), state


def whole(decoder, Y, H, H_lens):
    """Logits (B, K, U, V) of each hypothesis of Y (B, K, U) at once."""
    K = Y.size(1)
    output = decoder(Y.flatten(0, 1), H.repeat_interleave(K, 0), H_lens.repeat_interleave(K))
    return output.logits.unflatten(0, (-1, K))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("K", [1, 3])
def test_step_is_forward_at_every_position(shape, K):
    decoder, (H, H_lens) = build(**SHAPES[shape]), memory()
    Y = torch.randint(1, V, (3, K, 30), generator=torch.Generator().manual_seed(3))
    Y[..., 0] = SOS
    logits, state = walk(decoder, decoder.start(H, H_lens, K), Y)
    assert_close(logits, whole(decoder, Y, H, H_lens))
    assert state.tree.lens.tolist() == [30] * 3
    assert state.cross_caches[0][0].size(0) == 3  # of utterances, not of hypotheses


def test_sequences_that_share_an_utterance_are_as_alone():
    decoder, (H, H_lens) = build(), memory()
    Y = torch.randint(1, V, (3, 4, 6), generator=torch.Generator().manual_seed(8))
    assert_close(
        decoder(Y.flatten(0, 1), H, H_lens).logits.unflatten(0, (3, 4)),
        whole(decoder, Y, H, H_lens),
    )


def test_states_are_values():
    """A step leaves its state as it was: two ways can go on from one, and both know their own past."""
    decoder, (H, H_lens) = build(), memory()
    Y = torch.full((3, 2, 1), SOS)
    _, state = walk(decoder, decoder.start(H, H_lens, 2), Y)
    ways = [torch.tensor([[1, 2], [3, 4], [5, 6]]), torch.tensor([[7, 8], [9, 1], [2, 3]])]
    states = [decoder.step(y, state)[1] for y in ways]
    for y, way in zip(ways, states, strict=True):
        logits, _ = decoder.step(y, way)
        assert_close(
            logits,
            whole(decoder, torch.cat([Y, y[..., None], y[..., None]], 2), H, H_lens)[:, :, -1],
        )


def test_a_search_in_small_is_forward():
    """K = 4 hypotheses change places at every step, utterances leave and come; the past is that of the parents."""
    decoder, (H, H_lens), K = build(norm="post"), memory(), 4
    rng = torch.Generator().manual_seed(4)
    utterances, state, Y = [0, 1], *begin(decoder, H[:2, :6], H_lens[:2], K)
    for step in range(40):
        y = torch.randint(1, V, (len(utterances), K), generator=rng)
        Y = [torch.cat([ys, new[:, None]], 1) for ys, new in zip(Y, y, strict=True)]
        logits, state = decoder.step(y, state)
        for ys, got, b in zip(Y, logits, utterances, strict=True):
            expected = whole(decoder, ys[None], H[b : b + 1], H_lens[b : b + 1])
            assert_close(got, expected[0, :, -1])
        parents = torch.randint(K, (len(utterances), K), generator=rng)
        state, Y = state.reorder(parents), [ys[p] for ys, p in zip(Y, parents, strict=True)]
        if step in (7, 19):
            state, Y, utterances = (
                state.select(torch.tensor([1, 0])),
                [Y[1], Y[0]],
                utterances[1::-1],
            )
        if step in (11, 28):
            state, Y, utterances = state.select(torch.tensor([1])), Y[1:], utterances[1:]
        if step in (12, 29):
            come = [2, 0]
            other, new = begin(decoder, H[come], H_lens[come], K)
            state, Y, utterances = state.merge(other), Y + new, utterances + come
            state, Y, utterances = (
                state.select(torch.tensor([0, 2])),
                [Y[0], Y[2]],
                [utterances[0], utterances[2]],
            )


def test_the_cache_holds_what_the_hypotheses_share_once():
    """After 100 labels in common and 20 of their own, K = 5 hypotheses need 200 nodes, not 600."""
    decoder, (H, H_lens), K = build(), memory(), 5
    state = decoder.start(H, H_lens, K)
    with torch.no_grad():
        for step in range(120):
            _, state = decoder.step(torch.full((3, K), 1 + step % 9), state)
            if step < 100:
                state = state.reorder(torch.zeros(3, K, dtype=torch.long))
    assert state.tree.compact().mask.size(2) == 100 + 20 * K
    assert state.tree.layers[0].keys.size(2) < 100 + 20 * K + 16 * K


def test_a_stream_of_utterances_leaves_nothing_behind():
    """Utterances come and go 40 times; the cache and the known longest are those of the ones that are there."""
    decoder, (H, H_lens), K = build(), memory(), 2
    state, _ = begin(decoder, H[:2], H_lens[:2], K)
    with torch.no_grad():
        for _ in range(40):
            for step in range(5):
                _, state = decoder.step(torch.full((2, K), 1 + step), state)
                state = state.reorder(torch.zeros(2, K, dtype=torch.long))
            state = state.select(torch.tensor([1])).merge(begin(decoder, H[:1], H_lens[:1], K)[0])
    assert state.tree.lens.tolist() == [6, 1] and state.tree.longest == 6
    assert state.tree.layers[0].keys.shape[:3] <= (2, 3, 6 + 8 * K)


def begin(decoder, H, H_lens, K):
    """One hypothesis of each utterance reads the start symbol and becomes K."""
    B = len(H)
    _, state = decoder.step(torch.full((B, 1), SOS), decoder.start(H, H_lens))
    return state.reorder(torch.zeros(B, K, dtype=torch.long)), [torch.full((K, 1), SOS)] * B


def test_step_beyond_512_positions():
    decoder, (H, H_lens) = build(), memory()
    Y = torch.randint(1, V, (3, 1, 515), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        logits, _ = walk(decoder, decoder.start(H, H_lens), Y)
        assert_close(logits, whole(build(), Y, H, H_lens))


def test_the_future_and_the_padding_do_not_matter():
    decoder, (H, H_lens) = build(), memory()
    Y = torch.randint(1, V, (3, 6), generator=torch.Generator().manual_seed(6))
    logits = decoder(Y, H, H_lens).logits
    for u in range(1, 6):
        other = Y.clone()
        other[:, u:] = (other[:, u:] + 1) % V
        assert_close(decoder(other, H, H_lens).logits[:, :u], logits[:, :u])
        assert (decoder(other, H, H_lens).logits[:, u] - logits[:, u]).abs().max() > 1e-3
    H = H.clone()
    H[1, 2:] = 1e3
    assert_close(decoder(Y, H, H_lens).logits, logits)


def test_step_under_bf16_autocast_is_near_forward():
    decoder, (H, H_lens) = build().float(), memory()
    Y = torch.randint(1, V, (3, 5), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        expected = decoder(Y, H.float(), H_lens).logits
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits, _ = walk(decoder, decoder.start(H.float(), H_lens), Y.unsqueeze(1))
    assert_close(logits.squeeze(1).float(), expected, rtol=0.1, atol=0.1)


def test_the_attention_of_every_layer():
    decoder, (H, H_lens) = build(), memory()
    output = decoder(torch.randint(1, V, (3, 4)), H, H_lens, attention=True)
    maps, cross = output.attention, output.cross
    assert [m.shape for m in maps] == [(3, 3, 4, 4)] * 2 and [m.shape for m in cross] == [
        (3, 3, 4, 6)
    ] * 2
    for m in (*maps, *cross):
        assert_close(m.sum(-1), torch.ones_like(m[..., 0]))
    assert not any(m.triu(1).any() for m in maps)
    assert not any(m[1, :, :, 2:].any() for m in cross)


def test_dropout_has_its_places():
    """Behind each of a layer's three sublayers and within its feed-forward; and of the labels."""
    decoder, passed = build(dropout=0.11), []
    for module in decoder.modules():
        if isinstance(module, Dropout):
            module.register_forward_hook(lambda module, *_: passed.append(module.p))
    decoder(torch.tensor([[SOS, 1, 2]] * 3), *memory())
    assert passed == [0.11] * (4 * len(decoder.layers) + 1)


def test_layers_are_left_out_in_training_as_the_seed_draws():
    decoder, (H, H_lens) = build(layer_dropout=0.5, dropout=0.0), memory()
    Y, taken = torch.tensor([[SOS, 1, 2]] * 3), []
    for n, layer in enumerate(decoder.layers):
        layer.register_forward_hook(lambda *_, n=n: taken.append(n))
    decoder(Y, H, H_lens)
    assert taken == [0, 1]  # all, outside of training
    met = set()
    for seed in range(20):
        taken.clear()
        torch.manual_seed(seed)
        kept = [n for n, u in enumerate(torch.rand(2)) if u >= 0.5]
        torch.manual_seed(seed)
        decoder.train()(Y, H, H_lens)
        assert taken == kept
        met.add(tuple(kept))
    assert len(met) == 4
