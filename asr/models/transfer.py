"""Start a model from another one's weights: by name and shape, and where the rows of a tensor are tokens, by token."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from asr.errors import UserError, shorten
from asr.models import folder as folders
from asr.models.folder import CONFIG
from asr.ops import BLANK
from asr.text.tokenizer import Tokenizer, sos_eos

# the modules with one row per token, and whose; a test finds those of recognizers and language
# models by their shapes
BY_TOKEN = dict.fromkeys(
    ("model.ctc_out", "model.decoder.embedding", "model.decoder.out"), "tokenizer"
)
BY_TOKEN["model.embedding"] = "source_tokenizer"  # of a translator
STATISTICS = "frontend.cmvn."
SIZES = {
    "kind",
    "mels",
    "d_model",
    "layers",
    "heads",
    "ff",
    "d_k",
    "d_v",
    "subsampling",
    "stride",
    "channels",
    "kernel",
    "norm",
    "rank",
}
SIZES |= {"cgmlp", "merge_kernel", "positions"}  # settings that decide about shapes and names
SHOWN = 12  # lines of a message


@dataclass(frozen=True)
class Transfer:
    """What a model has taken from a folder; all the rest of it keeps its initialization.

    folder       where from
    loaded       names of the tensors taken whole
    rows         name → (rows taken, rows of the model); a row is a token
    other_shape  name → (shape in the folder, shape in the model)
    missing      names that the folder doesn't have
    anew         names of statistics that are of another normalization there
    unused       names of the folder that the model doesn't have
    notes        what else the person should know, one sentence each
    unlike       settings by which the two models differ, in words
    """

    folder: str
    loaded: list[str] = field(default_factory=list)
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    other_shape: dict[str, tuple[tuple, tuple]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    anew: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unlike: list[str] = field(default_factory=list)

    @property
    def has_statistics(self) -> bool:
        """Whether the statistics of CMVN came along."""
        return any(name.startswith(STATISTICS) for name in self.loaded)

    @property
    def words(self) -> dict[str, str]:
        """Name of each tensor → what became of it."""
        shapes = {
            name: f"got {got}, expected {own}; not used"
            for name, (got, own) in self.other_shape.items()
        }
        return {
            **dict.fromkeys(self.loaded, "loaded"),
            **{name: f"{taken} of {rows} rows" for name, (taken, rows) in self.rows.items()},
            **shapes,
            **dict.fromkeys(self.missing, "not in the folder"),
            **dict.fromkeys(self.anew, "of another features.cmvn; not used"),
            **dict.fromkeys(self.unused, "of the folder, not used"),
        }

    @property
    def rest(self) -> list[str]:
        """What became of all that was not loaded whole, like names together; where that is long, counted by part."""
        lines = [line for line in grouped(self.words) if not line.endswith(": loaded")]
        if len(lines) <= SHOWN:
            return lines
        brief = dict.fromkeys(self.other_shape, "of another shape") | dict.fromkeys(
            self.rows, "by rows of tokens"
        )
        parts: dict[str, Counter] = {}
        for name, word in (self.words | brief).items():
            parts.setdefault(".".join(name.split(".")[:2]), Counter())[word] += 1
        return [
            f"{part}: {', '.join(f'{n} {word}' for word, n in found.items())}"
            for part, found in parts.items()
        ]

    @property
    def remedy(self) -> str:
        """Why tensors are of another shape, and what makes them fit."""
        config = f"take model: and features: of {Path(self.folder) / CONFIG}"
        return f"{shorten(self.unlike)}; {config}" if self.unlike else config

    @property
    def message(self) -> str:
        """Count what was taken, and tell the rest by name; some lines."""
        total = len(self.words) - len(self.unused)
        parts = [f"{len(self.loaded)} of {total} tensors loaded"]
        parts += [f"{len(self.rows)} by their tokens' rows"] * bool(self.rows)
        kept = len(self.other_shape) + len(self.missing)
        parts += [f"{kept} left as initialized"] * bool(kept)
        lines = [f"init_from {self.folder}: {', '.join(parts)}"]
        lines += [f"  {line}" for line in self.rest[:SHOWN]]
        lines += [f"  and {len(self.rest) - SHOWN} more"] * (len(self.rest) > SHOWN)
        notes = [*self.notes, *[f"to have more of it: {self.remedy}"] * bool(self.unlike)]
        return "\n".join([*lines, *(f"  {note}" for note in notes)])

    def lines(self) -> str:
        """List all, `name<TAB>what became of it` a line, for a file."""
        return "".join(f"{name}\t{word}\n" for name, word in self.words.items())


def load_what_fits(model: Any, folder: str | Path, unlike: Sequence[str] = ()) -> Transfer:
    """Copy into a model, in place, the weights of a model folder that fit it by name and shape.

    Where a row is a token and the tokenizers differ, the rows of the tokens that both have are
    copied: pieces and characters by their text, blank and start/end symbol by their role.
    Statistics of CMVN are copied too, unless they are of another kind.
    unlike   settings by which the two differ (`unlike_settings`), for the messages
    raises   UserError if the folder holds no model, a damaged one, one of another kind, or one of
             which no matrix fits
    """
    try:
        other = type(model).load(folder)
    except UserError as error:
        raise UserError(f"init_from: {error}") from None
    theirs, own = other.state_dict(), _unique(model)
    anew, notes = model.unlike(other, str(folder))
    transfer = Transfer(str(folder), notes=notes, unlike=list(unlike))
    pairs = {kind: moved_tokens(other, model, kind) for kind in {*BY_TOKEN.values()}}
    for name, tensor in own.items():
        tokens = pairs.get(BY_TOKEN.get(name.rpartition(".")[0], ""))
        if name not in theirs:
            transfer.missing.append(name)
        elif anew and name.startswith(STATISTICS):
            transfer.anew.append(name)
        elif tokens and tensor.shape[1:] == theirs[name].shape[1:]:
            tensor[tokens[1]] = theirs[name][tokens[0]]
            transfer.rows[name] = len(tokens[1]), len(tensor)
        elif tensor.shape == theirs[name].shape:
            tensor.copy_(theirs[name])
            transfer.loaded.append(name)
        else:
            transfer.other_shape[name] = tuple(theirs[name].shape), tuple(tensor.shape)
    transfer.unused.extend(name for name in _unique(other) if name not in own)
    if not any(own[name].dim() > 1 for name in (*transfer.loaded, *transfer.rows)):
        raise UserError(f"init_from: {folder}: no matrix of it fits this model: {transfer.remedy}")
    return transfer


def unlike_settings(experiment: Any, folder: str | Path) -> list[str]:
    """Say by which sizes an experiment's model differs from that of a folder.

    returns  as `model.encoder.ff is 576 there, 64 here`, one a size
    raises   UserError if the folder holds no model of this kind
    """
    cls = experiment.Model.Settings
    theirs = flat(folders.read_settings(folder, cls, experiment.model.kind).model_dump())
    own = flat(experiment.model_dump(include=set(cls.model_fields)))
    names = [
        name
        for name in {**own, **theirs}
        if name.rpartition(".")[2] in SIZES and own.get(name) != theirs.get(name)
    ]
    return [
        f"{name} is {theirs.get(name, 'absent')} there, {own.get(name, 'absent')} here"
        for name in names
    ]


def flat(tree: dict, prefix: str = "") -> dict:
    """Key path → value.

    >>> flat({"a": {"b": 1}, "c": [2]})
    {'a.b': 1, 'c': [2]}
    """
    pairs = [
        flat(v, f"{prefix}{k}.") if isinstance(v, dict) else {f"{prefix}{k}": v}
        for k, v in tree.items()
    ]
    return {name: value for pair in pairs for name, value in pair.items()}


def moved_tokens(other: Any, model: Any, kind: str) -> tuple[list[int], list[int]] | None:
    """Pair the tokens of two models' tokenizers of a kind, unless they are the same, or there are none."""
    if not hasattr(model, kind):
        return None
    old, new = getattr(other, kind), getattr(model, kind)
    return None if old.symbols() == new.symbols() else shared_tokens(old, new)


def shared_tokens(old: Tokenizer, new: Tokenizer) -> tuple[list[int], list[int]]:
    """Pair the ids of the tokens that stand in both: the old ids, the new ids."""
    known = {symbol: n for n, symbol in enumerate(old.symbols()) if n not in (BLANK, sos_eos(old))}
    labels = [
        (n, symbol) for n, symbol in enumerate(new.symbols()) if n not in (BLANK, sos_eos(new))
    ]
    pairs = [(BLANK, BLANK), *((known[symbol], n) for n, symbol in labels if symbol in known)]
    pairs.append((sos_eos(old), sos_eos(new)))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def grouped(words: dict[str, str], prefix: str = "") -> list[str]:
    """Write names with the same word as one pattern, where all below a prefix have it.

    >>> grouped({"a.x": "new", "a.y": "new", "b.x": "new", "b.y": "old"})
    ['a.* (2): new', 'b.x: new', 'b.y: old']
    """
    if len(words) == 1:
        return [f"{name}: {word}" for name, word in words.items()]
    if len(set(words.values())) == 1:
        return [f"{prefix}* ({len(words)}): {next(iter(words.values()))}"]
    groups: dict[str, dict[str, str]] = {}
    for name, word in words.items():
        head, dot, _ = name[len(prefix) :].partition(".")
        groups.setdefault(f"{prefix}{head}{dot}", {})[name] = word
    return [line for below, part in groups.items() for line in grouped(part, below)]


def _unique(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model's state, shared ones once, under their first name."""
    seen: dict[int, str] = {}
    state = model.state_dict()
    return {
        name: tensor
        for name, tensor in state.items()
        if seen.setdefault(tensor.data_ptr(), name) == name
    }
