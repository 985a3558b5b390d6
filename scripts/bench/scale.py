"""The data side of training at the size of LibriSpeech-960: seconds, memory, padding; and lhotse's sampler beside ours.

    python -m scripts.bench.scale --workers 8 --out exp/scale.json

A manifest is generated: ids, paths, texts and durations like LibriSpeech's, and one sound file that
all entries share. It is measured as it is, and with each utterance three times, as toolkits that
write out speed perturbation have it. Every part runs in a process of its own. Times are wall clock;
in brackets those of the processor, which a busy machine changes little. For Linux.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from scripts.bench.generated import LETTERS, RATE, durations, texts
from scripts.bench.place import output

BATCH_SECONDS = 100
SPEEDS = [0.9, 1.0, 1.1]


class Clock:
    """Wall and processor seconds since it was made, or last read."""

    def __init__(self, begun: float | None = None):
        self.wall, self.cpu = begun or time.monotonic(), 0.0 if begun else time.process_time()

    def read(self) -> tuple[float, float]:
        """Say (wall, processor) seconds and begin again."""
        past, self.wall, self.cpu = (self.wall, self.cpu), time.monotonic(), time.process_time()
        return self.wall - past[0], self.cpu - past[1]


def generate(folder: Path, count: int, copies: int) -> Path:
    """Write a manifest of count × copies entries and the sound file of all."""
    import soundfile

    from asr.data import manifest
    from asr.data.manifest import Utterance

    sound = folder / "LibriSpeech/train-other-500/1006/135212/1006-135212-0000.flac"
    sound.parent.mkdir(parents=True, exist_ok=True)
    if not sound.exists():
        soundfile.write(sound, np.zeros(36 * RATE, np.float32), RATE)
    seconds = durations(count).tolist()

    def utterances() -> Iterator[Utterance]:
        for copy in range(copies):
            for n, (duration, text) in enumerate(zip(seconds, texts(seconds), strict=True)):
                speaker, chapter = 14 + n // 120, 100_000 + n // 50
                name = f"{speaker}-{chapter}-{n % 50:04d}" + f"-sp{copy}" * (copies > 1)
                yield Utterance(
                    name, str(sound), RATE, 36 * RATE, 1, 0.0, duration, text, str(speaker)
                )

    path = folder / f"train-{count * copies}.jsonl.gz"
    manifest.write(path, utterances())
    return path


def measure_steps(path: Path) -> dict:
    """Open, tokenize, plan; and the padding of plans."""
    from asr.data import columns as table
    from asr.data.bucketing import Shards
    from asr.tasks import utterances as examples
    from asr.tasks.utterances import Split
    from asr.text import tokenizer

    taken, clock = {}, Clock()
    utterances = table.read(path)
    taken["open the manifest"] = clock.read()
    bpe, characters = (
        tokenizer.load(path.parent / "tokenizer"),
        tokenizer.train("characters", [f"E {LETTERS}"]),
    )
    clock.read()
    examples.encode(utterances, characters)
    taken["tokenize, characters"] = clock.read()
    labels = examples.encode(utterances, bpe)
    taken["tokenize, 1000 BPE units"] = clock.read()
    lengths = Split(utterances, labels).durations(1, 0, SPEEDS)
    taken["draw the speeds of an epoch"] = clock.read()
    from asr.data.bucketing import plan

    plan(lengths, BATCH_SECONDS, 1, 0, accumulate=8)
    taken["plan an epoch"] = clock.read()
    paths = in_shards(len(lengths))
    clock.read()
    shards = Shards.of(paths)
    taken["Shar: find the shards"] = clock.read()
    plan(lengths, BATCH_SECONDS, 1, 0, accumulate=8, shards=shards)
    taken["Shar: plan an epoch"] = clock.read()
    kinds = [
        (name, most, given)
        for name, given in (("", None), ("Shar: ", shards))
        for most in (100, 300, 1000)
    ]
    padded = {
        f"{name}batches of {most} s": padding(lengths, most, given) for name, most, given in kinds
    }
    return {"seconds": taken, "padding": padded}


def in_shards(count: int):
    """Paths of recordings in shards of 1000, drawn at random."""
    from asr.data.columns import Rows, Strings

    rows = Rows("B")
    for n, shard in enumerate((np.random.default_rng(3).permutation(count) // 1000).tolist()):
        rows.append_bytes(
            f"/corpora/librispeech/train.shar/recording.{shard:06d}.tar:{n * 512}+200000".encode()
        )
    return Strings(rows.done())


def padding(lengths: np.ndarray, most: float, shards=None) -> tuple[float, float]:
    """Share of padding in planned batches; and in those that are read, whose lengths are rounded up."""
    from asr.data.bucketing import plan
    from asr.data.dataset import STEP_SECONDS

    batches = [batch for [batch] in plan(lengths, most, 1, 0, shards=shards)]
    longest, sizes = (
        np.array([lengths[batch].max() for batch in batches]),
        np.array([len(batch) for batch in batches]),
    )
    rounded = np.ceil(longest / STEP_SECONDS - 1e-9) * STEP_SECONDS
    return tuple(1 - lengths.sum() / (sizes * each).sum() for each in (longest, rounded))


def measure_resume(path: Path, workers: int, begun: float) -> dict:
    """From a process that has imported nothing to the first batch in mid-epoch, as asr-train goes on; then memory."""
    clock = Clock(begun)
    from asr import tasks
    from asr.config import load
    from asr.training.build import build

    tree = path.parent / "resume.yaml"
    tree.write_text(
        CONFIG.format(path=path, folder=path.parent, workers=workers, seconds=BATCH_SECONDS)
    )
    settings = load(tasks.RecognizerExperiment, tree)
    model = build(settings)
    imported = clock.read()
    examples = settings.read(model, looked=True)
    read = clock.read()
    task = settings.task(model, examples.train, examples.dev)
    steps = task.plan(3, 8)
    batches = [batch for step in steps[len(steps) // 2 :] for batch in step]
    stream = task.load(3, batches[: 12 * workers])
    next(stream)
    parts = {
        "import, build the model": imported,
        "read and check the data": read,
        "plan, first batch": clock.read(),
    }
    for _ in range(10 * workers):  # so that every worker has read ten, and copied what it writes to
        next(stream)
    children = [
        int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    ]
    return {
        "seconds": parts,
        "memory": [memory(pid) for pid in children],
        "main": memory(os.getpid()),
    }


def memory(pid: int) -> dict[str, float]:
    """MB of a process: its share of pages that it has in common with others (PSS), and what is its own (USS)."""
    lines = [
        line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    ]
    kb = {name.rstrip(":"): int(number) for name, number, *_ in lines}
    return {"pss": kb["Pss"] / 1024, "uss": (kb["Private_Clean"] + kb["Private_Dirty"]) / 1024}


def measure_lhotse(path: Path, count: int, begun: float) -> dict:
    """lhotse's sampler over the same manifest, opened lazily: the first batch, `count` more, restored in mid-epoch."""
    clock = Clock(begun)
    from lhotse import CutSet
    from lhotse.dataset import DynamicBucketingSampler

    def sampler():
        cuts = CutSet.from_jsonl_lazy(path)
        return DynamicBucketingSampler(
            cuts, max_duration=BATCH_SECONDS, num_buckets=30, shuffle=True, seed=1
        )

    imported, made = clock.read(), sampler()
    batches = iter(made)
    next(batches)
    first = clock.read()
    lengths = [
        [cut.duration for cut in batch] for _, batch in zip(range(count), batches, strict=False)
    ]
    walked, state = clock.read(), made.state_dict()
    restored = sampler()
    restored.load_state_dict(state)
    following = next(iter(restored))
    again = clock.read()
    return {
        "seconds": {"import": imported, "first batch": first, "walk": walked, "restore": again},
        "cuts": sum(map(len, lengths)),
        "padding": 1 - sum(map(sum, lengths)) / sum(len(batch) * max(batch) for batch in lengths),
        "same": [cut.id for cut in following] == [cut.id for cut in next(batches)],
    }


CONFIG = """
out: {folder}/model
seed: 1
tokenizer: {folder}/tokenizer
data: {{train: {path}, dev: {folder}/dev/train-2703.jsonl.gz, batch_seconds: {seconds}, max_seconds: 36, \
speeds: [0.9, 1.0, 1.1], workers: {workers}}}
features: {{fbank: {{sample_rate: 16000}}}}
model:
  kind: hybrid
  encoder: {{kind: transformer, d_model: 64, layers: 1, heads: 2, ff: 64, dropout: 0.1}}
  decoder: {{kind: transformer, d_model: 64, layers: 1, heads: 2, ff: 64, dropout: 0.1}}
optimizer: {{kind: adamw, lr: 1e-3}}
schedule: {{kind: cosine, warmup: 10}}
training: {{epochs: 4, accumulate: 8, device: cpu}}
"""


def apart(part: str, *arguments: object) -> dict:
    """Run a part in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--part",
        part,
        *map(str, arguments),
        str(time.monotonic()),
    ]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def run(args: argparse.Namespace) -> dict:
    """Generate and measure."""
    from asr.data import columns as table
    from asr.text import tokenizer

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        dev = generate(folder / "dev", 2703, 1)
        tokenizer.train("bpe", list(table.read(dev).texts), 1000).save(folder / "tokenizer")
        for copies in (1, 3):
            path = generate(folder, args.entries, copies)
            found[args.entries * copies] = {
                "steps": apart("steps", path),
                "resume": apart("resume", path, args.workers),
                "lhotse": apart("lhotse", path, args.lhotse_batches),
            }
            path.unlink()
    return found


def show(found: dict, workers: int) -> str:
    """A Markdown table of what was found."""
    rows = [["entries", *(f"{count:,}" for count in found)], ["---"] * (len(found) + 1)]
    parts = list(found.values())
    for name in parts[0]["steps"]["seconds"]:
        rows.append(
            [
                f"{name}: s",
                *("{:.1f} ({:.1f})".format(*part["steps"]["seconds"][name]) for part in parts),
            ]
        )
    for name in parts[0]["resume"]["seconds"]:
        rows.append(
            [
                f"resume: {name}: s",
                *("{:.1f} ({:.1f})".format(*p["resume"]["seconds"][name]) for p in parts),
            ]
        )
    whole = [sum(wall for wall, _ in part["resume"]["seconds"].values()) for part in parts]
    rows.append(["resume in mid-epoch, in all: s", *(f"{seconds:.1f}" for seconds in whole)])
    for kind in ("pss", "uss"):
        sums = [sum(process[kind] for process in part["resume"]["memory"]) for part in parts]
        rows.append(
            [f"{workers} workers together, {kind.upper()}: MB", *(f"{mb:.0f}" for mb in sums)]
        )
    rows.append(
        ["the main process, PSS: MB", *(f"{part['resume']['main']['pss']:.0f}" for part in parts)]
    )
    for most in parts[0]["steps"]["padding"]:
        shares = ("{:.1%} ({:.1%})".format(*part["steps"]["padding"][most]) for part in parts)
        rows.append([f"padding, {most} (rounded up)", *shares])
    for name in parts[0]["lhotse"]["seconds"]:
        rows.append(
            [
                f"lhotse: {name}: s",
                *("{:.1f} ({:.1f})".format(*p["lhotse"]["seconds"][name]) for p in parts),
            ]
        )
    rows.append(
        ["lhotse: cuts walked and walked again", *(f"{part['lhotse']['cuts']:,}" for part in parts)]
    )
    rows.append(
        [
            f"lhotse: padding, batches of {BATCH_SECONDS} s",
            *(f"{p['lhotse']['padding']:.1%}" for p in parts),
        ]
    )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


PARTS = {
    "steps": lambda path, _: measure_steps(Path(path)),
    "resume": lambda path, workers, begun: measure_resume(Path(path), int(workers), float(begun)),
    "lhotse": lambda path, count, begun: measure_lhotse(Path(path), int(count), float(begun)),
}


def main() -> None:
    """Measure all, or one part."""
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument(
        "--entries", type=int, default=281_241, help="of the manifest (default: LibriSpeech-960's)"
    )
    args.add_argument("--workers", type=int, default=8, help="data workers (default: 8)")
    args.add_argument(
        "--lhotse-batches",
        type=int,
        default=5000,
        help="that lhotse's sampler walks (default: 5000)",
    )
    args.add_argument("--out", type=output, help="file for all figures, JSON")
    args.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    args = args.parse_args()
    if args.part:
        name, *arguments = args.part
        return print(json.dumps(PARTS[name](*arguments)))
    found = run(args)
    if args.out:
        Path(args.out).write_text(json.dumps(found, indent=1) + "\n")
    print(show(found, args.workers))


if __name__ == "__main__":
    main()
