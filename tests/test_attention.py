"""Prove attention: it is the paper's formula, it is PyTorch's, and the ways to compute it agree.

References: softmax(Q Kᵀ / √d_k + mask) V in loops over float64 numbers, and `nn.MultiheadAttention` and the layers of
`nn.Transformer` with copied weights. Dropout is held to its definition: rate, scale, gradient, seed.
"""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from asr.nn.attention import MultiHeadAttention, attend, attention_weights
from asr.nn.context import LayerContext
from asr.nn.dropout import Dropout, dropout, relu_dropout
from asr.nn.encoders.transformer import TransformerSettings
from asr.nn.feedforward import ACTIVATIONS, FeedForward
from asr.nn.subsampling import STAGES, Subsampling
from asr.nn.transformer import StackSettings, TransformerLayer, final_norm
from asr.ops import causal_mask, key_mask

MASKS = {
    "none": None,
    "keys": key_mask(torch.tensor([5, 3]), 5),
    "causal": causal_mask(5),
    "both": causal_mask(5) | key_mask(torch.tensor([5, 3]), 5),
}


def by_loops(Q, K, V, mask):
    """softmax(Q Kᵀ / √d_k + mask) V and its weights, one number after the other."""
    Q, K, V = Q.detach(), K.detach(), V.detach()
    B, H, Tq, d_k = Q.shape
    Tk, d_v = V.shape[2:]
    mask = (
        torch.zeros(B, H, Tq, Tk, dtype=torch.bool) if mask is None else mask.expand(B, H, Tq, Tk)
    )
    out, weights = (
        torch.zeros(B, H, Tq, d_v, dtype=torch.double),
        torch.zeros(B, H, Tq, Tk, dtype=torch.double),
    )
    for b in range(B):
        for h in range(H):
            for i in range(Tq):
                scores = [
                    -math.inf
                    if mask[b, h, i, j]
                    else sum(
                        float(q) * float(k) for q, k in zip(Q[b, h, i], K[b, h, j], strict=True)
                    )
                    for j in range(Tk)
                ]
                exps = [math.exp(s / math.sqrt(d_k)) for s in scores]
                for j in range(Tk):
                    weights[b, h, i, j] = exps[j] / sum(exps)
                    out[b, h, i] += weights[b, h, i, j] * V[b, h, j].double()
    return out, weights


def heads(dtype=torch.double, seed=1):
    rng = torch.Generator().manual_seed(seed)
    shapes = [(2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 6)]  # d_k = 4, d_v = 6
    return [torch.randn(s, generator=rng, dtype=torch.double).to(dtype) for s in shapes]


@pytest.mark.parametrize("mask", MASKS)
def test_attention_is_the_formula(mask):
    Q, K, V = heads()
    out, weights = by_loops(Q, K, V, MASKS[mask])
    assert_close(attention_weights(Q, K, MASKS[mask]), weights)
    assert_close(attend(Q, K, V, MASKS[mask]), out)
    floats = [X.float() for X in (Q, K, V)]
    assert_close(attend(*floats, MASKS[mask]), out.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mask", MASKS)
def test_the_ways_to_compute_it_agree(mask):
    """The fused kernel; the formula, which serves bf16 training on a CPU; and that with a dropout of nearly nothing."""
    Q, K, V = heads(torch.bfloat16)
    expected = by_loops(Q, K, V, MASKS[mask])[0].float()
    assert_close(attend(Q, K, V, MASKS[mask]).float(), expected, rtol=0.03, atol=0.02)
    assert_close(
        attend(Q.requires_grad_(), K, V, MASKS[mask]).float(), expected, rtol=0.03, atol=0.02
    )
    X = [x.float() for x in heads()]
    fused = attend(*X, MASKS[mask])
    explicit = attend(
        X[0].requires_grad_(), *X[1:], MASKS[mask], 1e-9
    )  # rounds to a dropout of 0 of 65536
    assert_close(explicit, fused, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mask", MASKS)
def test_their_gradients_agree(mask):
    gradients = []
    for p in (0.0, 1e-9):
        X = [x.requires_grad_() for x in heads()]
        attend(*X, MASKS[mask], p).square().sum().backward()
        gradients.append([x.grad for x in X])
    assert_close(gradients[0], gradients[1])


def test_dropout_of_the_weights_is_seeded_and_unbiased():
    Q, K, V = (x.requires_grad_() for x in heads(torch.float))
    torch.manual_seed(1)
    first = attend(Q, K, V, None, 0.3)
    torch.manual_seed(1)
    assert_close(attend(Q, K, V, None, 0.3), first, rtol=0, atol=0)
    mean = torch.stack([attend(Q, K, V, None, 0.3).detach() for _ in range(3000)]).mean(0)
    assert_close(mean, attend(Q, K, V).detach(), rtol=0, atol=0.1)


def copied(ours: MultiHeadAttention, theirs: nn.MultiheadAttention):
    """Copy our weights into PyTorch's module."""
    with torch.no_grad():
        theirs.in_proj_weight.copy_(
            torch.cat([ours.query.weight, ours.key.weight, ours.value.weight])
        )
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    return theirs


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention_is_pytorchs(padded, causal):
    torch.manual_seed(1)
    ours = MultiHeadAttention(12, 3).double()
    theirs = copied(ours, nn.MultiheadAttention(12, 3, batch_first=True).double())
    X, lens = torch.randn(2, 5, 12, dtype=torch.double), torch.tensor([5, 3])
    keys, future = key_mask(lens, 5), causal_mask(5)
    mask = (keys | future if causal else keys) if padded else (future if causal else None)
    maps = []
    Z = ours(X, LayerContext(mask, attention=maps))
    expected, weights = theirs(
        *(X, X, X),
        key_padding_mask=keys[:, 0, 0] if padded else None,
        attn_mask=future if causal else None,
        average_attn_weights=False,
    )
    assert_close(Z, expected)
    assert_close(maps[0], weights)


def test_multi_head_attention_to_a_memory_of_another_width():
    torch.manual_seed(1)
    ours = MultiHeadAttention(12, 3, d_memory=7).double()
    theirs = nn.MultiheadAttention(12, 3, kdim=7, vdim=7, batch_first=True).double()
    with torch.no_grad():
        for part in ("query", "key", "value"):
            getattr(theirs, f"{part[0]}_proj_weight").copy_(getattr(ours, part).weight)
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    X, memory = torch.randn(2, 4, 12, dtype=torch.double), torch.randn(2, 6, 7, dtype=torch.double)
    mask = key_mask(torch.tensor([6, 2]), 6)
    assert_close(
        ours(X, LayerContext(mask), memory),
        theirs(X, memory, memory, key_padding_mask=mask[:, 0, 0])[0],
    )


@pytest.mark.parametrize("d_k, d_v", [(5, 2), (1, 8), (4, 4), (None, 9), (6, None)])
def test_widths_of_a_head(d_k, d_v):
    """MultiHead(X) = Concat(head_1, …) W_O, head by head from slices of the weights."""
    torch.manual_seed(1)
    module = MultiHeadAttention(12, 3, d_k=d_k, d_v=d_v).double()
    k = d_k or 4
    v = d_v or k
    assert module.query.out_features == 3 * k and module.value.out_features == 3 * v
    X, maps = torch.randn(2, 5, 12, dtype=torch.double), []
    Z = module(X, LayerContext(causal_mask(5), attention=maps))
    outputs = []
    for h in range(3):
        Q, K = (
            X @ p.weight[h * k : h * k + k].T + p.bias[h * k : h * k + k]
            for p in (module.query, module.key)
        )
        V = X @ module.value.weight[h * v : h * v + v].T + module.value.bias[h * v : h * v + v]
        out, weights = by_loops(Q[:, None], K[:, None], V[:, None], causal_mask(5))
        assert_close(maps[0][:, h], weights[:, 0])
        outputs.append(out[:, 0])
    assert_close(Z, torch.cat(outputs, -1) @ module.out.weight.T + module.out.bias)


def test_heads_that_do_not_divide():
    with pytest.raises(
        ValueError, match="heads: got 5, expected a divisor of d_model = 12, or d_k given"
    ):
        MultiHeadAttention(12, 5)
    assert MultiHeadAttention(12, 5, d_k=3)(torch.zeros(1, 2, 12)).shape == (1, 2, 12)


def test_attention_dropout_acts_in_training_only():
    torch.manual_seed(1)
    module, X = MultiHeadAttention(12, 3, dropout=0.5), torch.randn(2, 5, 12)
    assert (module(X) != module(X)).any()
    module.eval()
    assert_close(module(X), module(X), rtol=0, atol=0)


# --- dropout --------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.05, 0.1, 0.5, 0.9])
def test_dropout_zeroes_at_its_rate_and_scales_the_rest(p):
    torch.manual_seed(1)
    X = torch.ones(1000, 401)
    Z = Dropout(p)(X)
    rate = (Z == 0).double().mean().item()
    assert abs(rate - p) < 5 * math.sqrt(p * (1 - p) / X.numel()) + 1 / 65536
    assert_close(Z[Z != 0], torch.full((int((Z != 0).sum()),), 1 / (1 - p)))
    columns = (Z == 0).double().mean(0)  # four neighbors share a random number, yet are independent
    assert (columns - p).abs().max() < 6 * math.sqrt(p * (1 - p) / 1000)
    kept = (Z != 0).double().flatten()[: 401_000 // 4 * 4].view(-1, 4)
    assert (torch.corrcoef(kept.T) - torch.eye(4)).abs().max() < 0.02


def test_dropout_gradient_is_its_mask():
    torch.manual_seed(1)
    X = torch.randn(7, 13, dtype=torch.double, requires_grad=True)
    Z = dropout(X, 0.4)
    weights = torch.randn_like(Z)
    (Z * weights).sum().backward()
    mask = (Z != 0).double() / 0.6
    assert_close(Z, X * mask)
    assert_close(X.grad, weights * mask)


@pytest.mark.parametrize("dtype", [torch.float, torch.bfloat16, torch.double])
def test_relu_and_dropout_in_one_are_the_two_one_after_the_other(dtype):
    results = []
    for function in (lambda X: dropout(X.relu(), 0.4), lambda X: relu_dropout(X, 0.4)):
        torch.manual_seed(1)
        X = torch.randn(7, 13, 5).to(dtype).transpose(0, 1).requires_grad_()
        weights = torch.randn(13, 7, 5).to(dtype)
        Z = function(X)
        (Z * weights).sum().backward()
        results.append((Z.detach(), X.grad))
    assert_close(results[0], results[1], rtol=0, atol=0)
    assert (results[1][0] == 0).any() and (results[1][0] > 0).any()


def test_dropout_is_seeded_and_leaves_its_input():
    X = torch.ones(33, 5)
    torch.manual_seed(1)
    first, second = dropout(X, 0.5), dropout(X, 0.5)
    torch.manual_seed(1)
    assert_close(dropout(X, 0.5), first, rtol=0, atol=0)
    assert (first != second).any() and (X == 1).all()


def test_dropout_is_nothing_in_evaluation_and_of_zero():
    X = torch.randn(3, 4)
    assert Dropout(0.5).eval()(X) is X and Dropout(0.0)(X) is X


@pytest.mark.parametrize("shape", [(), (1,), (3, 0), (2, 3, 5)])
@pytest.mark.parametrize("dtype", [torch.float, torch.bfloat16, torch.double])
def test_dropout_of_any_shape_and_type(shape, dtype):
    X = torch.ones(shape, dtype=dtype)
    Z = dropout(X.transpose(0, -1) if X.dim() > 1 else X, 0.5)
    assert Z.dtype == dtype and Z.shape == (shape[::-1] if len(shape) > 1 else shape)


# --- feed-forward, layers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "activation, formula",
    [("relu", torch.relu), ("gelu", nn.functional.gelu), ("swish", nn.functional.silu)],
)
def test_feed_forward_is_the_formula(activation, formula):
    module, X = FeedForward(6, 11, activation=activation), torch.randn(2, 3, 6)
    expected = (
        formula(X @ module.inner.weight.T + module.inner.bias) @ module.outer.weight.T
        + module.outer.bias
    )
    assert_close(module(X), expected)
    assert set(ACTIVATIONS) == {"relu", "gelu", "swish"}


def layer(norm, dropout=0.0, **more):
    """Our layer, all of its weights random, so that none hides."""
    torch.manual_seed(1)
    settings = StackSettings(d_model=12, layers=1, heads=3, ff=20, dropout=dropout, norm=norm)
    ours = TransformerLayer(settings, **more).double()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_(std=0.3)
    return ours


def fill(theirs, ours, names):
    """Copy attention, norms and feed-forward of our layer into PyTorch's."""
    theirs.linear1.load_state_dict(ours.ff.inner.state_dict())
    theirs.linear2.load_state_dict(ours.ff.outer.state_dict())
    for n, name in enumerate(names, start=1):
        getattr(theirs, f"norm{n}").load_state_dict(getattr(ours, name).state_dict())
    copied(ours.attention, theirs.self_attn)
    return theirs


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_encoder_layer_is_pytorchs(norm):
    ours = layer(norm)
    theirs = nn.TransformerEncoderLayer(
        12, 3, 20, 0.0, batch_first=True, norm_first=norm == "pre"
    ).double()
    fill(theirs, ours, ["norm_attention", "norm_ff"])
    X, mask = torch.randn(2, 5, 12, dtype=torch.double), key_mask(torch.tensor([5, 3]), 5)
    expected = theirs(X, src_key_padding_mask=mask[:, 0, 0])
    for n, length in enumerate([5, 3]):
        assert_close(ours(X, LayerContext(mask))[n, :length], expected[n, :length])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_decoder_layer_is_pytorchs(norm):
    ours = layer(norm, d_memory=12)
    theirs = nn.TransformerDecoderLayer(
        12, 3, 20, 0.0, batch_first=True, norm_first=norm == "pre"
    ).double()
    fill(theirs, ours, ["norm_attention", "norm_cross", "norm_ff"])
    copied(ours.cross, theirs.multihead_attn)
    Y, H = torch.randn(2, 4, 12, dtype=torch.double), torch.randn(2, 5, 12, dtype=torch.double)
    mask, cross = causal_mask(4), key_mask(torch.tensor([5, 3]), 5)
    expected = theirs(Y, H, tgt_mask=mask, memory_key_padding_mask=cross[:, 0, 0])
    assert_close(ours(Y, LayerContext(mask), H, LayerContext(cross)), expected)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_acts_on_the_results_of_sublayers(norm):
    """Where all of them are dropped, the residual is left: in post-norm with its LayerNorms."""
    ours, X = layer(norm, dropout=0.5, d_memory=12), torch.randn(2, 3, 12, dtype=torch.double)
    ours.dropout.forward = torch.zeros_like
    norms = (ours.norm_attention, ours.norm_cross, ours.norm_ff) if norm == "post" else ()
    expected = X
    for each in norms:
        expected = each(expected)
    assert_close(ours(X, memory=X), expected)


def test_a_pre_norm_stack_ends_in_a_norm():
    sizes = {"d_model": 12, "layers": 1, "heads": 3, "ff": 20, "dropout": 0.0}
    assert isinstance(final_norm(StackSettings(**sizes)), nn.LayerNorm)
    assert isinstance(final_norm(StackSettings(**sizes, norm="post")), nn.Identity)


# --- subsampling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", STAGES)
def test_subsampled_lengths_are_what_the_convolutions_yield(factor):
    module = Subsampling(40, 4, factor, channels=2)
    assert math.prod(stride for _, stride in STAGES[factor]) == factor
    for T in range(module.shortest, 80):
        H, H_lens = module(torch.zeros(1, T, 40), torch.tensor([T]))
        assert H.shape == (1, int(H_lens[0]), 4) and module.lengths(T) == H.size(1)
    for T in range(module.shortest):
        assert module.lengths(T) == 0 and module.lengths(torch.tensor([T])).tolist() == [0]
    assert module.lengths(module.shortest) == 1


def test_the_formula_of_factor_4():
    module = Subsampling(40, 4)
    assert [module.lengths(T) for T in range(7, 200)] == [
        ((T - 1) // 2 - 1) // 2 for T in range(7, 200)
    ]


@pytest.mark.parametrize("factor, shortest", [(4, 7), (6, 11), (8, 15)])
def test_too_short_for_a_subsampled_frame_names_the_utterance(factor, shortest):
    module = Subsampling(40, 4, factor)
    message = f"utterance 1 of the batch: got {shortest - 1} frames, expected {shortest} or more"
    with pytest.raises(ValueError, match=message):
        module(torch.zeros(2, 50, 40), torch.tensor([50, shortest - 1]))
    sizes = {"kind": "transformer", "d_model": 8, "layers": 1, "heads": 2, "ff": 8, "dropout": 0.1}
    encoder = TransformerSettings(**sizes, subsampling=factor).build(40)
    with pytest.raises(ValueError, match=message):
        encoder(torch.zeros(2, 50, 40), torch.tensor([50, shortest - 1]))


def test_too_few_features_for_the_convolutions():
    with pytest.raises(ValueError, match="features: got 6, too few for subsampling by 4"):
        Subsampling(6, 4)


# --- attention weights ----------------------------------------------------------------------------


def test_the_attention_of_every_layer_reproduces_the_output():
    """The weights that are returned, applied to the layer's values, give what the layer gave."""
    torch.manual_seed(1)
    sizes = {
        "kind": "transformer",
        "d_model": 12,
        "layers": 3,
        "heads": 3,
        "ff": 16,
        "dropout": 0.1,
    }
    encoder, seen = TransformerSettings(**sizes).build(20).double().eval(), []
    for one in encoder.layers:
        one.attention.register_forward_hook(
            lambda module, args, result: seen.append((module, args[0], result))
        )
    output = encoder(
        torch.randn(2, 40, 20, dtype=torch.double), torch.tensor([40, 30]), attention=True
    )
    assert len(output.attention) == 3
    T = int(output.H_lens.max())
    for weights, (module, X, result) in zip(output.attention, seen, strict=True):
        assert weights.shape == (2, 3, T, T)
        assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        assert not weights[1, :, :, output.H_lens[1] :].any()
        joined = (weights @ module.keys_values(X)[1]).transpose(1, 2).flatten(2)
        assert_close(module.out(joined), result)
