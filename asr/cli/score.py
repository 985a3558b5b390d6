"""asr-score: reference and hypothesis → WER and CER, or MER, with their intervals."""

from asr.cli.command import command, parser, say

EXAMPLES = """REF is a manifest (.jsonl.gz) or lines of `id<TAB>text`; HYP is lines of `id<TAB>text` (from asr-decode).

units, and the rate of their errors:
  word   WER: what stands between spaces
  char   CER: each character, the spaces between words too
  mixed  MER: each character of a script without spaces between words (Han, kana, Thai ...), and each word of others;
         an English word in a Mandarin sentence is one. What AISHELL's results call CER, counted as WeNet does; without
         such characters it is the WER
  both   word and char
  auto   mixed if REF has a character of a script without spaces, else both

Texts are compared as they are written (composed, NFC), case and punctuation included, unless --normalise rewrites both:
  plain    upper case, full-width forms as usual ones (NFKC), no punctuation but apostrophes between letters
  english  plain, and letters without accents

Brackets hold the 95 % bootstrap interval over utterances.

examples:
  asr-score data/an4/test.jsonl.gz exp/an4/test.txt
  asr-score data/an4/test.jsonl.gz exp/new.txt --against exp/old.txt --unit word
  asr-score test.txt from-elsewhere.txt --normalise plain
"""


def arguments():
    """Describe the command's arguments; the same as those of `asr.scoring.score.score`, and --json."""
    args = parser("asr-score", "Count errors of words and characters.", EXAMPLES)
    args.add_argument("ref", metavar="REF", help="reference")
    args.add_argument("hyp", metavar="HYP", help="hypotheses; every utterance of REF, and no other")
    args.add_argument("--unit", choices=["auto", "word", "char", "mixed", "both"], default="auto", help="default: auto")
    args.add_argument("--against", metavar="HYP2", help="test the difference to other hypotheses of the same REF")
    args.add_argument("--normalise", choices=["plain", "english"], help="rewrite all texts before they are compared")
    args.add_argument("--json", metavar="FILE", help="write all counts, those of each utterance too, to FILE")
    return args


@command
def main(argv):
    """Score, print a line a unit, and write the JSON file."""
    args = arguments().parse_args(argv)
    import json

    from asr.files import write_text
    from asr.scoring.score import score

    report = score(args.ref, args.hyp, unit=args.unit, against=args.against, normalise=args.normalise)
    print("\n".join(report.lines()), flush=True)
    if args.json:
        write_text(args.json, json.dumps(report.as_json(), indent=1, ensure_ascii=False) + "\n")
        say(f"written: {args.json}")


if __name__ == "__main__":
    main()
