"""Time training steps of a pretrained encoder of base size beside ESPnet's and SpeechBrain's wrapper of the same model.

    bash scripts/bench/environments.sh
    python -m scripts.bench.pretrained --threads 2 --out pretrained.json

The source is wav2vec 2.0's base model (95 M parameters) with random weights, which all load from the
same files. Each puts a linear map and PyTorch's CTC on its frames; a step is as in train.py, on
random waveforms, with the same dropout and without masks or dropped layers. All encoders are trained
whole. Every process keeps its memory, 5 GB with the four utterances. `MB` is the peak of the process
after all steps; it includes what a wrapper keeps.
"""

import argparse
import shutil

from scripts.bench import report, train, turns, workload
from scripts.bench.turns import BENCH

SOURCE = BENCH / "wav2vec2-base"
SIZES: dict[str, object] = {}  # beside wav2vec 2.0's own, which are those of its base model


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = turns.parser(__doc__, train.PEERS)
    precisions = turns.names(train.PRECISIONS)
    parser.add_argument("--workload", default="four", choices=workload.SECONDS, help="default four")
    parser.add_argument(
        "--precision", type=precisions, default=["fp32"], help="ours: fp32 (default), bf16"
    )
    parser.add_argument(
        "--peer-precision", type=precisions, default=["fp32"], help="peers': fp32 (default), bf16"
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--peak-tflops", type=float, help="of the device, to tell shares of")
    return parser.parse_args()


def write_source() -> None:
    """Write the model's files as transformers does, once."""
    if SOURCE.exists():
        return
    import torch
    import transformers

    torch.manual_seed(0)
    rates = dict.fromkeys(
        ("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout"),
        workload.DROPOUT,
    )
    config = transformers.Wav2Vec2Config(**SIZES, **rates, layerdrop=0.0, apply_spec_augment=False)
    features = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True)
    unfinished = SOURCE.with_name(f"{SOURCE.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    for part in (transformers.Wav2Vec2Model(config), features):
        part.save_pretrained(unfinished)
    unfinished.rename(SOURCE)


def main() -> None:
    """Measure and tell."""
    args = arguments()
    write_source()
    facts = report.circumstances(args.device)
    workers = train.start(args, "pretrained", {"source": SOURCE}, {})
    rows = train.measure(args, workers)
    for worker in workers:
        worker.stop()
    train.check(rows)
    lines = train.summary(rows)
    turns.tell(args, facts, workers, rows, lines)
    train.present(args, lines)


if __name__ == "__main__":
    main()
