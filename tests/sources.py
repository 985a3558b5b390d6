"""Tiny pretrained encoders with random weights, in transformers' own files, and corpora to train them on."""

import json
import re
from functools import cache

import pytest
import torch
from runs import make_root
from small import options
from tones import CONFIG

TINY = """hidden_size: 32, num_hidden_layers: 3, num_attention_heads: 2, intermediate_size: 48,
    conv_dim: [16, 16, 16, 16, 16, 16, 16], num_conv_pos_embedding_groups: 2"""

FAMILIES = {  # one of each way through the code: norms of the convolutions, of the layers, positions
    "wav2vec2 base": "model_type: wav2vec2",
    "wav2vec2 large": "model_type: wav2vec2, feat_extract_norm: layer, do_stable_layer_norm: true, conv_bias: true",
    "hubert base": "model_type: hubert, feat_proj_layer_norm: false",
    "hubert large": "model_type: hubert, feat_extract_norm: layer, do_stable_layer_norm: true",
    "wavlm base": "model_type: wavlm",
    "wavlm large": "model_type: wavlm, feat_extract_norm: layer, do_stable_layer_norm: true",
    "data2vec": "model_type: data2vec-audio, num_conv_pos_embeddings: 3, conv_pos_kernel_size: 19",
}


def write_source(path, text, rate, normalize=True):
    """An encoder of a family, and the settings of its feature extractor, for a sample rate in Hz."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    settings = transformers.AutoConfig.for_model(**options(f"{TINY}, {text}"))
    model = transformers.AutoModel.from_config(settings)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    features = {"sampling_rate": rate, "do_normalize": normalize}
    for part in (model, transformers.Wav2Vec2FeatureExtractor(**features)):
        part.save_pretrained(path)
    return path


def folders(tmp_path_factory):
    """Give the folder of a family, for 8000 Hz, which is written when it is first asked for."""

    @cache
    def make(family, normalize=True):
        path = tmp_path_factory.mktemp("source") / "model"
        return write_source(path, FAMILIES[family], 8000, normalize)

    return make


SIZES = "hidden_size: 32, num_hidden_layers: 3, num_attention_heads: 2, intermediate_size: 48"
READERS = {  # of features: model class, its settings, feature extractor, its settings
    "w2v-bert": (
        "Wav2Vec2BertModel",
        f"model_type: wav2vec2-bert, {SIZES}, left_max_position_embeddings: 9, conv_depthwise_kernel_size: 5",
        "SeamlessM4TFeatureExtractor",
        "stride: 2",
    ),
    "whisper": (
        "WhisperForConditionalGeneration",
        "model_type: whisper, d_model: 32, encoder_layers: 3, encoder_attention_heads: 2, encoder_ffn_dim: 48,"
        "decoder_layers: 1, decoder_attention_heads: 2, decoder_ffn_dim: 48, num_mel_bins: 40, vocab_size: 60000,"
        "max_source_positions: 300",
        "WhisperFeatureExtractor",
        "feature_size: 40, chunk_length: 6",
    ),
    "parakeet": (
        "ParakeetForCTC",
        f"model_type: parakeet_ctc, vocab_size: 20, pad_token_id: 0, encoder_config: {{{SIZES}, conv_kernel_size: 5,"
        "subsampling_conv_channels: 8, subsampling_factor: 4, num_mel_bins: 40}",
        "ParakeetFeatureExtractor",
        "feature_size: 40",
    ),
}


def write_reader(path, family):
    """An encoder that reads features, within a whole model as it is published, and its feature extractor."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    kind, text, extractor, more = READERS[family]
    model = getattr(transformers, kind)(transformers.AutoConfig.for_model(**options(text)))
    for name, value in model.named_parameters():
        value.data += 0.1 * torch.randn_like(value) * ("embed_positions" not in name)
    for name, value in model.named_buffers():
        if "running" in name:
            value.uniform_(0.5, 1.5)
    for part in (model, getattr(transformers, extractor)(**options(more))):
        part.save_pretrained(path)
    return path


def encoder_of(path, text=""):
    """The encoder of a folder, with its weights, and the names of what it doesn't need."""
    from asr.nn.encoders import pretrained_source
    from asr.nn.encoders.pretrained import PretrainedSettings, read_architecture

    given = {"kind": "pretrained", "source": str(path), **options(text)}
    given["architecture"] = read_architecture(pretrained_source.find(str(path)))
    encoder = PretrainedSettings(**given).build(1).eval()
    return encoder, encoder.load_source()


ENCODER = """encoder: {{kind: pretrained, source: {root}/source, dropout: 0.05, layer_dropout: 0.2,
    mask: {{time_ratio: 0.1, time_width: 2}}}}
  fine_tuning: {{freeze_steps: 7, rate: 0.5, layer_decay: 0.9}}"""


def configured(root, rate):
    """A corpus, and a configuration for an encoder in root/source, of a sample rate in Hz: x.yaml."""
    make_root(root)
    text = re.sub("encoder: .*", ENCODER, CONFIG.replace("average: 2", "average: 2, best_by: loss"))
    features = rf"\1 {{{{waveform: {{{{sample_rate: {rate}}}}}}}}}\n"
    text = re.sub("(features:)\n.*\n.*\n", features, text)
    (root / "x.yaml").write_text(text.format(root=root))
    return root


def edit(name, text):
    """Change settings of a file; what is null is left out."""

    def change(folder):
        tree = json.loads((folder / name).read_text()) | options(text)
        tree = {name: value for name, value in tree.items() if value is not None}
        (folder / name).write_text(json.dumps(tree))

    return change
