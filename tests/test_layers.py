"""What is done to each layer: the same losses and gradients, whether activations are kept, recomputed, or compiled."""

import copy

import pytest
import torch
from contracts import padded
from small import PART, each, hybrid, near, slow
from torch import nn
from torch._dynamo.testing import CompileCounter

from asr.models.lm import LMSettings, TransformerLM
from asr.training.layers import all_take_part, blocks, compile_layers, recompute

ENCODERS = [  # whose positions are made in other ways, and convolutions
    "",
    "positions: rotary",
    "kind: conformer, kernel: 5",
    "kind: conformer, kernel: 5, positions: rotary",
    "kind: e_branchformer, kernel: 5, merge_kernel: 3, cgmlp: 16",
]
EACH = each("encoder", ENCODERS)


def make(encoder="", dropout=0.0):
    return hybrid(f"both: {{dropout: {dropout}}}, encoder: {{{encoder}}}")


def gradients(model, lengths=(31, 24)):
    torch.manual_seed(2)
    X, X_lens = padded(20, lengths, fill=0.0)
    Y = torch.tensor([[1, 2, 3], [4, 5, -1]])
    loss = model.loss(X.float(), X_lens, Y, torch.tensor([3, 2]))
    loss.total.backward()
    return {"loss": loss.total.detach(), **{name: p.grad for name, p in model.named_parameters()}}


def test_blocks_are_the_layers_of_all_stacks():
    model, lm = make(), TransformerLM(LMSettings(**PART | {"kind": "lm"}), 9)
    assert blocks(model) == [*model.encoder.layers, *model.decoder.layers]
    assert blocks(lm) == list(lm.decoder.layers)


@EACH
@each("dropout", [0.0, 0.3])
def test_recomputed_activations_give_the_same_gradients(dropout, encoder):
    """The same dropout masks, too; and the layers were indeed passed twice."""
    expected, model, calls = gradients(make(encoder, dropout)), make(encoder, dropout), []
    for block in blocks(model):
        block.attention.register_forward_hook(lambda *_: calls.append(1))
    recompute(model)
    near(gradients(model), expected)
    assert len(calls) == 2 * len(blocks(model))


@EACH
@slow
def test_layers_compile_whole_for_any_length(encoder):
    """In one graph, without a break, and no new one for another length."""
    torch._dynamo.reset()  # of other models' layers
    model, counter = make(encoder), CompileCounter()
    compile_layers(model, fullgraph=True, backend=counter)
    for lengths in ((31, 24), (60, 17), (43, 43)):
        model.zero_grad()
        plain = gradients(make(encoder), lengths)
        torch.testing.assert_close(gradients(model, lengths), plain, rtol=1e-5, atol=1e-6)
    # encoder's and decoder's layers; the first lengths may count as special
    assert 2 <= counter.frame_count <= 4


@slow
def test_layers_are_compiled_in_training_alone_and_recomputed_as_before():
    torch._dynamo.reset()
    plain, model, counter = make(), make(), CompileCounter()
    for one in (plain, model):
        recompute(one)
    compile_layers(model, backend=counter)
    gradients(copy.deepcopy(model).eval())
    assert counter.frame_count == 0
    other = copy.deepcopy(model)  # as shards have it
    torch.testing.assert_close(gradients(other), gradients(plain), rtol=1e-5, atol=1e-6)
    assert counter.frame_count and not any(p.grad is not None for p in model.parameters())


class Named(nn.Module):
    """Layers that are called by keywords, as those of transformers."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([2.0, 3.0]))

        def forward(self, H, scale, shift=0.0):
            return torch.tanh(H * self.weight * scale + shift)

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([self.Layer(), self.Layer()])

    def forward(self, H):
        for layer in self.layers:
            H = layer(H, shift=H, scale=0.5)
        return H


@each("changes", [(recompute,), (compile_layers,), (recompute, compile_layers)])
def test_layers_may_be_called_by_keywords(changes):
    torch._dynamo.reset()
    plain, model = Named(), Named()
    for change in changes:
        change(model, **{"backend": CompileCounter()} if change is compile_layers else {})
    for one in (plain, model):
        one(torch.tensor([0.3, -0.2])).sum().backward()
    for got, expected in zip(model.parameters(), plain.parameters(), strict=True):
        near(got.grad, expected.grad, 1e-6)


def test_what_is_measured_has_all_layers():
    model, passed = make("layer_dropout: 0.9"), []
    model.decoder.layer_dropout = 0.8
    for block in blocks(model):
        block.register_forward_hook(lambda *_: passed.append(1))
    with pytest.raises(KeyError), all_take_part(model):
        gradients(model)
        raise KeyError
    assert len(passed) == len(blocks(model)) == 4
    assert (model.encoder.layer_dropout, model.decoder.layer_dropout) == (0.9, 0.8)
