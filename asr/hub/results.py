"""Results of a model: what its decodings score, found by their stamps, and scores that were written before."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from asr import stamp
from asr.errors import UserError
from asr.files import read_bytes
from asr.hub.cache import published_name
from asr.logging import logger
from asr.model_files import WEIGHTS
from asr.options import paths
from asr.scoring.report import UNITS, Report, score
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


@dataclass(frozen=True)
class ScoredDecoding:
    """A decoding of a manifest, its stamp, and its scores."""

    output: Path
    manifest: str
    stamped: Mapping
    options: SearchOptions
    report: Report


def find_results(model: Path, folder: Path) -> list[Result]:
    """Score the decodings of manifests in a folder that these weights have made → the best of each set first.

    Decodings whose manifest has changed or is gone, or which aren't finished, are named and left out.
    """
    weights = stamp.fingerprint(model / WEIGHTS)
    scored: dict[str, ScoredDecoding] = {}
    for path in sorted(folder.glob(".*.stamp.json")):
        output = path.with_name(path.name.removeprefix(".").removesuffix(".stamp.json"))
        try:
            stamped = stamp.read(output)
            if stamped["command"] == "asr-decode" and _is_of(stamped["inputs"], weights):
                scored[_work(stamped)] = _scored(output, stamped)  # --out and --json: once
        except UserError as error:
            logger.warning(f"{output}: left out of the card ({error})")
    results = _distinct([*scored.values()])
    return sorted(results, key=lambda result: (result.dataset, result.value))


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
    """Tell whether the decoding's model has these weights. Its files come first; a language model's come later."""
    digests = [digest for name, digest in inputs.items() if Path(name).name == WEIGHTS]
    return digests[:1] == [weights]


def _work(stamped: Mapping) -> str:
    """Identify what was decoded and how; whether words have times, as in --json, changes no text."""
    arguments = {name: value for name, value in stamped["arguments"].items() if name != "times"}
    return json.dumps([stamped["inputs"], arguments], sort_keys=True)


def _scored(output: Path, stamped: Mapping) -> ScoredDecoding:
    """Score a decoding against the manifest that it was made of."""
    arguments = stamped["arguments"]
    manifests = [name for name in stamped["inputs"] if name.endswith(MANIFESTS)]
    if len(manifests) != 1 or set(arguments) & {"part", "listed"}:
        raise UserError("isn't the decoding of one manifest")
    (manifest,) = manifests
    if stamp.fingerprint(Path(manifest)) != stamped["inputs"][manifest]:
        raise UserError(f"{manifest} has changed since, or is gone")
    names = SearchOptions.__dataclass_fields__
    options = SearchOptions(**{name: value for name, value in arguments.items() if name in names})
    return ScoredDecoding(output, manifest, stamped, options, score(manifest, output))


def _distinct(scored: Sequence[ScoredDecoding]) -> list[Result]:
    """Make results; those of one set and one search in words have the names of their files, too."""
    sets = short_names((one.manifest for one in scored), 2)
    files = short_names(path for one in scored for path in paths(one.options).values())
    results = [_result(one, sets, files) for one in scored]
    times = Counter((result.dataset, result.search) for result in results)
    return [
        replace(result, search=f"{result.search} ({one.output.name})")
        if times[result.dataset, result.search] > 1
        else result
        for one, result in zip(scored, results, strict=True)
    ]


def _result(one: ScoredDecoding, sets: Mapping[str, str], files: Mapping[str, str]) -> Result:
    """Make a result, named by the short names of manifests and of the search's files."""
    found, made = next(iter(one.report.scores.values())), one.stamped["made"]
    return Result(
        _set_in_words(sets[one.manifest]),
        UNITS[found.unit],
        100 * found.rate,
        100 * found.low,
        100 * found.high,
        len(found.utterances),
        _search_in_words(one, files),
        one.report.normalization,
        made.get("rtf"),
        made.get("hardware", ""),
        made.get("commit", ""),
    )


def short_names(named: Iterable[str], least: int = 1) -> dict[str, str]:
    """Shorten paths to their ends, of at least that number of parts, by which they differ.

    >>> short_names(["exp/small/lm", "exp/big/lm", "exp/words.arpa"])
    {'exp/small/lm': 'small/lm', 'exp/big/lm': 'big/lm', 'exp/words.arpa': 'words.arpa'}
    """
    parts = {path: Path(os.path.abspath(path)).parts for path in named}

    def short(own: tuple[str, ...]) -> str:
        others = [other for other in parts.values() if other != own]
        size = next(n for n in count(least) if all(other[-n:] != own[-n:] for other in others))
        return "/".join(own[-size:])

    return {path: published_name(path) or short(own) for path, own in parts.items()}


def _set_in_words(manifest: str) -> str:
    """Name a set by its corpus and itself, such as "an4 test"."""
    corpus, _, name = manifest.rpartition("/")
    return f"{corpus} {name.partition('.jsonl')[0]}"


def _search_in_words(one: ScoredDecoding, files: Mapping[str, str]) -> str:
    """Say how a decoding searched: its mode and what differs from the defaults."""
    options, arguments = one.options, one.stamped["arguments"]
    plain = effective(SearchOptions(mode=options.mode))
    special = {k: v for k, v in effective(options).items() if plain.get(k) != v and k != "mode"}
    special |= {name: files[path] for name, path in paths(options).items() if name in special}
    if options.vad != SearchOptions.vad:
        special["vad"] = options.vad
    special |= {name: arguments[name] for name in ("precision", "channel") if name in arguments}
    if special.get("precision") == "fp32":
        del special["precision"]
    return ", ".join([options.mode, *(f"{k.replace('_', ' ')} {v}" for k, v in special.items())])
