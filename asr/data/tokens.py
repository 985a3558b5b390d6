"""A text's token ids on disk: tokenized once, by several processes, and mapped into memory.

A folder of plain arrays: `ids` of all sentences one behind the other, `offsets` of the sentences in
them, `lines` of the text where these stand, `long` lines that were left out; and `state.json`,
which counts what the arrays hold. A stamp of the text, the tokenizer and max_tokens tells that they
are whole. Before that, state.json says how far they are good, and the same call goes on from there.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from asr.data import texts
from asr.data.columns import Ragged
from asr.data.texts import Sentences, encoded, none_to_use
from asr.errors import UserError
from asr.files import UNWRITABLE, lock, make_folder, write_text
from asr.logging import logger, progress_bar
from asr.stamp import Stamp, is_stamped
from asr.text import tokenizer as tokenizers

# and the ids', as the vocabulary needs
TYPES = {
    "offsets": "int64",
    "lines": "int32",
    "long": "int32",
}
STATE = "state.json"
SAVE_SECONDS = 10.0  # of work that an interruption may cost


@dataclass
class State:
    """How far a text is tokenized.

    facts         of the stamp: what is tokenized, and how
    blocks        of the text, that are done
    ids           the type of a token id, once one is known
    bytes         of each array, that are good
    words, empty  as of Sentences
    """

    facts: dict
    blocks: int = 0
    ids: str = "uint8"
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(["ids", *TYPES], 0))
    words: int = 0
    empty: int = 0

    def count(self, name: str) -> int:
        """Elements of an array."""
        return self.bytes[name] // self.type(name).itemsize

    def type(self, name: str) -> np.dtype:
        """Type of an array's elements."""
        return np.dtype(TYPES.get(name, self.ids))


def stored(
    path: str,
    tokenizer: str,
    folder: str | os.PathLike,
    max_tokens: int,
    column: int | None = None,
) -> Sentences:
    """Tokenize a text into a folder, unless that is done, and map it.

    path, column  of the text; see `texts.read`
    tokenizer   its folder
    max_tokens  of a sentence
    raises      UserError as `sentences.tokenize` does, and if the folder can't be written
    """
    folder = Path(folder)
    facts = {"max_tokens": max_tokens} | ({} if column is None else {"column": column})
    stamp = Stamp(folder, "tokens", facts, [path, *tokenizers.paths_of(tokenizer)])
    if not stamp.is_current():
        refuse_other(folder)
        state = begun(folder, stamp.facts)
        parts = encoded(
            path, islice(shown(path, column), state.blocks, None), tokenizer, max_tokens
        )
        write(folder, state, parts)
        if not state.bytes["lines"]:
            raise none_to_use(path, state.count("long"), max_tokens)
        stamp.write()
    return mapped(str(path), folder)


def refuse_other(folder: Path) -> None:
    """See that a folder is new, empty, or holds tokens.

    raises   UserError if it holds other files
    """
    ours = (folder / STATE).exists() or (folder / ".lock").exists() or is_stamped(folder)
    if folder.is_dir() and any(folder.iterdir()) and not ours:
        raise UserError(
            f"{folder}: holds files that are no tokens of a text; set data.tokens to another folder"
        )


def begun(folder: Path, facts: dict) -> State:
    """How far the same text has been tokenized into a folder."""
    state = found(folder)
    if state is None or state.facts != facts:
        return State(facts)
    logger.info(f"{folder}: going on after {state.count('ids'):,} tokens")
    return state


def found(folder: Path) -> State | None:
    """The state that stands in a folder."""
    try:
        return State(**json.loads((folder / STATE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def shown(path: str, column: int | None) -> Iterator[texts.Block]:
    """Read a text's blocks and show how far they are."""
    size = os.path.getsize(path) if os.path.isfile(path) else None
    with progress_bar(
        total=size, desc=f"tokenize {path}", unit="B", unit_scale=True, mininterval=0.5
    ) as bar:
        for block in texts.blocks(path, column):
            bar.update(block.position - bar.n)
            yield block


def write(folder: Path, state: State, parts: Iterator[Sentences]) -> None:
    """Append the parts of a text to the arrays of a folder; nothing is made before the first part is there."""
    if (first := next(parts, None)) is None:
        return
    with ExitStack() as stack:
        stack.enter_context(lock(make_folder(folder)))
        if state.blocks and found(folder) != state:  # read before it was held
            raise UserError(
                f"{folder}: another process was at work in it; run the same command again"
            )
        try:
            arrays = stack.enter_context(Arrays(folder, state))
            arrays.append(first)
            for part in parts:
                arrays.append(part)
            arrays.save()
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            raise UserError(
                f"{folder}: can't be written ({error.strerror}); make room, or set data.tokens"
            ) from None


class Arrays(ExitStack):
    """The files of a folder, open to be appended to; what stands there beyond the state is cut off.

    What is begun anew gets new files: another run may have mapped the old ones, and a state of them
    would be wrong.
    """

    def __init__(self, folder: Path, state: State):
        super().__init__()
        self.folder, self.state, self.saved = folder, state, time.monotonic()
        for name in (".stamp.json", *([] if state.blocks else [STATE, *state.bytes])):
            (folder / name).unlink(missing_ok=True)
        self.files = {name: self.enter_context(open(folder / name, "ab")) for name in state.bytes}  # noqa: SIM115
        for name, file in self.files.items():
            file.truncate(state.bytes[name])
        if not state.bytes["offsets"]:
            self._put("offsets", np.zeros(1))

    def append(self, part: Sentences) -> None:
        """Add the sentences of the next block."""
        state, labels = self.state, part.labels
        state.ids = labels.values.dtype.name
        self._put("offsets", labels.offsets[1:] + state.count("ids"))
        self._put("ids", labels.values)
        self._put("lines", part.lines)
        self._put("long", part.long)
        state.words, state.empty, state.blocks = (
            state.words + part.words,
            state.empty + part.empty,
            state.blocks + 1,
        )
        if time.monotonic() - self.saved > SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Make sure that all is on disk, and say so in state.json."""
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        write_text(self.folder / STATE, json.dumps(asdict(self.state), indent=1) + "\n")
        self.saved = time.monotonic()

    def _put(self, name: str, values: object) -> None:
        data = np.asarray(values, dtype=self.state.type(name)).tobytes()
        self.files[name].write(data)
        self.state.bytes[name] += len(data)


def mapped(path: str, folder: Path) -> Sentences:
    """Map what `stored` has made of a text; it takes memory only where it is read, and that the system may take back.

    raises   UserError if the state or an array is absent, or an array isn't as long as it was
    """
    state = found(folder)
    sizes = state.bytes if state else {STATE: -1}
    for name, size in sizes.items():
        if not (folder / name).is_file() or (folder / name).stat().st_size != size:
            raise UserError(f"{folder / name}: damaged; remove {folder}, and it is made anew")
    assert state, "what is without a state was refused above"
    ids, offsets, lines = (
        np.asarray(np.memmap(folder / n, state.type(n), "r")) for n in ("ids", "offsets", "lines")
    )
    long = np.fromfile(folder / "long", state.type("long")).tolist()
    return Sentences(
        path, Ragged(ids, offsets), lines, state.words, state.empty, long, (mapped, (path, folder))
    )
