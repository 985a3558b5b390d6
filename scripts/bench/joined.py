"""Compare recordings that are joined to one file with the same recordings decoded alone: error rates, time and memory.

    python -m scripts.bench.joined exp/mini/model data/mini/test-mini.jsonl.gz --files 3 --breathless 120

The recordings of a manifest stand one after another in each file, with faint noise of --pause
seconds between them; a minute into the first file, there is none for --breathless seconds. The errors
of a joined text belong to the recordings whose words they touch, so the difference has a paired
interval. Each decoding is a process of its own, which tells its peak memory; a file of a minute is
decoded, too. With --draws, they are decoded so often, alone and joined in turns, and medians are
told. Words that are lost or too many right where speech without a pause was cut are counted; some
would be wrong without a cut.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jiwer
import numpy as np
import soundfile

from asr.audio import load as audio
from asr.cli.command import command
from asr.data import manifest
from asr.scoring.error_rate import ErrorRate
from asr.scoring.report import aligned, percent
from asr.scoring.significance import compare
from asr.transcription.segmentation import PAUSE
from scripts import add_decode

NOISE = 3e-4  # standard deviation between recordings
BREATH = 60.0  # seconds of the first file before the recordings without pauses
PEAK = """
# runs asr-decode with pauses to cut at and silence around pieces, and tells its peak memory: not that of the process
# that it was forked from, which getrusage counts
import sys
from dataclasses import replace
from asr.cli.decode import main
from asr.transcription import long, segmentation
pause, context, *argv = sys.argv[1:]
if pause:
    segmentation.PAUSE = float(pause)
if context:
    suited = long.Cutting.suited_to
    long.Cutting.suited_to = lambda *some: replace(suited(*some), context=float(context))
main(argv)
with open("/proc/self/status") as file:
    print(next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024, file=sys.stderr)
"""


def join(
    utterances,
    rate: int,
    pause: tuple[float, float],
    path: Path,
    rng,
    breathless: tuple[float, float] = (0.0, 0.0),
) -> float:
    """Write recordings one after another; return the seconds of all. breathless: from when to when without pauses."""
    with soundfile.SoundFile(path, "w", rate, 1, "PCM_16") as file:
        for utterance in utterances:
            part = utterance.start, utterance.duration, utterance.channel
            file.write(audio.load(utterance.path, rate, *part))
            if not breathless[0] <= file.frames / rate < breathless[1]:
                file.write(NOISE * rng.standard_normal(round(rng.uniform(*pause) * rate)))
        return file.frames / rate


def decode(args: argparse.Namespace, sources: list[str], out: Path) -> dict:
    """Transcribe in a process of its own: id → line of JSON, wall seconds, peak memory in MB."""
    how = ["--model", args.model, *args.decode]
    wanted = ["--json", str(out), "--out", f"{out}.txt"]
    before = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PEAK, args.cut_at, args.context, *how, *sources, *wanted],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    wall, peak = time.perf_counter() - before, float(done.stderr.splitlines()[-1])
    return {"lines": {line["id"]: line for line in lines}, "seconds": wall, "megabytes": peak}


def divided(references: list[str], text: str) -> list[ErrorRate]:
    """Count the errors of a joined text by recording; inserted words belong to the one that goes on or follows."""
    owners = [n for n, reference in enumerate(references) for _ in reference.split()]
    counts = np.zeros((len(references), 4), dtype=int)  # hits, substitutions, deletions, insertions
    places = {"equal": 0, "substitute": 1, "delete": 2}
    for chunk in jiwer.process_words(" ".join(references), text).alignments[0]:
        if chunk.type == "insert":
            owner = owners[min(chunk.ref_start_idx, len(owners) - 1)]
            counts[owner, 3] += chunk.hyp_end_idx - chunk.hyp_start_idx
        for n in range(chunk.ref_start_idx, chunk.ref_end_idx):
            counts[owners[n], places[chunk.type]] += 1
    return [ErrorRate(*map(int, row)) for row in counts]


def at_joints(references: list[str], found: dict) -> np.ndarray:
    """Count where speech without a pause was cut and joined: joints, words lost there, words too many there.

    found    a line of asr-decode's JSON; pieces with silence between them have an interval of
             `nonspeech` there
    """
    segments, quiet = found["segments"], found["nonspeech"]
    counts = np.cumsum([len(segment["text"].split()) for segment in segments])
    joints = {
        int(count)
        for one, next, count in zip(segments, segments[1:], counts, strict=False)
        if not any(one["start"] < (a + b) / 2 < next["end"] for a, b in quiet)
    }
    lost = added = 0
    text = " ".join(segment["text"] for segment in segments)
    for chunk in jiwer.process_words(" ".join(references), text).alignments[0]:
        if chunk.type == "delete" and chunk.hyp_start_idx in joints:
            lost += chunk.ref_end_idx - chunk.ref_start_idx
        if chunk.type == "insert" and joints & {chunk.hyp_start_idx, chunk.hyp_end_idx}:
            added += chunk.hyp_end_idx - chunk.hyp_start_idx
    return np.array([len(joints), lost, added])


def measure(args: argparse.Namespace, folder: Path) -> dict:
    """Decode alone and joined, score."""
    utterances = list(manifest.read(args.manifest))
    groups = [
        [utterances[n] for n in part] for part in np.array_split(range(len(utterances)), args.files)
    ]
    rate = audio.info(utterances[0].path).rate
    files = [folder / f"{n}.flac" for n in range(args.files)]
    references = {u.id: u.text for u in utterances}
    turns, draws, errors, joints = [], [], [], np.zeros(3, dtype=int)
    for draw in range(args.draws):
        turns.append(decode(args, ["--manifest", args.manifest], folder / f"alone-{draw}.json"))
        seconds = join_all(args, groups, rate, files, np.random.default_rng(draw))
        draws.append(decode(args, [*map(str, files)], folder / f"joined-{draw}.json"))
        errors.append([])
        for group, file in zip(groups, files, strict=True):
            found = draws[-1]["lines"][str(file)]
            errors[-1] += divided([u.text for u in group], found["text"])
            joints += at_joints([u.text for u in group], found)
    minute = folder / "minute.flac"
    soundfile.write(minute, audio.load(files[0], rate, 0.0, 60.0), rate)
    shorts = [
        decode(args, [str(minute)], folder / f"minute-{draw}.json") for draw in range(args.draws)
    ]
    texts = {id: line["text"] for id, line in turns[0]["lines"].items()}
    by_itself = list(aligned(references, texts, "word"))
    together = [sum(own) for own in zip(*errors, strict=True)]
    difference = compare(together, [sum([own] * args.draws) for own in by_itself])
    return {
        "audio_seconds": round(seconds, 1),
        "wer_alone": sum(by_itself).rate,
        "wer_joined": sum(together).rate,
        "difference": [difference.value, difference.low, difference.high],
        "joints_lost_added": joints.tolist(),
        "time_ratio": _median(draws, "seconds") / _median(turns, "seconds"),
        "megabytes": {
            "alone": _median(turns, "megabytes"),
            "joined": _median(draws, "megabytes"),
            "minute": _median(shorts, "megabytes"),
        },
    }


def _median(decodings: list[dict], what: str) -> float:
    return statistics.median(decoding[what] for decoding in decodings)


def join_all(args: argparse.Namespace, groups, rate: int, files: list[Path], rng) -> float:
    """Write a file of each group of utterances; return the seconds of all."""
    breathless = (BREATH, BREATH + args.breathless)
    return sum(
        join(group, rate, tuple(args.pause), file, rng, breathless if file == files[0] else (0, 0))
        for group, file in zip(groups, files, strict=True)
    )


@command
def main(argv):
    """Measure, and print."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("model", metavar="DIR")
    args.add_argument("manifest", metavar="JSONL")
    args.add_argument("--files", type=int, default=1, help="to join them to (default 1)")
    args.add_argument("--pause", type=float, nargs=2, default=[0.2, 2.0], metavar=("FROM", "TO"))
    args.add_argument(
        "--breathless", type=float, default=0.0, help="seconds without any pause (default 0)"
    )
    args.add_argument(
        "--cut-at",
        default="",
        metavar="SECONDS",
        help=f"of a pause (default: {PAUSE:g})",
    )
    args.add_argument(
        "--context",
        default="",
        metavar="SECONDS",
        help="of silence searched with a piece (default: as the model knows)",
    )
    add_decode(args)
    args.add_argument(
        "--draws",
        type=int,
        default=1,
        help="of the pauses, whose errors are pooled (default 1)",
    )
    args.add_argument("--json", metavar="FILE", help="write the figures there")
    args = args.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(args, Path(folder))
    low, high = (f"{100 * x:+.2f}" for x in figures["difference"][1:])
    print(
        f"WER alone {percent(figures['wer_alone'])} %, joined {percent(figures['wer_joined'])} %: "
        f"{100 * figures['difference'][0]:+.2f} points [{low}, {high}]; "
        f"{figures['time_ratio']:.2f} times the time; peak memory in MB "
        + ", ".join(f"{name} {size:.0f}" for name, size in figures["megabytes"].items())
    )
    print(
        "where speech without a pause was cut: {} joints, {} words lost, {} too many".format(
            *figures["joints_lost_added"]
        )
    )
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
