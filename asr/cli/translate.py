"""asr-decode of a translator: lines of text in, a translation of each out."""

import itertools
import os
import sys
from contextlib import contextmanager

from asr.cli.command import emit
from asr.cli.decode_arguments import NAME, arguments, refuse_idle, search_options, stopping
from asr.errors import UserError
from asr.journal import Journal, beside
from asr.logging import logger, progress_bar
from asr.memory import is_oom
from asr.options import declared, paths
from asr.outputs import STDOUT, check_inputs, check_output, check_plain
from asr.stamp import Stamp
from asr.transcription.decoding import Decoding, Output, json_line, write
from asr.transcription.options import (
    NOT_FOR_TRANSLATORS,
    SearchOptions,
    idle_options,
    translator_mode,
)

USED = {"model", "sources", "order", "named", "out", "json", "force", "device", "precision"}
USED |= {
    "tune",
    "reference",
    "tokenize",
    "lowercase",
    *(option.name for option in declared(SearchOptions)),
}


def decode(args):
    """Translate, unless it is done already; or try settings on a dev set."""
    how = Decoding(args.model, search(args), None, args.precision, args.device)
    how.check_files()
    named = [path for path in args.sources if path != STDOUT]
    check_inputs(named)
    if args.tune:
        with memory_errors():
            return tune(args, how)
    for option in ("reference", "tokenize", "lowercase"):
        if getattr(args, option):
            raise UserError("is for --tune; asr-score judges translations", argument=option)
    check_outputs(args, [args.model, *paths(how.options).values(), *named])
    facts = how.settings() | {"order": args.sources}, [*how.files(), *named]
    kinds = [(text_output(args), text_line), (args.json, json_line)]
    printed = [line for path, line in kinds if path == STDOUT]  # to be done in any case
    outputs = [
        Output(path, line, Stamp(path, NAME, *facts))
        for path, line in kinds
        if path not in (None, STDOUT)
    ]
    from_files = bool(named) and named == args.sources  # standard input is new each time
    if from_files and not printed and all(output.stamp.is_current() for output in outputs):
        return logger.info("; ".join(f"{output.path} is up to date" for output in outputs))
    with memory_errors(), stopping(outputs):
        run(args, how, outputs, printed)


@contextmanager
def memory_errors():
    """Tell running out of memory as what it is."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_oom(error):
            raise
        raise UserError("out of memory; lower --beam") from None


def search(args):
    """How to search, checked: what a translator has no use for is refused."""
    defaults = arguments()
    for name, value in vars(args).items():
        known = name in USED - NOT_FOR_TRANSLATORS
        if not known and value != defaults.get_default(name):
            raise UserError(
                f"got {value!r}, but {args.model} is a translator, which reads text; leave it out",
                argument=name,
            )
    options = search_options(args, mode=translator_mode(args.mode))
    refuse_idle(args, idle_options(options) | ({} if args.json else {"nbest": "without `json`"}))
    return options


def check_outputs(args, inputs):
    """See that no output replaces an input, or what isn't this command's."""
    for option, path in (("--out", args.out), ("--json", args.json)):
        if path not in (None, STDOUT):
            check_plain(option, path)
            check_output(option, path, NAME, inputs, args.force)
    if args.out and args.json and os.path.realpath(args.out) == os.path.realpath(args.json):
        raise UserError(f"--out and --json: both are {args.out}; give each its own file")


def run(args, how, outputs, printed):
    """Translate; print each line as soon as all before it are done, and write the files when all are.

    printed   what makes a printed line of a result
    """
    keys, lines, empty = [], 0, 0
    with Journal(beside(outputs[0].path) if outputs else None, how.work()) as journal:
        if len(journal):
            logger.info("going on: what an earlier session has translated isn't translated again")
        with progress_bar(unit=" lines") as bar:
            for key, results in translations(args, how, journal):
                keys.append(key)
                lines += len(results)
                empty += sum(not result["nbest"] for result in results)
                for result, line in itertools.product(results, printed):
                    emit(line(result))
                bar.update(len(results))
        seconds = {"wall_seconds": round(journal.seconds(keys)[1], 2)}
        write(outputs, lambda: (one for key in keys for one in journal.get(key)["lines"]), seconds)
        journal.remove()
    stay = f", {empty} without a token stay empty" if empty else ""
    logger.info(f"{lines - empty} lines translated{stay}")


def translations(args, how, journal):
    """Load the model, and translate the lines of all sources, a window of them at a time: its key and results."""
    from asr.translation.translate import journaled

    sources = args.sources or [STDOUT]
    texts, live = itertools.chain.from_iterable(map(read, sources)), STDOUT in sources
    for key in journaled(load(how), texts, how.options, how.precision, journal, live):
        yield key, journal.get(key)["lines"]
        journal.forget(key)


def text_line(result):
    """Write a result as a line of text: its tokens have no line ends."""
    return result["text"]


def text_output(args):
    """Where the texts go; None: nowhere."""
    return args.out or (None if args.json == STDOUT else STDOUT)


def load(how):
    """Load the model onto its device."""
    from asr.device import choose, keep_memory
    from asr.models.translator import load

    try:
        device, which = choose(how.device)
    except ValueError as error:
        raise UserError(str(error)) from None
    keep_memory()
    logger.info(which)
    return load(how.model, device)


def read(path):
    """Read the lines of a file, or of standard input."""
    from asr.data.texts import Block, no_table, parse
    from asr.data.texts import read as read_file
    from asr.files import read_lines

    lines = Block(STDOUT, 1, read_lines(sys.stdin.buffer, "standard input"), 0)
    for text in parse(lines) if path == STDOUT else read_file(path):
        yield no_table(text)


def tune(args, how):
    """Print the BLEU of each setting of --tune, and then the best."""
    from asr.scoring.translation import bleu, check_tokenizer, read_references
    from asr.transcription.tuning import parse_grid
    from asr.translation.translate import tuned

    if not args.sources or not args.reference or args.out or args.json:
        raise UserError("--tune: needs texts and their --reference, and neither --out nor --json")
    separated = args.tokenize or "13a"
    check_tokenizer(separated)
    grid, results = parse_grid(args.tune, how.options), []
    texts = [text for path in args.sources for text in read(path)]
    references = read_references(args.reference)
    if len(texts) != len(references):
        raise UserError(
            f"{args.reference}: got {len(references)} lines, expected {len(texts)}, as many as are translated"
        )
    for setting, found in tuned(load(how), texts, how.options, grid, how.precision):
        options = " ".join(f"--{name.replace('_', '-')} {v}" for name, v in setting.items())
        results.append((bleu(references, found, separated, args.lowercase), options))
        emit(f"{results[-1][0]:.2f}\t{options}")
    score, options = max(results, key=lambda result: result[0])  # of equals the first
    logger.info(f"best: {options} (BLEU {score:.2f})")
