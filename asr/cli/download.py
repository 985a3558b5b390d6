"""asr-download: a corpus from its servers, fetched, checked and unpacked."""

from asr.cli.command import command, parser

EXAMPLES = """corpora and their parts (OpenSLR, but for an4):
  librispeech     train-clean-100, train-clean-360, train-other-500, dev-clean, dev-other, test-clean, test-other
  librispeech-lm  text (librispeech-lm-norm.txt.gz, not unpacked), vocabulary
  aishell         data, resource
  an4, yesno      small
  musan, rirs     noises and impulse responses, for the augmentation of training (data.augment)

Run again, it goes on where it was stopped; parts that are there are left alone. Archives that you have put into
FOLDER are checked and unpacked, and stay. What is under way stands in FOLDER/.download.

examples:
  asr-download librispeech corpora --parts train-clean-100 dev-clean test-clean
  asr-download aishell corpora --mirror https://openslr.magicdatatech.com/resources
  asr-download librispeech corpora --dry-run
"""


def arguments():
    """Describe the command's arguments; the same as those of `asr.download.download.download`."""
    args = parser("asr-download", "Fetch a corpus into FOLDER, check it, and unpack it there.", EXAMPLES)
    args.add_argument("corpus", metavar="CORPUS", help="its name, as below")
    args.add_argument("folder", metavar="FOLDER", help="where LibriSpeech/, data_aishell/, ... will stand")
    args.add_argument("--parts", nargs="+", default=[], metavar="NAME", help="some parts only (default: all)")
    args.add_argument("--mirror", default="", metavar="URL", help="a server to try first, as https://HOST/resources")
    args.add_argument("--keep-archives", action="store_true", help="keep the archives, in FOLDER")
    args.add_argument("--dry-run", action="store_true", help="say what would be done, and the disk it takes")
    return args


@command
def main(argv):
    """Download what isn't there yet."""
    args = arguments().parse_args(argv)
    from asr.download.download import download

    download(args.corpus, args.folder, args.parts, args.mirror, args.keep_archives, args.dry_run)


if __name__ == "__main__":
    main()
