"""asr-ngram: texts → an n-gram model of the tokenizer's tokens, for the search."""

from asr.cli.command import ANEW, command, parser, place
from asr.logging import logger, progress_bar

EXAMPLES = """examples:
  asr-ngram data/an4/train.jsonl.gz exp/an4/tokenizer exp/an4/3gram.arpa.gz --order 3
  asr-ngram train.jsonl.gz part.txt.gz exp/bpe1000 exp/lm/4gram.arpa.gz --order 4

All counts are held in memory: trigrams need some 120 bytes per token of the text (1.5 to 3 GB for ten million words),
and higher orders need more. For larger texts, use only a part.
"""


def arguments():
    """Describe the command's arguments."""
    args = parser(
        "asr-ngram",
        "Estimate an n-gram model of tokens (interpolated modified Kneser-Ney).",
        EXAMPLES,
    )
    texts = "text files with one sentence per line, gzipped or not, and manifests (.jsonl.gz)"
    args.add_argument("source", type=place, nargs="+", metavar="TEXT", help=texts)
    args.add_argument("tokenizer", type=place, metavar="TOKENIZER", help="folder of the tokenizer")
    args.add_argument(
        "out",
        type=place,
        metavar="OUT",
        help="the ARPA file to write, gzipped if its name ends in .gz",
    )
    args.add_argument(
        "--force", action="store_true", help="replace a file that this command didn't make"
    )
    args.add_argument(
        "--order",
        type=int,
        required=True,
        help="length of the longest n-grams in tokens, such as 3",
    )
    return args


@command(hint=ANEW)
def main(argv):
    """Estimate a model, unless it exists already."""
    args = arguments().parse_args(argv)
    import os

    from asr.errors import UserError
    from asr.outputs import check_inputs, check_output
    from asr.stamp import Stamp

    if os.path.isdir(args.out):
        raise UserError(
            f"OUT {args.out}: is a folder, expected an ARPA file; is it the tokenizer ({args.tokenizer})?"
        )
    if os.path.isfile(args.tokenizer):
        raise UserError(f"{args.tokenizer}: is a file, expected the folder of a tokenizer")
    check_output("OUT", args.out, "asr-ngram", [*args.source, args.tokenizer], args.force)
    stamp = Stamp(args.out, "asr-ngram", {"order": args.order}, [*args.source, args.tokenizer])
    if stamp.is_current():
        return logger.info(f"{args.out} is up to date")
    check_inputs([*args.source, args.tokenizer])

    from asr.data import texts
    from asr.text import kneser_ney, tokenizer

    pieces = tokenizer.load(args.tokenizer)
    lines = (line for source in args.source for line in texts.read(source) if line.text.strip())
    lines = progress_bar(lines, unit=" sentences")
    orders = kneser_ney.estimate(
        (pieces.encode(x.text, x.where) for x in lines), pieces.vocabulary, args.order
    )
    stamp.begin()
    kneser_ney.write_arpa(args.out, orders, pieces.symbols())
    stamp.write()
    for n, order in enumerate(orders, 1):
        discounts = ", ".join(f"{x:.3f}" for x in order.discounts)
        why = (
            ""
            if order.estimated
            else " (defaults: the text is too small or too regular to estimate them)"
        )
        logger.info(f"{len(order.words)} {n}-grams, discounts {discounts}{why}")
    logger.info(args.out)


if __name__ == "__main__":
    main()
