"""The benchmark of joined recordings: pauses where they should be, errors and lost words where they belong."""

from types import SimpleNamespace

import numpy as np
import soundfile

from scripts.bench import joined


def test_joined_recordings_have_pauses_but_where_breath_is_held(tmp_path):
    """Two a second, of half a second each, with pauses of half a second, but none from the second to the fourth."""
    one = tmp_path / "one.wav"
    soundfile.write(one, np.full(4000, 0.5), 8000, subtype="FLOAT")
    u = SimpleNamespace(path=str(one), start=0.0, duration=0.5, channel=0)
    out, rng = tmp_path / "all.wav", np.random.default_rng(1)
    seconds = joined.join([u] * 8, 8000, (0.5, 0.5), out, rng, breathless=(2.0, 4.0))
    loud = soundfile.read(out)[0].reshape(-1, 4000).mean(1) > 0.4
    assert seconds == len(loud) / 2
    assert "".join("x" if x else "." for x in loud) == "x.x.xxxx.x.x."


def test_errors_of_a_joined_text_belong_to_the_recordings_they_touch():
    found = joined.divided(["A B", "C D E", "F"], "A X B C E F")
    assert [(x.hits, x.substitutions, x.deletions, x.insertions) for x in found] == [
        (2, 0, 0, 1),
        (2, 0, 1, 0),
        (1, 0, 0, 0),
    ]


def test_words_lost_and_doubled_where_speech_was_cut_are_counted():
    """The first joint is within speech, and loses B; the second has silence; the third doubles F."""
    times = [(0, 5, "A"), (5, 10, "C"), (12, 20, "D E F"), (20, 25, "F G")]
    segments = [{"start": a, "end": b, "text": text} for a, b, text in times]
    found = {"segments": segments, "nonspeech": [[10, 12]]}
    assert joined.at_joints(["A B C", "D E F G"], found).tolist() == [2, 1, 1]
