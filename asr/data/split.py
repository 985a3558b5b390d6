"""Split a dev or test set off a training set: by speaker, and the same one every time."""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from asr.data.corpora import Corpus, Item
from asr.errors import UserError

T = TypeVar("T")
CARVED = ("test", "dev")  # splits that are split off train, in this order


def carve(
    train: Sequence[Item], wanted: float, name: str = "dev"
) -> tuple[list[Item], list[Item], str]:
    """Split a training set into train and another set, called `name` in messages.

    wanted:   utterances (1 or more) or a fraction of them (below 1)
    returns   train, the other set, and a sentence that describes it. The sets have different
              speakers if there are two or more. Otherwise, and for a fraction smaller than any
              speaker, the other set is evenly spaced utterances
    raises    UserError if either set would be empty, or every speaker has too many utterances for a
              number
    """
    share = 0 < wanted < 1
    count = (
        max(1, round(wanted * len(train))) if share else int(wanted) if math.isfinite(wanted) else 0
    )
    count = 0 if count != wanted and not share else count  # 1.5
    if not 1 <= count < len(train):
        most = len(train) - 1
        what = f"got {wanted:g}, expected 1 to {most} of {len(train)} training utterances, or a fraction"
        raise UserError(what, argument=name)
    spoken = Counter(item.speaker for item in train)
    chosen = choose_speakers(train, count) if len(spoken) > 1 and None not in spoken else set()
    if chosen:
        carved = [item for item in train if item.speaker in chosen]
        how = f"{name}: {len(carved)} utterances by {len(chosen)} of {len(spoken)} training speakers, who leave train"
    elif share or len(spoken) == 1 or None in spoken:
        carved = spaced(train, count)
        what = f"{count} evenly spaced utterances of train, which has {who(spoken)}"
        how = f"{name}: {what}: {name} is not speaker-disjoint"
    else:
        least = min(spoken.values())
        raise UserError(
            f"--{name} {count}: even the speaker with the fewest utterances has {least}; request about {least}"
        )
    taken = {item.id for item in carved}
    return [item for item in train if item.id not in taken], carved, how


def who(spoken: Mapping[str | None, int]) -> str:
    """Describe the speakers of a training set that isn't split by speaker."""
    if None in spoken:
        return "recordings of unknown speakers"
    least = min(spoken.values())
    return (
        "only one speaker"
        if len(spoken) == 1
        else f"{len(spoken)} speakers of {least} utterances or more"
    )


def choose_speakers(items: Sequence[Item], count: int) -> set[str]:
    """Choose speakers with about `count` utterances in all, in an order drawn from their names alone.

    A speaker joins if that brings the sum closer to `count`; at least one is never chosen.
    returns   an empty set if every speaker has too many utterances
    """
    spoken = Counter(item.speaker for item in items if item.speaker is not None)
    chosen: set[str] = set()
    total = 0
    for speaker in sorted(spoken, key=lambda speaker: hashlib.sha256(speaker.encode()).digest()):
        nearer = abs(total + spoken[speaker] - count) < abs(total - count)
        if nearer and len(chosen) < len(spoken) - 1:
            chosen.add(speaker)
            total += spoken[speaker]
    return chosen


def spaced(items: Sequence[T], count: int) -> list[T]:
    """Take `count` evenly spaced items, the last of each stretch.

    >>> spaced("abcdef", 2)
    ['c', 'f']
    """
    return [items[(place + 1) * len(items) // count - 1] for place in range(count)]


def with_carved(
    corpus: Corpus, dev: float | None, test: float | None
) -> tuple[dict[str, list[Item]], list[str], list[str]]:
    """Split off dev and test if they are requested.

    returns   the splits in order of id; all notes; the names of the new splits
    raises    UserError if there is no train, or a new split exists already
    """
    splits, notes, wanted = (
        dict(corpus.splits),
        list(corpus.notes),
        dict(zip(CARVED, (test, dev), strict=True)),
    )
    asked = {name: count for name, count in wanted.items() if count is not None}
    if asked and len(splits) == 1 and not splits.keys() & wanted.keys():
        splits = {"train": next(iter(splits.values()))}  # a table with any name
    for name, count in asked.items():
        if name in splits or "train" not in splits:
            has = ", ".join(corpus.splits)
            what = f"got {count:g}, expected a split named train and none named {name}; there are {has}"
            raise UserError(what, argument=name)
    if dev is None and corpus.dev is not None and "train" in splits:
        asked["dev"] = corpus.dev
    for name, count in asked.items():
        splits["train"], splits[name], how = carve(splits["train"], count, name)
        notes.append(how)
    names = [name for name in ("train", "dev") if name in splits]
    ordered = {
        name: sorted(splits[name], key=lambda item: item.id)
        for name in dict.fromkeys([*names, *splits])
    }
    return ordered, notes, list(asked)
