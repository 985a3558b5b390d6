"""Compare ways to compute the same model on a CPU: seconds, posteriors, batch invariance and texts, in one table.

    python -m scripts.bench.kernels exp/mini/model data/mini/test-mini.jsonl.gz

eager      PyTorch's own products
packed     large linear maps of decoder and CTC by oneDNN, whose weights are laid out once, as asr-decode computes
compiled   torch.compile of the encoder's layers, alike ones once, for any batch and length
frozen     torch.compile of the whole encoder for the sizes at hand, with weights as constants, which Inductor prepares
oneDNN     all linear maps packed
int8       linear maps of int8 weights and inputs, by PyTorch; a tensor of inputs has one scale
torchao    the same by torchao, if it is installed; each row of inputs has its own scale

Seconds are of the workload of `eight`, in turn, after each way has run
it once; those of one thread are CPU time, so that other work on the machine changes them less. The
rest is of the model folder and the manifest: the largest change of a CTC log posterior against
eager; the largest difference between an utterance alone and in its batch, of the longest; and all
texts. `frozen` has none of this, for it compiles for each size anew, nor has a way that takes twice
eager's time.
"""

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from asr.cli.command import command
from asr.device import tuned
from asr.models.hybrid import Hybrid
from asr.models.recognizer import Recognizer, load
from asr.nn.packed import PackedLinear
from asr.nn.subsampling import Subsampling
from asr.scoring.report import score_texts
from asr.scoring.texts import read_texts
from asr.transcription import pipeline
from asr.transcription.options import SearchOptions
from asr.transcription.recordings import Recording, find
from asr.transcription.searcher import for_search
from scripts.bench import ours, report, workload
from scripts.bench.place import output

ALONE = 40  # of the longest utterances are encoded alone, too
BATCH_SECONDS = 120.0
WARM = 1  # rounds before those that count
SLOW = 2.0  # times eager's seconds: what takes longer isn't worth a look at its texts


class Int8(nn.Module):
    """A linear map of int8: each output has a scale, and the whole input one, found when it is there."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        weight = linear.weight.detach()
        scales, zeros = weight.abs().amax(1).double() / 127, torch.zeros(len(weight)).long()
        rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self.prepared = torch.ops.quantized.linear_prepack(rounded, linear.bias)

    def forward(self, X: Tensor) -> Tensor:
        """(…, D) → (…, E)"""
        return torch.ops.quantized.linear_dynamic(X, self.prepared, True)


class TorchAO(nn.Module):
    """A linear map of int8 by torchao: each output has a scale, and each row of the input."""

    def __init__(self, linear: nn.Linear):
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.linear = nn.Sequential(copy.deepcopy(linear))
        quantize_(self.linear, Int8DynamicActivationInt8WeightConfig())

    def forward(self, X: Tensor) -> Tensor:
        """(…, D) → (…, E)"""
        return self.linear(X)


def linears(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    """Every linear map with the module that holds it and its name; without the subsampling's, read in another order."""
    for parent in model.modules():
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear) and not isinstance(parent, Subsampling):
                yield parent, name, child


def replaced(kind: Callable[[nn.Linear], nn.Module], model: Hybrid) -> Hybrid:
    """Have another kind of module compute the linear maps of a model."""
    for parent, name, linear in list(linears(model)):
        setattr(parent, name, kind(linear))
    return model


def compiled(model: Hybrid) -> Hybrid:
    """Compile the layers."""
    forward = torch.compile(type(model.encoder.layers[0]).forward, dynamic=True)
    for layer in model.encoder.layers:
        layer.forward = partial(forward, layer)
    return model


def frozen(model: Hybrid) -> Hybrid:
    """Compile the encoder."""
    model.encoder = torch.compile(model.encoder, dynamic=False, options={"freezing": True})
    return model


WAYS: dict[str, Callable[[Hybrid], Hybrid]] = {
    "eager": lambda model: model,
    "packed": partial(for_search, precision="fp32"),
    "compiled": compiled,
    "frozen": frozen,
    "oneDNN": partial(replaced, PackedLinear),
    "int8": partial(replaced, Int8),
    "torchao": partial(replaced, TorchAO),
}


def measure_seconds(
    ways: Sequence[str], repeats: int, now: Callable[[], float]
) -> dict[str, dict[str, list[float]]]:
    """Way → seconds of the encoder, and of the encoder and a joint search, of `eight`."""
    model = ours.build_endless()
    models = {way: WAYS[way](copy.deepcopy(model)) for way in ways}
    X, X_lens = workload.pad(workload.features("eight"))
    seconds: dict[str, dict[str, list[float]]] = {way: {"encoder": [], "joint": []} for way in ways}
    for n in range(WARM + repeats):
        for way, model in models.items():
            began = now()
            encoded = model.encoder(X, X_lens)
            between = now()
            limits = torch.full_like(encoded.H_lens, workload.STEPS - 1)
            ours.search(model, encoded.H, encoded.H_lens, limits, True)
            if n >= WARM:
                seconds[way]["encoder"].append(between - began)
                seconds[way]["joint"].append(now() - began)
            print(f"{way} {n}: {now() - began:.2f} s", file=sys.stderr, flush=True)
    return seconds


def posteriors(recognizer: Recognizer, recordings: Sequence[Recording]) -> dict[str, Tensor]:
    """Id → CTC log posteriors (T', V), in batches of asr-decode."""
    found = {}
    for batch, H, H_lens in pipeline.encoded(recognizer, recordings, BATCH_SECONDS, "fp32"):
        rows = zip(batch, recognizer.model.ctc_log_probs(H), H_lens.tolist(), strict=True)
        found |= {recording.id: log_probs[:length] for recording, log_probs, length in rows}
    return found


def compare(recognizer: Recognizer, recordings: list[Recording], expected: dict) -> dict:
    """Changes of posteriors against the expected ones, and of an utterance alone."""
    together = posteriors(recognizer, recordings)
    longest = sorted(recordings, key=lambda recording: -recording.duration)[:ALONE]
    alone = {name: row for one in longest for name, row in posteriors(recognizer, [one]).items()}
    return {
        "posteriors": max(_off(together[name], row) for name, row in expected.items()),
        "alone": max(_off(together[name], row) for name, row in alone.items()),
    }


def _off(some: Tensor, others: Tensor) -> float:
    return float((some - others).abs().max())


def measure_texts(args: argparse.Namespace, ways: Sequence[str]) -> dict[str, dict]:
    """Way → what it changes on a real model."""
    plain, recordings = load(args.model), find([], [args.manifest])
    references, expected = read_texts(args.manifest), posteriors(plain, recordings)
    found: dict[str, dict] = {}
    for way in ways:
        recognizer = copy.deepcopy(plain)
        recognizer.model = WAYS[way](recognizer.model)
        found[way] = compare(recognizer, recordings, expected)
        transcripts = pipeline.transcribe(recognizer, recordings, SearchOptions(), BATCH_SECONDS)
        texts = {transcript.id: transcript.text for transcript in transcripts}
        before = found["eager"].get("texts", texts)
        changed = sum(before[name] != text for name, text in texts.items())
        wer = score_texts(references, texts, "word").total.rate
        found[way] |= {"texts": texts, "changed": changed / len(texts), "wer": wer}
        print(f"{way}: {changed} texts changed", file=sys.stderr, flush=True)
    return found


def rows(seconds: dict[str, dict[str, list[float]]], texts: dict[str, dict]) -> list[list[str]]:
    """Lay out a row for each way."""
    lines = []
    for way, parts in seconds.items():
        cells = [way]
        for part, samples in parts.items():
            before = statistics.median(seconds["eager"][part])
            median = statistics.median(samples)
            cells += [
                f"{median:.2f}",
                f"{min(samples):.2f}-{max(samples):.2f}",
                f"{median / before:.2f}",
            ]
        if real := texts.get(way):
            cells += [f"{real['posteriors']:.1e}", f"{real['alone']:.1e}"]
            cells += [f"{100 * real['changed']:.2f}", f"{100 * real['wer']:.2f}"]
        lines.append(cells + ["-"] * (len(HEADS) - len(cells)))
    return lines


HEADS = (
    "", "encoder_s", "spread", "ratio", "joint_s", "spread", "ratio",
    "posteriors", "alone", "texts_%", "WER_%",
)  # fmt: skip


def arguments() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="model folder of asr-train")
    parser.add_argument("manifest", help="of asr-prepare, with texts")
    parser.add_argument("--ways", default=",".join(WAYS), help="default: all; eager is always one")
    parser.add_argument("--threads", type=int, default=1, help="default 1")
    parser.add_argument("--repeats", type=int, default=5, help="default 5")
    parser.add_argument(
        "--out", type=output, metavar="JSON", help="write all figures and texts there"
    )
    return parser


def available(wanted: str) -> list[str]:
    """The ways that can be measured, eager first."""
    ways = [way for way in WAYS if way in {"eager", *wanted.split(",")}]
    try:
        import torchao  # noqa: F401
    except ImportError:
        print("torchao isn't installed; `pip install torchao` adds it", file=sys.stderr)
        ways = [way for way in ways if way != "torchao"]
    return ways


@command
def main(argv: list[str]) -> None:
    """Measure and tell."""
    args = arguments().parse_args(argv)
    torch.set_num_threads(args.threads)
    facts, ways = report.circumstances("cpu"), available(args.ways)
    with torch.no_grad(), tuned(torch.device("cpu")):
        clock = time.process_time if args.threads == 1 else time.perf_counter
        seconds = measure_seconds(ways, args.repeats, clock)
        longest = SLOW * statistics.median(seconds["eager"]["joint"])
        chosen = [way for way in ways if statistics.median(seconds[way]["joint"]) <= longest]
        texts = measure_texts(args, [way for way in chosen if way != "frozen"])
    if args.out:
        found = {**vars(args), **facts, "seconds": seconds, "texts": texts}
        Path(args.out).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(report.heading(facts, args.threads))
    print(report.table(HEADS, rows(seconds, texts)))


if __name__ == "__main__":
    main()
