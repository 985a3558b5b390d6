"""Time the reading of the same recordings in several formats: seconds of audio per second, and bytes.

    python -m scripts.bench.sound_files data/mandarin/train.jsonl.gz [--files 100] [--repeats 5]

Recordings of a manifest, evenly spaced, are written to a temporary folder in each format that
training reads. The formats take turns, each over all recordings; the figures are medians over the
repeats of the process's own CPU time, one thread (the files are in the page cache).
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

from asr.audio import load as audio
from asr.cli.command import command, count, parser
from asr.data import manifest
from asr.data.manifest import Utterance
from asr.errors import UserError
from scripts.bench import report

RATE = 16000
FORMATS = {  # format and subtype of libsndfile
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
}


def write(folder: Path, utterances: list[Utterance]) -> dict[str, list[Path]]:
    """Write the recordings in each format."""
    made: dict[str, list[Path]] = {kind: [] for kind in FORMATS}
    for n, u in enumerate(utterances):
        waveform = audio.load(u.path, RATE, u.start, u.duration, u.channel)
        for kind, (container, subtype) in FORMATS.items():
            path = folder / f"{n}.{kind}"
            soundfile.write(path, waveform, RATE, subtype, format=container)
            made[kind].append(path)
    return made


def read(paths: list[Path]) -> float:
    """Seconds of this process's CPU time to read files."""
    begun = time.process_time()
    for path in paths:
        audio.load(path, RATE)
    return time.process_time() - begun


@command
def main(argv):
    """Write the files, read them in turns, and print a table."""
    args = parser("sound_files.py", "Time the reading of recordings in several formats.", __doc__)
    args.add_argument("manifest", metavar="MANIFEST", help="of the recordings")
    args.add_argument("--files", type=count, default=100, help="default: 100")
    args.add_argument("--repeats", type=count, default=5, help="default: 5")
    args = args.parse_args(argv)
    known = list(manifest.read(args.manifest))
    if not known:
        raise UserError(f"{args.manifest}: has no recordings")
    places = np.unique(np.linspace(0, len(known) - 1, args.files).round().astype(int))
    utterances = [known[n] for n in places]
    with tempfile.TemporaryDirectory() as folder:
        made = write(Path(folder), utterances)
        taken: dict[str, list[float]] = {kind: [] for kind in FORMATS}
        for _ in range(args.repeats):
            for kind, paths in made.items():
                taken[kind].append(read(paths))
        sizes = {kind: sum(p.stat().st_size for p in paths) for kind, paths in made.items()}
    seconds = sum(u.duration for u in utterances)
    medians = {kind: statistics.median(samples) for kind, samples in taken.items()}
    print(report.heading(report.circumstances("cpu"), 1), end="\n\n")
    print(f"| {len(utterances)} files, {seconds:.0f} s | s/s | time / flac's | MB an hour |")
    print("|---|---|---|---|")
    for kind, median in medians.items():
        size = sizes[kind] / seconds * 3600 / 1e6
        print(f"| {kind} | {seconds / median:.0f} | {median / medians['flac']:.2f} | {size:.0f} |")


if __name__ == "__main__":
    main()
