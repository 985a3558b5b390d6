"""BLEU and chrF of translations by sacrebleu, with its signatures, its resamples and its paired test."""

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from asr import imports
from asr.data import texts
from asr.errors import UserError
from asr.scoring.texts import has_transcripts, transcripts

SAMPLES = 1000  # of the bootstrap
TOKENIZERS = "13a", "none", "intl", "char", "zh"  # of sacrebleu, which need nothing else


@dataclass(frozen=True)
class Metric:
    """A score of a system.

    score       0 to 100
    low, high   95 % bootstrap interval over lines
    signature   sacrebleu's: all that the score depends on
    difference  to the other system, if one was given; p: of the paired bootstrap
    """

    score: float
    low: float
    high: float
    signature: str
    difference: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class TranslationReport:
    """The scores of a system: "BLEU" and "chrF"; count: lines."""

    metrics: dict[str, Metric]
    count: int

    def lines(self) -> list[str]:
        """Write it in lines."""
        scores = [
            f"{name} {m.score:.2f} [{m.low:.2f}, {m.high:.2f}]: {self.count} lines, {m.signature}"
            for name, m in self.metrics.items()
        ]
        return scores + [
            f"{name} difference {m.difference:+.2f}, p = {m.p:.4f} (paired bootstrap; above 0: the first is better)"
            for name, m in self.metrics.items()
            if m.difference is not None
        ]

    def as_json(self) -> dict:
        """Return all as plain values, under "bleu" and "chrf"."""
        return {name.lower(): asdict(metric) for name, metric in self.metrics.items()} | {
            "lines": self.count
        }


def score_translations(
    ref: str | os.PathLike,
    hyp: str | os.PathLike,
    against: str | os.PathLike | None = None,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> TranslationReport:
    """Score translations, a line each, against their references.

    ref, hyp   files of texts, a sentence per line, or JSON lines of `asr-decode --json`
    against    translations of a second system, for the significance of the difference
    tokenize   by which BLEU separates words: one of TOKENIZERS; "none" for texts that are tokenized
    lowercase  ignore case
    raises     UserError if the files have different numbers of lines or none, a reference is empty,
               or sacrebleu isn't installed
    """
    check_tokenizer(tokenize)
    references = read_references(ref)
    systems = [_matching(path, references, ref) for path in (hyp, against) if path is not None]
    metrics = {}
    for name, metric in _metrics(tokenize, lowercase).items():
        best = metric.corpus_score(systems[0], [references]).score
        low, high = _interval(metric, systems[0], references)
        facts = best, low, high, str(metric.get_signature())
        metrics[name] = Metric(*facts, *_compared(name, metric, systems, references))
    return TranslationReport(metrics, len(references))


def check_tokenizer(name: str) -> None:
    """See that BLEU knows how to separate words so.

    raises   UserError
    """
    if name not in TOKENIZERS:
        raise UserError(
            f"got {name!r}, expected one of {', '.join(TOKENIZERS)}", argument="tokenize"
        )


def bleu(
    references: Sequence[str],
    hypotheses: Sequence[str],
    tokenize: str = "13a",
    lowercase: bool = False,
) -> float:
    """BLEU, 0 to 100, as sacrebleu computes it; for the arguments see `score_translations`."""
    how = _how(tokenize, lowercase)
    found, expected = (list(map(_composed, lines)) for lines in (hypotheses, references))
    return imports.sacrebleu("sacrebleu").corpus_bleu(found, [expected], **how).score


def _how(tokenize: str, lowercase: bool) -> dict[str, Any]:
    """Settings of sacrebleu's BLEU; it would warn of tokenized texts where they are meant."""
    return {"tokenize": tokenize, "lowercase": lowercase, "force": tokenize == "none"}


def _metrics(tokenize: str, lowercase: bool) -> dict[str, Any]:
    kinds = imports.sacrebleu("sacrebleu.metrics")
    return {
        "BLEU": kinds.BLEU(**_how(tokenize, lowercase)),
        "chrF": kinds.CHRF(lowercase=lowercase),
    }


def _interval(
    metric: Any, hypotheses: Sequence[str], references: Sequence[str]
) -> tuple[float, float]:
    """Bounds of the middle 95 % of the scores of sacrebleu's resamples."""
    resampled = imports.sacrebleu("sacrebleu.significance")._bootstrap_resample
    statistics = metric._extract_corpus_statistics(hypotheses, [references])
    metric.n_bootstrap = SAMPLES
    metric.seed, scores = resampled(statistics, metric, SAMPLES)  # the signature tells both
    ordered = sorted(float(found.score) for found in scores)
    cut = SAMPLES // 40
    return ordered[cut], ordered[-1 - cut]


def _compared(
    name: str, metric: Any, systems: Sequence[list[str]], references: list[str]
) -> tuple[float | None, float | None]:
    """Difference to the second system, and p; None if there's no second one.

    sacrebleu counts the resamples that differ by more than is seen, so two equal systems would be
    significantly different.
    """
    if len(systems) < 2:
        return None, None
    test = imports.sacrebleu("sacrebleu.significance").PairedTest
    named = [("second", systems[1]), ("first", systems[0])]  # sacrebleu's baseline comes first
    _, found = test(named, {name: metric}, [references], "bs", SAMPLES)()
    second, first = next(scores for key, scores in found.items() if key != "System")
    difference = float(first.score - second.score)
    return difference, float(first.p_value) if difference else 1.0


def _matching(
    path: str | os.PathLike, references: Sequence[str], ref: str | os.PathLike
) -> list[str]:
    lines = read_lines(path)
    if len(lines) != len(references):
        raise UserError(
            f"{os.fspath(path)}: got {len(lines)} lines, expected {len(references)}, those of {os.fspath(ref)}"
        )
    return lines


def read_references(path: str | os.PathLike) -> list[str]:
    """Read the texts of a file as `read_lines`, and see that each can be compared with.

    raises   UserError if there are none, or one is empty
    """
    references = read_lines(path)
    if not references:
        raise UserError(f"{os.fspath(path)}: has no lines; expected translations to compare with")
    if empty := [n for n, line in enumerate(references, 1) if not line]:
        raise UserError(
            f"{os.fspath(path)}:{empty[0]}: empty, expected a translation to compare with"
        )
    return references


def read_lines(path: str | os.PathLike) -> list[str]:
    """Read the texts of a file, in order, in Unicode's composed form (NFC).

    raises   UserError if it can't be read, or has the lines of a table
    """
    if has_transcripts(path):
        return [_composed(transcript.text) for transcript in transcripts(path)]
    return [_composed(texts.no_table(text).text.strip()) for text in texts.read(path)]


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)
