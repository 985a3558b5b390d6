"""A Transformer language model: the Transformer decoder without an encoder ("Attention Is All You Need", section 3.1).

B batch, U labels, D model width, V vocabulary; in a search B utterances, K hypotheses of each, H attention heads,
M nodes of the cache's tree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from asr.config import Settings
from asr.models import folder as folders
from asr.models import loss as criterion
from asr.models.folder import WEIGHTS, load_weights, save_weights
from asr.models.hybrid import initialise
from asr.models.sizes import StackSettings
from asr.nn.attention import MultiHeadAttention
from asr.nn.cache import Tree
from asr.nn.feedforward import FeedForward
from asr.nn.masks import causal_mask
from asr.nn.positions import ScaledPositions
from asr.nn.residual import Residual, final_norm
from asr.text import tokenizer as tokenizers
from asr.text.tokenizer import Tokenizer


class LMSettings(StackSettings):
    """Sizes of a language model."""

    kind: Literal["lm"]
    tied: bool = False  # output projection = embedding


@dataclass(frozen=True)
class LMLoss:
    """Sums over a batch, so that batches add: divide by `tokens` for the loss per target token.

    total:    scalar, -ln P of the sentences, natural logarithm, with gradient
    correct:  scalar int, targets that the model ranks first
    tokens:   scalar int, targets: the labels and each sentence's end symbol
    """

    total: Tensor
    correct: Tensor
    tokens: Tensor

    @property
    def nll(self) -> Tensor:
        """`total` as a figure, without gradient."""
        return self.total.detach()


class CausalLayer(nn.Module):
    """Self-attention to the labels before, then feed-forward, each with residual and LayerNorm."""

    def __init__(self, settings: LMSettings):
        super().__init__()
        s = settings
        self.attention = MultiHeadAttention(s.d_model, s.heads, s.attention_dropout, s.d_k, s.d_v)
        self.feedforward = FeedForward(s.d_model, s.ff, s.dropout, s.activation)
        self.around_attention = Residual(s.d_model, s.dropout, s.norm)
        self.around_feedforward = Residual(s.d_model, s.dropout, s.norm)

    def forward(self, Y: Tensor, mask: Tensor, maps: list | None = None) -> Tensor:
        """Y (B, U, D), mask (U, U) → (B, U, D)"""
        Y = self.around_attention(Y, lambda Z: self.attention(Z, Z, mask, maps))
        return self.around_feedforward(Y, self.feedforward)

    def step(self, Y: Tensor, remember: Callable, mask: Tensor) -> Tensor:
        """One more label of every hypothesis: Y (B, K, D), mask (B, 1, K, M) → (B, K, D).

        remember:  adds keys and values (B, H, K, d) to the cache and returns all, (B, H, M, d)
        """
        attention = self.attention
        Y = self.around_attention(Y, lambda Z: attention.from_heads(Z, *remember(*attention.keys_values(Z)), mask))
        return self.around_feedforward(Y, self.feedforward)


class TransformerLM(nn.Module):
    """Embedding, positions, layers, output projection: P(label | labels before).

    settings:    sizes
    vocabulary:  V: id 0 is the CTC blank, which is never a label, id V - 1 the shared start/end symbol
    """

    def __init__(self, settings: LMSettings, vocabulary: int):
        super().__init__()
        self.vocabulary, self.sos_eos = vocabulary, vocabulary - 1
        self.embedding = nn.Embedding(vocabulary, settings.d_model)
        self.positions = ScaledPositions(settings.d_model, settings.dropout)
        self.layers = nn.ModuleList(CausalLayer(settings) for _ in range(settings.layers))
        self.norm = final_norm(settings.d_model, settings.norm)
        self.out = nn.Linear(settings.d_model, vocabulary)
        self.apply(initialise)
        if settings.tied:
            self.out.weight = self.embedding.weight

    def forward(self, Y: Tensor, Y_lens: Tensor, maps: list | None = None) -> Tensor:
        """Score sentences: row u of the logits is for label u given the labels before it, the last row for <eos>.

        Y, Y_lens:  (B, U) int, padded with -1, and (B,) int; causality keeps the padding from the real positions
        maps:       when given, each layer's attention weights (B, H, U + 1, U + 1) are appended to it
        returns     logits (B, U + 1, V), whose softmax is the posterior
        """
        Y = criterion.add_start(Y, Y_lens, self.sos_eos)  # (B, U + 1)
        Z = self.positions(self.embedding(Y))  # (B, U + 1, D)
        mask = causal_mask(Z.size(1), Z.device)  # (U + 1, U + 1)
        for layer in self.layers:
            Z = layer(Z, mask, maps)  # (B, U + 1, D)
        return self.out(self.norm(Z))  # (B, U + 1, V)

    def start(self, H: Tensor, H_lens: Tensor) -> Tree:
        """Caches of one hypothesis of each of len(H) utterances, which has read nothing; no more is asked of H."""
        return Tree.empty(len(H), 1, H.device)

    def step(self, y: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """Read one more label of every hypothesis.

        y:       (B, K) int, the label read, <sos> at first
        returns  logits (B, K, V) of the next label, equal to `forward`'s at this position, and the new caches
        """
        tree = state.grow()
        mask = tree.mask.unsqueeze(1)  # (B, 1, K, M)
        Z = self.positions.at(self.embedding(y), state.lens, state.longest)  # (B, K, D)
        for n, layer in enumerate(self.layers):
            Z = layer.step(Z, partial(tree.append, n), mask)  # (B, K, D)
        return self.out(self.norm(Z)), tree  # (B, K, V)

    def loss(self, Y: Tensor, Y_lens: Tensor) -> LMLoss:
        """-ln P of a padded batch of sentences, Y (B, U) and Y_lens (B,), summed."""
        logits = self(Y, Y_lens)  # (B, U + 1, V)
        targets = criterion.add_end(Y, Y_lens, self.sos_eos)  # (B, U + 1)
        total = criterion.cross_entropy(logits, targets, smoothing=0.0)
        return LMLoss(total, criterion.count_correct(logits, targets), (Y_lens + 1).sum())


class FolderSettings(Settings):
    """What identifies a language model."""

    model: LMSettings


class LanguageModel(nn.Module):
    """A language model and its tokenizer."""

    def __init__(self, settings: LMSettings, tokenizer: Tokenizer):
        super().__init__()
        self.model = TransformerLM(settings, tokenizer.vocabulary)
        self.tokenizer = tokenizer

    def loss(self, Y: Tensor, Y_lens: Tensor) -> LMLoss:
        """-ln P of a padded batch of sentences, Y (B, U) and Y_lens (B,), summed."""
        return self.model.loss(Y, Y_lens)

    def save(self, folder: str | Path, config: str) -> None:
        """Write the model folder; `config` is the YAML text of the full experiment."""
        folders.describe(folder, config, self.tokenizer)
        save_weights(self, Path(folder) / WEIGHTS)


def load(folder: str | Path, device: torch.device | str = "cpu") -> LanguageModel:
    """Load a language model's folder, in evaluation mode.

    raises   UserError if a file is missing or damaged; names it; or if the folder holds a recogniser
    """
    settings = folders.read_settings(folder, FolderSettings, "lm")
    made = LanguageModel(settings.model, tokenizers.load(folder))
    load_weights(made, Path(folder) / WEIGHTS)
    return made.to(device).eval()
