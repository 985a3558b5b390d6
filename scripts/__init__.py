"""What the toolkit is measured, planned and compared with: `python -m scripts.NAME`, from the checkout."""

import argparse
import shlex


def add_decode(args: argparse.ArgumentParser) -> None:
    """Add `--decode`, the options with which a script calls asr-decode: a list of words."""
    args.add_argument(
        "--decode",
        type=shlex.split,
        default=[],
        metavar="OPTIONS",
        help="of asr-decode, in one word",
    )
