"""Prove attention: it is the paper's formula, it is PyTorch's, and the ways to compute it agree.

References: softmax(Q Kᵀ / √d_k + mask) V in loops over float64 numbers, and `nn.MultiheadAttention` and the layers of
`nn.Transformer` with copied weights. Dropout is held to its definition: rate, scale, gradient, seed.
"""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from asr.nn.attention import MultiHeadAttention, attend, attention_weights
from asr.nn.encoders.transformer import TransformerSettings
from asr.nn.layers import ACTIVATIONS, Dropout, FeedForward, LayerContext, dropout, relu_dropout
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
    Tk = V.size(2)
    mask = torch.zeros(1, dtype=torch.bool) if mask is None else mask
    mask, weights = mask.expand(B, H, Tq, Tk), torch.zeros(B, H, Tq, Tk, dtype=torch.double)
    for b, h, i in itertools.product(range(B), range(H), range(Tq)):
        dots = [
            sum(q * k for q, k in zip(Q[b, h, i].tolist(), key, strict=True))
            for key in K[b, h].tolist()
        ]
        exps = [
            0.0 if m else math.exp(s / math.sqrt(d_k))
            for s, m in zip(dots, mask[b, h, i], strict=True)
        ]
        weights[b, h, i] = torch.tensor(exps, dtype=torch.double) / sum(exps)
    out = [
        [sum(w[..., j, None] * V[b, h, j].double() for j in range(Tk)) for h, w in enumerate(rows)]
        for b, rows in enumerate(weights)
    ]
    out = torch.stack([torch.stack(heads) for heads in out])
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
    parts = ours.query, ours.key, ours.value
    with torch.no_grad():
        if theirs.in_proj_weight is None:
            for part, name in zip(parts, "qkv", strict=True):
                getattr(theirs, f"{name}_proj_weight").copy_(part.weight)
        else:
            theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    return theirs


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("d_memory", [None, 7])
def test_multi_head_attention_is_pytorchs(mask, d_memory):
    torch.manual_seed(1)
    width = d_memory or 12
    ours = MultiHeadAttention(12, 3, d_memory=d_memory).double()
    theirs = nn.MultiheadAttention(12, 3, kdim=width, vdim=width, batch_first=True).double()
    X = torch.randn(2, 5, 12, dtype=torch.double)
    memory = torch.randn(2, 5, 7, dtype=torch.double) if d_memory else X
    maps, mask = [], MASKS[mask]
    full = None if mask is None else mask.expand(2, 3, 5, 5).flatten(0, 1)
    Z = ours(X, LayerContext(mask, attention=maps), *([memory] if d_memory else []))
    expected, weights = copied(ours, theirs)(
        X, memory, memory, attn_mask=full, average_attn_weights=False
    )
    assert_close((Z, maps[0]), (expected, weights))


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


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("kind, d_memory", [("Encoder", None), ("Decoder", 12)])
def test_a_layer_is_pytorchs(norm, kind, d_memory):
    ours = layer(norm, d_memory=d_memory)
    make = getattr(nn, f"Transformer{kind}Layer")
    theirs = make(12, 3, 20, 0.0, batch_first=True, norm_first=norm == "pre").double()
    theirs.linear1.load_state_dict(ours.ff.inner.state_dict())
    theirs.linear2.load_state_dict(ours.ff.outer.state_dict())
    copied(ours.attention, theirs.self_attn)
    names = ["attention", *["cross"] * bool(d_memory), "ff"]
    for n, name in enumerate(names, start=1):
        getattr(theirs, f"norm{n}").load_state_dict(getattr(ours, f"norm_{name}").state_dict())
    X, H = torch.randn(2, 4, 12, dtype=torch.double), torch.randn(2, 5, 12, dtype=torch.double)
    mask, keys = causal_mask(4), key_mask(torch.tensor([5, 3]), 5)
    if d_memory:
        copied(ours.cross, theirs.multihead_attn)
        expected = theirs(X, H, tgt_mask=mask, memory_key_padding_mask=keys[:, 0, 0])
        assert_close(ours(X, LayerContext(mask), H, LayerContext(keys)), expected)
    else:
        expected = theirs(H, src_key_padding_mask=keys[:, 0, 0])
        for n, length in enumerate([5, 3]):
            assert_close(ours(H, LayerContext(keys))[n, :length], expected[n, :length])


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
        if factor == 4:
            assert H.size(1) == ((T - 1) // 2 - 1) // 2
    for T in range(module.shortest):
        assert module.lengths(T) == 0 and module.lengths(torch.tensor([T])).tolist() == [0]
    assert module.lengths(module.shortest) == 1


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
