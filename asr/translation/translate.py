"""Lines of text in, their translations out, in order: batches of like length, searched as recordings are.

B batch, S source tokens, D model width.
"""

import contextlib
import hashlib
import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from queue import Empty, Queue
from typing import Any

import torch
from torch import Tensor

from asr.data.bucketing import plan
from asr.data.texts import Text
from asr.device import autocast
from asr.errors import UserError, shorten
from asr.journal import Journal
from asr.logging import warn_once
from asr.models.translator import Translator
from asr.search.scorer import Hypothesis
from asr.text.normalize import normalize
from asr.transcript import Transcript
from asr.transcription.options import SearchOptions
from asr.transcription.pipeline import alternatives
from asr.transcription.searcher import Searcher

WINDOW = {"cpu": 1024, "cuda": 4096}  # lines that are sorted by length together
LONGEST = 1024  # tokens of a line: a search's memory grows with them
BATCH_TOKENS = {"cpu": 2000, "cuda": 40_000}  # of padded sources

Encoded = tuple[Sequence[int], Tensor, Tensor]  # places of lines, H (B, S + 1, D), H_lens (B,)


def translate(
    translator: Translator,
    texts: Iterable[Text],
    options: SearchOptions,
    precision: str = "fp32",
) -> Iterator[Transcript]:
    """Translate lines of text; an empty one stays empty.

    precision   "fp32" or "bf16"
    returns     translations in order, each under its `where`; a window of lines is read ahead
    raises      UserError if a line is too long, or a file of the options can't be used
    """
    searcher = Searcher(translator, options, precision)
    for window in windows(searcher, texts):
        yield from search(searcher, window)


def journaled(
    translator: Translator,
    texts: Iterable[Text],
    options: SearchOptions,
    precision: str,
    journal: Journal,
    live: bool = False,
) -> Iterator[str]:
    """Translate the windows of lines that a journal lacks, and add them there; yield the key of each, in order.

    A key names the lines and their places. Under it the journal has `lines`: translations as JSON. A
    window is done as a whole, in the same batches in every session, so its scores are the same to the
    bit. For the other arguments and errors see `translate`.

    live   whether lines may come slowly, as from a person: then none waits for the next, and a
           session may divide them into other windows, with other rounding
    """
    searcher = Searcher(translator, options, precision)
    most = WINDOW[searcher.device.type]
    for window in arrived(texts, most) if live else windows(searcher, texts):
        key, begun = hashlib.sha256(repr(window).encode()).hexdigest(), time.perf_counter()
        if key not in journal:
            lines = [found.as_json() for found in search(searcher, window)]
            journal.add(key, {"lines": lines}, 0.0, time.perf_counter() - begun)
        yield key


def windows(searcher: Searcher, texts: Iterable[Text]) -> Iterator[list[Text]]:
    """Divide lines into windows; the first are small, so that the first translations come soon."""
    texts, size, most = iter(texts), 1, WINDOW[searcher.device.type]
    while window := list(itertools.islice(texts, size)):
        yield window
        size = min(2 * size, most)


def arrived(texts: Iterable[Text], most: int) -> Iterator[list[Text]]:
    """Divide lines into windows of what has come meanwhile: one line or more, `most` at most."""
    end, waiting = object(), Queue[Any](most)

    def read() -> None:
        try:
            for text in texts:
                waiting.put(text)
            waiting.put(end)
        except Exception as error:
            waiting.put(error)

    threading.Thread(target=read, daemon=True).start()
    item = waiting.get()
    while isinstance(item, Text):
        window = [item]
        while isinstance(item := _next(waiting, len(window) < most), Text):
            window.append(item)
        yield window
        item = waiting.get() if item is None else item
    if item is not end:
        raise item


def _next(waiting: Queue[Any], wanted: bool) -> Any:
    """Take what waits; None if nothing does, or nothing is wanted."""
    with contextlib.suppress(Empty):
        return waiting.get_nowait() if wanted else None
    return None


def search(searcher: Searcher, window: Sequence[Text]) -> list[Transcript]:
    """Translate one window."""
    translator = searcher.recognizer
    found = dict(searcher.stream(encode(translator, window, searcher.precision)))
    return [
        translation_of(text, found.get(place, []), translator) for place, text in enumerate(window)
    ]


def tuned(
    translator: Translator,
    texts: Sequence[Text],
    options: SearchOptions,
    grid: Mapping[str, Sequence[float]],
    precision: str = "fp32",
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Translate with every combination of the grid's values: the setting, and the translations in order."""
    settings: list[dict[str, Any]] = [
        dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
    ]
    chosen = [replace(options, **setting) for setting in settings]  # a wrong value shows now
    for setting, how in zip(settings, chosen, strict=True):
        yield setting, [found.text for found in translate(translator, texts, how, precision)]


def encode(translator: Translator, window: Sequence[Text], precision: str) -> Iterator[Encoded]:
    """Encode lines that aren't empty, those of like length together, the longest first."""
    ids = [tokens(translator, text) for text in window]
    places = [place for place, sentence in enumerate(ids) if sentence]
    lens = [len(ids[place]) + 1 for place in places]
    device = next(translator.parameters()).device
    steps = plan(lens, BATCH_TOKENS[device.type], 0, 0, ascending=True) if lens else []
    for [batch] in reversed(steps):
        chosen = [places[n] for n in batch]
        rows = [torch.tensor(ids[place]) for place in chosen]
        X = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)  # (B, S)
        X_lens = torch.tensor([len(row) for row in rows], device=device)
        with torch.no_grad(), autocast(device, precision):
            H, H_lens = translator.model.encode(X, X_lens)  # (B, S + 1, D)
        yield chosen, H, H_lens


def tokens(translator: Translator, text: Text) -> list[int]:
    """Tokenize a line, without the characters that the tokenizer doesn't know.

    raises   UserError if it has more than LONGEST tokens; names it
    """
    tokenizer, line = translator.source_tokenizer, normalize(text.text)
    if unknown := set(tokenizer.unknown(line)):
        warn_once(
            f"{text.where}: the tokenizer doesn't know {shorten(map(repr, sorted(unknown)))}; such characters are left "
            "out, here and in other lines",
            about="unknown characters",
        )
        line = "".join(c for c in line if c not in unknown)
    found = tokenizer.encode(line, text.where)
    if len(found) > LONGEST:
        raise UserError(
            f"{text.where}: got {len(found)} tokens, expected {LONGEST} or fewer; put each sentence on a line"
        )
    return found


def translation_of(text: Text, nbest: Sequence[Hypothesis], translator: Translator) -> Transcript:
    """Decode the n-best list of a line; none of an empty one."""
    found = alternatives(nbest, translator.tokenizer)
    return Transcript(text.where, found[0].text if found else "", nbest=found)
