"""Compare decoding in bf16 with decoding in fp32: the share of texts that differ, WER and real-time factor of both.

    python -m scripts.bench.precision exp/mini/model data/mini/test-mini.jsonl.gz

Both take turns over the whole manifest, after a batch that warms them up; the factors are medians
over the repeats and include reading the recordings and computing features.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import torch

from asr.cli.command import command
from asr.models.recognizer import Recognizer, load
from asr.scoring.report import score_texts
from asr.scoring.significance import compare
from asr.scoring.texts import read_texts
from asr.transcription.options import SearchOptions
from asr.transcription.pipeline import Clock, transcribe
from asr.transcription.recordings import Recording, find
from scripts.bench import report
from scripts.bench.place import output

PRECISIONS = ("fp32", "bf16")


def decode(
    recognizer: Recognizer, recordings: list[Recording], args: argparse.Namespace, precision: str
):
    """Transcribe everything: id → text, and the clock."""
    options, clock = SearchOptions(args.mode, args.beam, args.ctc_weight), Clock()
    transcripts = transcribe(recognizer, recordings, options, args.batch_seconds, precision, clock)
    return {transcript.id: transcript.text for transcript in transcripts}, clock


def measure(args: argparse.Namespace) -> dict:
    """Decode, score, compare."""
    torch.set_num_threads(args.threads)
    recognizer, recordings = load(args.model, args.device), find([], [args.manifest])
    references = read_texts(args.manifest)
    texts, factors = {}, {precision: [] for precision in PRECISIONS}
    for precision in PRECISIONS:
        decode(recognizer, recordings[:8], args, precision)
    for n in range(args.repeats):
        for precision in PRECISIONS:
            texts[precision], clock = decode(recognizer, recordings, args, precision)
            factors[precision].append(clock.rtf)
            print(
                f"{precision} {n + 1}/{args.repeats}: RTF {clock.rtf:.4f}",
                file=sys.stderr,
                flush=True,
            )
    scores = {
        precision: score_texts(references, texts[precision], "word") for precision in PRECISIONS
    }
    rates = {precision: list(score.utterances.values()) for precision, score in scores.items()}
    difference = compare(rates["bf16"], rates["fp32"])
    differing = [name for name in texts["fp32"] if texts["fp32"][name] != texts["bf16"][name]]
    return {
        "utterances": len(recordings),
        "seconds": sum(recording.duration for recording in recordings),
        "words": scores["fp32"].total.reference,
        "differing": differing,
        "wer": {precision: score.total.rate for precision, score in scores.items()},
        "wer_difference": {
            "value": difference.value,
            "low": difference.low,
            "high": difference.high,
        },
        "rtf": {precision: statistics.median(values) for precision, values in factors.items()},
        "rtfs": factors,
    }


def arguments() -> argparse.ArgumentParser:
    """Describe the command line; the search's arguments are asr-decode's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="model folder of asr-train")
    parser.add_argument("manifest", help="of asr-prepare, with texts")
    parser.add_argument(
        "--mode", default="joint", help="joint (default), attention, attention-greedy or ctc-greedy"
    )
    parser.add_argument("--beam", type=int, default=10)
    parser.add_argument("--ctc-weight", type=float, default=0.3)
    parser.add_argument("--batch-seconds", type=float, default=120.0)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1, help="default 1")
    parser.add_argument("--repeats", type=int, default=3, help="default 3")
    parser.add_argument(
        "--out",
        type=output,
        metavar="JSON",
        help="write the figures there, and the ids that differ",
    )
    return parser


@command
def main(argv: list[str]) -> None:
    """Measure and tell."""
    args = arguments().parse_args(argv)
    facts, found = report.circumstances(args.device), measure(args)
    if args.out:
        Path(args.out).write_text(
            json.dumps({**vars(args), **facts, **found}, indent=1) + "\n", encoding="utf-8"
        )
    print(report.heading(facts, args.threads))
    print(
        f"{args.mode} search; {found['utterances']} utterances, {found['seconds']:.0f} s, {found['words']} words\n"
    )
    rows = [(p, f"{100 * found['wer'][p]:.2f}", f"{found['rtf'][p]:.4f}") for p in PRECISIONS]
    print(report.table(("", "WER_%", "RTF"), rows))
    differing, change = len(found["differing"]), found["wer_difference"]
    interval = f"[{100 * change['low']:+.2f}, {100 * change['high']:+.2f}]"
    print(f"\n{differing} texts differ, {100 * differing / found['utterances']:.2f} %")
    print(f"WER, bf16 less fp32: {100 * change['value']:+.2f} points {interval}")
    print(f"time, bf16 to fp32: {found['rtf']['bf16'] / found['rtf']['fp32']:.2f}")


if __name__ == "__main__":
    main()
