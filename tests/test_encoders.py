"""Prove the encoders: each obeys the contract, is what its paper's formulas say, and reads streams as it reads wholes.

References: relative attention, depthwise convolution and chunks in loops over single numbers; rotation by complex
numbers; the modules of the papers written out with PyTorch's functions. Faults are planted against what could go
unseen: padding that a convolution reads, a chunk that sees ahead.
"""

import math
import multiprocessing

import pytest
import torch
import torch.nn.functional as F
from contracts import check_batching, check_encoder, check_padding, encode, padded, same
from pydantic import TypeAdapter
from small import FEATURES, PART, near, noise, options
from torch.testing import assert_close

from asr.nn import convolution
from asr.nn.attention import MultiHeadAttention
from asr.nn.convolution import ConvolutionModule, DepthwiseConvolution
from asr.nn.encoders import AnyEncoder
from asr.nn.encoders.e_branchformer import ConvolutionalGatingMLP
from asr.nn.layers import Dropout, LayerContext, Past, layerdrop_mask
from asr.nn.positions import RelativePositions, RotaryPositions, Sinusoids, rotate, sinusoids, skew
from asr.ops import causal_mask, chunk_mask, key_mask, length_mask

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
each = pytest.mark.parametrize
EACH = each("kind", NEEDED)
ALL = each(
    "kind, positions",
    [(kind, "rotary") for kind in NEEDED]
    + [("transformer", "sinusoidal"), ("conformer", "relative"), ("e_branchformer", "relative")],
)
CAUSAL = each("causal", [False, True])


def chunks(*sizes):
    """Parametrize over chunks of `frames` frames, each with its number of earlier chunks seen."""
    parts = [f"chunk: {{frames: {frames}, left: {left}}}" for frames, left in sizes]
    return each("chunk", parts)


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


@ALL
@each("text", ["", "subsampling: 8", "d_k: 6, d_v: 2"])
def test_every_encoder_holds_the_contract(kind, positions, text):
    check_encoder(make(kind, text, positions=positions), FEATURES)


@ALL
@chunks((2, 1), (3, 0), (50, 1))
def test_every_encoder_with_chunks_holds_the_contract(kind, positions, chunk):
    check_encoder(make(kind, chunk, positions=positions), FEATURES)


@each("text", ["norm: post", "subsampling: 6"])
def test_the_transformer_holds_the_contract(text):
    check_encoder(make("transformer", text), FEATURES)


@each("kind, places", [("transformer", 3), ("conformer", 6), ("e_branchformer", 8)])
def test_dropout_has_its_places(kind, places):
    """Behind each sublayer, within each feed-forward and gate, behind the merged branches; and of the input."""
    encoder, passed = make(kind, dropout=0.11, attention_dropout=0.07), []
    for module in encoder.modules():
        if isinstance(module, Dropout):
            module.register_forward_hook(lambda module, *_: passed.append(module.p))
    encoder(*padded(FEATURES, (61, 33), 0.0))
    assert passed == [0.11] * (places * 2 + 1)
    assert [layer.attention.dropout for layer in encoder.layers] == [0.07] * 2


@each("kind", ["conformer", "e_branchformer"])
def test_the_contract_refuses_a_convolution_that_reads_padding(kind, monkeypatch):
    encoder, batch = make(kind), padded(FEATURES, (61, 33, 47, 61))
    plain = DepthwiseConvolution.forward

    def careless(self, X, context, *more):
        return plain(self, X, LayerContext(), *more)

    monkeypatch.setattr(DepthwiseConvolution, "forward", careless)
    with pytest.raises(AssertionError, match="utterance 1 alone"):
        check_batching(encoder, *batch, 1e-8)


@EACH
@each("chunk", ["", "chunk: {frames: 2, left: 1}"])
def test_in_training_padding_does_not_matter_either_and_chunks_are_those_of_streams(kind, chunk):
    """The attention's dropout is of nothing (of 65536): it takes the formula's path, as training on a CPU does."""
    encoder = make(kind, chunk, dropout=0.0, attention_dropout=1e-9)
    batch = padded(FEATURES, (61, 33, 47, 61))
    H, H_lens = encode(encoder, *batch)
    encoder.train()
    same(encode(encoder, *batch)[0], H, H_lens, 1e-6, "training")
    check_padding(encoder, *batch, 1e-8)
    check_batching(encoder, *batch, 1e-8)


@ALL
def test_the_order_of_the_frames_matters(kind, positions):
    """Without positions, attention would give the same frames in another order; convolutions here see one frame."""
    encoder = make(kind, ONE_FRAME[kind], positions=positions)
    H = noise(1, 9, 12)

    def through(H):
        H = encoder.positions(H)
        for layer in encoder.layers:
            H = layer(H)
        return H

    assert (through(H.flip(1)).flip(1) - through(H)).abs().max() > 1e-3


# --- positions ------------------------------------------------------------------------------------


@each("Tq, Tk", [(5, 5), (1, 1), (2, 6), (1, 4)])
def test_relative_attention_is_the_formula(Tq, Tk):
    """softmax over j of ((q_i + u)·k_j + (q_i + v)·W r_{i-j}) / √d_k, number by number (Dai et al. 2019)."""
    torch.manual_seed(1)
    positions = RelativePositions(12, 3, 4, Sinusoids(12, 3)).double()
    u, v = (bias.data.normal_() for bias in (positions.u, positions.v))
    attention = MultiHeadAttention(12, 3, positions=positions).double()
    X, memory = noise(2, Tq, 12), noise(2, Tk, 12)
    mask, maps = key_mask(torch.tensor([Tk, max(1, Tk - 2)]), Tk), []
    Z = attention(X, LayerContext(mask, attention=maps), memory)
    expected = torch.full((2, 3, Tq, Tk), -math.inf).double()
    queries, keys = attention.query(X), attention.key(memory)
    for b, h, i, j in (~mask).expand_as(expected).nonzero().tolist():
        part = slice(h * 4, h * 4 + 4)
        distance = i + Tk - Tq - j  # the queries are the last of the keys' frames
        r = positions.project(sinusoids(1, 12, distance).double())[0, part]
        q = queries[b, i, part]
        expected[b, h, i, j] = ((q + u[part]) @ keys[b, j, part] + (q + v[part]) @ r) / 2
    weights = expected.softmax(-1)
    near(maps[0], weights, 1e-6)
    joined = (weights @ attention.keys_values(memory)[1]).transpose(1, 2).flatten(2)
    near(Z, attention.out(joined), 1e-5)


def test_the_drawing_of_skew():
    """Scores that are their own distance: row i, column j becomes the distance from query i to key j."""
    scores = torch.arange(3.0, -4, -1).expand(1, 1, 3, 7).contiguous()
    lines = [line.split()[-4:] for line in skew.__doc__.splitlines() if "   3  2" in line]
    drawn = [[float(n) for n in line] for line in lines]
    assert skew(scores)[0, 0].tolist() == drawn == [[i + 1 - j for j in range(4)] for i in range(3)]


def test_the_ways_to_compute_attention_with_a_bias_agree():
    """The fused kernel and the formula (of training with dropout on a CPU), their gradients too."""
    results, mask = [], causal_mask(5) | key_mask(torch.tensor([5, 3]), 5)
    for p in (0.0, 1e-9):
        torch.manual_seed(1)
        positions = RelativePositions(12, 3, 4, Sinusoids(12))
        attention, X = MultiHeadAttention(12, 3, p, positions=positions).double(), noise(2, 5, 12)
        attention(X.requires_grad_(), LayerContext(mask)).square().sum().backward()
        results.append([X.grad, *(q.grad for q in attention.parameters())])
    assert_close(*results)


def test_rotation_is_multiplication_by_complex_numbers():
    """RoFormer, equation 12 ff.: the pair i at position t, as a number, times exp(i t θ_i), θ_i = 10000^(-2i / d)."""
    X = noise(2, 3, 7, 6)
    turned = rotate(X, sinusoids(7, 6, 40).double())
    angles = torch.arange(40, 47)[:, None] / 10000 ** (torch.arange(0, 6, 2).double() / 6)
    expected = torch.view_as_complex(X.unflatten(3, (3, 2))) * torch.exp(1j * angles)
    near(turned, torch.view_as_real(expected).flatten(3), 1e-6)


def test_rotary_scores_depend_on_the_distance_alone():
    """The same query and key everywhere: score (i, j) is that of (i + 1, j + 1); queries are the last of the keys."""
    q, k = noise(2, 1, 1, 1, 6)
    rotary, k = RotaryPositions(Sinusoids(6, 4)).double(), k.expand(1, 1, 9, 6)
    Q, K, bias = rotary(q.expand_as(k), k)
    scores = (Q @ K.mT)[0, 0]
    assert bias is None and scores.flatten().unique().numel() > 9
    near(scores[1:, 1:], scores[:-1, :-1], 1e-6)
    late, K, _ = rotary(q.expand(1, 1, 2, 6), k)
    near((late @ K.mT)[0, 0], scores[-2:], 1e-6)


def test_the_table_of_sinusoids_grows_and_is_no_weight():
    table = Sinusoids(8, 4)
    near(table(-3, 2), sinusoids(6, 8, -3))
    with torch.inference_mode():
        near(table(-1000, 20), sinusoids(1021, 8, -1000))
    assert not table.state_dict()
    positions = RelativePositions(8, 2, 4, table)  # what grew without gradients serves training
    positions(*torch.randn(2, 1, 2, 3, 4))[2].sum().backward()
    Q = torch.randn(1, 2, 3, 8, requires_grad=True)
    RotaryPositions(table)(Q, Q)[0].sum().backward()
    assert positions.project.weight.grad.isfinite().all() and Q.grad.isfinite().all()


# --- convolutions ---------------------------------------------------------------------------------


@CAUSAL
def test_the_depthwise_convolution_is_its_definition(causal):
    torch.manual_seed(1)
    module, X, lens = DepthwiseConvolution(4, 5, causal).double(), noise(2, 9, 4), (9, 6)
    padding = length_mask(torch.tensor(lens), 9)[:, :, None]
    Z = module(X.masked_fill(padding, torch.nan), LayerContext(padding=padding))
    for b, T in enumerate(lens):
        for t in range(T):
            first = t - (4 if causal else 2)
            taps = [n for n in range(5) if 0 <= first + n < T]
            expected = sum(module.weight[:, 0, n] * X[b, first + n] for n in taps)
            assert_close(Z[b, t], expected + module.bias)


@each("given", [torch.float32, torch.bfloat16])
@each("channels", [1, 8, 16, 31, 32])
def test_few_channels_are_not_convolved_in_bf16(monkeypatch, channels, given):
    """On a CPU, where oneDNN's kernel for them may never return; the result is that of fp32, rounded."""
    convolve, seen, narrow = F.conv2d, [], channels < convolution.NARROW

    def convolved(image, *rest, **how):
        seen.append(image.dtype)
        return convolve(image, *rest, **how)

    monkeypatch.setattr(F, "conv2d", convolved)
    torch.manual_seed(1)
    module, drawn = DepthwiseConvolution(channels, 5), torch.randn(2, 9, channels).to(given)
    results = []
    for X, enabled in ((drawn, True), (drawn.float(), False)):
        module.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled):
            Z = module(X.requires_grad_())
        Z.float().square().sum().backward()
        results.append((Z.float(), X.grad.float(), module.weight.grad.clone()))
        if enabled:
            assert Z.dtype == (given if narrow else torch.bfloat16)
    assert seen[0] == (torch.float32 if narrow else given)
    for got, expected, atol in zip(*results, (1e-2, 5e-2, 2e-1), strict=True):
        assert_close(got, expected, rtol=2e-2, atol=atol)


def convolve_in_bf16(channels):
    with torch.autocast("cpu", torch.bfloat16):
        module = DepthwiseConvolution(channels, 31)
        module(torch.randn(2, 100, channels)).float().sum().backward()


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system can't fork"
)
@each("channels", [2, 8, 16])
def test_a_narrow_convolution_in_bf16_returns(channels):
    """Kernels of 15 frames and more hung for ever on CPUs with AVX512-BF16."""
    child = multiprocessing.get_context("fork").Process(target=convolve_in_bf16, args=[channels])
    child.start()
    child.join(30)
    child.kill()
    assert child.exitcode == 0


def depthwise(X, conv):
    convolved = F.conv1d(X.mT, conv.weight, conv.bias, padding="same", groups=X.size(2))
    return convolved.mT


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


@ALL
@each("frames, left", [(1, 2), (3, 1), (4, 0)])
def test_a_frame_sees_its_chunk_and_those_before_and_nothing_ahead(kind, positions, frames, left):
    """One layer with a convolution of one frame: exactly the mask; as it is, several layers: nothing ahead."""
    hidden, chunk = chunk_mask(11, frames, left), {"frames": frames, "left": left}
    for exact, text in ((True, f"layers: 1, {ONE_FRAME[kind]}"), (False, "")):
        encoder, inputs = make(kind, text, positions=positions, chunk=chunk), []
        encoder.positions.register_forward_pre_hook(lambda _, args, seen=inputs: seen.extend(args))
        H = encoder(noise(1, T := encoder.subsampling.frames(11), FEATURES), torch.tensor([T])).H
        for t in range(11):
            (gradient,) = torch.autograd.grad(H[0, t].square().sum(), inputs[0], retain_graph=True)
            reached = gradient[0].any(1)
            end = (t // frames + 1) * frames
            assert reached[t] and not reached[end:].any(), t
            assert not exact or reached.equal(~hidden[t]), t


def stream(encoder, X, parts):
    """Feed X in parts of the given numbers of frames, over and over, and the rest."""
    state, start, results = encoder.start(len(X)), 0, []
    while start < X.size(1):
        end = start + parts[len(results) % len(parts)]
        H, state = encoder.step(X[:, start:end], state, last=end >= X.size(1))
        results.append(H)
        start = end
    return torch.cat(results, 1), state


@ALL
@chunks((1, 3), (2, 1), (4, 2), (3, 0), (99, 0))
@each("subsampling", [4, 6, 8])
def test_a_stream_is_the_whole(kind, positions, chunk, subsampling):
    """Whatever the parts in which the frames come; the last chunk is short; two streams side by side."""
    encoder = make(kind, chunk, positions=positions, subsampling=subsampling)
    X = noise(2, 107, FEATURES)
    with torch.no_grad():
        H, H_lens = encode(encoder, X, torch.tensor([107, 107]))
        for parts in ([16], [1], [0, 31, 5], [107]):
            streamed, state = stream(encoder, X, parts)
            near(streamed, H, 1e-6 if positions == "rotary" else 1e-10)
            assert state.frames == H.size(1) == H_lens[0]


@EACH
def test_a_step_gives_whole_chunks_as_soon_as_their_frames_are_there(kind):
    encoder = make(kind, "chunk: {frames: 3, left: 1}")
    state, given, needed = encoder.start(1), {}, encoder.subsampling.frames(3)
    for t in range(1, 2 * needed + 1):
        H, state = encoder.step(noise(1, 1, FEATURES), state)
        given[t] = H.size(1)
    assert {t: T for t, T in given.items() if T} == {needed: 3, needed + 12: 3}
    H, state = encoder.step(noise(1, 0, FEATURES), state, last=True)
    assert state.frames == 6 + H.size(1) == encoder.subsampling.lengths(2 * needed)


@EACH
def test_the_state_of_a_stream_does_not_grow(kind):
    encoder, sizes = make(kind, "chunk: {frames: 2, left: 3}"), []
    state = encoder.start(1)
    for _ in range(20):
        _, state = encoder.step(noise(1, 8, FEATURES), state)
        carried = [state.rest, *(X for past in state.past for X in past.values())]
        sizes.append(8 * sum(X.numel() for X in carried))
        kept = sum(X.untyped_storage().nbytes() for X in carried)
        assert kept == sizes[-1]  # nor is more kept than is seen
    assert len(set(sizes[8:])) == 1


def test_a_convolution_that_sees_ahead_or_forgets_is_found(monkeypatch):
    """Planted: nothing is carried; convolutions that aren't causal. The first 8 frames read features before no. 40."""
    encoder, X = make("conformer", "chunk: {frames: 2, left: 1}"), noise(1, 60, FEATURES)
    later = X + (torch.arange(60) >= 40)[:, None]

    def whole(X):
        return encoder(X, torch.tensor([60])).H

    def differs(H):
        return (H - whole(X))[:, :8].abs().max() > 1e-6

    assert not differs(stream(encoder, X, [20])[0]) and not differs(whole(later))
    with monkeypatch.context() as planted:
        planted.setattr(Past, "precede", lambda self, name, X, frames, dim=1: X)
        assert differs(stream(encoder, X, [20])[0])
    for layer in encoder.layers:
        layer.convolution.depthwise.causal = False
    assert differs(whole(later))


def test_a_stream_is_read_with_chunks_in_evaluation_mode_and_to_its_end_only():
    X = noise(1, 9, FEATURES)

    def refused(encoder, state, message):
        with pytest.raises(ValueError, match=message):
            encoder.step(X, state)

    plain, encoder = make("transformer"), make("conformer", "chunk: {frames: 2, left: 1}")
    refused(plain, plain.start(1), "chunk: got none")
    refused(encoder.train(), encoder.start(1), r"training mode, .*; call eval\(\)")
    _, state = encoder.eval().step(X, encoder.start(1), last=True)
    refused(encoder, state, r"state: .* ended, .*; begin with start\(\)")
    H, state = encoder.step(X[:, :6], encoder.start(1), last=True)  # the subsampling sees 7 frames
    assert H.shape == (1, 0, encoder.d_model) and state.frames == 0


# --- LayerDrop ------------------------------------------------------------------------------------


@EACH
def test_layers_are_left_out_in_training_as_the_seed_draws(kind):
    encoder = make(kind, layers=6, dropout=0.0, layer_dropout=0.4)
    batch, taken = padded(FEATURES, (40, 30), 0.0), []
    for n, layer in enumerate(encoder.layers):
        layer.register_forward_hook(lambda *_, n=n: taken.append(n))
    encoder(*batch)
    assert taken == [*range(6)]  # all, outside of training
    encoder.train()
    for seed in range(3):
        torch.manual_seed(seed)
        kept = (torch.rand(6) >= 0.4).tolist()
        taken.clear()
        torch.manual_seed(seed)
        encoder(*batch)
        assert taken == [n for n in range(6) if kept[n]]
        torch.manual_seed(seed)
        assert layerdrop_mask(encoder.layers, 0.4, training=True) == kept


def test_without_layer_dropout_no_random_number_is_drawn():
    encoder, before = make("conformer", dropout=0.0).train(), torch.get_rng_state()
    encoder(*padded(FEATURES, (40, 30), 0.0))
    assert torch.get_rng_state().equal(before)
