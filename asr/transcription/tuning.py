"""What a search learns from a dev set: its settings, by trying each; and how far to trust its confidences."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from asr.errors import UserError
from asr.failures import Failure
from asr.models.recognizer import Recognizer
from asr.transcript import Transcript
from asr.transcription.decoding import Decoding, ModelLoader
from asr.transcription.options import TUNABLE, SearchOptions, idle_options
from asr.transcription.pipeline import Batch, encoded, transcribe
from asr.transcription.recordings import Recording
from asr.transcription.searcher import Searcher


def parse_grid(settings: Sequence[str], options: SearchOptions) -> dict[str, list[float]]:
    """Read settings like `ctc-weight=0.1,0.3`: name → values to try.

    raises   UserError for an unknown name, one that comes twice or changes nothing, or values that
             aren't numbers
    """
    idle = {"nbest": "of the best text"} | idle_options(options)
    grid = {}
    for setting in settings:
        name, _, values = setting.partition("=")
        name = name.replace("-", "_")
        if name not in TUNABLE:
            known = ", ".join(n.replace("_", "-") for n in TUNABLE)
            raise UserError(
                f"{setting}: got {name!r}, expected NAME=VALUE,VALUE … with a name of: {known}",
                "tune",
            )
        if name in grid or name in idle:
            fault = (
                "comes twice; give all values at once"
                if name in grid
                else f"changes nothing {idle[name]}"
            )
            raise UserError(f"{setting}: {name.replace('_', '-')} {fault}", "tune")
        try:
            grid[name] = [TUNABLE[name](value) for value in values.split(",")]
        except ValueError:
            raise UserError(
                f"{setting}: got {values!r}, expected numbers with commas between them", "tune"
            ) from None
    return grid


def tune(
    recognizer: Recognizer,
    recordings: Sequence[Recording],
    options: SearchOptions,
    grid: Mapping[str, Sequence[float]],
    batch_seconds: float | None = None,
    precision: str = "fp32",
) -> Iterator[tuple[dict[str, float], dict[str, str]]]:
    """Search with every combination of the grid's values; the encoder runs once.

    returns   the setting, and the texts by utterance id, for each
    raises    UserError if a recording can't be read
    """
    settings: list[dict[str, Any]] = [
        dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
    ]
    for setting in settings:
        replace(options, **setting)  # a wrong value shows before the work
    searcher = Searcher(recognizer, options, precision)
    tuned = [searcher.tuned(**setting) for setting in settings]
    batches = list(
        _readable(encoded(recognizer, recordings, batch_seconds, precision, searcher.chunk))
    )
    for setting, searcher in zip(settings, tuned, strict=True):
        found = dict(searcher.stream(batches))
        texts = {
            recording: recognizer.tokenizer.decode(nbest[0].tokens)
            for recording, nbest in found.items()
        }
        yield setting, {recording.id: texts[recording] for recording in recordings}


def _readable(batches: Iterator[Batch | Failure]) -> Iterator[Batch]:
    for batch in batches:
        if isinstance(batch, Failure):
            raise UserError(batch.reason)
        yield batch


def transcribe_raw(decoding: Decoding, recordings: Sequence[Recording]) -> list[Transcript]:
    """Transcribe a dev set with raw confidences, which are to be calibrated, whatever the model folder says.

    raises   UserError if the model has none, or a recording can't be read
    """
    with ModelLoader(decoding, recordings) as load:
        recognizer = load(calibrated=False)
        if not recognizer.has_times:
            raise UserError(f"{decoding.model}: its words have no confidences; CTC was not trained")
        how = decoding.options, decoding.batch_seconds, decoding.precision
        return list(transcribe(recognizer, recordings, *how, times=True))
