"""Carve a dev set from a training set: whole speakers, the same ones every time."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

from asr.data.corpora import Item
from asr.errors import UserError

T = TypeVar("T")


def carve(train: Sequence[Item], wanted: float) -> tuple[list[Item], list[Item], str]:
    """Split a training set into train and dev.

    wanted:   utterances (1 or more) or a fraction of them (below 1)
    returns   train, dev, and a sentence on how; speaker-disjoint where there are two speakers or more,
              else evenly spaced utterances
    raises    UserError if nothing would be left of either
    """
    count = round(wanted * len(train)) if 0 < wanted < 1 else int(wanted)
    if not 1 <= count < len(train):
        most = len(train) - 1
        raise UserError(f"--dev {wanted:g}: expected 1 to {most} of {len(train)} training utterances, or a fraction")
    speakers = {item.speaker for item in train}
    if len(speakers) > 1 and None not in speakers:
        chosen = choose_speakers(train, count)
        dev = [item for item in train if item.speaker in chosen]
        how = f"dev: {len(dev)} utterances by {len(chosen)} of {len(speakers)} training speakers, who leave train"
    else:
        dev = spaced(train, count)
        who = "only one speaker" if None not in speakers else "recordings of unknown speakers"
        how = f"dev: {len(dev)} evenly spaced utterances of train, which has {who}: dev is not speaker-disjoint"
    taken = {item.id for item in dev}
    return [item for item in train if item.id not in taken], dev, how


def choose_speakers(items: Sequence[Item], count: int) -> set[str]:
    """Choose speakers with about `count` utterances together, in an order drawn from their names alone.

    A speaker joins if that brings the sum nearer to `count`; one always stays behind.
    raises   UserError if every speaker alone is too much
    """
    spoken = defaultdict(int)
    for item in items:
        spoken[item.speaker] += 1
    chosen, total = set(), 0
    for speaker in sorted(spoken, key=lambda name: hashlib.sha256(name.encode()).digest()):
        nearer = abs(total + spoken[speaker] - count) < abs(total - count)
        if nearer and len(chosen) < len(spoken) - 1:
            chosen.add(speaker)
            total += spoken[speaker]
    if not chosen:
        least = min(spoken.values())
        raise UserError(f"--dev {count}: even the speaker who says least has {least} utterances; ask for about {least}")
    return chosen


def spaced(items: Sequence[T], count: int) -> list[T]:
    """Take `count` items at even distances, the last of each stretch.

    >>> spaced("abcdef", 2)
    ['c', 'f']
    """
    return [items[(place + 1) * len(items) // count - 1] for place in range(count)]
