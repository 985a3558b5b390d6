"""A recogniser's search: encoder outputs in, n-best lists out, one batch or a stream of them."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from asr.models.recognizer import Recognizer
from asr.search.beam import BeamSearch
from asr.search.ctc_prefix import CTCPrefixScorer
from asr.search.greedy import attention_greedy, ctc_greedy
from asr.search.hypothesis import Hypothesis
from asr.search.length import LengthBonus
from asr.search.network import NetworkScorer
from asr.search.rescoring import rescore
from asr.search.scorer import Scorer
from asr.transcribe.language import load_hotwords, load_lm
from asr.transcribe.options import SearchOptions

Key = TypeVar("Key")
FEW_LABELS = 1000  # of so many, CTC helps attention to pre-select candidates; of more, that would take too long
REFILL = 1 / 2  # share of a batch that is still searched when the next one enters
NOTHING = Hypothesis([], -float("inf"), reason="limit")  # where every label sequence is impossible


class Searcher:
    """Searches as the options say.

    recognizer  whose encoder made H (B, T', D), H_lens (B,)
    precision   "fp32" or "bf16"
    raises      UserError if the language model or the hotwords can't be read, or don't fit the recogniser
    """

    def __init__(self, recognizer: Recognizer, options: SearchOptions, precision: str = "fp32"):
        self.model, self.options, self.precision = recognizer.model, options, precision
        self.device = next(recognizer.parameters()).device
        self.lm = load_lm(options.lm, recognizer.tokenizer, self.device) if options.lm else None
        self.hotwords = load_hotwords(options.hotwords, recognizer.tokenizer, self.device) if options.hotwords else None

    def tuned(self, **weights: float) -> "Searcher":
        """The same search with other weights; nothing is loaded again."""
        other = copy.copy(self)
        other.options = replace(self.options, **weights)
        return other

    def scorers(self) -> dict[str, tuple[Scorer, float]]:
        """The scorers of the beam, each with its weight."""
        model, options = self.model, self.options
        ctc_weight = {"joint": options.ctc_weight, "attention": 0.0}.get(options.mode, 1.0)
        scorers = {}
        if ctc_weight < 1:
            scorers["attention"] = NetworkScorer(model.decoder, model.sos_eos), 1 - ctc_weight
        if ctc_weight > 0:
            full = not scorers or model.vocabulary <= FEW_LABELS
            scorers["ctc"] = CTCPrefixScorer(model.ctc_log_probs, model.sos_eos, full), ctc_weight
        if self.lm:
            scorers["lm"] = self.lm, options.lm_weight
        if self.hotwords:
            scorers["hotwords"] = self.hotwords, options.hotword_weight
        if options.length_bonus:
            scorers["length"] = LengthBonus(options.length_bonus, model.sos_eos), 1.0
        return scorers

    def search(self, H: Tensor, H_lens: Tensor) -> list[list[Hypothesis]]:
        """N-best lists of one batch, best first."""
        return [nbest for _, nbest in sorted(self.stream([(range(len(H)), H, H_lens)]), key=lambda found: found[0])]

    @torch.no_grad()
    def stream(self, batches: Iterable[tuple[Sequence[Key], Tensor, Tensor]]) -> Iterator[tuple[Key, list[Hypothesis]]]:
        """N-best lists of utterances as they are done.

        batches:  keys of the utterances, H, H_lens; the next is asked for when half of the last one is done
        returns   pairs of key and n-best list
        """
        if self.options.mode in ("joint", "attention", "ctc"):
            yield from self._beams(batches)
            return
        for keys, H, H_lens in batches:
            with self._autocast():
                nbests = self._batch(H, H_lens)
            yield from zip(keys, nbests, strict=True)

    def _beams(self, batches) -> Iterator:
        search, keys = self._beam(self.options.nbest), {}
        for new, H, H_lens in batches:
            keys |= dict(enumerate(new, search.came))
            with self._autocast():
                search.add(H, H_lens, H_lens)
            yield from self._run(search, keys, int(len(H) * REFILL))
        yield from self._run(search, keys, 0)

    def _run(self, search: BeamSearch, keys: dict, enough: int) -> Iterator:
        while len(search) > enough:
            with self._autocast():
                search.step()
            for number, nbest in search.take():
                yield keys.pop(number), nbest or [NOTHING]

    def _batch(self, H: Tensor, H_lens: Tensor) -> list[list[Hypothesis]]:
        """Searches that know no slots."""
        model, options = self.model, self.options
        if options.mode == "ctc-greedy":
            return [[h] for h in ctc_greedy(model.ctc_log_probs(H), H_lens)]
        if options.mode == "attention-greedy":
            state = model.decoder.start(H, H_lens)
            return [[h] for h in attention_greedy(model.decoder.step, state, len(H), model.sos_eos, H_lens)]
        search = self._beam(options.beam)
        search.add(H, H_lens, H_lens)
        while len(search):
            search.step()
        nbests = [nbest for _, nbest in sorted(search.take())]
        weight = 1 - options.ctc_weight
        nbests = rescore(nbests, model.decoder, H, H_lens, model.sos_eos, weight, model.vocabulary)
        return [nbest[: options.nbest] or [NOTHING] for nbest in nbests]

    def _beam(self, nbest: int) -> BeamSearch:
        scorers = self.scorers()
        loops = "ctc" in scorers  # which knows whether somebody did say it ten times
        return BeamSearch(scorers, self.model.sos_eos, self.options.beam, nbest, loops=loops)

    def _autocast(self) -> AbstractContextManager:
        """Not around a whole generator: it would hold between its items, too."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16")
