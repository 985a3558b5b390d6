"""Join corpora to one, as tables for asr-prepare tsv.

    python -m scripts.tables OUT SPLIT=SOURCE ... [--without ID ...]

Writes OUT/SPLIT.tsv of `id path text speaker`. SOURCE is a .tsv, whatever its name, or
CORPUS:FOLDER, of which the split of the same name is taken: train=an4:corpora/an4. A split given
several times is made of all. Equal names of speakers are taken for the same person.
"""

from collections.abc import Sequence
from pathlib import Path

from asr.cli.command import command, parser
from asr.data.corpora import CORPORA, Corpus, Item, reader, tsv
from asr.data.items import check_texts
from asr.errors import UserError, shorten
from asr.files import make_folder, write_text
from asr.stamp import Stamp


def read(split: str, source: str) -> list[Item]:
    """Read the items of one SOURCE."""
    corpus, colon, folder = source.partition(":")
    if not colon or corpus not in CORPORA:
        if not Path(source).is_file():
            wrong = "is a folder" if Path(source).is_dir() else "no such table"
            raise UserError(
                f"{source}: {wrong}; expected a .tsv of `id path text [speaker]`, or CORPUS:FOLDER"
            )
        return tsv.read_split(Path(source).absolute())
    splits = reader(corpus)(Path(folder).absolute()).splits
    if split not in splits:
        raise UserError(f"{source}: has no split {split!r}; it has {', '.join(splits)}")
    return splits[split]


def join(arguments: Sequence[str], without: Sequence[str] = ()) -> Corpus:
    """Read all SPLIT=SOURCE arguments but for some ids.

    raises   UserError for what asr-prepare would refuse, naming the lines of the sources
    """
    splits: dict[str, list[Item]] = {}
    for argument in arguments:
        split, equals, source = argument.partition("=")
        if not equals or not split.isidentifier():
            raise UserError(f"{argument}: expected SPLIT=SOURCE, as train=recordings.tsv")
        splits.setdefault(split, []).extend(read(split, source))
    corpus = Corpus(
        {name: [i for i in items if i.id not in without] for name, items in splits.items()}
    )
    check_texts(corpus)
    return corpus


def line(item: Item) -> str:
    """Write one row of a table."""
    return "\t".join([item.id, str(item.path), item.text, item.speaker or ""]) + "\n"


@command
def main(argv):
    """Read everything, then write the tables."""
    args = parser("tables.py", "Join corpora to one, as tables for asr-prepare tsv.", __doc__)
    args.add_argument("out", metavar="OUT", type=Path)
    args.add_argument("splits", metavar="SPLIT=SOURCE", nargs="+")
    args.add_argument(
        "--without",
        metavar="ID",
        nargs="+",
        default=[],
        help="utterances to leave out, if they are there",
    )
    args = args.parse_args(argv)
    corpus = join(args.splits, args.without)
    stamp, old = (
        Stamp(args.out, "tables.py", {"splits": args.splits}, []),
        list(args.out.glob("*.tsv")),
    )
    if old and not stamp.path.exists():
        raise UserError(
            f"{args.out}: holds {shorten(t.name for t in old)}, which this script hasn't written; choose another folder"
        )
    make_folder(args.out)
    stamp.write()  # before them: they are this script's to replace, even if it is stopped among them
    for table in old:  # asr-prepare reads all tables of a folder
        table.unlink()
    for split, items in corpus.splits.items():
        write_text(
            args.out / f"{split}.tsv", "id\tpath\ttext\tspeaker\n" + "".join(map(line, items))
        )


if __name__ == "__main__":
    main()
