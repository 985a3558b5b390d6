"""The contract of an encoder, proved in one call: `check_encoder(encoder, features)`.

An encoder is a module (X (B, T, F), X_lens (B,)) → `EncoderOutput` with H (B, T', D) and H_lens (B,). Laws, each a
function below: what stands in the padding (NaN) doesn't matter; an utterance has the same result alone as in any batch;
lengths are what an utterance alone yields; the gradient reaches every parameter and every real frame, and nothing of
the padding; an encoder with chunks reads a stream as it reads the whole, at each of its sizes.
test_model.py plants a fault against each of them.
"""

import torch
from torch import Tensor, nn
from torch.testing import assert_close

LENS = (61, 33, 47, 61)  # frames; the longest isn't the first, so that no order is assumed


def check_encoder(
    encoder: nn.Module, features: int, lens=LENS, idle: tuple[str, ...] = ("key.bias",), atol=1e-8
) -> None:
    """Prove the laws of an encoder, in float64 and evaluation mode.

    lens    frames of the utterances of the batch
    idle    endings of the names of parameters that have no gradient by nature: the bias of keys adds the same to all
            scores of a query, which softmax ignores
    """
    encoder = encoder.double().eval()
    X, X_lens = padded(features, lens)
    check_lengths(encoder, X, X_lens)
    check_padding(encoder, X, X_lens, atol)
    check_batching(encoder, X, X_lens, atol)
    check_gradient(encoder, X, X_lens, idle, atol)
    if getattr(encoder, "chunk", None):
        check_streams(encoder, X, X_lens, max(atol, 1e-6))  # tables of sinusoids are float32


def encode(encoder: nn.Module, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
    """H and H_lens."""
    output = encoder(X, X_lens)
    return output.H, output.H_lens


def padded(features: int, lens, fill: float = torch.nan) -> tuple[Tensor, Tensor]:
    """Random features (B, T, F) in float64, `fill` beyond the lengths (B,)."""
    X = torch.randn(
        len(lens),
        max(lens),
        features,
        dtype=torch.double,
        generator=torch.Generator().manual_seed(1),
    )
    X_lens = torch.tensor(lens)
    return X.masked_fill((torch.arange(max(lens)) >= X_lens[:, None])[:, :, None], fill), X_lens


def check_lengths(encoder: nn.Module, X: Tensor, X_lens: Tensor) -> None:
    """Output lengths are integers, those of each utterance alone; the longest fills the output; the input stays."""
    before = X.clone()
    H, H_lens = encode(encoder, X, X_lens)
    assert_close(X, before, rtol=0, atol=0, equal_nan=True, msg="the encoder changes its input")
    assert H.dim() == 3 and len(H) == len(X), f"H: got shape {tuple(H.shape)}"
    assert H_lens.dtype == torch.int64, f"H_lens: got {H_lens.dtype}"
    alone = [
        encode(encoder, X[n : n + 1, :length], X_lens[n : n + 1])[0].size(1)
        for n, length in enumerate(X_lens)
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
        alone, _ = encode(encoder, X[n : n + 1, :length], X_lens[n : n + 1])
        same(alone, H[n : n + 1], H_lens[n : n + 1], atol, f"utterance {n} alone")
    order = torch.arange(len(X)).flip(0)
    turned, _ = encode(encoder, X[order], X_lens[order])
    same(turned, H[order], H_lens[order], atol, "another order")


def check_gradient(
    encoder: nn.Module, X: Tensor, X_lens: Tensor, idle: tuple[str, ...], atol: float
) -> None:
    """The gradient of a loss of all real results: no NaN, in every parameter and real frame, none in the padding."""
    X = X.clone().requires_grad_()
    encoder.zero_grad()
    H, H_lens = encode(encoder, X, X_lens)
    weights = torch.randn(H.shape, dtype=torch.double, generator=torch.Generator().manual_seed(2))
    real = torch.arange(H.size(1)) < H_lens[:, None]
    (H * weights)[real].sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, f"no gradient reaches {name}"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} isn't finite"
        assert name.endswith(idle) or parameter.grad.abs().max() > atol, (
            f"the gradient of {name} is zero"
        )
    padding = torch.arange(X.size(1)) >= X_lens[:, None]
    assert not X.grad[padding].any(), "gradient reaches the padding"
    for n, length in enumerate(X_lens):
        used = X.grad[n, :length].abs().amax(1) > 0
        last = len(used) - int(used.flip(0).int().argmax())
        assert used[:last].all() and length - last < 8, (
            f"no gradient reaches some frames of utterance {n}"
        )


def check_streams(encoder: nn.Module, X: Tensor, X_lens: Tensor, atol: float) -> None:
    """`step`, fed part by part, gives what `forward` gives with chunks of the same size."""
    for n, length in enumerate(X_lens):
        for size in encoder.chunk.sizes:
            x, state, parts = X[n : n + 1, :length], encoder.start(1, size), []
            for part in x.split(7, 1):
                H, state = encoder.step(part, state)
                parts.append(H)
            parts.append(encoder.step(x[:, :0], state, last=True)[0])
            whole = encoder(x, X_lens[n : n + 1], chunk=size)
            same(torch.cat(parts, 1), whole.H, whole.H_lens, atol, f"a stream in chunks of {size}")


def same(H: Tensor, expected: Tensor, H_lens: Tensor, atol: float, what: str) -> None:
    """Compare the real frames."""
    for n, length in enumerate(H_lens):
        assert expected[n, :length].isfinite().all(), f"{what}: NaN"
        assert_close(
            H[n, :length], expected[n, :length], rtol=0, atol=atol, msg=lambda m: f"{what}: {m}"
        )
