"""Results of a model: what its decodings score, found by their stamps, and scores that were written before."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from asr import stamp
from asr.errors import UserError
from asr.files import read_bytes
from asr.logging import logger
from asr.model_files import WEIGHTS
from asr.scoring.report import UNITS, score
from asr.transcription.options import SearchOptions, effective

MANIFESTS = (".jsonl", ".jsonl.gz")
METRICS = {**{unit.lower(): unit for unit in UNITS.values()}, "bleu": "BLEU", "chrf": "chrF"}
MOST_SCORES = 1 << 30  # bytes; asr-score writes some hundred per utterance


@dataclass(frozen=True)
class Result:
    """A score of a model on a set.

    dataset    such as "an4 test"
    metric     "WER", "CER" or "MER" in percent, "BLEU" or "chrF"
    low, high  95 % interval
    search     such as "joint, length bonus 1"; empty if unknown
    rtf        seconds per second of audio on `hardware`; None if unknown
    """

    dataset: str
    metric: str
    value: float
    low: float
    high: float
    utterances: int
    search: str = ""
    normalization: str = "none"
    rtf: float | None = None
    hardware: str = ""
    commit: str = ""


def find_results(model: Path, folder: Path) -> list[Result]:
    """Score the decodings of manifests in a folder that these weights have made → the best of each set first.

    Decodings whose manifest has changed or is gone, or which aren't finished, are named and left out.
    """
    weights = stamp.fingerprint(model / WEIGHTS)
    results: dict[tuple[str, str], Result] = {}
    for path in sorted(folder.glob(".*.stamp.json")):
        output = path.with_name(path.name.removeprefix(".").removesuffix(".stamp.json"))
        try:
            stamped = stamp.read(output)
            if stamped["command"] == "asr-decode" and _is_of(stamped["inputs"], weights):
                result = _scored(output, stamped)
                results[result.dataset, result.search] = result  # --out and --json: once
        except UserError as error:
            logger.warning(f"{output}: left out of the card ({error})")
    return sorted(results.values(), key=lambda result: (result.dataset, result.value))


def read_scores(dataset: str, path: str) -> list[Result]:
    """Read the scores that `asr-score --json` wrote.

    raises   UserError if it isn't such a file
    """
    try:
        tree = json.loads(read_bytes(path, "no such file", MOST_SCORES))
        return [
            _of_metric(dataset, METRICS[name], tree, found)
            for name, found in tree.items()
            if name in METRICS
        ] or _refuse(path)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _refuse(path)


def _refuse(path: str) -> list[Result]:
    raise UserError(f"{path}: got no scores, expected the file of asr-score --json")


def _of_metric(dataset: str, metric: str, tree: Mapping, found: Mapping) -> Result:
    """Make a result of a metric's JSON: error rates are fractions of 1, BLEU and chrF have 100."""
    rate = "rate" in found
    value, low, high = (
        float(found[key]) * (100 if rate else 1)
        for key in ("rate" if rate else "score", "low", "high")
    )
    count = len(found["utterances"]) if rate else int(tree["lines"])
    rules = str(tree.get("normalization", "none")) if rate else str(found["signature"])
    return Result(dataset, metric, value, low, high, count, normalization=rules)


def _is_of(inputs: Mapping[str, str], weights: str) -> bool:
    return any(Path(name).name == WEIGHTS and digest == weights for name, digest in inputs.items())


def _scored(output: Path, stamped: Mapping) -> Result:
    """Score a decoding against the manifest that it was made of."""
    manifests = [name for name in stamped["inputs"] if name.endswith(MANIFESTS)]
    if len(manifests) != 1 or set(stamped["arguments"]) & {"part", "listed"}:
        raise UserError("isn't the decoding of one manifest")
    (manifest,) = manifests
    if stamp.fingerprint(Path(manifest)) != stamped["inputs"][manifest]:
        raise UserError(f"{manifest} has changed since, or is gone")
    report = score(manifest, output)
    found, made = next(iter(report.scores.values())), stamped["made"]
    return Result(
        _name_of(Path(manifest)),
        UNITS[found.unit],
        100 * found.rate,
        100 * found.low,
        100 * found.high,
        len(found.utterances),
        _search_in_words(stamped["arguments"]),
        report.normalization,
        made.get("rtf"),
        made.get("hardware", ""),
        made.get("commit", ""),
    )


def _name_of(manifest: Path) -> str:
    """Name a set by its corpus and itself, such as "an4 test"."""
    return f"{manifest.absolute().parent.name} {manifest.name.partition('.jsonl')[0]}"


def _search_in_words(arguments: Mapping) -> str:
    """Say how a decoding searched: its mode and what differs from the defaults."""
    names = SearchOptions.__dataclass_fields__
    options = SearchOptions(**{name: value for name, value in arguments.items() if name in names})
    plain = effective(SearchOptions(mode=options.mode))
    special = {k: v for k, v in effective(options).items() if plain.get(k) != v and k != "mode"}
    return ", ".join([options.mode, *(_option_in_words(k, v) for k, v in special.items())])


def _option_in_words(name: str, value: object) -> str:
    shown = Path(value).name if isinstance(value, str) else value
    return f"{name.replace('_', ' ')} {shown}"
