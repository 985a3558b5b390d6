"""The examples that a training learns from and is judged by: read, checked, tokenised."""

from asr.data import table
from asr.data.augment import Augment
from asr.data.manifest import listed
from asr.data.ragged import Ragged
from asr.data.segmentation import Segmentation
from asr.data.sentences import Sentences, tokenise
from asr.data.table import Table
from asr.data.tokens import stored
from asr.data.validate import (
    Limits,
    apply_limits,
    check_alignable,
    check_audio,
    fewest_frames,
    find_empty,
    find_repeated,
)
from asr.errors import UserError, shorten
from asr.models.recognizer import Recognizer
from asr.say import say
from asr.text.tokenizer import Tokenizer, load
from asr.text.units import has_spaceless
from asr.training.settings import DataSettings, TextDataSettings
from asr.training.speech import Split
from asr.training.text import FORMULAS

COUNTED = (
    "has characters of a script without spaces between words: wer and ctc-wer count each of them, and each word of "
    "other scripts (the mixed error rate; of such characters alone, the character error rate)"
)


def read_texts(data: TextDataSettings, folder: str, tokens: str) -> tuple[Sentences, Sentences]:
    """Tokenise the texts of a language model: train, on disk, and dev.

    folder   of the tokenizer
    tokens   folder for the token ids of train
    """
    dev = tokenise(data.dev, load(folder))
    train = stored(data.train, folder, tokens, data.max_tokens)
    for sentences in (train, dev):
        say(f"{sentences.path}: {sentences.message}")
    say(f"in the figures {FORMULAS}")
    return train, dev


def read_data(data: DataSettings, recognizer: Recognizer, looked: bool = False) -> dict:
    """Read and check the manifests: split → (Split, Selection of the limits).

    looked   the sound files have been looked at, and aren't again
    """
    splits = {}
    for name, paths in (("train", data.train), ("dev", data.dev)):
        utterances, path = table.read(paths), ", ".join(listed(paths))
        check_texts(utterances, path)
        labels = encode(utterances, recognizer.tokenizer)
        limits = Limits(data.min_seconds, data.max_seconds, data.max_tokens)
        selection = apply_limits(utterances.ids, utterances.durations.tolist(), labels.lens.tolist(), limits)
        if selection.message:
            say(f"{path}: {selection.message}; all are listed in dropped.tsv")
            utterances, labels = utterances.select(selection.kept), labels.select(selection.kept)
        if not looked:
            check_audio(utterances, path, progress=True)
        check_alignable(
            *(utterances.ids, utterances.durations, labels, recognizer.encoder_frames, recognizer.sample_rate),
            data.speeds if name == "train" else [1.0],
        )
        if name == "dev" and has_spaceless(utterances.texts):
            say(f"{path}: {COUNTED}")
        changes = changes_of(data, utterances, recognizer) if name == "train" else ()
        splits[name] = (Split(utterances, labels, *changes), selection)
    return splits


def changes_of(
    data: DataSettings, utterances: Table, recognizer: Recognizer
) -> tuple[Augment | None, Segmentation | None]:
    """What training does to its waveforms and texts."""
    augment = Augment(data.augment) if data.augment else None
    if not data.bpe_dropout:
        return augment, None
    shape = recognizer.encoder_frames, recognizer.sample_rate
    frames = fewest_frames(utterances.durations, *shape, data.speeds)
    return augment, Segmentation(recognizer.tokenizer.dropout(data.bpe_dropout), frames)


def encode(utterances: Table, tokenizer: Tokenizer) -> Ragged:
    """Token ids of the texts."""
    pairs = zip(utterances.texts, utterances.ids, strict=True)
    return Ragged.of_ids((tokenizer.encode(text, name) for text, name in pairs), tokenizer.vocabulary)


def check_texts(utterances: Table, path: str) -> None:
    """Refuse manifests with empty texts or repeated ids, or none at all."""
    if not len(utterances):
        raise UserError(f"{path}: holds no utterance; asr-prepare makes manifests")
    empty = [utterances.ids[fault.place] for fault in find_empty(utterances.texts)]
    if empty:
        raise UserError(f"{path}: {len(empty)} utterances have an empty text ({shorten(empty)}); take them out")
    repeated = [utterances.ids[fault.place] for fault in find_repeated(utterances.ids)]
    if repeated:
        raise UserError(f"{path}: {len(repeated)} ids stand there twice ({shorten(repeated)}); give each its own")
