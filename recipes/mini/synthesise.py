"""Synthesise the mini corpus: English speech by espeak-ng, in LibriSpeech's own layout.

    python recipes/mini/synthesise.py OUT [--hours 3.5] [--seed 1]

OUT/LibriSpeech/{train,dev,test}-mini/SPEAKER/CHAPTER/SPEAKER-CHAPTER-NNNN.flac (16 kHz, 16 bits),
SPEAKER-CHAPTER.trans.txt beside them, and OUT/LibriSpeech/SPEAKERS.TXT. OUT/VERSION comes last: it marks
the corpus as complete. `--hours` is about training; dev and test depend on the seed alone. No voice
of dev or test occurs in training, nor does any sentence.

Each recording depends on (seed, utterance id) alone, so that work which was interrupted continues and
any utterance can be made again: `recording(utterance, seed)`.
"""

import _ctypes
import argparse
import ctypes
import os
import random
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr
from grammar import sentences, spoken, transcript
from tqdm import tqdm

VERSION = "mini-1"
RATE = 16000  # Hz
SECONDS_EACH = 2.71  # mean length of an utterance, measured
CHAPTER = 25  # utterances, at most
COVERAGE = 10  # times that each word of test occurs in training, at least

# espeak-ng's voices: an accent (a file of its lang/gmw) and a variant (a file of its voices/!v). Left out are
# the variants that whisper, croak, clip, echo much, aim at robots or distort their formants.
ACCENTS = ["en", "en-US", "en-GB-scotland", "en-GB-x-rp", "en-029", "en-US-nyc", "en-GB-x-gbclan", "en-GB-x-gbcwmd"]
VARIANTS = {
    "train-mini": {
        "F": "f1 f3 f4 Alicia grandma shelby",
        "M": "m1 m3 m4 m7 m8 Denis Diogo Gene Gene2 Henrique Hugo Michael Mike Nguyen Reed adam benjamin david"
        " edward edward2 grandpa gustave iven3 iven4 john max michel miguel norbert pablo pedro quincy",
    },
    "dev-mini": {"F": "anika aunty steph steph2", "M": "Mario ed m5 rob"},
    "test-mini": {"F": "Andrea Annie belinda f2 f5 linda", "M": "Alex m2 m6 paul robert victor"},
}
SPEAKERS = {"train-mini": 64, "dev-mini": 8, "test-mini": 12}
UTTERANCES = {"dev-mini": 200, "test-mini": 444}

unload = getattr(_ctypes, "dlclose", None) or _ctypes.FreeLibrary  # the latter on Windows


@dataclass(frozen=True)
class Speaker:
    """A voice: `pitch` and `melody` (pitch range) on espeak's scale of 0 to 100, `pace` in words per minute."""

    id: int
    sex: str
    accent: str
    variant: str
    pitch: float
    melody: float
    pace: float


@dataclass(frozen=True)
class Utterance:
    """A sentence of the grammar in the mouth of a speaker."""

    id: str
    speaker: Speaker
    sentence: str

    @property
    def chapter(self):
        return self.id.rsplit("-", 1)[0]


def speakers(split, seed):
    """Return the speakers of a split: 3 of 8 women in training, else half; each (accent, variant) once."""
    first = 100 * (1 + list(SPEAKERS).index(split))
    women = 3 if split == "train-mini" else 4
    turns, cast = Counter(), []
    for i in range(SPEAKERS[split]):
        sex = "F" if i % 8 < women else "M"
        variants = VARIANTS[split][sex].split()
        turn, which = divmod(turns[sex], len(variants))
        turns[sex] += 1
        accent = ACCENTS[(which + 3 * turn) % len(ACCENTS)]
        rng = random.Random(f"{seed} {split} {i}")
        pitch, melody, pace = rng.uniform(35, 65), rng.uniform(35, 75), rng.uniform(125, 185)
        cast.append(Speaker(first + i, sex, accent, variants[which], pitch, melody, pace))
    return cast


def plan(hours=3.5, seed=1, utterances=UTTERANCES, coverage=COVERAGE):
    """Decide who says what.

    hours:       of training speech, about
    utterances:  {"dev-mini": count, "test-mini": count}
    coverage:    how often each word of test must occur in training
    returns      {split: [Utterance, ...]}
    raises       ValueError if training is too small for the coverage; names the rarest word
    """
    counts = {**utterances, "train-mini": round(hours * 3600 / SECONDS_EACH)}
    rng, taken, corpus = random.Random(f"{seed} sentences"), set(), {}
    for split in ("test-mini", "dev-mini", "train-mini"):  # training last: the others don't depend on its size
        cast = speakers(split, seed)
        corpus[split] = [
            Utterance("{0}-{0}{1:02}-{2:04}".format(speaker.id, *divmod(turn, CHAPTER)), speaker, sentence)
            for k, sentence in enumerate(sentences(rng, counts[split], taken))
            for turn, speaker in [(k // len(cast), cast[k % len(cast)])]
        ]
    trained, tested = (words(corpus[split]) for split in ("train-mini", "test-mini"))
    rarest = min(tested, key=lambda word: trained[word])
    if trained[rarest] < coverage:
        seen = f"test's word {rarest} occurs {trained[rarest]} times in training, not {coverage}"
        raise ValueError(f"{hours} hours are too few: {seen}; ask for more --hours")
    return corpus


def words(utterances):
    """Count the words of utterances → Counter."""
    return Counter(word for u in utterances for word in transcript(u.sentence).split())


def synthesise(out, hours=3.5, seed=1, utterances=UTTERANCES, coverage=COVERAGE):
    """Write the corpus to `out`, or what of it is still missing. Arguments as in `plan`.

    raises  ValueError if `out` holds another corpus, RuntimeError if espeak-ng is missing
    """
    out = Path(out)
    facts = {"seed": seed, "hours": hours, **utterances}
    stamp = f"{VERSION}\n" + "".join(f"{name} {value}\n" for name, value in facts.items())
    done, begun = out / "VERSION", out / "VERSION.part"
    for mark in (done, begun):
        if mark.exists() and mark.read_text() != stamp:
            found, asked = (" ".join(text.split()) for text in (mark.read_text(), stamp))
            raise ValueError(f"{out} holds {found}, not {asked}; choose another folder")
    if done.exists():
        return
    with espeak():  # or fail before anything is written
        pass
    corpus = plan(hours, seed, utterances, coverage)
    out.mkdir(parents=True, exist_ok=True)
    begun.write_text(stamp)
    with tqdm(total=sum(map(len, corpus.values())), unit="utt", desc=VERSION, disable=None) as progress:
        for split, utterances in corpus.items():
            for chapter in dict.fromkeys(u.chapter for u in utterances):
                part = [u for u in utterances if u.chapter == chapter]
                write_chapter(out / "LibriSpeech" / split, part, seed)
                progress.update(len(part))
    write_speakers(out / "LibriSpeech", corpus)
    os.replace(begun, done)


def write_chapter(folder, utterances, seed):
    """Write the recordings of one chapter and then its transcripts, unless these are there."""
    chapter = utterances[0].chapter
    folder = folder.joinpath(*chapter.split("-"))
    transcripts = folder / f"{chapter}.trans.txt"
    if transcripts.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for u in utterances:
        part = folder / f"{u.id}.flac.part"
        soundfile.write(part, recording(u, seed), RATE, format="FLAC", subtype="PCM_16")
        os.replace(part, folder / f"{u.id}.flac")
    write_text(transcripts, "".join(f"{u.id} {transcript(u.sentence)}\n" for u in utterances))


def write_speakers(root, corpus):
    """Write SPEAKERS.TXT in LibriSpeech's format, and statistics of each split to stderr."""
    lines = [";ID  |SEX| SUBSET           |MINUTES| NAME\n"]
    for split, utterances in corpus.items():
        seconds = Counter()
        for u in utterances:
            seconds[u.speaker] += soundfile.info(root.joinpath(split, *u.chapter.split("-"), f"{u.id}.flac")).duration
        for s, t in seconds.items():
            lines.append(f"{s.id:<5}| {s.sex} | {split:<17}| {t / 60:5.2f} | {s.accent}+{s.variant}\n")
        count = words(utterances)
        facts = f"{seconds.total() / 3600:5.2f} h  {len(utterances):5} utterances  {len(seconds):3} speakers"
        print(f"{split:10} {facts}  {count.total():6} words  {len(count):4} word types", file=sys.stderr)
    write_text(root / "SPEAKERS.TXT", "".join(lines))


def write_text(path, text):
    """Write a file under a temporary name, then rename it."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    os.replace(part, path)


def recording(utterance, seed):
    """Synthesise an utterance: the speaker's voice with a little jitter, silence around it, noise, level.

    returns  (N,) int16 at 16 kHz, the same samples for the same utterance id and seed
    """
    rng, who = np.random.default_rng(list(f"{seed} {utterance.id}".encode())), utterance.speaker
    pace = who.pace * rng.uniform(0.94, 1.06)
    pitch, melody = who.pitch + rng.uniform(-4, 4), who.melody + rng.uniform(-5, 5)
    x = pronounce(spoken(utterance.sentence), f"gmw/{who.accent}+{who.variant}", pace, pitch, melody)
    x = noisy(rng, surround(rng, x))
    return np.round(x / np.abs(x).max() * 32767 * 10 ** (rng.uniform(-20, -1) / 20)).astype(np.int16)


def surround(rng, x):
    """Cut the silence at both ends (below -40 dB of the peak) and put 0.1 to 0.3 s in its place."""
    loud = np.flatnonzero(np.abs(x) > 0.01 * np.abs(x).max())
    x = x[max(0, loud[0] - RATE // 50) : loud[-1] + RATE // 50]
    return np.pad(x, rng.integers(RATE // 10, 3 * RATE // 10, 2))


def noisy(rng, x):
    """Add noise at 15 to 35 dB below the speech to a third of the recordings, a faint floor to the others."""
    kind = rng.choice([white, pink, hum, babble]) if rng.random() < 1 / 3 else None
    decibels = rng.uniform(15, 35) if kind else rng.uniform(45, 60)
    noise = (kind or white)(rng, x)
    return x + noise * np.sqrt(np.mean(x**2) / np.mean(noise**2)) * 10 ** (-decibels / 20)


def white(rng, x):
    """Return noise of the same power at all frequencies, as long as x."""
    return rng.standard_normal(len(x))


def pink(rng, x):
    """Return noise that loses 3 dB an octave above 40 Hz."""
    f = np.fft.rfftfreq(len(x), 1 / RATE)
    return np.fft.irfft(np.fft.rfft(white(rng, x)) / np.sqrt(np.maximum(f, 40)), len(x))


def hum(rng, x):
    """Return the hum of a mains of 50 or 60 Hz with its harmonics."""
    t, mains = np.arange(len(x)) / RATE, rng.choice([50, 60])
    return sum(rng.random() / k * np.sin(2 * np.pi * (mains * k * t + rng.random())) for k in range(1, 9))


def babble(rng, x):
    """Return a crowd: the utterance itself backwards, eight times, shifted and slowed or hurried."""
    at = [np.arange(len(x)) * rng.uniform(0.8, 1.25) + rng.uniform(0, len(x)) for _ in range(8)]
    return sum(np.interp(t, np.arange(len(x)), x[::-1], period=len(x)) for t in at)


@contextmanager
def espeak():
    """Load espeak-ng → the library, ready to speak, and its sampling rate; unload it in the end.

    espeak keeps the phase of its flutter and more from one call to the next, even through espeak_Terminate.
    Only unloading makes it forget; loading takes half a millisecond. It must not be loaded twice at a time.

    raises  RuntimeError with the remedy
    """
    try:
        import espeakng_loader

        library = ctypes.CDLL(espeakng_loader.get_library_path())
        rate = library.espeak_Initialize(2, 0, espeakng_loader.get_data_path().encode(), 0)  # 2: retrieve, at once
    except (ImportError, OSError, RuntimeError) as error:
        raise RuntimeError(f"espeak-ng can't be loaded ({error}): pip install espeakng-loader") from error
    try:
        if rate <= 0:
            raise RuntimeError("espeak-ng doesn't find its data: pip install --force-reinstall espeakng-loader")
        library.espeak_ng_SetRandSeed(1)  # espeak_Initialize has set it by the clock: the breath of f2, Alicia, ...
        library.srand(1)  # C's own, for the breath of Reed
        yield library, rate
    finally:
        library.espeak_Terminate()
        unload(library._handle)


def pronounce(text, voice, pace, pitch, melody):
    """Let espeak-ng say a text: the same samples for the same arguments, whatever was said before.

    returns  (N,) float at 16 kHz
    """
    samples = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def collect(wave, count, events):
        if wave and count:
            samples.append(np.ctypeslib.as_array(wave, (count,)).copy())
        return 0

    with espeak() as (library, rate):
        library.espeak_SetSynthCallback(collect)
        if library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise RuntimeError(f"espeak-ng has no voice {voice}: pip install --upgrade espeakng-loader")
        for parameter, value in {1: pace, 2: 40, 3: pitch, 4: melody}.items():  # 2: volume, without clipping
            library.espeak_SetParameter(parameter, round(value), 0)
        data = text.encode()
        library.espeak_Synth(data, ctypes.c_size_t(len(data) + 1), 0, 1, 0, 1, None, None)
    return soxr.resample(np.concatenate(samples) / 32768, rate, RATE)


def main(arguments=None):
    """Run the command → its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="folder for the corpus")
    parser.add_argument("--hours", type=float, default=3.5, help="of training speech, about (default 3.5)")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    options = parser.parse_args(arguments)
    try:
        synthesise(options.out, options.hours, options.seed)
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
