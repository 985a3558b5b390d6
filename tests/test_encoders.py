"""Prove the encoders: each obeys the contract, is what its paper's formulas say, and reads streams as it reads wholes.

References: relative attention, depthwise convolution and chunks in loops over single numbers; rotation by complex
numbers; the modules of the papers written out with PyTorch's functions. Faults are planted against what could go
unseen: padding that a convolution reads, a chunk that sees ahead.
"""

import math
import os
import signal
import time

import pytest
import torch
import torch.nn.functional as F
from contracts import check_batching, check_encoder, check_padding, encode, padded
from torch import nn
from torch.testing import assert_close

from asr.nn import convolution
from asr.nn.attention import MultiHeadAttention
from asr.nn.context import LayerContext, Past
from asr.nn.convolution import ConvolutionModule, DepthwiseConvolution
from asr.nn.dropout import Dropout, layerdrop_mask
from asr.nn.encoder import ChunkSettings
from asr.nn.encoders.conformer import ConformerSettings
from asr.nn.encoders.e_branchformer import ConvolutionalGatingMLP, EBranchformerSettings
from asr.nn.encoders.transformer import TransformerSettings
from asr.nn.positions import RelativePositions, RotaryPositions, Sinusoids, rotate, sinusoids, skew
from asr.ops import causal_mask, chunk_mask, key_mask

FEATURES = 20
SIZES = {"d_model": 12, "layers": 2, "heads": 3, "ff": 16, "channels": 4, "dropout": 0.1}
MAKE = {
    "transformer": (TransformerSettings, {}),
    "conformer": (ConformerSettings, {"kernel": 5}),
    "e_branchformer": (EBranchformerSettings, {"cgmlp": 14, "kernel": 5, "merge_kernel": 3}),
}
POSITIONS = {
    "transformer": ("sinusoidal", "rotary"),
    "conformer": ("relative", "rotary"),
    "e_branchformer": ("relative", "rotary"),
}
KINDS = [(kind, positions) for kind, several in POSITIONS.items() for positions in several]


def chunks(frames, left):
    return ChunkSettings(frames=frames, left=left)


def make(kind, features=FEATURES, **options):
    """A small encoder in float64; what begins as 0, 1 or small in its layers is random, so that none of it hides."""
    torch.manual_seed(1)
    settings, needed = MAKE[kind]
    encoder = settings(kind=kind, **SIZES | needed | options).build(features).double().eval()
    with torch.no_grad():
        for name, parameter in encoder.layers.named_parameters():
            if name.endswith((".u", ".v", "gate.weight", "norm.weight", "bias")):
                parameter.normal_()
    return encoder


# --- the contract ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind, positions", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subsampling": 8},
        {"d_k": 6, "d_v": 2},
        {"chunk": chunks(2, 1)},
        {"chunk": chunks(3, 0)},
        {"chunk": chunks(50, 1)},
    ],
    ids=str,
)
def test_every_encoder_holds_the_contract(kind, positions, options):
    check_encoder(make(kind, positions=positions, **options), FEATURES)


@pytest.mark.parametrize(
    "kind, places", [("transformer", 3), ("conformer", 6), ("e_branchformer", 8)]
)
def test_dropout_has_its_places(kind, places):
    """Behind each sublayer, within each feed-forward and gate, behind the merged branches; and of the input."""
    encoder, passed = make(kind, dropout=0.11, attention_dropout=0.07), []
    for module in encoder.modules():
        if isinstance(module, Dropout):
            module.register_forward_hook(lambda module, *_: passed.append(module.p))
    encoder(*padded(FEATURES, (61, 33), 0.0))
    assert passed == [0.11] * (places * SIZES["layers"] + 1)
    assert [m.dropout for m in encoder.modules() if isinstance(m, MultiHeadAttention)] == [
        0.07
    ] * SIZES["layers"]


@pytest.mark.parametrize("kind", ["conformer", "e_branchformer"])
def test_the_contract_refuses_a_convolution_that_reads_padding(kind, monkeypatch):
    encoder, (X, X_lens) = make(kind), padded(FEATURES, (61, 33, 47, 61))
    check_padding(encoder, X, X_lens, 1e-8)
    check_batching(encoder, X, X_lens, 1e-8)
    plain = DepthwiseConvolution.forward
    monkeypatch.setattr(
        DepthwiseConvolution,
        "forward",
        lambda self, X, context, *more: plain(self, X, LayerContext(), *more),
    )
    with pytest.raises(AssertionError, match="utterance 1 alone"):
        check_batching(encoder, X, X_lens, 1e-8)


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("chunk", [None, chunks(2, 1)], ids=str)
def test_in_training_padding_does_not_matter_either(kind, chunk):
    """The attention's dropout is of nothing (of 65536): it takes the formula's path, as training on a CPU does."""
    encoder = make(kind, dropout=0.0, attention_dropout=1e-9, chunk=chunk).train()
    X, X_lens = padded(FEATURES, (61, 33, 47, 61))
    check_padding(encoder, X, X_lens, 1e-8)
    check_batching(encoder, X, X_lens, 1e-8)


@pytest.mark.parametrize("kind, positions", KINDS)
def test_the_order_of_the_frames_matters(kind, positions):
    """Without positions, attention would give the same frames in another order; convolutions here see one frame."""
    kernels = {
        "transformer": {},
        "conformer": {"kernel": 1},
        "e_branchformer": {"kernel": 1, "merge_kernel": 1},
    }
    encoder = make(kind, positions=positions, **kernels[kind])
    H = torch.randn(1, 9, 12, dtype=torch.double)

    def through(H):
        H = encoder.positions(H)
        for layer in encoder.layers:
            H = layer(H)
        return H

    assert (through(H.flip(1)).flip(1) - through(H)).abs().max() > 1e-3


# --- relative positions ---------------------------------------------------------------------------


@pytest.mark.parametrize("Tq, Tk", [(5, 5), (1, 1), (2, 6), (1, 4)])
def test_relative_attention_is_the_formula(Tq, Tk):
    """softmax over j of ((q_i + u)·k_j + (q_i + v)·W r_{i-j}) / √d_k, number by number (Dai et al. 2019)."""
    torch.manual_seed(1)
    D, heads, d_k = 12, 3, 4
    positions = RelativePositions(D, heads, d_k, Sinusoids(D, 3)).double()
    nn.init.normal_(positions.u)
    nn.init.normal_(positions.v)
    attention = MultiHeadAttention(D, heads, positions=positions).double()
    X, memory = torch.randn(2, Tq, D, dtype=torch.double), torch.randn(2, Tk, D, dtype=torch.double)
    mask, maps = key_mask(torch.tensor([Tk, max(1, Tk - 2)]), Tk), []
    Z = attention(X, LayerContext(mask, attention=maps), memory)
    expected = torch.zeros(2, heads, Tq, Tk, dtype=torch.double)
    for b in range(2):
        for h in range(heads):
            part = slice(h * d_k, (h + 1) * d_k)
            q, k = attention.query(X)[b, :, part], attention.key(memory)[b, :, part]
            for i in range(Tq):
                for j in range(Tk):
                    distance = i + Tk - Tq - j  # the queries are the last of the keys' frames
                    r = positions.project(sinusoids(1, D, distance).double())[0, part]
                    score = (q[i] + positions.u[part]) @ k[j] + (q[i] + positions.v[part]) @ r
                    expected[b, h, i, j] = -math.inf if mask[b, 0, 0, j] else score / math.sqrt(d_k)
    weights = expected.softmax(-1)
    assert_close(maps[0], weights, rtol=1e-6, atol=1e-6)
    joined = (weights @ attention.keys_values(memory)[1]).transpose(1, 2).flatten(2)
    assert_close(Z, attention.out(joined), rtol=1e-6, atol=1e-6)


def test_the_drawing_of_skew():
    """Scores that are their own distance: row i, column j becomes the distance from query i to key j."""
    scores = torch.arange(3.0, -4, -1).expand(1, 1, 3, 7).contiguous()
    drawn = [
        [float(n) for n in line.split()[-4:]]
        for line in skew.__doc__.splitlines()
        if line.strip()[:4] == "3  2"
    ]
    assert skew(scores)[0, 0].tolist() == drawn == [[i + 1 - j for j in range(4)] for i in range(3)]


def test_the_ways_to_compute_attention_with_a_bias_agree():
    """The fused kernel and the formula (of training with dropout on a CPU), their gradients too."""
    results = []
    for p in (0.0, 1e-9):
        torch.manual_seed(1)
        attention = MultiHeadAttention(
            12, 3, p, positions=RelativePositions(12, 3, 4, Sinusoids(12))
        ).double()
        X = torch.randn(2, 5, 12, dtype=torch.double, requires_grad=True)
        mask = causal_mask(5) | key_mask(torch.tensor([5, 3]), 5)
        attention(X, LayerContext(mask)).square().sum().backward()
        results.append([X.grad, *(q.grad for q in attention.parameters())])
    assert_close(results[0], results[1])


def test_rotation_is_multiplication_by_complex_numbers():
    """RoFormer, equation 12 ff.: the pair i at position t, as a number, times exp(i t θ_i), θ_i = 10000^(-2i / d)."""
    X = torch.randn(2, 3, 7, 6, dtype=torch.double)
    turned = rotate(X, sinusoids(7, 6, 40).double())
    for t in range(7):
        for i in range(3):
            angle = (40 + t) / 10000 ** (2 * i / 6)
            expected = torch.complex(X[:, :, t, 2 * i], X[:, :, t, 2 * i + 1]) * complex(
                math.cos(angle), math.sin(angle)
            )
            assert_close(turned[:, :, t, 2 * i], expected.real, rtol=0, atol=1e-6)
            assert_close(turned[:, :, t, 2 * i + 1], expected.imag, rtol=0, atol=1e-6)


def test_rotary_scores_depend_on_the_distance_alone():
    """The same query and key everywhere: score (i, j) is that of (i + 1, j + 1); queries are the last of the keys."""
    q, k = torch.randn(2, 6, dtype=torch.double)
    rotary = RotaryPositions(Sinusoids(6, 4)).double()
    Q, K, bias = rotary(q.expand(1, 1, 9, 6), k.expand(1, 1, 9, 6))
    scores = (Q @ K.transpose(2, 3))[0, 0]
    assert bias is None and scores.flatten().unique().numel() > 9
    assert_close(scores[1:, 1:], scores[:-1, :-1], rtol=0, atol=1e-6)
    late, K, _ = rotary(q.expand(1, 1, 2, 6), k.expand(1, 1, 9, 6))
    assert_close((late @ K.transpose(2, 3))[0, 0], scores[-2:], rtol=0, atol=1e-6)


def test_the_table_of_sinusoids_grows_and_is_no_weight():
    table = Sinusoids(8, 4)
    assert_close(table(-3, 2), sinusoids(6, 8, -3), rtol=0, atol=0)
    with torch.inference_mode():
        assert_close(table(-1000, 20), sinusoids(1021, 8, -1000), rtol=0, atol=0)
    assert not table.state_dict()
    positions = RelativePositions(8, 2, 4, table)  # what grew without gradients serves training
    positions(torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4))[2].sum().backward()
    assert positions.project.weight.grad.isfinite().all()
    Q = torch.randn(1, 2, 3, 8, requires_grad=True)
    RotaryPositions(table)(Q, Q)[0].sum().backward()
    assert Q.grad.isfinite().all()


# --- convolutions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_the_depthwise_convolution_is_its_definition(causal):
    torch.manual_seed(1)
    module, X, lens = (
        DepthwiseConvolution(4, 5, causal).double(),
        torch.randn(2, 9, 4, dtype=torch.double),
        (9, 6),
    )
    padding = (torch.arange(9) >= torch.tensor(lens)[:, None])[:, :, None]
    Z = module(X.masked_fill(padding, torch.nan), LayerContext(padding=padding))
    for b, T in enumerate(lens):
        for t in range(T):
            for c in range(4):
                first = t - (4 if causal else 2)
                taps = [
                    module.weight[c, 0, n] * X[b, first + n, c]
                    for n in range(5)
                    if 0 <= first + n < T
                ]
                assert_close(Z[b, t, c], sum(taps) + module.bias[c])


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [1, 8, 16, 31, 32])
def test_few_channels_are_not_convolved_in_bf16(monkeypatch, channels, given):
    """On a CPU, where oneDNN's kernel for them may never return; the result is that of fp32, rounded."""
    convolve, seen = F.conv2d, []
    monkeypatch.setattr(
        F,
        "conv2d",
        lambda image, *rest, **how: seen.append(image.dtype) or convolve(image, *rest, **how),
    )
    torch.manual_seed(1)
    module, X = (
        DepthwiseConvolution(channels, 5),
        torch.randn(2, 9, channels).to(given).requires_grad_(),
    )
    with torch.autocast("cpu", torch.bfloat16):
        Z = module(X)
    Z.float().square().sum().backward()
    narrow = channels < convolution.NARROW
    assert seen == [torch.float32 if narrow else given] and Z.dtype == (
        given if narrow else torch.bfloat16
    )
    found = [t.grad.clone() for t in (X, module.weight)]
    module.zero_grad()
    exact = X.detach().float().requires_grad_()
    expected = module(exact)
    expected.square().sum().backward()
    assert_close(Z.float(), expected, rtol=1e-2, atol=1e-2)
    assert_close(found[0].float(), exact.grad, rtol=2e-2, atol=5e-2)
    assert_close(found[1], module.weight.grad, rtol=2e-2, atol=2e-1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a hang is ended by killing a forked process")
@pytest.mark.parametrize("channels", [2, 8, 16])
def test_a_narrow_convolution_in_bf16_returns(channels):
    """Kernels of 15 frames and more hung for ever on CPUs with AVX512-BF16."""
    if not (child := os.fork()):
        with torch.autocast("cpu", torch.bfloat16):
            DepthwiseConvolution(channels, 31)(
                torch.randn(2, 100, channels)
            ).float().sum().backward()
        os._exit(0)
    end = time.monotonic() + 30
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < end:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)


@pytest.mark.parametrize(
    "module", [ConvolutionModule, lambda *sizes: ConvolutionalGatingMLP(6, 8, 3, 0.0, sizes[-1])]
)
@pytest.mark.parametrize("causal", [False, True])
def test_a_convolution_module_alone_is_as_in_a_batch(module, causal):
    torch.manual_seed(1)
    module, X, lens = (
        module(6, 3, causal).double().eval(),
        torch.randn(2, 9, 6, dtype=torch.double),
        (9, 6),
    )
    padding = (torch.arange(9) >= torch.tensor(lens)[:, None])[:, :, None]
    Z = module(X.masked_fill(padding, torch.nan), LayerContext(padding=padding))
    for b, T in enumerate(lens):
        assert_close(Z[b, :T], module(X[b : b + 1, :T])[0], msg=f"utterance {b}")


def test_the_modules_are_the_papers():
    """Written out with PyTorch's functions: the convolution module of Conformer, the cgMLP of Branchformer."""
    torch.manual_seed(1)
    X = torch.randn(2, 9, 6, dtype=torch.double)

    def depthwise(X, conv):
        return F.conv1d(
            X.transpose(1, 2), conv.weight, conv.bias, padding="same", groups=X.size(2)
        ).transpose(1, 2)

    m = ConvolutionModule(6, 3).double()
    A, G = (X @ m.expand.weight.T + m.expand.bias).split(6, -1)
    normed = F.layer_norm(depthwise(A * G.sigmoid(), m.depthwise), (6,), m.norm.weight, m.norm.bias)
    assert_close(m(X), m.project(normed * normed.sigmoid()))
    m = ConvolutionalGatingMLP(6, 8, 3).double()
    nn.init.normal_(m.gate.weight)
    A, G = F.gelu(X @ m.expand.weight.T + m.expand.bias).split(4, -1)
    assert_close(
        m(X), m.project(A * depthwise(F.layer_norm(G, (4,), m.norm.weight, m.norm.bias), m.gate))
    )


def test_the_layers_are_the_papers():
    """Conformer, equation 1; E-Branchformer, equations 1 to 6 and the macaron feed-forwards."""
    X = torch.randn(2, 9, 12, dtype=torch.double)
    layer = make("conformer").layers[0]
    Z = X + layer.ff1(layer.norm_ff1(X)) / 2
    Z = Z + layer.attention(layer.norm_attention(Z))
    Z = Z + layer.convolution(layer.norm_convolution(Z))
    assert_close(layer(X), layer.norm(Z + layer.ff2(layer.norm_ff2(Z)) / 2))
    layer = make("e_branchformer").layers[0]
    Z = X + layer.ff1(layer.norm_ff1(X)) / 2
    G, L = layer.attention(layer.norm_attention(Z)), layer.cgmlp(layer.norm_cgmlp(Z))
    C, merge = torch.cat([G, L], -1), layer.merge_convolution
    mixed = F.conv1d(
        C.transpose(1, 2), merge.weight, merge.bias, padding="same", groups=24
    ).transpose(1, 2)
    Z = Z + layer.merge(C + mixed)
    assert_close(layer(X), layer.norm(Z + layer.ff2(layer.norm_ff2(Z)) / 2))


def test_the_gate_of_a_new_cgmlp_is_nearly_open():
    m = ConvolutionalGatingMLP(64, 256, 31)
    X = torch.randn(2, 50, 64)
    assert_close(m(X), m.project(F.gelu(m.expand(X))[..., :128]), rtol=0, atol=0.05)


# --- chunks and streams ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind, positions", KINDS)
@pytest.mark.parametrize("chunk", [chunks(1, 2), chunks(3, 1), chunks(4, 0)], ids=str)
def test_a_frame_sees_its_chunk_and_those_before_and_nothing_ahead(kind, positions, chunk):
    """One layer with a convolution of one frame: exactly the mask; as it is, several layers: nothing ahead."""
    kernels = {
        "transformer": {},
        "conformer": {"kernel": 1},
        "e_branchformer": {"kernel": 1, "merge_kernel": 1},
    }[kind]
    for options, exact in (({"layers": 1} | kernels, True), ({}, False)):
        encoder, inputs = make(kind, positions=positions, chunk=chunk, **options), []
        encoder.positions.register_forward_pre_hook(
            lambda _, args, inputs=inputs: inputs.append(args[0])
        )
        X = torch.randn(1, encoder.subsampling.frames(11), FEATURES, dtype=torch.double)
        H = encoder(X, torch.tensor([X.size(1)])).H
        hidden = chunk_mask(11, chunk.frames, chunk.left)
        for t in range(11):
            (gradient,) = torch.autograd.grad(H[0, t].square().sum(), inputs[0], retain_graph=True)
            reached = gradient[0].abs().amax(1) > 0
            end = (t // chunk.frames + 1) * chunk.frames
            assert reached[t] and not reached[end:].any(), t
            assert not exact or (reached == hidden[t].logical_not()).all(), t


def stream(encoder, X, parts):
    """Feed X in parts of so many frames, over and over, and the rest."""
    state, start, results = encoder.start(len(X)), 0, []
    while start < X.size(1):
        T = parts[len(results) % len(parts)]
        H, state = encoder.step(X[:, start : start + T], state, last=start + T >= X.size(1))
        results.append(H)
        start += T
    return torch.cat(results, 1), state


@pytest.mark.parametrize("kind, positions", KINDS)
@pytest.mark.parametrize(
    "chunk", [chunks(1, 3), chunks(2, 1), chunks(4, 2), chunks(3, 0), chunks(99, 0)], ids=str
)
@pytest.mark.parametrize("subsampling", [4, 6, 8])
def test_a_stream_is_the_whole(kind, positions, chunk, subsampling):
    """Whatever the parts in which the frames come; the last chunk is short; two streams side by side."""
    encoder = make(kind, positions=positions, chunk=chunk, subsampling=subsampling)
    X = torch.randn(2, 107, FEATURES, dtype=torch.double)
    with torch.no_grad():
        H, H_lens = encode(encoder, X, torch.tensor([107, 107]))
        for parts in ([16], [1], [0, 31, 5], [107]):
            streamed, state = stream(encoder, X, parts)
            assert_close(streamed, H, rtol=0, atol=1e-6 if positions == "rotary" else 1e-10)
            assert state.frames == H.size(1) == H_lens[0]


@pytest.mark.parametrize("kind", MAKE)
def test_training_sees_what_a_stream_will(kind):
    encoder = make(kind, chunk=chunks(3, 1), dropout=0.0)
    X, X_lens = padded(FEATURES, (60, 45), 0.0)
    assert_close(encoder.train()(X, X_lens).H, encoder.eval()(X, X_lens).H)


@pytest.mark.parametrize("kind", MAKE)
def test_a_step_gives_whole_chunks_as_soon_as_their_frames_are_there(kind):
    encoder = make(kind, chunk=chunks(3, 1))
    state, given = encoder.start(1), []
    needed = encoder.subsampling.frames(3)
    for _ in range(2 * needed):
        H, state = encoder.step(torch.randn(1, 1, FEATURES, dtype=torch.double), state)
        given.append(H.size(1))
    assert [t + 1 for t, T in enumerate(given) if T] == [needed, needed + 12] and set(given) == {
        0,
        3,
    }
    H, state = encoder.step(torch.zeros(1, 0, FEATURES).double(), state, last=True)
    assert state.frames == 6 + H.size(1) == encoder.subsampling.lengths(2 * needed)


@pytest.mark.parametrize("kind", MAKE)
def test_the_state_of_a_stream_does_not_grow(kind):
    encoder = make(kind, chunk=chunks(2, 3))
    state, sizes = encoder.start(1), []
    for _ in range(20):
        _, state = encoder.step(torch.randn(1, 8, FEATURES, dtype=torch.double), state)
        carried = [state.rest, *(X for past in state.past for X in past.values())]
        assert all(
            X.untyped_storage().nbytes() == 8 * X.numel() for X in carried
        )  # nor is more kept than is seen
        sizes.append(sum(X.numel() for X in carried))
    assert len(set(sizes[8:])) == 1


def test_a_convolution_that_sees_ahead_or_forgets_is_found(monkeypatch):
    """Planted: nothing is carried; convolutions that aren't causal. The first 8 frames read features before no. 40."""
    encoder, X = (
        make("conformer", chunk=chunks(2, 1)),
        torch.randn(1, 60, FEATURES, dtype=torch.double),
    )
    later = torch.cat([X[:, :40], X[:, 40:] + 1], 1)

    def difference(X, Y):
        return (X - Y)[:, :8].abs().max()

    def whole(X):
        return encoder(X, torch.tensor([60])).H

    assert (
        difference(stream(encoder, X, [20])[0], whole(X)) < 1e-10
        and difference(whole(later), whole(X)) == 0
    )
    with monkeypatch.context() as planted:
        planted.setattr(Past, "precede", lambda self, name, X, frames, dim=1: X)
        assert difference(stream(encoder, X, [20])[0], whole(X)) > 1e-6
    for layer in encoder.layers:
        layer.convolution.depthwise.causal = False
    assert difference(whole(later), whole(X)) > 1e-6


def test_only_an_encoder_with_chunks_reads_a_stream():
    encoder = make("transformer")
    with pytest.raises(ValueError, match="chunk: got none, expected an encoder with chunks"):
        encoder.step(torch.zeros(1, 9, FEATURES), encoder.start(1))


def test_a_stream_is_read_in_evaluation_mode_and_to_its_end_only():
    encoder, X = make("conformer", chunk=chunks(2, 1)), torch.zeros(1, 9, FEATURES).double()
    with pytest.raises(
        ValueError, match=r"step: got an encoder in training mode, .*; call eval\(\)"
    ):
        encoder.train().step(X, encoder.start(1))
    _, state = encoder.eval().step(X, encoder.start(1), last=True)
    with pytest.raises(
        ValueError, match=r"state: got one of streams that have ended, .*; begin with start\(\)"
    ):
        encoder.step(X, state)
    H, state = encoder.step(X[:, :6], encoder.start(1), last=True)  # the subsampling sees 7 frames
    assert H.shape == (1, 0, encoder.d_model) and state.frames == 0


# --- LayerDrop ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAKE)
def test_layers_are_left_out_in_training_as_the_seed_draws(kind):
    encoder = make(kind, layers=6, dropout=0.0, layer_dropout=0.4)
    X, X_lens = padded(FEATURES, (40, 30), 0.0)
    taken = []
    for n, layer in enumerate(encoder.layers):
        layer.register_forward_hook(lambda *_, n=n: taken.append(n))
    assert_close(encoder(X, X_lens).H, encoder(X, X_lens).H, rtol=0, atol=0)
    assert taken == [*range(6), *range(6)]  # all, outside of training
    counts = []
    for seed in range(200):
        torch.manual_seed(seed)
        kept = [n for n, u in enumerate(torch.rand(6)) if u >= 0.4]
        if seed < 3:
            taken.clear()
            torch.manual_seed(seed)
            encoder.train()(X, X_lens)
            assert taken == kept
        torch.manual_seed(seed)
        drawn = layerdrop_mask(encoder.layers, 0.4, training=True)
        assert drawn == [n in kept for n in range(6)]
        counts.append(sum(drawn))
    assert_close(sum(counts) / 200, 6 * 0.6, rtol=0.05, atol=0)


def test_without_layer_dropout_no_random_number_is_drawn():
    encoder, (X, X_lens) = make("conformer", dropout=0.0).train(), padded(FEATURES, (40, 30), 0.0)
    torch.manual_seed(1)
    encoder(X, X_lens)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert_close(drawn, torch.rand(1), rtol=0, atol=0)
