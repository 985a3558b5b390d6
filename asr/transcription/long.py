"""Recordings of any length: long ones are cut into pieces, searched among all others, and joined again."""

import math
import statistics
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from asr.errors import UserError
from asr.failures import Failure
from asr.model_files import FAR
from asr.models.recognizer import Recognizer
from asr.text.normalize import join_han
from asr.transcript import Segment, Transcript, Word
from asr.transcription.options import SearchOptions
from asr.transcription.recordings import Recording
from asr.transcription.segmentation import CONTEXT, MARGIN, TOGETHER, Piece, finish, segment

# of a text that is believed in what sounds like music; chosen on mini's dev with music, and on music
SURE = 0.6  # confidence
SURE_CTC = 0.8  # the same for CTC's searches frame by frame, which are sure of what they emit
SPOKEN = 5.0  # bytes a second in UTF-8, without spaces; speech has some 12 in any script
LEAST = 3  # bytes; a note of some hundredths of a second is heard as a letter or two
APART = 0.4  # seconds between the middles of a word in two pieces, at most

Results = Iterator[tuple[Recording, Transcript | Failure]]


@dataclass(frozen=True)
class Cutting:
    """How recordings are cut, and joined again.

    longest  seconds of a piece, at most; far longer recordings are cut
    rate     of the waveforms in which pauses are looked for, Hz
    context  seconds of silence around its speech that are searched with a piece
    vad      how speech is found, as in `SearchOptions`
    sure     confidence of a text that is believed in what sounds like music; see `sure_of`
    """

    longest: float
    rate: int
    context: float = 0.0
    vad: str = "energy"
    sure: float = SURE

    @staticmethod
    def suited_to(recognizer: Recognizer, options: SearchOptions) -> "Cutting":
        """Cut into what the model has heard in its training; nothing, if its CTC tells no times."""
        return Cutting(
            recognizer.longest if recognizer.has_times else math.inf,
            recognizer.sample_rate,
            min(recognizer.edges, CONTEXT),
            options.vad,
            sure_of(options.mode),
        )

    def is_long(self, recording: Recording) -> bool:
        """Tell whether a recording is cut."""
        return recording.duration > FAR * self.longest


def in_pieces(
    recordings: Sequence[Recording],
    cutting: Cutting,
    search: Callable[[Iterable[Recording], bool], Results],
    times: bool,
) -> Results:
    """Yield a result of each recording when it is finished; long ones are cut when the search asks for more.

    search   recordings, and whether to give them times → a result of each, in any order
    times    whether short recordings shall have them, too; pieces are joined by theirs
    """
    if not any(map(cutting.is_long, recordings)):
        yield from search(recordings, times)
        return
    parts = _Parts(recordings, cutting)
    found: dict[Recording, dict[Recording, Transcript | Failure]] = {}
    for part, result in search(parts, True):
        yield from parts.settled()
        pieces = parts.whole.pop(part, None)
        if pieces is None:
            yield part, result if times else _without_times(result)
            continue
        results = found.setdefault(pieces.recording, {})
        results[part] = result
        if len(results) == len(pieces.parts):
            yield pieces.recording, pieces.result(results)
            del found[pieces.recording]
    yield from parts.settled()


class _Parts:
    """Iterate over short recordings and the pieces of long ones, which are cut when they are asked for.

    whole     piece → its recording in pieces
    """

    def __init__(self, recordings: Iterable[Recording], cutting: Cutting):
        self.recordings, self.cutting = recordings, cutting
        self.whole: dict[Recording, Pieces] = {}
        self._settled: list[tuple[Recording, Transcript | Failure]] = []

    def __iter__(self) -> Iterator[Recording]:
        for recording in self.recordings:
            if not self.cutting.is_long(recording):
                yield recording
                continue
            try:
                pieces = finish(cut_up(recording, self.cutting, TOGETHER))
            except UserError as error:
                failure = Failure(recording.id, recording.path, str(error))
                self._settled.append((recording, failure))
                continue
            if not pieces.parts:
                self._settled.append((recording, pieces.joined([])))
            self.whole |= dict.fromkeys(pieces.parts, pieces)
            yield from pieces.parts

    def settled(self) -> Results:
        """Yield the results of long recordings without any piece, once."""
        settled, self._settled = self._settled, []
        yield from settled


def sure_of(mode: str) -> float:
    """The confidence of a text that is believed in what sounds like music, by the mode of the search."""
    return SURE_CTC if mode in ("ctc-greedy", "ctc-beam") else SURE


def cut_up(
    recording: Recording, cutting: Cutting, together: int = 1
) -> Generator[float, None, "Pieces"]:
    """Cut a recording, however short it is; yield the seconds of each block that is read.

    together  blocks that are read at once, each in a thread
    raises    UserError if it can't be read
    """
    span = recording.start, recording.duration, recording.channel
    how = cutting.longest, cutting.vad, cutting.context
    pieces = yield from segment(recording.path, cutting.rate, *span, *how, together)
    return Pieces(recording, tuple(pieces), cutting.sure)


@dataclass(frozen=True, eq=False)
class Pieces:
    """A long recording, and what of it is searched, in order."""

    recording: Recording
    pieces: tuple[Piece, ...]
    sure: float

    @cached_property
    def parts(self) -> list[Recording]:
        """The pieces as recordings, with the silence around them that is searched, too."""
        id = self.recording.id
        spans = [(p.start - p.before, p.end + p.after) for p in self.pieces]
        return [
            replace(self.recording, id=f"{id}#{n}", start=start, duration=end - start)
            for n, (start, end) in enumerate(spans)
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
        return joined(self.recording, self.pieces, transcripts, self.sure)


def _without_times(result: Transcript | Failure) -> Transcript | Failure:
    """Leave out times that only a long recording in its company was given, so that company changes nothing."""
    return replace(result, segments=()) if isinstance(result, Transcript) else result


def joined(
    recording: Recording,
    pieces: Sequence[Piece],
    transcripts: Sequence[Transcript],
    sure: float = SURE,
) -> Transcript:
    """Join the transcripts of a recording's pieces, in order."""
    joint = Joint(sure)
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

    def __init__(self, sure: float) -> None:
        self._sure = sure
        self.pieces: list[Piece] = []
        self.segments: list[Segment] = []
        self._follows = False

    def add(self, piece: Piece, transcript: Transcript) -> None:
        """Join the next piece; what follows one that was left out shares nothing with it."""
        follows, doubtful = self._follows, piece.doubtful
        self._follows = not doubtful or _is_sure(transcript, piece.end - piece.start, self._sure)
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


def _is_sure(transcript: Transcript, seconds: float, sure: float) -> bool:
    """Tell whether a model is sure of a text, of each token too, and it's as long as what is said in the time."""
    for best in transcript.nbest[:1]:
        mean = statistics.geometric_mean(max(p, 1e-9) for p in best.confidences or [1.0])
        length = len(best.text.replace(" ", "").encode())
        least = max(LEAST, SPOKEN * (seconds - 2 * MARGIN))
        return min(best.uncalibrated, mean) >= sure and length >= least
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
