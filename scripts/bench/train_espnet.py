"""ESPnet's side of train.py; see training.py. Runs in the environment that environments.sh makes."""

from argparse import Namespace

from espnet2.tasks.asr import ASRTask
from torch import Tensor, nn

from scripts.bench import training
from scripts.bench.espnet_config import config


class Loss(nn.Module):
    """The loss of ESPnet's model, which its trainer takes the gradient of."""

    def __init__(self):
        super().__init__()
        self.model = ASRTask.build_model(Namespace(**{**ASRTask.get_default_config(), **config()}))

    def forward(self, X: Tensor, X_lens: Tensor, Y: Tensor, Y_lens: Tensor) -> Tensor:
        """Per utterance, as ESPnet's default is."""
        loss, _, _ = self.model(X, X_lens, Y, Y_lens)
        return loss


if __name__ == "__main__":
    training.serve(lambda args: training.Plain(Loss(), args), "espnet", "numpy")
