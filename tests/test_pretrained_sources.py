"""Read sources of pretrained encoders from strangers: nothing of them runs, and what doesn't suit is refused."""

import json
import os
import pickle
import resource
import shutil

import pytest
import sources
import torch
from refusals import refused
from runs import experiment
from safetensors.torch import load_file, save_file
from small import Malicious, each, rows

from asr.errors import UserError
from asr.nn.encoders import pretrained_source as source
from asr.nn.encoders.pretrained import read_architecture

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return sources.folders(tmp_path_factory)


@pytest.fixture(scope="module")
def begun(tmp_path_factory, folder):
    """A corpus and a configuration: root."""
    root = sources.configured(tmp_path_factory.mktemp("begun"), 8000)
    shutil.copytree(folder("wavlm large"), root / "source")
    return root


def only_pickles(path):
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious(path / "ran")))


def link_out(path):
    shutil.move(path / "model.safetensors", path.parent / "other.safetensors")
    (path / "model.safetensors").symlink_to(path.parent / "other.safetensors")


def index_out(path):
    (path / "model.safetensors").unlink()
    (path / source.INDEX).write_text(json.dumps({"weight_map": {"a": "../../other.safetensors"}}))


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
HOSTILE = {says: sources.edit(*change) for says, *change in rows(EDITS)}
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
def test_what_is_wrong_with_a_source_is_reported_and_nothing_runs(begun, folder, tmp_path, message):
    path = shutil.copytree(folder("wav2vec2 large"), tmp_path / "source")
    HOSTILE[message](path)
    given = experiment(begun, f"model.encoder.source={path}")
    with pytest.raises(UserError, match=f"(?s){message}"):
        given.resolved().model.encoder.build(1).load_source()
    assert not (path / "ran").exists()


def test_the_largest_sizes_that_are_read_take_little_memory(folder, tmp_path):
    """Of the encoder that is computed before anything is known of the weights."""
    path = shutil.copytree(folder("wav2vec2 large"), tmp_path / "source")
    kernels, strides = "[64, 64, 64, 64, 32]", "[1, 1, 1, 64, 28]"
    sizes = f"conv_dim: [9, 9, 9, 9, 9], conv_kernel: {kernels}, conv_stride: {strides}"
    sources.edit("config.json", f"{sizes}, num_conv_pos_embeddings: 1024")(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_architecture(source.find(str(path))).strides.frames(16) > 29_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # kB


def as_processor(folder, **changes):
    """Put the feature extractor's settings where processors of transformers 5 have them."""
    tree = json.loads((folder / source.PREPROCESSOR).read_text()) | changes
    (folder / source.PREPROCESSOR).unlink()
    (folder / source.PROCESSOR).write_text(json.dumps({"feature_extractor": tree}))


@each("normalize", [True, False])
def test_settings_that_a_processor_of_transformers_5_writes_are_read(begun, tmp_path, normalize):
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
    assert experiment(begun, *given).resolved().features.waveform.normalize is normalize
    refused(
        r"sample_rate: got 16000, expected 8000",
        experiment(begun, *given, "features.waveform.sample_rate=16000").resolved,
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
def test_settings_that_do_not_suit_the_source_are_refused(begun, change, message):
    refused(message, experiment(begun, change).resolved)
