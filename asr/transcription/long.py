"""Recordings of any length: long ones are cut into pieces, searched among all others, and joined again."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from asr.errors import UserError
from asr.failures import Failure
from asr.text.normalize import join_han
from asr.transcript import Segment, Transcript, Word
from asr.transcription.recordings import Recording, cut
from asr.transcription.segmentation import Piece, segment

FAR = 1.5  # times the longest recording of training; shorter ones are searched whole
AT_ONCE = 3600.0  # seconds of recordings that are cut before their pieces are searched
# of a text that is believed in what sounds like music; chosen on mini's dev with music, and on music
SURE = 0.6  # confidence
SURE_CTC = 0.8  # the same for CTC's searches frame by frame, which are sure of what they emit
SPOKEN = 5.0  # bytes a second in UTF-8, without spaces; speech has some 12 in any script
APART = 0.4  # seconds between the middles of a word in two pieces, at most

Results = Iterator[tuple[Recording, Transcript | Failure]]


def in_pieces(
    recordings: Sequence[Recording],
    longest: float,
    rate: int,
    search: Callable[[Sequence[Recording], bool], Results],
    times: bool,
    vad: str = "energy",
    sure: float = SURE,
) -> Results:
    """Yield a result of each recording when it is finished; far longer ones than `longest` seconds are cut.

    rate     of the waveforms in which pauses are looked for, Hz
    search   recordings, and whether to give them times → a result of each, in any order
    times    whether short recordings shall have them, too; pieces are joined by theirs
    vad      how speech is found, as in `SearchOptions`
    sure     confidence of a text that is believed in what sounds like music
    """
    if all(recording.duration <= FAR * longest for recording in recordings):
        yield from search(recordings, times)
        return
    for group in cut(recordings, AT_ONCE):
        whole: dict[Recording, tuple[Recording, list[Piece]]] = {}  # piece → recording, its pieces
        todo: list[Recording] = []
        for recording in group:
            if recording.duration <= FAR * longest:
                todo.append(recording)
                continue
            try:
                pieces = segment(
                    recording.path,
                    rate,
                    recording.start,
                    recording.duration,
                    recording.channel,
                    longest,
                    vad,
                )
            except UserError as error:
                yield recording, Failure(recording.id, recording.path, str(error))
                continue
            parts = [_part(recording, n, piece) for n, piece in enumerate(pieces)]
            whole |= dict.fromkeys(parts, (recording, pieces))
            todo += parts
            if not parts:
                yield recording, joined(recording, [], [], sure)
        found: dict[Recording, dict[str, Transcript | Failure]] = {}
        for part, result in search(todo, times or bool(whole)):
            if part not in whole:
                yield part, result if times else _without_times(result)
                continue
            recording, pieces = whole[part]
            results = found.setdefault(recording, {})
            results[part.id] = result
            if len(results) == len(pieces):
                in_order = [results[_part(recording, n, p).id] for n, p in enumerate(pieces)]
                yield recording, _result(recording, pieces, in_order, sure)
                del found[recording]


def _part(recording: Recording, n: int, piece: Piece) -> Recording:
    return replace(
        recording, id=f"{recording.id}#{n}", start=piece.start, duration=piece.end - piece.start
    )


def _without_times(result: Transcript | Failure) -> Transcript | Failure:
    """Leave out times that only a long recording in its company was given, so that company changes nothing."""
    return replace(result, segments=()) if isinstance(result, Transcript) else result


def _result(
    recording: Recording,
    pieces: Sequence[Piece],
    results: Sequence[Transcript | Failure],
    sure: float,
) -> Transcript | Failure:
    for result in results:
        if isinstance(result, Failure):
            return Failure(recording.id, recording.path, result.reason)
    transcripts = [result for result in results if isinstance(result, Transcript)]
    return joined(recording, pieces, transcripts, sure)


def joined(
    recording: Recording,
    pieces: Sequence[Piece],
    transcripts: Sequence[Transcript],
    sure: float = SURE,
) -> Transcript:
    """Join the transcripts of a recording's pieces, in order."""
    segments: list[Segment] = []
    pieces, transcripts = _believed(pieces, transcripts, sure)
    for piece, transcript in zip(pieces, transcripts, strict=True):
        # what can't be aligned has a text without times of its words
        own = transcript.segments or (Segment(piece.start, piece.end, transcript.text),)
        if piece.overlap and segments[-1].words and own[0].words:
            segments[-1], first = merged(segments[-1], own[0], piece.start, piece.overlap)
            own = (first, *own[1:])
        segments += own
    kept = tuple(part for part in segments if part.text)
    text = join_han(" ".join(part.text for part in kept))
    end = recording.start + recording.duration
    ends = [recording.start, *(piece.end for piece in pieces)]
    starts = [*(piece.start for piece in pieces), end]
    nonspeech = [(a, b) for a, b in zip(ends, starts, strict=True) if round(b - a, 2) > 0]
    return Transcript(
        recording.id,
        text,
        kept,
        recording.path,
        recording.start,
        recording.duration,
        nonspeech=tuple((round(a, 2), round(b, 2)) for a, b in nonspeech),
    )


def _believed(
    pieces: Sequence[Piece], transcripts: Sequence[Transcript], sure: float
) -> tuple[list[Piece], list[Transcript]]:
    """Leave out doubtful pieces of whose text the model isn't sure; what follows one shares nothing with it."""
    kept: list[tuple[Piece, Transcript]] = []
    follows = False
    for piece, transcript in zip(pieces, transcripts, strict=True):
        if believed := not piece.doubtful or _is_sure(transcript, piece.end - piece.start, sure):
            kept.append((piece if follows else replace(piece, overlap=0.0), transcript))
        follows = believed
    return [piece for piece, _ in kept], [transcript for _, transcript in kept]


def _is_sure(transcript: Transcript, seconds: float, sure: float) -> bool:
    """Tell whether a model is sure of a text, of each token too, and it's as long as what is said in the time."""
    for best in transcript.nbest[:1]:
        mean = statistics.geometric_mean(max(p, 1e-9) for p in best.confidences or [1.0])
        length = len(best.text.replace(" ", "").encode())
        return min(best.uncalibrated, mean) >= sure and length >= SPOKEN * seconds
    return False


def merged(one: Segment, next: Segment, start: float, overlap: float) -> tuple[Segment, Segment]:
    """Divide the words of two segments that overlap from `start` on, so that none is lost or doubled.

    They are divided after the word that both have nearest to the middle of the overlap; if they have
    none in common, at the middle.
    """
    middle = start + overlap / 2
    same = [
        (abs(_middle(a) - middle), n, m)
        for n, a in enumerate(one.words)
        for m, b in enumerate(next.words)
        if a.text == b.text and abs(_middle(a) - _middle(b)) <= APART
    ]
    if same:
        _, last, before = min(same)
        return one.part(0, last + 1), next.part(before + 1, len(next.words))
    last, first = (sum(_middle(word) < middle for word in part.words) for part in (one, next))
    return one.part(0, last), next.part(first, len(next.words))


def _middle(word: Word) -> float:
    return (word.start + word.end) / 2
