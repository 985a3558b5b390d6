"""asr-align: a model folder, a recording and its text → times of its lines and words; or scores of texts."""

import os
from argparse import SUPPRESS
from pathlib import Path

from asr.cli.command import ANEW, add_device, command, emit, parser, place
from asr.cli.decode import end
from asr.cli.decode_arguments import add_options, formats
from asr.errors import UserError
from asr.failures import is_list
from asr.formats import FORMATS, FormatOptions, files_of
from asr.hub import find_model
from asr.logging import logger
from asr.outputs import STDOUT, check_inputs, check_output
from asr.stamp import Stamp
from asr.subtitles import Subtitles, kind_of
from asr.transcription.decoding import FAILED

NAME = "asr-align"
CONVENTIONS = ["plain", "english"]
EXAMPLES = """Each line of TEXT becomes a segment; blank lines are ignored. Subtitles (.srt, .vtt) get new times; if the
output has the same format, everything else is kept. The recording can be hours long. TEXT may lack some of what is
spoken, and may contain text that isn't spoken: a line that isn't found has confidence 0 and no words, and a word that
isn't found within a line has confidence 0 and no length. A word with characters that the model can't spell is aligned
with the speech between its neighbors. The output has the words as TEXT writes them.

With --manifest, each utterance is aligned with the whole of its own text. Each output line is
`id<TAB>score<TAB>text`, the worst score first. The score is the mean log posterior of what the best path emits, over
frames in which the path or the model has a label. Recordings that can't be read are named and listed in
OUT.failed.tsv; the others are aligned, and the exit status is 3.

For the model, TEXT is spelled by a convention (such as upper case) that is derived from the model's tokens, unless
--normalize names one, as in asr-score.

examples:
  asr-align --model exp/mine/model talk.flac talk.txt > talk.tsv
  asr-align --model exp/mine/model talk.flac talk.srt --format srt --out talk.aligned.srt
  asr-align --model exp/mine/model talk.flac talk.txt --format srt,ctm,textgrid,json --out-dir aligned
  asr-align --model exp/mine/model --manifest data/mine/train.jsonl.gz --out scores.tsv
"""


def arguments():
    """Describe the command's arguments."""
    args = parser(NAME, "Find when each line and word of a known text is spoken.", EXAMPLES)
    args.add_argument(
        "--model", type=place, required=True, metavar="DIR", help="model folder of asr-train"
    )
    args.add_argument("audio", type=place, nargs="?", metavar="AUDIO", help="sound file")
    args.add_argument(
        "text", type=place, nargs="?", metavar="TEXT", help="text of the recording (txt, srt, vtt)"
    )
    args.add_argument(
        "--manifest", type=place, metavar="JSONL", help="score the texts of a manifest instead"
    )
    args.add_argument(
        "--format",
        type=formats,
        default=("tsv",),
        metavar="KINDS",
        help=f"formats, such as srt,vtt ({', '.join(FORMATS)}); default: tsv, a table of lines",
    )
    args.add_argument(
        "--out-dir", type=place, metavar="DIR", help="write the files of all formats to DIR"
    )
    args.add_argument(
        "--out",
        type=place,
        default=STDOUT,
        metavar="FILE",
        help="write the output to FILE: the scores, or a single format; default: stdout",
    )
    args.add_argument(
        "--normalize",
        choices=CONVENTIONS,
        help="how the model spells texts; default: derived from its tokens",
    )
    args.add_argument("--normalise", dest="normalize", choices=CONVENTIONS, help=SUPPRESS)
    args.add_argument(
        "--batch-seconds", type=float, help="with --manifest: seconds of padded audio per batch"
    )
    add_device(args)
    args.add_argument("--precision", default="fp32", choices=["fp32", "bf16"], help="default: fp32")
    add_options(args, FormatOptions)
    args.add_argument(
        "--force", action="store_true", help="replace files that this command didn't make"
    )
    return args


@command(hint=ANEW)
def main(argv):
    """Align, unless it is done already, and write."""
    args = arguments().parse_args(argv)
    args.model = find_model(args.model)
    layout = FormatOptions(args.max_line_width, args.max_line_count)
    inputs = check(args)
    outputs = files(args)
    for path in outputs:
        option = "--out-dir" if args.out_dir else "--out"
        check_output(option, path, NAME, [args.model, *inputs], args.force)
        if args.manifest:
            check_output(option, f"{path}{FAILED}", NAME, inputs, args.force, is_list)
    stamps = {path: stamp(args, path, inputs) for path in outputs}
    if stamps and all(one.is_current() for one in stamps.values()):
        return logger.info("; ".join(f"{path} is up to date" for path in outputs))
    from asr.audio import containers

    with containers.decoding():
        if args.manifest:
            return score(args, stamps)
        texts = alignments(args, layout)
    if not outputs:
        return emit(texts[0], end="")
    for path, text in zip(outputs, texts, strict=True):
        save(path, text, stamps[path])
    return logger.info(f"written: {', '.join(map(str, outputs))}")


def check(args):
    """Refuse what can be seen without the model; return the inputs."""
    if args.manifest and (args.audio or args.out_dir):
        raise UserError(
            "--manifest: scores the texts of a manifest; it takes no AUDIO, no --out-dir"
        )
    if not args.manifest and not args.text:
        raise UserError("nothing to align; give a sound file and its text, or --manifest")
    if args.out_dir and args.out != STDOUT:
        raise UserError("--out and --out-dir: give one of them")
    if not args.format or (len(args.format) > 1 and not args.out_dir):
        raise UserError(f"--format: got {len(args.format)} formats; give one, or --out-dir, too")
    if args.batch_seconds is not None and not args.batch_seconds > 0:
        raise UserError(f"--batch-seconds: got {args.batch_seconds:g}, expected more than 0")
    if not os.path.isdir(args.model):
        raise UserError(f"{args.model}: no such model folder; asr-train makes one")
    inputs = [args.manifest] if args.manifest else [args.audio, args.text]
    check_inputs(inputs)
    return inputs


def files(args):
    """The files to write; none if the result is printed."""
    if args.out_dir:
        return files_of(args.audio, Path(args.out_dir), args.format)
    return [] if args.out == STDOUT else [Path(args.out)]


def stamp(args, path, inputs):
    """Identify the work that makes a file."""
    from asr.transcription.decoding import Decoding
    from asr.transcription.options import SearchOptions

    names = ("format", "normalize", "precision", "max_line_width", "max_line_count")
    facts = {name: getattr(args, name) for name in names}
    return Stamp(path, NAME, facts, [*Decoding(args.model, SearchOptions()).files(), *inputs])


def alignments(args, layout):
    """Align a recording with its text: what to write in each format."""
    subtitles = Subtitles(args.text) if kind_of(args.text) else None
    lines = subtitles.lines if subtitles else lines_of(args.text)
    from asr.transcription.alignment import align
    from asr.transcription.recordings import one_recording
    from asr.transcription.windows import reader

    recording = one_recording(args.audio, "give one sound file")
    recognizer = load(args)
    read = reader(recording, recognizer.sample_rate)
    found = align(recognizer, read, recording, lines, args.normalize, precision=args.precision)
    return [
        subtitles.retimed(found.segments)
        if subtitles and kind == subtitles.kind
        else FORMATS[kind](found, layout)
        for kind in args.format
    ]


def lines_of(path):
    """Read the lines of a text, each with its place."""
    from asr.data.corpora.corpus import read_lines
    from asr.data.manifest import fault_of_text

    lines = read_lines(Path(path))
    for where, line in lines:
        if fault := fault_of_text(line):
            raise UserError(f"{where}: the text {fault}; take that out")
    if not lines:
        raise UserError(f"{path}: is empty; expected the text of the recording")
    return lines


def score(args, stamps):
    """Score the texts of a manifest, and list the recordings that can't be read; return the exit status."""
    from asr import failures
    from asr.data import manifest
    from asr.transcription.alignment import score_texts
    from asr.transcription.decoding import warn_failures
    from asr.transcription.recordings import find

    recordings = find([], [args.manifest])
    texts = [utterance.text for utterance in manifest.read(args.manifest)]
    found, lost = score_texts(
        load(args), recordings, texts, args.normalize, args.batch_seconds, args.precision
    )
    warn_failures(lost, len(recordings))
    table = "".join(f"{one.id}\t{one.log_confidence:.4f}\t{one.text}\n" for one in found)
    if not stamps:
        emit(table, end="")
        return end(lost, len(recordings), "", "aligned")
    [(path, stamp)] = stamps.items()
    if found:
        save(path, table, stamp, len(lost))
        logger.info(f"written: {path}")
    failures.write(Path(f"{path}{FAILED}"), lost)
    return end(lost, len(recordings), f"; they are listed in {path}{FAILED}", "aligned")


def save(path, text, stamp, failed=0):
    """Write a file, and stamp it; as not finished, if that many recordings failed."""
    from asr.files import make_folder, write_text

    make_folder(path.parent)
    stamp.begin()
    write_text(path, text)
    if failed:
        stamp.begin(failed=failed)
    else:
        stamp.write()


def load(args):
    """Load the model."""
    from asr.device import choose, keep_memory, remember_few_shapes
    from asr.models.recognizer import load

    try:
        device, which = choose(args.device)
    except ValueError as error:
        raise UserError(str(error)) from None
    keep_memory()
    remember_few_shapes()
    logger.info(which)
    return load(args.model, device)


if __name__ == "__main__":
    main()
