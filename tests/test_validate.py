"""What training refuses before it starts, in words that name utterance, got and expected.

Expected values are constructed; the frames that CTC needs are counted by brute force over all alignments.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import soundfile

from asr.data.columns import Ragged
from asr.data.manifest import Utterance
from asr.data.validate import Limits, apply_limits, check_alignable, check_audio, frames_needed
from asr.errors import UserError


@pytest.fixture
def good(tmp_path):
    """An utterance that is as its manifest says: 1 s at 16 kHz."""
    soundfile.write(tmp_path / "a.wav", np.full(16000, 0.1), 16000)
    return Utterance("u1", str(tmp_path / "a.wav"), 16000, 16000, 1, 0.0, 1.0, "GO", None)


def refused(message, call, *args, **options):
    with pytest.raises(UserError) as error:
        call(*args, **options)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"samples": 16008},
        {"samples": 15990},
        {"duration": 1.0009},
        {"start": 0.5, "duration": 0.5},
    ],
)
def test_a_manifest_may_be_a_millisecond_off(good, change):
    check_audio([replace(good, **change)])


def test_lhotse_cuts_are_checked_too(good, tmp_path):
    from lhotse import MonoCut

    cut = MonoCut.from_dict({k: v for k, v in good.line().items() if k != "type"})
    check_audio([cut])
    with pytest.raises(UserError, match="u1: .* has 1.000 s, the manifest says 2.000 s"):
        check_audio(
            [
                MonoCut.from_dict(
                    {k: v for k, v in replace(good, samples=32000).line().items() if k != "type"}
                )
            ]
        )


@pytest.mark.parametrize(
    "change,says",
    [
        ({"rate": 8000}, "has 16000 Hz, the manifest says 8000 Hz"),
        ({"samples": 17600}, "has 1.000 s, the manifest says 1.100 s"),
        ({"samples": 15000}, "has 1.000 s, the manifest says 0.938 s"),
        ({"samples": 16048}, "has 1.000 s, the manifest says 1.003 s"),
        ({"duration": 1.25}, "has 1.000 s, the manifest asks for 0.000 to 1.250 s"),
        ({"start": 0.75, "duration": 0.5}, "has 1.000 s, the manifest asks for 0.750 to 1.250 s"),
        ({"start": -0.25, "duration": 0.5}, "has 1.000 s, the manifest asks for -0.250 to 0.250 s"),
        ({"start": 0.5, "duration": 0.0}, "has 1.000 s, the manifest asks for 0.500 to 0.500 s"),
    ],
)
def test_a_manifest_that_disagrees_with_its_file(good, change, says):
    message = f"utterances of data/x.jsonl.gz that disagree with their sound files (1): u2: {good.path} {says}; "
    message += "run asr-prepare again"
    refused(message, check_audio, [good, replace(good, id="u2", **change)], "data/x.jsonl.gz")


def test_missing_file(good, tmp_path):
    gone = replace(good, path=str(tmp_path / "gone.wav"))
    message = (
        f"utterances of m that disagree with their sound files (1): u1: {gone.path}: no such file; "
    )
    message += "run asr-prepare again"
    refused(message, check_audio, [gone], "m")


def test_limits_count_and_name_what_they_drop():
    lengths = {"a": 0.1, "b": 0.5, "c": 20.0, "d": 20.1, "e": 1.0, "f": 0.2}
    data = list(lengths), list(lengths.values())
    selection = apply_limits(*data, [3, 8, 3, 3, 9, 3], Limits(0.5, 20.0, 8))
    assert selection.kept.tolist() == [1, 2]  # the bounds themselves are within
    assert selection.message == (
        "dropped 4 of 6 utterances: 2 shorter than min_seconds=0.5 (a, f); "
        "1 longer than max_seconds=20 (d); 1 more tokens than max_tokens=8 (e)"
    )
    assert selection.lines().splitlines()[:2] == [
        "a\tshorter than min_seconds=0.5",
        "d\tlonger than max_seconds=20",
    ]
    assert apply_limits(*data, [1] * 6, Limits()).message == ""


def test_limits_that_leave_nothing():
    message = "the length limits leave no utterance: dropped 1 of 1 utterances: "
    message += "1 shorter than min_seconds=2 (u1); widen them"
    refused(message, apply_limits, ["u1"], [1.0], [1], Limits(min_seconds=2))


def test_impossible_limits():
    refused("min_seconds and max_seconds: expected 0 <= min <= max, got 3 and 2", Limits, 3, 2)
    refused("max_tokens: expected 1 or more, got 0", Limits, max_tokens=0)


def ids(rows):
    return Ragged.of_ids(rows, vocabulary=10)


def alignments(frames, tokens):
    """All paths of a number of frames that CTC collapses to the tokens; 0 is the blank."""
    for path in product(range(3), repeat=frames):
        merged = [b for a, b in zip((None, *path), path, strict=False) if a != b]
        if [label for label in merged if label] == list(tokens):
            yield path


def test_frames_needed_is_the_shortest_alignment():
    rows = [
        (1, 2),
        (2,),
        (),
        (2, 2, 1, 1),
        (),
        (1,),
        (1, 1),
        (1, 1, 1),
        (1, 2, 2, 1),
        (),
    ]  # neighbors alike, too
    for tokens, frames in zip(rows, frames_needed(ids(rows)).tolist(), strict=True):
        assert list(alignments(frames, tokens))
        assert frames == 0 or not list(alignments(frames - 1, tokens))


def test_frames_needed_of_no_labels():
    assert frames_needed(ids([])).tolist() == [] and frames_needed(ids([[], []])).tolist() == [0, 0]


def test_alignable_at_every_speed():
    def frames_of(samples):
        return samples // 640  # 40 ms at 16 kHz

    labels = ids([[1, 2, 3, 3, 4, 5, 6, 7, 8]])
    check_alignable(["a"], [0.4], labels, frames_of, 16000)  # exactly 10 frames
    check_alignable(["a"], [0.44], labels, frames_of, 16000, speeds=(0.9, 1.0, 1.1))
    message = (
        "utterances too short for CTC to align (2): a (9 frames at speed 1.1, 10 needed for 9 tokens), "
        "c (0 frames at speed 1.1, 1 needed for 1 tokens); check their texts, leave them out "
        "(min_seconds, max_tokens), or use larger tokens, less subsampling or speed"
    )
    labels = ids([[1, 2, 3, 3, 4, 5, 6, 7, 8], [1], [1]])
    refused(
        message,
        check_alignable,
        "abc",
        [0.4, 1.0, 0.04],
        labels,
        frames_of,
        16000,
        speeds=(0.9, 1.0, 1.1),
    )
