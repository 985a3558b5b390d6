"""Sound files without texts, for augmentation: noises and impulse responses of rooms."""

from pathlib import Path

from asr.audio import load as audio
from asr.data.corpora.corpus import Corpus, Item, wrong_layout

LAYOUT = "a folder with sound files, at any depth"
SPLIT = "recordings"


def read(source: Path) -> Corpus:
    """List the sound files of a folder as one split, `recordings`; ids are their paths in it.

    raises   UserError if there are none
    """
    paths = audio.find(source)
    if not paths:
        raise wrong_layout(source, LAYOUT)
    items = [Item(path.relative_to(source).as_posix(), path, "", None, str(path)) for path in paths]
    return Corpus({SPLIT: items}, transcribed=False)
