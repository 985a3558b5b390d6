"""The benchmark that cuts words out by their times: right words, right samples, right silences."""

import numpy as np
import pytest
import soundfile

from asr.audio import load as audio
from asr.transcript import Word
from asr.transcription.recordings import Recording
from scripts.bench import cut_words as bench

RATE = 8000


@pytest.fixture
def recordings(tmp_path):
    """Two parts of a file whose samples count up."""
    path = str(tmp_path / "x.wav")
    soundfile.write(path, np.arange(4 * RATE) / 1e5, RATE, "FLOAT")
    parts = Recording("a", path, 0.5, 1.0), Recording("b", path, 2.0, 1.5)
    return {one.id: one for one in parts}


def test_words_that_were_recognized_are_found_at_their_places():
    words = {"a": [Word(1, 2, "one"), Word(2, 3, "too"), Word(3, 4, "three")], "b": []}
    found = bench.spans({"a": "one two three", "b": "four"}, words)
    assert found == {("a", 0): ("one", 1, 2), ("a", 2): ("three", 3, 4)}


@pytest.mark.parametrize("shift", [-0.1, 0.0, 0.1])
def test_a_word_is_cut_out_where_it_is_said_and_lies_in_silence(recordings, shift):
    found = {("a", 0): ("one", 0.75, 1.0), ("b", 3): ("two", 2.5, 2.5 + 800 / RATE)}
    cuts = bench.cut_out(recordings, found, shift, RATE)
    silent = round(bench.SILENCE * RATE)
    for cut, (_, start, end) in zip(cuts, found.values(), strict=True):
        first, last = (round((at + shift) * RATE) for at in (start, end))
        np.testing.assert_allclose(cut[silent:-silent], np.arange(first, last) / 1e5, atol=1e-6)
        assert np.abs(cut[:silent]).max() < 10 * bench.NOISE


def test_joined_recordings_are_where_it_is_told_and_words_beyond_them_are_counted(
    recordings, tmp_path
):
    places = bench.join(recordings, tmp_path / "joined.wav", RATE)
    for id, one in recordings.items():
        got, expected = (audio.load(r.path, RATE, r.start, r.duration) for r in (places[id], one))
        np.testing.assert_array_equal(got, expected)
    start, end = places["a"].start, places["a"].start + places["a"].duration
    words = {"a": [Word(start - 0.1, start + 0.2, "x"), Word(start, end, "y")], "b": []}
    assert bench.in_silence(places, words) == pytest.approx((0.1, 1.3))
    words["a"].append(Word(end - 0.1, end + 0.25, "z"))
    assert bench.in_silence(places, words) == pytest.approx((0.35, 1.65))
