"""Manifests: one lhotse CutSet a split, a MonoCut a line, written and read without lhotse (and so without torch).

A line is what lhotse itself writes for a cut with one supervision; a test holds the two equal, and
`lhotse.CutSet.from_file` opens the same file.
"""

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from asr import archive
from asr.errors import UserError
from asr.files import replacing

STRING, WHOLE, NUMBER = ("a string", str), ("a whole number", int), ("a number", int, float)
KINDS = {  # of an utterance's values: in words, and as JSON has them
    **{"id": STRING, "path": STRING, "rate": WHOLE, "samples": WHOLE, "channels": WHOLE},
    **{"start": NUMBER, "duration": NUMBER, "text": STRING, "speaker": ("a string or nothing", str, type(None))},
}


def fits(value: object, *kinds: type) -> bool:
    """Whether a value is of one of these kinds; a number must fit into 64 bits, too, which NaN doesn't."""
    return type(value) in kinds and (not isinstance(value, int | float) or -(1 << 63) <= value < 1 << 63)


@dataclass(frozen=True)
class Utterance:
    """One line of a manifest.

    id:        unique in its corpus
    path:      of the recording, absolute; perhaps within an archive (asr/archive.py); empty in a Shar's own cuts
    rate:      of the recording, Hz
    samples:   of the whole recording, per channel
    channels:  of the recording
    start:     seconds into the recording
    duration:  seconds
    text:      as the corpus writes it
    speaker:   None if unknown
    """

    id: str
    path: str
    rate: int
    samples: int
    channels: int
    start: float
    duration: float
    text: str
    speaker: str | None = None

    @classmethod
    def of_cut(cls, cut) -> "Utterance":
        """Take what counts from a lhotse MonoCut; an Utterance passes through."""
        return cut if isinstance(cut, cls) else cls.of_line(cut.to_dict())

    @classmethod
    def of_line(cls, line: dict, folder: str = "") -> "Utterance":
        """Read the JSON object of one MonoCut of a manifest in `folder`. Several supervisions are joined by spaces."""
        recording = line["recording"]
        source, supervisions = recording["sources"][0], line.get("supervisions", [])
        return cls(
            id=line["id"],
            path=os.path.join(folder, source["source"]) if source.get("type") == "shar" else source["source"],
            rate=recording["sampling_rate"],
            samples=recording["num_samples"],
            channels=len(recording.get("channel_ids") or source["channels"]),
            start=line.get("start", 0.0),
            duration=line["duration"],
            text=" ".join(part["text"] for part in supervisions if part.get("text")),
            speaker=next((part["speaker"] for part in supervisions if part.get("speaker")), None),
        )

    def line(self) -> dict:
        """Make the JSON object of one MonoCut with one SupervisionSegment."""
        supervision = {"id": self.id, "recording_id": self.id, "start": 0.0, "duration": self.duration, "channel": 0}
        supervision |= {"text": self.text} | ({} if self.speaker is None else {"speaker": self.speaker})
        channels = list(range(self.channels))
        kind = "shar" if not self.path or archive.place(self.path) else "file"
        recording = {
            "id": self.id,
            "sources": [{"type": kind, "channels": channels, "source": self.path}],
            "sampling_rate": self.rate,
            "num_samples": self.samples,
            "duration": self.samples / self.rate,
            "channel_ids": channels,
        }
        cut = {"id": self.id, "start": self.start, "duration": self.duration, "channel": 0}
        return cut | {"supervisions": [supervision], "recording": recording, "type": "MonoCut"}


def write(path: str | os.PathLike, utterances: Iterable[Utterance]) -> None:
    """Write `<split>.jsonl.gz` in one piece; the same utterances give the same bytes."""
    with (
        replacing(path) as temporary,
        open(temporary, "wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as file,
    ):
        for utterance in utterances:
            file.write((json.dumps(utterance.line(), ensure_ascii=False) + "\n").encode())


def listed(paths: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str]:
    """The files of a data set that is given as one or as a list of them."""
    return [os.fspath(paths)] if isinstance(paths, (str, os.PathLike)) else [os.fspath(path) for path in paths]


def read(path: str | os.PathLike) -> Iterator[Utterance]:
    """Yield the utterances of a manifest, `.jsonl` or `.jsonl.gz`.

    raises   UserError if the file is absent, damaged, or a line is no MonoCut with a recording; names file and line
    """
    for _, utterance in numbered(path):
        if isinstance(utterance, UserError):
            raise utterance
        yield utterance


def numbered(path: str | os.PathLike) -> Iterator[tuple[int, Utterance | UserError]]:
    """Yield each line's number, from 1, and its utterance; a line that is none is handed back as the error it is.

    raises   UserError if the file is absent or damaged
    """
    path, number, folder = Path(path), 0, os.path.dirname(os.path.abspath(path))
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, _utterance(line, f"{path}:{number}", folder)
    except FileNotFoundError:
        raise UserError(f"{path}: no such manifest; asr-prepare makes it") from None
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise UserError(f"{path}: damaged after line {number} ({error}); prepare it again") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror})") from None


def _utterance(line: str, where: str, folder: str) -> Utterance | UserError:
    try:
        utterance = Utterance.of_line(json.loads(line), folder)
        wrong = next((name for name, kind in KINDS.items() if not fits(getattr(utterance, name), *kind[1:])), None)
        if wrong is None:
            return utterance
        return UserError(f"{where}: {wrong}: got {getattr(utterance, wrong)!r}, expected {KINDS[wrong][0]}")
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        return UserError(f"{where}: expected a lhotse MonoCut with a recording ({reason})")
