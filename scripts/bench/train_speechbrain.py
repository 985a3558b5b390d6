"""SpeechBrain's side of train.py; see training.py. Runs in the environment that environments.sh makes."""

from speechbrain.nnet.losses import ctc_loss, kldiv_loss
from torch import Tensor, nn

from scripts.bench import speechbrain_model as parts
from scripts.bench import training, workload


class Loss(nn.Module):
    """Forward and loss as the recipe's `compute_forward` and `compute_objectives`."""

    def __init__(self):
        super().__init__()
        self.front, self.transformer = parts.front(), parts.transformer()
        self.ctc_out, self.out = parts.outputs()

    def forward(self, X: Tensor, X_lens: Tensor, Y: Tensor, Y_lens: Tensor) -> Tensor:
        """Mean over the batch, as its losses' default is."""
        relative, label_share = X_lens / X_lens.max(), Y_lens / Y_lens.max()
        labels = Y.clamp(min=parts.BLANK)  # its padding
        starts = nn.functional.pad(labels, (1, 0), value=parts.BOS)
        ends = nn.functional.pad(labels, (0, 1)).scatter(1, Y_lens.unsqueeze(1), parts.EOS)
        H, Z = self.transformer(self.front(X), starts, relative, pad_idx=parts.BLANK)
        ctc = ctc_loss(self.ctc_out(H).log_softmax(-1), labels, relative, label_share, parts.BLANK)
        end_share = (Y_lens + 1) / (Y_lens + 1).max()
        attention = kldiv_loss(
            self.out(Z).log_softmax(-1),
            ends,
            length=end_share,
            label_smoothing=workload.SMOOTHING,
            pad_idx=parts.BLANK,
        )
        return workload.CTC_WEIGHT * ctc + (1 - workload.CTC_WEIGHT) * attention


if __name__ == "__main__":
    training.serve(lambda args: training.Plain(Loss(), args), "speechbrain", "numpy")
