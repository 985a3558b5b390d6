"""What training refuses before it starts, in words that name utterance, got and expected.

Expected values are constructed; the frames that CTC needs are counted by brute force over all alignments.
"""

from dataclasses import replace
from itertools import groupby, product

import numpy as np
import pytest
import soundfile
from lhotse import MonoCut
from refusals import refused
from small import options, rows

from asr.data.columns import Ragged
from asr.data.manifest import Utterance
from asr.data.validate import Limits, apply_limits, check_alignable, check_audio, frames_needed


@pytest.fixture
def good(tmp_path):
    """An utterance that is as its manifest says: 1 s at 16 kHz."""
    soundfile.write(tmp_path / "a.wav", np.full(16000, 0.1), 16000)
    return Utterance("u1", str(tmp_path / "a.wav"), 16000, 16000, 1, 0.0, 1.0, "GO", None)


@pytest.mark.parametrize(
    "change",
    ["", "samples: 16008", "samples: 15990", "duration: 1.0009", "start: 0.5, duration: 0.5"],
)
def test_a_manifest_may_be_a_millisecond_off(good, change):
    check_audio([replace(good, **options(change))])


def test_lhotse_cuts_are_checked_too(good):
    lines = [u.line() for u in (good, replace(good, samples=32000))]
    cuts = [MonoCut.from_dict({k: v for k, v in line.items() if k != "type"}) for line in lines]
    check_audio(cuts[:1])
    refused(f"u1: {good.path} has 1.000 s, the manifest says 2.000 s", check_audio, cuts)


DISAGREE = """
    rate: 8000 | has 16000 Hz, the manifest says 8000 Hz
    samples: 17600 | has 1.000 s, the manifest says 1.100 s
    samples: 15000 | has 1.000 s, the manifest says 0.938 s
    samples: 16048 | has 1.000 s, the manifest says 1.003 s
    duration: 1.25 | has 1.000 s, the manifest asks for 0.000 to 1.250 s
    start: 0.75, duration: 0.5 | has 1.000 s, the manifest asks for 0.750 to 1.250 s
    start: -0.25, duration: 0.5 | has 1.000 s, the manifest asks for -0.250 to 0.250 s
    start: 0.5, duration: 0.0 | has 1.000 s, the manifest asks for 0.500 to 0.500 s
"""


@pytest.mark.parametrize("change, says", rows(DISAGREE))
def test_a_manifest_that_disagrees_with_its_file(good, change, says):
    wrong = replace(good, id="u2", **options(change))
    line = refused("^utterances of m that disagree ", check_audio, [good, wrong], "m")
    assert f" (1): u2: {good.path} {says}; " in line


def test_missing_file(good):
    says = r" \(1\): u1: /gone.wav: no such file; "
    refused(says, check_audio, [replace(good, path="/gone.wav")], "m")


def test_limits_count_and_name_what_they_drop():
    lengths = {"a": 0.1, "b": 0.5, "c": 20.0, "d": 20.1, "e": 1.0, "f": 0.2}
    data = list(lengths), list(lengths.values())
    selection = apply_limits(*data, [3, 8, 3, 3, 9, 3], Limits(0.5, 20.0, 8))
    assert selection.kept.tolist() == [1, 2]  # the bounds themselves are within
    assert selection.message == (
        "dropped 4 of 6 utterances: 2 shorter than min_seconds=0.5 (a, f); "
        "1 longer than max_seconds=20 (d); 1 more tokens than max_tokens=8 (e)"
    )
    assert selection.lines().startswith("a\tshorter than min_seconds=0.5\nd\tlonger than ")
    assert apply_limits(*data, [1] * 6, Limits()).message == ""
    says = r"leave no utterance: dropped 6 of 6 utterances: 6 shorter than min_seconds=30 \(a"
    refused(says, apply_limits, *data, [1] * 6, Limits(min_seconds=30))


def test_impossible_limits():
    refused("expected 0 <= min <= max, got 3 and 2", Limits, 3, 2)
    refused("max_tokens: expected 1 or more, got 0", Limits, max_tokens=0)


def ids(rows):
    return Ragged.of_ids(rows, vocabulary=10)


def shortest(tokens):
    """Frames of the shortest path that CTC collapses to the tokens, by brute force; 0 is the blank."""
    for frames in range(9):
        for path in product(range(3), repeat=frames):
            if tuple(label for label, _ in groupby(path) if label) == tokens:
                return frames


def test_frames_needed_is_the_shortest_alignment():
    labels = [(1, 2), (2,), (), (2, 2, 1, 1), (), (1,), (1, 1), (1, 1, 1), (1, 2, 2, 1), ()]
    for some in (labels, [], [(), ()]):
        assert frames_needed(ids(some)).tolist() == list(map(shortest, some))


def test_alignable_at_every_speed():
    nine = [1, 2, 3, 3, 4, 5, 6, 7, 8]

    def check(seconds, labels, speeds=(0.9, 1.0, 1.1)):
        check_alignable("abc", seconds, ids(labels), lambda n: n // 640, 16000, speeds)  # 40 ms

    check([0.4], [nine], speeds=(1.0,))  # exactly 10 frames
    check([0.44], [nine])
    says = r" \(2\): a \(9 frames at speed 1.1, 10 needed for 9 tokens\), c \(0 frames at "
    refused(says, check, [0.4, 1.0, 0.04], [nine, [1], [1]])
