"""The utterances that a recognizer learns from and is judged by: read, checked, tokenized."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from asr.data import columns as table
from asr.data.augmentation import Augment
from asr.data.bucketing import Shards, plan
from asr.data.columns import Ragged, Table
from asr.data.concatenation import Concatenation, JoinedUtterances, least_pause
from asr.data.dataset import Segmentation, SpeechDataset, draw_speeds, utterance_seeds
from asr.data.loading import load
from asr.data.manifest import listed
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
from asr.logging import logger
from asr.models.boundaries import Boundaries
from asr.models.recognizer import Recognizer
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer
from asr.text.units import has_spaceless
from asr.training.settings import DataSettings
from asr.transcription.encoding import encode as encode_waveforms
from asr.transcription.segmentation import edges
from asr.transcription.times import Encoded, learn_boundaries

CMVN_UTTERANCES = (
    20_000  # the statistics are taken over all training utterances, or this number drawn at random
)
EDGE_UTTERANCES = 200  # whose silence is measured
BOUNDARY_BATCH = 8  # utterances
BOUNDARY_UTTERANCES = 200  # of which words' boundaries are learned; more make them no better
CMVN_BATCH = 100.0  # seconds of audio, where the training's batches aren't settled yet
COUNTED = (
    "has characters of a script without spaces between words: wer and ctc-wer count each of them, and each word of "
    "other scripts (the mixed error rate; of such characters alone, the character error rate)"
)


@dataclass(frozen=True)
class Split:
    """Utterances, the token ids of their texts, and what training does to their waveforms and texts."""

    utterances: Table
    labels: Ragged
    augment: Augment | None = None
    segmentation: Segmentation | None = None
    concatenation: Concatenation | None = None

    @cached_property
    def shards(self) -> Shards | None:
        """In which shards the recordings lie; None where they are files of their own."""
        return Shards.of(self.utterances.paths)

    @property
    def fullest_epoch(self) -> int:
        """The first epoch in which utterances are joined, if ever; else the first."""
        return self.concatenation.settings.from_epoch if self.concatenation else 0

    def durations(self, seed: int, epoch: int, speeds: Sequence[float]) -> np.ndarray:
        """Seconds of the utterances, (N,), as speed perturbation makes them in an epoch."""
        return self.utterances.durations / draw_speeds(
            utterance_seeds(seed, epoch, self.utterances.ids), speeds
        )

    def joined(self, seed: int, epoch: int, speeds: Sequence[float]) -> JoinedUtterances | None:
        """The examples of an epoch; None where each utterance is one."""
        if self.concatenation is None or epoch < self.concatenation.settings.from_epoch:
            return None
        seeds = utterance_seeds(seed, epoch, self.utterances.ids)
        durations = self.durations(seed, epoch, speeds)
        return self.concatenation.draw(durations, self.labels.lens, seeds)


def read_splits(data: DataSettings, recognizer: Recognizer, looked: bool = False) -> dict:
    """Read and check the manifests: split → (Split, Selection of the limits).

    looked   the sound files have been looked at, and aren't again
    """
    splits = {}
    for name, paths in (("train", data.train), ("dev", data.dev)):
        utterances, path = table.read(paths), ", ".join(listed(paths))
        check_texts(utterances, path)
        labels = encode(utterances, recognizer.tokenizer)
        limits = Limits(data.min_seconds, data.max_seconds, data.max_tokens)
        selection = apply_limits(
            utterances.ids, utterances.durations.tolist(), labels.lens.tolist(), limits
        )
        if selection.message:
            logger.warning(f"{path}: {selection.message}; all are listed in dropped.tsv")
            utterances, labels = utterances.select(selection.kept), labels.select(selection.kept)
        if name == "train" and data.concatenate and (shards := Shards.of(utterances.paths)):
            # neighbors, which are joined, lie in one archive then
            order = np.argsort(shards.numbers, kind="stable")
            utterances, labels = utterances.select(order), labels.select(order)
        if not looked:
            check_audio(utterances, path, progress=True)
        speeds, shape = (
            data.speeds if name == "train" else [1.0],
            (recognizer.encoder_frames, recognizer.sample_rate),
        )
        check_alignable(utterances.ids, utterances.durations, labels, *shape, speeds)
        if name == "dev" and has_spaceless(utterances.texts):
            logger.info(f"{path}: {COUNTED}")
        changes = changes_of(data, utterances, recognizer) if name == "train" else ()
        splits[name] = (Split(utterances, labels, *changes), selection)
    return splits


def changes_of(
    data: DataSettings, utterances: Table, recognizer: Recognizer
) -> tuple[Augment | None, Segmentation | None, Concatenation | None]:
    """What training does to its waveforms and texts."""
    tokenizer, segmentation, concatenation = recognizer.tokenizer, None, None
    augment = Augment(data.augment) if data.augment else None
    if data.bpe_dropout:
        shape = recognizer.encoder_frames, recognizer.sample_rate
        frames = fewest_frames(utterances.durations, *shape, data.speeds)
        segmentation = Segmentation(tokenizers.dropout(tokenizer, data.bpe_dropout), frames)
    if data.concatenate:
        hop = round(recognizer.frame_seconds * recognizer.sample_rate)
        pause = least_pause(recognizer.shortest_samples, hop, recognizer.sample_rate)
        concatenation = Concatenation(data.concatenate, tokenizer, data.max_tokens, pause)
    return augment, segmentation, concatenation


def encode(utterances: Table, tokenizer: Tokenizer) -> Ragged:
    """Token ids of the texts."""
    pairs = zip(utterances.texts, utterances.ids, strict=True)
    return Ragged.of_ids(
        (tokenizer.encode(text, name) for text, name in pairs), tokenizer.vocabulary
    )


def check_texts(utterances: Table, path: str) -> None:
    """Refuse manifests with empty texts or repeated ids, or none at all."""
    if not len(utterances):
        raise UserError(f"{path}: has no utterances; asr-prepare makes manifests")
    empty = [utterances.ids[fault.place] for fault in find_empty(utterances.texts)]
    if empty:
        raise UserError(
            f"{path}: {len(empty)} utterances have an empty text ({shorten(empty)}); take them out"
        )
    repeated = [utterances.ids[fault.place] for fault in find_repeated(utterances.ids)]
    if repeated:
        raise UserError(
            f"{path}: {len(repeated)} ids are repeated ({shorten(repeated)}); give each its own"
        )


def fit_cmvn(recognizer: Recognizer, split: Split, data: DataSettings, seed: int) -> None:
    """Take the CMVN statistics over the training set, not augmented."""
    if (cmvn := recognizer.frontend.cmvn) is None:
        return
    dataset = SpeechDataset(split.utterances, split.labels, recognizer.sample_rate)
    seconds = CMVN_BATCH if data.batch_seconds == "auto" else data.batch_seconds
    batches = list(chain(*plan(split.utterances.durations, seconds, seed, 0, shards=split.shards)))
    chosen, utterances = [], 0
    while batches and utterances < CMVN_UTTERANCES:
        chosen.append(batches.pop())
        utterances += len(chosen[-1])
    fbank = recognizer.frontend.extractor.eval()
    stream = load(dataset, chosen, data.workers, size=4 * seconds * recognizer.sample_rate)
    cmvn.fit(fbank(batch.waveforms, batch.wave_lens) for batch in stream)


def edge_seconds(utterances: Table) -> float:
    """Measure the silence before and after the speech of some utterances, the median in seconds.

    Those that can't be read are left out; training names the first that it meets.
    """
    drawn = np.linspace(0, len(utterances) - 1, min(len(utterances), EDGE_UTTERANCES)).astype(int)
    seconds: list[float] = []
    for u in (utterances[n] for n in drawn.tolist()):
        with suppress(UserError):
            seconds += edges(u.path, u.rate, u.start, u.duration, u.channel) or ()
    return round(float(np.median(seconds)), 2) if seconds else 0.0


def fit_boundaries(recognizer: Recognizer, split: Split) -> Boundaries | None:
    """Learn the boundaries of words from some training utterances, not augmented; None if there are too few."""
    dataset = SpeechDataset(split.utterances, split.labels, recognizer.sample_rate)
    count = len(split.utterances)
    drawn = np.linspace(0, count - 1, min(count, BOUNDARY_UTTERANCES)).astype(int)
    drawn = drawn[np.argsort(split.utterances.durations[drawn], kind="stable")]

    def batches() -> Iterator[tuple[Encoded, list[list[int]]]]:
        for few in np.array_split(drawn, -(-len(drawn) // BOUNDARY_BATCH)):
            batch = dataset[few.tolist()]
            waveforms = zip(batch.waveforms, batch.wave_lens, strict=True)
            texts = zip(batch.Y, batch.Y_lens, strict=True)
            yield (
                encode_waveforms(recognizer, [row[:length].numpy() for row, length in waveforms]),
                [row[:length].tolist() for row, length in texts],
            )

    return learn_boundaries(recognizer, batches())
