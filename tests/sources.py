"""Tiny pretrained encoders with random weights, in transformers' own files."""

import pytest
import torch
from small import options

TINY = """hidden_size: 32, num_hidden_layers: 3, num_attention_heads: 2, intermediate_size: 48,
    conv_dim: [16, 16, 16, 16, 16, 16, 16], num_conv_pos_embedding_groups: 2"""


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
