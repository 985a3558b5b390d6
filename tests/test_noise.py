"""Prove the random numbers of augmentation: SplitMix64 in Python's integers, itself held to its published numbers."""

import itertools

import torch
from small import near

from asr.seeding import another, normals, uniforms, utterance_seed


def splitmix64(state, n):
    """The n-th output of SplitMix64 (Steele, Lea and Flood 2014) in Python's integers."""
    return finalize((state + n * 0x9E3779B97F4A7C15) % 2**64)


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


SEEDS = [*range(100), -1, 2**62 + 12345, -(2**63), 2**63 - 1]


def test_uniforms_are_splitmix64_of_seeds_apart():
    """Of the finalized seeds: neighbors as they are would draw the same numbers, one further on."""
    expected = [
        [(splitmix64(finalize(s % 2**64), n) >> 11) * 2**-53 for n in range(1, 100)] for s in SEEDS
    ]
    assert uniforms(torch.tensor(SEEDS), 99).tolist() == expected
    neighbors = torch.tensor(expected)[:100].T
    for one, other in ((neighbors[:, :-1], neighbors[:, 1:]), (neighbors[:-1], neighbors[1:])):
        assert torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1].abs() < 0.05


def test_another_seed_is_a_number_that_uniforms_never_draws():
    made = [splitmix64(finalize(s % 2**64), -1) for s in SEEDS]
    assert [s % 2**64 for s in another(torch.tensor(SEEDS)).tolist()] == made


def test_normals_are_sane():
    x = normals(torch.arange(200), 1000).double()
    moments = torch.stack([x.mean(), x.var(), (x**3).mean(), (x**4).mean()])
    near(moments, torch.tensor([0.0, 1.0, 0.0, 3.0], dtype=torch.double), 0.1)
    assert x.isfinite().all()


def test_utterance_seeds():
    """The number is blake2b's of b"1\\x1f2\\x1fa" by coreutils' `b2sum -l 64`, read as little-endian and halved."""
    assert utterance_seed(1, 2, "a") == 4869288256290416682
    facts = [*itertools.product(range(15), range(15), ("a", "b", "1"))]
    seeds = {utterance_seed(*each) for each in facts}
    assert len(seeds) == len(facts) and 0 <= min(seeds) < max(seeds) < 2**63
