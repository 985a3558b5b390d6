"""What every encoder has: convolutional subsampling, layers, and the ways through them, whole or chunk by chunk.

B batch, T frames, F features, T' subsampled frames, D model width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from asr.config import Settings
from asr.device import product_dtype
from asr.nn.layers import LayerContext, Past, layerdrop_mask
from asr.nn.positions import ScaledInput, ScaledPositions, attention_positions
from asr.nn.subsampling import Subsampling
from asr.nn.transformer import MOST, SizeSettings
from asr.ops import additive, chunk_mask, key_mask, length_mask, zero_padding

MOST_FRAMES = 100_000  # of a convolution or a chunk; 40 ms each, that is an hour


class ChunkSettings(Settings):
    """Chunks of an encoder that can read a stream: a frame sees its own and `left` chunks before it."""

    frames: int = Field(gt=0, le=MOST_FRAMES)  # subsampled: of 40 ms with subsampling by 4
    left: int = Field(ge=0, le=MOST_FRAMES)


class EncoderSettings(SizeSettings):
    """What all encoders have: convolutional subsampling of time, positions, chunks, layers left out in training."""

    subsampling: Literal[4, 6, 8] = 4
    channels: int | None = Field(
        None, gt=0, le=MOST["d_model"]
    )  # of the subsampling; d_model unless given
    chunk: ChunkSettings | None = None  # none: a frame sees the whole utterance
    layer_dropout: float = Field(
        0.0, ge=0.0, lt=1.0
    )  # probability that training leaves out a layer, drawn by batch
    positions: str  # each kind has a choice of its own

    @model_validator(mode="after")
    def _pairs_to_rotate(self):
        d_k = self.d_k or self.d_model // self.heads
        if self.positions == "rotary" and d_k % 2:
            raise ValueError(
                f"positions: got 'rotary' with d_k = {d_k}, expected an even d_k: it rotates pairs"
            )
        return self


S = TypeVar("S", bound=EncoderSettings)


@dataclass(frozen=True)
class EncoderOutput:
    """What an encoder gives.

    H, H_lens:  (B, T', D) and (B,) int
    layers:     H behind the layers that were asked for, (B, T', D) each
    attention:  the weights (B, H, T', T') of each layer, if they were asked for
    """

    H: Tensor
    H_lens: Tensor
    layers: Sequence[Tensor] = ()
    attention: Sequence[Tensor] = ()


@dataclass(frozen=True)
class EncoderState:
    """Where B streams are.

    rest:    (B, T, F) features that later frames need
    past:    of each layer, the frames that its parts carry, by name
    frames:  subsampled frames done
    ended:   the last part was read
    """

    rest: Tensor
    past: list[dict[str, Tensor]]
    frames: int
    ended: bool = False


class Encoder(nn.Module):
    """Subsampling, positions, N layers, norm: X (B, T, F) → H (B, T', D).

    features:  F
    layer:     makes a layer of its settings and the positions of its attention: (H, context) → H
    norm:      after the last layer

    With `chunk` a frame sees its own chunk and those before it, and no more; so `step` can read a
    stream and give what `forward` gives.
    """

    def __init__(
        self,
        settings: S,
        features: int,
        layer: Callable[[S, nn.Module | None], nn.Module],
        norm: nn.Module,
    ):
        super().__init__()
        s = settings
        self.d_model, self.chunk, self.layer_dropout = s.d_model, s.chunk, s.layer_dropout
        self.subsampling = Subsampling(features, s.d_model, s.subsampling, s.channels)
        scaled = ScaledPositions if s.positions == "sinusoidal" else ScaledInput
        self.positions = scaled(s.d_model, s.dropout)
        positions = attention_positions(s.positions, s.d_model, s.heads, s.d_k, s.layers)
        self.layers = nn.ModuleList(layer(s, where) for where in positions)
        self.norm = norm

    def forward(
        self, X: Tensor, X_lens: Tensor, layers: Sequence[int] = (), attention: bool = False
    ) -> EncoderOutput:
        """Encode a padded batch.

        X:          (B, T, F); what stands beyond X_lens is never read
        X_lens:     (B,) int, frames
        layers:     numbers of layers, from 1, whose H is wanted, too, with the final norm. A layer
                    that LayerDrop leaves out keeps its number, and hands on what it got
        attention:  whether each layer's attention weights are wanted
        """
        X = zero_padding(X, X_lens)  # (B, T, F)
        H, H_lens = self.subsampling(X, X_lens)  # (B, T', D)
        H = self.positions(H)  # (B, T', D)
        padding = length_mask(H_lens, H.size(1)).unsqueeze(2)  # (B, T', 1)
        mask = additive(self._mask(H_lens, H.size(1)), product_dtype(H))
        context = LayerContext(mask, padding=padding, attention=[] if attention else None)
        drawn, inner = layerdrop_mask(self.layers, self.layer_dropout, self.training), {}
        for n, (layer, takes_part) in enumerate(zip(self.layers, drawn, strict=True), start=1):
            H = layer(H, context) if takes_part else H  # (B, T', D)
            if n in layers:
                inner[n] = self.norm(H)  # (B, T', D)
        return EncoderOutput(
            self.norm(H), H_lens, [inner[n] for n in layers], context.attention or ()
        )

    def start(self, B: int) -> EncoderState:
        """The state of B streams of which nothing has been read."""
        weight = self.subsampling.project.weight
        return EncoderState(
            weight.new_zeros(B, 0, self.subsampling.features), [{} for _ in self.layers], 0
        )

    def step(
        self, X: Tensor, state: EncoderState, last: bool = False
    ) -> tuple[Tensor, EncoderState]:
        """Read the next frames of B streams that run side by side; in evaluation mode.

        X:       (B, T, F), any T, 0 too
        last:    nothing follows: what is left makes a shorter chunk, or none if it is too short for
                 a frame
        returns  H (B, T', D) of the chunks that are complete, equal to `forward`'s frames, and the
                 new state
        raises   ValueError if the encoder has no chunks, is in training mode, or the streams have
                 ended
        """
        if self.chunk is None:
            raise ValueError(
                "chunk: got none, expected an encoder with chunks; only such a one can read a stream"
            )
        if self.training:
            raise ValueError(
                "step: got an encoder in training mode, expected one in evaluation mode; call eval()"
            )
        if state.ended:
            raise ValueError(
                "state: got one of streams that have ended, expected a running one; begin with start()"
            )
        rest, past, frames = torch.cat([state.rest, X], 1), state.past, state.frames
        chunks = [X.new_zeros(len(X), 0, self.d_model)]
        while T := self._ready(rest.size(1), last):
            H, past = self._step_chunk(rest[:, : self.subsampling.frames(T)], past, frames)
            chunks.append(H)  # (B, T, D)
            rest, frames = rest[:, T * self.subsampling.factor :], frames + T
        return torch.cat(chunks, 1), EncoderState(rest.clone(), past, frames, last)

    def _ready(self, T: int, last: bool) -> int:
        """Subsampled frames of the chunk that T frames begin with; 0 if it isn't complete and others follow."""
        assert self.chunk is not None
        ready = min(self.chunk.frames, self.subsampling.lengths(T))
        return ready if last or ready == self.chunk.frames else 0

    def _step_chunk(
        self, X: Tensor, past: list[dict[str, Tensor]], frames: int
    ) -> tuple[Tensor, list]:
        """Encode a chunk that comes after `frames` subsampled ones: X (B, T, F) → (B, T', D), and what layers carry."""
        assert self.chunk is not None
        H, _ = self.subsampling(X, torch.full((len(X),), X.size(1)))  # (B, T', D)
        H = self.positions(H, frames)  # (B, T', D)
        carried = [Past(before, self.chunk.left * self.chunk.frames) for before in past]
        for layer, before in zip(self.layers, carried, strict=True):
            H = layer(H, LayerContext(past=before, cache=before.cache))  # (B, T', D)
        return self.norm(H), [before.after for before in carried]

    def _mask(self, H_lens: Tensor, T: int) -> Tensor:
        """Keys hidden from queries: padding, and what the chunks hide."""
        if self.chunk is None:
            return key_mask(H_lens, T)  # (B, 1, 1, T')
        near = chunk_mask(T, self.chunk.frames, self.chunk.left, H_lens.device)  # (T', T')
        unread = length_mask(H_lens, T)[:, None, :, None]  # (B, 1, T', 1)
        # a query that sees nothing would become NaN
        return (near | key_mask(H_lens, T)).masked_fill(unread, False)  # (B, 1, T', T')
