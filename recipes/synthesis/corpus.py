"""What the synthesized corpora share: who says what, folders that are finished or go on, statistics, the command."""

import argparse
import os
import random
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import soundfile
from synthesis.espeak import RATE, espeak
from synthesis.voices import Speaker


@dataclass(frozen=True)
class Utterance:
    """A sentence of the grammar in the mouth of a speaker."""

    id: str
    speaker: Speaker
    sentence: str


def assign(counts, casts, sentences, name, seed):
    """Decide who says what; speakers take turns.

    counts:     {split: utterances}; a split depends on those before it, so training comes last
    casts:      {split: [Speaker, ...]}
    sentences:  (rng, count, taken) → list of sentences
    name:       (speaker, turn) → the id of the speaker's utterance number `turn`, from 0
    returns     {split: [Utterance, ...]}
    """
    rng, taken, corpus = random.Random(f"{seed} sentences"), set(), {}
    for split, count in counts.items():
        cast, said = casts[split], sentences(rng, count, taken)
        turns = [(cast[k % len(cast)], k // len(cast)) for k in range(count)]
        corpus[split] = [
            Utterance(name(*turn), turn[0], text) for turn, text in zip(turns, said, strict=True)
        ]
    return corpus


def demand(trained, tested, coverage, hours, unit):
    """Refuse a training set that lacks what is tested.

    trained, tested:  Counters of units ("word", "character")
    coverage:         how often each unit of test must occur in training
    raises            ValueError that names the rarest one
    """
    rarest = min(tested, key=lambda x: trained[x])
    if trained[rarest] < coverage:
        seen = f"test's {unit} {rarest} occurs {trained[rarest]} times in training, not {coverage}"
        raise ValueError(f"{hours} hours are too few: {seen}; ask for more --hours")


def complete(out, version, facts, plan, write):
    """Make a corpus, or what of it is still missing; out/VERSION comes last.

    facts:   {name: value}, what tells this corpus from others of its version
    plan:    () → corpus; may raise ValueError
    write:   corpus → None; passes over what is there
    raises   ValueError if `out` holds another corpus, RuntimeError if espeak-ng is missing
    """
    stamp = f"{version}\n" + "".join(f"{name} {value}\n" for name, value in facts.items())
    done, begun = out / "VERSION", out / "VERSION.part"
    for mark in (done, begun):
        if mark.exists() and mark.read_text() != stamp:
            found, asked = (" ".join(text.split()) for text in (mark.read_text(), stamp))
            raise ValueError(f"{out} holds {found}, not {asked}; choose another folder")
    if done.exists():
        return
    with espeak():  # or fail before anything is written
        pass
    corpus = plan()
    out.mkdir(parents=True, exist_ok=True)
    begun.write_text(stamp)
    write(corpus)
    os.replace(begun, done)


def write_sound(path, samples, **how):
    """Write a recording under a temporary name, then rename it; `how` as soundfile.write takes it."""
    part = path.with_name(path.name + ".part")
    soundfile.write(part, samples, RATE, subtype="PCM_16", **how)
    os.replace(part, path)


def write_text(path, text):
    """Write a file under a temporary name, then rename it."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def durations(utterances, path):
    """Sum the recordings' seconds → Counter of speakers; `path` of an utterance is its sound file."""
    seconds = Counter()
    for u in utterances:
        seconds[u.speaker] += soundfile.info(path(u)).duration
    return seconds


def report(split, utterances, seconds, count, unit):
    """Print the statistics of a split to stderr; `count`: Counter of its units ("word", "character")."""
    facts = f"{seconds.total() / 3600:5.2f} h  {len(utterances):5} utterances  {len(seconds):3} speakers"
    print(
        f"{split:10} {facts}  {count.total():6} {unit}s  {len(count):4} {unit} types",
        file=sys.stderr,
    )


def command(synthesize, about, hours, arguments=None):
    """Run the command `synthesize OUT [--hours H] [--seed N]` → its exit status.

    synthesize:  (out, hours, seed) → None
    about:       one line of help
    hours:       the default
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("out", type=Path, help="folder for the corpus")
    parser.add_argument(
        "--hours", type=float, default=hours, help=f"of training speech, about (default {hours:g})"
    )
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    options = parser.parse_args(arguments)
    try:
        synthesize(options.out, options.hours, options.seed)
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0
