"""asr-download: fetch a corpus from its servers, check and unpack it."""

from asr.cli.command import command, parser, place

EXAMPLES = """corpora and their parts (from OpenSLR, except an4 and multi30k):
  librispeech     train-clean-100, train-clean-360, train-other-500, dev-clean, dev-other, test-clean, test-other
  librispeech-lm  text (librispeech-lm-norm.txt.gz, not unpacked), vocabulary
  aishell         data, resource
  an4, yesno      small
  musan, rirs     noises and impulse responses, for data augmentation in training (data.augment)
  multi30k        English and German captions, for translation; each file is a part, such as val.en.gz

If you run the command again, it continues where it stopped; parts that are already there are left alone. Archives
that you put into FOLDER yourself are checked, unpacked, and kept. Unfinished work is in FOLDER/.download. Choose a
FOLDER that only you can write to.

examples:
  asr-download librispeech corpora --parts train-clean-100 dev-clean test-clean
  asr-download aishell corpora --mirror https://openslr.magicdatatech.com/resources
  asr-download librispeech corpora --dry-run
"""


def arguments():
    """Describe the command's arguments; the same as those of `asr.download.download.download`."""
    args = parser(
        "asr-download", "Fetch a corpus into FOLDER, check it, and unpack it there.", EXAMPLES
    )
    args.add_argument("corpus", metavar="CORPUS", help="name of the corpus (see below)")
    args.add_argument(
        "folder", type=place, metavar="FOLDER", help="where to put LibriSpeech/, data_aishell/, ..."
    )
    args.add_argument(
        "--parts", nargs="+", default=[], metavar="NAME", help="only these parts (default: all)"
    )
    args.add_argument(
        "--mirror",
        default="",
        metavar="URL",
        help="a server to try first, such as https://HOST/resources",
    )
    args.add_argument("--keep-archives", action="store_true", help="keep the archives, in FOLDER")
    args.add_argument(
        "--dry-run",
        action="store_true",
        help="only report what would be done, and the disk space it needs; status 2 if there is too little",
    )
    return args


@command
def main(argv):
    """Download what isn't there yet."""
    args = arguments().parse_args(argv)
    from asr.download.download import download

    download(args.corpus, args.folder, args.parts, args.mirror, args.keep_archives, args.dry_run)


if __name__ == "__main__":
    main()
