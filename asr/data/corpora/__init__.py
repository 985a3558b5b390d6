"""The corpora that asr-prepare knows, each in its own layout; a new one is a file here and a line below."""

from asr.data.corpora import aishell, an4, common_voice, folder, kaldi, librispeech, tsv, yesno
from asr.data.corpora.corpus import Corpus, Item

READERS = {
    "librispeech": librispeech.read,
    "aishell": aishell.read,
    "an4": an4.read,
    "yesno": yesno.read,
    "common_voice": common_voice.read,
    "kaldi": kaldi.read,
    "tsv": tsv.read,
    "folder": folder.read,
}

__all__ = ["READERS", "Corpus", "Item"]
