"""WER, CER and MER of a hypothesis file against its reference, with intervals; and of two files against each other."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from asr.errors import UserError
from asr.scoring.bootstrap import interval, resampled_rates
from asr.scoring.error_rate import ErrorRate, error_rates
from asr.scoring.significance import Difference, compare
from asr.scoring.texts import match, read_texts
from asr.text.normalise import convention
from asr.text.units import has_spaceless

UNITS = {"word": "WER", "char": "CER", "mixed": "MER"}
COUNTED = {"word": "words", "char": "chars", "mixed": "characters and words"}
CHOICES = ("auto", "word", "char", "mixed", "both")


@dataclass(frozen=True)
class Score:
    """One error rate of one hypothesis file.

    unit:        "word", "char" or "mixed"
    total:       all utterances together
    low, high:   95 % bootstrap interval over utterances
    utterances:  id → its own counts
    """

    unit: str
    total: ErrorRate
    low: float
    high: float
    utterances: Mapping[str, ErrorRate]

    @property
    def wrong(self) -> int:
        """Utterances with an error."""
        return sum(utterance.errors > 0 for utterance in self.utterances.values())

    def line(self) -> str:
        """Say it to a person, in percent."""
        t, n = self.total, len(self.utterances)
        counts = f"sub {t.substitutions}, del {t.deletions}, ins {t.insertions} of {t.reference} {COUNTED[self.unit]}"
        return f"{UNITS[self.unit]} {percent(t.rate)} % [{percent(self.low)}, {percent(self.high)}]: {counts}, " + (
            f"{self.wrong} of {n} utterances wrong"
        )

    def as_json(self) -> dict:
        """Give the numbers as plain values; rates as fractions of 1."""
        total = {**asdict(self.total), "errors": self.total.errors, "reference": self.total.reference}
        each = {name: asdict(utterance) for name, utterance in self.utterances.items()}
        bounds = {"rate": self.total.rate, "low": self.low, "high": self.high}
        return {**bounds, **total, "wrong_utterances": self.wrong, "utterances": each}


@dataclass(frozen=True)
class Report:
    """What asr-score tells: a Score a unit, and the Difference to another hypothesis file where one was given."""

    scores: dict[str, Score]
    differences: dict[str, Difference]

    def lines(self) -> list[str]:
        """Say it to a person."""
        return [score.line() for score in self.scores.values()] + [
            f"{UNITS[unit]} difference {100 * d.value:+.2f} points [{100 * d.low:+.2f}, {100 * d.high:+.2f}], "
            f"p = {d.p:.4f} (paired bootstrap; below 0: the first is better)"
            for unit, d in self.differences.items()
        ]

    def as_json(self) -> dict:
        """Give all as plain values, under "wer", "cer" and "mer"."""
        scores = {UNITS[unit].lower(): score.as_json() for unit, score in self.scores.items()}
        differences = {UNITS[unit].lower(): asdict(difference) for unit, difference in self.differences.items()}
        return {**scores, **({"difference": differences} if differences else {})}


def score(
    ref: str | os.PathLike,
    hyp: str | os.PathLike,
    unit: str = "auto",
    against: str | os.PathLike | None = None,
    normalise: str | None = None,
) -> Report:
    """Score a hypothesis file.

    ref:        manifest, or lines of `id<TAB>text`
    hyp:        lines of `id<TAB>text`; an empty text is an empty hypothesis
    unit:       "word", "char", "mixed", "both" = word and char, or "auto" = what `units_of` says of the references
    against:    a second hypothesis file, for the significance of the difference
    normalise:  a convention of `asr.text.normalise` to rewrite all texts by; None = as they are written (NFC)
    raises      UserError if ids are missing, too many or repeated, or a reference is empty
    """
    if unit not in CHOICES:
        raise UserError(f"--unit {unit}: expected {', '.join(CHOICES[:-1])} or {CHOICES[-1]}")
    rewrite = convention(normalise) if normalise else str
    references = {name: rewrite(text) for name, text in read_texts(ref).items()}
    files = {str(path): read_texts(path) for path in (hyp, against) if path is not None}
    files = {path: {name: rewrite(text) for name, text in texts.items()} for path, texts in files.items()}
    several = {"auto": units_of(references.values()), "both": ["word", "char"]}
    units = several.get(unit, [unit])
    for path, hypotheses in files.items():
        match(references, hypotheses, ref, path)
    scores = {unit: score_texts(references, files[str(hyp)], unit) for unit in units}
    if against is None:
        return Report(scores, {})
    others = {unit: aligned(references, files[str(against)], unit) for unit in units}
    return Report(scores, {u: compare(list(scores[u].utterances.values()), others[u]) for u in units})


def units_of(references: Iterable[str]) -> list[str]:
    """Units by which texts are usually judged: mixed where a script puts no spaces between words, else word and char.

    >>> units_of(["我用 IPHONE"]), units_of(["GO ON"])
    (['mixed'], ['word', 'char'])
    """
    return ["mixed"] if has_spaceless(references) else ["word", "char"]


def score_texts(references: Mapping[str, str], hypotheses: Mapping[str, str], unit: str) -> Score:
    """Score id → text against id → text of the same ids.

    >>> score_texts({"a": "GO ON"}, {"a": "GO"}, "word").total
    ErrorRate(hits=1, substitutions=0, deletions=1, insertions=0)
    """
    rates = aligned(references, hypotheses, unit)
    low, high = interval(resampled_rates([rates])[0])
    return Score(unit, sum(rates), low, high, dict(zip(references, rates, strict=True)))


def aligned(references: Mapping[str, str], hypotheses: Mapping[str, str], unit: str) -> Sequence[ErrorRate]:
    """Align each reference with the hypothesis of the same id, in the references' order."""
    return error_rates(list(references.values()), [hypotheses[name] for name in references], unit)


def percent(rate: float) -> str:
    """Write a rate in percent, two decimals."""
    return f"{100 * rate:.2f}"
