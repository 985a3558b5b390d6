"""WER, CER and MER of hypotheses, with intervals; the difference of two systems."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from asr.errors import UserError, shorten
from asr.scoring.error_rate import ErrorRate, error_rates, total
from asr.scoring.significance import Difference, compare, interval, resampled_rates
from asr.scoring.texts import Texts, match, name_of, segments_of, texts_of
from asr.text.normalize import convention
from asr.text.units import has_spaceless

UNITS = {"word": "WER", "char": "CER", "mixed": "MER"}
COUNTED = {"word": "words", "char": "chars", "mixed": "characters and words"}
REPORT = re.compile(r'\{\s*"(wer|cer|mer|bleu)": \{\s*"(rate|score)": ')
CHOICES = ("auto", "word", "char", "mixed", "both")


@dataclass(frozen=True)
class Score:
    """One error rate of one system.

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
    def rate(self) -> float:
        """Errors per reference unit, 0.05 for 5 %."""
        return self.total.rate

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the rate, 95 %."""
        return self.low, self.high

    @property
    def wrong(self) -> int:
        """Utterances with an error."""
        return sum(utterance.errors > 0 for utterance in self.utterances.values())

    def line(self) -> str:
        """Write it in one line, in percent."""
        t, n = self.total, len(self.utterances)
        counts = f"sub {t.substitutions}, del {t.deletions}, ins {t.insertions} of {t.reference} {COUNTED[self.unit]}"
        return (
            f"{UNITS[self.unit]} {percent(t.rate)} % [{percent(self.low)}, {percent(self.high)}]: {counts}, "
            + (f"{self.wrong} of {n} utterances wrong")
        )

    def as_json(self) -> dict:
        """Return the numbers as plain values; rates as fractions of 1."""
        total = {
            **asdict(self.total),
            "errors": self.total.errors,
            "reference": self.total.reference,
        }
        each = {name: asdict(utterance) for name, utterance in self.utterances.items()}
        bounds = {"rate": self.total.rate, "low": self.low, "high": self.high}
        return {**bounds, **total, "wrong_utterances": self.wrong, "utterances": each}


@dataclass(frozen=True)
class Report:
    """The score of a system.

    scores       by unit: "word", "char" or "mixed"
    differences  by unit, to another system, if one was given
    notes        on utterances without a hypothesis
    texts        as they were compared: "ref", "hyp" and perhaps "against" → id → text
    normalization  name of the convention that rewrote them
    """

    scores: dict[str, Score]
    differences: dict[str, Difference]
    notes: list[str] = field(default_factory=list)
    texts: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    normalization: str = "none"

    def lines(self) -> list[str]:
        """Write it in lines, in percent."""
        return [score.line() for score in self.scores.values()] + [
            f"{UNITS[unit]} difference {100 * d.value:+.2f} points [{100 * d.low:+.2f}, {100 * d.high:+.2f}], "
            f"p = {d.p:.4f} (paired bootstrap; below 0: the first is better)"
            for unit, d in self.differences.items()
        ]

    def as_json(self) -> dict:
        """Return all as plain values, under "wer", "cer", "mer", "difference" and "normalization"."""
        scores = {UNITS[unit].lower(): score.as_json() for unit, score in self.scores.items()}
        differences = {
            UNITS[unit].lower(): asdict(difference) for unit, difference in self.differences.items()
        }
        compared = {"difference": differences} if differences else {}
        return {**scores, **compared, "normalization": self.normalization}


def score(
    ref: Texts,
    hyp: Texts,
    unit: str = "auto",
    against: Texts | None = None,
    normalize: str | None = None,
    missing: str = "refuse",
) -> Report:
    """Score hypotheses against their references.

    Texts are a file (a manifest, lines of `id<TAB>text`, JSON lines of transcripts, NIST's .trn, .stm
    or .ctm, or Kaldi's `text`), a mapping of id → text, or transcripts. The words of a ctm are
    divided among the segments if the references are an stm.

    ref:        references; none may be empty
    hyp:        hypotheses of the same ids; an empty text is an empty hypothesis
    unit:       "word", "char", "mixed", "both" = word and char, or "auto" = what `units_of` says of
                the references
    against:    hypotheses of a second system, for the significance of the difference
    normalize:  a convention of `asr.text.normalize` to rewrite all texts by: "plain", "english", or
                a YAML file of rules; None or "none" = as they are written (NFC)
    missing:    "refuse" an utterance without a hypothesis, or count its words as "deletions"; none
                is ever left out
    raises      UserError if ids are missing, unknown or repeated, or a reference is empty

    >>> report = score({"a": "GO ON", "b": "UP"}, {"a": "GO", "b": "UP"})
    >>> round(report.scores["word"].rate, 3)
    0.333
    """
    for argument, value, known in (
        ("missing", missing, ("refuse", "deletions")),
        ("unit", unit, CHOICES),
    ):
        if value not in known:
            raise UserError(f"got {value!r}, expected one of {', '.join(known)}", argument=argument)
    rewrite, segments = convention(normalize or "none"), segments_of(ref)
    given = {"ref": ref, "hyp": hyp} | ({} if against is None else {"against": against})
    texts = {
        name: {i: rewrite(text) for i, text in texts_of(x, name, segments).items()}
        for name, x in given.items()
    }
    references = texts["ref"]
    units = {"auto": units_of(references.values()), "both": ["word", "char"]}.get(unit, [unit])
    notes = []
    for name, hypotheses in [(n, texts[n]) for n in given if n != "ref"]:
        if missing == "deletions":
            notes += fill(references, hypotheses, name_of(given[name], name))
        match(references, hypotheses, name_of(ref, "ref"), name_of(given[name], name))
    scores = {unit: score_texts(references, texts["hyp"], unit) for unit in units}
    if against is None:
        return Report(scores, {}, notes, texts, rewrite.name)
    others = {unit: aligned(references, texts["against"], unit) for unit in units}
    differences = {u: compare(list(scores[u].utterances.values()), others[u]) for u in units}
    return Report(scores, differences, notes, texts, rewrite.name)


def fill(references: Mapping[str, str], hypotheses: dict[str, str], name: str) -> list[str]:
    """Add an empty hypothesis for each reference that has none, in place; return a note on them."""
    absent = [i for i in references if i not in hypotheses]
    hypotheses |= dict.fromkeys(absent, "")
    return (
        [f"{name}: {len(absent)} missing, counted as deletions ({shorten(absent)})"]
        if absent
        else []
    )


def is_report(path: str | os.PathLike) -> bool:
    """Whether a file is what asr-score --json writes."""
    try:
        with open(path, encoding="utf-8") as file:
            return REPORT.match(file.read(40)) is not None
    except (OSError, ValueError):
        return False


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
    return Score(unit, total(rates), low, high, dict(zip(references, rates, strict=True)))


def aligned(
    references: Mapping[str, str], hypotheses: Mapping[str, str], unit: str
) -> Sequence[ErrorRate]:
    """Align each reference with the hypothesis of the same id, in the references' order."""
    return error_rates(list(references.values()), [hypotheses[name] for name in references], unit)


def percent(rate: float) -> str:
    """Write a rate in percent, two decimals."""
    return f"{100 * rate:.2f}"
