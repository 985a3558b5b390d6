"""Prove that the decoder step by step is the decoder at once: step(y, state) = forward, for any hypotheses.

The reference is `forward` on the whole prefix of each hypothesis, in float64.
"""

import pytest
import torch
from torch.testing import assert_close

from asr.nn.decoder import TransformerDecoder

V, SOS = 11, 10
SHAPES = {
    "pre-norm": {"norm": "pre"},
    "post-norm": {"norm": "post"},
    "tied": {"tied": True},
    "d_k and d_v": {"d_k": 5, "d_v": 3},
    "swish": {"activation": "swish"},
}


def build(**options):
    torch.manual_seed(1)
    decoder = TransformerDecoder(V, 7, 12, 2, 3, 16, **options).double().eval()
    with torch.no_grad():  # weights large enough that a mistake shows
        for parameter in decoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return decoder


def memory():
    return torch.randn(3, 6, 7, dtype=torch.double, generator=torch.Generator().manual_seed(2)), torch.tensor([6, 2, 4])


def walk(decoder, state, Y):
    """Logits (rows, U, V) of stepping through Y (rows, U)."""
    steps = []
    for y in Y.T:
        logits, state = decoder.step(y, state)
        steps.append(logits)
    return torch.stack(steps, 1), state


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("K", [1, 3])
def test_step_is_forward_at_every_position(shape, K):
    decoder, (H, H_lens) = build(**SHAPES[shape]), memory()
    Y = torch.randint(1, V, (3 * K, 9), generator=torch.Generator().manual_seed(3))
    Y[:, 0] = SOS
    expected = decoder(Y, H.repeat_interleave(K, 0), H_lens.repeat_interleave(K))
    logits, state = walk(decoder, decoder.start(H, H_lens, K), Y)
    assert_close(logits, expected)
    assert state.length == 9 and state.self_caches[0][0].size(2) == 9
    assert state.cross_caches[0][0].size(0) == 3  # of utterances, not of hypotheses


def test_states_are_values():
    """A step leaves its state as it was: two ways can go on from one."""
    decoder, (H, H_lens) = build(), memory()
    _, state = walk(decoder, decoder.start(H, H_lens), torch.full((3, 2), SOS))
    first, _ = decoder.step(torch.tensor([1, 2, 3]), state)
    decoder.step(torch.tensor([4, 5, 6]), state)
    again, _ = decoder.step(torch.tensor([1, 2, 3]), state)
    assert_close(again, first, rtol=0, atol=0)


def test_step_after_reorder_and_select_is_forward():
    """A search in small: K = 2 hypotheses change places at every step, and the second utterance leaves."""
    decoder, (H, H_lens) = build(norm="post"), memory()
    rng, K = torch.Generator().manual_seed(4), 2
    utterances, state = [0, 1, 2], decoder.start(H, H_lens, K)
    prefixes = torch.full((6, 1), SOS)
    for step in range(6):
        logits, state = decoder.step(prefixes[:, -1], state)
        expected = decoder(prefixes, H[utterances].repeat_interleave(K, 0), H_lens[utterances].repeat_interleave(K))
        assert_close(logits, expected[:, -1])
        B = len(utterances)
        rows = torch.randint(K, (B, K), generator=rng) + torch.arange(B)[:, None] * K  # parents within each utterance
        state, prefixes = state.reorder(rows.flatten()), prefixes[rows.flatten()]
        if step == 2:
            state = state.select(torch.tensor([0, 2]), K)
            utterances, prefixes = [0, 2], prefixes[[0, 1, 4, 5]]
        if step == 4:
            state = state.select(torch.tensor([1, 0]), K)
            utterances, prefixes = [2, 0], prefixes[[2, 3, 0, 1]]
        prefixes = torch.cat([prefixes, torch.randint(1, V, (len(prefixes), 1), generator=rng)], 1)


def test_step_beyond_512_positions():
    decoder, (H, H_lens) = build(), memory()
    Y = torch.randint(1, V, (3, 515), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        logits, _ = walk(decoder, decoder.start(H, H_lens), Y)
        assert_close(logits, build()(Y, H, H_lens))


def test_the_future_and_the_padding_do_not_matter():
    decoder, (H, H_lens) = build(), memory()
    Y = torch.randint(1, V, (3, 6), generator=torch.Generator().manual_seed(6))
    logits = decoder(Y, H, H_lens)
    for u in range(1, 6):
        other = Y.clone()
        other[:, u:] = (other[:, u:] + 1) % V
        assert_close(decoder(other, H, H_lens)[:, :u], logits[:, :u])
        assert (decoder(other, H, H_lens)[:, u] - logits[:, u]).abs().max() > 1e-3
    H = H.clone()
    H[1, 2:] = 1e3
    assert_close(decoder(Y, H, H_lens), logits)


def test_step_under_bf16_autocast_is_near_forward():
    decoder, (H, H_lens) = build().float(), memory()
    Y = torch.randint(1, V, (3, 5), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        expected = decoder(Y, H.float(), H_lens)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits, _ = walk(decoder, decoder.start(H.float(), H_lens), Y)
    assert_close(logits.float(), expected, rtol=0.1, atol=0.1)


def test_maps_of_every_layer():
    decoder, (H, H_lens) = build(), memory()
    maps, cross = [], []
    decoder(torch.randint(1, V, (3, 4)), H, H_lens, maps, cross)
    assert [m.shape for m in maps] == [(3, 3, 4, 4)] * 2 and [m.shape for m in cross] == [(3, 3, 4, 6)] * 2
    for m in (*maps, *cross):
        assert_close(m.sum(-1), torch.ones_like(m[..., 0]))
    assert not any(m.triu(1).any() for m in maps)
    assert not any(m[1, :, :, 2:].any() for m in cross)
