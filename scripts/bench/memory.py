"""Count the memory that training of published configurations takes on a GPU, without one.

    python -m scripts.bench.memory

Fixed are the weights, their copy in bf16, the gradients and the optimizer's two moments: 18 bytes per
parameter. A batch adds what the forward pass keeps for the backward pass. It is counted on PyTorch's
fake tensors, which go the ways of a GPU in bf16 with shapes alone: utterances of 15 s with 50 labels,
without attention dropout, whose weights a GPU's kernels don't keep. A peak is higher, by what single
operations need, by the allocator's gaps and by PyTorch's own gigabyte; `asr-train --check` measures
it on the GPU at hand.
"""

import argparse
import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from asr.cli.command import command
from asr.config import load
from asr.models import loss
from asr.models.hybrid import Hybrid
from asr.tasks.recognizer import RecognizerExperiment
from asr.training.layers import all_take_part, recompute
from scripts.bench import report
from scripts.bench.gpu import LABELS, SECONDS, VOCABULARY

NAMES = (
    "librispeech100",
    "librispeech100-conformer",
    "librispeech100-e_branchformer",
    "librispeech960-conformer",
    "librispeech960-e_branchformer",
)
BYTES = 4 + 2 + 4 + 8  # of a parameter: itself, in bf16, its gradient, two moments


def on_gpu(X: Tensor) -> Tensor:
    """A tensor as X, on a GPU."""
    return torch.empty_strided(X.shape, X.stride(), dtype=X.dtype, device="cuda")


def move(model: Hybrid) -> None:
    """Have fake tensors on a GPU in place of a model's."""
    for module in model.modules():
        module._parameters = {
            name: p if p is None else nn.Parameter(on_gpu(p))
            for name, p in module._parameters.items()
        }
        module._buffers = {name: on_gpu(X) for name, X in module._buffers.items()}


@contextlib.contextmanager
def bf16() -> Iterator[None]:
    """Autocast to bf16 of a GPU; PyTorch's own does nothing where there is none."""
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)


def kept(model: Hybrid, mels: int, utterances: int) -> int:
    """Bytes that a forward pass keeps."""
    storages = {}

    def keep(X: Tensor) -> Tensor:
        storages[X.untyped_storage()._cdata] = X.untyped_storage()
        return X

    X = torch.empty(utterances, round(SECONDS * 100), mels, device="cuda")
    X_lens = torch.full((utterances,), X.size(1), device="cuda")
    Y = torch.ones(utterances, LABELS, dtype=torch.long, device="cuda")
    Y_lens = torch.full((utterances,), LABELS, device="cuda")
    with bf16(), saved_tensors_hooks(keep, lambda X: X):
        encoded = model.encoder(X, X_lens)
        logits = model.decode(encoded.H, encoded.H_lens, Y, Y_lens).logits
        targets = loss.add_end(Y, Y_lens, model.sos_eos)
        alive = loss.cross_entropy(logits, targets, 0.1), model.ctc_log_probs(encoded.H)
    size = sum(storage.nbytes() for storage in storages.values())
    return size + alive[1].nbytes * 2  # CTC keeps its input turned, and makes a gradient like it


def count(name: str) -> list[str]:
    """A row of the table: parameters, fixed bytes, those of a second of audio, of a batch; with layers recomputed."""
    still = [f"model.{side}.attention_dropout=0" for side in ("encoder", "decoder")]
    experiment = load(RecognizerExperiment, report.ROOT / "conf" / f"{name}.yaml", still)
    mels, seconds = experiment.features.fbank.mels, experiment.data.batch_seconds
    with torch.device("meta"):
        model = Hybrid(experiment.model, mels, VOCABULARY)
    parameters, slopes = sum(p.numel() for p in model.parameters()), []
    with FakeTensorMode(allow_non_fake_inputs=True), all_take_part(model):
        move(model)
        for change in (lambda model: None, recompute):
            change(model)
            slopes.append((kept(model, mels, 8) - kept(model, mels, 4)) / 4 / SECONDS)
    fixed = BYTES * parameters
    per_second = [f"{slope / 1e6:.0f}" for slope in slopes]
    batches = [f"{(fixed + slope * seconds) / 1e9:.1f}" for slope in slopes]
    return [
        name,
        f"{parameters / 1e6:.1f}",
        f"{fixed / 1e9:.2f}",
        per_second[0],
        f"{seconds:g}",
        batches[0],
        per_second[1],
        batches[1],
    ]


HEADS = ("", "M", "fixed_GB", "MB_per_s", "batch_s", "GB", "MB_per_s", "GB, recomputed")


@command
def main(argv: list[str]) -> None:
    """Count and print."""
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("names", nargs="*", default=NAMES, help="of configurations in conf/")
    print(report.table(HEADS, [count(name) for name in args.parse_args(argv).names]))


if __name__ == "__main__":
    main()
