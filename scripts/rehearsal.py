"""A rehearsal at full size without speech: LibriSpeech-960, AISHELL-1 and LibriSpeech's language model text, generated.

    python -m scripts.rehearsal
    python -m scripts.rehearsal aishell --scale 0.1

The corpora have their true layouts, counts of utterances and sizes of alphabets; durations and
texts are drawn like theirs; sound files are silence. Every part is a process of its own: what a
recipe runs before and after training, and what a training does before its first step. It prints
seconds of the clock and of the processors, and MB of the largest process at its peak, and exits
with status 1 if one is beyond its bound. For Linux. Temporary files go to TMPDIR.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.rehearsed import CONFIG, LIBRISPEECH

# Bounds are for a laptop: of its 8 GB a process may take half; what is done once may take a quarter
# of an hour, what is
# done at each start of a training, or after each decoding, two minutes. Seconds of processors
# count, for other work on
# the machine changes them little.
MEMORY, ONCE, EACH = 4000, 900, 120  # MB, seconds, seconds


@dataclass(frozen=True)
class Part:
    """What is measured: a command, and the processors' seconds that it may take."""

    name: str
    command: list[str]
    seconds: float


@dataclass(frozen=True)
class Taken:
    """What a part took: seconds, those of the processors, and MB of its largest process."""

    part: Part
    seconds: float
    cpu: float
    memory: float

    @property
    def excess(self) -> bool:
        """Whether a bound is exceeded."""
        return self.cpu > self.part.seconds or self.memory > MEMORY


def asr(command: str, *arguments: object) -> list[str]:
    """One of the toolkit's commands."""
    return [sys.executable, "-m", f"asr.cli.{command}", *map(str, arguments)]


def own(part: str, *arguments: object) -> list[str]:
    """A function of rehearsed.py as a command."""
    return [
        sys.executable,
        "-m",
        "scripts.rehearsed",
        part,
        *map(str, arguments),
    ]


def librispeech(root: Path, scale: float) -> Iterator[Part]:
    """LibriSpeech-960."""
    generate("librispeech", root, scale)
    yield Part("prepare", asr("prepare", "librispeech", root / "corpus", root / "data"), ONCE)
    yield Part(
        "prepare, up to date", asr("prepare", "librispeech", root / "corpus", root / "data"), EACH
    )
    manifests = [root / f"data/{name}.jsonl.gz" for name in LIBRISPEECH]
    join(root / "train.jsonl.gz", manifests[:3])
    join(root / "dev.jsonl.gz", manifests[3:5])
    size = 5000 if scale == 1 else 300
    train = root / "train.jsonl.gz"
    yield Part(
        f"tokenizer, BPE {size}",
        asr("tokenizer", train, root / "tokenizer", "--kind=bpe", "--size", size),
        ONCE,
    )
    yield from training(root)
    yield from scoring(root, manifests[5:], "word")


def aishell(root: Path, scale: float) -> Iterator[Part]:
    """AISHELL-1."""
    generate("aishell", root, scale)
    yield Part("prepare", asr("prepare", "aishell", root / "corpus", root / "data"), ONCE)
    join(root / "train.jsonl.gz", [root / "data/train.jsonl.gz"])
    join(root / "dev.jsonl.gz", [root / "data/dev.jsonl.gz"])
    texts = (
        root / "train.jsonl.gz",
        root / "dev.jsonl.gz",
    )  # of a small share, train alone lacks characters
    command = asr("tokenizer", *texts, root / "tokenizer", "--kind=characters")
    yield Part("tokenizer, characters", command, ONCE)
    yield from training(root)
    yield from scoring(root, [root / "data/test.jsonl.gz"], "char")


def text(root: Path, scale: float) -> Iterator[Part]:
    """A language model's text."""
    generate("text", root, scale)
    size = 5000 if scale == 1 else 300
    command = asr(
        "tokenizer", root / "text.txt.gz", root / "tokenizer", "--kind=bpe", "--size", size
    )
    yield Part(f"tokenizer, BPE {size}", command, ONCE)
    yield Part("token ids to disk", own("tokens", root), ONCE)
    yield Part("open, plan an epoch, first batch", own("windows", root), EACH)


CORPORA: dict[str, Callable[[Path, float], Iterator[Part]]] = {
    "librispeech": librispeech,
    "aishell": aishell,
    "text": text,
}


def generate(corpus: str, root: Path, scale: float) -> None:
    """Generate a corpus, in a process of its own: a part's memory at its peak counts that of who has started it."""
    subprocess.run(own("write", corpus, root, scale), check=True)


def join(path: Path, manifests: list[Path]) -> None:
    """Put manifests one behind the other, which gzip allows."""
    path.write_bytes(b"".join(manifest.read_bytes() for manifest in manifests))


def training(root: Path) -> Iterator[Part]:
    """What comes before the first step of a training."""
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    yield Part("read, tokenize, plan an epoch", own("begin", root), EACH)
    yield Part("look for problems (--check)", own("problems", root), ONCE)


def scoring(root: Path, tests: list[Path], unit: str) -> Iterator[Part]:
    """What comes after decoding."""
    yield Part(f"score, {unit} errors", own("score", unit, *tests), EACH)


def measure(part: Part) -> Taken:
    """Run a part.

    raises   SystemExit with what it said, if it fails
    """
    with tempfile.TemporaryFile("w+") as said:
        began = time.monotonic()
        process = subprocess.Popen(part.command, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            sys.exit(f"{part.name}: exit status {process.returncode}\n{said.read()}")
    return Taken(part, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def row(corpus: str, taken: Taken) -> str:
    """A line of the Markdown table."""
    seconds = f"{taken.seconds:.1f} | {taken.cpu:.1f} | {taken.part.seconds:g}"
    memory = f"{taken.memory:,.0f} | {MEMORY:,} |{' EXCEEDED' * taken.excess}"
    return f"| {corpus} | {taken.part.name} | {seconds} | {memory}"


def main() -> None:
    """Rehearse."""
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument(
        "corpora", nargs="*", metavar="CORPUS", help=f"some of {', '.join(CORPORA)} (default: all)"
    )
    args.add_argument(
        "--scale", type=float, default=1.0, help="share of the true counts (default: 1)"
    )
    args = args.parse_args()
    if unknown := set(args.corpora) - set(CORPORA):
        sys.exit(f"{', '.join(sorted(unknown))}: expected some of {', '.join(CORPORA)}")
    print(
        "| corpus | part | s | of processors | bound | MB | bound |\n|" + 7 * " --- |", flush=True
    )
    exceeded = 0
    for corpus in args.corpora or CORPORA:
        with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
            for taken in map(measure, CORPORA[corpus](Path(folder), args.scale)):
                print(row(corpus, taken), flush=True)
                exceeded += taken.excess
    if exceeded:
        sys.exit(f"{exceeded} parts are beyond their bounds")


if __name__ == "__main__":
    main()
