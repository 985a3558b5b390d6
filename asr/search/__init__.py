"""Searches: from scores of labels to hypotheses. Names are imported when they are first used."""

from typing import Any

from asr.imports import lazily

_HOMES = {
    "BeamSearch": "beam",
    "beam_search": "beam",
    "CTCBeamSearch": "ctc_beam",
    "CTCPrefixScorer": "ctc_prefix",
    "attention_greedy": "greedy",
    "ctc_greedy": "greedy",
    "Hypothesis": "scorer",
    "LengthBonus": "length",
    "NetworkScorer": "neural",
    "NGramScorer": "ngram",
    "rescore": "rescoring",
    "Scorer": "scorer",
    "ScorerContext": "scorer",
    "ScorerKind": "scorer",
    "ScorerOptions": "scorer",
    "Stateless": "scorer",
    "TensorState": "tables",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    return lazily(__name__, name, _HOMES)
