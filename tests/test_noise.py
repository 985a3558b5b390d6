"""Prove the random numbers of augmentation: SplitMix64 in Python's integers, itself held to its published numbers."""

import torch
from small import near

from asr.seeding import another, normals, uniforms, utterance_seed


def splitmix64(state, n):
    """The n-th output of SplitMix64 (Steele, Lea and Flood 2014) in Python's integers."""
    z = (state + n * 0x9E3779B97F4A7C15) % 2**64
    return finalize(z)


def finalize(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_the_reference_generator_gives_the_published_numbers():
    """Seed 1234567, as in the test vectors of Rosetta Code's "Pseudo-random numbers/Splitmix64"."""
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert [splitmix64(1234567, n) for n in range(1, 6)] == published


SEEDS = [0, 1, -1, 2**62 + 12345, -(2**63), 2**63 - 1]


def test_uniforms_are_splitmix64():
    expected = [
        [(splitmix64(finalize(s % 2**64), n) >> 11) * 2**-53 for n in range(1, 8)] for s in SEEDS
    ]
    assert uniforms(torch.tensor(SEEDS), 7).tolist() == expected


def test_uniforms_of_neighboring_seeds_are_independent():
    u = uniforms(torch.arange(400), 500)
    assert u.min() >= 0 and u.max() < 1 and len(u.unique()) == u.numel()
    for part, deviation in ((u.mean(0), 0.08), (u.mean(1), 0.07)):  # five standard deviations
        assert (part - 0.5).abs().max() < deviation
    counts = torch.histc(u, 20, 0, 1)  # chi-squared with 19 degrees of freedom, p = 1e-4:
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 50
    for a, b in ((u[:-1], u[1:]), (u[:, :-1], u[:, 1:])):
        assert torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1].abs() < 0.012


def test_another_seed_is_a_number_that_uniforms_never_draws():
    made = [splitmix64(finalize(s % 2**64), -1) for s in SEEDS]
    assert [s % 2**64 for s in another(torch.tensor(SEEDS)).tolist()] == made
    seeds = torch.arange(2000)
    both = torch.stack([uniforms(s, 9).flatten() for s in (seeds, another(seeds))])
    assert torch.corrcoef(both)[0, 1].abs() < 0.03


def test_normals_are_sane():
    x = normals(torch.arange(200), 1000).double()
    moments = torch.stack([x.mean(), x.var(), (x**3).mean(), (x**4).mean()])
    near(moments, torch.tensor([0.0, 1.0, 0.0, 3.0], dtype=torch.double), 0.1)
    assert x.isfinite().all()


def test_utterance_seeds():
    """The number is blake2b's of b"1\\x1f2\\x1fa" by coreutils' `b2sum -l 64`, read as little-endian and halved."""
    assert utterance_seed(1, 2, "a") == 4869288256290416682
    assert (
        len({utterance_seed(s, e, u) for s in range(5) for e in range(5) for u in ("a", "b", "1")})
        == 75
    )
    assert utterance_seed(1, 12, "x") != utterance_seed(11, 2, "x")
    assert all(0 <= utterance_seed(n) < 2**63 for n in range(50))
