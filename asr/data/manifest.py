"""Manifests: one lhotse CutSet per split, one MonoCut per line, written and read without lhotse (and so without torch).

A line is what lhotse itself writes for a cut with one supervision; a test holds the two equal, and
`lhotse.CutSet.from_file` opens the same file.

Ids, speakers, paths and texts are written to text files, terminals and archives, as lines of
`id<TAB>text` that can be read again. So they have no control characters (some control a terminal),
no line ends of any kind, no halves of surrogate pairs (which UTF-8 can't write), and no white space
at their ends.
"""

import gzip
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from asr.audio import archive
from asr.audio.sound import RATES
from asr.errors import UserError
from asr.files import DAMAGED, read_lines, replacing, unpacked

LONGEST = 4096  # characters of a name
IN_NAMES = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# other control characters are white space
IN_TEXTS = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff]")


def fault(name: str) -> str | None:
    """Describe what is wrong with an id or a speaker's name; None if it is valid.

    >>> fault("a\\tb")
    'has a control character (U+0009)'
    """
    if not name:
        return "is empty"
    if name != name.strip() or name[0] == "\ufeff":
        return "begins or ends with white space"
    if len(name) > LONGEST:
        return f"has {len(name):,} characters, expected at most {LONGEST:,}"
    return hidden(name, IN_NAMES)


def fault_of_text(text: str) -> str | None:
    """Describe what is wrong with a text, where all white space counts as spaces; None if it is valid."""
    return hidden(text, IN_TEXTS)


def hidden(text: str, characters: re.Pattern = IN_NAMES) -> str | None:
    """Describe the first forbidden character of a text; None if it has none."""
    if not (found := characters.search(text)):
        return None
    code = ord(found[0])
    if 0xDC80 <= code < 0xDD00:  # Python's way of reading a file name
        return f"isn't UTF-8 (byte 0x{code - 0xDC00:02x})"
    kind = "half a surrogate pair" if 0xD800 <= code < 0xE000 else "a control character"
    return f"has {kind} (U+{code:04X})"


def shown(name: str, most: int = 100) -> str:
    """Make a name printable, whatever it holds.

    >>> shown("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    name = name if len(name) <= most else f"{name[:most]}…"
    return IN_NAMES.sub(lambda found: ascii(found[0])[1:-1], name)


# custom["mono"] of a cut whose recording has several channels: what is heard of it
MEAN, ONE = (
    "mean",
    "channel",
)
STRING, WHOLE = ("a string", (str,)), ("a whole number", (int,))
NUMBER = ("a number", (int, float))
KINDS: dict[
    str, tuple[str, tuple[type, ...]]
] = {  # of an utterance's values: in words, and as JSON has them
    **{"id": STRING, "path": STRING, "rate": WHOLE, "samples": WHOLE, "channels": WHOLE},
    **{
        "start": NUMBER,
        "duration": NUMBER,
        "text": STRING,
        "speaker": ("a string or nothing", (str, type(None))),
    },
}

CHANNELS = range(1, 1025)  # libsndfile's
BOUNDS = {
    "channels": f"1 to {CHANNELS[-1]}",
    "rate": f"{RATES[0]:,} to {RATES[-1]:,} Hz",
    **{"samples": "1 or more", "start": "0 s or more", "duration": "more than 0 s"},
}


def fits(value: object, *kinds: type) -> bool:
    """Whether a value is of one of these kinds; a number must fit into 64 bits, too, which NaN doesn't."""
    return type(value) in kinds and (
        not isinstance(value, int | float) or -(1 << 63) <= value < 1 << 63
    )


@dataclass(frozen=True)
class Utterance:
    """One line of a manifest.

    id:        unique in its corpus
    path:      of the recording, absolute; perhaps within an archive (asr/audio/archive.py); empty
               in a Shar's own cuts
    rate:      of the recording, Hz
    samples:   of the whole recording, per channel
    channels:  of the recording
    start:     seconds into the recording
    duration:  seconds
    text:      as the corpus writes it
    speaker:   None if unknown
    channel:   of the recording, from 0; None = the mean of all, or the only one
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
    channel: int | None = None

    @classmethod
    def of_cut(cls, cut) -> "Utterance":
        """Take what counts from a lhotse MonoCut; an Utterance passes through."""
        return cut if isinstance(cut, cls) else cls.of_line(cut.to_dict())

    @classmethod
    def of_line(cls, line: dict, folder: str = "") -> "Utterance":
        """Read the JSON object of one MonoCut of a manifest in `folder`. Several supervisions are joined by spaces.

        raises   UserError for a cut of another kind, or one that asks for what isn't done here
        """
        if (kind := line.get("type", "MonoCut")) not in ("MonoCut", "Cut"):
            raise UserError(
                f"is a {kind}, expected a MonoCut; of several channels or tracks write one first"
            )
        if "recording" not in line and "features" in line:
            raise UserError("is a cut of features, without a recording; expected sound")
        recording, supervisions = line["recording"], line.get("supervisions", [])
        if transforms := recording.get("transforms"):
            applied = ", ".join(
                str(one.get("name", one) if isinstance(one, dict) else one) for one in transforms
            )
            raise UserError(
                f"its recording has transforms ({applied}); apply them and save the result as a file"
            )
        source, channel = heard(line)
        return cls(
            id=line["id"],
            path=os.path.join(folder, source["source"])
            if source.get("type") == "shar"
            else source["source"],
            rate=recording["sampling_rate"],
            samples=recording["num_samples"],
            channels=len(source["channels"]),
            start=line.get("start", 0.0),
            duration=line["duration"],
            text=" ".join(part["text"] for part in supervisions if part.get("text")),
            speaker=next((part["speaker"] for part in supervisions if part.get("speaker")), None),
            channel=channel,
        )

    def line(self) -> dict:
        """Make the JSON object of one MonoCut with one SupervisionSegment."""
        span, channel = {"start": 0.0, "duration": self.duration}, {"channel": self.channel or 0}
        supervision = {"id": self.id, "recording_id": self.id} | span | channel
        supervision |= {"text": self.text} | (
            {} if self.speaker is None else {"speaker": self.speaker}
        )
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
        cut = {"id": self.id, "start": self.start, "duration": self.duration} | channel
        several = (
            {"custom": {"mono": MEAN if self.channel is None else ONE}} if self.channels > 1 else {}
        )
        return (
            cut
            | {"supervisions": [supervision], "recording": recording}
            | several
            | {"type": "MonoCut"}
        )


def heard(line: dict) -> tuple[dict, int | None]:
    """Find the source of a cut's channel, and which of the source's channels it is; see Utterance.

    To lhotse a MonoCut's channel is one of its recording. What asr-prepare writes of several
    channels says in `custom` whether their mean is meant. Before, it wrote channel 0 and meant the
    mean: such a line is refused.
    raises   UserError if it can't be told, or the recording has no such channel
    """
    asked, sources = line.get("channel", 0), line["recording"]["sources"]
    there = [number for source in sources for number in source["channels"]]
    if type(asked) is not int or asked not in there:
        has = ", ".join(map(str, there))
        raise UserError(f"channel: got {asked!r}, expected one of its recording's ({has})")
    source = next(source for source in sources if asked in source["channels"])
    if (kind := source.get("type", "file")) not in ("file", "shar"):
        raise UserError(f"its sound is of type {kind!r}, expected a file; save it as one")
    others = {
        part.get("channel", asked) for part in line.get("supervisions", ()) if part.get("text")
    } - {asked}
    if others:
        raise UserError(
            f"has the text of channel {others.pop()!r} beside channel {asked}; give each a cut of its own"
        )
    if len(source["channels"]) == 1:
        return source, None
    meant = (line.get("custom") or {}).get("mono")
    if meant not in (MEAN, ONE) and asked == 0 and is_own(line):
        raise UserError(
            f"has {len(there)} channels, of which asr-prepare used to mean the mean and lhotse means channel 0; run "
            f'asr-prepare again, or give the cut "custom": {{"mono": "{MEAN}"}}, or "{ONE}"'
        )
    return source, None if meant == MEAN else source["channels"].index(asked)


def is_own(line: dict) -> bool:
    """Whether a line looks like one of ours: its recording and its text have the cut's name."""
    parts = line.get("supervisions") or [{}]
    others = {line["recording"].get("id"), *(part.get("id") for part in parts)}
    return len(parts) == 1 and others == {line["id"]} and not line.get("start")


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
    """List the files of a data set, given as one or as a list."""
    return (
        [os.fspath(paths)]
        if isinstance(paths, (str, os.PathLike))
        else [os.fspath(path) for path in paths]
    )


def read(path: str | os.PathLike) -> Iterator[Utterance]:
    """Yield the utterances of a manifest, `.jsonl` or `.jsonl.gz`.

    raises   UserError if the file is absent, damaged, or a line is no MonoCut with a recording;
             names file and line
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
        with open(path, "rb") as file:
            for number, line in enumerate(read_lines(unpacked(file, path), path), 1):
                if line.strip():
                    yield number, _utterance(line.decode(), f"{path}:{number}", folder)
    except FileNotFoundError:
        raise UserError(f"{path}: no such manifest; asr-prepare makes it") from None
    except (*DAMAGED, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: damaged after line {number} ({error}); prepare it again"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror})") from None
    except ValueError:  # of open
        raise UserError(f"{shown(str(path))}: no such manifest: a file's name has no NUL") from None


def _utterance(line: str, where: str, folder: str) -> Utterance | UserError:
    try:
        utterance = Utterance.of_line(json.loads(line), folder)
        fault = _fault(utterance)
        return UserError(f"{where}: {fault}") if fault else utterance
    except UserError as error:
        return UserError(f"{where}: {error}")
    except RecursionError:
        reason: object = "is nested too deep"
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        if "set_int_max_str_digits" in str(error):
            reason = "a number of thousands of digits"
    return UserError(f"{where}: expected a lhotse MonoCut with a recording ({reason})")


def _fault(utterance: Utterance) -> str | None:
    """Describe what is wrong with the values of a line; None if nothing is."""
    for name, (kind, types) in KINDS.items():
        if not fits(value := getattr(utterance, name), *types):
            return f"{name}: got {_short(value)}, expected {kind}"
    u = utterance
    texts = {"id": fault(u.id), "path": hidden(u.path), "text": fault_of_text(u.text)}
    texts["speaker"] = hidden(u.speaker or "")
    for name, wrong in texts.items():
        if wrong:
            return f"{name}: got {_short(getattr(u, name))}, which {wrong}"
    sizes = {"rate": u.rate in RATES, "samples": u.samples > 0, "channels": u.channels in CHANNELS}
    sizes |= {"start": u.start >= 0, "duration": u.duration > 0}
    for name, good in sizes.items():
        if not good:
            return f"{name}: got {getattr(u, name)}, expected {BOUNDS[name]}"
    return None


def _short(value: object) -> str:
    """Write a value for a message, so that a terminal can show it."""
    return ascii(value) if not isinstance(value, str) else f"{shown(value)!r}"
