"""A cut's channel is the one that is heard, as lhotse means it; what a cut asks for and isn't done is refused by name.

Expected values: lhotse's own cuts, read by lhotse, and two channels whose samples are known.
"""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, MonoCut, Recording, SupervisionSegment
from lhotse.audio import AudioSource
from numpy.testing import assert_allclose
from refusals import refused
from runs import status_of
from small import each

from asr.audio import load as audio
from asr.cli import prepare as command
from asr.data import columns as table
from asr.data import manifest, shar
from asr.data.augmentation import effect
from asr.data.dataset import SpeechDataset
from asr.data.prepare import prepare
from asr.transcription.recordings import find

RATE = 16000
LEFT, RIGHT = (np.full(8000, level) for level in (0.5, -0.25))
MEAN = (LEFT + RIGHT) / 2


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A telephone call, one speaker a channel, in the current folder."""
    monkeypatch.chdir(tmp_path)
    soundfile.write("call.wav", np.stack([LEFT, RIGHT], 1), RATE, subtype="FLOAT")
    return tmp_path / "call.wav"


def cut(recording, name, channel, **more):
    """Half a second of a channel of a file or recording; its name is said."""
    if not isinstance(recording, Recording):
        recording = Recording.from_file(recording, recording_id="call")
    said = SupervisionSegment(name, recording.id, 0.0, 0.5, channel, name.upper(), speaker="ann")
    return MonoCut(name, 0.0, 0.5, channel, supervisions=[said], recording=recording, **more)


def read(*cuts):
    """Write cuts as lhotse does, and read them here."""
    CutSet.from_cuts(cuts).to_file("x.jsonl.gz")
    return list(manifest.read("x.jsonl.gz"))


def heard(u):
    return audio.load(u.path, RATE, u.start, u.duration, u.channel)


def test_whatever_reads_recordings_reads_the_channel(path):
    """Two cuts of a stereo file are its channels, for training's batches, noises, Shar and decoding."""
    cuts = [cut(path, "left", 0), cut(path, "right", 1)]
    utterances = read(*cuts)
    facts = [(u.channel, u.channels, u.text) for u in utterances]
    assert facts == [(0, 2, "LEFT"), (1, 2, "RIGHT")]
    theirs = [cut.load_audio()[0] for cut in cuts]
    assert_allclose([*map(heard, utterances)], theirs, atol=1e-6)
    batch = SpeechDataset(table.read("x.jsonl.gz"), [[1], [1]], RATE)[[0, 1]].waveforms
    assert_allclose(batch[:, :8000].numpy(), [LEFT, RIGHT])
    drawn = effect.Recordings("x.jsonl.gz")
    assert_allclose(drawn.load(1, RATE), RIGHT)
    assert_allclose(drawn.stretch(0, RATE, 8000, 0.0), LEFT)
    shar.write(utterances, "out", "train", "")
    stored = manifest.read("out/train.shar.jsonl.gz")
    assert_allclose([*map(heard, stored)], [LEFT, RIGHT])
    assert [s.channel for s in find([], ["x.jsonl.gz"])] == [0, 1]


def test_channels_in_files_of_their_own(path):
    """As of AMI: channel 1 of the recording is the only one of its file."""
    soundfile.write("1.wav", RIGHT, RATE, subtype="FLOAT")
    parts = [AudioSource("file", [n], str(path.with_name(f"{n}.wav"))) for n in (0, 1)]
    recording = Recording("call", parts, RATE, 8000, 0.5, [0, 1])
    [u] = read(cut(recording, "right", 1))
    assert_allclose(heard(u), RIGHT)
    assert (u.channels, u.channel) == (1, None)


def refusal(line):
    with gzip.open("y.jsonl.gz", "wt") as file:
        file.write(json.dumps(line))
    return refused("^y.jsonl.gz:1: ", list, manifest.read("y.jsonl.gz"))


def test_what_is_not_done_is_refused_by_name(path):
    good = cut(path, "right", 1)
    line = good.to_dict()
    cases = {
        "MultiCut": good.recording.to_cut().to_dict(),
        "MixedCut": good.append(good).to_dict(),
        "transforms (Speed)": good.perturb_speed(1.1).to_dict(),
        "transforms (Resample)": good.resample(8000).to_dict(),
        "channel: got 2, expected one of its recording's (0, 1)": line | {"channel": 2},
        "channel: got [0, 1]": line | {"channel": [0, 1]},
        "channel: got None": line | {"channel": None},
        "text of channel 1 beside channel 0": line | {"channel": 0},
        "of features": {k: v for k, v in line.items() if k != "recording"} | {"features": {}},
    }
    for kind in ("url", "command", "memory"):
        other = Recording("r", [AudioSource(kind, [0], "x")], RATE, 8000, 0.5)
        cases[f"type '{kind}'"] = cut(other, "x", 0).to_dict()
    for expected, line in cases.items():
        assert expected in refusal(line)


@each("wave, channel, expected, custom", [
    ([LEFT, RIGHT], None, MEAN, {"mono": "mean"}),
    ([LEFT, RIGHT], 0, LEFT, {"mono": "channel"}),
    ([LEFT, RIGHT], 1, RIGHT, {"mono": "channel"}),
    ([LEFT], None, LEFT, None),
])  # fmt: skip
def test_what_asr_prepare_writes_is_equal_to_lhotses_and_says_what_is_meant(
    tmp_path, wave, channel, expected, custom
):
    path = tmp_path / "a.wav"
    soundfile.write(path, np.stack(wave, 1), RATE, subtype="FLOAT")
    (tmp_path / "x.tsv").write_text("id\tpath\ttext\tspeaker\nu\ta.wav\tU\tann\n")
    made = prepare("tsv", tmp_path / "x.tsv", tmp_path / "out", channel=channel).manifests["x"]
    [u] = manifest.read(made)
    assert (u.channel, u.path) == (channel, str(path))
    assert_allclose(heard(u), expected)
    theirs = cut(Recording.from_file(path, recording_id="u"), "u", channel or 0, custom=custom)
    assert list(CutSet.from_file(made)) == [theirs]
    assert json.loads(gzip.decompress(made.read_bytes())) == theirs.to_dict()
    assert manifest.Utterance.of_cut(theirs) == manifest.Utterance.of_line(u.line()) == u


def test_a_stereo_line_of_before_is_refused_for_it_may_mean_either(path):
    line = manifest.Utterance("u", str(path), RATE, 8000, 2, 0.0, 0.5, "GO").line()
    del line["custom"]
    assert '"mono": "mean"' in refusal(line)


def run(*lines, more=()):
    """Have asr-prepare read a table; its exit status."""
    Path("x.tsv").write_text("\n".join(["id\tpath\ttext\tchannel", *lines, ""]))
    return status_of(command.main, "tsv", "x.tsv", "out", *more)


def test_a_table_says_the_channel_of_each_and_a_file_without_it_is_a_bad_one(path, stderr):
    soundfile.write("mono.wav", LEFT, RATE, subtype="FLOAT")
    rows = ["a\tcall.wav\tA\t1", "b\tcall.wav\tB\t0", "c\tmono.wav\tC\t", "d\tmono.wav\tD\t1"]
    assert run(*rows) == 3
    assert "has 1 channel, counted from 0; channel 1 was requested" in stderr()
    found = {u.id: heard(u)[0] for u in manifest.read("out/x.jsonl.gz")}
    assert found == pytest.approx({"a": -0.25, "b": 0.5, "c": 0.5})
    assert run("a\tcall.wav\tA\tleft") == 2
    assert "x.tsv:2: channel: got 'left', expected a number from 0" in stderr()


@each("wish", ["-1", "left", "1.5", "99999999999999999999"])
def test_a_channel_that_is_no_number_is_refused(path, wish, stderr):
    assert run("a\tcall.wav\tA\t", more=["--channel", wish]) == 2
    assert "--channel" in stderr()


def test_channels_that_cancel_each_other_out_are_noted(path):
    wave = np.sin(np.arange(8000))
    soundfile.write("phase.wav", np.stack([wave, -wave], 1), RATE)
    Path("x.tsv").write_text("id\tpath\ttext\nu\tphase.wav\tGO\n")
    [_, note] = prepare("tsv", "x.tsv", "mean").notes
    assert all(fact in note for fact in ("cancel each other out", "phase.wav", "--channel 0"))
    assert prepare("tsv", "x.tsv", "one", channel=0).notes == []
