"""Align a recording of any length with its text, which may lack some of what is spoken, and have what isn't.

T encoder frames, V vocabulary, U labels.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import torch

from asr.errors import UserError, shorten
from asr.failures import Failure
from asr.logging import logger, progress_bar
from asr.models.recognizer import Recognizer
from asr.ops import BLANK as BLANK_ID
from asr.ops import length_mask
from asr.search.alignment import align as align_batch
from asr.search.loose_alignment import LooseAlignment, align_loosely
from asr.transcript import Segment, Transcript, Word
from asr.transcription.pipeline import encoded
from asr.transcription.recordings import Recording
from asr.transcription.script import (
    BLANK,
    LINE,
    WORD,
    Penalties,
    Script,
    spelling_for,
    write_script,
)
from asr.transcription.times import refined
from asr.transcription.windows import Reader, ctc_log_probs

KINDS = 3  # of slots, whose rows of emissions come before those of labels
LEAST = math.log(1e-4)  # a log posterior below counts as this in a confidence


class Emissions(NamedTuple):
    """What each frame of a recording says of the labels of a text.

    rows  (KINDS + labels, T) float32 ≤ 0, log posteriors below that of the frame's best label: of
          the kinds of slots, then of the labels in `ids`
    best  (T,) float32, the log posterior of the frame's best label
    ids   the labels of the text, each once, sorted
    """

    rows: np.ndarray
    best: np.ndarray
    ids: np.ndarray

    def rows_of(self, labels: Sequence[int]) -> np.ndarray:
        """Return the row of each label."""
        return KINDS + np.searchsorted(self.ids, labels)

    @property
    def speech(self) -> np.ndarray:
        """Whether the best label of a frame isn't blank, (T,) bool."""
        return self.rows[BLANK] < 0


class Frames(NamedTuple):
    """Frames first ≤ t < end of a word; none if it isn't heard."""

    first: int
    end: int


def align(
    recognizer: Recognizer,
    read: Reader,
    recording: Recording,
    lines: Sequence[tuple[str, str]],
    normalize: str | None = None,
    penalties: Penalties = Penalties(),  # noqa: B008 - frozen
    precision: str = "fp32",
) -> Transcript:
    """Give the lines and words of a text their times in a recording, in seconds.

    read        gives parts of the recording's waveform
    lines       pairs of place and text; each becomes a segment
    normalize   a convention of `asr.text.normalize` by which the model spells; else what fits its
                tokens best. Segments and words are kept as written
    returns     confidences are geometric means of posteriors. A line that isn't heard has
                confidence 0 and no words; a word that isn't heard within a line has confidence 0
                and no length; one that can't be spelled has no confidence
    raises      UserError if CTC wasn't trained, no word can be spelled, or the recording is too
                short
    """
    check_times(recognizer)
    samples = round(recording.duration * recognizer.sample_rate)
    if recognizer.encoder_frames(samples) < 1:
        raise UserError(
            f"{recording.path or 'audio'}: too short: has {samples} samples of the model's "
            f"{recognizer.sample_rate} Hz, expected {recognizer.shortest_samples} or more"
        )
    tokenizer = recognizer.tokenizer
    spell = spelling_for(tokenizer, (text for _, text in lines), normalize)
    script = write_script(lines, tokenizer, spell, penalties)
    found = emissions(recognizer, read, samples, script.labels, penalties, precision)
    path = find_path(script, found)
    frame = recognizer.frame_seconds
    by_ctc = list(segments_of(script, found, path, 0.0, frame))
    segments = tuple(_refined(recognizer, read, by_ctc, recording.start))
    _warn_unheard(script, segments)
    text = " ".join(line.text for line in script.lines)
    start, duration = recording.start, recording.duration
    return Transcript(recording.id, text, segments, recording.path, start, duration)


def check_times(recognizer: Recognizer) -> None:
    """See that CTC was trained."""
    if not recognizer.has_times:
        raise UserError(
            "the model's CTC was not trained (model.ctc_weight is 0), and nothing else gives times; "
            "take another model"
        )


def emissions(
    recognizer: Recognizer,
    read: Reader,
    samples: int,
    labels: Sequence[int],
    penalties: Penalties,
    precision: str = "fp32",
) -> Emissions:
    """Encode a recording, and keep what an alignment with these labels needs; see `ctc_log_probs`."""
    ids = np.unique(np.asarray(labels, dtype=np.int64))
    T = recognizer.encoder_frames(samples)
    rows, best = np.empty((KINDS + len(ids), T), np.float32), np.empty(T, np.float32)
    with progress_bar(total=T, unit=" frames", desc="audio") as bar:
        for first, log_probs in ctc_log_probs(recognizer, read, samples, precision):
            p = log_probs.clamp(min=-1e4).numpy()  # (n, V)
            part = slice(first, first + len(p))
            blank, speech = p[:, BLANK_ID], p[:, BLANK_ID + 1 : -1].max(1)  # (n,) each
            best[part] = top = np.maximum(blank, speech)
            rows[BLANK, part] = blank - top
            for kind, cost in ((WORD, penalties.word_star), (LINE, penalties.line_star)):
                rows[kind, part] = np.maximum(blank, speech - cost) - top
            rows[KINDS:, part] = (p[:, ids] - top[:, None]).T
            bar.update(len(p))
    return Emissions(rows, best, ids)


def find_path(script: Script, found: Emissions) -> LooseAlignment:
    """Find the best path through a text.

    raises   UserError if there is none, for the recording is too short
    """
    path = align_loosely(
        found.rows, found.rows_of(script.labels), np.array(script.slots), script.skips
    )
    if path is None:
        raise UserError(
            f"{script.lines[0].where}: a text of {len(script.labels)} tokens can't be aligned with "
            f"{found.rows.shape[1]} frames of audio; is it the text of this recording?"
        )
    return path


def frames_of(script: Script, found: Emissions, path: LooseAlignment) -> list[list[Frames]]:
    """Find the frames of each line's words. Words that can't be spelled share the speech in their slot by length."""
    T, heard = found.rows.shape[1], ~path.skipped
    # before each slot, where the last label ended; after it, where the next one begins
    ended = np.maximum.accumulate(np.append(0, np.where(heard, path.ends, 0)))
    begins = np.minimum.accumulate(np.append(np.where(heard, path.starts, T), T)[::-1])[::-1]
    shares = dict[int, list[int]]()  # slot → lengths of its words
    for word in (word for line in script.lines for word in line.words if not word.is_spelled):
        shares.setdefault(word.first, []).append(len(word.text))
    divided = {
        slot: iter(_divided(found.speech, int(ended[slot]), int(begins[slot]), lengths))
        for slot, lengths in shares.items()
    }
    return [
        [
            Frames(int(path.starts[word.first]), int(path.ends[word.end - 1]))
            if word.is_spelled
            else next(divided[word.first])
            for word in line.words
        ]
        for line in script.lines
    ]


def _divided(speech: np.ndarray, first: int, end: int, lengths: Sequence[int]) -> list[Frames]:
    """Divide the speech between two frames among words."""
    found = np.flatnonzero(speech[first:end])
    first, end = (first + found[0], first + found[-1] + 1) if len(found) else (first, first)
    limits = first + np.round(np.cumsum([0, *lengths]) / sum(lengths) * (end - first))
    return [Frames(int(a), int(b)) for a, b in pairwise(limits)]


class _Confidences:
    """Geometric means of the posteriors that a path emits, over frames in which it or the model has a label."""

    def __init__(
        self, script: Script, found: Emissions, path: LooseAlignment, free: Iterable[Frames]
    ):
        emitted, counts = found.rows[BLANK] + found.best, found.speech.copy()  # (T,) each
        for row, first, end in zip(
            found.rows_of(script.labels), path.starts, path.ends, strict=True
        ):
            emitted[first:end] = found.rows[row, first:end] + found.best[first:end]
            counts[first:end] = True
        for first, end in free:  # of words that can't be spelled
            counts[first:end] = False
        emitted = np.where(counts, np.maximum(emitted, LEAST), 0.0)
        self.sums, self.counts = (np.append(0.0, np.cumsum(x)) for x in (emitted, counts))

    def mean(self, first: int, end: int, missing: int = 0) -> float:
        """Mean over frames, and labels that are missing, which count as one each; NaN where there is neither."""
        count = self.counts[end] - self.counts[first] + missing
        total = self.sums[end] - self.sums[first] + missing * LEAST
        return math.exp(total / count) if count else math.nan


def segments_of(
    script: Script, found: Emissions, path: LooseAlignment, start: float, frame: float
) -> Iterator[Segment]:
    """Make a segment of each line; start: seconds of the first frame; frame: seconds of each."""
    spans, at = frames_of(script, found, path), Frames(0, 0)
    free = [
        span
        for line, own in zip(script.lines, spans, strict=True)
        for word, span in zip(line.words, own, strict=True)
        if not word.is_spelled
    ]
    confidences = _Confidences(script, found, path, free)
    for line, own in zip(script.lines, spans, strict=True):
        heard = [span for span in own if span.first < span.end]
        # a line that isn't heard stands where the path leaves it out
        place = own[0] if own else Frames(at.end, at.end)
        at = Frames(heard[0].first, heard[-1].end) if heard else place
        missing = [w for w, s in zip(line.words, own, strict=True) if s.first == s.end]
        lost = sum(word.end - word.first for word in missing)
        words = tuple(
            Word(
                start + a * frame,
                start + b * frame,
                word.text,
                confidences.mean(a, b) if a < b else 0.0,
            )
            for word, (a, b) in zip(line.words, own, strict=True)
        )
        confidence = confidences.mean(*at, lost) if heard else 0.0
        times = start + at.first * frame, start + at.end * frame
        yield Segment(*times, line.text, confidence, words if heard else ())


def _refined(
    recognizer: Recognizer, read: Reader, segments: Sequence[Segment], start: float
) -> Iterator[Segment]:
    """Move words to where they begin and end, and all by `start` seconds."""
    words = iter(refined(recognizer, read, [word for part in segments for word in part.words]))
    for part in segments:
        own = tuple(
            replace(word, start=start + word.start, end=start + word.end)
            for word in islice(words, len(part.words))
        )
        heard = [word for word in own if word.start < word.end]
        times = (heard[0].start, heard[-1].end) if heard else (start + part.start, start + part.end)
        yield replace(part, start=times[0], end=times[1], words=own)


def _warn_unheard(script: Script, segments: Sequence[Segment]) -> None:
    unheard = [
        line.where for line, own in zip(script.lines, segments, strict=True) if not own.words
    ]
    if unheard:
        logger.warning(f"{len(unheard)} of {len(segments)} lines aren't heard: {shorten(unheard)}")


@dataclass(frozen=True)
class TextScore:
    """How well an utterance fits its text.

    log_confidence  mean log posterior of what the best path emits, over frames in which it or the
                    model has a label; −∞ if there is no path
    """

    id: str
    text: str
    log_confidence: float


@torch.no_grad()
def score_texts(
    recognizer: Recognizer,
    recordings: Sequence[Recording],
    texts: Sequence[str],
    normalize: str | None = None,
    batch_seconds: float | None = None,
    precision: str = "fp32",
) -> tuple[list[TextScore], list[Failure]]:
    """Align each recording with its own text, the whole of it, and score it; the worst come first.

    returns  the scores, and the recordings that can't be read
    raises   UserError if CTC wasn't trained
    """
    check_times(recognizer)
    tokenizer, scores, failures = recognizer.tokenizer, list[TextScore](), list[Failure]()
    spell = spelling_for(tokenizer, texts, normalize)
    text_of = dict(zip(recordings, texts, strict=True))
    labels = {
        recording: [] if tokenizer.unknown(spell(text)) else tokenizer.encode(spell(text))
        for recording, text in text_of.items()
    }
    if unknown := [recording.id for recording in recordings if not labels[recording]]:
        logger.warning(
            f"{len(unknown)} texts are empty, or have characters that the model can't spell: {shorten(unknown)}"
        )
    total = round(sum(recording.duration for recording in recordings))
    with progress_bar(total=total, unit="s", desc="audio") as bar:
        for found in encoded(recognizer, recordings, batch_seconds, precision):
            if isinstance(found, Failure):
                failures.append(found)
                continue
            batch, H, H_lens = found
            log_probs = recognizer.model.ctc_log_probs(H)  # (B, T, V)
            mean = _log_confidences(log_probs, H_lens, [labels[one] for one in batch])
            scores += [
                TextScore(one.id, text_of[one], score)
                for one, score in zip(batch, mean, strict=True)
            ]
            bar.update(round(sum(one.duration for one in batch), 1))
    return sorted(scores, key=lambda score: (score.log_confidence, score.id)), failures


def _log_confidences(
    log_probs: torch.Tensor, H_lens: torch.Tensor, labels: Sequence[Sequence[int]]
) -> list[float]:
    """Mean log posterior of each utterance's best path; log_probs (B, T, V), H_lens (B,)."""
    Y_lens = torch.tensor([len(row) for row in labels], device=log_probs.device)
    Y = torch.zeros(len(labels), int(Y_lens.max()), dtype=torch.long, device=log_probs.device)
    for own, row in zip(Y, labels, strict=True):
        own[: len(row)] = torch.tensor(row, dtype=torch.long)
    found = align_batch(log_probs, H_lens, Y, Y_lens)
    T = log_probs.size(1)
    # label y adds y where it starts, and −y where it ends
    edges = torch.zeros(len(labels), T + 1, dtype=torch.long, device=log_probs.device)
    edges.scatter_add_(1, found.starts, Y).scatter_add_(1, found.ends, -Y)
    path = edges.cumsum(1)[:, :T]  # (B, T), labels and blanks
    emitted = log_probs.gather(2, path.unsqueeze(2)).squeeze(2).clamp(min=LEAST)  # (B, T)
    counts = (path != BLANK_ID) | (log_probs[..., :-1].argmax(2) != BLANK_ID)
    counts &= ~length_mask(H_lens, T)
    means = emitted.double().masked_fill(~counts, 0).sum(1) / counts.sum(1).clamp(min=1)
    known = (Y_lens > 0) & found.score.isfinite()
    return means.masked_fill(~known, -torch.inf).tolist()
