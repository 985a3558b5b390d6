"""Count the words that a model writes down where nobody speaks.

    python -m scripts.bench.nonspeech exp/mini/model --minutes 10 --modes joint attention ctc-greedy ctc-beam

Three recordings: digital zeros, white noise, and synthesized music. The music changes its players every
half minute: a band (drums, bass, chords, a flute), plucked strings, a choir, an organ. Its keys, chords and
melodies are drawn from the seed; no recording of music is needed, and none decides the guards' thresholds.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

from asr.cli.command import command
from asr.cli.decode import main as decode

RATE = 16_000
BEAT = 0.5  # seconds
SECTION = 64  # beats that the same players play
CHORDS = ((0, 4, 7), (5, 9, 12), (7, 11, 14), (9, 12, 16), (2, 5, 9))  # semitones above the key
SCALE = (0, 2, 4, 7, 9, 12, 14, 16)  # of melodies
VOWELS = ((700, 1100), (400, 2000), (450, 800))  # formants of a choir, Hz

Draw = np.random.Generator
Note = Callable[[Draw, float, float], np.ndarray]  # (rng, Hz, seconds) → samples


def hertz(semitones: float) -> float:
    """The frequency of a note so many semitones above the A of 110 Hz."""
    return 110.0 * 2 ** (semitones / 12)


def partials(f: float, seconds: float, levels: np.ndarray, vibrato: float = 0.0) -> np.ndarray:
    """Add harmonics of f Hz, at `levels`, as far as the rate has them; vibrato: share of f, 5.5 times a second."""
    t = np.arange(round(seconds * RATE)) / RATE
    phase = 2 * np.pi * f * t - vibrato * f / 5.5 * np.cos(2 * np.pi * 5.5 * t)
    audible = [(k, a) for k, a in enumerate(levels, 1) if k * f < 0.45 * RATE]
    return sum((a * np.sin(k * phase) for k, a in audible), np.zeros_like(t))


def swelled(x: np.ndarray, attack: float, release: float) -> np.ndarray:
    """Fade samples in and out, in seconds."""
    t = np.arange(len(x)) / RATE
    return x * np.clip(t / attack, 0, 1) * np.clip((len(x) / RATE - t) / release, 0, 1)


def plucked(rng: Draw, f: float, seconds: float) -> np.ndarray:
    """A string that decays; higher partials die sooner."""
    t = np.arange(round(2 * seconds * RATE)) / RATE
    ks = np.arange(1, 1 + int(min(12, 0.45 * RATE / f)))[:, None]
    rings = np.sin(2 * np.pi * ks * f * t) * np.exp(-t * (1.5 + 0.8 * ks)) / ks
    return swelled(rings.sum(0) * rng.uniform(0.6, 1.0), 0.002, 0.05)


def flute(rng: Draw, f: float, seconds: float) -> np.ndarray:
    """A breathy tone with vibrato."""
    tone = partials(2 * f, seconds, np.array([1, 0.3, 0.1]), 0.008)
    return swelled(tone + 0.02 * rng.standard_normal(len(tone)), 0.05, 0.08)


def organ(_: Draw, f: float, seconds: float) -> np.ndarray:
    """Steady partials."""
    return swelled(partials(f, seconds, np.array([1, 0.8, 0.1, 0.5, 0, 0.3, 0, 0.3])), 0.03, 0.05)


def choir(rng: Draw, f: float, seconds: float) -> np.ndarray:
    """Four singers, a bit apart, on one vowel."""
    formants = VOWELS[rng.integers(len(VOWELS))]
    ks = np.arange(1, 40)
    levels = sum(np.exp(-(((ks * f - formant) / 150) ** 2)) for formant in formants) + 0.02
    detuned = f * (1 + 0.004 * rng.standard_normal(4))
    return swelled(sum(partials(g, seconds, levels / ks**0.5, 0.012) for g in detuned), 0.15, 0.2)


def drum(rng: Draw, low: bool) -> np.ndarray:
    """A bass drum, or a snare."""
    t = np.arange(round(0.2 * RATE)) / RATE
    beaten = np.sin(2 * np.pi * (50 * t + 3 * (1 - np.exp(-30 * t))))
    sound = beaten if low else rng.standard_normal(len(t)) * 0.5
    return sound * np.exp(-t * (15 if low else 25))


PLAYERS: dict[str, tuple[Note, Note]] = {  # of chords, of melodies
    "band": (organ, flute),
    "strings": (plucked, plucked),
    "choir": (choir, choir),
    "organ": (organ, organ),
}


def section(rng: Draw, players: str) -> np.ndarray:
    """SECTION beats of some players, (samples,), at most 0.3 loud."""
    made = np.zeros(round((SECTION + 4) * BEAT * RATE))

    def play(sound: np.ndarray, beat: float, loud: float) -> None:
        at = round(beat * BEAT * RATE)
        sound = sound[: len(made) - at]
        made[at : at + len(sound)] += loud * sound

    key, (chord_of, tune_of) = rng.integers(0, 12), PLAYERS[players]
    for bar in range(0, SECTION, 4):
        chord = CHORDS[rng.integers(len(CHORDS))]
        for tone in chord:
            play(chord_of(rng, hertz(key + tone), 4 * BEAT), bar, 0.5)
        play(plucked(rng, hertz(key + chord[0] - 12), 2 * BEAT), bar, 1.0)
        for beat in range(4):
            if rng.random() < 0.8:
                tone = SCALE[rng.integers(len(SCALE))] + 12
                play(tune_of(rng, hertz(key + tone), BEAT), bar + beat, 0.8)
            if players == "band":
                play(drum(rng, low=beat % 2 == 0), bar + beat, 2.0)
    return 0.3 * made / np.abs(made).max()


def music(rng: Draw, seconds: float) -> np.ndarray:
    """Sections of changing players, (samples,)."""
    players, sections = list(PLAYERS), []
    while sum(map(len, sections)) < seconds * RATE:
        sections.append(section(rng, players[len(sections) % len(players)]))
    return np.concatenate(sections)[: round(seconds * RATE)]


SOUNDS: dict[str, Callable[[Draw, float], np.ndarray]] = {
    "zeros": lambda _, seconds: np.zeros(round(seconds * RATE)),
    "noise": lambda rng, seconds: 0.05 * rng.standard_normal(round(seconds * RATE)),
    "music": music,
}


def words_in(model: str, mode: str, files: list[Path], out: Path) -> dict[str, str]:
    """Transcribe files: name → text."""
    wanted = ["--json", str(out), "--out", f"{out}.txt"]  # else texts are among the figures
    if decode(["--model", model, "--mode", mode, *wanted, *map(str, files)]):
        raise SystemExit("asr-decode failed")
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return {Path(line["id"]).stem: line["text"] for line in lines}


@command
def main(argv):
    """Synthesize, transcribe, count."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("model", metavar="DIR")
    args.add_argument("--minutes", type=float, default=10.0, help="of each sound (default 10)")
    args.add_argument("--modes", nargs="+", default=["joint"])
    args.add_argument("--seed", type=int, default=1, help="of noise and music (default 1)")
    args.add_argument("--keep", metavar="DIR", help="write the sounds there, to hear them")
    args = args.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{name}.flac" for name in SOUNDS]
        for file, sound in zip(files, SOUNDS.values(), strict=True):
            soundfile.write(file, sound(np.random.default_rng(args.seed), 60 * args.minutes), RATE)
        for mode in args.modes:
            found = words_in(args.model, mode, files, Path(temporary) / f"{mode}.json")
            told = ", ".join(
                f"{name} {(n := len(text.split()))} words, {60 * n / args.minutes:.0f} an hour"
                for name, text in found.items()
            )
            print(f"{mode}: {told}", flush=True)


if __name__ == "__main__":
    main()
