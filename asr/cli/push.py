"""asr-push: a trained model folder → a repository on the Hugging Face Hub, with a model card."""

from asr.cli.command import AGAIN, command, emit, parser, place
from asr.errors import UserError
from asr.logging import logger

EXAMPLES = """It publishes the files of a model folder and a model card, README.md, in one commit; nothing else of a
training. The card is written from the run: sizes, hours of data, settings, hardware, and the error rates of all
decodings of manifests that this model has made in the folder of --results. A card that was edited on the hub stays as
it is. Files of a model that the repository had before, and that this one doesn't have, are removed.

Log in first: `hf auth login`, or set HF_TOKEN. It prints NAME@COMMIT, by which everybody can use the model:
  asr-decode --model NAME@COMMIT recording.wav

examples:
  asr-push exp/mini/model me/mini --license apache-2.0 --language en --dry-run
  asr-push exp/mini/model me/mini --license apache-2.0 --language en --private
  asr-push exp/multi30k/model me/multi30k --license cc-by-nc-sa-4.0 --language de --scores test_2016=bleu.json
"""


def arguments():
    """Describe the command's arguments."""
    args = parser("asr-push", "Publish a model folder on the Hugging Face Hub.", EXAMPLES)
    args.add_argument("model", type=place, metavar="MODEL", help="model folder")
    args.add_argument("name", metavar="NAME", help="owner/name on the hub")
    args.add_argument(
        "--license",
        required=True,
        metavar="ID",
        help="license of the weights, as the hub writes it, such as apache-2.0, cc-by-4.0 or other; the corpora of "
        "the training may demand one",
    )
    args.add_argument(
        "--language",
        action="append",
        default=[],
        metavar="CODE",
        help="language, such as en; for several, repeat the option",
    )
    args.add_argument(
        "--results",
        type=place,
        metavar="FOLDER",
        help="where decodings of this model are (default: the folder that MODEL is in)",
    )
    args.add_argument(
        "--scores",
        action="append",
        default=[],
        metavar="SET=FILE",
        help="scores of a set for the card, a file of asr-score --json; may be repeated",
    )
    args.add_argument(
        "--notes", type=place, metavar="FILE", help="Markdown for the end of the card"
    )
    args.add_argument("--private", action="store_true", help="make a new repository private")
    args.add_argument(
        "--message", default="", metavar="TEXT", help="of the commit (default: Publish the model)"
    )
    args.add_argument(
        "--dry-run",
        action="store_true",
        help="print the card, list the files, and publish nothing",
    )
    return args


@command(hint=AGAIN)
def main(argv):
    """Check the folder, write its card, and publish both."""
    args = arguments().parse_args(argv)
    from pathlib import Path

    from asr.hub.card import About
    from asr.hub.push import prepare, push

    about = About(args.name, args.license, args.language, notes(args))
    upload = prepare(Path(args.model), about, results(args))
    logger.info(
        f"{len(upload.files)} files, {upload.bytes / 1e6:.1f} MB: {', '.join(upload.files)}"
    )
    if args.dry_run:
        return emit(upload.card, end="")
    emit(push(args.name, upload, args.private, args.message))


def notes(args):
    """Read what the person has to say in the card."""
    from asr.files import read_bytes

    if not args.notes:
        return ""
    try:
        return read_bytes(args.notes, "no such file", 1 << 20).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{args.notes}: isn't UTF-8 text ({error.reason})") from None


def results(args):
    """Score the decodings, and read the scores."""
    from pathlib import Path

    from asr.hub.results import find_results, read_scores

    folder = Path(args.results or Path(args.model).absolute().parent)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder", argument="results")
    found = find_results(Path(args.model), folder)
    for given in args.scores:
        dataset, _, path = given.partition("=")
        if not (dataset and path):
            raise UserError(f"got {given!r}, expected SET=FILE", argument="scores")
        found += read_scores(dataset, path)
    if not found:
        logger.warning(
            f"{folder}: holds no decoding of a manifest by this model, so the card has no error rates"
        )
    return found


if __name__ == "__main__":
    main()
