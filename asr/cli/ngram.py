"""asr-ngram: texts → an n-gram model of the tokenizer's tokens, for the search."""

from asr.cli.command import command, parser, say

EXAMPLES = """examples:
  asr-ngram data/an4/train.jsonl.gz exp/an4/tokenizer exp/an4/3gram.arpa.gz --order 3
  asr-ngram train.jsonl.gz part.txt.gz exp/bpe1000 exp/lm/4gram.arpa.gz --order 4

All is held in memory: of trigrams some 120 bytes a token of the text, 1.5 to 3 GB for ten million words, and more with
the order. Of a larger text give a part.
"""


def arguments():
    """Describe the command's arguments."""
    args = parser("asr-ngram", "Estimate an n-gram model of tokens (interpolated modified Kneser-Ney).", EXAMPLES)
    texts = "text files, a sentence a line, .gz or not, and manifests (.jsonl.gz)"
    args.add_argument("source", nargs="+", metavar="TEXT", help=texts)
    args.add_argument("tokenizer", metavar="TOKENIZER", help="folder of the tokenizer")
    args.add_argument("out", metavar="OUT", help="the ARPA file to write, gzip if it ends in .gz")
    args.add_argument("--order", type=int, required=True, help="tokens of the longest n-grams, as 3")
    return args


@command
def main(argv):
    """Estimate a model, unless it is there already."""
    args = arguments().parse_args(argv)
    from asr.stamp import Stamp

    stamp = Stamp(args.out, "asr-ngram", {"order": args.order}, [*args.source, args.tokenizer])
    if stamp.is_current():
        return say(f"{args.out} is up to date")
    from tqdm import tqdm

    from asr.data import texts
    from asr.text import kneser_ney, tokenizer

    pieces = tokenizer.load(args.tokenizer)
    lines = (line for source in args.source for line in texts.read(source) if line.text.strip())
    lines = tqdm(lines, unit=" sentences", disable=None, leave=False)
    orders = kneser_ney.estimate((pieces.encode(x.text, x.where) for x in lines), pieces.vocabulary, args.order)
    stamp.remove()
    kneser_ney.write_arpa(args.out, orders, pieces.symbols())
    stamp.write()
    for n, order in enumerate(orders, 1):
        discounts = ", ".join(f"{x:.3f}" for x in order.discounts)
        why = "" if order.estimated else " (by default: the text is too small or too regular to estimate them)"
        say(f"{len(order.words)} {n}-grams, discounts {discounts}{why}")
    say(args.out)


if __name__ == "__main__":
    main()
