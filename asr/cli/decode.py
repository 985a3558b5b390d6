"""asr-decode: a model folder and recordings → their text."""

from contextlib import contextmanager

from asr.cli.command import command, parser, say

EXAMPLES = """Text goes to stdout or --out as `id<TAB>text`, in the order of the input; the id of a file is its path
as given.

examples:
  asr-decode --model exp/an4/model a.wav b.flac recordings/
  asr-decode --model exp/an4/model --manifest data/an4/test.jsonl.gz --out exp/an4/test.txt --json exp/an4/test.json
  asr-decode --model exp/an4/model --manifest data/an4/dev.jsonl.gz --tune ctc-weight=0.3,0.5 --tune length-bonus=0,1
"""

SEARCH = (  # SearchOptions
    *("mode", "beam", "ctc_weight", "nbest", "length_bonus"),
    *("lm", "lm_weight", "hotwords", "hotword_weight"),
)
FAR = 1.5  # times the longest recording of training


def arguments():
    """Describe the command's arguments; those of the search are `asr.transcribe.options.SearchOptions`'."""
    args = parser("asr-decode", "Transcribe recordings with a trained model.", EXAMPLES)
    args.add_argument("--model", required=True, metavar="DIR", help="model folder of asr-train")
    args.add_argument(
        "sources", nargs="*", metavar="FILE", help="sound files (wav, flac, ogg, opus, mp3, sph), folders"
    )
    args.add_argument("--manifest", action="append", default=[], metavar="JSONL", help="manifest of asr-prepare")
    args.add_argument("--mode", default="joint", help="joint (default), attention, ctc, rescoring, or *-greedy")
    args.add_argument("--beam", type=int, default=10, help="hypotheses of an utterance (default 10)")
    args.add_argument("--ctc-weight", type=float, default=0.3, help="of the joint search (default 0.3)")
    args.add_argument("--length-bonus", type=float, default=0.0, help="nats a label, against deletions (default 0)")
    args.add_argument("--lm", metavar="PATH", help="language model: folder of asr-train, or ARPA file over tokens")
    args.add_argument("--lm-weight", type=float, default=0.3, help="default 0.3")
    args.add_argument("--hotwords", metavar="FILE", help="a word or phrase a line, perhaps with a tab and a factor")
    args.add_argument("--hotword-weight", type=float, default=2.0, help="nats a token of a hotword (default 2)")
    args.add_argument("--nbest", type=int, default=1, help="hypotheses in the JSON lines (default 1)")
    args.add_argument("--batch-seconds", type=float, default=120.0, help="of padded audio a batch (default 120)")
    args.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"], help="default: a GPU if it works")
    args.add_argument("--precision", default="fp32", choices=["fp32", "bf16"], help="default: fp32")
    args.add_argument(
        "--out", metavar="FILE", help="write the text there; done already, it is not done again (but for --json)"
    )
    args.add_argument("--json", metavar="FILE", help="write JSON lines with scores and n-best lists there")
    args.add_argument(
        "--tune",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="print the WER of each setting, as ctc-weight=0.3,0.5; given twice or more: of each combination",
    )
    return args


@command
def main(argv):
    """Transcribe, unless --out is there already."""
    args = arguments().parse_intermixed_args(argv)
    check(args)
    if args.tune:
        return tune(args)
    stamp = identity(args) if args.out else None
    if stamp and stamp.is_current() and not args.json:
        return say(f"{args.out} is up to date")
    run(args, stamp)


def check(args):
    """Refuse what can be seen without the model, also where a plan asks (scripts/plan.py)."""
    import os

    from asr.errors import UserError

    if not args.sources and not args.manifest:
        raise UserError("nothing to transcribe; give sound files, folders, or --manifest")
    if not args.batch_seconds > 0:
        raise UserError(f"--batch-seconds: got {args.batch_seconds:g}, expected more than 0")
    if args.out and args.json and os.path.realpath(args.out) == os.path.realpath(args.json):
        raise UserError(f"--out and --json: both are {args.out}; give each its own file")
    search_options(args)


def search_options(args):
    """How to search, checked."""
    from asr.transcribe.options import SearchOptions

    return SearchOptions(**{name: getattr(args, name) for name in SEARCH})


def identity(args):
    """Make the stamp of --out: the model's files, the inputs, and all arguments that change the text."""
    import os

    from asr.stamp import Stamp

    folders = [path for path in (args.model, args.lm) if path and not os.path.isfile(path)]
    names = ("config.yaml", "model.safetensors", "tokenizer.json", "bpe.model")
    model = [os.path.join(folder, name) for folder in folders for name in names]
    model += [path for path in (args.lm, args.hotwords) if path and os.path.isfile(path)]
    facts = {name: getattr(args, name) for name in (*SEARCH, "precision")}
    order = [*args.sources, *args.manifest]
    facts |= {"order": order} if len(order) > 1 else {}
    return Stamp(args.out, "asr-decode", facts, [*model, *args.sources, *args.manifest])


def load(args):
    """Load the model, find what to transcribe, check the options."""
    from asr.errors import UserError
    from asr.models.recognizer import load
    from asr.training.device import choose, keep_memory
    from asr.transcribe.sources import find

    options = search_options(args)
    try:
        device, which = choose(args.device)
    except ValueError as error:
        raise UserError(str(error)) from None
    keep_memory()
    sources = find(args.sources, args.manifest)
    recognizer = load(args.model, device)
    say(which)
    tell_long(sources, args.model)
    tell_untrained(recognizer.model, options)
    return recognizer, sources, options


def tell_long(sources, folder):
    """Say which recordings are far longer than what the model has heard in training: it makes little of them."""
    from asr.errors import shorten
    from asr.models.folder import longest_heard

    heard = longest_heard(folder)
    long = [s.id for s in sources if heard and s.duration > FAR * heard]
    if long:
        most = max(s.duration for s in sources)
        say(
            f"{len(long)} recordings of up to {most:.0f} s are far longer than the model has heard, {heard:.1f} s at "
            f"most ({shorten(long)}); expect errors, or cut them at pauses"
        )


def tell_untrained(model, options):
    """Say if the search listens to a part of the model that had no share in the loss, and was never trained."""
    fixed = {"attention": 0.0, "attention-greedy": 0.0, "ctc": 1.0, "ctc-greedy": 1.0}
    weight = fixed.get(options.mode, options.ctc_weight)
    if model.ctc_weight == 1 and weight < 1:
        say("the attention decoder was not trained (model.ctc_weight is 1) and spoils this search; use --mode ctc")
    if model.ctc_weight == 0 and (weight > 0 or options.mode == "rescoring"):
        say("CTC was not trained (model.ctc_weight is 0) and spoils this search; use --mode attention")


@contextmanager
def memory_told():
    """Say what helps where the memory is too small."""
    from asr.errors import UserError
    from asr.training.memory import is_out

    try:
        yield
    except RuntimeError as error:
        if not is_out(error):
            raise
        raise UserError("out of memory; cut long recordings at pauses, or lower --batch-seconds or --beam") from None


def tune(args):
    """Print the word (or mixed) error rate of each setting of --tune, and then the best."""
    from asr.errors import UserError
    from asr.scoring.score import UNITS, percent, score_texts, units_of
    from asr.scoring.texts import match, read_texts
    from asr.transcribe.tuning import parse_grid, tune

    if args.sources or not args.manifest or args.out or args.json:
        raise UserError("--tune needs the texts of a --manifest, and neither sound files nor --out nor --json")
    grid = parse_grid(args.tune, search_options(args))
    references = {}
    for path in args.manifest:
        texts = read_texts(path)
        match(texts, texts, path, path)
        references |= texts
    if not references:
        raise UserError(f"{', '.join(args.manifest)}: no utterance to tune on")
    unit = units_of(references.values())[0]
    results = []
    with memory_told():
        for setting, texts in tune(*load(args), grid, args.batch_seconds, args.precision):
            options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in setting.items())
            results.append((score_texts(references, texts, unit).total.rate, options))
            print(f"{percent(results[-1][0])}\t{options}", flush=True)
    rate, options = min(results, key=lambda result: result[0])  # of equals the first
    say(f"best: {options} ({UNITS[unit]} {percent(rate)} %)")


def run(args, stamp):
    """Load the model, transcribe, write."""
    import json
    import sys
    from contextlib import ExitStack

    from tqdm import tqdm

    from asr.files import replacing
    from asr.training.device import hardware
    from asr.transcribe.transcribe import Clock, as_json, transcribe

    recognizer, sources, options = load(args)
    clock = Clock()
    with memory_told(), ExitStack() as stack:
        text = open_text(stack, args.out, replacing) if args.out else sys.stdout
        lines = open_text(stack, args.json, replacing) if args.json else None
        total = round(sum(s.duration for s in sources))
        bar = stack.enter_context(tqdm(total=total, unit="s", desc="audio", disable=None, leave=False))
        for transcript in transcribe(
            recognizer, sources, options, args.batch_seconds, args.precision, clock, lambda s: bar.update(round(s, 1))
        ):
            print(f"{transcript.source.id}\t{transcript.text}", file=text)
            if lines:
                print(json.dumps(as_json(transcript), ensure_ascii=False), file=lines)
        text.flush()
        if stamp:
            stamp.remove()  # now that the files take their names
    if stamp:
        figures = {"audio_seconds": round(clock.audio, 2), "wall_seconds": round(clock.wall, 2)}
        where = hardware(next(recognizer.parameters()).device)
        stamp.write(**figures, rtf=round(clock.rtf, 4), hardware=where)
    say(f"{len(sources)} utterances, {clock.audio:.1f} s of audio in {clock.wall:.1f} s, RTF {clock.rtf:.4f}")


def open_text(stack, path, replacing):
    """Open a file for UTF-8 text that takes its name when the stack closes without an error."""
    return stack.enter_context(open(stack.enter_context(replacing(path)), "w", encoding="utf-8"))


if __name__ == "__main__":
    main()
