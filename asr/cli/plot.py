"""asr-plot: a recording and a model → a picture of what it hears; or the curves of several runs."""

import os
from pathlib import Path

from asr.cli.command import ANEW, command, count, emit, parser, place
from asr.cli.decode_arguments import add_options, refuse_idle, search_options
from asr.errors import UserError
from asr.logging import logger
from asr.transcription.options import (
    NOT_FOR_TRANSLATORS,
    SearchOptions,
    idle_options,
    translator_mode,
)

NAME, CURVES = "asr-plot", "curves"
EXAMPLES = """Without --attention, the plot shows, one below the other: the features, the posteriors of CTC with the
tokens where CTC emits them, and the words with their times and confidences. With --attention, it shows the decoder's
attention to the recording, by layer and head, for the recognized text. For a translator and a line of text, it always
shows the attention to the source tokens.

`asr-plot curves RUN... --out FILE` draws the metrics of one or more training runs instead, with a panel per metric and
a line per run.

examples:
  asr-plot --model exp/an4/model a.wav --out a.png
  asr-plot --model exp/an4/model a.wav --attention --out attention.png
  asr-plot --model exp/multi30k/model val.en --line 3 --length-norm 1.4 --out attention.png
  asr-plot curves exp/one/model exp/other/model --out curves.png
"""


def arguments():
    """Describe the command's arguments."""
    args = parser(NAME, "Plot what a model computes for a recording.", EXAMPLES)
    args.add_argument(
        "--model", type=place, required=True, metavar="DIR", help="model folder of asr-train"
    )
    args.add_argument(
        "recording",
        type=place,
        metavar="FILE",
        help="sound file of a minute or less; for a translator, a text with one sentence per line",
    )
    args.add_argument(
        "--line",
        type=count,
        metavar="N",
        help="for a text: the line to plot (default 1)",
    )
    args.add_argument(
        "--attention", action="store_true", help="draw the decoder's attention instead"
    )
    group = args.add_argument_group("search, as in asr-decode")
    add_options(group, SearchOptions, without=("nbest", "vad"))
    return add_output(args)


def arguments_of_curves():
    """Describe the arguments of `asr-plot curves`."""
    args = parser(f"{NAME} {CURVES}", "Plot the metrics of training runs, with a panel per metric.")
    args.add_argument(
        "runs", type=place, nargs="+", metavar="RUN", help="folder of asr-train, with metrics.jsonl"
    )
    return add_output(args)


def add_output(args):
    """Add what both have."""
    args.add_argument("--out", type=place, required=True, metavar="PNG", help="image to write")
    args.add_argument(
        "--force", action="store_true", help="replace a PNG that the toolkit didn't draw"
    )
    return args


@command(hint=ANEW)
def main(argv):
    """Draw, and write the picture."""
    draw = curves if argv[:1] == [CURVES] else drawing
    args = (
        arguments_of_curves().parse_args(argv[1:])
        if draw is curves
        else arguments().parse_args(argv)
    )
    from asr.hub import find_model
    from asr.outputs import check_inputs, check_output

    if draw is not curves:
        args.model = find_model(args.model)
        args.lm = find_model(args.lm) if args.lm else None
    inputs = args.runs if draw is curves else [args.model, args.recording]
    check_inputs(inputs)
    from asr.training.plots import is_plot, pixels, save

    check_output("--out", args.out, NAME, inputs, args.force, is_plot)
    save(pixels(draw(args)), Path(args.out))
    logger.info(f"written: {args.out}")


def drawing(args):
    """Draw a recording, or, of a translator, a line of text."""
    from asr.model_files import kind_of

    return sentence(args) if kind_of(args.model) == "translator" else utterance(args)


def sentence(args):
    """Draw where a translator looks in a line; print the translation."""
    import itertools

    from asr.data import texts
    from asr.models import translator
    from asr.translation import attention

    options, line = search_options(args, mode=translator_mode(args.mode)), args.line or 1
    refuse_idle(
        args, idle_options(options) | dict.fromkeys(NOT_FOR_TRANSLATORS, "for a translator")
    )
    text = next(itertools.islice(texts.read(args.recording), line - 1, None), None)
    if text is None:
        raise UserError(f"{args.recording}: has no line {line}; choose another --line")
    seen = attention.observe(translator.load(args.model), text, options)
    emit(f"{text.where}\t{seen.text}")
    return attention.draw(seen, f"{text.text.strip()}: {seen.text}")


def utterance(args):
    """Draw a recording; print its text."""
    from asr import api
    from asr.audio.containers import decoding
    from asr.audio.load import load
    from asr.transcription import plots

    if args.line is not None:
        raise UserError("is for a translator's texts; leave it out", "line")
    options = search_options(args)
    refuse_idle(args, idle_options(options))
    recognizer = api.load(args.model)
    with decoding():
        waveform = load(args.recording, recognizer.sample_rate)
    if (seconds := len(waveform) / recognizer.sample_rate) > plots.LONGEST:
        expected = f"expected {plots.LONGEST:.0f} s or less; cut it"
        raise UserError(f"{args.recording}: got {seconds:.0f} s of audio, {expected}")
    seen = plots.observe(recognizer, waveform, options)
    text = recognizer.tokenizer.decode(seen.tokens)
    emit(f"{args.recording}\t{text}")
    draw = plots.attention if args.attention else plots.utterance
    return draw(seen, f"{os.path.basename(args.recording)}: {text}")


def curves(args):
    """Draw the metrics of runs, named by what differs in their paths."""
    from asr.training.metrics import MetricsFile
    from asr.training.plots import compared

    runs = {}
    for name, run in zip(differing(args.runs), args.runs, strict=True):
        lines = MetricsFile(Path(run) / "metrics.jsonl").read()
        runs[name] = [line for line in lines if line["kind"] in ("train", "dev")]
        if not runs[name]:
            raise UserError(f"{run}: has no metrics.jsonl of asr-train; expected a run's folder")
        check_numbers(run, runs[name])
    return compared(runs)


def check_numbers(run, lines):
    """See that all metrics of a run are numbers, or null, and have an epoch."""
    for line in lines:
        for name, value in (line | {"epoch": line.get("epoch", "nothing")}).items():
            known = name in ("kind", "date") or isinstance(value, int | float)
            if not known and (value is not None or name == "epoch"):
                raise UserError(
                    f"{run}/metrics.jsonl: got {value!r} as {name}, expected a number; take that line out"
                )


def differing(paths):
    """Take from paths the folders that all begin with, and those that all end with.

    >>> differing(["exp/one/model", "exp/other/model"])
    ['one', 'other']
    """
    parts = [Path(os.path.normpath(path)).parts for path in paths]
    if len(set(parts)) < len(parts):
        raise UserError("got a run twice; expected different ones")
    first = last = 0
    spare = min(map(len, parts)) - 1  # a name is left of each
    while first < spare and len({path[first] for path in parts}) == 1:
        first += 1
    while first + last < spare and len({path[-1 - last] for path in parts}) == 1:
        last += 1
    return [os.path.join(*path[first : len(path) - last]) for path in parts]


if __name__ == "__main__":
    main()
