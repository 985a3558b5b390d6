"""Kaldi's waves_yesno: files such as 0_1_0_0_1_0_1_1.wav whose names are their words, 1 = YES and 0 = NO.

One man speaks all 60. As in lhotse and icefall, every other file in sorted order is for training,
and the rest for testing. A dev set of other speakers is impossible, so it is every sixth file of
the training half.
"""

import re
from pathlib import Path

from asr.data.corpora.corpus import Corpus, Item, wrong_layout

LAYOUT = "yesno's layout: SOURCE or SOURCE/waves_yesno with files such as 0_1_0_0_1_0_1_1.wav"
NAME = re.compile(r"[01](_[01])*")
WORDS = {"0": "NO", "1": "YES"}
DEV = 5  # utterances of the 30 for training


def read(source: Path) -> Corpus:
    """Read the two halves.

    raises   UserError if there are none
    """
    for folder in (source, source / "waves_yesno"):
        paths = sorted(path for path in folder.glob("*.wav") if NAME.fullmatch(path.stem))
        if paths:
            return Corpus(
                {"train": list(map(item, paths[::2])), "test": list(map(item, paths[1::2]))},
                dev=DEV,
            )
    raise wrong_layout(source, LAYOUT)


def item(path: Path) -> Item:
    """Read the words from a file's name."""
    text = " ".join(WORDS[digit] for digit in path.stem.split("_"))
    return Item(path.stem, path, text, "yesno", str(path))
