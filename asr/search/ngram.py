"""A back-off n-gram model over tokens as a scorer of the beam search.

The model is a trie of its n-grams. An arc is an n-gram: it leads from the node of the words before
(its context) by its last word to its own node. Of a context that lacks a word,

    ln p(word | context) = backoff(context) + ln p(word | longest known shorter context)

B utterances, K hypotheses of each, V vocabulary, C candidate labels of a hypothesis, A arcs, S
contexts.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from asr.errors import UserError
from asr.search.arpa import UNKNOWN, Section, read_arpa
from asr.search.tables import Tables, TensorState, look_up

UNKNOWN_LOG_PROB = -100 * math.log(
    10
)  # of what a model without <unk> doesn't list, as kenlm has it


@dataclass(frozen=True)
class NGram(Tables):
    """The tables of a model.

    order      the most words of an n-gram
    words      (V,) int64, the word of a label; what the model doesn't list is <unk>, the end symbol
               is </s>
    keys       (A,) int64, sorted: context · (V + 1) + word
    log_probs  (A,) float32, ln p(word | context)
    targets    (A,) int64, the longest context that ends in the n-gram
    backoffs   (S,) float32
    shorter    (S,) int64, the longest context that ends a context; 0, the empty one, of itself
    start      the context <s>
    """

    order: int
    words: Tensor
    keys: Tensor
    log_probs: Tensor
    targets: Tensor
    backoffs: Tensor
    shorter: Tensor
    start: int

    def arcs(self, contexts: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """Find the arcs (…) of words (…) after contexts (…), and the sums of back-off weights."""
        backoff = torch.zeros_like(contexts, dtype=self.backoffs.dtype)
        for _ in range(self.order):
            arcs, found = look_up(self.keys, contexts * (len(self.words) + 1) + words)
            backoff += self.backoffs[contexts].masked_fill(found, 0.0)
            contexts = torch.where(found, contexts, self.shorter[contexts])
        return arcs, backoff


class NGramScorer(TensorState):
    """Score by ln p(label | labels before); never above 0, however the model's file was rounded.

    The state is each hypothesis's context, (B, K) int64.
    """

    full = False
    ceiling = 0.0

    def __init__(self, model: NGram):
        self.model = model

    def start(self, H: Tensor, H_lens: Tensor) -> Tensor:
        """Begin one hypothesis of each utterance, after <s>."""
        return torch.full((len(H), 1), self.model.start, device=H.device)

    def score(self, state: Tensor, candidates: Tensor | None) -> Tensor:
        """(B, K, V), or (B, K, C) of candidates"""
        words = self.model.words if candidates is None else self.model.words[candidates]
        contexts, words = torch.broadcast_tensors(state.unsqueeze(2), words)
        arcs, backoff = self.model.arcs(contexts, words)
        return (self.model.log_probs[arcs] + backoff).clamp(max=0.0)

    def step(self, y: Tensor, state: Tensor) -> Tensor:
        """Read labels y (B, K)."""
        return self.model.targets[self.model.arcs(state, self.model.words[y])[0]]


def load(path: str | os.PathLike, symbols: Sequence[str]) -> NGram:
    """Read an ARPA file, `.gz` or not, whose words are the tokenizer's pieces.

    symbols:  the tokenizer's, V of them, blank first, start/end symbol last
    raises    UserError, with file and line, if the file is absent, damaged, no ARPA, or of other
              words
    """
    return build(read_arpa(path, symbols), len(symbols), str(path))


def build(sections: Sequence[Section], V: int, name: str = "n-gram model") -> NGram:
    """Make the tables of n-grams of lengths 1 … order, over V ids.

    raises   UserError with the model's name if an n-gram stands twice
    """
    sections = _with_unknown(sections)
    levels, nodes = _trie([torch.from_numpy(section.words) for section in sections], V + 1)
    keys, words = torch.cat(levels), torch.arange(V)
    words[-1] = V
    words[~torch.isin(words, levels[0])] = UNKNOWN
    log_probs, backoffs = torch.full((len(keys),), torch.nan), torch.zeros(1 + len(keys))
    for n, (section, node) in enumerate(zip(sections, nodes, strict=True), 1):
        if len(node) and torch.bincount(node).max() > 1:
            raise UserError(f"{name}: a {n}-gram stands there a second time; keep one of the two")
        log_probs[node - 1] = torch.from_numpy(section.log_probs)
        backoffs[node] = torch.from_numpy(section.backoffs)
    shorter, targets = torch.zeros(1 + len(keys), dtype=torch.long), torch.arange(1, 1 + len(keys))
    model = NGram(len(levels), words, keys, log_probs, targets, backoffs, shorter, 0)
    first = 1 + len(levels[0])
    for level in levels[1:]:
        _link(model, torch.arange(first, first + len(level)))
        first += len(level)
    return _without_leaves(model, S=1 + len(keys) - len(levels[-1]))


def _link(model: NGram, nodes: Tensor) -> None:
    """Find the longest shorter context of nodes, (N,), and the log-probabilities that the file leaves to back-off.

    Those that have none begin an n-gram of the file without being one.
    """
    W = len(model.words) + 1
    contexts, words = model.keys[nodes - 1] // W, model.keys[nodes - 1] % W
    arcs, backoff = model.arcs(model.shorter[contexts], words)
    model.shorter[nodes] = 1 + arcs
    backed_off = model.backoffs[contexts] + backoff + model.log_probs[arcs]
    listed = model.log_probs[nodes - 1]
    model.log_probs[nodes - 1] = torch.where(listed.isnan(), backed_off, listed)


def _without_leaves(model: NGram, S: int) -> NGram:
    """Let the longest n-grams' arcs lead to shorter contexts, which are numbered below S."""
    targets = torch.where(model.targets < S, model.targets, model.shorter[model.targets])
    bos, _ = look_up(model.keys, torch.tensor(len(model.words) - 1))
    backoffs, shorter = model.backoffs[:S].clone(), model.shorter[:S].clone()
    return replace(
        model, targets=targets, start=int(targets[bos]), backoffs=backoffs, shorter=shorter
    )


def _with_unknown(sections: Sequence[Section]) -> list[Section]:
    """List <unk> among the 1-grams."""
    first = sections[0]
    if UNKNOWN in first.words:
        return list(sections)
    new = ([[UNKNOWN]], [UNKNOWN_LOG_PROB], [0.0])
    pairs = zip((first.words, first.log_probs, first.backoffs), new, strict=True)
    return [Section(*(np.concatenate([x, np.array(y, x.dtype)]) for x, y in pairs)), *sections[1:]]


def _trie(words: Sequence[Tensor], W: int) -> tuple[list[Tensor], list[Tensor]]:
    """Number the nodes of all n-grams, words (A, n) each, and of all that these begin with, shorter ones first.

    returns   by level the sorted keys of its arcs, parent · W + word, in the order of their nodes
              1, 2, …; and the nodes (A,) of the n-grams
    """
    nodes, levels, first = [x.new_zeros(len(x)) for x in words], [], 1
    for n in range(len(words)):
        keys = [x * W + y[:, n] for x, y in zip(nodes[n:], words[n:], strict=True)]
        level = torch.cat(keys).unique()
        nodes[n:] = [first + torch.searchsorted(level, x) for x in keys]
        levels.append(level)
        first += len(level)
    return levels, nodes
