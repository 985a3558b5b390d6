"""The arguments of asr-decode."""

import argparse
import os
from contextlib import contextmanager

from asr.cli.command import add_device, channel, count, parser, place
from asr.errors import UserError, did_you_mean
from asr.formats import FORMATS, FormatOptions
from asr.hub import find_model
from asr.options import declared
from asr.outputs import STDOUT
from asr.parts import parse as read_part
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.options import SearchOptions
from asr.transcription.recordings import matching, read_list

NAME = "asr-decode"
TRANSCRIPTS = "transcripts.jsonl"  # in --out-dir
EXAMPLES = """A translator (model.kind: translator) reads lines of text, and writes one line for each.

Text goes to stdout or to --out as `id<TAB>text`, in the order of the input; the id of a file is its path
as given. With --out or --json, the same command continues an interrupted decoding: finished results are kept in a
journal next to the output. Recordings that can't be read, or don't fit in memory, are named and listed in
OUT.failed.tsv; the others are decoded, and the exit status is 3.

examples:
  asr-decode --model exp/an4/model a.wav b.flac recordings/
  asr-decode --model exp/an4/model talk.flac --format srt,txt --out-dir subtitles
  find calls -name '*.wav' | asr-decode --model exp/an4/model --list - --channel all --out calls.txt
  arecord -t raw -f S16_LE -r 16000 -d 10 | asr-decode --model exp/an4/model --raw 16000 -
  arecord -t raw -f S16_LE -r 16000 | asr-decode --model exp/an4-streaming/model --stream --raw 16000 -
  asr-decode --model exp/an4/model --manifest data/an4/test.jsonl.gz --out exp/an4/test.txt --json exp/an4/test.json
  asr-decode --model exp/an4/model recordings/ --processes 8 --out recordings.txt
  asr-decode --model exp/an4/model recordings/ --part 3/200 --out recordings.txt
  asr-decode --model exp/an4/model recordings/ --join 200 --out recordings.txt
  asr-decode --model exp/an4/model --manifest data/an4/dev.jsonl.gz --calibrate
  asr-decode --model exp/an4/model --manifest data/an4/dev.jsonl.gz --tune ctc-weight=0.3,0.5 --tune length-bonus=0,1
  asr-decode --model exp/multi30k/model val.en --out val.de
  echo "a dog runs ." | asr-decode --model exp/multi30k/model
"""


def arguments():
    """Describe the command's arguments."""
    args = parser(NAME, "Transcribe recordings with a trained model.", EXAMPLES)
    args.add_argument(
        "--model", type=place, required=True, metavar="DIR", help="model folder of asr-train"
    )
    add_sources(args)
    add_options(args, SearchOptions)
    add_live(args)
    add_machines(args)
    add_outputs(args)
    add_fitting(args)
    return args


def add_sources(args):
    """Add what to transcribe."""
    args.add_argument(
        "sources",
        type=place,
        nargs="*",
        metavar="FILE",
        help="sound files (wav, flac, ogg, opus, mp3, sph; with ffmpeg m4a, mp4, webm, mkv, wma and others), "
        "folders, patterns such as 'calls/**/*.wav'; for a translator, texts with one sentence "
        "per line (default: stdin)",
    )
    args.add_argument(
        "--list",
        type=place,
        action="append",
        default=[],
        metavar="FILE",
        help="list of sound files and folders, one path per line or NUL-separated; - for stdin",
    )
    args.add_argument(
        "--manifest",
        type=place,
        action="append",
        default=[],
        metavar="JSONL",
        help="manifest of asr-prepare",
    )
    args.add_argument(
        "--raw",
        type=int,
        metavar="RATE",
        help="with - as the FILE: stdin has samples at RATE Hz without a header, 16 bits, little-endian, one channel",
    )
    args.add_argument(
        "--channel",
        type=lambda word: "all" if word == "all" else channel(word),
        metavar="N",
        help="channel to transcribe, counted from 0; all: each channel separately, with ids FILE#0, FILE#1, ... "
        "(default: the mean of all channels)",
    )


def add_live(args):
    """Add what transcribes while samples arrive."""
    args.add_argument(
        "--stream",
        action="store_true",
        help="transcribe samples as they arrive from files, --raw RATE -, or --mic; the model must be trained "
        "with chunks",
    )
    args.add_argument(
        "--mic",
        nargs="?",
        const="",
        metavar="DEVICE",
        help="with --stream: listen to a microphone, by default the system's, until Ctrl-C",
    )
    args.add_argument(
        "--realtime",
        action="store_true",
        help="with --stream: read files at the speed of real time",
    )
    args.add_argument(
        "--resume",
        action="store_true",
        help="with --mic or --raw RATE -: go on with the files of an earlier run in --out-dir, with its times and "
        "numbers; --format must have json, or txt alone",
    )
    add_options(args, EndpointOptions)


def add_machines(args):
    """Add what computes, and which share of the work."""
    args.add_argument(
        "--batch-seconds",
        type=float,
        help="seconds of padded audio per batch (default 120 on a CPU, 2000 on a GPU)",
    )
    add_device(args)
    args.add_argument(
        "--processes",
        type=count,
        metavar="N",
        help="transcribe in N processes, which share the CPU's threads; N doesn't change the results",
    )
    args.add_argument(
        "--gpus",
        type=lambda word: word if word == "all" else str(count(word)),
        metavar="N",
        help="transcribe on N GPUs of this machine, or on all of them",
    )
    args.add_argument(
        "--part",
        metavar="I/N",
        help="transcribe part I of N of the input, on any machine, into OUT.part-I-of-N; auto, or auto/N: take the "
        "number from the job array of Slurm, SGE, PBS or LSF",
    )
    args.add_argument(
        "--join",
        type=count,
        metavar="N",
        help="join the N parts that were made with --part and otherwise the same options",
    )
    args.add_argument("--precision", default="fp32", choices=["fp32", "bf16"], help="default: fp32")


def add_outputs(args):
    """Add where to write, and what."""
    args.add_argument(
        "--out",
        type=place,
        metavar="FILE",
        help="write the text to FILE, - for stdout; finished work isn't repeated",
    )
    args.add_argument(
        "--json",
        type=place,
        metavar="FILE",
        help="write JSON lines with scores and n-best lists to FILE, - for stdout",
    )
    args.add_argument(
        "--format",
        type=formats,
        default=(),
        metavar="KINDS",
        help=f"output formats, such as srt,vtt ({', '.join(FORMATS)}); without --out-dir, print one of one recording",
    )
    args.add_argument(
        "--out-dir",
        type=place,
        metavar="DIR",
        help="write files named after each recording to DIR; DIR/transcripts.jsonl has the results of all recordings",
    )
    add_options(args, FormatOptions)
    args.add_argument(
        "--force", action="store_true", help="replace files that this command didn't make"
    )


def add_fitting(args):
    """Add what is learned from the texts of a dev set."""
    args.add_argument(
        "--calibrate",
        action="store_true",
        help="calibrate confidences on a dev --manifest, and save the calibration in the model's folder",
    )
    args.add_argument(
        "--reference",
        type=place,
        metavar="FILE",
        help="with --tune of a translator: the reference translations of the lines",
    )
    args.add_argument(
        "--tokenize", metavar="NAME", help="with --reference: as in asr-score --bleu (default 13a)"
    )
    args.add_argument("--lowercase", action="store_true", help="with --reference: ignore case")
    args.add_argument(
        "--tune",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="print the WER (for a translator, BLEU) of each setting, such as ctc-weight=0.3,0.5; if given more than "
        "once, of each combination",
    )


def add_options(args, options, without=()):
    """Add an argument for each option of a dataclass, but for some."""
    for option in declared(options):
        if option.name in without:
            continue
        facts, default = option.metadata, option.default
        if default is False:
            name = f"--{option.name.replace('_', '-')}"
            args.add_argument(name, action="store_true", help=facts["help"])
            continue
        args.add_argument(
            f"--{option.name.replace('_', '-')}",
            type=place if facts["path"] else str if default is None else type(default),
            default=default,
            metavar=facts["path"] or None,
            help=facts["help"] if default is None else f"{facts['help']} (default {default})",
        )


@contextmanager
def stopping(kept):
    """Tell someone who stops it what is kept."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        if not kept:
            stopped.hint = (  # type: ignore[attr-defined]
                "nothing is kept; with --out FILE a stopped decoding continues where it stopped"
            )
        raise


def search_options(args, **values):
    """How to search, checked: the options that the command has, and other values for some."""
    names = [option.name for option in declared(SearchOptions) if option.name in args]
    return SearchOptions(**{name: getattr(args, name) for name in names} | values)


def refuse_idle(args, idle):
    """Refuse what was given and would change nothing.

    idle   why an option would not, by name; those that the command doesn't have are passed over
    """
    defaults = arguments()
    for name, why in idle.items():
        if name in args and getattr(args, name) != defaults.get_default(name):
            fix = "add that, or leave it out" if why.startswith("without `") else "leave it out"
            raise UserError(f"changes nothing {why}; {fix}", name)


def formats(text):
    """Read a list of formats."""
    kinds = tuple(text.replace(",", " ").split())
    for kind in kinds:
        if kind not in FORMATS:
            raise argparse.ArgumentTypeError(
                f"got {kind!r}, expected some of {', '.join(FORMATS)}{did_you_mean(kind, FORMATS)}"
            )
    return kinds


def parse(argv):
    """Read the arguments; those after `--` are files, whatever they begin with."""
    cut = argv.index("--") if "--" in argv else len(argv)
    args = arguments().parse_intermixed_args(argv[:cut])
    if args.out_dir and not args.json and not args.stream:
        args.json = os.path.join(args.out_dir, TRANSCRIPTS)
    given = args.sources + [
        os.path.join(os.curdir, name) if name.startswith("-") else name for name in argv[cut + 1 :]
    ]
    if args.part:
        args.part = read_part(args.part, os.environ)
        args.out, args.json = (
            name and name != STDOUT and args.part.path(name) or name
            for name in (args.out, args.json)
        )
    args.model, args.lm = find_model(args.model), find_model(args.lm) if args.lm else args.lm
    args.order = [*given, *args.list, *args.manifest]
    args.named = [name for name in given if matching(name) == [name]]
    args.sources = [path for name in given for path in matching(name)]
    args.sources += [path for name in args.list for path in read_list(name)]
    return args
