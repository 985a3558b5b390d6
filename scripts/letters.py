"""Learn to copy or to reverse words of letters, the smallest tasks that exercise all parts of a translator.

    python -m scripts.letters {copy,reverse} FOLDER [key.path=value ...]

Prints how many held-out words come out right, by length: those of the training, up to 10 letters, and longer ones.
Words of 1 or 2 letters aren't tried, since all of them are in the training.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

import asr
from asr.cli.command import command, parser
from asr.text import tokenizer

TURN = {"copy": 1, "reverse": -1}
LETTERS, MOST = "abcdefgh", 10  # of a word in training
LEAST = 3  # of a held-out word
EACH = 50  # held-out words of a length
CONFIG = """
out: {folder}/model
seed: 3
tokenizer: {folder}/tokenizer
data:
  train: [{folder}/train.src, {folder}/train.tgt]
  dev: [{folder}/dev.src, {folder}/dev.tgt]
  batch_tokens: 500
model:
  kind: translator
  source: text
  encoder: {{kind: transformer, d_model: 64, layers: 2, heads: 2, ff: 64, dropout: 0, subsampling: 1}}
  decoder: {{kind: transformer, d_model: 64, layers: 2, heads: 2, ff: 64, dropout: 0, tied: true}}
  shared: true
optimizer: {{kind: adam, lr: 3e-3}}
schedule: {{kind: cosine, warmup: 20}}
training: {{epochs: 30, average: 2, device: cpu, processes: 1}}
"""


def words(draw: random.Random, number: int, lengths: Sequence[int]) -> list[str]:
    """Draw words whose lengths are equally likely."""
    return ["".join(draw.choices(LETTERS, k=draw.choice(lengths))) for _ in range(number)]


def write(folder: Path, name: str, lines: Sequence[str], turn: int) -> None:
    """Write words, and what becomes of them."""
    (folder / f"{name}.src").write_text("".join(f"{line}\n" for line in lines))
    (folder / f"{name}.tgt").write_text("".join(f"{line[::turn]}\n" for line in lines))


def prepare(folder: Path, turn: int) -> Path:
    """Write the texts, the tokenizer and the configuration of a task; return the last."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, number, seed in (("train", 8000, 3), ("dev", 100, 4)):
        write(folder, name, words(random.Random(seed), number, range(1, MOST + 1)), turn)
    tokenizer.train("characters", [" ".join(LETTERS)]).save(folder / "tokenizer")
    (folder / "x.yaml").write_text(CONFIG.format(folder=folder))
    return folder / "x.yaml"


def right(
    folder: Path, turn: int, lengths: Sequence[int], *overrides: str
) -> Iterator[tuple[int, int]]:
    """Train, and yield each length with how many of its EACH held-out words come out right."""
    model, draw = asr.train(prepare(folder, turn), *overrides), random.Random(5)
    seen = {*(folder / "train.src").read_text().split()}
    for length in lengths:
        unseen = (word for _ in count() for word in words(draw, 1, [length]) if word not in seen)
        lines = list(islice(unseen, EACH))
        found = asr.translate(model, lines, beam=4)
        yield length, sum(one.text == line[::turn] for one, line in zip(found, lines, strict=True))


@command
def main(argv):
    """Train, and print a line for each length."""
    args = parser("letters", __doc__.partition("\n")[0])
    args.add_argument("task", choices=TURN)
    args.add_argument("folder", type=Path)
    args.add_argument("overrides", nargs="*", metavar="key.path=value")
    args = args.parse_args(argv)
    for length, good in right(
        args.folder, TURN[args.task], range(LEAST, 2 * MOST + 1), *args.overrides
    ):
        print(f"{length} letters: {good} of {EACH}")


if __name__ == "__main__":
    main()
