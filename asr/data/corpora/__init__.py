"""The corpora that asr-prepare reads, each in its own layout. A new one is one file here and one line in CORPORA."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from asr.data.corpora.corpus import Corpus, Item

CORPORA = {  # name of the module here: what SOURCE is, for `asr-prepare --help`
    "librispeech": "SOURCE or SOURCE/LibriSpeech holds train-clean-100/, dev-clean/, ...; each is a split of that name",
    "aishell": "SOURCE or SOURCE/data_aishell holds wav/ (unpacked) and transcript/",
    "an4": "SOURCE or SOURCE/an4 holds etc/ and wav/; dev: about 100 utterances, split off by speaker",
    "yesno": "SOURCE or SOURCE/waves_yesno holds 0_1_...wav; every other file trains, every sixth of those is dev",
    "common_voice": "SOURCE, a release's folder for a language, holds clips/ and train.tsv, dev.tsv, test.tsv",
    "kaldi": "SOURCE holds wav.scp, text and optionally utt2spk, or one such folder per split",
    "tsv": "your own corpus: a .tsv file, or a folder with train.tsv, test.tsv, ... of `id path text [speaker]`, "
    "tab-separated, with or without a header; paths are relative to the .tsv; a single table for "
    "--dev or --test can have any name",
    "folder": "sound files at any depth, without texts, for augmentation (data.augment): noises, impulse "
    "responses; they become OUT/recordings.jsonl.gz",
}

__all__ = ["CORPORA", "Corpus", "Item", "reader"]


def reader(name: str) -> Callable[[Path], Corpus]:
    """Return the function that reads a corpus from its folder."""
    return import_module(f"asr.data.corpora.{name}").read
