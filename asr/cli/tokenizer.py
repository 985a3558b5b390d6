"""asr-tokenizer: training texts → a tokenizer."""

from asr.cli.command import ANEW, command, parser, place
from asr.logging import logger, progress_bar
from asr.text.tokenizer import KINDS

EXAMPLES = """examples:
  asr-tokenizer data/an4/train.jsonl.gz exp/an4/tokenizer --kind characters
  asr-tokenizer data/librispeech/train-clean-100.jsonl.gz exp/bpe1000 --kind bpe --size 1000
  asr-tokenizer data/pairs.tsv exp/pairs/tokenizer --side both --kind bpe --size 8000
"""
SPACE = "\u2581"
SIDES = {"source": (0,), "target": (1,), "both": (0, 1)}  # columns of a table


def arguments():
    """Describe the command's arguments."""
    args = parser("asr-tokenizer", "Make a tokenizer from texts.", EXAMPLES)
    args.add_argument(
        "source",
        type=place,
        nargs="+",
        metavar="TEXT",
        help="training manifests (.jsonl.gz), or text files with one sentence per line",
    )
    args.add_argument("out", type=place, metavar="OUT", help="folder for the tokenizer")
    args.add_argument("--kind", choices=list(KINDS), required=True, help="type of the tokens")
    args.add_argument(
        "--side",
        choices=list(SIDES),
        help="of tables for a translator, source text<TAB>target text a line",
    )
    args.add_argument(
        "--force", action="store_true", help="replace a tokenizer that this command didn't make"
    )
    args.add_argument(
        "--size",
        type=int,
        help="size of a bpe vocabulary: all ids, including the blank and the start/end symbol",
    )
    return args


@command(hint=ANEW)
def main(argv):
    """Train a tokenizer, unless it exists already."""
    args = arguments().parse_args(argv)
    import itertools
    from pathlib import Path

    from asr.outputs import check_folder, check_inputs
    from asr.stamp import Stamp
    from asr.text import tokenizer

    check_folder(
        "OUT", args.out, tokenizer.names_of_files(), "asr-tokenizer", args.source, args.force
    )
    facts = {"kind": args.kind, "size": args.size} | ({"side": args.side} if args.side else {})
    stamp = Stamp(args.out, "asr-tokenizer", facts, args.source)
    if stamp.is_current():
        return logger.info(f"{args.out} is up to date")
    check_inputs(args.source)

    from asr.data import texts
    from asr.errors import UserError
    from asr.files import make_folder

    count = 0

    def read():
        nonlocal count
        wanted = itertools.product(args.source, SIDES.get(args.side, (None,)))
        lines = itertools.chain.from_iterable(itertools.starmap(texts.read, wanted))
        for count, line in enumerate(progress_bar(lines, unit=" texts"), 1):  # noqa: B007 - told below
            if "\t" in line.text:
                raise UserError(
                    f"{line.where}: has a tab, like a table; of recordings give the manifest that asr-prepare tsv "
                    "makes from it, of pairs of sentences the --side"
                )
            if fault := fault_of(line):
                raise UserError(f"{line.where}: {fault}")
            yield line.text

    made = tokenizer.train(args.kind, read(), args.size)
    make_folder(args.out)
    stamp.begin()
    made.save(Path(args.out))
    stamp.write()
    logger.info(f"{args.out}: {made.vocabulary} ids from {count} texts")


def fault_of(line):
    """Describe why tokens can't be learned from a line; None if they can."""
    from asr.data import manifest as names

    if fault := names.fault_of_text(line.text):
        return f"the text {fault}; remove that"
    if SPACE in line.text:
        return f"has {SPACE!r} (U+2581), which represents the space in names of tokens; remove it"
    if line.line == 1 and line.text.lstrip().startswith("{") and '"recording"' in line.text:
        return "is a line of a manifest; the file's name must end in .jsonl or .jsonl.gz"
    return None


if __name__ == "__main__":
    main()
