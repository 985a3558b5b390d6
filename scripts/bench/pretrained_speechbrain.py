"""SpeechBrain's side of pretrained.py, in the environment that environments.sh makes; see pretrained_training.py."""

from speechbrain.integrations.huggingface.wav2vec2 import Wav2Vec2
from torch import Tensor, nn

from scripts.bench import pretrained_training as pretrained


class Encoder(nn.Module):
    """The wrapper, which takes lengths as shares of the longest."""

    def __init__(self, folder: str):
        super().__init__()
        self.wav2vec2 = Wav2Vec2(folder, save_path=folder)

    def forward(self, X: Tensor, X_lens: Tensor) -> Tensor:
        """X (B, S) → (B, T', D)"""
        return self.wav2vec2(X, X_lens / X_lens.max())


def build(folder: str) -> tuple[nn.Module, int]:
    """Make the encoder of a folder."""
    encoder = Encoder(folder)
    return encoder, encoder.wav2vec2.model.config.hidden_size


if __name__ == "__main__":
    pretrained.serve(build, "speechbrain", "transformers", "numpy")
