"""References and hypotheses, id → text: of files in the field's formats, mappings, or transcripts."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from asr.data import manifest
from asr.data import manifest as names
from asr.data.corpora.corpus import read_lines
from asr.errors import UserError, refuse, repeated, shorten
from asr.files import DAMAGED, LINE, open_file, unpacked
from asr.scoring import nist
from asr.text.normalize import normalize
from asr.transcript import Transcript

Texts = str | os.PathLike[str] | Mapping[str, str] | Iterable[Transcript]


def texts_of(given: Texts, argument: str, segments: Sequence[nist.Stretch] = ()) -> dict[str, str]:
    """Read texts from a file, or take them from a mapping or transcripts, composed and with single spaces.

    segments  of the references, among which the words of a ctm are divided
    raises   UserError if a file can't be read, there are no texts, or an id is repeated
    """
    if isinstance(given, str | os.PathLike):
        return read_texts(given, segments)
    pairs = (
        given.items()
        if isinstance(given, Mapping)
        else ((transcript.id, transcript.text) for transcript in given)
    )
    texts = _unique([(name, normalize(text)) for name, text in pairs], argument)
    if not texts:
        raise UserError("got no texts", argument=argument)
    return texts


def name_of(given: Texts, argument: str) -> str:
    """Return what an error calls these texts: their file, else the argument."""
    return os.fspath(given) if isinstance(given, str | os.PathLike) else argument


def segments_of(given: Texts) -> list[nist.Stretch]:
    """Read the segments of an stm; other texts have none."""
    is_stm = isinstance(given, str | os.PathLike) and _suffix(given) == ".stm"
    return nist.read_stm(Path(given)) if is_stm else []  # type: ignore[arg-type]


def read_texts(path: str | os.PathLike, segments: Sequence[nist.Stretch] = ()) -> dict[str, str]:
    """Read a manifest, one of NIST's files, JSON lines of `asr-decode --json`, or lines of `id<TAB>text`.

    NIST's are known by their suffix: .trn, .stm, .ctm. All may be packed, .gz. If no line of a text
    has a tab, its ids end at a space, as in Kaldi's `text`. An id alone has an empty text. Characters
    are composed (NFC), as those of tokens are: else a word could be right and not equal.
    segments  among which the words of a ctm are divided; without any, those of a file are one text
    raises    UserError if the file can't be read, a line is of another form, or an id is repeated
    """
    path, suffix = Path(path), _suffix(path)
    if is_manifest(path):
        pairs = [(utterance.id, normalize(utterance.text)) for utterance in manifest.read(path)]
    elif suffix == ".trn":
        pairs = nist.read_trn(path)
    elif suffix == ".stm":
        pairs = [(segment.id, segment.text) for segment in nist.read_stm(path) if segment.scored]
    elif suffix == ".ctm":
        words = nist.read_ctm(path)
        pairs = nist.divided(words, segments) if segments else nist.whole_channels(words)
    else:
        pairs = _pairs(read_lines(path))
    if not pairs:
        raise UserError(f"{path}: is empty; expected a manifest or lines of `id<TAB>text`")
    return _unique(pairs, path)


def _suffix(path: str | os.PathLike) -> str:
    """Return the suffix of a file's name, before .gz."""
    return Path(os.fspath(path).removesuffix(".gz")).suffix


def _pairs(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Read ids and texts from lines, in the form that they have."""
    if lines and _is_transcript(lines[0][1]):
        return [_id_and_text(where, line) for where, line in lines]
    if any("\t" in line for _, line in lines):
        return [pair(where, line) for where, line in lines]
    if lines and re.search(r"\(\S+\)\s*$", lines[0][1]):
        where, line = lines[0]
        raise UserError(
            f"{where}: expected `id<TAB>text`, got {line[:60]!r}; name a file of `text (id)` .trn"
        )
    return [pair(where, re.sub(r" +", "\t", line.strip(" "), count=1)) for where, line in lines]


def is_manifest(path: str | os.PathLike) -> bool:
    """Whether a file is a manifest, by its name and its first line."""
    return os.fspath(path).endswith((".jsonl", ".jsonl.gz")) and not has_transcripts(path)


def has_transcripts(path: str | os.PathLike) -> bool:
    """Whether a file holds the JSON lines of `asr-decode --json`; not of a pipe, which is read but once."""
    try:
        with open_file(path, "") as file:
            return _is_transcript(unpacked(file, path).readline(LINE).decode("utf-8-sig"))
    except (UserError, ValueError, *DAMAGED):  # whoever reads the file names the fault
        return False


def _is_transcript(line: str) -> bool:
    """Whether a line is a JSON object with a text, as no cut of a manifest has one."""
    try:
        return line.lstrip().startswith("{") and "text" in json.loads(line)
    except (ValueError, RecursionError):
        return False


def transcripts(path: str | os.PathLike) -> list[Transcript]:
    """Read the JSON lines of `asr-decode --json`, without n-best lists.

    raises   UserError if the file can't be read, or a line is no transcript; names file and line
    """
    return [_transcript(where, line) for where, line in read_lines(Path(path))]


def _id_and_text(where: str, line: str) -> tuple[str, str]:
    """Read the id and the text of one JSON line."""
    found = _transcript(where, line)
    return found.id, normalize(found.text)


def _transcript(where: str, line: str) -> Transcript:
    """Read one line; numbers are finite, and texts have no control characters."""
    try:
        found = Transcript.of_json(json.loads(line))
        names = [found.id, found.text, *(part.text for part in found.segments)]
        words = [word for part in found.segments for word in part.words]
        fault = manifest.fault(found.id)
        numbers = [found.start, found.duration, *(time for w in words for time in (w.start, w.end))]
        probable = [word.confidence for word in words]
        names += [word.text for word in words]
        faults = [f"a text {f}" for name in names if (f := manifest.fault_of_text(name))]
        faults += [f"its id {fault}"] if fault else []
        faults += [f"got {n!r} as seconds" for n in numbers if not manifest.fits(n, int, float)]
        faults += [f"got {c!r} as a confidence" for c in probable if not _is_confidence(c)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        faults = [f"{type(error).__name__}: {error}"]
    if faults:
        raise UserError(f"{where}: expected a line of `asr-decode --json`, but {faults[0][:200]}")
    return found


def _is_confidence(value: object) -> bool:
    """Whether a value is a confidence, or NaN, where none is known."""
    return isinstance(value, float | int) and (value != value or 0 <= value <= 1)


def _unique(pairs: list[tuple[str, str]], where: object) -> dict[str, str]:
    """Map ids to texts; refuse an id that is repeated."""
    refuse(
        repeated(name for name, _ in pairs),
        f"repeated ids in {where}",
        "each utterance has one text",
    )
    return dict(pairs)


def pair(where: str, line: str) -> tuple[str, str]:
    """Read one line."""
    name, tab, text = line.partition("\t")
    name = name.strip()
    if not name or (not tab and " " in name):
        raise UserError(f"{where}: expected `id<TAB>text`, got {line[:60]!r}")
    if "\t" in text.strip("\t"):
        raise UserError(
            f"{where}: expected `id<TAB>text`, got another tab in the text {text[:60]!r}; is it a table?"
        )
    if fault := names.fault_of_text(text):
        raise UserError(f"{where}: the text {fault}; take that out")
    return name, normalize(text)


def match(ref: dict[str, str], hyp: dict[str, str], ref_name: object, hyp_name: object) -> None:
    """See that references and hypotheses are of the same utterances, and that no reference is empty."""
    empty = [name for name in ref if not ref[name]]
    refuse(empty, f"empty references in {ref_name}", "an error rate needs words to compare with")
    missing, extra = [i for i in ref if i not in hyp], [i for i in hyp if i not in ref]
    faults = [f"{len(missing)} missing ({shorten(missing)})"] if missing else []
    faults += [f"{len(extra)} that {ref_name} doesn't have ({shorten(extra)})"] if extra else []
    if faults:
        fix = (
            "; choose deletions for `missing` to count them as errors"
            if missing and not extra
            else ""
        )
        raise UserError(
            f"{hyp_name}: expected the {len(ref)} ids of {ref_name}, got {' and '.join(faults)}{fix}"
        )
