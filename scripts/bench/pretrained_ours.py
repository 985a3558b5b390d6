"""Our side of pretrained.py; see pretrained_training.py."""

import torch
from torch import Tensor, nn

from asr.device import tuned
from asr.features.waveform import Waveform
from asr.nn.encoders import pretrained_source
from asr.nn.encoders.pretrained import PretrainedSettings, read_architecture
from scripts.bench import pretrained_training as pretrained
from scripts.bench import workload

DROPOUTS = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), workload.DROPOUT)


class Encoder(nn.Module):
    """Waveforms at the scale that the source expects, encoded."""

    def __init__(self, folder: str):
        super().__init__()
        source = pretrained_source.find(folder)
        settings = PretrainedSettings(
            kind="pretrained", source=folder, architecture=read_architecture(source), **DROPOUTS
        )
        self.features = Waveform(workload.SAMPLE_RATE, normalize=True)
        self.encoder = settings.build(1)
        self.encoder.load_source(source)

    def forward(self, X: Tensor, X_lens: Tensor) -> Tensor:
        """X (B, S) → (B, T', D)"""
        return self.encoder(*self.features(X, X_lens)).H


def build(folder: str) -> tuple[nn.Module, int]:
    """Make the encoder of a folder."""
    encoder = Encoder(folder)
    return encoder, encoder.encoder.d_model


if __name__ == "__main__":
    with tuned(torch.device("cpu")):  # as asr-train does
        pretrained.serve(build, "transformers", "numpy")
