"""asr-info: a model folder, tokenizer, manifest, language model, recording or text → what it is."""

from asr.cli.command import MISTAKE, SOME_FAILED, command, emit, parser
from asr.logging import logger

EXAMPLES = """asr-info recognizes model folders and unfinished trainings, tokenizers, manifests and folders of them,
language models (folders and ARPA files), recordings, weights, configurations, stamps and texts. It runs no code
from them.

Exit status: 0; 2 if nothing could be described; 3 if some of the paths couldn't be described.

examples:
  asr-info exp/mini/model
  asr-info data/mini/*.jsonl.gz exp/mini/tokenizer 4gram.arpa.gz new.wav
  asr-info --json exp/*/model | jq -r '[.path, .parameters] | @tsv'
"""


def arguments():
    """Describe the command's arguments."""
    args = parser("asr-info", "Describe files and folders in a few lines.", EXAMPLES)
    args.add_argument("paths", nargs="+", metavar="PATH", help="file or folder")
    args.add_argument("--json", action="store_true", help="print one JSON object per line instead")
    args.add_argument(
        "--accept",
        action="store_true",
        help="accept manual changes to model and tokenizer folders: write new checksums",
    )
    return args


@command(hint="nothing was written")
def main(argv):
    """Describe each path, or explain why that isn't possible."""
    from asr.errors import UserError, shorten

    args = arguments().parse_args(argv)
    if args.accept:
        return accept(args.paths)
    failed = []
    for number, path in enumerate(args.paths):
        try:
            show(path, args.json, number)
        except UserError as error:
            if len(args.paths) == 1:
                raise
            failed.append(path)
            logger.info(f"asr-info: {error}")
    if not failed:
        return 0
    logger.info(
        f"asr-info: {len(failed)} of {len(args.paths)} couldn't be described: {shorten(map(ascii, failed))}"
    )
    return SOME_FAILED if len(failed) < len(args.paths) else MISTAKE


def show(path, as_json, number):
    """Print the description of a path."""
    import json

    from asr.hub import find_model
    from asr.info.look import look

    finding = look(find_model(path))
    emit(json.dumps(finding.as_json()) if as_json else "\n" * (number > 0) + finding.text())


def accept(paths):
    """Write new checksums of folders."""
    from asr.models import folder

    for path in paths:
        changed = folder.accept(path)
        what = f"with changes to {', '.join(changed)}" if changed else "nothing had changed"
        logger.info(f"{path}: accepted, {what}")


if __name__ == "__main__":
    main()
