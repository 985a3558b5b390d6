"""What asr-decode is asked for, checked before anything is read but the first bytes of the inputs."""

import os

from asr.cli.decode_arguments import refuse_idle
from asr.errors import UserError, shorten
from asr.formats import SUBTITLES, FormatOptions
from asr.options import declared
from asr.outputs import STDOUT
from asr.transcription.decoding import FAILED
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.options import idle_options


def check_arguments(args, options):
    """Refuse what can be seen from the arguments alone."""
    check_used(args, options)
    check_results(args)
    check_given(args)
    check_sound(args)
    check_raw(args)
    check_processes(args)
    check_parts(args)
    check_batch(args)
    check_apart(args)


def check_used(args, options):
    """Refuse what was given and would change nothing."""
    idle, files = idle_options(options), args.raw is None and args.mic is None
    live = ["mic", "realtime", "resume", *(option.name for option in declared(EndpointOptions))]
    if args.stream:
        idle |= dict.fromkeys(["batch_seconds", "vad", "nbest"], "with `stream`")
        idle |= dict.fromkeys([] if files else ["channel", "realtime"], "without files")
        idle |= {} if args.out_dir else {"resume": "without `out_dir`"}
        idle |= {"resume": "with files"} if files else {}
    else:
        idle |= dict.fromkeys(live, "without `stream`")
    if args.tune or args.calibrate:
        idle["channel"] = "with `tune` or `calibrate`"
    if not (args.stream or args.json or "json" in args.format):
        idle["nbest"] = "without `json`"
    if not SUBTITLES & {*args.format}:
        layout = [option.name for option in declared(FormatOptions)]
        idle |= dict.fromkeys(layout, f"without one of {', '.join(sorted(SUBTITLES))} in `format`")
    refuse_idle(args, idle)


def check_results(args):
    """See that it is clear where formats go."""
    if args.out_dir and (not args.format or args.json == STDOUT):
        raise UserError("--out-dir: needs --format, and a file for --json if any")
    other = args.out or args.json or args.part or args.join or args.tune or args.calibrate
    if args.format and not args.out_dir and (len(args.format) > 1 or other):
        raise UserError(
            "--format: without --out-dir, one format is printed, and nothing else is done; add --out-dir DIR"
        )


def check_given(args):
    """See that there is something to do, and one thing."""
    if args.tune and args.calibrate:
        raise UserError("--tune and --calibrate: give one of them")
    if not args.sources and not args.manifest:
        raise UserError(
            f"nothing to transcribe; {args.model} is no translator: give sound files, folders, --list or --manifest"
        )


def check_sound(args):
    """See that not all that is given is text, as for a translator."""
    from asr.audio.first_bytes import is_text, looks_like_sound

    def text(path):
        if not os.path.isfile(path):  # a folder, or a pipe, which would be waited for
            return False
        try:
            with open(path, "rb") as file:
                head = file.read(512)
        except OSError:
            return False
        return head and is_text(head) and not looks_like_sound(head)

    if args.named and args.named == args.sources and all(map(text, args.named)):
        raise UserError(
            f"{shorten(args.named)}: text, not sound, and {args.model} is no translator; give recordings"
        )


def check_raw(args):
    """See that --raw stands beside `-` alone."""
    if args.raw is not None and args.order != [STDOUT]:
        raise UserError("--raw: reads standard input alone; give - as the only FILE")


def check_processes(args):
    """See that the processes are of one kind, and the device theirs."""
    tuned = args.tune or args.calibrate
    if (args.processes or args.gpus) and (tuned or args.processes and args.gpus):
        raise UserError("--processes, --gpus, --tune and --calibrate: give one of them")
    if args.processes and args.device == "cuda" or args.gpus and args.device == "cpu":
        raise UserError("--device: --processes are on the CPU, --gpus on GPUs; leave it away")


def check_parts(args):
    """See that a part, or what joins them, has a file to write."""
    files = {args.out, args.json} - {None}
    unfit = not files or STDOUT in files or args.raw or args.tune or args.part and args.join
    if (args.part or args.join) and unfit:
        raise UserError(
            "--part, --join: give one of them, with --out or --json FILE, and neither --raw nor --tune"
        )


def check_batch(args):
    """See that a batch can hold something."""
    if args.batch_seconds is not None and not args.batch_seconds > 0:
        raise UserError(f"--batch-seconds: got {args.batch_seconds:g}, expected more than 0")


def check_apart(args):
    """See that texts, JSON and the list of failures are files of their own."""
    if not (args.out and args.json):
        return
    transcripts = os.path.realpath(args.json)
    if transcripts == os.path.realpath(args.out):
        raise UserError(f"--out and --json: both are {args.out}; give each its own file")
    if transcripts == os.path.realpath(f"{args.out}{FAILED}"):
        raise UserError(f"--json: {args.json} is where failures are listed; choose another name")
