"""Measure what one data worker reads and augments: seconds of audio per second, each effect alone and all together.

    python -m scripts.bench.augment

It writes sound files of pink noise into a temporary folder: utterances and noises in FLAC, impulse
responses in WAV. The ways take turns, each over all utterances; the figures are medians over the
repeats, of the process's own CPU time, which others on the machine disturb less than the clock (the
files are in the page cache, there is nothing to wait for).
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile
import torch

from asr.cli.command import command
from asr.data import manifest
from asr.data.augmentation import Augment, AugmentSettings
from asr.data.dataset import SpeechDataset
from asr.data.prepare import prepare
from scripts.bench import report

NOISES, NOISE_SECONDS, RESPONSES, RESPONSE_SECONDS = 8, 60.0, 8, 0.5
EFFECTS = ("speed", "reverberation", "noise", "volume")
WAYS = {"none": (), **{name: (name,) for name in EFFECTS}, "all": EFFECTS}


def pink(samples: int, rng: np.random.Generator) -> np.ndarray:
    """Noise whose power falls with frequency, as that of speech does, so that FLAC has to work as on speech."""
    spectrum = np.fft.rfft(rng.standard_normal(samples)) / np.sqrt(np.arange(1, samples // 2 + 2))
    waveform = np.fft.irfft(spectrum, samples)
    return 0.1 * waveform / waveform.std()


def response(samples: int, rng: np.random.Generator) -> np.ndarray:
    """A room by Polack's model: noise that decays exponentially, by 60 dB to its end."""
    return 0.1 * rng.standard_normal(samples) * 10 ** (-3 * np.arange(samples) / samples)


def write(folder: Path, count: int, suffix: str, waveform, rate: int) -> Path:
    """Write sound files and return their manifest."""
    folder.mkdir()
    for n in range(count):
        soundfile.write(folder / f"{n}{suffix}", waveform().clip(-1, 1), rate)
    return prepare("folder", folder, folder / "out").manifests["recordings"]


def datasets(folder: Path, args: argparse.Namespace) -> dict[str, SpeechDataset]:
    """Make the sound files, and the ways of reading them."""
    rng, rate = np.random.default_rng(1), args.rate
    speech = write(
        folder / "speech",
        args.utterances,
        ".flac",
        lambda: pink(int(args.seconds * rate), rng),
        rate,
    )
    noises = write(
        folder / "noises", NOISES, ".flac", lambda: pink(int(NOISE_SECONDS * rate), rng), rate
    )
    rooms = write(
        folder / "rooms",
        RESPONSES,
        ".wav",
        lambda: response(int(RESPONSE_SECONDS * rate), rng),
        rate,
    )
    settings = {
        "reverberation": {"manifest": str(rooms), "probability": 1.0},
        "noise": {"manifest": str(noises), "probability": 1.0},
        "volume": {},
    }
    utterances, made = list(manifest.read(speech)), {}
    for way, effects in WAYS.items():
        augment = Augment(
            AugmentSettings.model_validate({k: v for k, v in settings.items() if k in effects})
        )
        speeds = [0.9, 1.1] if "speed" in effects else [1.0]
        made[way] = SpeechDataset(
            utterances, [[1]] * len(utterances), rate, speeds=speeds, augment=augment
        )
    return made


def measure(args: argparse.Namespace) -> dict[str, float]:
    """Seconds of audio read per second, by way."""
    taken = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        made = datasets(Path(folder), args)
        for repeat in range(args.repeats + 1):
            for way, dataset in made.items():
                begun = time.process_time()
                for n in range(args.utterances):
                    dataset[[n]]
                if repeat:  # the first warms up
                    taken[way].append(time.process_time() - begun)
    return {
        way: args.utterances * args.seconds / statistics.median(times)
        for way, times in taken.items()
    }


def arguments() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--utterances", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=10.0, help="of an utterance, default 10")
    parser.add_argument("--rate", type=int, default=16000, help="Hz, default 16000")
    parser.add_argument("--repeats", type=int, default=5, help="default 5")
    return parser


@command
def main(argv: list[str]) -> None:
    """Measure and tell."""
    args = arguments().parse_args(argv)
    torch.set_num_threads(1)
    found = measure(args)
    print(report.heading(report.circumstances("cpu"), 1))
    print(f"{args.utterances} utterances of {args.seconds:g} s, {args.rate} Hz, one process\n")
    rows = [
        (way, f"{rate:.0f}", f"{1000 * args.seconds / rate:.1f}") for way, rate in found.items()
    ]
    print(report.table(("augmentation", "s of audio per s", "ms an utterance"), rows))


if __name__ == "__main__":
    main()
