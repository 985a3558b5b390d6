"""asr-score: reference and hypothesis → WER and CER with their intervals."""

from asr.cli.command import command, parser, say

EXAMPLES = """REF is a manifest (.jsonl.gz) or lines of `id<TAB>text`; HYP is lines of `id<TAB>text` (from asr-decode).
Words are split at whitespace; characters include the spaces between words. Brackets hold the 95 % bootstrap
interval over utterances.

examples:
  asr-score data/an4/test.jsonl.gz exp/an4/test.txt
  asr-score data/an4/test.jsonl.gz exp/new.txt --against exp/old.txt --unit word
"""


def arguments():
    """Describe the command's arguments; the same as those of `asr.scoring.score.score`, and --json."""
    args = parser("asr-score", "Count word and character errors.", EXAMPLES)
    args.add_argument("ref", metavar="REF", help="reference")
    args.add_argument("hyp", metavar="HYP", help="hypotheses; every utterance of REF, and no other")
    args.add_argument("--unit", choices=["word", "char", "both"], default="both", help="default: both")
    args.add_argument("--against", metavar="HYP2", help="test the difference to other hypotheses of the same REF")
    args.add_argument("--json", metavar="FILE", help="write all counts, those of each utterance too, to FILE")
    return args


@command
def main(argv):
    """Score, print a line a unit, and write the JSON file."""
    args = arguments().parse_args(argv)
    import json

    from asr.files import write_text
    from asr.scoring.score import score

    report = score(args.ref, args.hyp, unit=args.unit, against=args.against)
    print("\n".join(report.lines()), flush=True)
    if args.json:
        write_text(args.json, json.dumps(report.as_json(), indent=1, ensure_ascii=False) + "\n")
        say(f"written: {args.json}")


if __name__ == "__main__":
    main()
