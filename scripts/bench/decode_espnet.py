"""ESPnet's side of decode.py; see decoding.py. Runs in the environment that environments.sh makes.

The model and its search are built by ESPnet's own `Speech2Text`, from a configuration file, with
random weights. It takes one utterance at a time: batches of one.
"""

import tempfile
from pathlib import Path

import yaml
from espnet2.bin.asr_inference import Speech2Text
from espnet2.tasks.asr import ASRTask
from torch import Tensor

from scripts.bench import decoding, workload
from scripts.bench.espnet_config import config


class ESPnet:
    """A `Speech2Text` with CTC and one without, for its CTC weight is fixed when it is made."""

    labels = workload.STEPS

    def __init__(self, args):
        assert args.precision == "fp32"
        self.steps = 0
        self.joint, self.attention = (
            self._speech2text(args, weight) for weight in (workload.CTC_WEIGHT, 0.0)
        )

    def _speech2text(self, args, ctc_weight: float) -> Speech2Text:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.yaml"
            path.write_text(
                yaml.safe_dump({**ASRTask.get_default_config(), **config()}), encoding="utf-8"
            )
            speech2text = Speech2Text(
                path,
                token_type="bpe",
                device=args.device,
                maxlenratio=-workload.STEPS,
                beam_size=workload.BEAM,
                ctc_weight=ctc_weight,
                lm_weight=0.0,
                ngram_weight=0.0,
            )
        decoder = speech2text.asr_model.decoder
        decoder.output_layer.bias.data[-1] = workload.NEVER
        batch_score = decoder.batch_score

        def counted(*args, **kwargs):
            self.steps += 1
            return batch_score(*args, **kwargs)

        decoder.batch_score = counted
        return speech2text

    def encode(self, X: Tensor, X_lens: Tensor) -> Tensor:
        """One utterance (1, T, F) → (T', D)"""
        assert len(X) == 1
        H, _ = self.joint.asr_model.encode(X, X_lens)
        return H[0]

    def search(self, H: Tensor, joint: bool) -> list[int]:
        """Length of the best hypothesis, by the method that `Speech2Text.__call__` calls after the encoder."""
        results = (self.joint if joint else self.attention)._decode_single_sample(H)
        labels = results[0][3].yseq.tolist()[1:-1]  # between <sos> and <eos>
        assert self.joint.asr_model.eos not in labels
        return [len(labels)]


if __name__ == "__main__":
    decoding.serve(ESPnet, "espnet", "numpy")
