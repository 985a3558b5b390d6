"""asr-decode: a model folder and recordings → their text."""

from asr.cli.command import command, parser, say

EXAMPLES = """Text goes to stdout or --out as `id<TAB>text`, in the order of the input; the id of a file is its path
as given.

examples:
  asr-decode --model exp/an4 a.wav b.flac recordings/
  asr-decode --model exp/an4 --manifest data/an4/test.jsonl.gz --out exp/an4/test.txt --json exp/an4/test.json
"""


def arguments():
    """Describe the command's arguments; those of the search are `asr.transcribe.transcribe.SearchOptions`'."""
    args = parser("asr-decode", "Transcribe recordings with a trained model.", EXAMPLES)
    args.add_argument("--model", required=True, metavar="DIR", help="model folder of asr-train")
    args.add_argument(
        "sources", nargs="*", metavar="FILE", help="sound files (wav, flac, ogg, opus, mp3, sph), folders"
    )
    args.add_argument("--manifest", action="append", default=[], metavar="JSONL", help="manifest of asr-prepare")
    args.add_argument("--mode", default="joint", help="joint (default), attention, attention-greedy or ctc-greedy")
    args.add_argument("--beam", type=int, default=10, help="hypotheses of an utterance (default 10)")
    args.add_argument("--ctc-weight", type=float, default=0.3, help="of the joint search (default 0.3)")
    args.add_argument("--nbest", type=int, default=1, help="hypotheses in the JSON lines (default 1)")
    args.add_argument("--batch-seconds", type=float, default=120.0, help="of padded audio a batch (default 120)")
    args.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"], help="default: a GPU if it works")
    args.add_argument("--precision", default="fp32", choices=["fp32", "bf16"], help="default: fp32")
    args.add_argument(
        "--out", metavar="FILE", help="write the text there; done already, it is not done again (but for --json)"
    )
    args.add_argument("--json", metavar="FILE", help="write JSON lines with scores and n-best lists there")
    return args


@command
def main(argv):
    """Transcribe, unless --out is there already."""
    args = arguments().parse_intermixed_args(argv)
    from asr.errors import UserError

    if not args.sources and not args.manifest:
        raise UserError("nothing to transcribe; give sound files, folders, or --manifest")
    stamp = identity(args) if args.out else None
    if stamp and stamp.is_current() and not args.json:
        return say(f"{args.out} is up to date")
    run(args, stamp)


def identity(args):
    """Make the stamp of --out: the model's files, the inputs, and all arguments that change the text."""
    import os

    from asr.stamp import Stamp

    model = [
        os.path.join(args.model, name) for name in ("config.yaml", "model.safetensors", "tokenizer.json", "bpe.model")
    ]
    facts = {name: getattr(args, name) for name in ("mode", "beam", "ctc_weight", "nbest", "precision")}
    return Stamp(args.out, "asr-decode", facts, [*model, *args.sources, *args.manifest])


def run(args, stamp):
    """Load the model, transcribe, write."""
    import json
    import sys
    from contextlib import ExitStack

    from tqdm import tqdm

    from asr.errors import UserError
    from asr.files import replacing
    from asr.models.recognizer import load
    from asr.training.device import choose
    from asr.transcribe.sources import find
    from asr.transcribe.transcribe import Clock, SearchOptions, as_json, transcribe

    options = SearchOptions(args.mode, args.beam, args.ctc_weight, args.nbest)
    try:
        device, which = choose(args.device)
    except ValueError as error:
        raise UserError(str(error)) from None
    sources = find(args.sources, args.manifest)
    recognizer = load(args.model, device)
    say(which)
    clock = Clock()
    if stamp:
        stamp.remove()
    with ExitStack() as stack:
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
        stamp.write(audio_seconds=round(clock.audio, 2), wall_seconds=round(clock.wall, 2), rtf=round(clock.rtf, 4))
    say(f"{len(sources)} utterances, {clock.audio:.1f} s of audio in {clock.wall:.1f} s, RTF {clock.rtf:.4f}")


def open_text(stack, path, replacing):
    """Open a file for UTF-8 text that takes its name when the stack closes without an error."""
    return stack.enter_context(open(stack.enter_context(replacing(path)), "w", encoding="utf-8"))


if __name__ == "__main__":
    main()
