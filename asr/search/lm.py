"""A language model over the recognizer's labels: a network, or an n-gram model."""

from __future__ import annotations

import os
from dataclasses import dataclass

from asr.options import option
from asr.search.scorer import HEAVIEST, Scorer, ScorerContext, ScorerKind, ScorerOptions


def load(options: LMOptions, context: ScorerContext) -> Scorer:
    """Load a language model.

    raises   UserError if it can't be read, or is a model of other tokens
    """
    from asr.search import ngram
    from asr.search.neural import NetworkScorer

    path = str(options.lm)
    if os.path.isdir(path):
        return NetworkScorer(context.load_network(path), context.sos_eos)
    return ngram.NGramScorer(ngram.load(path, context.tokenizer.symbols()).to(context.device))


@dataclass(frozen=True, kw_only=True)
class LMOptions(ScorerOptions):
    """Options of the language model."""

    scorer = ScorerKind("lm", switch="lm", weight="lm_weight", load=load)
    lm: str | None = option(
        None, "language model: folder of asr-train, or ARPA file of tokens", path="PATH"
    )
    lm_weight: float = option(0.3, "weight of the language model", least=0, most=HEAVIEST)
