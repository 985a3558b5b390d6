"""References and hypotheses: id → text, from a manifest or from `id<TAB>text` lines."""

import os
from pathlib import Path

from asr.data import manifest
from asr.data.corpora.corpus import read_lines, refuse
from asr.errors import UserError, shorten
from asr.text.normalise import normalise


def read_texts(path: str | os.PathLike) -> dict[str, str]:
    """Read a manifest (.jsonl, .jsonl.gz) or a text file of `id<TAB>text`; an id alone has an empty text.

    Characters are composed (NFC), as those of tokens are: else a word could be right and not equal.
    raises   UserError if the file can't be read, a line is of another form, or an id is repeated
    """
    path = Path(path)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        pairs = [(utterance.id, normalise(utterance.text)) for utterance in manifest.read(path)]
    else:
        pairs = [pair(where, line) for where, line in read_lines(path)]
    if not pairs:
        raise UserError(f"{path}: is empty; expected a manifest or lines of `id<TAB>text`")
    texts = dict(pairs)
    if len(texts) < len(pairs):
        seen = set()
        repeated = [name for name, _ in pairs if name in seen or seen.add(name)]
        refuse(repeated, f"repeated ids in {path}", "each utterance has one line")
    return texts


def pair(where: str, line: str) -> tuple[str, str]:
    """Read one line."""
    name, tab, text = line.partition("\t")
    name = name.strip()
    if not name or (not tab and " " in name):
        raise UserError(f"{where}: expected `id<TAB>text`, got {line[:60]!r}")
    return name, normalise(text)


def match(ref: dict[str, str], hyp: dict[str, str], ref_name: object, hyp_name: object) -> None:
    """See that references and hypotheses are of the same utterances, and that no reference is empty."""
    empty = [name for name in ref if not ref[name]]
    refuse(empty, f"empty references in {ref_name}", "an error rate needs words to compare with")
    missing, extra = [i for i in ref if i not in hyp], [i for i in hyp if i not in ref]
    faults = [f"{len(missing)} missing ({shorten(missing)})"] if missing else []
    faults += [f"{len(extra)} that {ref_name} doesn't have ({shorten(extra)})"] if extra else []
    if faults:
        raise UserError(f"{hyp_name}: expected the {len(ref)} ids of {ref_name}, got {' and '.join(faults)}")
