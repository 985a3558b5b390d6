"""Recordings of any length: long ones are cut into pieces, searched among all others, and joined again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from asr.errors import UserError
from asr.failures import Failure
from asr.text.normalize import join_han
from asr.transcript import Segment, Transcript, Word
from asr.transcription.recordings import Recording, cut
from asr.transcription.segmentation import Piece, segment

FAR = 1.5  # times the longest recording of training; shorter ones are searched whole
AT_ONCE = 3600.0  # seconds of recordings that are cut before their pieces are searched
SURE = 0.6  # confidence of a text that is believed in what sounds like music; chosen on mini's dev with music
APART = 0.4  # seconds between the middles of a word in two pieces, at most

Results = Iterator[tuple[Recording, Transcript | Failure]]


def in_pieces(
    recordings: Sequence[Recording],
    longest: float,
    rate: int,
    search: Callable[[Sequence[Recording], bool], Results],
    times: bool,
    vad: str = "energy",
) -> Results:
    """Yield a result of each recording when it is finished; far longer ones than `longest` seconds are cut.

    rate     of the waveforms in which pauses are looked for, Hz
    search   recordings, and whether to give them times → a result of each, in any order
    times    whether short recordings shall have them, too; pieces are joined by theirs
    vad      how speech is found, as in `SearchOptions`
    """
    if all(recording.duration <= FAR * longest for recording in recordings):
        yield from search(recordings, times)
        return
    for group in cut(recordings, AT_ONCE):
        whole: dict[Recording, Pieces] = {}  # piece → its recording in pieces
        todo: list[Recording] = []
        for recording in group:
            try:
                pieces = cut_long(recording, longest, rate, vad)
            except UserError as error:
                yield recording, Failure(recording.id, recording.path, str(error))
                continue
            if pieces is None:
                todo.append(recording)
                continue
            whole |= dict.fromkeys(pieces.parts, pieces)
            todo += pieces.parts
            if not pieces.parts:
                yield recording, pieces.joined([])
        found: dict[Recording, dict[Recording, Transcript | Failure]] = {}
        for part, result in search(todo, times or bool(whole)):
            if part not in whole:
                yield part, result if times else _without_times(result)
                continue
            pieces = whole[part]
            results = found.setdefault(pieces.recording, {})
            results[part] = result
            if len(results) == len(pieces.parts):
                yield pieces.recording, pieces.result(results)
                del found[pieces.recording]


def cut_long(recording: Recording, longest: float, rate: int, vad: str) -> "Pieces | None":
    """Cut a recording that is far longer than `longest` seconds; None if it is searched whole. See `in_pieces`.

    raises   UserError if it can't be read
    """
    if recording.duration <= FAR * longest:
        return None
    span = recording.start, recording.duration, recording.channel
    return Pieces(recording, tuple(segment(recording.path, rate, *span, longest, vad)))


@dataclass(frozen=True, eq=False)
class Pieces:
    """A long recording, and what of it is searched, in order."""

    recording: Recording
    pieces: tuple[Piece, ...]

    @cached_property
    def parts(self) -> list[Recording]:
        """The pieces as recordings."""
        id = self.recording.id
        return [
            replace(self.recording, id=f"{id}#{n}", start=p.start, duration=p.end - p.start)
            for n, p in enumerate(self.pieces)
        ]

    def result(self, results: Mapping[Recording, Transcript | Failure]) -> Transcript | Failure:
        """Join the results of all parts."""
        transcripts = []
        for part in self.parts:
            if isinstance(result := results[part], Failure):
                return Failure(self.recording.id, self.recording.path, result.reason)
            transcripts.append(result)
        return self.joined(transcripts)

    def joined(self, transcripts: Sequence[Transcript]) -> Transcript:
        """Join the transcripts of the parts, in order."""
        return joined(self.recording, self.pieces, transcripts)


def _without_times(result: Transcript | Failure) -> Transcript | Failure:
    """Leave out times that only a long recording in its company was given, so that company changes nothing."""
    return replace(result, segments=()) if isinstance(result, Transcript) else result


def joined(
    recording: Recording, pieces: Sequence[Piece], transcripts: Sequence[Transcript]
) -> Transcript:
    """Join the transcripts of a recording's pieces, in order."""
    joint = Joint()
    for piece, transcript in zip(pieces, transcripts, strict=True):
        joint.add(piece, transcript)
    pieces, segments = joint.pieces, joint.segments
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


class Joint:
    """The segments of pieces that are joined one by one, without doubtful ones of whose text the model isn't sure.

    pieces    that were joined
    segments  so far; only the last one may still change, and only if the next piece overlaps
    """

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.segments: list[Segment] = []
        self._follows = False

    def add(self, piece: Piece, transcript: Transcript) -> None:
        """Join the next piece; what follows one that was left out shares nothing with it."""
        sure = any(best.uncalibrated >= SURE for best in transcript.nbest[:1])
        follows, self._follows = self._follows, sure or not piece.doubtful
        if not self._follows:
            return
        # what can't be aligned has a text without times of its words
        own = transcript.segments or (Segment(piece.start, piece.end, transcript.text),)
        if follows and piece.overlap and self.segments[-1].words and own[0].words:
            overlap = piece.start, piece.overlap
            self.segments[-1], first = merged(self.segments[-1], own[0], *overlap)
            own = (first, *own[1:])
        self.segments += own
        self.pieces.append(piece)


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
