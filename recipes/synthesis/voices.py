"""The cast of a synthesized corpus: espeak-ng's variants, parted so that no voice of dev or test is in training."""

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
from synthesis.espeak import pronounce
from synthesis.sound import recorded

# Files of espeak-ng's voices/!v. Left out are the variants that whisper, croak, clip, echo much, aim at robots or
# distort their formants.
VARIANTS = {
    "train": {
        "F": "f1 f3 f4 Alicia grandma shelby",
        "M": "m1 m3 m4 m7 m8 Denis Diogo Gene Gene2 Henrique Hugo Michael Mike Nguyen Reed adam benjamin david"
        " edward edward2 grandpa gustave iven3 iven4 john max michel miguel norbert pablo pedro quincy",
    },
    "dev": {"F": "anika aunty steph steph2", "M": "Mario ed m5 rob"},
    "test": {"F": "Andrea Annie belinda f2 f5 linda", "M": "Alex m2 m6 paul robert victor"},
}


@dataclass(frozen=True)
class Speaker:
    """A voice: `pitch` and `melody` (pitch range) on espeak's scale of 0 to 100, `pace` in words per minute.

    accent: a file of espeak-ng's lang, as gmw/en-US
    """

    id: int
    sex: str
    accent: str
    variant: str
    pitch: float
    melody: float
    pace: float

    @property
    def voice(self):
        return f"{self.accent}+{self.variant}"


def cast(split, count, first, accents, paces, seed, without=()):
    """Return the speakers of a split: 3 of 8 women in training, else half; an (accent, variant) comes again last.

    split:   its part before a hyphen (train, dev, test) chooses the variants; the whole and the seed draw the rest
    first:   id of the first speaker
    paces:   (slowest, fastest), words per minute
    without: variants to leave out
    """
    part = split.split("-")[0]
    women = 3 if part == "train" else 4
    turns, people = Counter(), []
    for i in range(count):
        sex = "F" if i % 8 < women else "M"
        variants = [variant for variant in VARIANTS[part][sex].split() if variant not in without]
        turn, which = divmod(turns[sex], len(variants))
        turns[sex] += 1
        accent = accents[(which + 3 * turn) % len(accents)]
        rng = random.Random(f"{seed} {split} {i}")
        pitch, melody, pace = rng.uniform(35, 65), rng.uniform(35, 75), rng.uniform(*paces)
        people.append(Speaker(first + i, sex, accent, variants[which], pitch, melody, pace))
    return people


def recording(name, who, text, seed):
    """Synthesize an utterance: the speaker's voice with a little jitter, silence around it, noise, level.

    returns  (N,) int16 at 16 kHz, the same samples for the same name and seed
    """
    rng = np.random.default_rng(list(f"{seed} {name}".encode()))
    pace = who.pace * rng.uniform(0.94, 1.06)
    pitch, melody = who.pitch + rng.uniform(-4, 4), who.melody + rng.uniform(-5, 5)
    return recorded(rng, pronounce(text, who.voice, pace, pitch, melody))
