"""Recordings in, transcripts out: length-sorted batches, read ahead while the model works."""

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch

from asr.audio import load as sound_files
from asr.device import give_back_memory
from asr.errors import UserError
from asr.failures import Failure
from asr.memory import is_oom
from asr.models.recognizer import Recognizer
from asr.search.scorer import Hypothesis
from asr.text.tokenizer import Tokenizer
from asr.transcript import Alternative, Segment, Transcript, Word
from asr.transcription.encoding import encode
from asr.transcription.long import Cutting, Results, in_pieces
from asr.transcription.options import BATCH_SECONDS, WINDOW_SECONDS, SearchOptions
from asr.transcription.recordings import Recording, cut, in_order
from asr.transcription.searcher import Searcher
from asr.transcription.times import Encoded

Found = Sequence[tuple[Recording, list[Hypothesis]]]  # n-best lists, best first
Batch = tuple[list[Recording], torch.Tensor, torch.Tensor]  # with H (B, T', D), H_lens (B,)
READERS = {"cpu": 1, "cuda": 8}  # threads; one reads some 4,000 s of audio per second
AHEAD = {"cpu": 1, "cuda": 2}  # batches that are read meanwhile
TOO_LONG = "out of memory at {:.0f} s of audio; cut it at pauses, or use a narrower beam"


@dataclass
class Clock:
    """Seconds of audio that are done, and the seconds that they took."""

    audio: float = 0.0
    wall: float = 0.0

    @property
    def rtf(self) -> float:
        """Real-time factor: wall seconds per second of audio."""
        return self.wall / max(self.audio, 1e-9)


def transcribe(
    recognizer: Recognizer,
    recordings: Sequence[Recording],
    options: SearchOptions = SearchOptions(),  # noqa: B008 - frozen
    batch_seconds: float | None = None,
    precision: str = "fp32",
    clock: Clock | None = None,
    times: bool = False,
) -> Iterator[Transcript]:
    """Yield transcripts in the order of the recordings, each as soon as all before it are done.

    batch_seconds  of padded audio in a batch; in fp32 it changes the speed, not the texts. None: 120
                   on a CPU, 2,000 on a GPU
    precision      "fp32" or "bf16"
    clock          is advanced, if given
    times          give segments and words their times, by CTC; recordings that are far longer than
                   those of the training are cut at pauses, and always have them
    raises         UserError if a recording can't be read, or doesn't fit in memory
    """
    found = finished(recognizer, recordings, options, batch_seconds, precision, clock, times)
    for _, result in in_order(recordings, found):
        if isinstance(result, Failure):
            raise UserError(result.reason)
        yield result


def transcribe_waveform(
    recognizer: Recognizer, waveform: np.ndarray, options: SearchOptions
) -> Transcript:
    """Transcribe one waveform, (samples,) float32 at the model's rate; its transcript has no id and no path.

    raises   UserError if it is longer than the encoder can take
    """
    if (most := recognizer.most_samples) and len(waveform) > most:
        raise UserError(
            f"audio: got {len(waveform) / recognizer.sample_rate:.1f} s of samples, expected "
            f"{most / recognizer.sample_rate:.1f} s or less by this encoder; give a sound file, which is cut at pauses"
        )
    recording = Recording("", "", 0.0, len(waveform) / recognizer.sample_rate)
    searcher = Searcher(recognizer, options)
    encoded = encode(recognizer, [waveform], chunk=searcher.chunk)
    ((_, nbest),) = searcher.stream([([recording], encoded.H, encoded.H_lens)])
    [words] = searcher.word_times(encoded, nbest[:1]) if recognizer.has_times else [[]]
    return transcript_of(recording, nbest, recognizer, words)


def waveform_of(
    audio: np.ndarray | torch.Tensor, rate: int | None, recognizer: Recognizer
) -> np.ndarray:
    """Return samples (n,) as (samples,) float32 at the model's rate, which they have unless another is given.

    raises   UserError if they aren't floating-point numbers, or too few, or the rate is none
    """
    rate = recognizer.sample_rate if rate is None else rate
    sound_files.check_rate(rate, "sample_rate")
    samples = np.asarray(audio.detach().cpu() if isinstance(audio, torch.Tensor) else audio)
    if samples.ndim != 1 or not np.issubdtype(samples.dtype, np.floating):
        got = f"{samples.dtype} of shape {samples.shape}"
        raise UserError(
            f"audio: got {got}, expected floating-point samples (samples,) from -1 to 1"
        )
    with np.errstate(over="ignore"):
        samples = samples.astype(np.float32)
    if not np.isfinite(samples).all():
        raise UserError("audio: got NaN or infinite samples, expected numbers from -1 to 1")
    waveform = sound_files.resample(samples, rate, recognizer.sample_rate)
    least = recognizer.frontend.extractor.frame_samples
    if len(waveform) < least:
        raise UserError(
            f"audio: got {len(waveform)} samples at the model's rate, expected {least} or more"
        )
    return waveform


def finished(
    recognizer: Recognizer,
    recordings: Sequence[Recording],
    options: SearchOptions,
    batch_seconds: float | None = None,
    precision: str = "fp32",
    clock: Clock | None = None,
    times: bool = False,
    searcher: Searcher | None = None,
) -> Results:
    """Yield each transcript or failure when it is finished; for the arguments see `transcribe`.

    searcher   made of the recognizer, options and precision, for several calls; None makes one
    """
    clock = clock or Clock()
    searcher = searcher or Searcher(recognizer, options, precision)

    def search(some: Iterable[Recording], times: bool) -> Results:
        return _found(searcher, some, batch_seconds, times)

    started = time.perf_counter()
    cutting = Cutting.suited_to(recognizer, searcher.options)
    found = in_pieces(recordings, cutting, search, times and recognizer.has_times)
    for recording, result in found:
        clock.wall += time.perf_counter() - started
        clock.audio += recording.duration if isinstance(result, Transcript) else 0.0
        yield recording, result
        del result
        started = time.perf_counter()


def _found(
    searcher: Searcher, recordings: Iterable[Recording], batch_seconds: float | None, times: bool
) -> Results:
    """Search recordings in one stream; if memory runs out, search those that had begun one by one, and go on."""
    seconds = _seconds(batch_seconds, searcher.recognizer)
    # one stream: the last of a window beside the next one's first
    windows = cut(recordings, WINDOW_SECONDS)
    todo = itertools.chain.from_iterable(_batches(window, seconds) for window in windows)
    batches = _EncodedBatches(searcher, todo, times)
    yield from _searched(searcher, batches)
    while batches.begun:  # memory has run out
        for recording in batches.begun:
            found = dict(_searched(searcher, _EncodedBatches(searcher, [[recording]], times)))
            lost = failure(recording, TOO_LONG.format(recording.duration))
            yield recording, found.get(recording, lost)
        batches = _EncodedBatches(searcher, itertools.chain(batches.ahead, todo), times)
        yield from _searched(searcher, batches)


class _EncodedBatches:
    """Iterate over batches of recordings of similar length, and their encoder outputs H (B, T', D), H_lens (B,).

    ahead       batches that are being read
    begun       recordings that are being searched
    unreadable  recordings that could not be read so far
    encoded     if `times`, of each recording that is being searched: H (T', D), X (T, F)
    """

    def __init__(self, searcher: Searcher, batches: Iterable[list[Recording]], times: bool):
        self.searcher, self.recognizer, self.times = searcher, searcher.recognizer, times
        self.encoded: dict[Recording, tuple[torch.Tensor, torch.Tensor]] = {}
        self.batches, self.ahead = batches, deque[list[Recording]]()
        self.begun: dict[Recording, None] = {}
        self.unreadable: list[tuple[Recording, Failure]] = []

    def _asked_for(self) -> Iterator[list[Recording]]:
        for batch in self.batches:
            self.ahead.append(batch)
            yield batch

    def __iter__(self) -> Iterator[Batch]:
        for batch, waveforms in _read_ahead(self._asked_for(), self.recognizer):
            self.ahead.popleft()
            encoded = self._encoded(batch, waveforms)
            del waveforms  # the search of these takes long
            if encoded:
                yield encoded

    def _encoded(
        self, batch: list[Recording], waveforms: list[np.ndarray | UserError]
    ) -> Batch | None:
        """Encode what could be read of a batch; None: nothing."""
        pairs = list(zip(batch, waveforms, strict=True))
        self.unreadable += [(r, failure(r, str(w))) for r, w in pairs if isinstance(w, UserError)]
        read = {r: w for r, w in pairs if not isinstance(w, UserError)}
        self.begun |= dict.fromkeys(read)
        if not read:
            return None
        give_back_memory()  # free parts of other sizes, which would add up over hours
        how = self.searcher.precision, self.searcher.chunk
        encoded = encode(self.recognizer, list(read.values()), *how)
        give_back_memory()
        if self.times:
            self.encoded |= zip(read, encoded.rows(), strict=True)
        return list(read), encoded.H, encoded.H_lens

    def transcripts(self, found: Found) -> Iterator[tuple[Recording, Transcript]]:
        """Make transcripts of n-best lists, with times if those are wanted."""
        encoded = [self.encoded.pop(recording) for recording, _ in found] if self.times else None
        for recording, transcript in transcripts(self.searcher, found, encoded):
            del self.begun[recording]
            yield recording, transcript


def transcripts(
    searcher: Searcher,
    found: Found,
    encoded: Sequence[tuple[torch.Tensor, torch.Tensor]] | None,
) -> Iterator[tuple[Recording, Transcript]]:
    """Make transcripts of n-best lists; with times if what each was made of, H (T', D) and X (T, F), is given."""
    words: Sequence[list[Word]] = [[]] * len(found)
    if encoded is not None:
        words = searcher.word_times(Encoded.of(encoded), [nbest[0] for _, nbest in found])
    for (recording, nbest), timed in zip(found, words, strict=True):
        yield recording, transcript_of(recording, nbest, searcher.recognizer, timed)


def _searched(searcher: Searcher, batches: _EncodedBatches) -> Results:
    """Search recordings until all are done, or memory runs out."""
    try:
        for found in searcher.groups(batches):
            yield from batches.transcripts(found)
            while batches.unreadable:
                yield batches.unreadable.pop()
    except (RuntimeError, MemoryError) as error:
        if not is_oom(error) or not batches.begun:
            raise
    yield from batches.unreadable


def alternatives(nbest: Sequence[Hypothesis], tokenizer: Tokenizer) -> tuple[Alternative, ...]:
    """Decode the tokens of an n-best list."""
    return tuple(
        Alternative(
            tokenizer.decode(h.tokens),
            h.tokens,
            h.score,
            h.scores,
            h.reason,
            h.confidence,
            h.confidences,
            h.confidence,
        )
        for h in nbest
    )


def transcript_of(
    recording: Recording,
    nbest: Sequence[Hypothesis],
    recognizer: Recognizer,
    words: Sequence[Word] = (),
) -> Transcript:
    """Decode the tokens of an n-best list; words: of the best, in seconds from the part's beginning."""
    found, calibration = alternatives(nbest, recognizer.tokenizer), recognizer.calibration
    if calibration:
        found = tuple(replace(a, confidence=calibration.utterances(a.confidence)) for a in found)
        words = [replace(word, confidence=calibration.words(word.confidence)) for word in words]
    start, duration, best = recording.start, recording.duration, found[0]
    timed = tuple(word.moved(start, duration) for word in words)
    segments = (
        [Segment(timed[0].start, timed[-1].end, best.text, best.confidence, timed, found)]
        if timed
        else []
    )
    return Transcript(
        recording.id, best.text, tuple(segments), recording.path, start, duration, found
    )


def failure(recording: Recording, reason: str) -> Failure:
    """Return why a recording can't be transcribed."""
    return Failure(recording.id, recording.path, reason)


def encoded(
    recognizer: Recognizer,
    window: Sequence[Recording],
    batch_seconds: float | None,
    precision: str,
    chunk: int | None = None,
) -> Iterator[Batch | Failure]:
    """Yield batches of recordings, the longest first, and their encoder outputs H (B, T', D), H_lens (B,).

    A recording that can't be read is a failure, among the batches.
    """
    batches = _batches(window, _seconds(batch_seconds, recognizer))
    for batch, waveforms in _read_ahead(batches, recognizer):
        pairs = list(zip(batch, waveforms, strict=True))
        yield from (failure(r, str(w)) for r, w in pairs if isinstance(w, UserError))
        read = {r: w for r, w in pairs if not isinstance(w, UserError)}
        if read:
            encoded = encode(recognizer, list(read.values()), precision, chunk)
            yield list(read), encoded.H, encoded.H_lens


def _device(recognizer: Recognizer) -> torch.device:
    return next(recognizer.parameters()).device


def _seconds(batch_seconds: float | None, recognizer: Recognizer) -> float:
    return batch_seconds or BATCH_SECONDS[_device(recognizer).type]


def _batches(window: Sequence[Recording], batch_seconds: float) -> list[list[Recording]]:
    """Group recordings of similar length, the longest first."""
    batches: list[list[Recording]] = []
    for recording in sorted(window, key=lambda s: -s.duration):
        if batches and batches[-1][0].duration * (len(batches[-1]) + 1) <= batch_seconds:
            batches[-1].append(recording)
        else:
            batches.append([recording])
    return batches


def _read_ahead(
    batches: Iterable[list[Recording]], recognizer: Recognizer
) -> Iterator[tuple[list[Recording], list[np.ndarray | UserError]]]:
    """Read the next batches in threads while the model works on this one; errors are values."""
    device = _device(recognizer).type
    pool = ThreadPoolExecutor(READERS[device])
    begun = (
        (batch, [pool.submit(load_waveform, recording, recognizer) for recording in batch])
        for batch in batches
    )
    try:
        ahead = deque(itertools.islice(begun, AHEAD[device]))
        while ahead:
            ahead.extend(itertools.islice(begun, 1))
            yield _read(*ahead.popleft())  # which this keeps no longer
    finally:
        pool.shutdown(cancel_futures=True)


def _read(
    batch: list[Recording], reading: list[Future[np.ndarray | UserError]]
) -> tuple[list[Recording], list[np.ndarray | UserError]]:
    return batch, [one.result() for one in reading]


def load_waveform(recording: Recording, recognizer: Recognizer) -> np.ndarray | UserError:
    """Read a recording, (samples,) float32 at the model's rate; an error is a value."""
    least = recognizer.frontend.extractor.frame_samples
    try:
        part = recording.start, recording.duration, recording.channel
        waveform = sound_files.load(recording.path, recognizer.sample_rate, *part)
        if len(waveform) < least:
            what = f"{len(waveform)} samples of the model's {recognizer.sample_rate} Hz"
            return UserError(
                f"{recording.path}: too short: has {what}, a frame of its features takes {least}"
            )
        return waveform
    except UserError as error:
        return error
    except MemoryError:
        return UserError(TOO_LONG.format(recording.duration))
