"""What recipes/own/run.sh carves by default: the shares of a table that become its test and its dev set.

    python recipes/own/shares.py TABLES

TABLES is a folder of scripts/tables.py: train.tsv, with a header and one line per recording, and test.tsv if there is a
test set. Prints `TEST DEV`, for asr-prepare.
"""

from pathlib import Path

from asr.cli.command import command, parser
from asr.errors import UserError

TEST, DEV = (0.1, 2000), (0.05, 1000)  # of the recordings, and at most so many


def share(count: int, of_all: float, most: int) -> float:
    """The share of `count` recordings that a set has: of_all, or less where that were more than `most`."""
    return min(of_all, most / count)


@command
def main(argv):
    """Print both shares."""
    args = parser("shares.py", "Tell the shares that become test and dev set.", __doc__)
    args.add_argument("tables", metavar="TABLES", type=Path)
    tables = args.parse_args(argv).tables
    with (tables / "train.tsv").open(encoding="utf-8") as table:
        count = sum(1 for _ in table) - 1
    sets = ("train", "dev") if (tables / "test.tsv").exists() else ("train", "dev", "test")
    if count < len(sets):
        raise UserError(
            f"got {count} recordings, expected {len(sets)} at least: {', '.join(sets)} have one each"
        )
    print(*(f"{share(count, *limits):.9f}" for limits in (TEST, DEV)))


if __name__ == "__main__":
    main()
