"""The items of a corpus as they are asked for: its splits selected, texts rewritten, channels set; and checked.

All this happens before any sound file is opened.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from asr.data import manifest
from asr.data.corpora import Corpus, Item
from asr.errors import UserError, did_you_mean, refuse
from asr.text.normalize import convention


def as_asked(
    corpus: Corpus, splits: Sequence[str] | None, normalize: str | None, channel: int | None
) -> Corpus:
    """Select splits of a corpus, rewrite its texts, check them, and choose the channel."""
    found = select(corpus, splits)
    found = rewritten(found, normalize) if normalize else found
    check_texts(found)
    chosen = {name: on_channel(items, channel) for name, items in found.splits.items()}
    return replace(found, splits=chosen)


def select(corpus: Corpus, wanted: Sequence[str] | None) -> Corpus:
    """Select splits, and note those that differ from the complete corpus.

    raises   UserError for a missing split, with a list of the existing ones
    """
    for name in wanted or ():
        if name not in corpus.splits:
            near, there = did_you_mean(name, corpus.splits), ", ".join(corpus.splits)
            what = f"got {name!r}, no such split of this corpus{near}; it has {there}"
            raise UserError(what, argument="splits")
    splits = {
        name: items for name, items in corpus.splits.items() if wanted is None or name in wanted
    }
    return replace(
        corpus, splits=splits, notes=[*corpus.notes, *incomplete(splits, corpus.complete)]
    )


def incomplete(splits: Mapping[str, Sequence[Item]], complete: Mapping[str, int]) -> list[str]:
    """Note the splits whose number of utterances differs from the complete corpus."""
    pairs = [(name, len(splits[name]), count) for name, count in complete.items() if name in splits]
    return [
        f"{name}: {got:,} utterances, the complete corpus has {n:,}"
        for name, got, n in pairs
        if got != n
    ]


def rewritten(corpus: Corpus, name: str) -> Corpus:
    """Rewrite the texts by a convention, and note how many changed, with an example."""
    rewrite = convention(name)
    splits = {
        split: [replace(item, text=rewrite(item.text)) for item in items]
        for split, items in corpus.splits.items()
    }
    pairs = [
        (old.text, new.text)
        for split in splits
        for old, new in zip(corpus.splits[split], splits[split], strict=True)
    ]
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    example = ", such as {!r} → {!r}".format(*changed[0]) if changed else ""
    note = f"normalized ({name}): {len(changed)} of {len(pairs)} texts changed{example}"
    return replace(corpus, splits=splits, notes=[*corpus.notes, note])


def on_channel(items: Iterable[Item], channel: int | None) -> list[Item]:
    """Set the channel of items that have none of their own."""
    return [
        item if channel is None or item.channel is not None else replace(item, channel=channel)
        for item in items
    ]


def check_texts(corpus: Corpus) -> None:
    """Refuse mistakes that show without opening a sound file: empty splits and texts, repeated ids."""
    items = [item for items in corpus.splits.values() for item in items]
    for name, members in corpus.splits.items():
        if not members:
            raise UserError(f"{name}: has no utterances; add some or remove the split")
    seen = Counter(item.id for item in items)
    repeated = [f"{item.id} ({item.where})" for item in items if seen[item.id] > 1]
    refuse(
        repeated,
        "utterances that share an id with another",
        "give each its own id across all splits",
    )
    if corpus.transcribed:  # else ids are file names, and a bad one is left out with its file
        refuse(
            [f"{i.id} ({i.where})" for i in items if not i.text],
            "empty texts",
            "transcribe or remove them",
        )
        refuse(
            amiss(items, lambda i: i.id, manifest.fault),
            "ids that a line of text can't hold",
            "rename them",
        )
    refuse(
        amiss(items, lambda i: i.speaker or "", manifest.hidden),
        "speakers that no line can hold",
        "rename them",
    )
    refuse(
        amiss(items, lambda i: i.text, manifest.fault_of_text),
        "texts with characters that aren't text",
        "remove those",
    )


def amiss(
    items: Iterable[Item], value: Callable[[Item], str], fault: Callable[[str], str | None]
) -> Iterator[str]:
    """Describe the items with a bad value, and the fault."""
    for item in items:
        if found := fault(value(item)):
            yield f"{manifest.shown(value(item))!r} ({manifest.shown(item.where)}) {found}"
