"""Prove pretrained encoders on tiny random models in transformers' own files.

The reference is transformers' forward of each utterance alone, after its own feature extractor; laws are those of every
encoder (contracts.py), of training (runs.py) and of files from strangers.
"""

import contextlib
import json
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import soundfile
import sources
import torch
from contracts import check_encoder, encode, padded, same
from refusals import refused
from runs import (
    assert_processes_change_nothing,
    assert_same,
    assert_uninterrupted,
    dev_losses,
    end,
    experiment,
    history,
    launch,
    make_root,
    status_of,
    stop,
    train,
    wait_for_state,
    weights,
)
from safetensors.torch import load_file, save_file
from small import Malicious, each, near, options, rows, slow
from spoken import assert_alike
from tones import CONFIG
from torch import nn

import asr
from asr import imports
from asr.cli.train import main
from asr.data import manifest
from asr.errors import UserError
from asr.features.waveform import Waveform
from asr.info.folders import describe
from asr.models.recognizer import load
from asr.models.transfer import load_what_fits, unlike_settings
from asr.nn.encoders import pretrained_source as source
from asr.nn.encoders.families.waveform import UtteranceNorm
from asr.nn.encoders.pretrained import PretrainedSettings, fixed_spans, read_architecture
from asr.ops import zero_padding
from asr.serving.engine import Engine
from asr.training import build as building
from asr.training.build import build
from asr.training.folder import continues
from asr.training.identity import stamp_of
from asr.training.optim.adam import parameter_groups
from asr.training.optim.muon import MuonSettings
from asr.transcription.options import SearchOptions
from asr.transcription.times import place
from asr.transcription.windows import ctc_log_probs, reader_of

transformers = pytest.importorskip("transformers")
FAMILIES = {  # one of each way through the code: norms of the convolutions, of the layers, positions
    "wav2vec2 base": "model_type: wav2vec2",
    "wav2vec2 large": "model_type: wav2vec2, feat_extract_norm: layer, do_stable_layer_norm: true, conv_bias: true",
    "hubert base": "model_type: hubert, feat_proj_layer_norm: false",
    "hubert large": "model_type: hubert, feat_extract_norm: layer, do_stable_layer_norm: true",
    "wavlm base": "model_type: wavlm",
    "wavlm large": "model_type: wavlm, feat_extract_norm: layer, do_stable_layer_norm: true",
    "data2vec": "model_type: data2vec-audio, num_conv_pos_embeddings: 3, conv_pos_kernel_size: 19",
}
EACH = each("family", FAMILIES)
IDLE = ("k_proj.bias", "masked_spec_embed")  # the latter is there for training
SAMPLES = (9000, 4321, 7011)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of a family in its own files: random weights, and the feature extractor's settings for 8000 Hz."""

    @cache
    def make(family, normalize=True):
        path = tmp_path_factory.mktemp("source") / "model"
        sources.write_source(path, FAMILIES[family], 8000, normalize)
        return path

    return make


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


# --- training -------------------------------------------------------------------------------------


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


ENCODER = """encoder: {{kind: pretrained, source: {root}/source, dropout: 0.05, layer_dropout: 0.2,
    mask: {{time_ratio: 0.1, time_width: 2}}}}
  fine_tuning: {{freeze_steps: 7, rate: 0.5, layer_decay: 0.9}}"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory, folder):
    """A run of three epochs, 15 steps, of which the encoder is frozen in the first 7: root, its folder, its weights."""
    root = make_root(tmp_path_factory.mktemp("pretrained"))
    shutil.copytree(folder("wavlm large"), root / "source")
    text = re.sub("encoder: .*", ENCODER, CONFIG.replace("average: 2", "average: 2, best_by: loss"))
    text = re.sub("(features:)\n.*\n.*\n", r"\1 {{waveform: {{sample_rate: 8000}}}}\n", text)
    (root / "x.yaml").write_text(text.format(root=root))
    return root, root / "whole", weights(train(root, root / "whole"))


def test_training_lowers_the_loss_and_keeps_the_frozen_encoder(trained):
    root, out, _ = trained
    losses = dev_losses(out)
    assert losses[-1] < losses[0] - 0.2
    frozen = train(root, root / "frozen", "training.epochs=1").model.encoder
    said = "freeze_steps: got 7, but the training has about 5 steps, so the encoder stays as it is"
    assert [said in (path / "train.log").read_text() for path in (out, root / "frozen")] == [0, 1]
    begun = transformers.AutoModel.from_pretrained(root / "source").state_dict()
    assert_same(frozen.pretrained.state_dict(), begun)
    thawed = load(out).model.encoder.pretrained.state_dict()
    kept = [name for name in begun if torch.equal(thawed[name], begun[name])]
    assert all("k_proj.bias" in name for name in kept)


@pytest.fixture
def without_source(trained):
    """Within it, the folder of the source is gone."""

    @contextlib.contextmanager
    def away():
        moved = (trained[0] / "source").rename(trained[0] / "gone")
        try:
            yield
        finally:
            moved.rename(trained[0] / "source")

    return away


@slow
def test_a_resumed_run_is_an_uninterrupted_one_and_needs_no_source(
    trained, tmp_path, without_source
):
    root, *whole = trained
    stop(root, tmp_path / "m", 8, "training.save_steps=1")
    with without_source():
        assert_uninterrupted(root, tmp_path / "m", whole, "training.save_steps=1")


def test_a_run_is_known_when_its_source_is_gone(trained, tmp_path, without_source, capsys):
    """A finished one, one that was stopped, and one of other settings, which isn't the same."""
    root, out, _ = trained
    stop(root, tmp_path / "m", 2, "training.save_steps=1")
    given = ["training.epochs=3", f"out={tmp_path}/m", "training.save_steps=1"]
    before = stamp_of(root / "x.yaml", given).facts
    with without_source():
        assert status_of(main, "--config", root / "x.yaml", "training.epochs=3", f"out={out}") == 0
        assert "up to date" in capsys.readouterr().err
        stamp = stamp_of(root / "x.yaml", given)
        assert json.dumps(stamp.facts) == json.dumps(before)
        assert continues(tmp_path / "m", stamp)
        other = stamp_of(root / "x.yaml", [*given, "seed=9"])
        assert not continues(tmp_path / "m", other)
        fresh = experiment(root, f"out={tmp_path}/new")
        refused("source: no such folder", fresh.resolved)


def test_a_changed_source_makes_another_run(trained):
    root, out, _ = trained
    given = ["training.epochs=3", f"out={out}"]
    (root / "source/more.safetensors").write_bytes(b"x")
    try:
        assert not stamp_of(root / "x.yaml", given).is_current()
    finally:
        (root / "source/more.safetensors").unlink()
    assert stamp_of(root / "x.yaml", given).is_current()


@slow
def test_processes_change_nothing(trained, tmp_path):
    assert_processes_change_nothing(trained[0], tmp_path)


LORA = "model.encoder.lora={rank: 2}"


def test_low_rank_matrices_are_trained_and_nothing_else_of_the_source(trained):
    root = trained[0]
    encoder = train(root, root / "lora", LORA, "model.fine_tuning=null").model.encoder
    losses = dev_losses(root / "lora")
    assert losses[-1] < losses[0] - 0.2
    begun = transformers.AutoModel.from_pretrained(root / "source").state_dict()
    found = encoder.pretrained.state_dict()
    moved = {name for name in begun if not torch.equal(found[name], begun[name])}
    assert moved == {"masked_spec_embed"}
    assert all(value.any() for name, value in found.items() if name.endswith("_proj.B"))


@each("changes", [(LORA, "model.fine_tuning=null"), ("freeze=[model.encoder.*]",), ()])
def test_what_is_frozen_takes_memory_for_itself_alone(trained, monkeypatch, changes):
    """16 bytes a parameter that is trained, 4 of any other value: to the byte."""
    settings = experiment(trained[0], *changes).resolved()
    model = build(settings)
    building.freeze(model, settings.freeze)
    trained_ = sum(p.numel() for p in model.parameters() if p.requires_grad)
    values = sum(x.numel() for x in (*model.parameters(), *model.buffers()))
    assert bool(changes) == any(not p.requires_grad for p in model.parameters())
    most = 16 * trained_ + 4 * (values - trained_)
    memory = {"SC_PHYS_PAGES": most, "SC_PAGE_SIZE": 1}
    monkeypatch.setattr(building.os, "sysconf", memory.__getitem__)
    build(settings)
    memory["SC_PHYS_PAGES"] -= 1
    refused("its training takes more than this machine's memory", build, settings)


@slow
@each("adds", [False, True])
def test_shards_change_nothing_but_rounding(trained, adapted, tmp_path, adds):
    """An encoder that thaws hasn't counted the steps in which it was frozen, in either."""
    more = "training.accumulate=2", "training.processes=2", "model.encoder.layer_dropout=0"
    more += (*adapted, LORA) * adds
    for name in ("false", "true"):
        train(trained[0], tmp_path / name, *more, f"training.shard={name}")
    whole, shards = (dev_losses(tmp_path / name) for name in ("false", "true"))
    assert shards == pytest.approx(whole, abs=1e-4)


@slow
def test_a_resumed_run_in_shards_is_an_uninterrupted_one(trained, tmp_path):
    """Stopped while the encoder is frozen, whose moments aren't there yet."""
    root, more = trained[0], ["training.processes=2", "training.shard=true"]
    more += ["model.encoder.layer_dropout=0", "model.fine_tuning.freeze_steps=20"]
    more += ["training.accumulate=2", "data.batch_seconds=2"]
    whole = tmp_path / "whole", weights(train(root, tmp_path / "whole", *more))
    process = launch(root, tmp_path / "m", *more, "training.save_steps=1")
    wait_for_state(tmp_path / "m", 1, process)
    process.terminate()
    end(process, 128 + signal.SIGTERM)
    steps = max(line["step"] for line in history(whole[0]))
    stopped_at = max(
        int(path.name.split("-")[1]) for path in (tmp_path / "m/checkpoints").glob("state-*")
    )
    assert stopped_at < 20 < steps - 5
    assert_uninterrupted(root, tmp_path / "m", whole, *more, "training.save_steps=1")


@slow
def test_recomputing_activations_changes_nothing(trained, tmp_path):
    root, _, expected = trained
    again = train(root, tmp_path / "m", "training.activation_checkpointing=true")
    assert_same(weights(again), expected)


@slow
def test_the_model_folder_has_all_and_decodes_the_same_in_any_batch(trained, tmp_path):
    """In a process without the source and, by its sockets, without a network."""
    root, out, _ = trained
    moved = shutil.copytree(out, tmp_path / "m", ignore=shutil.ignore_patterns("checkpoints"))
    program = """
import socket, sys
def refuse(*_): raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = refuse
import asr, asr.cli.train
assert "transformers" not in sys.modules
model, paths = asr.load(sys.argv[1], "cpu"), sys.argv[2:]
together = [t.nbest[0].score for t in asr.transcribe_all(model, paths)]
alone = [model.transcribe(path).nbest[0].score for path in paths]
assert all(abs(a - b) < 1e-4 for a, b in zip(together, alone)), (together, alone)
"""
    paths = [str(root / f"corpus/dev00{n}.wav") for n in range(6)]
    facts = describe(str(moved)).facts
    assert facts["sample_rate_hz"] == 8000 and facts["encoder"]["model_type"] == "wavlm"
    environment = {**os.environ, "HF_HOME": str(tmp_path / "none")}
    subprocess.run([sys.executable, "-c", program, moved, *paths], check=True, env=environment)


def test_server_hotwords_long_recordings_and_alignment_are_those_of_any_encoder(
    trained, tmp_path, monkeypatch
):
    for judge in ("is_noise", "is_doubtful"):  # tones hold their pitch as music does
        monkeypatch.setattr(f"asr.transcription.nonspeech.Spectra.{judge}", lambda *_: False)
    (root, out, _), texts = trained, []
    model, paths, parts = load(out), [], [np.zeros(6400)]
    model.longest = 1.5  # seconds
    for line in manifest.read(root / "data/dev.jsonl.gz"):
        texts.append(line.text)
        paths.append(line.path)
        parts += [soundfile.read(line.path)[0], np.zeros(6400)]
    soundfile.write(tmp_path / "long.wav", np.concatenate(parts), 8000)
    how = SearchOptions(beam=3, hotwords=("LOW MID", "HIGH"))
    with Engine(model, how) as engine:
        asked = [engine.submit(path) for path in (*paths, tmp_path / "long.wav")]
        found = [future.result(60) for future in asked]
    for path, transcript in zip((*paths, tmp_path / "long.wav"), found, strict=True):
        assert_alike(transcript, asr.transcribe(model, str(path), **vars(how)))
    assert len(found[-1].segments) > 1 and "hotwords" in found[0].nbest[0].scores
    aligned = asr.align(model, tmp_path / "long.wav", texts)
    assert [part.text for part in aligned.segments] == texts
    edges = [edge for part in aligned.segments for w in part.words for edge in (w.start, w.end)]
    assert edges == sorted(edges) and 0 < edges[0] < edges[-1] <= found[-1].duration


@slow
def test_fine_tuning_a_model_folder_reads_no_source(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "find", None)
    out = trained[1]
    tuned = train(out, tmp_path / "m", f"init_from={out}", "training.epochs=1", name="config")
    assert_same(tuned.model.encoder.state_dict(), load(out).model.encoder.state_dict())  # frozen


def test_a_look_before_training_says_that_the_encoder_stays_frozen(trained, capsys):
    arguments = "--config", str(trained[0] / "x.yaml"), f"out={trained[0] / 'looked'}", "--check"
    for epochs, said in ((1, True), (2, False)):
        assert status_of(main, *arguments, f"training.epochs={epochs}") == 0
        found = "freeze_steps: got 7, but the training has about 5 steps" in capsys.readouterr().out
        assert found == said


def test_before_python_3_11_the_version_is_named(monkeypatch):
    """For which pip installs nothing of the extra."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    refused(
        "need.* Python 3.11 or later; this is Python 3.10", imports.transformers, "transformers"
    )


def test_rates_fall_from_layer_to_layer(trained):
    """rate · decay^(N - n); what is in no layer is one below the first; what is new has the optimizer's."""
    model = load(trained[1])
    names = {parameter: name for name, parameter in model.named_parameters()}
    settings = MuonSettings(kind="muon", lr=1.0)
    expected = {}
    for name in names.values():
        layer = re.search(r"pretrained.*encoder\.layers\.(\d)", name)
        rate = 0.5 * 0.9 ** (2 - int(layer[1]) if layer else 3)
        inside = name.startswith("model.encoder.")
        expected[name] = (pytest.approx(rate), 7) if inside else (1.0, 0)
    for groups in (parameter_groups(model, settings), settings.build(model).param_groups):
        assert expected == {
            names[p]: (g["initial_lr"], g.get("frozen_steps", 0))
            for g in groups
            for p in g["params"]
        }


@pytest.fixture(scope="module")
def adapted(trained, folder):
    """Overrides for a run whose encoder has all that it can add to its source, at 16 kHz: 25 frames a second."""
    root = trained[0]
    path = shutil.copytree(folder("wavlm large"), root / "fast")
    edit(source.PREPROCESSOR, "sampling_rate: 16000")(path)
    added = "model.encoder.stride=2", "model.encoder.weighted_layers=true"
    return f"model.encoder.source={path}", "features.waveform.sample_rate=16000", *added


def test_what_an_encoder_adds_to_its_source_is_trained_from_the_beginning(trained, adapted):
    """While the source's weights are frozen, at the optimizer's rate; the norm begins with 1, the scores with 0."""
    root = trained[0]
    encoder = train(root, root / "added", *adapted, "training.epochs=1").model.encoder
    begun = transformers.AutoModel.from_pretrained(root / "fast").state_dict()
    assert_same(encoder.pretrained.state_dict(), begun)
    assert (encoder.adapter.norm.weight != 1).all() and (encoder.layer_scores != 0).all()
    model = load(root / "added")
    new = {name for name, _ in model.named_parameters() if ".encoder.pretrained." not in name}
    rates = model.model.rates()
    known = {name for name, parameter in model.named_parameters() if parameter not in rates}
    assert known == new and "model.encoder.adapter.conv.weight" in new


def test_frames_and_times_are_those_of_the_adapter(trained, adapted):
    root, more = trained[0], ("model.intermediate_ctc={layers: [2], weight: 0.3}",)
    model = train(root, root / "adapted", *adapted, *more).eval()
    losses = dev_losses(root / "adapted")
    assert losses[-1] < losses[0] - 0.2 and model.frame_seconds == 0.04
    assert [model.encoder_frames(n) for n in (1039, 1040, 1679, 1680)] == [0, 1, 1, 2]
    with pytest.raises(ValueError, match="utterance 1 .* got 1039 samples, expected 1040"):
        model.encode(torch.zeros(2, 2000), torch.tensor([2000, 1039]))
    wave = np.sin(np.arange(16000 * 9) / 7).astype(np.float32)
    model.longest = 2.0  # seconds: several windows
    frames = [
        n + k for n, P in ctc_log_probs(model, reader_of(wave), len(wave)) for k in range(len(P))
    ]
    assert frames == [*range(model.encoder_frames(len(wave)))]
    H, H_lens = model.encode(torch.from_numpy(wave)[None], torch.tensor([len(wave)]))
    text = model.tokenizer.encode("LOW MID HIGH")
    [words], [places] = place(model.model.ctc_log_probs(H), H_lens, [text], model)
    edges = [edge for at in places for edge in (at.first, at.end)]  # in samples
    assert [word.text for word in words] == ["LOW", "MID", "HIGH"] and edges == sorted(edges)
    assert not any(edge % 640 for edge in edges) and edges[-1] <= len(wave)


def test_ctc_needs_frames_of_the_adapter(trained, tmp_path):
    """80 ms each at 8 kHz are too few for the letters of tones."""
    samples = int(soundfile.info(trained[0] / "corpus/train000.wav").frames / 1.1)
    frames = ((samples - 400) // 320 + 1 - 1) // 2
    message = rf"too short for CTC to align .*train000 \({frames} frames at speed 1.1, "
    with pytest.raises(UserError, match=message):
        train(trained[0], tmp_path / "m", "model.encoder.stride=2")


@slow
def test_a_resumed_run_with_all_that_is_added_is_an_uninterrupted_one(trained, adapted, tmp_path):
    root, more = trained[0], (*adapted, LORA)
    whole = root / "whole of added", weights(train(root, root / "whole of added", *more))
    stop(root, tmp_path / "m", 8, *more, "training.save_steps=1")
    assert_uninterrupted(root, tmp_path / "m", whole, *more, "training.save_steps=1")


def test_an_adapter_that_a_folder_lacks_is_left_as_initialized(trained, tmp_path):
    settings = experiment(trained[1], "model.encoder.stride=2", name="config")
    transfer = load_what_fits(build(settings), trained[1], unlike_settings(settings, trained[1]))
    assert transfer.unlike == ["model.encoder.stride is 1 there, 2 here"]
    assert [name.split(".")[:3] for name in transfer.missing] == 4 * [
        ["model", "encoder", "adapter"]
    ]


# --- files of strangers ---------------------------------------------------------------------------


def only_pickles(path):
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious(path / "ran")))


def link_out(path):
    shutil.move(path / "model.safetensors", path.parent / "other.safetensors")
    (path / "model.safetensors").symlink_to(path.parent / "other.safetensors")


def index_out(path):
    (path / "model.safetensors").unlink()
    (path / source.INDEX).write_text(json.dumps({"weight_map": {"a": "../../other.safetensors"}}))


def edit(name, text):
    """Change settings of a file; what is null is left out."""

    def change(folder):
        tree = json.loads((folder / name).read_text()) | options(text)
        tree = {name: value for name, value in tree.items() if value is not None}
        (folder / name).write_text(json.dumps(tree))

    return change


def with_norm(values):
    """Write other values in place of a norm's; None leaves it out."""

    def change(folder):
        tensors = load_file(folder / "model.safetensors") | {NORM: values}
        kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        save_file(kept, folder / "model.safetensors")

    return change


NORM = "encoder.layers.0.layer_norm.weight"
EDITS = """
auto_map                       | config.json | auto_map: {AutoModel: m.M}
adapter_attn_dim               | config.json | adapter_attn_dim: 16
company                        | config.json | conv_pos_batch_norm: true
sampling_rate: got 8000, exp.* | config.json | model_type: whisper
model_type .'whisper'.         | config.json | model_type: [whisper]
'bert' isn't supported         | config.json | model_type: bert
hidden_size                    | config.json | hidden_size: 1000000000000
samples or less                | config.json | conv_kernel: [10, 9999, 9999, 9999, 9999, 9999, 9999]
conv_dim: got .*65, 3.*to 64   | config.json | conv_kernel: [65, 3, 3, 3, 3, 2, 2]
kernels and strides up to 64   | config.json | conv_stride: [65, 1, 1, 1, 1, 1, 1]
num_conv_pos_embeddings        | config.json | num_conv_pos_embeddings: 16000
conv_stride                    | config.json | conv_stride: [5]
conv_dim                       | config.json | conv_dim: x
hidden_act                     | config.json | hidden_act: user/kernel
rate: got 8000, expected 16000 | preprocessor_config.json | sampling_rate: 16000
sampling_rate None             | preprocessor_config.json | sampling_rate: null
"""
HOSTILE = {says: edit(*change) for says, *change in rows(EDITS)}
HOSTILE |= {  # what is said, and what is done to a folder
    "pickles.*never read": only_pickles,
    "links to .*other.safetensors": link_out,
    r"\.\./\.\./other": index_out,
    "isn't JSON": lambda folder: (folder / "config.json").write_text("[" * 10**6),
    "features.waveform.normalize": lambda folder: (folder / source.PREPROCESSOR).unlink(),
    "processor_config.json: got sampling_rate 'x'": lambda f: as_processor(f, sampling_rate="x"),
    "feature_extractor: got .7., expected settings": lambda folder: (
        folder / source.PROCESSOR
    ).write_text('{"feature_extractor": [7]}'),
    f"{NORM} missing": with_norm(None),
    NORM: with_norm(torch.ones(5)),
    f"NaN.*{NORM}": with_norm(torch.full([32], torch.nan)),
    "damaged": lambda folder: os.truncate(folder / "model.safetensors", 9000),
}


@each("message", HOSTILE)
def test_what_is_wrong_with_a_source_is_reported_and_nothing_runs(
    trained, folder, tmp_path, message
):
    path = shutil.copytree(folder("wav2vec2 large"), tmp_path / "source")
    HOSTILE[message](path)
    given = experiment(trained[0], f"model.encoder.source={path}")
    with pytest.raises(UserError, match=f"(?s){message}"):
        given.resolved().model.encoder.build(1).load_source()
    assert not (path / "ran").exists()


def test_the_largest_sizes_that_are_read_take_little_memory(folder, tmp_path):
    """Of the encoder that is computed before anything is known of the weights."""
    path = shutil.copytree(folder("wav2vec2 large"), tmp_path / "source")
    kernels, strides = "[64, 64, 64, 64, 32]", "[1, 1, 1, 64, 28]"
    sizes = f"conv_dim: [9, 9, 9, 9, 9], conv_kernel: {kernels}, conv_stride: {strides}"
    edit("config.json", f"{sizes}, num_conv_pos_embeddings: 1024")(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_architecture(source.find(str(path))).strides.frames(16) > 29_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # kB


def as_processor(folder, **changes):
    """Put the feature extractor's settings where processors of transformers 5 have them."""
    tree = json.loads((folder / source.PREPROCESSOR).read_text()) | changes
    (folder / source.PREPROCESSOR).unlink()
    (folder / source.PROCESSOR).write_text(json.dumps({"feature_extractor": tree}))


@each("normalize", [True, False])
def test_settings_that_a_processor_of_transformers_5_writes_are_read(trained, tmp_path, normalize):
    path = sources.write_source(tmp_path / "source", "model_type: wav2vec2", 8000)
    (path / source.PREPROCESSOR).unlink()
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "|": 1, "<unk>": 2, "<pad>": 3}))
    features = {"do_normalize": normalize, "sampling_rate": 8000}
    transformers.Wav2Vec2Processor(
        transformers.Wav2Vec2FeatureExtractor(**features),
        transformers.Wav2Vec2CTCTokenizer(str(tmp_path / "vocab.json")),
    ).save_pretrained(path)
    assert not (path / source.PREPROCESSOR).exists()
    given = f"model.encoder.source={path}", "model.fine_tuning=null"
    assert experiment(trained[0], *given).resolved().features.waveform.normalize is normalize
    refused(
        r"sample_rate: got 16000, expected 8000",
        experiment(trained[0], *given, "features.waveform.sample_rate=16000").resolved,
    )


def test_of_two_files_of_settings_transformers_choice_is_taken(folder, tmp_path):
    path = shutil.copytree(folder("wavlm base"), tmp_path / "source")
    before = (path / source.PREPROCESSOR).read_text()
    for more in ({"feature_extractor": {"sampling_rate": 44100, "do_normalize": False}}, {}):
        (path / source.PROCESSOR).write_text(json.dumps({"processor_class": "x", **more}))
        (path / source.PREPROCESSOR).write_text(before)
        found = source.find(str(path)).preprocessing()[1]
        expected = transformers.Wav2Vec2FeatureExtractor.from_pretrained(path)
        assert found["sampling_rate"] == expected.sampling_rate == (44100 if more else 8000)


@each(
    "change, message",
    rows(r"""
    model.encoder.source=nowhere | nowhere: no such folder, and no name on the Hugging Face Hub
    model.encoder.revision=v2 | revision: got v2, expected none, .*source is a folder here
    features={fbank: {sample_rate: 8000}} | features: got fbank, expected waveform
    features.waveform.normalize=false | normalize: got False, expected True
    model.intermediate_ctc={layers: [3]} | layers \[3\], expected different ones from 1 to 2
    """),
)
def test_settings_that_do_not_suit_the_source_are_refused(trained, change, message):
    refused(message, experiment(trained[0], change).resolved)


def test_a_transformers_that_computes_something_else_is_refused(trained, monkeypatch):
    kinds = transformers.models.wavlm.modeling_wavlm
    before = kinds.WavLMFeedForward.forward
    monkeypatch.setattr(kinds.WavLMFeedForward, "forward", lambda self, x: before(self, 1.01 * x))
    refused(f"another encoder than {transformers.__version__} did", load, trained[1])
