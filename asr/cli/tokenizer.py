"""asr-tokenizer: training texts → a tokenizer."""

from asr.cli.command import command, parser, say

EXAMPLES = """examples:
  asr-tokenizer data/an4/train.jsonl.gz exp/an4/tokenizer --kind characters
  asr-tokenizer data/librispeech/train-clean-100.jsonl.gz exp/bpe1000 --kind bpe --size 1000
"""


def arguments():
    """Describe the command's arguments."""
    args = parser("asr-tokenizer", "Make a tokenizer from texts.", EXAMPLES)
    args.add_argument(
        "source", nargs="+", metavar="TEXT", help="training manifests (.jsonl.gz), or text files, a sentence a line"
    )
    args.add_argument("out", metavar="OUT", help="folder for the tokenizer")
    args.add_argument("--kind", choices=["characters", "bpe"], required=True, help="what a token is")
    args.add_argument("--size", type=int, help="of a bpe vocabulary: all ids, blank and start/end symbol included")
    return args


@command
def main(argv):
    """Train a tokenizer, unless it is there already."""
    args = arguments().parse_args(argv)
    import itertools
    from pathlib import Path

    from asr.stamp import Stamp

    stamp = Stamp(args.out, "asr-tokenizer", {"kind": args.kind, "size": args.size}, args.source)
    if stamp.is_current():
        return say(f"{args.out} is up to date")
    from tqdm import tqdm

    from asr.data import texts
    from asr.errors import UserError
    from asr.files import make_folder
    from asr.text import tokenizer

    count = 0

    def read():
        nonlocal count
        lines = itertools.chain.from_iterable(map(texts.read, args.source))
        for count, line in enumerate(tqdm(lines, unit=" texts", disable=None, leave=False), 1):  # noqa: B007 - told below
            if "\t" in line.text:
                raise UserError(
                    f"{line.where}: has a tab, as a table; give the manifest that asr-prepare tsv makes of it"
                )
            yield line.text

    made = tokenizer.train(args.kind, read(), args.size)
    stamp.remove()
    made.save(make_folder(Path(args.out)))
    stamp.write()
    say(f"{args.out}: {made.vocabulary} ids from {count} texts")


if __name__ == "__main__":
    main()
