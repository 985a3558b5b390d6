"""What every encoder has: convolutional subsampling, layers, and the ways through them, whole or chunk by chunk.

B batch, T frames, F features, T' subsampled frames, D model width.
"""

import torch
from torch import Tensor, nn

from asr.nn.dropout import taking_part
from asr.nn.masks import chunk_mask, key_mask, length_mask, zero_padding
from asr.nn.streaming import Chunk, EncoderState, Past
from asr.nn.subsampling import Subsampling


class Encoder(nn.Module):
    """Subsampling, positions, N layers, norm: X (B, T, F) → H (B, T', D).

    positions:      of the layers' input (B, T', D), or its scale alone
    layers:         modules (H, mask, padding, maps, past) → H
    chunk:          when given, a frame sees its own chunk and `left` chunks before it, and no more; so `step` can read
                    a stream and give what `forward` gives
    layer_dropout:  probability that training leaves out a layer, drawn for each batch
    """

    def __init__(
        self,
        subsampling: Subsampling,
        positions: nn.Module,
        layers: list[nn.Module],
        norm: nn.Module,
        chunk: Chunk | None = None,
        layer_dropout: float = 0.0,
    ):
        super().__init__()
        self.d_model = subsampling.project.out_features
        self.chunk, self.layer_dropout = chunk, layer_dropout
        self.subsampling = subsampling
        self.positions = positions
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(
        self, X: Tensor, X_lens: Tensor, maps: list | None = None, inner: dict[int, Tensor | None] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encode a padded batch.

        X:       (B, T, F); what stands beyond X_lens is never read
        X_lens:  (B,) int, frames
        maps:    when given, each layer's attention weights (B, H, T', T') are appended to it
        inner:   when given, its keys are numbers of layers, from 1; their values become H behind these, (B, T', D),
                 with the final norm. A layer that LayerDrop leaves out keeps its number, and hands on what it got
        returns  H (B, T', D) and H_lens (B,)
        """
        X = zero_padding(X, X_lens)  # (B, T, F)
        H, H_lens = self.subsampling(X, X_lens)  # (B, T', D)
        H = self.positions(H)  # (B, T', D)
        mask = self._mask(H_lens, H.size(1))  # (B, 1, 1 or T', T')
        padding = length_mask(H_lens, H.size(1)).unsqueeze(2)  # (B, T', 1)
        drawn = taking_part(self.layers, self.layer_dropout, self.training)
        for n, (layer, takes_part) in enumerate(zip(self.layers, drawn, strict=True), start=1):
            H = layer(H, mask, padding, maps) if takes_part else H  # (B, T', D)
            if inner and n in inner:
                inner[n] = self.norm(H)  # (B, T', D)
        return self.norm(H), H_lens

    def start(self, B: int) -> EncoderState:
        """The state of B streams of which nothing has been read."""
        weight = self.subsampling.project.weight
        return EncoderState(weight.new_zeros(B, 0, self.subsampling.features), [{} for _ in self.layers], 0)

    def step(self, X: Tensor, state: EncoderState, last: bool = False) -> tuple[Tensor, EncoderState]:
        """Read the next frames of B streams that run side by side; in evaluation mode.

        X:       (B, T, F), any T, 0 too
        last:    nothing follows: what is left makes a shorter chunk, or none if it is too short for a frame
        returns  H (B, T', D) of the chunks that are complete, equal to `forward`'s frames, and the new state
        raises   ValueError if the encoder has no chunks, is in training mode, or the streams have ended
        """
        if self.chunk is None:
            raise ValueError("chunk: got none, expected an encoder with chunks; only such a one can read a stream")
        if self.training:
            raise ValueError("step: got an encoder in training mode, expected one in evaluation mode; call eval()")
        if state.ended:
            raise ValueError("state: got one of streams that have ended, expected a running one; begin with start()")
        rest, past, frames = torch.cat([state.rest, X], 1), state.past, state.frames
        chunks = [X.new_zeros(len(X), 0, self.d_model)]
        while T := self._ready(rest.size(1), last):
            H, past = self._step_chunk(rest[:, : self.subsampling.frames(T)], past, frames)
            chunks.append(H)  # (B, T, D)
            rest, frames = rest[:, T * self.subsampling.factor :], frames + T
        return torch.cat(chunks, 1), EncoderState(rest.clone(), past, frames, last)

    def _ready(self, T: int, last: bool) -> int:
        """Subsampled frames of the chunk that T frames begin with; 0 if it isn't complete and others follow."""
        ready = min(self.chunk.frames, self.subsampling.lengths(T))
        return ready if last or ready == self.chunk.frames else 0

    def _step_chunk(self, X: Tensor, past: list[dict[str, Tensor]], frames: int) -> tuple[Tensor, list]:
        """A chunk behind so many subsampled frames: X (B, T, F) → (B, T', D), and what its layers carry on."""
        H, _ = self.subsampling(X, torch.full((len(X),), X.size(1)))  # (B, T', D)
        H = self.positions(H, frames)  # (B, T', D)
        carried = [Past(before, self.chunk.left * self.chunk.frames) for before in past]
        for layer, before in zip(self.layers, carried, strict=True):
            H = layer(H, past=before)  # (B, T', D)
        return self.norm(H), [before.after for before in carried]

    def _mask(self, H_lens: Tensor, T: int) -> Tensor:
        """Keys hidden from queries: padding, and what the chunks hide."""
        if self.chunk is None:
            return key_mask(H_lens, T)  # (B, 1, 1, T')
        near = chunk_mask(T, self.chunk.frames, self.chunk.left, H_lens.device)  # (T', T')
        unread = length_mask(H_lens, T)[:, None, :, None]  # (B, 1, T', 1)
        return (near | key_mask(H_lens, T)).masked_fill(unread, False)  # a query that sees nothing would become NaN
