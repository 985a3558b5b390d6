"""asr-prepare: a corpus in its own layout → one manifest a split."""

from asr.cli.command import command, parser, say

EXAMPLES = """corpora:
  librispeech  SOURCE or SOURCE/LibriSpeech holds train-clean-100/, dev-clean/, ...; each is a split of that name
  aishell      SOURCE or SOURCE/data_aishell holds wav/ (unpacked) and transcript/
  an4          SOURCE or SOURCE/an4 holds etc/ and wav/; dev: about 100 utterances, whole training speakers
  yesno        SOURCE or SOURCE/waves_yesno holds 0_1_...wav; every other file trains, every sixth of those is dev
  common_voice SOURCE, a release's folder of a language, holds clips/ and train.tsv, dev.tsv, test.tsv
  kaldi        SOURCE holds wav.scp, text and perhaps utt2spk, or folders that do, each of which is a split
  tsv          your own: a .tsv file, or a folder with train.tsv, test.tsv, ... of `id path text [speaker]`,
               tab-separated, with or without a header; paths are relative to the .tsv; where --dev or --test carve
               from a single table, it may have any name
  folder       sound files at any depth, without texts, for the augmentation of training (data.augment): noises,
               impulse responses; they become OUT/recordings.jsonl.gz

examples:
  asr-prepare an4 corpora/an4 data/an4
  asr-prepare tsv recordings/all.tsv data/mine --dev 0.05 --test 0.1 --normalise plain
  asr-prepare librispeech corpora data/librispeech --splits train-clean-100 dev-clean --shar
  asr-prepare folder corpora/musan/noise data/noise
"""


def arguments():
    """Describe the command's arguments; the same as those of `asr.data.prepare.prepare`."""
    args = parser("asr-prepare", "Write one lhotse manifest, OUT/<split>.jsonl.gz, a split of a corpus.", EXAMPLES)
    args.add_argument(
        "corpus", metavar="CORPUS", help="librispeech, aishell, an4, yesno, common_voice, kaldi, tsv, folder"
    )
    args.add_argument("source", metavar="SOURCE", help="the corpus, in its own layout")
    args.add_argument("out", metavar="OUT", help="folder for the manifests")
    args.add_argument(
        "--dev",
        type=float,
        metavar="N",
        help="carve a dev set of about N utterances (or a fraction below 1) from train, by whole speakers, or for a "
        "fraction evenly spaced where each says twice that or more; "
        "they are listed in OUT/{train,dev}.speakers (default: 100 for an4, 5 for yesno, none for others)",
    )
    args.add_argument("--test", type=float, metavar="N", help="carve a test set likewise")
    args.add_argument(
        "--normalise",
        choices=["plain", "english"],
        help="rewrite the texts: plain = upper case, full-width forms as usual ones (NFKC), no punctuation but "
        "apostrophes between letters; english = plain, and letters without accents (default: texts as they are)",
    )
    args.add_argument(
        "--shar",
        action="store_true",
        help="copy the recordings into lhotse Shar folders, too, OUT/<split>.shar/, which training reads by their "
        "manifest OUT/<split>.shar.jsonl.gz: few large files, for disks of a network",
    )
    args.add_argument("--splits", nargs="+", metavar="NAME", help="only these of the corpus' splits (default: all)")
    return args


@command
def main(argv):
    """Prepare, then tell what was made."""
    args = arguments().parse_args(argv)
    from asr.data.prepare import prepare
    from asr.data.statistics import histograms, table

    made = prepare(**vars(args), progress=True)
    if made.current:
        return say(f"{args.out} is up to date")
    for note in made.notes:
        say(note)
    if made.statistics:
        say(table(made.statistics))
        say(histograms(made.statistics))
    say(f"written: {', '.join(str(path) for path in made.manifests.values())}")


if __name__ == "__main__":
    main()
