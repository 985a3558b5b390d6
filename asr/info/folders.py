"""Describe a folder: a model or its training, a tokenizer, a prepared corpus, shards, sound files."""

import json
import os
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from asr import stamp
from asr.audio import load as audio
from asr.errors import UserError, did_you_mean, shorten
from asr.model_files import (
    CONFIG,
    DIGEST,
    KINDS,
    SOURCE,
    VERSIONS,
    WEIGHTS,
    Header,
    read_header,
)
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer
from asr.yaml_tree import read_tree


@dataclass(frozen=True)
class Finding:
    """The description of a path.

    path   as given
    kind   in a few words, such as "tokenizer"
    facts  name → JSON value; None is left out of the text
    """

    path: str
    kind: str
    facts: dict[str, object]

    def text(self) -> str:
        """Format it for a terminal, without control characters from strangers."""
        known = {
            name.replace("_", " "): formatted(value)
            for name, value in self.facts.items()
            if value not in (None, "")
        }
        width = max(map(len, known), default=0)
        return "\n".join(
            [
                f"{printable(self.path)}: {self.kind}",
                *(f"  {name:{width}}  {value}" for name, value in known.items()),
            ]
        )

    def as_json(self) -> dict:
        """Return everything as plain values."""
        return {
            "path": self.path.encode("utf-8", "backslashreplace").decode(),
            "kind": self.kind,
            **self.facts,
        }


def formatted(value: object) -> str:
    """Format a fact: large numbers with thousands separators, lists with commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 100_000 else str(value)
    if isinstance(value, list):
        return ", ".join(map(formatted, value))
    if isinstance(value, dict):
        return ", ".join(
            f"{printable(str(name))} {formatted(part)}" for name, part in value.items()
        )
    return printable(f"{value:.4g}" if isinstance(value, float) else str(value))


def printable(text: str) -> str:
    r"""Escape characters that control a terminal or can't be shown.

    >>> printable("a\x1b[2J")
    'a\\x1b[2J'
    """
    shown = (
        c if unicodedata.category(c)[0] != "C" else c.encode("unicode_escape").decode()
        for c in text
    )
    return "".join(shown)


METRICS, RUN = "metrics.jsonl", "run.json"
SMALL = 64 << 20  # bytes of a file that is read completely
# of a part; the last three of a pretrained encoder, by transformers' names
SIZES = [
    "kind",
    "source",
    "layers",
    "d_model",
    "heads",
    "ff",
    "model_type",
    "num_hidden_layers",
    "hidden_size",
]
MOST_NAMES = 100
RATES = ("wer", "ctc_wer", "accuracy", "loss", "perplexity", "word_perplexity")


def describe(path: str) -> Finding:
    """Describe a folder.

    raises   UserError if it is empty, unreadable, damaged, or unknown to this toolkit; lists its
             content
    """
    folder = Path(path)
    names = set(os.listdir(folder))
    if CONFIG in names and names & {WEIGHTS, RUN, tokenizers.DESCRIPTION}:
        return model(path, folder, names)
    if tokenizers.DESCRIPTION in names:
        return tokenizer(path, folder)
    if splits := sorted(name for name in names if name.endswith((".jsonl.gz", ".jsonl"))):
        return prepared(path, folder, splits)
    if shards := [
        name for name in names if name.startswith("recording.") and name.endswith(".tar")
    ]:
        return Finding(path, "shards of recordings (lhotse Shar)", {"shards": len(shards)})
    if sounds := audio.find(folder):
        return Finding(
            path, "folder of sound files", {"files": len(sounds), "first": str(sounds[0])}
        )
    raise UserError(f"{path}: {nothing_known(folder, names)}")


def nothing_known(folder: Path, names: set[str]) -> str:
    """Describe an unknown folder: its content, and a subfolder that may be meant."""
    shown = sorted(name for name in names if not name.startswith("."))
    if not shown:
        return "is empty"
    below = [
        child
        for child in sorted(folder.iterdir())
        if any((child / n).exists() for n in (CONFIG, "tokenizer.json"))
    ]
    hint = f"; did you mean {below[0]}?" if below else ""
    return f"no model, tokenizer, manifests or sound files here; it holds {shorten(shown)}{hint}"


def model(path: str, folder: Path, names: set[str]) -> Finding:
    """Describe a model folder, or one in which training has started."""
    tree = read_small_tree(folder / CONFIG)
    part = section(tree, "model")
    kind = plain(part.get("kind"))
    if kind not in KINDS:
        expected = " or ".join(KINDS)
        raise UserError(
            f"{folder / CONFIG}: model.kind: got {kind!r}, expected {expected}; is it from another toolkit or version?"
        )
    header = None if RUN in names and WEIGHTS not in names else read_header(folder / WEIGHTS)
    tokens, made = tokenizers.load(folder), facts_of_making(folder)
    if header:
        check_vocabulary(folder, header, tokens)
    finished = stamp.is_stamped(folder)
    return Finding(
        path,
        f"model folder, a {KINDS[kind]}"
        if header
        else f"training of a {KINDS[kind]} without weights yet",
        {
            "state": "finished" if finished else "training isn't finished; asr-train continues it",
            "parameters": header and header.parameters,
            **architecture(part, kind),
            "tokenizer": in_words(tokens),
            "source_tokenizer": source_tokenizer(folder),
            **features(tree),
            "longest_heard_s": made.get("longest_seconds"),
            "trained_on": plain(section(tree, "data").get("train")),
            "dev": best(folder),
            "dev_set": plain(section(tree, "data").get("dev")),
            "changed": when(folder / (WEIGHTS if header else CONFIG)),
            "made_by": {
                name: made[name] for name in ("asr", "torch", "commit", "hardware") if name in made
            }
            or None,
            "checksums": header and DIGEST in header.metadata,
        },
    )


def read_small_tree(path: Path) -> dict:
    """Read a YAML file; refuse one larger than such files are."""
    if path.stat().st_size > SMALL:
        raise UserError(
            f"{path}: has {path.stat().st_size} bytes, too much for a configuration; is it the right file?"
        )
    return read_tree(path)[0]


def section(tree: dict, name: str) -> dict:
    """Return a section of the settings; empty if it isn't one."""
    return tree[name] if isinstance(tree.get(name), dict) else {}


def plain(value: object) -> object:
    """Return a setting if it is a name, a number or a list of names; otherwise only its type, for it may be huge."""
    if (
        isinstance(value, list)
        and len(value) <= MOST_NAMES
        and all(isinstance(part, str) for part in value)
    ):
        return value
    return (
        value
        if value is None or isinstance(value, str | int | float)
        else f"a {type(value).__name__}"
    )


def architecture(part: dict, kind: str) -> dict:
    """Describe the sizes of the parts, one line each."""
    if kind == "lm":
        return {"layers": sizes(part)}
    if kind == "translator":
        return {name: sizes(section(part, name)) for name in ("encoder", "decoder")}
    encoder = section(part, "encoder")
    return {
        "encoder": sizes(encoder | section(encoder, "architecture")),
        "decoder": sizes(section(part, "decoder")),
        "ctc_weight": part.get("ctc_weight"),
    }


def sizes(part: dict) -> dict | None:
    """Return the sizes that a part states."""
    return {name: part[name] for name in SIZES if isinstance(part.get(name), int | str)} or None


def features(tree: dict) -> dict:
    """Describe the model's features."""
    given = section(tree, "features")
    fbank = section(given, "fbank")
    return {
        "sample_rate_hz": plain((fbank or section(given, "waveform")).get("sample_rate")),
        "mel_bins": plain(fbank.get("mels", 80)) if fbank else None,
    }


def in_words(tokens: Tokenizer) -> str:
    """Describe a tokenizer's kind and size."""
    return f"{type(tokens).__name__.lower()}, {tokens.vocabulary} ids with blank and <sos/eos>"


def source_tokenizer(folder: Path) -> str | None:
    """Describe the tokenizer of what a translator reads, if that is another one."""
    path = folder / SOURCE
    return in_words(tokenizers.load(path)) if path.is_dir() else None


def check_vocabulary(folder: Path, header: Header, tokens: Tokenizer) -> None:
    """Check that the weights have one row per token.

    raises   UserError that names the tokenizer
    """
    rows = next(
        (
            shape[0]
            for name, shape in header.shapes.items()
            if name.endswith("ctc_out.bias") and shape
        ),
        None,
    )
    embeddings = {  # of the target's tokens, the decoder's, unless a translator has one for both
        name: shape[0]
        for name, shape in header.shapes.items()
        if name.endswith("embedding.weight") and shape
    }
    own = [rows for name, rows in embeddings.items() if "decoder." in name]
    rows = rows or next(iter(own or embeddings.values()), None)
    if rows is not None and rows != tokens.vocabulary:
        raise UserError(
            f"{folder / tokenizers.DESCRIPTION}: has {tokens.vocabulary} ids, the weights have {rows}; "
            "the tokenizer belongs to another model; copy the folder again"
        )


def facts_of_making(folder: Path) -> dict:
    """Read versions.json, as far as it is valid."""
    try:
        facts = json.loads((folder / VERSIONS).read_text(encoding="utf-8"))
        return {
            name: value for name, value in facts.items() if isinstance(value, str | int | float)
        }
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def best(folder: Path) -> dict | None:
    """Return the dev metrics of the weights that became the model, else of the last validation, else None."""
    chosen = last = None
    try:
        with open(folder / METRICS, encoding="utf-8", errors="replace") as file:
            for line in file:
                metrics = line_of_metrics(line)
                last = metrics if metrics.get("kind") == "dev" else last
                chosen = metrics if metrics.get("chosen") is True else chosen
    except OSError:
        return None
    metrics = chosen or last or {}
    return {
        name: metrics[name] for name in RATES if isinstance(metrics.get(name), int | float)
    } or None


def line_of_metrics(line: str) -> dict:
    """Parse a line of metrics.jsonl; empty if it is damaged."""
    try:
        metrics = json.loads(line)
        return metrics if isinstance(metrics, dict) else {}
    except (ValueError, RecursionError):
        return {}


def when(path: Path) -> str:
    """Return the time of a file's last change."""
    return (
        datetime.fromtimestamp(path.stat().st_mtime).astimezone().isoformat(" ", timespec="minutes")
    )


def tokenizer(path: str, folder: Path) -> Finding:
    """Describe a tokenizer's folder."""
    tokens = tokenizers.load(folder)
    symbols = tokens.symbols()[1:-1]
    facts = {
        "kind_and_size": in_words(tokens),
        "tokens": " ".join(symbols[:20]) + " …" * (len(symbols) > 20),
    }
    return Finding(path, "tokenizer", facts | made_of(folder))


def prepared(path: str, folder: Path, splits: list[str]) -> Finding:
    """Describe a folder of manifests."""
    return Finding(path, "folder of manifests", {"manifests": splits} | made_of(folder))


def made_of(folder: Path) -> dict:
    """Return the command, input and time that made an output, if it has a stamp."""
    try:
        stamped = stamp.read(folder)
    except UserError:
        return {}
    given = stamped["arguments"].get("source") if isinstance(stamped["arguments"], dict) else None
    inputs = list(stamped["inputs"]) if isinstance(stamped["inputs"], dict) else []
    commit = stamped["made"].get("commit") if isinstance(stamped["made"], dict) else None
    return {"made_by": stamped["command"], "made_of": given or inputs or None, "commit": commit}


def near(path: str) -> str:
    """Suggest an existing name that is similar to a missing path."""
    try:
        names = os.listdir(os.path.dirname(path) or ".")
    except OSError:
        return ""
    return did_you_mean(os.path.basename(path), names)
