"""References and hypotheses, id → text: of a manifest, `id<TAB>text` lines, or transcripts."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from asr.data import manifest
from asr.data import manifest as names
from asr.data.corpora.corpus import read_lines
from asr.errors import UserError, refuse, repeated, shorten
from asr.text.normalize import normalize
from asr.transcript import Transcript

Texts = str | os.PathLike[str] | Mapping[str, str] | Iterable[Transcript]


def texts_of(given: Texts, argument: str) -> dict[str, str]:
    """Read texts from a file, or take them from a mapping or transcripts, composed and with single spaces.

    raises   UserError if a file can't be read, there are no texts, or an id is repeated
    """
    if isinstance(given, str | os.PathLike):
        return read_texts(given)
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


def read_texts(path: str | os.PathLike) -> dict[str, str]:
    """Read a manifest (.jsonl, .jsonl.gz) or a text file of `id<TAB>text`; an id alone has an empty text.

    Characters are composed (NFC), as those of tokens are: else a word could be right and not equal.
    raises   UserError if the file can't be read, a line is of another form, or an id is repeated
    """
    path = Path(path)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        pairs = [(utterance.id, normalize(utterance.text)) for utterance in manifest.read(path)]
    else:
        pairs = [pair(where, line) for where, line in read_lines(path)]
    if not pairs:
        raise UserError(f"{path}: is empty; expected a manifest or lines of `id<TAB>text`")
    return _unique(pairs, path)


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
