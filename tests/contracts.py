"""The contract of an encoder, proved in one call: `check_encoder(encoder, features)`.

An encoder is a module (X (B, T, F), X_lens (B,)) → `EncoderOutput` with H (B, T', D) and H_lens (B,). Laws, each a
function below: what stands in the padding (NaN) doesn't matter; an utterance has the same result alone as in any batch;
lengths are what an utterance alone yields; the gradient reaches every parameter and every real frame, and nothing of
the padding; an encoder with chunks reads a stream as it reads the whole, at each of its sizes.
test_model.py plants a fault against each of them.
"""

import torch
from small import near, noise
from torch import Tensor, nn
from torch.testing import assert_close

LENS = (61, 33, 47, 61)  # frames; the longest isn't the first, so that no order is assumed
CUTS = range(7, 61, 7), range(1, 33), (0, 31, 36, 36, 47), ()  # of streams of these, into parts


def check_encoder(
    encoder: nn.Module,
    features: int,
    lens=LENS,
    idle: tuple[str, ...] = ("key.bias",),
    atol=1e-8,
    streams=1e-10,
) -> None:
    """Prove the laws of an encoder, in float64 and evaluation mode.

    lens    frames of the utterances of the batch
    idle    endings of the names of parameters that have no gradient by nature: the bias of keys adds the same to all
            scores of a query, which softmax ignores
    streams  the tolerance of streams
    """
    encoder = encoder.double().eval()
    X, X_lens = padded(features, lens)
    check_lengths(encoder, X, X_lens)
    check_padding(encoder, X, X_lens, atol)
    check_batching(encoder, X, X_lens, atol)
    check_gradient(encoder, X, X_lens, idle, atol)
    if getattr(encoder, "chunk", None):
        check_streams(encoder, X, X_lens, streams)


def encode(encoder: nn.Module, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
    """H and H_lens."""
    output = encoder(X, X_lens)
    return output.H, output.H_lens


def padded(features: int, lens, fill: float = torch.nan) -> tuple[Tensor, Tensor]:
    """Random features (B, T, F) in float64, `fill` beyond the lengths (B,)."""
    X, X_lens = noise(len(lens), max(lens), features, seed=1), torch.tensor(lens)
    return X.masked_fill((torch.arange(max(lens)) >= X_lens[:, None])[:, :, None], fill), X_lens


def check_lengths(encoder: nn.Module, X: Tensor, X_lens: Tensor) -> None:
    """Output lengths are integers, those of each utterance alone; the longest fills the output; the input stays."""
    before = X.clone()
    H, H_lens = encode(encoder, X, X_lens)
    near(X, before, equal_nan=True, msg="the encoder changes its input")
    assert H.dim() == 3 and len(H) == len(X), f"H: got shape {tuple(H.shape)}"
    assert H_lens.dtype == torch.int64, f"H_lens: got {H_lens.dtype}"
    alone = [
        encode(encoder, x[None, :length], length[None])[0].size(1)
        for x, length in zip(X, X_lens, strict=True)
    ]
    assert H_lens.tolist() == alone, f"H_lens: got {H_lens.tolist()}, alone {alone}"
    assert H.size(1) == max(alone), f"H: got {H.size(1)} frames, expected {max(alone)}"


def check_padding(encoder: nn.Module, X: Tensor, X_lens: Tensor, atol: float) -> None:
    """NaN, zeros or large numbers in the padding, or more of it, give the same."""
    H, H_lens = encode(encoder, X, X_lens)
    for fill in (0.0, 1e6):
        filled = torch.where(X.isnan(), fill, X)
        same(encode(encoder, filled, X_lens)[0], H, H_lens, atol, f"padding of {fill} or NaN")
    more = nn.functional.pad(X, (0, 0, 0, 13), value=torch.nan)
    H_more, more_lens = encode(encoder, more, X_lens)
    assert_close(more_lens, H_lens, msg="more padding changes the lengths")
    same(H_more, H, H_lens, atol, "more padding")


def check_batching(encoder: nn.Module, X: Tensor, X_lens: Tensor, atol: float) -> None:
    """Each utterance alone and without padding gives the same as in the batch, and so does another order."""
    H, H_lens = encode(encoder, X, X_lens)
    for n, length in enumerate(X_lens):
        alone, _ = encode(encoder, X[[n], :length], X_lens[[n]])
        same(alone, H[[n]], H_lens[[n]], atol, f"utterance {n} alone")
    turned, _ = encode(encoder, X.flip(0), X_lens.flip(0))
    same(turned, H.flip(0), H_lens.flip(0), atol, "another order")


def check_gradient(
    encoder: nn.Module, X: Tensor, X_lens: Tensor, idle: tuple[str, ...], atol: float
) -> None:
    """The gradient of a loss of all real results: no NaN, in every parameter and real frame, none in the padding."""
    X = X.clone().requires_grad_()
    encoder.zero_grad()
    H, H_lens = encode(encoder, X, X_lens)
    real = torch.arange(H.size(1)) < H_lens[:, None]
    (H * noise(*H.shape, seed=2))[real].sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, f"no gradient reaches {name}"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} isn't finite"
        moved = parameter.grad.abs().max() > atol
        assert moved or name.endswith(idle), f"the gradient of {name} is zero"
    padding = torch.arange(X.size(1)) >= X_lens[:, None]
    assert not X.grad[padding].any(), "gradient reaches the padding"
    for n, length in enumerate(X_lens):
        used = X.grad[n, :length].abs().amax(1) > 0
        last = len(used) - int(used.flip(0).int().argmax())
        message = f"no gradient reaches some frames of utterance {n}"
        assert used[:last].all() and length - last < 8, message


def check_streams(encoder: nn.Module, X: Tensor, X_lens: Tensor, atol: float) -> None:
    """`step`, fed part by part, gives what `forward` gives with chunks of the same size; of two streams at once."""
    for x, length, cuts in zip(X, X_lens, CUTS, strict=True):
        x = torch.stack([x[:length], x[:length].flip(0)])
        parts = x.tensor_split([*cuts], 1)
        for size in encoder.chunk.sizes:
            state, results = encoder.start(2, size), []
            for n, part in enumerate(parts, 1):
                H, state = encoder.step(part, state, last=n == len(parts))
                results.append(H)
            H, whole = torch.cat(results, 1), encoder(x, length.repeat(2), chunk=size)
            same(H, whole.H, whole.H_lens, atol, f"a stream in chunks of {size}")
            assert state.frames.tolist() == [H.size(1)] * 2 == whole.H_lens.tolist()


def same(H: Tensor, expected: Tensor, H_lens: Tensor, atol: float, what: str) -> None:
    """Compare the real frames."""
    for n, length in enumerate(H_lens):
        got, right = H[n, :length], expected[n, :length]
        assert right.isfinite().all(), f"{what}: NaN"
        near(got, right, atol, msg=lambda m: f"{what}: {m}")
