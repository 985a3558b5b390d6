"""Random numbers that depend on a seed and a position alone, computed for a whole batch at once.

A counter-based generator (SplitMix64, Steele, Lea and Flood 2014): number n of seed s is a hash of
(s, n), so it doesn't matter on which device, in which batch or in which order it is drawn.
"""

import hashlib
import math

import torch
from torch import Tensor


def utterance_seed(*facts: int | str) -> int:
    """A 63-bit seed from facts such as (seed, epoch, utterance id); the same in every process and Python version."""
    digest = hashlib.blake2b("\x1f".join(map(str, facts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def uniforms(seeds: Tensor, n: int) -> Tensor:
    """n uniform numbers for each seed.

    seeds:   (B,) int64
    returns  (B, n) float64 in [0, 1), on the device of seeds
    """
    counters = torch.arange(1, n + 1, device=seeds.device)  # (n,)
    # 0x9E3779B97F4A7C15 as int64
    bits = _mix(_mix(seeds).unsqueeze(1) + counters * -7046029254386353131)
    return _shift(bits, 11).double() * 2.0**-53


def another(seeds: Tensor) -> Tensor:
    """Seeds (B,) for a second draw of the same things, independent of the first."""
    return _mix(_mix(seeds) + 7046029254386353131)  # number -1, which `uniforms` never comes to


def normals(seeds: Tensor, n: int) -> Tensor:
    """n standard normal numbers for each seed, (B, n) float32, by Box and Muller."""
    # neighbors make one, so that it doesn't depend on n
    u = uniforms(seeds, 2 * n).view(len(seeds), n, 2)
    return ((-2 * torch.log1p(-u[..., 0])).sqrt() * torch.cos(2 * math.pi * u[..., 1])).float()


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * -4658895280553007687  # 0xBF58476D1CE4E5B9
    x = (x ^ _shift(x, 27)) * -7723592293110705685  # 0x94D049BB133111EB
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)  # logical, as for unsigned numbers
