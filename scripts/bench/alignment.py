"""Measure asr-align on synthesized speech: a text that lacks sentences or has too many, memory, speed, bad texts.

    python -m scripts.bench.alignment exp/mini/model --minutes 60
    python -m scripts.bench.alignment exp/mini/model --garbled data/mini/test-mini.jsonl.gz

Sentences of recipes/mini's grammar, by its voices of test, stand one after another with pauses of 0 to
1.5 s. The recording is aligned with its text, without a share of its lines, and with as many lines that
nobody says, each in a process of its own, which tells its peak memory. Words beside a gap are left out:
all others are compared with the alignment of the right text. On the first minutes, the search alone
is timed beside torchaudio's forced_align, in turn.
"""

import argparse
import random
import resource
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import soundfile
import torch

import asr
from asr.cli.command import command
from asr.data import manifest
from asr.models.recognizer import load
from asr.search.loose_alignment import align_loosely
from asr.transcription.alignment import emissions, find_path, score_texts
from asr.transcription.recordings import find, one_recording
from asr.transcription.script import BLANK, Penalties, spelling_for, write_script
from asr.transcription.windows import ctc_log_probs, reader
from scripts.bench.word_times import RATE, plan, truth

PAUSES = 0.0, 0.2, 0.5, 1.5  # seconds


def speak_all(path: Path, minutes: float, rng) -> list[list]:
    """Write a recording; return the true words of its lines."""
    count = round(minutes * 60 / 2.4)  # more than are needed
    lines, at = [], 0.0
    with soundfile.SoundFile(path, "w", RATE, 1) as file:
        for utterance in plan(utterances={"dev-mini": 200, "test-mini": count})["test-mini"]:
            if at >= minutes * 60:
                break
            if not (found := truth(utterance, rng)):
                continue
            pause = 1e-3 * rng.standard_normal(round(rng.choice(PAUSES) * RATE))
            file.write(np.concatenate([found[0], pause]))
            lines.append([(word.text, word.start + at, word.end + at) for word in found[1]])
            at += (len(found[0]) + len(pause)) / RATE
    return lines


def aligned(model: str, path: str, lines: list[str]):
    """Align in this process; the segments, seconds, and the process' peak memory in MB."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    segments = asr.align(asr.load(model, "cpu"), path, lines).segments
    seconds = time.perf_counter() - began
    return segments, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def variants(texts: list[str], share: float, rng: random.Random):
    """Yield names and lines (number or None, text): all, with some missing, with some added, with both."""
    count = round(share * len(texts))
    numbered = list(enumerate(texts))
    gone, before = (set(rng.sample(range(len(texts)), count)) for _ in range(2))
    others = [" ".join(rng.sample(text.split(), len(text.split()))) for text in texts]
    added = [
        line
        for n, t in numbered
        for line in ([(None, rng.choice(others))] * (n in before) + [(n, t)])
    ]
    yield "whole", numbered
    yield "missing", [line for line in numbered if line[0] not in gone]
    yield "added", added
    yield "both", [line for line in added if line[0] not in gone]


def compare(lines, segments, whole, frame: float) -> str:
    """Describe how far words moved that don't stand beside a gap, in encoder frames."""
    moved, lost, invented = [], 0, 0
    numbers = [number for number, _ in lines]
    for n, (number, own) in enumerate(zip(numbers, segments, strict=True)):
        if number is None:
            invented += bool(own.words)
        elif whole[number].words:
            lost += not own.words
            first = (numbers[n - 1] if n else -1) != number - 1
            last = (numbers[n + 1] if n + 1 < len(numbers) else len(whole)) != number + 1
            pairs = zip(own.words, whole[number].words, strict=bool(own.words))
            kept = list(pairs)[first : len(own.words) - last]
            moved += [max(abs(a.start - b.start), abs(a.end - b.end)) / frame for a, b in kept]
    p50, p95, p99 = np.quantile(moved, (0.5, 0.95, 0.99))
    return (
        f"{len(moved)} words moved by p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f}, at most "
        f"{max(moved):.1f} frames; {lost} lines lost, {invented} lines that nobody says found"
    )


def describe_times(segments, truths) -> str:
    """Compare times with the synthesizer's."""
    errors = 1000 * np.array(
        [
            (word.start - true[1], word.end - true[2])
            for own, words in zip(segments, truths, strict=True)
            for word, true in zip(own.words, words, strict=bool(own.words))
        ]
    )
    starts, ends = np.abs(errors).mean(0)
    p95 = np.quantile(np.abs(errors), 0.95, 0)
    return f"starts off {starts:.0f} ms in the mean, p95 {p95[0]:.0f}; ends {ends:.0f}, p95 {p95[1]:.0f}"


def race(model: str, path: str, texts: list[str], minutes: float, repeats: int) -> None:
    """Time the search of ours and of torchaudio in turn, on the first minutes."""
    from torchaudio.functional import forced_align

    recognizer, penalties = load(model), Penalties()
    recording = one_recording(path, "give one")
    samples = min(round(minutes * 60 * RATE), round(recording.duration * RATE))
    spell = spelling_for(recognizer.tokenizer, texts)
    script = write_script([("", text) for text in texts], recognizer.tokenizer, spell, penalties)
    read = reader(recording, RATE)
    found = emissions(recognizer, read, samples, script.labels, penalties)
    log_probs = torch.cat([part for _, part in ctc_log_probs(recognizer, read, samples)])[None]
    Y, plain = torch.tensor([script.labels], dtype=torch.int32), np.zeros(len(script.slots), int)
    ways = {
        "forced_align": lambda: float(forced_align(log_probs, Y, blank=0)[1].sum()),
        "ours, no star": lambda: (
            align_loosely(found.rows, found.rows_of(script.labels), plain + BLANK).score
            + float(found.best.sum(dtype=np.float64))
        ),
        "ours": lambda: find_path(script, found).score,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    scores = {}
    for _ in range(repeats):
        for name, way in ways.items():
            began = time.perf_counter()
            scores[name] = way()
            times[name].append(time.perf_counter() - began)
    base = statistics.median(times["forced_align"])
    for name, own in times.items():
        median = statistics.median(own)
        print(
            f"{samples / RATE:.0f} s, {len(script.labels)} labels: {name:13} {median:.3f} s "
            f"({min(own):.3f} to {max(own):.3f}), {median / base:.2f} of forced_align; score {scores[name]:.2f}"
        )


def garbled(model: str, path: str, share: float, rng: random.Random) -> None:
    """Exchange or change some texts of a manifest; count those among the worst of as many."""
    utterances, recordings = list(manifest.read(path)), find([], [path])
    texts = [utterance.text for utterance in utterances]
    words = sorted({word for text in texts for word in text.split()})
    count = round(share * len(texts))

    def other(text, kind):
        own = text.split()
        n = rng.randrange(len(own))
        edits = {
            "exchanged": lambda: rng.choice([one for one in texts if one != text]).split(),
            "shuffled": lambda: rng.sample(own, len(own)),
            "word replaced": lambda: [*own[:n], rng.choice(words), *own[n + 1 :]],
            "word missing": lambda: [*own[:n], *own[n + 1 :]] or own,
            "word added": lambda: [*own[:n], rng.choice(words), *own[n:]],
        }
        return " ".join(edits[kind]())

    recognizer = load(model)
    for kind in ("exchanged", "shuffled", "word replaced", "word missing", "word added"):
        chosen = set(rng.sample([n for n, t in enumerate(texts) if len(t.split()) > 2], count))
        changed = [other(text, kind) if n in chosen else text for n, text in enumerate(texts)]
        ids = {utterances[n].id for n in chosen if changed[n] != texts[n]}
        worst = [one.id for one in score_texts(recognizer, recordings, changed)[0][: len(ids)]]
        print(f"{kind}: {len(ids & set(worst))} of {len(ids)} are among the worst {len(ids)}")


@command
def main(argv):
    """Measure, and print a row each."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("model", metavar="DIR")
    args.add_argument("--minutes", type=float, default=60.0)
    args.add_argument(
        "--share", type=float, default=0.1, help="of lines that are missing, or added"
    )
    args.add_argument("--race", type=float, default=10.0, metavar="MINUTES")
    args.add_argument("--repeats", type=int, default=3)
    args.add_argument(
        "--garbled", metavar="JSONL", help="garble 5 %% of a manifest's texts instead"
    )
    args = args.parse_args(argv)
    torch.set_num_threads(1)
    if args.garbled:
        return garbled(args.model, args.garbled, 0.05, random.Random(1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.flac"
        truths = speak_all(path, args.minutes, np.random.default_rng(0))
        texts = [" ".join(word for word, *_ in line) for line in truths]
        frame, whole = load(args.model).frame_seconds, None
        for name, lines in variants(texts, args.share, random.Random(1)):
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                job = pool.submit(aligned, args.model, str(path), [text for _, text in lines])
                segments, seconds, memory = job.result()
            whole = whole or segments
            row = f"{name:8} {len(lines)} lines, {seconds:.1f} s, peak {memory:.0f} MB: "
            print(row + compare(lines, segments, whole, frame), flush=True)
            if name == "whole":
                print(describe_times(segments, truths))
        until = [n for n, line in enumerate(truths) if line[-1][2] < args.race * 60]
        race(args.model, str(path), texts[: len(until)], args.race, args.repeats)


if __name__ == "__main__":
    sys.exit(main())
