"""The best weights of a search on a dev set: the encoder runs once, the search once for each setting."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

from asr.errors import UserError
from asr.models.recognizer import Recognizer
from asr.transcribe.options import SearchOptions
from asr.transcribe.searcher import Searcher
from asr.transcribe.sources import Source
from asr.transcribe.transcribe import encoded

TUNABLE = [f.name for f in fields(SearchOptions) if f.type in (int, float)]


def parse_grid(settings: Sequence[str], options: SearchOptions) -> dict[str, list[float]]:
    """Read settings like `ctc-weight=0.1,0.3`: name → values to try.

    raises   UserError for an unknown name, one that comes twice or changes nothing, or values that aren't numbers
    """
    idle = _idle(options)
    grid = {}
    for setting in settings:
        name, _, values = setting.partition("=")
        name = name.replace("-", "_")
        if name not in TUNABLE:
            known = ", ".join(n.replace("_", "-") for n in TUNABLE)
            raise UserError(f"--tune {setting}: got {name!r}, expected NAME=VALUE,VALUE … with a name of: {known}")
        if name in grid or name in idle:
            fault = "comes twice; give all values at once" if name in grid else f"changes nothing {idle[name]}"
            raise UserError(f"--tune {setting}: {name.replace('_', '-')} {fault}")
        kind = next(f.type for f in fields(SearchOptions) if f.name == name)
        try:
            grid[name] = [kind(value) for value in values.split(",")]
        except ValueError:
            raise UserError(f"--tune {setting}: got {values!r}, expected numbers with commas between them") from None
    return grid


def _idle(options: SearchOptions) -> dict[str, str]:
    """Options that have no effect beside these, and why."""
    idle = {"nbest": "of the best text"}
    if options.mode not in ("joint", "rescoring"):
        idle["ctc_weight"] = f"in mode {options.mode}"
    if options.mode.endswith("greedy"):
        idle |= dict.fromkeys(TUNABLE, f"in mode {options.mode}")
    if not options.lm:
        idle["lm_weight"] = "without --lm"
    if not options.hotwords:
        idle["hotword_weight"] = "without --hotwords"
    return idle


def tune(
    recognizer: Recognizer,
    sources: Sequence[Source],
    options: SearchOptions,
    grid: Mapping[str, Sequence[float]],
    batch_seconds: float = 120.0,
    precision: str = "fp32",
) -> Iterator[tuple[dict[str, float], dict[str, str]]]:
    """Search with every combination of the grid's values.

    returns   the setting, and the texts by utterance id, for each
    """
    settings = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    for setting in settings:
        replace(options, **setting)  # a wrong value shows before the work
    searcher = Searcher(recognizer, options, precision)
    tuned = [searcher.tuned(**setting) for setting in settings]
    batches = list(encoded(recognizer, sources, batch_seconds, precision))
    for setting, searcher in zip(settings, tuned, strict=True):
        found = dict(searcher.stream(batches))
        yield setting, {source.id: recognizer.tokenizer.decode(found[source][0].tokens) for source in sources}
