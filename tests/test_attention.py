"""Prove attention: it is the paper's formula, however it is computed. That layers are PyTorch's, test_translator.py
proves.

Reference: softmax(Q Kᵀ / √d_k + mask) V written out in float64. Dropout is held to its definition: rate, scale,
gradient, seed.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from small import each, near, noise
from torch import nn
from torch.testing import assert_close

from asr.nn.attention import MultiHeadAttention, attend, attention_weights
from asr.nn.encoders.transformer import TransformerSettings
from asr.nn.layers import ACTIVATIONS, Dropout, FeedForward, LayerContext, dropout, relu_dropout
from asr.nn.subsampling import STAGES, Subsampling
from asr.nn.transformer import StackSettings, TransformerLayer
from asr.ops import causal_mask, key_mask

SIZES = {"d_model": 12, "layers": 1, "heads": 3, "ff": 20}
KEYS = key_mask(torch.tensor([5, 3]), 5)
MASKS = [None, KEYS, causal_mask(5), causal_mask(5) | KEYS]
MASK = each("mask", MASKS, ids=["none", "keys", "causal", "both"])


def formula(Q, K, V, mask):
    """softmax(Q Kᵀ / √d_k + mask) V and its weights."""
    scores = torch.einsum("bhid,bhjd->bhij", Q, K) / Q.size(3) ** 0.5
    exps = scores.exp() if mask is None else scores.exp().masked_fill(mask, 0)
    weights = exps / exps.sum(3, keepdim=True)
    return torch.einsum("bhij,bhjd->bhid", weights, V), weights


def heads(dtype=torch.double):
    """Q, K and V with d_k = 4 and d_v = 6, the same in every type."""
    torch.manual_seed(1)
    return [noise(2, 3, 5, d).bfloat16().to(dtype).requires_grad_() for d in (4, 4, 6)]


@MASK
@each("dtype, tolerance", [(torch.double, 1e-8), (torch.float, 1e-5), (torch.bfloat16, 0.03)])
def test_attention_is_the_formula_however_it_is_computed(mask, dtype, tolerance):
    """By the fused kernel, or by steps, as bf16 training and dropout on a CPU; so are the gradients."""
    Q, K, V = exact = heads()
    out, weights = formula(Q, K, V, mask)
    near(attention_weights(Q, K, mask), weights, 1e-9)
    gradients = torch.autograd.grad(out.square().sum(), exact)
    for p in (0.0, 1e-9):  # of 65536 numbers, 0 are dropped
        given = heads(dtype)
        Z = attend(*given, mask, p)
        near(Z, out.to(dtype), tolerance)
        got = torch.autograd.grad(Z.square().sum(), given)
        near(got, tuple(x.to(dtype) for x in gradients), 20 * tolerance)
    with torch.no_grad():
        near(attend(*given, mask), out.to(dtype), tolerance)


def test_dropout_of_the_weights_is_seeded_unbiased_and_of_training_alone():
    Q, K, V = heads(torch.float)
    many = [X.detach().repeat(3000, 1, 1, 1).requires_grad_() for X in (Q, K, V)]
    mean = attend(*many, dropout=0.3).unflatten(0, (3000, 2)).mean(0)
    near(mean, attend(Q, K, V), 0.1)
    module, X = MultiHeadAttention(12, 3, dropout=0.5), torch.randn(2, 5, 12)
    results = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        results.append(module(X))
    near(results[0], results[2])
    assert not results[0].equal(results[1])
    near(module.eval()(X), module(X))


@MASK
@each(
    "d_k, d_v, d_memory",
    [(5, 2, None), (1, 8, 7), (4, 4, None), (None, 9, 7), (6, None, None), (None, None, 7)],
)
def test_multi_head_attention_is_its_heads(mask, d_k, d_v, d_memory):
    """MultiHead(X) = Concat(head_1, …) W_O, each head from its slice of the projections."""
    module, maps = MultiHeadAttention(12, 3, 0.0, d_k, d_v, d_memory).double(), []
    X = noise(2, 5, 12)
    memory = noise(2, 5, d_memory) if d_memory else X
    Z = module(X, LayerContext(mask, attention=maps), memory if d_memory else None)
    parts = {module.query: X, module.key: memory, module.value: memory}
    Q, K, V = (torch.stack(part(Y).chunk(3, 2), 1) for part, Y in parts.items())
    assert Q.size(3) == (d_k or 4) and V.size(3) == (d_v or d_k or 4)
    out, weights = formula(Q, K, V, mask)
    assert_close((Z, *maps), (module.out(torch.cat(out.unbind(1), 2)), weights))


def test_heads_that_do_not_divide():
    with pytest.raises(ValueError, match="heads: got 5, .* divisor of d_model = 12, or d_k given"):
        MultiHeadAttention(12, 5)
    assert MultiHeadAttention(12, 5, d_k=3)(torch.zeros(1, 2, 12)).shape == (1, 2, 12)


# --- dropout --------------------------------------------------------------------------------------


@each("p", [0.05, 0.1, 0.5, 0.9])
def test_dropout_zeroes_at_its_rate_and_scales_the_rest(p):
    torch.manual_seed(1)
    Z = Dropout(p)(torch.ones(1000, 401))
    dropped, deviation = (Z == 0).double(), math.sqrt(p * (1 - p))
    near(dropped.mean().item(), p, 5 * deviation / math.sqrt(Z.numel()) + 1 / 65536)
    assert_close(Z[Z != 0].unique(), torch.tensor([1 / (1 - p)]))
    # four neighbors share a random number, yet are independent
    near(dropped.mean(0), torch.full((401,), p).double(), 6 * deviation / math.sqrt(1000))
    near(torch.corrcoef(dropped.view(-1, 4).T), torch.eye(4).double(), 0.02)


@each("shape", [(), (1,), (3, 0), (13, 7, 5)])
@each("dtype", [torch.float, torch.bfloat16, torch.double])
def test_dropout_and_relu_before_it_are_their_masks_and_so_are_their_gradients(shape, dtype):
    """Seeded, of any shape and memory order; the input stays."""
    results = []
    for function in (lambda X: dropout(X.relu(), 0.4), lambda X: relu_dropout(X, 0.4)):
        torch.manual_seed(1)
        X = torch.randn(*shape, 2).to(dtype)[..., 0].requires_grad_()
        weights, before = torch.randn(shape).to(dtype), X.clone()
        Z = function(X)
        kept = (Z != 0) / 0.6
        (Z * weights).sum().backward()
        assert Z.dtype == dtype and X.equal(before)
        assert_close((Z, X.grad), ((X * kept).to(dtype), (weights * kept).to(dtype)))
        results.append((Z, X.grad))
        if X.dim() == 3:
            assert (Z == 0).any() and (Z > 0).any() and not function(X).equal(Z)
    near(*results)
    assert Dropout(0.5).eval()(X) is X and Dropout(0.0)(X) is X


# --- feed-forward, layers --------------------------------------------------------------------------


def test_feed_forward_is_the_formula():
    formulas = {"relu": torch.relu, "gelu": F.gelu, "swish": F.silu}
    assert ACTIVATIONS.keys() == formulas.keys()
    for name, function in formulas.items():
        module, X = FeedForward(6, 11, activation=name), torch.randn(2, 3, 6)
        expected = function(X @ module.inner.weight.T + module.inner.bias) @ module.outer.weight.T
        assert_close(module(X), expected + module.outer.bias)


@each("norm", ["pre", "post"])
def test_dropout_acts_on_the_results_of_sublayers(norm):
    """Where all of them are dropped, the residual is left: in post-norm with its LayerNorms."""
    settings, X = StackSettings(**SIZES, dropout=0.5, norm=norm), noise(2, 3, 12)
    layer = TransformerLayer(settings, d_memory=12).double()
    for parameter in layer.parameters():
        parameter.data.normal_(std=0.3)
    layer.dropout.forward = torch.zeros_like
    norms = (layer.norm_attention, layer.norm_cross, layer.norm_ff) if norm == "post" else ()
    assert_close(layer(X, memory=X), nn.Sequential(*norms)(X))


# --- subsampling ----------------------------------------------------------------------------------


@each("factor, shortest", [(4, 7), (6, 11), (8, 15)])
def test_subsampled_lengths_are_what_the_convolutions_yield(factor, shortest):
    assert math.prod(stride for _, stride in STAGES[factor]) == factor
    settings = {"kind": "transformer", "channels": 2, "subsampling": factor, "dropout": 0.1}
    encoder = TransformerSettings(**SIZES, **settings).build(40)
    module = encoder.subsampling
    for T in range(80):
        X = torch.zeros(1, 1, T, 40)
        expected = module.convolutions(X).size(2) if shortest <= T else 0
        assert module.lengths(T) == module.lengths(torch.tensor([T])).item() == expected
    assert module.frames(1) == module.shortest == shortest
    lens = torch.tensor([50, shortest - 1])
    message = f"utterance 1 of the batch: got {shortest - 1} frames, expected {shortest} or more"
    with pytest.raises(ValueError, match=message):
        encoder(torch.zeros(2, 50, 40), lens)


def test_too_few_features_for_the_convolutions():
    with pytest.raises(ValueError, match="features: got 6, too few for subsampling by 4"):
        Subsampling(6, 4)
