"""Describe any file or folder, or explain in one line why that isn't possible."""

import errno
import gzip
import io
import json
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from asr.audio import archive, containers
from asr.audio import load as audio
from asr.audio.first_bytes import is_text, looks_like_sound
from asr.audio.sound import SUFFIXES
from asr.data import manifest
from asr.errors import UserError
from asr.info import folders
from asr.info.folders import Finding, plain, read_small_tree, section, tokenizer
from asr.model_files import DIGEST, read_header
from asr.text.tokenizer import names_of_files

HEAD = 4096  # bytes from which the kind is recognized
LONGEST = 16 << 20  # bytes per line
MOST_ORDER = 20
SPEAKERS = 1_000_000  # most that are counted
SPECIAL = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def look(path: str) -> Finding:
    """Describe a file or folder. None of it is run, and only its first bytes decide how it is read.

    raises   UserError if the path is missing, unreadable, damaged, or of an unknown kind
    """
    if not path:
        raise UserError("got an empty name, expected a file or folder")
    try:
        mode = os.stat(path).st_mode
        if special := SPECIAL.get(stat.S_IFMT(mode)):
            raise UserError(f"{path}: is {special}; expected a file or folder")
        return folders.describe(path) if stat.S_ISDIR(mode) else describe(path)
    except FileNotFoundError as error:
        missing = os.fsdecode(error.filename or path)
        broken = "a broken link" if os.path.islink(missing) else "no such file or folder"
        raise UserError(f"{missing}: {broken}{folders.near(missing)}") from None
    except OSError as error:
        name = os.fsdecode(error.filename or path)
        short = f"{name[:80]}…" if error.errno == errno.ENAMETOOLONG else name
        raise UserError(f"{short}: can't be read ({error.strerror or error})") from None
    except (MemoryError, RecursionError) as error:
        what = (
            "needs more memory than there is"
            if isinstance(error, MemoryError)
            else "is nested too deeply"
        )
        raise UserError(f"{path}: {what}; is it damaged, or malicious?") from None


def describe(path: str) -> Finding:
    """Describe a file by its name and its first bytes.

    raises   UserError if it is unreadable, empty, damaged, or of no kind that this toolkit knows
    """
    name = os.path.basename(path)
    with open(path, "rb") as file:
        head = file.read(HEAD)
    if not head:
        raise UserError(f"{path}: is empty")
    if name in names_of_files():
        return tokenizer(path, Path(path).parent)
    if name.endswith((".jsonl", ".jsonl.gz")):
        return manifest_of(path)
    if name.endswith(".stamp.json"):
        return stamp_of(path)
    if name.endswith(".safetensors"):
        return weights_of(path)
    if name.endswith((".yaml", ".yml")):
        return configuration(path)
    if Path(path).suffix.lower() in SUFFIXES | containers.SUFFIXES or looks_like_sound(head):
        return recording(path)
    start = unpacked_head(path) if head.startswith(b"\x1f\x8b") else head
    if start.lstrip().startswith(b"\\data\\") or ".arpa" in name:
        return ngrams(path)
    return text(path, start)


def unpacked_head(path: str) -> bytes:
    """Return the first bytes of a gzip file's content.

    raises   UserError if it is damaged
    """
    with opened(path) as file:
        return read_some(path, file)


def read_some(path: str, file: IO[bytes]) -> bytes:
    try:
        return file.read(HEAD)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged ({error}); copy it again") from None


def opened(path: str) -> IO[bytes]:
    """Open a file, gzipped or not."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return io.BufferedReader(gzip.open(path)) if packed else open(path, "rb")


def lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a file, gzipped or not.

    raises   UserError if it is damaged, or has a line too long for text
    """
    number = 0
    try:
        with opened(path) as file:
            while line := file.readline(LONGEST):
                number += 1
                if len(line) == LONGEST:
                    raise UserError(
                        f"{path}:{number}: a line of more than {LONGEST >> 20} MB; is it text?"
                    )
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged after line {number} ({error}); copy it again") from None


def manifest_of(path: str) -> Finding:
    """Describe a manifest, reading its lines one by one."""
    next(lines(path), b"")  # checks that it isn't too long
    rates: Counter[int] = Counter()
    channels: Counter[int] = Counter()
    kinds: Counter[str] = Counter()
    speakers: set[str] = set()
    count, texts, seconds, longest = 0, 0, 0.0, 0.0
    first = ""
    for utterance in manifest.read(path):
        first = first or utterance.path
        count, seconds, longest = (
            count + 1,
            seconds + utterance.duration,
            max(longest, utterance.duration),
        )
        rates[utterance.rate] += 1
        channels[utterance.channels] += 1
        texts += bool(utterance.text)
        kinds["Shar" if not utterance.path or archive.place(utterance.path) else "files"] += 1
        if utterance.speaker and len(speakers) < SPEAKERS:
            speakers.add(utterance.speaker)
    if not count:
        raise UserError(f"{path}: has no utterances; prepare it again")
    return Finding(
        path,
        "manifest",
        {
            "utterances": count,
            "hours": round(seconds / 3600, 3),
            "longest_s": round(longest, 2),
            "rates_hz": sorted(rates),
            "channels": sorted(channels),
            "speakers": len(speakers) or "unknown",
            "with_text": texts,
            "recordings_in": sorted(kinds),
            "first_recording": first,
            "first_is_there": is_there(first),
        },
    )


def is_there(path: str) -> bool:
    """Tell whether a recording, or the archive that holds it, exists."""
    within = archive.place(path)
    return bool(path) and os.path.exists(within.archive if within else path)


def ngrams(path: str) -> Finding:
    """Describe an n-gram model by its header.

    raises   UserError if the header is damaged, or the file is truncated as far as that shows
             without reading all
    """
    counts: list[int] = []
    found = lines(path)
    for line in found:
        line = line.strip()
        match = re.fullmatch(rb"ngram (\d{1,3})\s*=\s*(\d{1,15})", line)
        if match and int(match[1]) == len(counts) + 1 <= MOST_ORDER:
            counts.append(int(match[2]))
        elif line == b"\\1-grams:" and counts:
            break
        elif line and line != b"\\data\\" and not (line.startswith(b"#") and not counts):
            shown = line[:60].decode(errors="replace")
            raise UserError(
                f"{path}: got {shown!r} in its header, expected 'ngram {len(counts) + 1}=<number>'"
            )
    else:
        raise UserError(
            f"{path}: ends within its header; expected \\1-grams: and its n-grams; copy it again"
        )
    words = [
        line.split()[1].decode(errors="replace")
        for line, _ in zip(found, range(8), strict=False)
        if line.split()[1:]
    ]
    if not ends(path):
        raise UserError(f"{path}: truncated, it doesn't end with \\end\\; copy or make it again")
    facts = {
        "order": len(counts),
        "ngrams": counts,
        "words": counts[0],
        "first_words": " ".join(words),
    }
    return Finding(path, "n-gram language model (ARPA)", facts)


def ends(path: str) -> bool:
    """Tell whether an ARPA file is complete; a gzipped one is assumed to be, since only reading all would show it."""
    with open(path, "rb") as file:
        if file.read(2) == b"\x1f\x8b":
            return True
        file.seek(max(0, file.seek(0, os.SEEK_END) - 64))
        return file.read().rstrip().endswith(b"\\end\\")


def recording(path: str) -> Finding:
    """Describe a sound file."""
    import soundfile

    header = audio.info(path)
    with open(path, "rb") as raw, soundfile.SoundFile(raw) as file:  # its name might not be UTF-8
        kind = f"{file.format_info}, {file.subtype_info}"
    facts = {
        "rate_hz": header.rate,
        "channels": header.channels,
        "seconds": round(header.duration, 3),
        "format": kind,
    }
    return Finding(path, "recording", facts)


def weights_of(path: str) -> Finding:
    """Describe a file of weights."""
    header = read_header(Path(path))
    facts = {
        "parameters": header.parameters,
        "tensors": len(header.shapes),
        "types": sorted(set(header.types.values())),
    }
    return Finding(path, "weights (safetensors)", facts | {"checksums": DIGEST in header.metadata})


def stamp_of(path: str) -> Finding:
    """Describe a stamp."""
    try:
        stamped = json.loads(read_small(path))
        made, inputs = stamped.get("made") or {}, stamped["inputs"]
        facts = {
            "command": stamped["command"],
            "version": stamped.get("version"),
            "inputs": len(inputs),
        }
        facts |= {name: made.get(name) for name in ("commit", "hardware", "seconds")}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(
            f"{path}: damaged, not a stamp of this toolkit; repeat the work that it stamps"
        ) from None
    return Finding(
        path, "stamp of finished work" if made else "stamp of work that isn't finished", facts
    )


def read_small(path: str) -> bytes:
    """Read a file; refuse one larger than such files are."""
    with open(path, "rb") as file:
        content = file.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise UserError(
            f"{path}: has more than {LONGEST >> 20} MB, too much for such a file; is it the right one?"
        )
    return content


def configuration(path: str) -> Finding:
    """Describe the settings of an experiment."""
    tree = read_small_tree(Path(path))
    kind = section(tree, "model").get("kind")
    if not isinstance(kind, str) or "out" not in tree:
        raise UserError(
            f"{path}: YAML, but not an experiment of asr-train: it lacks out and model.kind"
        )
    encoder, train = (
        section(section(tree, "model"), "encoder").get("kind"),
        section(tree, "data").get("train"),
    )
    facts = {
        "model": kind,
        "encoder": plain(encoder),
        "out": plain(tree["out"]),
        "train": plain(train),
    }
    return Finding(path, "configuration of asr-train", facts)


def text(path: str, start: bytes) -> Finding:
    """Describe a text: plain, lines of `id<TAB>text`, or a table of recordings.

    raises   UserError if it isn't UTF-8 text
    """
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(
            f"{path}: is UTF-16 text, expected UTF-8; convert it, for example with iconv -f UTF-16 -t UTF-8"
        )
    if b"\0" in start or not is_text(start):
        raise UserError(
            f"{path}: unknown kind of file: not sound, text, manifest, weights or n-gram model"
        )
    count = words = characters = empty = tabbed = 0
    for count, line in enumerate(lines(path), 1):  # noqa: B007 - told below
        try:
            decoded = line.decode("utf-8-sig" if count == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}:{count}: not UTF-8 text (byte {error.start + 1} of the line)"
            ) from None
        tabbed += "\t" in decoded
        text = decoded.partition("\t")[2] if "\t" in decoded else decoded
        empty += not text.strip()
        words += len(text.split())
        characters += len(text)
    facts: dict[str, object] = {
        "lines": count,
        "words": words,
        "characters": characters,
        "without_text": empty,
    }
    return Finding(path, table_kind(start, tabbed, count), facts)


def table_kind(start: bytes, tabbed: int, lines: int) -> str:
    """Name the kind of a text from its first line and the number of lines with a tab."""
    first = (
        start.split(b"\n", 1)[0]
        .decode("utf-8", "replace")
        .lstrip("\ufeff")
        .rstrip("\r")
        .lower()
        .split("\t")
    )
    if {"id", "path", "text"} <= set(first):
        return "table of recordings, for asr-prepare tsv"
    if {"client_id", "path", "sentence"} <= set(first):
        return "table of Common Voice"
    if tabbed == lines:
        return "texts with ids (id<TAB>text), as written by asr-decode"
    return f"text with tabs in {tabbed} of {lines} lines" if tabbed else "text"
