"""ESPnet's side of pretrained.py, in the environment that environments.sh makes; see pretrained_training.py."""

from espnet2.asr.frontend.huggingface import HuggingFaceFrontend
from torch import Tensor, nn

from scripts.bench import pretrained_training as pretrained
from scripts.bench import workload


class Encoder(nn.Module):
    """The wrapper, whose lengths are in samples, and aren't used."""

    def __init__(self, folder: str):
        super().__init__()
        self.frontend = HuggingFaceFrontend(folder, fs=workload.SAMPLE_RATE)

    def forward(self, X: Tensor, X_lens: Tensor) -> Tensor:
        """X (B, S) → (B, T', D)"""
        return self.frontend(X, X_lens)[0]


def build(folder: str) -> tuple[nn.Module, int]:
    """Make the encoder of a folder."""
    encoder = Encoder(folder)
    return encoder, encoder.frontend.output_size()


if __name__ == "__main__":
    pretrained.serve(build, "espnet", "transformers", "numpy")
