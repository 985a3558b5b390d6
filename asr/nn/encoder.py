"""What every encoder has: convolutional subsampling, layers, and the ways through them, whole or chunk by chunk.

B batch, T frames, F features, T' subsampled frames, D model width.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeVar

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from asr.config import Settings
from asr.device import product_dtype
from asr.nn.layers import LayerContext, Past, layerdrop_mask
from asr.nn.positions import ScaledInput, ScaledPositions, attention_positions
from asr.nn.subsampling import NoSubsampling, Subsampling
from asr.nn.transformer import MOST, SizeSettings
from asr.ops import additive, chunk_mask, key_mask, length_mask, zero_padding
from asr.seeding import another, uniforms

MOST_FRAMES = 100_000  # of a convolution or a chunk; 40 ms each, that is an hour
WHOLE = 2**40  # frames of a chunk that holds any utterance

ChunkFrames = Annotated[int, Field(gt=0, le=MOST_FRAMES)]


class ChunkSettings(Settings):
    """Chunks of an encoder that can read a stream: a frame sees its own and `left` chunks before it.

    With several sizes, training draws one for each utterance, and decoding chooses. A frame then
    sees as far back at each size: by `left` chunks of the largest. "whole" is the whole utterance.
    """

    # subsampled: of 40 ms with subsampling by 4
    frames: ChunkFrames | list[ChunkFrames | Literal["whole"]]
    left: int = Field(ge=0, le=MOST_FRAMES)

    @field_validator("frames")
    @classmethod
    def _different(cls, frames):
        given = frames if isinstance(frames, list) else [frames]
        if len(set(given)) < len(given) or not set(given) - {"whole"}:
            raise ValueError(
                f"got {given}, expected different sizes, and beside whole at least one in frames"
            )
        return frames

    @property
    def sizes(self) -> list[int]:
        """Frames of a chunk, `WHOLE` for whole utterances."""
        given = self.frames if isinstance(self.frames, list) else [self.frames]
        return [WHOLE if size == "whole" else size for size in given]

    @property
    def default(self) -> int:
        """The size where none is chosen: whole utterances if they were trained, else the largest."""
        return max(self.sizes)

    @property
    def left_frames(self) -> int:
        """Frames that a frame sees before its chunk."""
        return self.left * max(size for size in self.sizes if size < WHOLE)


class EncoderSettings(SizeSettings):
    """What all encoders have: convolutional subsampling of time, positions, chunks, layers left out in training."""

    subsampling: Literal[1, 4, 6, 8] = 4  # 1: none, as of text
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
    """Where B streams are, each at a place of its own: `stack` and `unstack` let them come and go.

    Its size is the same wherever they are.

    chunk:   subsampled frames of a chunk, the same for all; `WHOLE` reads each stream to its end
    rest:    (B, T, F) features that later frames need; none where `step_chunk` reads alone
    past:    what the parts of the layers carry, by name: (N, B, …), zeros where nothing was
    frames:  (B,) int, subsampled frames done
    ended:   the last part was read
    """

    chunk: int
    rest: Tensor
    past: dict[str, Tensor]
    frames: Tensor
    ended: bool = False

    @staticmethod
    def stack(states: Sequence["EncoderState"]) -> "EncoderState":
        """Put the streams of several states side by side, in order.

        raises   ValueError if their chunks or the lengths of their rests differ, or some have ended
        """
        facts = sorted({(state.chunk, state.rest.size(1), state.ended) for state in states})
        if len(facts) > 1:
            what = ", ".join(f"({c}, {rest}, {ended})" for c, rest, ended in facts)
            raise ValueError(
                f"states: got (chunk, frames of rest, ended) {what}, expected the same of all"
            )
        names = states[0].past
        past = {name: torch.cat([state.past[name] for state in states], 1) for name in names}
        rest = torch.cat([state.rest for state in states])
        return replace(
            states[0], rest=rest, past=past, frames=torch.cat([state.frames for state in states])
        )

    def unstack(self) -> list["EncoderState"]:
        """The state of each stream; none keeps the memory of the others."""
        return [
            replace(
                self,
                rest=self.rest[b : b + 1].clone(),
                past={name: X[:, b : b + 1].clone() for name, X in self.past.items()},
                frames=self.frames[b : b + 1].clone(),
            )
            for b in range(len(self.rest))
        ]


class Encoder(nn.Module):
    """Subsampling, positions, N layers, norm: X (B, T, F) → H (B, T', D).

    features:  F
    layer:     makes a layer of its settings and the positions of its attention: (H, context) → H
    norm:      after the last layer

    With `chunk` a frame sees its own chunk and some before it, and no more; so `step` can read a
    stream and give what `forward` gives with chunks of the same size.
    """

    most_samples: int | None = None  # of a waveform: any number

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
        self.left = s.chunk.left_frames if s.chunk else 0
        self.sizes: Tensor  # of chunks, to draw from
        sizes = s.chunk.sizes if s.chunk else [WHOLE]
        self.register_buffer("sizes", torch.tensor(sizes), persistent=False)
        self.subsampling: Subsampling | NoSubsampling
        if s.subsampling == 1:
            self.subsampling = NoSubsampling(features, s.d_model)
        else:
            self.subsampling = Subsampling(features, s.d_model, s.subsampling, s.channels)
        scaled = ScaledPositions if s.positions == "sinusoidal" else ScaledInput
        self.positions = scaled(s.d_model, s.dropout)
        positions = attention_positions(s.positions, s.d_model, s.heads, s.d_k, s.layers)
        self.layers = nn.ModuleList(layer(s, where) for where in positions)
        self.norm = norm

    @property
    def transferred(self) -> Iterator[nn.Parameter]:
        """What may have the weights of another training; the rest would be new."""
        return self.parameters()

    def forward(
        self,
        X: Tensor,
        X_lens: Tensor,
        layers: Sequence[int] = (),
        attention: bool = False,
        chunk: int | Tensor | None = None,
        seeds: Tensor | None = None,
    ) -> EncoderOutput:
        """Encode a padded batch.

        X:          (B, T, F); what stands beyond X_lens is never read
        X_lens:     (B,) int, frames
        layers:     numbers of layers, from 1, whose H is wanted, too, with the final norm. A layer
                    that LayerDrop leaves out keeps its number, and hands on what it got
        attention:  whether each layer's attention weights are wanted
        chunk:      subsampled frames of a chunk, of all utterances or of each, (B,) int; the
                    settings' default unless given
        seeds:      (B,) int64, which in training mode draw the chunks
        """
        if self.training and seeds is not None and chunk is None:
            chunk = self.draw_chunks(seeds)
        X = zero_padding(X, X_lens)  # (B, T, F)
        H, H_lens = self.subsampling(X, X_lens)  # (B, T', D)
        H = self.positions(H)  # (B, T', D)
        padding = length_mask(H_lens, H.size(1)).unsqueeze(2)  # (B, T', 1)
        mask = additive(self._mask(H_lens, H.size(1), chunk), product_dtype(H))
        context = LayerContext(mask, padding=padding, attention=[] if attention else None)
        drawn, inner = layerdrop_mask(self.layers, self.layer_dropout, self.training), {}
        for n, (layer, takes_part) in enumerate(zip(self.layers, drawn, strict=True), start=1):
            H = layer(H, context) if takes_part else H  # (B, T', D)
            if n in layers:
                inner[n] = self.norm(H)  # (B, T', D)
        return EncoderOutput(
            self.norm(H), H_lens, [inner[n] for n in layers], context.attention or ()
        )

    @torch.no_grad()
    def frozen(
        self,
        X: Tensor,
        X_lens: Tensor,
        layers: Sequence[int] = (),
        seeds: Tensor | None = None,
    ) -> EncoderOutput:
        """Encode as `forward` does, without a gradient for `transferred`."""
        return self(X, X_lens, layers, seeds=seeds)

    def draw_chunks(self, seeds: Tensor) -> Tensor | None:
        """Draw from seeds (B,) the chunk of each utterance in training, all sizes equally likely.

        returns   (B,) int, subsampled frames; None if there is one size
        """
        if len(self.sizes) == 1:
            return None
        drawn = uniforms(another(another(seeds)), 1)[:, 0]  # masks take seeds and another(seeds)
        return self.sizes[(drawn * len(self.sizes)).long()]

    def start(self, B: int, chunk: int | None = None) -> EncoderState:
        """The state of B streams of which nothing has been read.

        chunk    subsampled frames of a chunk; the settings' default unless given
        raises   ValueError if the encoder has no chunks
        """
        if self.chunk is None:
            raise ValueError(
                "chunk: got none, expected an encoder with chunks; only such a one can read a stream"
            )
        weight, N = next(self.layers.parameters()), len(self.layers)
        new = weight.new_zeros
        probe = Past({}, self.left)  # collects what a layer carries, of a frame of zeros
        with torch.no_grad():
            self.layers[0](new(1, 1, self.d_model), LayerContext(past=probe, cache=probe.cache))
        past = {name: X.new_zeros(N, B, *X.shape[1:]) for name, X in probe.after.items()}
        frames = torch.zeros(B, dtype=torch.long, device=weight.device)
        rest = new(B, 0, self.subsampling.features)
        return EncoderState(chunk or self.chunk.default, rest, past, frames)

    def step(
        self, X: Tensor, state: EncoderState, last: bool = False
    ) -> tuple[Tensor, EncoderState]:
        """Read the next frames of B streams, as many of each; in evaluation mode.

        X:       (B, T, F), any T, 0 too
        last:    nothing follows: what is left makes a shorter chunk, or none if it is too short for
                 a frame
        returns  H (B, T', D) of the chunks that are complete, equal to `forward`'s frames, and the
                 new state
        raises   ValueError if the streams have ended
        """
        if state.ended:
            raise ValueError(
                "state: got one of streams that have ended, expected a running one; begin with start()"
            )
        rest, chunks = torch.cat([state.rest, X], 1), [X.new_zeros(len(X), 0, self.d_model)]
        while T := self._ready(rest.size(1), state.chunk, last):
            part = rest[:, : self.subsampling.frames(T)]
            lens = torch.full((len(X),), part.size(1), device=X.device)
            H, state = self.step_chunk(part, lens, state)
            chunks.append(H)  # (B, T, D)
            rest = rest[:, T * self.subsampling.factor :]
        return torch.cat(chunks, 1), replace(state, rest=rest.clone(), ended=last)

    def _ready(self, T: int, chunk: int, last: bool) -> int:
        """Subsampled frames of the chunk that T frames begin with; 0 if it isn't complete and others follow."""
        ready = min(chunk, self.subsampling.lengths(T))
        return ready if last or ready == chunk else 0

    def step_chunk(
        self, X: Tensor, X_lens: Tensor, state: EncoderState
    ) -> tuple[Tensor, EncoderState]:
        """Read one chunk of each of B streams, which may be at different places.

        X:       (B, T, F), all the features that the chunk is made of, and none beyond: of a stream
                 at subsampled frame n those from `subsampling.factor` · n on, altogether
                 `subsampling.frames(state.chunk)`; so neighboring chunks share some
        X_lens:  (B,) int, frames; fewer where a stream ends
        returns  H (B, T', D), whose real frames, `subsampling.lengths(X_lens)`, are `forward`'s, and
                 the new state; of a stream that ends it is of no use
        raises   ValueError if the encoder is in training mode, X longer than a chunk, or, on a CPU,
                 one of X_lens too short for a frame
        """
        if self.training:
            raise ValueError(
                "step: got an encoder in training mode, expected one in evaluation mode; call eval()"
            )
        if self.subsampling.lengths(X.size(1)) > state.chunk:
            most = self.subsampling.frames(state.chunk)
            raise ValueError(f"X: got {X.size(1)} frames, expected the {most} of a chunk")
        H, H_lens = self.subsampling(zero_padding(X, X_lens), X_lens)  # (B, T', D)
        H = self.positions(H, state.frames)  # (B, T', D)
        empty = length_mask(state.frames, self.left).flip(1)[:, None, None]  # (B, 1, 1, left)
        hidden = torch.cat([empty, key_mask(H_lens, H.size(1))], 3)  # (B, 1, 1, left + T')
        mask, carried = additive(hidden, product_dtype(H)), []
        for n, layer in enumerate(self.layers):
            past = Past({name: before[n] for name, before in state.past.items()}, self.left)
            H = layer(H, LayerContext(mask, past=past, cache=past.cache))  # (B, T', D)
            carried.append(past.after)
        after = {name: torch.stack([past[name] for past in carried]) for name in state.past}
        return self.norm(H), replace(state, past=after, frames=state.frames + H_lens)

    def _mask(self, H_lens: Tensor, T: int, chunk: int | Tensor | None) -> Tensor:
        """Keys hidden from queries: padding, and what the chunks hide."""
        if chunk is None:
            chunk = self.chunk.default if self.chunk else WHOLE
        if isinstance(chunk, int):
            if chunk == WHOLE:
                return key_mask(H_lens, T)  # (B, 1, 1, T')
            chunk = torch.full((1,), chunk, device=H_lens.device)
        near = chunk_mask(chunk, T, self.left).unsqueeze(1)  # (B or 1, 1, T', T')
        unread = length_mask(H_lens, T)[:, None, :, None]  # (B, 1, T', 1)
        # a query that sees nothing would become NaN
        return (near | key_mask(H_lens, T)).masked_fill(unread, False)  # (B, 1, T', T')
