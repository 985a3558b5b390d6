"""Prove pretrained encoders that read features: w2v-BERT 2.0, Whisper's, Parakeet's, on tiny random models.

The reference is transformers' forward of each utterance alone, after its own feature extractor; laws are those of every
encoder (contracts.py) and of training (runs.py).
"""

import json
from functools import cache, partial
from importlib import import_module
from unittest.mock import patch

import numpy as np
import pytest
import soundfile
import sources
import torch
from contracts import check_encoder, encode, padded, same
from refusals import refused
from runs import (
    assert_processes_change_nothing,
    assert_uninterrupted,
    dev_losses,
    experiment,
    stop,
    train,
    weights,
)
from small import each, near, options, rows, slow
from sources import READERS, encoder_of, write_reader
from torch import nn
from torch._dynamo.testing import CompileCounter

from asr.features.waveform import Waveform
from asr.models.recognizer import load
from asr.nn.encoders import pretrained_source as source
from asr.training.layers import compile_layers, recompute
from asr.transcription import encoding
from asr.transcription.encoding import encode_features

transformers = pytest.importorskip("transformers")
EACH = each("family", READERS)
RATE = 16000
SAMPLES = (9000, 4321, 7011, 16000)
# what softmax ignores, what is there for training, and distances that no utterance here has
IDLE = ("k_proj.bias", "linear_k.bias", "masked_spec_embed", "distance_embedding.weight")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of a family in its own files."""

    @cache
    def make(family):
        return write_reader(tmp_path_factory.mktemp("source") / "model", family)

    return make


def waves(samples=SAMPLES):
    """Waveforms (B, S) with NaN beyond their lengths (B,), at unlike levels."""
    X, X_lens = padded(1, samples)
    levels = torch.tensor([0.1, 0.01, 0.001, 0.1])[: len(samples), None]
    X = (X[:, :, 0] * levels).float()
    return X, X_lens


def reference(path, family, wave, monkeypatch):
    """The hidden states (N + 1 of (T', D)) of one waveform (S,), as transformers computes them.

    Of w2v-BERT's features, logarithms and means are in float64: in float32 a bin's mean is off by 1e-5.
    """
    if family == "w2v-bert":
        module = "transformers.models.seamless_m4t.feature_extraction_seamless_m4t"
        own = import_module(module)
        spectrogram = partial(transformers.audio_utils.spectrogram, dtype=np.float64)
        monkeypatch.setattr(own, "spectrogram", spectrogram)
    extract = transformers.AutoFeatureExtractor.from_pretrained(path)
    given = extract(wave.numpy(), sampling_rate=RATE, return_tensors="pt", padding="longest")
    given = {name: x.float() if x.is_floating_point() else x for name, x in given.items()}
    model = getattr(transformers, READERS[family][0]).from_pretrained(path).eval()
    if family == "whisper":
        encoder, T = model.model.encoder, given["input_features"].size(2)
        # else it wants all of its positions
        monkeypatch.setitem(vars(encoder.config), "max_source_positions", T / 2)
        own = encoder.embed_positions.weight[: -(-T // 2)]
        encoder.embed_positions = nn.Embedding.from_pretrained(own)
        states = encoder(given["input_features"], output_hidden_states=True).hidden_states
        return [encoder.layer_norm(H)[0] for H in states[:-1]] + [states[-1][0]]
    encoder = model.encoder if family == "parakeet" else model
    states = encoder(**given, output_hidden_states=True).hidden_states
    return [H[0] for H in states]


@EACH
def test_in_a_batch_each_utterance_is_what_transformers_gives_of_it_alone(
    folder, family, monkeypatch
):
    path, (X, X_lens) = folder(family), waves()
    if (
        family != "w2v-bert"
    ):  # whose norm over the bins of digital silence is one of rounding errors
        X[0, 3000:6000] = 0
    encoder, _ = encoder_of(path)
    found = encoder(*Waveform(RATE)(X, X_lens), layers=[1, 3])
    for n, (x, length) in enumerate(zip(X, X_lens, strict=True)):
        expected = reference(path, family, x[:length], monkeypatch)
        frames = int(found.H_lens[n])
        assert 0 <= len(expected[-1]) - frames <= (family != "whisper")  # what they mask
        for H, right in zip(
            (found.H, *found.layers), (expected[-1], expected[1], expected[-1]), strict=True
        ):
            near(H[n, :frames], right[:frames], 1e-5)


def test_whisper_is_transformers_own_at_the_length_of_its_window(folder):
    path, (X, X_lens) = folder("whisper"), waves((96000,))
    prepare = transformers.AutoFeatureExtractor.from_pretrained(path)
    model = transformers.AutoModel.from_pretrained(path).eval().encoder
    given = prepare(X[0].numpy(), sampling_rate=RATE, return_tensors="pt").input_features
    H, H_lens = encode(encoder_of(path)[0], *Waveform(RATE)(X, X_lens))
    assert H_lens.tolist() == [300]
    near(H, model(given).last_hidden_state, 1e-5)


def test_whisper_refuses_what_it_has_no_positions_for(folder):
    encoder, _ = encoder_of(folder("whisper"))
    longest = 300 * 320 + 159  # samples that make no further frame
    assert encode(encoder, torch.zeros(1, longest, 1), torch.tensor([longest]))[1] == 300
    with pytest.raises(
        ValueError, match=f"utterance 1 .* got {longest + 1} .* expected {longest} or less"
    ):
        encoder(torch.zeros(2, longest + 1, 1), torch.tensor([longest, longest + 1]))


@each("text", ["", "weighted_layers: true, stride: 2"])
@EACH
def test_every_family_holds_the_contract(folder, family, text):
    encoder, _ = encoder_of(folder(family), text)
    encoder.requires_grad_()  # Whisper's positions, too
    lens = [encoder.subsampling.frames(n) for n in (11, 5, 8, 11)]
    check_encoder(encoder, 1, lens, IDLE, atol=1e-6)


@EACH
def test_the_rest_of_a_model_is_not_used_and_named(folder, family):
    _, unused = encoder_of(folder(family))
    expected = {"whisper": "model.decoder.", "parakeet": "ctc_head.", "w2v-bert": ""}[family]
    assert all(name.startswith(expected) for name in unused) and bool(unused) == bool(expected)


def test_batch_norm_keeps_the_statistics_of_the_source_in_training(folder):
    encoder, _ = encoder_of(
        folder("parakeet"), "dropout: 0.0, attention_dropout: 0.0, activation_dropout: 0.0"
    )
    X, X_lens = waves()
    batch = Waveform(RATE)(X, X_lens)
    plain, H_lens = encode(encoder, *batch)
    same(encode(encoder.train(), *batch)[0], plain, H_lens, 1e-6, "in training")
    assert not any(isinstance(m, nn.BatchNorm1d) for m in encoder.modules())
    begun = transformers.AutoModel.from_pretrained(folder("parakeet")).state_dict()
    for name, value in encoder.pretrained.state_dict().items():
        near(value, begun[f"encoder.{name}"] if f"encoder.{name}" in begun else begun[name])


@EACH
def test_masks_follow_from_the_seed_of_an_utterance_alone(folder, family):
    text = "mask: {time_ratio: 0.4, time_width: 3, feature_ratio: 0.4, feature_width: 5}, dropout: 0.0, "
    encoder, _ = encoder_of(
        folder(family), text + "attention_dropout: 0.0, activation_dropout: 0.0"
    )
    batch, seeds = padded(1, SAMPLES[:3]), torch.tensor([5, 6, 7])
    plain, H_lens = encode(encoder.double(), *batch)
    encoder.train()
    same(encode(encoder, *batch)[0], plain, H_lens, 1e-6, "training without seeds")
    X, X_lens = batch
    H = encoder(X, X_lens, seeds=seeds).H
    assert (H - plain).abs().amax((1, 2)).min() > 1e-3  # all are masked
    alone = encoder(X[[1], : SAMPLES[1]], X_lens[[1]], seeds=seeds[[1]]).H
    same(alone, H[[1]], H_lens[[1]], 1e-6, "alone")


def test_without_a_preprocessor_config_features_are_those_of_the_family(tmp_path):
    root = configured(tmp_path, "whisper")
    (root / "source/preprocessor_config.json").unlink()
    assert experiment(root).resolved().features.waveform.normalize is False
    for changes, message in (
        ("{sample_rate: 8000}", "sample_rate: got 8000, expected 16000, as .*source was trained"),
        ("{sample_rate: 16000, normalize: true}", "normalize: got True, expected False"),
    ):
        refused(message, experiment(root, f"features.waveform={changes}").resolved)


@each("family, target", [("w2v-bert", "linear_v"), ("whisper", "out_proj"), ("parakeet", "o_proj")])
def test_lora_adapts_the_maps_of_each_family(folder, family, target):
    encoder, _ = encoder_of(folder(family), f"lora: {{rank: 2, targets: [{target}]}}")
    learned = [
        name
        for name, p in encoder.named_parameters()
        if p.requires_grad and name[-2:] in (".A", ".B")
    ]
    assert len(learned) == 6 and all(f".{target}." in name for name in learned)


def test_lora_for_maps_that_there_are_not_is_refused(folder):
    text = "lora: {rank: 2, targets: [q_proj, intermediate_dense]}"
    message = "targets: got intermediate_dense, .*expected some of .*k_proj"
    refused(message, encoder_of, folder("whisper"), text)


@slow
@each("recomputes", [False, True])
@EACH
def test_compiled_layers_change_nothing(folder, family, recomputes):
    none = "dropout: 0.0, attention_dropout: 0.0, activation_dropout: 0.0"
    batch, found = Waveform(RATE)(*waves()), []
    for changes in (False, True):
        torch._dynamo.reset()  # of other models' layers
        encoder, counter = encoder_of(folder(family), none)[0].train(), CompileCounter()
        if changes and recomputes:
            recompute(encoder)
        if changes:
            compile_layers(encoder, backend=counter)
        H = encoder(*batch).H
        H.square().sum().backward()
        assert changes == bool(counter.frame_count)
        gradients = {n: p.grad for n, p in encoder.named_parameters() if p.grad is not None}
        found.append((H.detach(), gradients))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@EACH
def test_threads_change_nothing(folder, threads, family):
    """Of which each takes some of the utterances."""
    encoder, _ = encoder_of(folder(family))
    X, X_lens = Waveform(RATE)(*waves())
    threads(1)
    with torch.no_grad():
        alone = encode_features(encoder, X, X_lens)
        threads(3)
        with patch.object(encoding, "_groups", lambda *_: [[3], [0], [2], [1]]):
            together = encode_features(encoder, X, X_lens)
    same(together.H, alone.H, alone.H_lens, 1e-5, "threads")


# --- training -------------------------------------------------------------------------------------


def configured(root, family):
    """A corpus, an encoder of a family, and a configuration: x.yaml."""
    write_reader(sources.configured(root, 16000) / "source", family)
    text = (root / "x.yaml").read_text()
    (root / "x.yaml").write_text(text.replace("batch_seconds:", "max_seconds: 5\n  batch_seconds:"))
    return root


@pytest.fixture(scope="module", params=READERS)
def trained(request, tmp_path_factory):
    """A run of three epochs: root, its folder, its weights."""
    root = configured(tmp_path_factory.mktemp("readers"), request.param)
    return root, root / "whole", weights(train(root, root / "whole"))


@slow
def test_training_lowers_the_loss_resumes_and_the_folder_has_all(trained, tmp_path, monkeypatch):
    root, out, expected = trained
    losses = dev_losses(out)
    assert losses[-1] < losses[0] - 0.1
    stop(root, tmp_path / "m", 8, "training.save_steps=1")
    monkeypatch.setattr(source, "find", None)
    assert_uninterrupted(root, tmp_path / "m", (out, expected), "training.save_steps=1")
    model = load(out)
    paths = [str(root / f"corpus/dev00{n}.wav") for n in range(4)]
    import asr

    together = [t.nbest[0].score for t in asr.transcribe_all(model, paths)]
    alone = [model.transcribe(path).nbest[0].score for path in paths]
    assert together == pytest.approx(alone, abs=1e-4)


@slow
def test_processes_change_nothing(trained, tmp_path):
    assert_processes_change_nothing(trained[0], tmp_path)


# --- files of strangers, and settings -------------------------------------------------------------


@each(
    "changes, message",
    [
        (
            "data.max_seconds=6",
            "got 6, 6.7 s at speed 0.9, but the encoder takes 6.0 s at most; set 5.4",
        ),
        (
            "data.concatenate={max_seconds: 4}",
            "got 5.1, 6.3 s at speed 0.9 and .*max_edge 0.3 at both ends, .* set 4.8 or less",
        ),
        ("model.ctc_weight=0", "ctc_weight: got 0, .* cut by CTC's times"),
    ],
)
def test_whisper_needs_short_recordings_and_ctc(tmp_path, changes, message):
    root = configured(tmp_path, "whisper")
    more = ["model.flat_start_epochs=0", "data.max_seconds=5.1", "data.speeds=[0.9, 1.0]", changes]
    refused(message, experiment(root, *more).resolved)


@slow
def test_whisper_cuts_what_is_longer_than_its_positions(tmp_path):
    """Six seconds; files of up to one and a half times the longest of training are searched whole, and samples."""
    root = configured(tmp_path, "whisper")
    heard = tmp_path / "m/versions.json"
    train(root, tmp_path / "m", "training.epochs=1")
    heard.write_text(json.dumps(json.loads(heard.read_text()) | {"longest_seconds": 5.5}))
    model = load(tmp_path / "m")
    assert model.longest == pytest.approx(4.0, abs=0.01)
    wave = torch.randn(20 * RATE, generator=torch.Generator().manual_seed(1)).numpy() * 0.1
    for seconds in (6.0, 6.2, 20.0):
        soundfile.write(tmp_path / "x.wav", wave[: int(seconds * RATE)], RATE)
        model.transcribe(tmp_path / "x.wav")
    model.transcribe(wave[: 6 * RATE])
    refused(
        "got 6.2 s of samples, expected 6.0 s or less", model.transcribe, wave[: int(6.2 * RATE)]
    )


EDITS = """
w2v-bert | config.json | position_embeddings_type: rotary | position_embeddings_type
w2v-bert | config.json | add_adapter: true | add_adapter is set: its adapter
w2v-bert | config.json | conv_depthwise_kernel_size: 4 | an even and an odd number
w2v-bert | preprocessor_config.json | sampling_rate: 8000 | sampling_rate: got 8000, expected 16000
w2v-bert | preprocessor_config.json | stride: 3 | stride: got 3, expected 2
whisper | config.json | max_source_positions: 10000000 | max_source_positions
whisper | config.json | max_source_positions: 15 | max_source_positions
whisper | config.json | max_source_positions: 100000, d_model: 1024 | max_source_positions: got 100000 of 1024 values
whisper | config.json | d_model: 2 | hidden_size
whisper | config.json | d_model: 33, encoder_attention_heads: 3 | an even number
whisper | config.json | model_type: {a: b} | isn't supported
whisper | config.json | encoder_layers: many | doesn't describe an encoder
whisper | preprocessor_config.json | feature_size: 80 | feature_size: got 80, expected 40
parakeet | config.json | encoder_config: 7 | encoder_config: got 7, expected a description
parakeet | preprocessor_config.json | preemphasis: 0.9 | preemphasis: got 0.9, expected 0.97
"""


@EACH
def test_settings_within_those_of_a_processor_are_compared(tmp_path, family):
    """As processors of transformers 5 are written."""
    root = configured(tmp_path, family)
    file = root / "source/preprocessor_config.json"
    for rate, message in ((RATE, ""), (8000, "processor_config.json: sampling_rate: got 8000")):
        tree = json.loads(file.read_text()) | {"sampling_rate": rate}
        written = json.dumps({"feature_extractor": tree, "processor_class": "Processor"})
        (root / "source" / source.PROCESSOR).write_text(written)
        if message:
            file.unlink()
            refused(message, experiment(root).resolved)
        else:
            experiment(root).resolved()


@each("family, name, text, message", rows(EDITS))
def test_what_is_computed_in_another_way_is_refused(tmp_path, family, name, text, message):
    root = configured(tmp_path, family)
    path = root / "source" / name
    path.write_text(json.dumps(json.loads(path.read_text()) | options(text)))
    refused(message, experiment(root).resolved)
