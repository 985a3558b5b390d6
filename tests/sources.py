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
