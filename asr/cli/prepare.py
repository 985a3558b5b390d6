"""asr-prepare: a corpus in its own layout → one manifest per split; parallel texts → two checked files per split."""

import os
from argparse import SUPPRESS
from textwrap import fill

from asr.cli.command import SOME_FAILED, channel, command, count, parser, place
from asr.data.corpora import CORPORA
from asr.errors import UserError
from asr.logging import logger
from asr.parts import parse

EXAMPLES = """A sound file that can't be used (missing, unreadable, not audio, truncated, without the given channel) is
named and left out. OUT/failed.tsv lists all such files, and the exit status is 3. Run the command again when they are
fixed. If a whole split or more than half of all files can't be used, or a table has a mistake, no manifest is
written, and the status is 2. Recordings that only ffmpeg reads (m4a, mp4, webm, ...) are decoded to FLAC files in
OUT/decoded.

examples:
  asr-prepare an4 corpora/an4 data/an4
  asr-prepare tsv recordings/all.tsv data/mine --dev 0.05 --test 0.1 --normalize plain
  asr-prepare librispeech corpora data/librispeech --splits train-clean-100 dev-clean --shar
  asr-prepare librispeech corpora data/librispeech && sbatch --array=1-200 copy.sh
      copy.sh: asr-prepare librispeech corpora data/librispeech --shar --part auto
  asr-prepare librispeech corpora data/librispeech --shar --join 200
  asr-prepare folder corpora/musan/noise data/noise
  asr-prepare tsv calls/agents.tsv data/agents --channel 1
  asr-prepare parallel corpora/multi30k data/multi30k --languages en de
"""

PARALLEL = "parallel"
TEXTS = (
    "SOURCE holds <split>.<language> for two --languages, one sentence per line, .gz or not; "
    "they become OUT/<split>.<language>"
)

SHOWN = 20  # unusable files that are listed


def layouts():
    """Describe what SOURCE holds, corpus by corpus."""
    corpora = CORPORA | {PARALLEL: TEXTS}
    width = max(map(len, corpora))
    indent = " " * (width + 3)
    described = [
        fill(f"  {name:{width}} {text}", width=120, subsequent_indent=indent)
        for name, text in corpora.items()
    ]
    return "\n".join(["corpora:", *described, "", ""])


def arguments():
    """Describe the command's arguments; the same as those of `asr.data.prepare.prepare`."""
    what = "Write one lhotse manifest, OUT/<split>.jsonl.gz, per split of a corpus."
    args = parser("asr-prepare", what, layouts() + EXAMPLES)
    args.add_argument("corpus", metavar="CORPUS", help=", ".join([*CORPORA, PARALLEL]))
    args.add_argument(
        "source", type=place, metavar="SOURCE", help="the corpus, in its original layout"
    )
    args.add_argument("out", type=place, metavar="OUT", help="folder for the manifests")
    add_sets(args)
    add_shar(args)
    add_reading(args)
    args.add_argument(
        "--force", action="store_true", help="replace manifests that this command didn't make"
    )
    return args


def add_sets(args):
    """Add what the sets are, and how their texts are written."""
    args.add_argument(
        "--dev",
        type=float,
        metavar="N",
        help="split off a dev set of about N utterances (or a fraction below 1) from train, by speaker; a fraction "
        "takes evenly spaced utterances if each speaker says twice that or more. The speakers are listed in "
        "OUT/{train,dev}.speakers "
        "(default: 100 for an4, 5 for yesno, none for others)",
    )
    args.add_argument(
        "--test", type=float, metavar="N", help="split off a test set in the same way"
    )
    args.add_argument(
        "--normalize",
        choices=["plain", "english"],
        help="rewrite the texts: plain = upper case, no full-width forms (NFKC), no punctuation "
        "except apostrophes between letters; english = plain, without accents (default: texts stay as they are)",
    )
    args.add_argument("--normalise", dest="normalize", choices=["plain", "english"], help=SUPPRESS)
    args.add_argument(
        "--splits",
        nargs="+",
        metavar="NAME",
        help="prepare only these splits of the corpus (default: all)",
    )
    args.add_argument(
        "--languages",
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="for parallel: the languages at the end of the file names, such as en de",
    )


def add_shar(args):
    """Add what copies the recordings, and shares that work."""
    args.add_argument(
        "--shar",
        action="store_true",
        help="also copy the recordings into lhotse Shar folders, OUT/<split>.shar/; training reads them through the "
        "manifest OUT/<split>.shar.jsonl.gz. Use it for network disks, which are faster with few large files",
    )
    args.add_argument(
        "--flac",
        action="store_true",
        help="with --shar: decode mp3, Opus and Vorbis, and copy them as FLAC of 16 bits, which is faster to read "
        "and takes more space (default: copy them as they are)",
    )
    args.add_argument(
        "--part",
        metavar="I/N",
        help="with --shar, once the manifests exist: copy part I of N of the recordings, on any machine; auto, or "
        "auto/N: take the number from the job array of Slurm, SGE, PBS or LSF",
    )
    args.add_argument(
        "--join",
        type=count,
        metavar="N",
        help="with --shar: join the N parts that were made with --part and otherwise the same options",
    )


def add_reading(args):
    """Add how sound files are read."""
    args.add_argument(
        "--channel",
        type=channel,
        metavar="N",
        help="take channel N of the sound files, counted from 0, as for telephone calls with one speaker per channel; "
        "in a tsv, the column `channel` sets it for each recording (default: the mean of all channels)",
    )
    args.add_argument(
        "--headers-only",
        action="store_true",
        help="check only the beginnings and ends of sound files (default: decode each, to find damage within)",
    )


@command(hint="run the same command again; shards (--shar) that are finished stay")
def main(argv):
    """Prepare a corpus, then report what was made."""
    args = arguments().parse_args(argv)
    if args.corpus == PARALLEL:
        return parallel(args)
    if args.languages:
        raise UserError(f"--languages: is for parallel texts, not for {args.corpus}; leave it out")
    del args.languages
    from asr.data.prepare import prepare
    from asr.data.statistics import histograms, table

    args.part = args.part and parse(args.part, os.environ)
    made = prepare(**vars(args), progress=True)
    if made.current:
        logger.info(f"{args.out} is up to date")
        return tell(made.failed, args.out)
    for note in made.notes:
        logger.info(note)
    if made.statistics:
        logger.info(table(made.statistics))
        logger.info(histograms(made.statistics))
    logger.info(f"written: {', '.join(str(path) for path in made.manifests.values())}")
    return tell(made.failed, args.out)


def parallel(args):
    """Prepare parallel texts."""
    from asr.data.prepare_texts import prepare_texts

    defaults = arguments()
    used = {"corpus", "source", "out", "languages", "splits", "normalize", "force"}
    for name, value in vars(args).items():
        if name not in used and value != defaults.get_default(name):
            raise UserError(
                "is for recordings, not for parallel texts; leave it out", argument=name
            )
    made = prepare_texts(
        args.source, args.out, args.languages or (), args.splits, args.normalize, args.force
    )
    if made is None:
        return logger.info(f"{args.out} is up to date")
    for name, split in made.items():
        logger.info(f"{name}: {split.message}")


def tell(failed, out):
    """Name the files that were left out, and return the exit status."""
    if not failed:
        return 0
    for failure in failed[:SHOWN]:
        logger.warning(failure.line.replace("\t", ": "))
    rest = f" ({len(failed) - SHOWN} more)" if len(failed) > SHOWN else ""
    listed = f"all listed in {out}/failed.tsv{rest}"
    logger.warning(
        f"left out: {len(failed)} sound files that can't be used, {listed}; fix them and run the command again"
    )
    return SOME_FAILED


if __name__ == "__main__":
    main()
