"""asr-score: reference and hypothesis → WER and CER, or MER, or BLEU, with their intervals."""

import os
from argparse import SUPPRESS

from asr.cli.command import ANEW, command, emit, parser, place
from asr.errors import UserError
from asr.logging import logger

EXAMPLES = """The formats of REF and HYP, recognized by suffix or content, packed by gzip (.gz) or not:
  .jsonl            manifest of asr-prepare
  .trn              lines of `text (id)`
  .stm              lines of `file channel speaker start end [<labels>] text`: segments; those with the text
                    IGNORE_TIME_SEGMENT_IN_SCORING, and what HYP has there, don't count
  .ctm              lines of `file channel start duration word [confidence]`. Words belong to the segments of an stm by
                    their midpoints; without an stm, all words of a file are one utterance, named `file`
  others            JSON lines of asr-decode --json; lines of `id<TAB>text`; or, if no line has a tab, of `id text`
                    (Kaldi's `text`)

units, and the names of their error rates:
  word   WER: words, separated by spaces
  char   CER: characters, including the spaces between words
  mixed  MER: single characters of scripts without spaces between words (Han, kana, Thai ...), words of other scripts;
         an English word in a Mandarin sentence counts once. For AISHELL, this is usually called CER, and WeNet counts
         it this way. Without such characters it equals WER
  both   word and char
  auto   mixed if REF has a character of a script without spaces, else both

Texts are compared as they are written (composed, NFC), with case and punctuation, unless --normalize rewrites both:
  plain    upper case; no full-width forms (NFKC); no punctuation, except apostrophes between letters
  english  like plain, and no accents
  FILE     rules of a YAML file: `base: english` (or plain, none), and under `rules:` whole words → words, such as
           `OK: OKAY`, `"21": TWENTY ONE` or `UH: ""`. A text is rewritten in one pass, the longest match first

The brackets show the 95 % bootstrap confidence interval over utterances.

examples:
  asr-score data/an4/test.jsonl.gz exp/an4/test.txt
  asr-score data/an4/test.jsonl.gz exp/new.txt --against exp/old.txt --unit word
  asr-score test.txt from-elsewhere.txt --normalize plain
  asr-score data/an4/test.jsonl.gz exp/an4/test.json --report exp/an4/report.html
  asr-score val.de exp/multi30k/val.de --bleu --tokenize none
"""


OF_ERRORS = {"unit": "auto", "normalize": None, "missing": "refuse", "report": None}


def arguments():
    """Describe the command's arguments; the same as those of `asr.score`, and its outputs."""
    args = parser(
        "asr-score", "Compute word and character error rates, or evaluate translations.", EXAMPLES
    )
    args.add_argument("ref", type=place, metavar="REF", help="reference")
    args.add_argument(
        "hyp",
        type=place,
        metavar="HYP",
        help="hypotheses for exactly the utterances in REF",
    )
    args.add_argument(
        "--unit",
        choices=["auto", "word", "char", "mixed", "both"],
        default="auto",
        help="default: auto",
    )
    args.add_argument(
        "--against", type=place, metavar="HYP2", help="compare with a second system's hypotheses"
    )
    args.add_argument(
        "--normalize",
        type=place,
        metavar="NAME",
        help="rewrite all texts before comparing them: none (default), plain, english, or a FILE.yaml of rules",
    )
    args.add_argument("--normalise", dest="normalize", type=place, help=SUPPRESS)
    args.add_argument(
        "--missing",
        choices=["refuse", "deletions"],
        default="refuse",
        help="an utterance without a hypothesis is an error (default), or all its words count as deleted",
    )
    args.add_argument(
        "--bleu",
        action="store_true",
        help="evaluate translations: BLEU and chrF by sacrebleu; all files have one sentence per line",
    )
    args.add_argument(
        "--tokenize",
        default="13a",
        metavar="NAME",
        help="with --bleu: sacrebleu's tokenizer: 13a (default), none for tokenized texts, intl, char, zh",
    )
    args.add_argument("--lowercase", action="store_true", help="with --bleu: ignore case")
    args.add_argument(
        "--json",
        type=place,
        metavar="FILE",
        help="write all counts, also by utterance, to FILE; - is stdout",
    )
    args.add_argument(
        "--report",
        type=place,
        metavar="HTML",
        help="write a page of every error to HTML, with sound if REF is a manifest",
    )
    args.add_argument(
        "--force", action="store_true", help="replace files that this command didn't make"
    )
    return args


@command(hint=ANEW)
def main(argv):
    """Score, print one line per unit, and write the JSON file and the page."""
    args = arguments().parse_args(argv)
    from asr.scoring import score
    from asr.scoring.page import Compared, is_page, write_page
    from asr.scoring.report import is_report

    check(args, is_report, is_page)
    if args.bleu:
        return show(args, translations(args))
    report = score(args.ref, args.hyp, args.unit, args.against, args.normalize, args.missing)
    for note in [*report.notes, f"normalization: {report.normalization}"]:
        logger.info(note)
    show(args, report)
    if args.report:
        write_page(args.report, report, Compared(args.ref, args.hyp, args.against, args.normalize))
        logger.info(f"written: {args.report}")


def translations(args):
    """Judge translations."""
    from asr.scoring.translation import score_translations

    return score_translations(args.ref, args.hyp, args.against, args.tokenize, args.lowercase)


def show(args, report):
    """Print one line per score, and write the JSON file."""
    import json

    from asr.files import write_text
    from asr.outputs import STDOUT

    counts = json.dumps(report.as_json(), indent=1, ensure_ascii=False)
    emit(counts if args.json == STDOUT else "\n".join(report.lines()))
    if args.json and args.json != STDOUT:
        write_text(args.json, counts + "\n")
        logger.info(f"written: {args.json}")


def check(args, is_report, is_page):
    """See that the outputs replace no input, and nothing that isn't this command's."""
    from asr.outputs import STDOUT, check_output

    other = [name for name, default in OF_ERRORS.items() if getattr(args, name) != default]
    if args.bleu and other:
        raise UserError(f"--{other[0]}: is for error rates, not for --bleu; leave it out")
    if not args.bleu and (args.lowercase or args.tokenize != "13a"):
        raise UserError("--tokenize, --lowercase: are for --bleu; add it, or leave them out")
    if args.report == STDOUT:
        raise UserError("--report: got -, expected the name of a file")
    if args.report and args.json and os.path.realpath(args.report) == os.path.realpath(args.json):
        raise UserError(f"--json and --report: both are {args.json}; give each its own file")
    inputs = [path for path in (args.ref, args.hyp, args.against, args.normalize) if path]
    if args.json and args.json != STDOUT:
        check_output("--json", args.json, "asr-score", inputs, args.force, is_report)
    if args.report:
        check_output("--report", args.report, "asr-score", inputs, args.force, is_page)


if __name__ == "__main__":
    main()
