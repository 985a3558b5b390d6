"""asr-decode: a model folder and recordings → their text."""

import argparse
import json
import os
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from asr.cli.command import SOME_FAILED, channel, command, count, emit, parser, place
from asr.errors import UserError, did_you_mean
from asr.failures import is_list
from asr.formats import FORMATS, FormatOptions, check_names, write
from asr.logging import logger
from asr.options import declared, paths
from asr.outputs import STDOUT, check_output
from asr.parts import parse as read_part
from asr.stamp import Stamp, fingerprint_of_list, maker
from asr.transcript import Transcript
from asr.transcription.decoding import FAILED, Decoding, Output, json_line, text_line
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.options import SearchOptions
from asr.transcription.recordings import matching, read_list

NAME = "asr-decode"
TRANSCRIPTS = "transcripts.jsonl"  # in --out-dir
BF16_IS_FASTER = (
    "this processor computes in bf16: `--precision bf16` encodes 1.7 times as fast, changes some texts in "
    "a thousand, and these may depend on the batch"
)
EXAMPLES = """Text goes to stdout or to --out as `id<TAB>text`, in the order of the input; the id of a file is its path
as given. With --out or --json, a stopped decoding continues where it stopped: a journal beside the output keeps what is
finished. Recordings that can't be read, or don't fit in memory, are named and listed in OUT.failed.tsv; the others are
decoded, and the exit status is 3.

examples:
  asr-decode --model exp/an4/model a.wav b.flac recordings/
  asr-decode --model exp/an4/model talk.flac --format srt,txt --out-dir subtitles
  find calls -name '*.wav' | asr-decode --model exp/an4/model --list - --channel all --out calls.txt
  arecord -t raw -f S16_LE -r 16000 -d 10 | asr-decode --model exp/an4/model --raw 16000 -
  arecord -t raw -f S16_LE -r 16000 | asr-decode --model exp/an4/model --stream --raw 16000 -
  asr-decode --model exp/an4/model --manifest data/an4/test.jsonl.gz --out exp/an4/test.txt --json exp/an4/test.json
  asr-decode --model exp/an4/model recordings/ --processes 8 --out recordings.txt
  asr-decode --model exp/an4/model recordings/ --part 3/200 --out recordings.txt
  asr-decode --model exp/an4/model recordings/ --join 200 --out recordings.txt
  asr-decode --model exp/an4/model --manifest data/an4/dev.jsonl.gz --calibrate
  asr-decode --model exp/an4/model --manifest data/an4/dev.jsonl.gz --tune ctc-weight=0.3,0.5 --tune length-bonus=0,1
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
        "folders, patterns such as 'calls/**/*.wav'",
    )
    args.add_argument(
        "--list",
        type=place,
        action="append",
        default=[],
        metavar="FILE",
        help="list of sound files and folders, a path on each line or NUL-separated; - for stdin",
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
        help="channel to take, counted from 0; all: a transcript of each, with ids FILE#0, FILE#1, ... (default: the "
        "mean of all channels)",
    )


def add_live(args):
    """Add what transcribes while samples arrive."""
    args.add_argument(
        "--stream",
        action="store_true",
        help="transcribe while samples arrive: of files, of --raw RATE -, or of --mic; the model must have chunks",
    )
    args.add_argument(
        "--mic",
        nargs="?",
        const="",
        metavar="DEVICE",
        help="with --stream: listen to a microphone, by default the system's, until Ctrl-C",
    )
    args.add_argument(
        "--realtime", action="store_true", help="with --stream: read files as slowly as they last"
    )
    add_options(args, EndpointOptions)


def add_machines(args):
    """Add what computes, and which share of the work."""
    args.add_argument(
        "--batch-seconds",
        type=float,
        help="seconds of padded audio per batch (default 120 on a CPU, 2000 on a GPU)",
    )
    args.add_argument(
        "--device",
        default="auto",
        choices=["auto", "cpu", "cuda"],
        help="default: a GPU if one works",
    )
    args.add_argument(
        "--processes",
        type=count,
        metavar="N",
        help="transcribe in N processes on the CPU, which divide its threads; N changes no result",
    )
    args.add_argument(
        "--gpus",
        type=lambda word: word if word == "all" else str(count(word)),
        metavar="N",
        help="transcribe on N GPUs of this machine, or on all",
    )
    args.add_argument(
        "--part",
        metavar="I/N",
        help="do part I of N of the input, on any machine, into OUT.part-I-of-N; auto, or auto/N: the number is "
        "that of a task in an array of Slurm, SGE, PBS or LSF",
    )
    args.add_argument(
        "--join",
        type=count,
        metavar="N",
        help="join the N parts that commands with --part and otherwise the same options have made",
    )
    args.add_argument("--precision", default="fp32", choices=["fp32", "bf16"], help="default: fp32")


def add_outputs(args):
    """Add where to write, and what."""
    args.add_argument(
        "--out",
        type=place,
        metavar="FILE",
        help="write the text there, - for stdout; finished work isn't repeated",
    )
    args.add_argument(
        "--json",
        type=place,
        metavar="FILE",
        help="write JSON lines with scores and n-best lists there, - for stdout",
    )
    args.add_argument(
        "--format",
        type=formats,
        default=(),
        metavar="KINDS",
        help=f"with --out-dir: formats of the files there, such as srt,vtt ({', '.join(FORMATS)})",
    )
    args.add_argument(
        "--out-dir",
        type=place,
        metavar="DIR",
        help="write each recording's files there, named as it is; DIR/transcripts.jsonl has all of them",
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
        help="fit confidences to what is right of a dev --manifest, and keep the fit in the model's folder",
    )
    args.add_argument(
        "--tune",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="print the WER of each setting, such as ctc-weight=0.3,0.5; given twice or more, of each combination",
    )


def add_options(args, options):
    """Add an argument for each option of a dataclass."""
    for option in declared(options):
        facts, default = option.metadata, option.default
        args.add_argument(
            f"--{option.name.replace('_', '-')}",
            type=place if facts["path"] else str if default is None else type(default),
            default=default,
            metavar=facts["path"] or None,
            help=facts["help"] if default is None else f"{facts['help']} (default {default})",
        )


def formats(text):
    """Read a list of formats."""
    kinds = tuple(text.replace(",", " ").split())
    for kind in kinds:
        if kind not in FORMATS:
            raise argparse.ArgumentTypeError(
                f"got {kind!r}, expected some of {', '.join(FORMATS)}{did_you_mean(kind, FORMATS)}"
            )
    return kinds


@command
def main(argv):
    """Transcribe, unless it is done already."""
    args = parse(argv)
    if args.stream:
        from asr.cli import live

        return live.decode(args, decoding(args), endpoints(args), layout(args))
    check(args)
    if args.tune or args.calibrate:
        return tune(args) if args.tune else calibrate(args)
    if args.join:
        return join(args)
    out, status = outputs(args), None
    new = args.raw or printed(args)  # to be done in any case
    if out and not new and all(output.stamp.is_current() for output in out):
        logger.info("; ".join(f"{output.path} is up to date" for output in out))
    else:
        status = run(args, out)
    if args.format:
        write_formats(args)
    return status


def layout(args):
    """How subtitles look, checked."""
    return FormatOptions(args.max_line_width, args.max_line_count)


def check_formats(args, recordings):
    """See that the files of --format replace no input, and nothing that isn't this command's."""
    inputs, own = [recording.path for recording in recordings], maker(args.json) == NAME
    names = [recording.id for recording in recordings]
    for path in check_names(names, Path(args.out_dir), args.format):
        check_output("--out-dir", path, NAME, inputs, args.force, lambda _: own)


def write_formats(args):
    """Write the files of --format from the transcripts."""
    folder = Path(args.out_dir)
    with open(args.json, encoding="utf-8") as lines:
        for line in lines:
            write(Transcript.of_json(json.loads(line)), folder, args.format, layout(args))
    logger.info(f"{folder}: {', '.join(args.format)} of every recording")


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
    args.order = [*given, *args.list, *args.manifest]
    args.named = [name for name in given if matching(name) == [name]]
    args.sources = [path for name in given for path in matching(name)]
    args.sources += [path for name in args.list for path in read_list(name)]
    return args


def decoding(args):
    """How to decode, checked."""
    options = SearchOptions(
        **{option.name: getattr(args, option.name) for option in declared(SearchOptions)}
    )
    times = bool(args.json)
    return Decoding(args.model, options, args.batch_seconds, args.precision, args.device, times)


def endpoints(args):
    """When the segments of a stream end, checked."""
    return EndpointOptions(
        **{option.name: getattr(args, option.name) for option in declared(EndpointOptions)}
    )


def printed(args):
    """What goes to standard output: "text", "json", or nothing."""
    if args.part or args.join:
        return ""
    if args.json == STDOUT:
        return "json"
    return "text" if args.out == STDOUT or not (args.out or args.out_dir) else ""


def check(args):
    """Refuse what can be seen without the model, also where a plan asks (scripts/plan.py)."""
    if args.mic is not None or args.realtime:
        raise UserError("--mic, --realtime: are for --stream; add it")
    if bool(args.format) != bool(args.out_dir) or args.out_dir and args.json == STDOUT:
        raise UserError("--format and --out-dir: give both, and a file to --json if any")
    layout(args)
    tuned = args.tune or args.calibrate
    if args.tune and args.calibrate:
        raise UserError("--tune and --calibrate: give one of them")
    if not args.sources and not args.manifest:
        raise UserError("nothing to transcribe; give sound files, folders, --list or --manifest")
    check_raw(args)
    if (args.processes or args.gpus) and (tuned or args.processes and args.gpus):
        raise UserError("--processes, --gpus, --tune and --calibrate: give one of them")
    if args.processes and args.device == "cuda" or args.gpus and args.device == "cpu":
        raise UserError("--device: --processes are on the CPU, --gpus on GPUs; leave it away")
    if args.part or args.join:
        files = {args.out, args.json} - {None}
        if not files or STDOUT in files or args.raw or args.tune or args.part and args.join:
            raise UserError(
                "--part, --join: give one of them, with --out or --json FILE, and neither --raw nor --tune"
            )
    if args.batch_seconds is not None and not args.batch_seconds > 0:
        raise UserError(f"--batch-seconds: got {args.batch_seconds:g}, expected more than 0")
    if args.out and args.json and os.path.realpath(args.out) == os.path.realpath(args.json):
        raise UserError(f"--out and --json: both are {args.out}; give each its own file")
    if (
        args.out
        and args.json
        and os.path.realpath(args.json) == os.path.realpath(f"{args.out}{FAILED}")
    ):
        raise UserError(f"--json: {args.json} is where failures are listed; choose another name")
    check_outputs(
        args,
        [
            args.model,
            *paths(decoding(args).options).values(),
            *args.sources,
            *args.list,
            *args.manifest,
        ],
    )


def check_raw(args):
    """See that --raw stands beside `-` alone."""
    if args.raw is not None and args.order != [STDOUT]:
        raise UserError("--raw: reads standard input alone; give - as the only FILE")


def check_outputs(args, inputs):
    """See that no output replaces an input, or what isn't this command's."""
    inputs = [path for path in inputs if path]
    for option, path in (("--out", args.out), ("--json", args.json)):
        if path not in (None, STDOUT):
            check_output(option, path, NAME, inputs, args.force)
            check_output(option, f"{path}{FAILED}", NAME, inputs, args.force, is_list)


def outputs(args):
    """The files to write, stamped with the model's files, the inputs, and all arguments that change the text."""
    how = decoding(args)
    facts = how.settings() | ({"order": args.order} if len(args.order) > 1 else {})
    if args.sources != args.named:
        facts["listed"] = fingerprint_of_list(args.sources)
    if args.channel is not None:
        facts["channel"] = args.channel
    if args.part:
        facts["part"] = str(args.part)
    inputs = [*how.files(), *args.named, *args.manifest]
    given = [(path, line) for path, line in ((args.out, text_line), (args.json, json_line)) if path]
    return [
        Output(path, line, Stamp(path, NAME, facts, inputs))
        for path, line in given
        if path != STDOUT
    ]


def tune(args):
    """Print the word (or mixed) error rate of each setting of --tune, and then the best."""
    from asr.scoring.report import UNITS, percent, score_texts, units_of
    from asr.transcription.decoding import ModelLoader
    from asr.transcription.recordings import find
    from asr.transcription.tuning import parse_grid, tune

    references, how = texts_of_manifests(args, "--tune"), decoding(args)
    grid = parse_grid(args.tune, how.options)
    unit, results = units_of(references.values())[0], []
    how.check_files()
    recordings = find([], args.manifest)
    with ModelLoader(how, recordings) as load:
        for setting, texts in tune(
            load(), recordings, how.options, grid, how.batch_seconds, how.precision
        ):
            options = " ".join(
                f"--{name.replace('_', '-')} {value}" for name, value in setting.items()
            )
            results.append((score_texts(references, texts, unit).total.rate, options))
            emit(f"{percent(results[-1][0])}\t{options}")
    rate, options = min(results, key=lambda result: result[0])  # of equals the first
    logger.info(f"best: {options} ({UNITS[unit]} {percent(rate)} %)")


def texts_of_manifests(args, option):
    """Read the references that an option needs."""
    from asr.scoring.texts import match, read_texts

    if args.sources or not args.manifest or args.out or args.json:
        raise UserError(
            f"{option} needs the texts of a --manifest, and neither sound files nor --out nor --json"
        )
    references: dict[str, str] = {}
    for path in args.manifest:
        texts = read_texts(path)
        match(texts, texts, path, path)
        references |= texts
    return references


def calibrate(args):
    """Fit the confidences of words and utterances on a dev set; print how far they are off before and after."""
    from asr import confidence
    from asr.scoring.calibration import fit_confidences
    from asr.transcription.options import effective
    from asr.transcription.recordings import find
    from asr.transcription.tuning import transcribe_raw

    references, how = texts_of_manifests(args, "--calibrate"), decoding(args)
    path = Path(args.model) / confidence.CALIBRATION
    check_output("--calibrate", path, NAME, (), args.force, confidence.is_calibration)
    how.check_files()
    fits = fit_confidences(transcribe_raw(how, find([], args.manifest)), references)
    confidence.Calibration(
        weights=confidence.digest(args.model),
        search=effective(how.options),
        words=fits["words"].curve,
        utterances=fits["utterances"].curve,
    ).save(args.model)
    logger.info("number, and expected calibration error before and after (by cross-validation):")
    for name, fit in fits.items():
        emit(f"{name}\t{fit.count}\t{fit.before:.4f}\t{fit.after:.4f}")
    logger.info(f"written: {path}")


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


def run(args, out):
    """Transcribe what isn't finished yet, and write. Exit status 3 if some recordings couldn't be transcribed."""
    from asr.audio import containers
    from asr.audio.pcm import spooled
    from asr.transcription.decoding import decode, warn_failures
    from asr.transcription.recordings import find_readable

    how = decoding(args)
    how.check_files()
    with ExitStack() as stack:
        stack.enter_context(containers.decoding())
        if args.raw is not None:
            args.sources = [stack.enter_context(spooled(sys.stdin.buffer, args.raw))]
        choose = args.part.of if args.part else list
        recordings, failures = find_readable(
            args.sources, args.manifest, True, args.channel, choose
        )
        if args.raw is not None:
            recordings = [replace(recording, id=STDOUT) for recording in recordings]
        check_outputs(args, [recording.path for recording in recordings])
        if args.format:
            check_formats(args, recordings)
        warn_failures(failures, len(recordings) + len(failures))
        line = {"text": text_line, "json": json_line}.get(printed(args))
        stack.enter_context(stopping(out))
        decoded = decode(
            how,
            recordings,
            failures,
            out,
            lambda result: emit(line(result)) if line else None,
            workers(args),
            bool(args.part),
        )
    if done := decoded.count - len(decoded.failures):
        audio, seconds = decoded.audio, decoded.seconds
        logger.info(
            f"{done} utterances, {audio:.1f} s of audio in {seconds:.1f} s, RTF {seconds / max(audio, 1e-9):.4f}"
        )
    if decoded.device == "cpu" and not args.processes and how.precision == "fp32":
        from asr.device import has_bf16  # PyTorch is there

        if has_bf16():
            logger.info(BF16_IS_FASTER)
    listed = f"; they are listed in {out[0].path}{FAILED}" if out else ""
    return end(decoded.failures, decoded.count, listed, part=bool(args.part))


def workers(args):
    """The processes that search; None if this one does."""
    from asr.transcription.processes import Workers, count_gpus

    if args.gpus:
        return Workers(count_gpus(args.gpus), gpus=True)
    return Workers(args.processes) if args.processes else None


def join(args):
    """Join the parts of the outputs."""
    from asr.transcription.parts import join

    out = outputs(args)
    failures = join(out, args.join)
    logger.info("; ".join(f"{output.path}: joined of {args.join} parts" for output in out))
    if args.format:
        write_formats(args)
    return end(failures, 0, f"; they are listed in {out[0].path}{FAILED}")


def end(failures, count, listed, done="transcribed", part=False):
    """Return the exit status; if nothing could be done, it is a mistake."""
    if failures and len(failures) == count and not part:
        what = (
            f"none of {count} recordings could be {done}{listed}"
            if count > 1
            else failures[0].reason
        )
        raise UserError(what)
    if failures:
        of = f" of {count}" if count else ""
        logger.warning(f"{len(failures)}{of} recordings could not be {done}{listed}")
        return SOME_FAILED
    return 0


if __name__ == "__main__":
    main()
