"""Prove pretrained encoders on tiny random models in transformers' own files.

The reference is transformers' forward of each utterance alone, after its own feature extractor; laws are those of every
encoder (contracts.py).
"""

import re
import shutil

import pytest
import sources
import torch
from contracts import check_encoder, encode, padded, same
from runs import assert_same
from safetensors.torch import load_file, save_file
from small import each, near, options
from torch import nn

from asr.features.waveform import Waveform
from asr.nn.encoders import pretrained_source as source
from asr.nn.encoders.families.waveform import UtteranceNorm
from asr.nn.encoders.pretrained import PretrainedSettings, fixed_spans
from asr.ops import zero_padding

transformers = pytest.importorskip("transformers")
EACH = each("family", sources.FAMILIES)
IDLE = ("k_proj.bias", "masked_spec_embed")  # the latter is there for training
SAMPLES = (9000, 4321, 7011)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return sources.folders(tmp_path_factory)


def encoder_of(path, text=""):
    """The encoder of a folder, with its weights, all of which it needs."""
    encoder, unused = sources.encoder_of(path, text)
    assert not unused
    return encoder


def waves():
    """Waveforms (B, S) with NaN beyond their lengths (B,), at unlike levels."""
    X, X_lens = padded(1, SAMPLES)
    return (X[:, :, 0] * torch.tensor([[0.1], [1.0], [0.01]]) + 0.02).float(), X_lens


# --- the forward pass -----------------------------------------------------------------------------


@each("normalize", [True, False])
@EACH
def test_in_a_batch_each_utterance_is_what_transformers_gives_of_it_alone(
    folder, family, normalize
):
    path, (X, X_lens) = folder(family, normalize), waves()
    reference = transformers.AutoModel.from_pretrained(path).eval()
    prepare = transformers.AutoFeatureExtractor.from_pretrained(path)
    H, H_lens = encode(encoder_of(path), *Waveform(8000, normalize)(X, X_lens))
    for x, length, h, frames in zip(X, X_lens, H, H_lens, strict=True):
        alone = prepare(x[:length].numpy(), sampling_rate=8000, return_tensors="pt").input_values
        near(h[None, :frames], reference(alone).last_hidden_state, 1e-5)


@EACH
def test_a_batch_is_convolved_at_once_on_a_gpu_and_gives_the_same(folder, family):
    way, (X, X_lens) = encoder_of(folder(family)).way, waves()
    X = zero_padding(X.unsqueeze(2), X_lens)
    for Z, x, length in zip(way.convolved(X, X_lens), X, X_lens, strict=True):
        alone = way.convolved(x[None, :length], length[None])
        near(Z[None, : alone.size(1)], alone, 1e-5)


def test_the_norm_of_an_utterance_has_the_gradient_of_its_formula():
    sizes = (3, 4, 9), (4,), (4,)
    tensors = [torch.randn(size, dtype=torch.double, requires_grad=True) for size in sizes]
    lens = torch.tensor([9, 4, 1])
    assert torch.autograd.gradcheck(
        lambda X, weight, bias: UtteranceNorm.apply(X, lens, weight, bias, 1e-5), tensors
    )


@each("text", ["", "weighted_layers: true", "stride: 2"])
@EACH
def test_every_family_holds_the_contract(folder, family, text):
    encoder = encoder_of(folder(family), text)
    lens = [encoder.subsampling.frames(n) for n in (11, 5, 8, 11)]
    check_encoder(encoder, 1, lens, IDLE)


@EACH
def test_layers_are_transformers_hidden_states_and_their_mean(folder, family):
    """transformers has those of large models without the final norm; the learned mean begins with equal shares."""
    path, x = folder(family), torch.randn(1, 5000, 1)
    reference = transformers.AutoModel.from_pretrained(path).eval()
    expected = list(reference(x[:, :, 0], output_hidden_states=True).hidden_states)
    if reference.config.to_dict().get("do_stable_layer_norm"):
        expected = [reference.encoder.layer_norm(H) for H in expected]
    found = encoder_of(path, "weighted_layers: true")(x, torch.tensor([5000]), layers=[3, 1, 2])
    for H, n in zip(found.layers, (3, 1, 2), strict=True):
        near(H, expected[n], 1e-5)
    near(found.H, torch.stack(expected).mean(0), 1e-5)


def test_the_adapter_is_transformers_without_padding_and_with_a_norm(folder):
    """Their output k ≥ 1 reads H from 2k - 2 on, if H has one frame more before it."""
    encoder = encoder_of(folder("wavlm large"), "stride: 2, weighted_layers: true")
    kind = transformers.models.wav2vec2.modeling_wav2vec2.Wav2Vec2AdapterLayer
    reference = kind(transformers.Wav2Vec2Config(output_hidden_size=32))
    reference.conv.load_state_dict(encoder.adapter.conv.state_dict())
    x, lens = torch.randn(1, 5000, 1), torch.tensor([5000])
    plain = encoder_of(folder("wavlm large"), "weighted_layers: true")(x, lens, layers=[1])
    found = encoder(x, lens, layers=[1])
    for H, got in ((plain.H, found.H), (plain.layers[0], found.layers[0])):
        P = reference(nn.functional.pad(H, (0, 0, 1, 0)).transpose(1, 2)).transpose(1, 2)
        near(got, nn.functional.layer_norm(P[:, 1 : 1 + (H.size(1) - 1) // 2], [32]), 1e-5)


@EACH
def test_lora_adds_a_product_to_weights_which_stay(folder, family):
    path, x, length = folder(family), torch.randn(1, 5000, 1), torch.tensor([5000])
    encoder = encoder_of(path, "lora: {rank: 2, alpha: 6, targets: [v_proj, output_dense]}")
    near(encoder(x, length).H, encoder_of(path)(x, length).H, 1e-6)
    learned = {name: p for name, p in encoder.named_parameters() if p.requires_grad}
    for matrix in learned.values():
        nn.init.normal_(matrix)
    reference = transformers.AutoModel.from_pretrained(path).eval()
    maps = {name[: -len(".A")] for name in learned if name.endswith(".A")}
    assert len(maps) == 2 * 3 and len(learned) == 2 * len(maps)
    for name in maps:
        module = encoder.get_submodule(name)
        weight = reference.get_submodule(name.removeprefix("pretrained.")).weight
        weight.data += 3 * module.B @ module.A
    H = encoder(x, length).H
    near(H, reference(x[:, :, 0]).last_hidden_state, 1e-4)
    H.square().sum().backward()
    assert all(matrix.grad.any() for matrix in learned.values())


# --- settings -------------------------------------------------------------------------------------


@each("family", ["wav2vec2 base", "wavlm large", "data2vec"])
def test_masks_follow_from_the_seed_of_an_utterance_alone(folder, family):
    text = "mask: {time_ratio: 0.4, time_width: 3, feature_ratio: 0.4, feature_width: 5}, dropout: 0.0, "
    encoder = encoder_of(folder(family), text + "attention_dropout: 0.0, activation_dropout: 0.0")
    batch, seeds = padded(1, SAMPLES), torch.tensor([5, 6, 7])
    plain, H_lens = encode(encoder.double(), *batch)
    encoder.train()
    same(encode(encoder, *batch)[0], plain, H_lens, 1e-9, "training without seeds")
    order = torch.tensor([1, 2, 0])
    X, X_lens = batch
    H = encoder(X, X_lens, seeds=seeds).H
    turned = encoder(X[order], X_lens[order], seeds=seeds[order]).H
    assert (H - plain).abs().amax((1, 2)).min() > 1e-3  # all are masked
    same(turned, H[order], H_lens[order], 1e-8, "another order")
    alone = encoder(X[[1], : SAMPLES[1]], X_lens[[1]], seeds=seeds[[1]]).H
    same(alone, H[[1]], H_lens[[1]], 1e-8, "alone")


def test_spans_have_their_width_their_share_and_stay_within():
    seeds, lens = torch.arange(4000), torch.tensor([50, 3, 4, 25]).repeat(1000)
    drawn = fixed_spans(seeds, lens, 0.2, 4, 60)
    assert not drawn[torch.arange(60) >= lens[:, None]].any() and not drawn[lens == 3].any()
    rows = " ".join("".join(map(str, row)) for row in drawn[lens == 50].int().tolist())
    assert min(map(len, re.findall("1+", rows))) == 4
    spans = {n: drawn[lens == n][:, :n].any(1).float().mean() for n in (4, 25)}
    assert 0.15 < spans[4] < 0.25 and spans[25] == 1  # 0.2 spans; 1.25 spans
    share = drawn[lens == 50].sum() / 50_000
    assert 0.17 < share < 0.2  # overlaps take a little of 0.2


OLD = """model_type: wav2vec2, hidden_size: 32, num_hidden_layers: 3, num_attention_heads: 2, intermediate_size: 48,
    hidden_act: gelu, layer_norm_eps: 1.0e-05, feat_extract_norm: group, feat_extract_activation: gelu,
    conv_dim: [16, 16, 16, 16, 16, 16, 16], conv_kernel: [10, 3, 3, 3, 3, 2, 2], conv_stride: [5, 2, 2, 2, 2, 2, 2],
    conv_bias: false, num_conv_pos_embeddings: 128, num_conv_pos_embedding_groups: 2, do_stable_layer_norm: false,
    feat_proj_layer_norm: null, num_buckets: null, max_bucket_distance: null, conv_pos_kernel_size: null,
    transformers: 5.24.0, expected: []"""


def test_the_description_in_an_older_model_folder_is_still_one(folder):
    """As version 0.2 wrote it first, when all families read samples."""
    given = {"kind": "pretrained", "source": "gone", "architecture": options(OLD)}
    encoder = PretrainedSettings(**given).build(1)
    same_names = encoder_of(folder("wav2vec2 base")).state_dict()
    assert {k: v.shape for k, v in encoder.state_dict().items()} == {
        k: v.shape for k, v in same_names.items()
    }


def test_the_convolutions_can_be_left_as_they_are(folder):
    encoder = encoder_of(folder("wavlm base"), "freeze_extractor: true")
    left = {name for name, p in encoder.named_parameters() if not p.requires_grad}
    convolutions = encoder.pretrained.feature_extractor.named_parameters()
    assert left == {f"pretrained.feature_extractor.{name}" for name, _ in convolutions}


@each("text", ["", "mask: {}"])
@each("family, prefix", [("wav2vec2 base", "wav2vec2"), ("wavlm large", "wavlm")])
def test_names_in_published_files_are_understood(folder, tmp_path, family, prefix, text):
    """A model with a head, as torch before 2.1 named the norm of the positions' weights."""
    shutil.copytree(folder(family), path := tmp_path / "published")
    tensors = load_file(path / source.WEIGHTS)
    tensors["masked_spec_embed"] = torch.arange(tensors["masked_spec_embed"].numel()).float()
    parts = (
        ("parametrizations.weight.original0", "weight_g"),
        ("parametrizations.weight.original1", "weight_v"),
    )
    renamed = {
        f"{prefix}.{name.replace(*parts[0]).replace(*parts[1])}": x for name, x in tensors.items()
    }
    assert {name.rpartition(".")[2] for name in renamed} >= {"weight_g", "weight_v"}
    save_file(
        renamed | {"lm_head.weight": torch.ones(3, 3)}, path / source.WEIGHTS, {"format": "pt"}
    )
    encoder, unused = sources.encoder_of(path, text)
    own = encoder.pretrained.state_dict()
    assert unused == ["lm_head.weight"] and ("masked_spec_embed" in own) is bool(text)
    assert_same(own, {name: x for name, x in tensors.items() if name in own})
