"""How to search: the same names from Python and as options of asr-decode."""

import math
from dataclasses import dataclass
from typing import Literal

from asr.errors import UserError

MODES = ("joint", "attention", "ctc", "rescoring", "attention-greedy", "ctc-greedy")
WEIGHTS = ("ctc_weight", "length_bonus", "lm_weight", "hotword_weight")


@dataclass(frozen=True)
class SearchOptions:
    """How to search.

    mode            "joint" beam search with attention and CTC prefix scores, "attention" or "ctc" beam search with one
                    of them, "rescoring" of the CTC beam's n-best list by attention, "attention-greedy", "ctc-greedy"
    beam            hypotheses of an utterance
    ctc_weight      of the joint search and of rescoring; attention has 1 - ctc_weight
    nbest           hypotheses returned, at most
    length_bonus    nats a label: above 0 against deletions, below 0 against insertions
    lm              folder of a language model, or ARPA file of an n-gram model over tokens; for every beam
    lm_weight       of it
    hotwords        file with a word or phrase a line, each perhaps with a tab and a factor
    hotword_weight  nats a token of a hotword
    """

    mode: Literal["joint", "attention", "ctc", "rescoring", "attention-greedy", "ctc-greedy"] = "joint"
    beam: int = 10
    ctc_weight: float = 0.3
    nbest: int = 1
    length_bonus: float = 0.0
    lm: str | None = None
    lm_weight: float = 0.3
    hotwords: str | None = None
    hotword_weight: float = 2.0

    def __post_init__(self):
        if self.mode not in MODES:
            raise UserError(f"mode: got {self.mode!r}, expected one of {', '.join(MODES)}")
        if self.beam < 1 or not 1 <= self.nbest <= self.beam:
            raise UserError(f"beam and nbest: got {self.beam} and {self.nbest}, expected 1 <= nbest <= beam")
        for name in WEIGHTS:
            if not math.isfinite(getattr(self, name)):
                raise UserError(f"{name.replace('_', '-')}: got {getattr(self, name)}, expected a finite number")
        if not 0.0 <= self.ctc_weight <= 1.0:
            raise UserError(f"ctc-weight: got {self.ctc_weight}, expected 0 to 1")
        for name in ("lm_weight", "hotword_weight"):
            if getattr(self, name) < 0:
                raise UserError(f"{name.replace('_', '-')}: got {getattr(self, name)}, expected 0 or more")
        if (self.lm or self.hotwords or self.length_bonus) and self.mode.endswith("greedy"):
            raise UserError(f"mode {self.mode} knows no language model, hotwords or length bonus; a beam does")
