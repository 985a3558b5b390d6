"""A recognizer's search, or a translator's: encoder outputs in, n-best lists out, one batch or a stream of them."""

import copy
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from asr.errors import UserError
from asr.models import lm
from asr.models.recognizer import Recognizer
from asr.models.translator import Translator
from asr.nn.packed import pack
from asr.search.beam import REMOVAL_SHARE, BeamSearch
from asr.search.ctc_beam import CTCBeamSearch
from asr.search.ctc_prefix import CTCPrefixScorer
from asr.search.greedy import attention_greedy, ctc_greedy
from asr.search.neural import Network, NetworkScorer
from asr.search.rescoring import rescore
from asr.search.scorer import Hypothesis, Scorer, ScorerContext, ScorerOptions
from asr.text.tokenizer import Tokenizer
from asr.transcript import Word
from asr.transcription.options import SCORERS, SearchOptions
from asr.transcription.times import Encoded, word_times

Key = TypeVar("Key")
M = TypeVar("M", bound=nn.Module)
FEW_LABELS = 1000  # up to this number, CTC helps attention to pre-select candidates; with more it would be too slow
REFILL = 1 / 2  # share of a batch that is still being searched when the next one enters
MOST = 2  # times the frames of a batch, padding included, that are searched at once
NOTHING = Hypothesis([], -float("inf"), reason="limit")  # if every label sequence is impossible


class Searcher:
    """Search as the options say.

    recognizer  whose encoder made H (B, T', D), H_lens (B,); of a translator attention alone is
                searched
    precision   "fp32" or "bf16": of the decoder, CTC's output layer and the language model
    chunk       encoder frames of a chunk of H; None: by default
    raises      UserError if a scorer's file can't be read, or doesn't fit the recognizer, or the
                encoder wasn't trained with the chunk
    """

    def __init__(
        self,
        recognizer: Recognizer | Translator,
        options: SearchOptions,
        precision: str = "fp32",
    ):
        self.recognizer = cast(Any, recognizer)  # or a translator, which has no CTC
        self.options, self.precision = options, precision
        self.device = next(recognizer.parameters()).device
        self.model = for_search(self.recognizer.model, precision)
        self.dtype = self.model.decoder.out.weight.dtype
        chunk = options.chunk
        self.chunk = None if chunk is None else self.recognizer.chunk_frames(chunk)
        self.extra = {kind: self._load(kind) for kind in SCORERS}

    def tuned(self, **values: Any) -> "Searcher":
        """Return the same search with other values of options; only scorers whose own options change are made again."""
        other = copy.copy(self)
        other.options = replace(self.options, **values)
        other.extra = {
            kind: other._load(kind) if _is_own(kind, values) else scorer
            for kind, scorer in self.extra.items()
        }
        return other

    def _load(self, options: type[ScorerOptions]) -> Scorer | None:
        kind, tokenizer = options.scorer, self.recognizer.tokenizer
        if not getattr(self.options, kind.switch):
            return None
        network = partial(load_network, tokenizer=tokenizer, device=self.device, dtype=self.dtype)
        context = ScorerContext(tokenizer, self.model.sos_eos, self.device, network)
        scorer = kind.load(self.options, context)
        if self.options.mode == "ctc-beam" and isinstance(scorer, NetworkScorer):
            raise UserError(
                f"{self.options.lm}: got a Transformer, which mode 'ctc-beam' can't follow frame by frame; "
                "expected an n-gram model (asr-ngram makes one), or mode 'joint'",
                argument="lm",
            )
        return scorer

    def word_times(self, encoded: Encoded, hypotheses: Sequence[Hypothesis]) -> list[list[Word]]:
        """Give the words of a hypothesis of each utterance their times."""
        log_probs = self.ctc_log_probs(encoded.H)  # (B, T', V)
        return word_times(log_probs, encoded, hypotheses, self.recognizer)

    def ctc_log_probs(self, H: Tensor) -> Tensor:
        """H (B, T', D) → (B, T', V) float32, log posteriors of blank and labels."""
        return self.model.ctc_log_probs(H.to(self.dtype))

    def prefix_beam(self) -> CTCBeamSearch:
        """Make the search that goes on with a stream: of CTC, with the scorers that are no networks."""
        scorers = {
            name: pair
            for name, pair in self._weighted().items()
            if not isinstance(pair[0], NetworkScorer)
        }
        return CTCBeamSearch(scorers, self.model.sos_eos, self.options.beam)

    def scorers(self) -> dict[str, tuple[Scorer, float]]:
        """Return the scorers of the beam, each with its weight."""
        model, options = self.model, self.options
        ctc_weight = {"joint": options.ctc_weight, "attention": 0.0}.get(options.mode, 1.0)
        scorers: dict[str, tuple[Scorer, float]] = {}
        if ctc_weight < 1:
            scorers["attention"] = NetworkScorer(model.decoder, model.sos_eos), 1 - ctc_weight
        if ctc_weight > 0:
            full = not scorers or model.vocabulary <= FEW_LABELS
            scorers["ctc"] = CTCPrefixScorer(model.ctc_log_probs, model.sos_eos, full), ctc_weight
        return scorers | self._weighted()

    def _weighted(self) -> dict[str, tuple[Scorer, float]]:
        """Return the scorers that options added, each with its weight."""
        weights = [(kind.scorer, scorer) for kind, scorer in self.extra.items() if scorer]
        return {
            kind.name: (scorer, getattr(self.options, kind.weight) if kind.weight else 1.0)
            for kind, scorer in weights
        }

    def search(self, H: Tensor, H_lens: Tensor) -> list[list[Hypothesis]]:
        """Return the n-best lists of one batch, best first."""
        return [
            nbest
            for _, nbest in sorted(
                self.stream([(range(len(H)), H, H_lens)]), key=lambda found: found[0]
            )
        ]

    def stream(
        self, batches: Iterable[tuple[Sequence[Key], Tensor, Tensor]]
    ) -> Iterator[tuple[Key, list[Hypothesis]]]:
        """Yield n-best lists of utterances as they are done.

        batches:  keys of the utterances, H, H_lens; the next is read when half of the last one is
                  done, and enters when padding all to the longest takes no more than MOST batches
        returns   pairs of key and n-best list
        """
        return chain.from_iterable(self.groups(batches))

    @torch.no_grad()
    def groups(
        self, batches: Iterable[tuple[Sequence[Key], Tensor, Tensor]]
    ) -> Iterator[list[tuple[Key, list[Hypothesis]]]]:
        """Do as `stream`, and yield together what is done at the same time."""
        running = Running[Key](self)
        for keys, H, H_lens in batches:
            yield from running.until(running.room_beside(*H.shape[:2]))
            running.add(keys, H, H_lens)
            yield from running.until(int(len(H) * REFILL))
        yield from running.until(0)

    def batch(self, H: Tensor, H_lens: Tensor) -> list[list[Hypothesis]]:
        """Search a whole batch, in the modes that utterances can't enter one by one."""
        model, options = self.model, self.options
        if options.mode == "ctc-greedy":
            return [[h] for h in ctc_greedy(model.ctc_log_probs(H), H_lens)]
        if options.mode == "ctc-beam":
            frames = self.prefix_beam()
            read = frames.step(model.ctc_log_probs(H), H_lens, frames.start(len(H), H.device))
            return [nbest[: options.nbest] or [NOTHING] for nbest in frames.hypotheses(read)]
        if options.mode == "attention-greedy":
            state, limits = model.decoder.start(H, H_lens), model.limits(H_lens)
            return [
                [h]
                for h in attention_greedy(model.decoder.step, state, len(H), model.sos_eos, limits)
            ]
        search = self.beam(options.beam)
        search.add(H, H_lens, H_lens)
        while len(search):
            search.step()
        nbests = [nbest for _, nbest in sorted(search.take())]
        weight, score = 1 - options.ctc_weight, lambda *inputs: model.decoder(*inputs).logits
        nbests = rescore(nbests, score, H, H_lens, model.sos_eos, weight, model.vocabulary)
        return [nbest[: options.nbest] or [NOTHING] for nbest in nbests]

    def beam(self, nbest: int, removal_share: float = REMOVAL_SHARE) -> BeamSearch:
        """Make the beam search, with all scorers; for the arguments see `BeamSearch`."""
        scorers = self.scorers()
        # CTC itself rejects repetitions that aren't in the audio; a text may well repeat itself
        allow_loops = "ctc" in scorers or isinstance(self.recognizer, Translator)
        return BeamSearch(
            scorers,
            self.model.sos_eos,
            self.options.beam,
            nbest,
            allow_loops=allow_loops,
            length_norm=self.options.length_norm,
            removal_share=removal_share,
        )


class Running(Generic[Key]):
    """A search that utterances enter and leave at any time; the result of each is as if it were alone.

    prompt  each leaves when it is done; else some at a time, which is faster
    """

    def __init__(self, searcher: Searcher, prompt: bool = False):
        self._searcher = searcher
        one_by_one = searcher.options.mode in ("joint", "attention", "ctc")
        options = (
            searcher.options
        )  # divided by lengths, the best may end late: the beam is to be full
        nbest = max(options.beam, options.nbest) if options.length_norm else options.nbest
        share = 0.0 if prompt else REMOVAL_SHARE
        self._search = searcher.beam(nbest, share) if one_by_one else None
        # of the utterances that are being searched, by number: key, and frames of the batch they entered with
        self._within = dict[int, tuple[Key, int]]()
        self._most = 0  # frames of a batch so far, padding included
        # found, where a batch is searched at once
        self._done = list[tuple[Key, list[Hypothesis]]]()

    def __len__(self) -> int:
        """Count the utterances that are in it."""
        return len(self._search or ()) + len(self._done)

    @property
    def by_label(self) -> bool:
        """Whether it goes on label by label; else all is found when an utterance enters."""
        return self._search is not None

    def room_beside(self, B: int, T: int) -> int:
        """Count the utterances beside which B of T frames may enter, since all are padded to the longest."""
        longest = max([T, *(entered for _, entered in self._within.values())])
        frames = max(B * T, self._most)
        return max(0, MOST * frames // longest - B)

    @torch.no_grad()
    def add(self, keys: Sequence[Key], H: Tensor, H_lens: Tensor) -> None:
        """Let utterances enter: H (B, T', D), H_lens (B,)."""
        H = H.to(self._searcher.dtype)
        if self._search is None:
            self._done += zip(keys, self._searcher.batch(H, H_lens), strict=True)
            return
        B, T, _ = H.shape
        self._most = max(self._most, B * T)
        self._within |= {n: (key, T) for n, key in enumerate(keys, self._search.added)}
        self._search.add(H, H_lens, self._searcher.model.limits(H_lens))

    def step(self) -> list[tuple[Key, list[Hypothesis]]]:
        """Go on by one label, and take what is done, with its n-best list."""
        found, self._done = self._done, []
        if self._search is not None and len(self._search):
            self._search.step()
            nbests, most = self._search.take(), self._searcher.options.nbest
            found = [(self._within.pop(n)[0], nbest[:most] or [NOTHING]) for n, nbest in nbests]
        return found

    def until(self, enough: int) -> Iterator[list[tuple[Key, list[Hypothesis]]]]:
        """Search until `enough` utterances or fewer are left; yield together what is done at the same time."""
        while len(self) > (enough if self._search is not None else 0):
            if found := self.step():
                yield found

    def drop(self, unwanted: Container[Key]) -> None:
        """Leave utterances whose keys are in it."""
        self._done = [(key, nbest) for key, nbest in self._done if key not in unwanted]
        numbers = {number for number, (key, _) in self._within.items() if key in unwanted}
        if self._search is not None and numbers:
            self._search.drop(numbers)
            self._within = {n: one for n, one in self._within.items() if n not in numbers}


def for_search(model: M, precision: str) -> M:
    """The model for a search, in which the decoder and CTC's output layer are prepared for many small products.

    In fp32 they are packed. In bf16 they are copies, so that nothing is converted at each step, as
    autocast does. The encoder stays as it is.
    """

    def prepare(part: nn.Module) -> nn.Module:
        return pack(part) if precision == "fp32" else copy.deepcopy(part).bfloat16()

    other, names = copy.copy(model), {"decoder", "ctc_out"} & model._modules.keys()
    other._modules = model._modules | {name: prepare(getattr(model, name)) for name in names}
    return other


def load_network(
    path: str, tokenizer: Tokenizer, device: torch.device, dtype: torch.dtype | None = None
) -> Network:
    """Load a language model over the labels of a tokenizer from its folder.

    raises   UserError if it can't be read, or is a model of other tokens
    """
    model = lm.load(path, device)
    if model.tokenizer.symbols() != tokenizer.symbols():
        raise UserError(
            f"{path}: a language model of other tokens than the model's ({model.tokenizer.vocabulary} and "
            f"{tokenizer.vocabulary} ids); train it with the model's tokenizer"
        )
    return pack(model.model.decoder.to(dtype))


def _is_own(kind: type[ScorerOptions], names: Container[str]) -> bool:
    """Tell whether one of these options is the scorer's own, beside its weight."""
    return any(field.name in names for field in fields(kind) if field.name != kind.scorer.weight)
