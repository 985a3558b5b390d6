"""Prove the encoders: each meets the contract, is what its paper's formulas say, and reads streams as it reads wholes.

References: relative attention by sums over distances; rotation by complex numbers; the modules of the papers written
out with PyTorch's functions. test_model.py plants faults against the contract.
"""

import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from contracts import check_batching, check_encoder, check_padding, encode, padded
from pydantic import TypeAdapter
from small import FEATURES, PART, each, near, noise, options, rows
from torch.testing import assert_close

from asr.data.dataset import draw_speeds, utterance_seeds
from asr.nn.attention import MultiHeadAttention
from asr.nn.convolution import ConvolutionModule, DepthwiseConvolution
from asr.nn.encoder import WHOLE, EncoderState
from asr.nn.encoders import AnyEncoder
from asr.nn.encoders.e_branchformer import ConvolutionalGatingMLP
from asr.nn.layers import LayerContext
from asr.nn.positions import RelativePositions, RotaryPositions, Sinusoids, sinusoids, skew
from asr.ops import chunk_mask, key_mask, length_mask

NEEDED = {
    "transformer": "",
    "conformer": "kernel: 5",
    "e_branchformer": "cgmlp: 14, kernel: 5, merge_kernel: 3",
}
ONE_FRAME = {  # convolutions of one frame
    "transformer": "",
    "conformer": "kernel: 1",
    "e_branchformer": "kernel: 1, merge_kernel: 1",
}
EACH = each("kind", NEEDED)
ALL = each(
    "kind, positions",
    [(kind, "rotary") for kind in NEEDED]
    + [("transformer", "sinusoidal"), ("conformer", "relative"), ("e_branchformer", "relative")],
)
LENS = (61, 33, 47, 61)


def make(kind, *texts, **more):
    """A small encoder in float64; what begins as 0, 1 or small in its layers is random, so that none of it hides."""
    torch.manual_seed(1)
    given = {**PART, "channels": 4, "kind": kind, **options(NEEDED[kind]), **more}
    for text in texts:
        given |= options(text)
    encoder = TypeAdapter(AnyEncoder).validate_python(given).build(FEATURES).double().eval()
    for name, parameter in encoder.layers.named_parameters():
        if name.endswith((".u", ".v", "gate.weight", "norm.weight", "bias")):
            parameter.data.normal_()
    return encoder


# --- the contract ---------------------------------------------------------------------------------

VARIANTS = """
subsampling: 6, chunk: {frames: 2, left: 1}
subsampling: 8, d_k: 6, d_v: 2, chunk: {frames: 4, left: 2}
chunk: {frames: 1, left: 3}
chunk: {frames: 3, left: 0}
chunk: {frames: 50, left: 1}
chunk: {frames: [3, whole, 2], left: 1}
"""


@ALL
@each("text", VARIANTS.split("\n")[:-1])
def test_every_encoder_holds_the_contract(kind, positions, text):
    streams = 1e-6 if positions == "rotary" else 1e-10  # its table is float32
    check_encoder(make(kind, text, positions=positions), FEATURES, streams=streams)


def test_the_post_norm_transformer_holds_the_contract():
    check_encoder(make("transformer", norm="post"), FEATURES)


@EACH
@each("chunk", ["", "chunk: {frames: 2, left: 1}"])
def test_training_is_as_evaluation(kind, chunk):
    """The attention's dropout is of nothing (of 65536): it takes the formula's path, as training on a CPU does."""
    encoder = make(kind, chunk, dropout=0.0, attention_dropout=1e-9)
    batch, results = padded(FEATURES, LENS), []
    for mode in (True, False):
        H, H_lens = encode(encoder.train(mode), *batch)
        real = ~length_mask(H_lens, H.size(1))
        gradients = torch.autograd.grad(H[real].square().sum(), [*encoder.parameters()])
        results.append([H[real], *gradients])
    near(*results, 1e-6)
    check_padding(encoder.train(), *batch, 1e-8)
    check_batching(encoder, *batch, 1e-8)


@ALL
def test_the_order_of_the_frames_matters(kind, positions):
    """Without positions, attention would give the same frames in another order; convolutions here see one frame."""
    encoder, H = make(kind, ONE_FRAME[kind], positions=positions), noise(1, 9, 12)
    through = torch.nn.Sequential(encoder.positions, *encoder.layers)
    assert (through(H.flip(1)).flip(1) - through(H)).abs().max() > 1e-3


# --- positions ------------------------------------------------------------------------------------


@each("Tq, Tk", [(5, 5), (1, 1), (2, 6), (1, 4)])
def test_relative_attention_is_the_formula(Tq, Tk):
    """softmax over j of ((q_i + u)·k_j + (q_i + v)·W r_{i-j}) / √d_k (Dai et al. 2019)."""
    torch.manual_seed(1)
    positions = RelativePositions(12, 3, 4, Sinusoids(12, 3)).double()
    u, v = (bias.data.normal_().view(3, 4) for bias in (positions.u, positions.v))
    attention = MultiHeadAttention(12, 3, positions=positions).double()
    X, memory = noise(2, Tq, 12), noise(2, Tk, 12)
    mask, maps = key_mask(torch.tensor([Tk, max(1, Tk - 2)]), Tk), []
    Z = attention(X, LayerContext(mask, attention=maps), memory)
    distances = torch.arange(Tk - Tq, Tk)[:, None] - torch.arange(Tk)  # queries are the last frames
    sines = sinusoids(2 * Tk, 12, -Tk).double()[distances + Tk]
    projected = attention.query(X), attention.key(memory), positions.project(sines)
    Q, K, R = (part.unflatten(2, (3, 4)) for part in projected)
    scores = torch.einsum("bihd,bjhd->bhij", Q + u, K) + torch.einsum("bihd,ijhd->bhij", Q + v, R)
    weights = (scores / 2).masked_fill(mask, -torch.inf).softmax(3)
    near(maps[0], weights, 1e-6)
    joined = (weights @ attention.keys_values(memory)[1]).transpose(1, 2).flatten(2)
    near(Z, attention.out(joined), 1e-5)


def test_the_drawing_of_skew():
    lines = [line.split()[-4:] for line in skew.__doc__.splitlines() if "   3  2" in line]
    assert lines == [[str(i + 1 - j) for j in range(4)] for i in range(3)]


def test_rotation_is_multiplication_by_complex_numbers():
    """RoFormer, equation 12 ff.: the pair i at position t, as a number, times exp(i t θ_i), θ_i = 10000^(-2i / d)."""
    Q, K = noise(2, 3, 4, 6), noise(2, 3, 7, 6)  # the queries are the last of the keys' frames
    *turned, bias = RotaryPositions(Sinusoids(6, 3)).double()(Q, K)
    for X, got in zip((Q, K), turned, strict=True):
        angles = torch.arange(7)[-X.size(2) :, None] / 10000 ** (torch.arange(0, 6, 2).double() / 6)
        expected = torch.view_as_complex(X.unflatten(3, (3, 2))) * torch.exp(1j * angles)
        near(got, torch.view_as_real(expected).flatten(3), 1e-6)
    assert bias is None


def test_the_table_of_sinusoids_grows_and_is_no_weight():
    table = Sinusoids(8, 4)
    near(table(-3, 2), sinusoids(6, 8, -3))
    with torch.inference_mode():
        near(table(-1000, 20), sinusoids(1021, 8, -1000))
    assert not table.state_dict()
    Q = torch.randn(1, 2, 3, 8, requires_grad=True)  # what grew without gradients serves training
    for positions in (RelativePositions(16, 2, 8, Sinusoids(16)), RotaryPositions(table)):
        assert torch.autograd.grad(positions(Q, Q)[0].sum(), Q)[0].isfinite().all()


# --- convolutions ---------------------------------------------------------------------------------


def depthwise(X, conv, before=None):
    after = conv.weight.size(2) // 2 if before is None else 0
    image = F.pad(X.mT, (before or after, after))
    return F.conv1d(image, conv.weight, conv.bias, groups=X.size(2)).mT


@each("before", [None, 4])
def test_the_depthwise_convolution_clears_padding_first(before):
    torch.manual_seed(1)
    module = DepthwiseConvolution(4, 5, causal=before is not None).double()
    X, lens = noise(2, 9, 4), (9, 6)
    padding = length_mask(torch.tensor(lens), 9)[:, :, None]
    Z = module(X.masked_fill(padding, torch.nan), LayerContext(padding=padding))
    for b, T in enumerate(lens):
        assert_close(Z[b, :T], depthwise(X[b : b + 1, :T], module, before)[0])


@each("given", [torch.float32, torch.bfloat16])
@each("channels", [1, 16, 144])
def test_channels_are_not_convolved_in_bf16(channels, given):
    """On a CPU, where oneDNN may make its kernel for ever; the result is that of fp32, rounded."""
    torch.manual_seed(1)
    module, results = DepthwiseConvolution(channels, 5), []
    X = torch.randn(2, 9, channels).to(given)
    for one, enabled in ((X, True), (X.float(), False)):
        with torch.autocast("cpu", torch.bfloat16, enabled):
            Z = module(one.requires_grad_())
        results.append([Z, *torch.autograd.grad(Z.float().square().sum(), [one, module.weight])])
    (Z, *_), (exact, *_) = results
    near(Z, exact.to(given))
    for got, expected, atol in zip(*results, (1e-2, 5e-2, 2e-1), strict=True):
        assert_close(got.float(), expected, rtol=2e-2, atol=atol)


def normed(X, norm):
    return F.layer_norm(X, X.shape[2:], norm.weight, norm.bias)


def test_the_modules_are_the_papers():
    """Written out with PyTorch's functions: the convolution module of Conformer, the cgMLP of Branchformer."""
    torch.manual_seed(1)
    X, m = noise(2, 9, 6), ConvolutionModule(6, 3).double()
    A, G = m.expand(X).split(6, -1)
    assert_close(m(X), m.project(F.silu(normed(depthwise(A * G.sigmoid(), m.depthwise), m.norm))))
    m = ConvolutionalGatingMLP(6, 8, 3).double()
    m.gate.weight.data.normal_()
    A, G = F.gelu(m.expand(X)).split(4, -1)
    assert_close(m(X), m.project(A * depthwise(normed(G, m.norm), m.gate)))


def test_the_layers_are_the_papers():
    """Conformer, equation 1; E-Branchformer, equations 1 to 6 and the macaron feed-forwards."""
    X, layer = noise(2, 9, 12), make("conformer").layers[0]
    Z = X + layer.ff1(layer.norm_ff1(X)) / 2
    Z = Z + layer.attention(layer.norm_attention(Z))
    Z = Z + layer.convolution(layer.norm_convolution(Z))
    assert_close(layer(X), layer.norm(Z + layer.ff2(layer.norm_ff2(Z)) / 2))
    layer = make("e_branchformer").layers[0]
    Z = X + layer.ff1(layer.norm_ff1(X)) / 2
    C = torch.cat([layer.attention(layer.norm_attention(Z)), layer.cgmlp(layer.norm_cgmlp(Z))], -1)
    Z = Z + layer.merge(C + depthwise(C, layer.merge_convolution))
    assert_close(layer(X), layer.norm(Z + layer.ff2(layer.norm_ff2(Z)) / 2))


def test_the_gate_of_a_new_cgmlp_is_nearly_open():
    m, X = ConvolutionalGatingMLP(64, 256, 31), torch.randn(2, 50, 64)
    near(m(X), m.project(F.gelu(m.expand(X))[..., :128]), 0.05)


# --- chunks and streams ---------------------------------------------------------------------------

SIZES = {"frames": [2, "whole", 3], "left": 1}


@ALL
def test_each_utterance_has_chunks_of_its_own_size_and_the_same_result_alone(kind, positions):
    """In training, where sizes are drawn; gradients too. `left` is as far for all: three frames."""
    encoder = make(kind, positions=positions, chunk=SIZES, dropout=0.0).train()
    (X, X_lens), given = padded(FEATURES, LENS), [2, WHOLE, 3, 2]
    encoded = encoder(X, X_lens, chunk=torch.tensor(given))
    weights, losses, parameters = noise(*encoded.H.shape, seed=2), [0, 0], [*encoder.parameters()]
    parts = zip(X, X_lens, given, encoded.H, encoded.H_lens, weights, strict=True)
    for x, T, size, got, frames, weight in parts:
        results = {
            other: encoder(x[None, :T], T[None], chunk=other).H[0] for other in (2, 3, WHOLE)
        }
        H = results.pop(size)
        near(got[:frames], H, 1e-8)
        assert all((other - H).abs().max() > 1e-4 for other in results.values())
        for n, one in enumerate((got[:frames], H)):
            losses[n] += (one * weight[:frames]).sum()
    gradients = (torch.autograd.grad(loss, parameters, allow_unused=True) for loss in losses)
    near(*gradients, 1e-7)


def test_sizes_are_drawn_by_the_utterances_seed_alone_each_as_often():
    """Within 5 standard deviations; and not with the speed, which comes of the same seed."""
    encoder = make("transformer", chunk={"frames": [2, 3, "whole", 5], "left": 1})
    seeds = utterance_seeds(1, 2, map(str, range(20_000)))
    drawn, speeds = encoder.draw_chunks(seeds), torch.from_numpy(draw_speeds(seeds, (0.9, 1.1)))
    for size, speed in itertools.product(encoder.chunk.sizes, (0.9, 1.1)):
        found = ((drawn == size) & (speeds == speed)).sum()
        assert found == pytest.approx(2500, abs=5 * math.sqrt(20_000 / 8 * 7 / 8))
    order = torch.randperm(len(seeds))[:50]
    assert encoder.draw_chunks(seeds[order]).equal(drawn[order])
    later = encoder.draw_chunks(utterance_seeds(1, 3, map(str, range(20_000))))
    assert abs((later == drawn).sum() - 5000) < 5 * math.sqrt(20_000 / 4 * 3 / 4)
    assert make("transformer", "chunk: {frames: 2, left: 1}").draw_chunks(seeds) is None


@each("sizes, largest, left", [([16], 16, 32), ([16, 4], 16, 32), ([2, "whole"], WHOLE, 4)])
def test_without_a_choice_the_largest_size_is_taken(sizes, largest, left):
    """And `left` chunks are those of the largest in frames."""
    encoder = make("conformer", chunk={"frames": sizes, "left": 2})
    assert (encoder.left, encoder.start(1).chunk) == (left, largest)
    batch = padded(FEATURES, (150, 99))
    near(encoder(*batch).H, encoder(*batch, chunk=largest).H)


MISTAKES = r"""
[]        | got \[\], expected different sizes
[whole]   | at least one in frames
[2, 3, 2] | got \[2, 3, 2\], expected different
[2, 0]    | greater than 0
0         | greater than 0
[2, all]  | 'whole'
"""


@each("frames, fact", rows(MISTAKES))
def test_sizes_that_make_no_choice_are_refused(frames, fact):
    with pytest.raises(ValueError, match=fact):
        make("transformer", f"chunk: {{frames: {frames}, left: 1}}")


@ALL
@each("frames, left", [(1, 2), (3, 1), (4, 0)])
def test_a_frame_sees_its_chunk_and_those_before_and_nothing_ahead(kind, positions, frames, left):
    """One layer with a convolution of one frame: exactly the mask; as it is, several layers: nothing ahead."""
    chunk, T = {"frames": frames, "left": left}, 11
    for exact, text in ((True, f"layers: 1, {ONE_FRAME[kind]}"), (False, "")):
        encoder, inputs = make(kind, text, positions=positions, chunk=chunk), []
        encoder.positions.register_forward_pre_hook(lambda _, args, seen=inputs: seen.extend(args))
        X = noise(1, encoder.subsampling.frames(T), FEATURES)
        H = encoder(X, torch.tensor([X.size(1)])).H[0]
        gradients = [torch.autograd.grad(h.square().sum(), inputs, retain_graph=True) for h in H]
        reached = torch.cat([gradient for (gradient,) in gradients]).any(2)
        hidden, ahead = (chunk_mask(torch.tensor([frames]), T, n)[0] for n in (left * frames, T))
        assert reached.diag().all() and not (reached & ahead).any()
        assert not exact or reached.equal(~hidden)


def looks_ahead(encoder):
    encoder._mask = lambda H_lens, T, chunk: key_mask(H_lens, T)


def stands_still(encoder):
    encoder.positions.forward = lambda X, start=None, add=encoder.positions.forward: add(X)


@each("kind, plant", [("conformer", looks_ahead), ("transformer", stands_still)])
def test_the_contract_refuses_streams_that_are_not_the_whole(kind, plant):
    encoder = make(kind, chunk=SIZES)
    plant(encoder)
    with pytest.raises(AssertionError, match="a stream in chunks of 2"):
        check_encoder(encoder, FEATURES)


@EACH
def test_a_step_gives_whole_chunks_as_soon_as_their_frames_are_there_and_carries_no_more(kind):
    encoder = make(kind, "chunk: {frames: 3, left: 1}")
    state, given, carried = encoder.start(1), {}, []
    first = encoder.subsampling.frames(3)
    for t in range(1, first + 100):
        H, state = encoder.step(noise(1, 1, FEATURES), state)
        if H.size(1):
            given[t] = H.size(1)
            kept = [state.rest, *state.past.values()]
            carried.append([X.shape for X in kept])
            assert all(X.untyped_storage().nbytes() == 8 * X.numel() for X in kept)
    assert given == dict.fromkeys(range(first, first + 100, 12), 3)
    assert carried == carried[-1:] * 9
    H, state = encoder.step(noise(1, 0, FEATURES), state, last=True)
    assert state.frames == 27 + H.size(1) == encoder.subsampling.lengths(first + 99)


def windows(encoder, X, chunk):
    """The features of each chunk of a stream X (T, F), for `step_chunk`."""
    hop, whole = chunk * encoder.subsampling.factor, encoder.subsampling.frames(chunk)
    starts = range(0, len(X) - encoder.subsampling.shortest + 1, hop)
    return [X[start : start + whole] for start in starts]


@ALL
@each("frames, left, subsampling", [(2, 3, 4), (3, 0, 6), (3, 1, 8)])
def test_streams_come_and_go_side_by_side_each_as_if_alone(
    kind, positions, frames, left, subsampling
):
    """Streams of different lengths join and end at different steps; some miss a step; then all states are restacked."""
    chunk = {"frames": frames, "left": left}
    encoder = make(kind, positions=positions, chunk=chunk, subsampling=subsampling)
    streams = [noise(T, FEATURES) for T in (107, 31, 160, 90, 64, 129)]
    left_over = [windows(encoder, X, frames) for X in streams]
    states, results = [encoder.start(1) for _ in streams], [[] for _ in streams]
    with torch.no_grad():
        for step in range(40):
            turn = [n for n in range(6) if left_over[n] and step >= 2 * n and (step + n) % 4]
            if not turn:
                continue
            parts = [left_over[n].pop(0) for n in turn]
            lens = torch.tensor([len(part) for part in parts])
            X = torch.nn.utils.rnn.pad_sequence(parts, True, torch.nan)
            H, state = encoder.step_chunk(X, lens, EncoderState.stack([states[n] for n in turn]))
            frames = encoder.subsampling.lengths(lens)
            for n, row, T, states[n] in zip(turn, H, frames, state.unstack(), strict=True):
                results[n].append(row[:T])
        for X, parts, state in zip(streams, results, states, strict=True):
            expected = encoder(X[None], torch.tensor([len(X)])).H[0]
            near(torch.cat(parts), expected, 1e-6 if positions == "rotary" else 1e-10)
            assert state.frames.tolist() == [len(expected)]


def test_states_of_other_chunks_or_rests_are_not_stacked():
    encoder = make("conformer", "chunk: {frames: 2, left: 1}")
    begun = encoder.start(1)
    _, read = encoder.step(noise(1, 3, FEATURES), begun)
    _, ended = encoder.step(noise(1, 0, FEATURES), begun, last=True)
    for other in (read, ended):
        with pytest.raises(ValueError, match=r"states: got .*\(2, 0, False\), .*expected the same"):
            EncoderState.stack([begun, other])
    long = noise(1, encoder.subsampling.frames(3), FEATURES)
    wrong = pytest.raises(ValueError, encoder.step_chunk, long, torch.tensor([15]), begun)
    wrong.match("X: got 15 frames, expected the 11")


@ALL
def test_a_stream_of_ten_hours_is_no_different(kind, positions):
    """Far out, no table has grown, and but for the sinusoids (test_positions.py) a chunk is as near the beginning."""
    encoder = make(kind, positions=positions, chunk={"frames": 4, "left": 2})
    tables = [X.shape for X in encoder.buffers()]
    X, lens = noise(1, encoder.subsampling.frames(4), FEATURES), torch.tensor([19])
    with torch.no_grad():
        _, state = encoder.step(noise(1, 80, FEATURES), encoder.start(1))
        far = replace(state, frames=state.frames + 900_000)
        (H, _), (H_far, after) = (encoder.step_chunk(X, lens, s) for s in (state, far))
    assert positions == "sinusoidal" or H.equal(H_far)
    assert after.frames == 900_020 and [X.shape for X in encoder.buffers()] == tables


def test_a_stream_is_read_with_chunks_in_evaluation_mode_and_to_its_end_only():
    X, plain = noise(1, 9, FEATURES), make("transformer")
    encoder = make("conformer", "chunk: {frames: 2, left: 1}")
    begun = encoder.start(1)
    _, ended = encoder.step(X, begun, last=True)
    H, state = encoder.step(X[:, :6], begun, last=True)  # the subsampling sees 7 frames
    assert H.shape == (1, 0, encoder.d_model) and state.frames == 0
    pytest.raises(ValueError, plain.start, 1).match("chunk: got none")
    wrong = pytest.raises(ValueError, encoder.step, X, ended)
    wrong.match(r"state: .* ended, .*; begin with start\(\)")
    with pytest.raises(ValueError, match=r"training mode, .* eval\(\)"):
        encoder.train().step(X, begun, last=True)
