"""Synthesize more sentences in the voices of mini's dev or test set, for measurements that need more than these.

    python recipes/mini/more.py OUT [--split test-mini] [--count 4000] [--seed 1]

OUT has the corpus' layout (synthesize.py). None of its sentences is one of the corpus.
"""

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # recipes/

from synthesis.corpus import Utterance, complete
from synthesize import SPEAKERS, name, plan, sentences, transcript, write

VERSION = "mini-1-more"
FIRST = 1000  # turn of a speaker; the corpus has fewer


def more(split, count, seed=1):
    """Decide who says what in further utterances of a split's speakers → [Utterance, ...]."""
    corpus = plan(seed=seed)
    taken = {transcript(u.sentence) for utterances in corpus.values() for u in utterances}
    cast = list(dict.fromkeys(u.speaker for u in corpus[split]))
    drawn = sentences(random.Random(f"{seed} more {split}"), count, taken)
    turns = [(cast[k % len(cast)], FIRST + k // len(cast)) for k in range(count)]
    return [Utterance(name(*turn), turn[0], text) for turn, text in zip(turns, drawn, strict=True)]


def main():
    """Write them, or what of them is still missing."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("out", type=Path, help="folder for the recordings")
    args.add_argument("--split", choices=list(SPEAKERS), default="test-mini")
    args.add_argument("--count", type=int, default=4000, help="of utterances (default 4000)")
    args.add_argument("--seed", type=int, default=1, help="the corpus' (default 1)")
    args = args.parse_args()
    try:
        complete(
            args.out,
            VERSION,
            {"seed": args.seed, "split": args.split, "count": args.count},
            lambda: {args.split: more(args.split, args.count, args.seed)},
            lambda corpus: write(args.out / "LibriSpeech", corpus, args.seed),
        )
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
