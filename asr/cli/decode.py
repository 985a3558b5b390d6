"""asr-decode: a model folder and recordings → their text."""

import json
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from asr.cli.command import SOME_FAILED, command, emit
from asr.cli.decode_arguments import NAME, parse, search_options, stopping
from asr.cli.decode_checks import check_arguments
from asr.errors import UserError
from asr.failures import is_list
from asr.files import write_text
from asr.formats import FORMATS, FormatOptions, check_names, write
from asr.logging import logger
from asr.model_files import kind_of
from asr.options import declared, paths
from asr.outputs import STDOUT, check_output, check_plain
from asr.stamp import Stamp, fingerprint_of_list
from asr.transcript import Transcript
from asr.transcription.decoding import FAILED, Decoding, Output, json_line, text_line
from asr.transcription.endpoints import EndpointOptions

WRITTEN = ".formats"  # in --out-dir: names of the files that --format has written there
BF16_IS_FASTER = (
    "this processor computes in bf16: `--precision bf16` encodes 1.7 times as fast, changes some texts in "
    "a thousand, and these may depend on the batch"
)


@command
def main(argv):
    """Transcribe, unless it is done already."""
    args = parse(argv)
    if kind_of(args.model) == "translator":
        from asr.cli import translate

        return translate.decode(args)
    for option in ("reference", "tokenize", "lowercase"):
        if getattr(args, option):
            raise UserError(
                f"is for translators, and {args.model} is none; leave it out", argument=option
            )
    if args.stream:
        from asr.cli import live

        return live.decode(args, decoding(args), endpoints(args), layout(args))
    check(args)
    if args.tune or args.calibrate:
        from asr.cli import fitting

        return fitting.tune(args) if args.tune else fitting.calibrate(args)
    if args.join:
        return join(args)
    out, status = outputs(args), None
    new = args.raw or printed(args)  # to be done in any case
    if out and not new and all(output.stamp.is_current() for output in out):
        logger.info("; ".join(f"{output.path} is up to date" for output in out))
    else:
        status = run(args, out)
    if args.out_dir and not args.part:  # which --join writes
        write_formats(args)
    return status


def layout(args):
    """How subtitles look, checked."""
    return FormatOptions(args.max_line_width, args.max_line_count)


def check_formats(args, names, inputs):
    """See that the files of --format replace no input, no other output, and nothing that isn't this command's."""
    folder, own = Path(args.out_dir), written(args)
    others = {os.path.realpath(path) for path in (args.out, args.json) if path}
    for path in check_names(names, folder, args.format):
        if os.path.realpath(path) in others:
            raise UserError(f"--format: {path} is named by --out or --json, too; rename that one")
        check_output("--out-dir", path, NAME, inputs, args.force, own.__contains__)


def written(args):
    """The files in --out-dir that --format has written; others are the person's."""
    try:
        names = Path(args.out_dir, WRITTEN).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return set()
    return {Path(args.out_dir, name) for name in names.splitlines()}


def enlist(args, files):
    """List files in --out-dir as written by --format, before they are."""
    listed = {str(path.relative_to(args.out_dir)) for path in {*files, *written(args)}}
    write_text(Path(args.out_dir, WRITTEN), "".join(f"{name}\n" for name in sorted(listed)))


def finished(args):
    """The transcripts of all recordings."""
    with open(args.json, encoding="utf-8") as lines:
        for line in lines:
            yield Transcript.of_json(json.loads(line))


def write_formats(args):
    """Write the files of --format from the transcripts, and list them before."""
    folder, names = Path(args.out_dir), [transcript.id for transcript in finished(args)]
    check_formats(args, names, args.sources)
    enlist(args, check_names(names, folder, args.format))
    for transcript in finished(args):
        write(transcript, folder, args.format, layout(args))
    logger.info(f"{folder}: {', '.join(args.format)} of every recording")


def decoding(args):
    """How to decode, checked."""
    times, options = bool(args.json or args.format), search_options(args)
    return Decoding(args.model, options, args.batch_seconds, args.precision, args.device, times)


def endpoints(args):
    """When the segments of a stream end, checked."""
    return EndpointOptions(
        **{option.name: getattr(args, option.name) for option in declared(EndpointOptions)}
    )


def printed(args):
    """What goes to standard output: "text", "json", a format, or nothing."""
    if args.part or args.join:
        return ""
    if args.format and not args.out_dir:
        return "format"
    if args.json == STDOUT:
        return "json"
    return "text" if args.out == STDOUT or not (args.out or args.out_dir) else ""


def check(args):
    """Refuse what can be seen without the model, also where a plan asks (scripts/plan.py)."""
    options = decoding(args).options
    check_arguments(args, options)
    layout(args)
    given = [args.model, *args.sources, *args.list, *args.manifest]
    check_outputs(args, [*given, *paths(options).values()])


def check_outputs(args, inputs):
    """See that no output replaces an input, or what isn't this command's."""
    inputs = [path for path in inputs if path]
    for option, path in (("--out", args.out), ("--json", args.json)):
        if path not in (None, STDOUT):
            check_plain(option, path)
            check_output(option, path, NAME, inputs, args.force)
            check_output(option, f"{path}{FAILED}", NAME, inputs, args.force, is_list)


def outputs(args):
    """The files to write, stamped with the model's files, the inputs, and all arguments that change the text."""
    how = decoding(args)
    facts = how.settings() | ({"order": args.order} if len(args.order) > 1 else {})
    files = [path for path in args.named if not os.path.isdir(path)]
    if args.sources != files:
        from asr.transcription.recordings import sounds_of

        # a folder's other files don't count: they may be what this command has written
        found = [file for path in args.sources for file in sounds_of(path)]
        facts["listed"] = fingerprint_of_list(found)
    if args.channel is not None:
        facts["channel"] = args.channel
    if args.part:
        facts["part"] = str(args.part)
    inputs = [*how.files(), *files, *args.manifest]
    given = [(path, line) for path, line in ((args.out, text_line), (args.json, json_line)) if path]
    return [
        Output(path, line, Stamp(path, NAME, facts, inputs))
        for path, line in given
        if path != STDOUT
    ]


def run(args, out):
    """Transcribe what isn't finished yet, and write. Exit status 3 if some recordings couldn't be transcribed."""
    from asr.audio import containers
    from asr.transcription.decoding import decode, warn_failures

    how = decoding(args)
    how.check_files()
    with ExitStack() as stack:
        stack.enter_context(containers.decoding())
        recordings, failures = find_recordings(args, stack)
        check_recordings(args, recordings)
        warn_failures(failures, len(recordings) + len(failures))
        stack.enter_context(stopping(out))
        part = bool(args.part)
        decoded = decode(how, recordings, failures, out, printer(args), workers(args), part)
    report(args, how, decoded)
    listed = f"; they are listed in {out[0].path}{FAILED}" if out else ""
    return end(decoded.failures, decoded.count, listed, part=part)


def find_recordings(args, stack):
    """Find the recordings to transcribe, and those that can't be read.

    stack   that removes what --raw brings, when all is done
    """
    from asr.audio.pcm import spooled
    from asr.transcription.recordings import find_readable

    if args.raw is not None:
        args.sources = [stack.enter_context(spooled(sys.stdin.buffer, args.raw))]
    choose = args.part.of if args.part else list
    found, failures = find_readable(args.sources, args.manifest, True, args.channel, choose)
    if args.raw is not None:
        found = [replace(recording, id=STDOUT) for recording in found]
    return found, failures


def check_recordings(args, recordings):
    """See that no output replaces a recording, and that formats can be told apart."""
    check_outputs(args, [recording.path for recording in recordings])
    if args.out_dir:
        names = [recording.id for recording in recordings]
        check_formats(args, names, [recording.path for recording in recordings])
    elif args.format and len(recordings) > 1:
        raise UserError(
            f"--format: one recording can be printed, got {len(recordings)}; add --out-dir DIR"
        )


def report(args, how, decoded):
    """Say how much was transcribed, how fast, and what would be faster."""
    if done := decoded.count - len(decoded.failures):
        audio, seconds = decoded.audio, decoded.seconds
        logger.info(
            f"{done} utterances, {audio:.1f} s of audio in {seconds:.1f} s, RTF {seconds / max(audio, 1e-9):.4f}"
        )
    if decoded.device == "cpu" and not args.processes and how.precision == "fp32":
        from asr.device import has_bf16  # PyTorch is there

        if has_bf16():
            logger.info(BF16_IS_FASTER)


def printer(args):
    """What prints a result, if it is to be printed."""
    return {
        "text": lambda result: emit(text_line(result)),
        "json": lambda result: emit(json_line(result)),
        "format": lambda result: emit(
            FORMATS[args.format[0]](Transcript.of_json(result), layout(args)), end=""
        ),
    }.get(printed(args), lambda result: None)


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
    if args.out_dir:
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
