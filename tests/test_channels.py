"""A cut's channel is the one that is heard, as lhotse means it; what a cut asks for and isn't done is refused by name.

Expected values: lhotse's own cuts, read by lhotse, and two channels whose samples are known.
"""

import gzip
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch
from lhotse import CutSet, MonoCut, Recording, SupervisionSegment
from lhotse.audio import AudioSource

from asr.audio import load as audio
from asr.cli import prepare as command
from asr.data import columns as table
from asr.data import dataset as batches
from asr.data import manifest, shar
from asr.data.augmentation import effect
from asr.data.prepare import prepare
from asr.errors import UserError
from asr.transcription.recordings import find

RATE = 16000
LEFT, RIGHT = (np.full(8000, level) for level in (0.5, -0.25))
MEAN = (LEFT + RIGHT) / 2


@pytest.fixture
def path(tmp_path):
    """A telephone call: one speaker a channel."""
    soundfile.write(tmp_path / "call.wav", np.stack([LEFT, RIGHT], 1), RATE, subtype="FLOAT")
    return tmp_path / "call.wav"


def cut(path, name, channel, recording=None):
    recording = recording or Recording.from_file(path, recording_id="call")
    said = SupervisionSegment(
        f"{name}-said", recording.id, 0.0, 0.5, channel=channel, text=name.upper()
    )
    return MonoCut(name, 0.0, 0.5, channel, supervisions=[said], recording=recording)


def read(tmp_path, *cuts):
    """Write cuts as lhotse does, and read them here."""
    CutSet.from_cuts(cuts).to_file(tmp_path / "x.jsonl.gz")
    return list(manifest.read(tmp_path / "x.jsonl.gz"))


def heard(u):
    return audio.load(u.path, RATE, u.start, u.duration, u.channel)


def test_two_cuts_of_a_stereo_file_are_its_channels(tmp_path, path):
    cuts = [cut(path, "left", 0), cut(path, "right", 1)]
    for u, one in zip(read(tmp_path, *cuts), cuts, strict=True):
        np.testing.assert_allclose(heard(u), one.load_audio()[0], atol=1e-6)
        assert (u.channel, u.channels, u.text) == (one.channel, 2, u.id.upper())


def test_whatever_reads_recordings_reads_the_channel(tmp_path, path):
    """Training's batches, noises, Shar and decoding."""
    utterances = read(tmp_path, cut(path, "left", 0), cut(path, "right", 1))
    made = table.read(tmp_path / "x.jsonl.gz")
    batch = batches.SpeechDataset(made, [[1], [1]], RATE)[[0, 1]]
    torch.testing.assert_close(
        batch.waveforms[:, :8000].double(), torch.tensor(np.stack([LEFT, RIGHT]))
    )
    drawn = effect.Recordings(tmp_path / "x.jsonl.gz")
    np.testing.assert_allclose(drawn.load(1, RATE), RIGHT)
    np.testing.assert_allclose(drawn.stretch(0, RATE, 8000, 0.0), LEFT)
    shar.write(utterances, tmp_path / "out", "train", "")
    for u, wave in zip(
        manifest.read(tmp_path / "out/train.shar.jsonl.gz"), (LEFT, RIGHT), strict=True
    ):
        np.testing.assert_allclose(heard(u), wave)
    assert [s.channel for s in find([], [str(tmp_path / "x.jsonl.gz")])] == [0, 1]


def test_channels_in_files_of_their_own(tmp_path):
    """As of AMI: channel 1 of the recording is the only one of its file."""
    for n, wave in enumerate((LEFT, RIGHT)):
        soundfile.write(tmp_path / f"{n}.wav", wave, RATE, subtype="FLOAT")
    parts = [AudioSource("file", [n], str(tmp_path / f"{n}.wav")) for n in (0, 1)]
    recording = Recording("call", parts, RATE, 8000, 0.5, [0, 1])
    [u] = read(tmp_path, cut(None, "right", 1, recording))
    np.testing.assert_allclose(heard(u), RIGHT)
    assert (u.channels, u.channel) == (1, None)


def refusal(tmp_path, line):
    with gzip.open(tmp_path / "y.jsonl.gz", "wt") as file:
        file.write(json.dumps(line))
    with pytest.raises(UserError) as error:
        list(manifest.read(tmp_path / "y.jsonl.gz"))
    assert str(error.value).startswith(f"{tmp_path}/y.jsonl.gz:1: ")
    return str(error.value)


def test_what_is_not_done_is_refused_by_name(tmp_path, path):
    good, recording = cut(path, "right", 1), Recording.from_file(path, recording_id="call")
    cases = {
        "MultiCut": recording.to_cut().to_dict(),
        "MixedCut": good.append(good).to_dict(),
        r"transforms \(Speed\)": good.perturb_speed(1.1).to_dict(),
        r"changed \(Resample\)": good.resample(8000).to_dict(),
        r"channel: got 2, expected one of its recording's \(0, 1\)": good.to_dict()
        | {"channel": 2},
        r"channel: got \[0, 1\]": good.to_dict() | {"channel": [0, 1]},
        "channel: got None": good.to_dict() | {"channel": None},
        "text of channel 1 beside channel 0": good.to_dict() | {"channel": 0},
        "of features": {k: v for k, v in good.to_dict().items() if k != "recording"}
        | {"features": {}},
    }
    for kind in ("url", "command", "memory"):
        other = Recording("r", [AudioSource(kind, [0], "x")], RATE, 8000, 0.5)
        cases[f"type '{kind}'"] = cut(None, "x", 0, other).to_dict()
    for expected, line in cases.items():
        assert re.search(expected, refusal(tmp_path, line)), expected


def test_what_asr_prepare_writes_of_stereo_is_equal_to_lhotses_and_says_what_is_meant(
    tmp_path, path
):
    (tmp_path / "x.tsv").write_text("id\tpath\ttext\nu\tcall.wav\tGO\n")
    for channel, expected, mono in (
        (None, MEAN, "mean"),
        (0, LEFT, "channel"),
        (1, RIGHT, "channel"),
    ):
        made = prepare("tsv", tmp_path / "x.tsv", tmp_path / "out", channel=channel).manifests["x"]
        [u] = manifest.read(made)
        assert u.channel == channel
        np.testing.assert_allclose(heard(u), expected)
        recording = Recording.from_file(path, recording_id="u")
        said = SupervisionSegment("u", "u", 0.0, 0.5, channel=channel or 0, text="GO")
        theirs = MonoCut(
            "u",
            0.0,
            0.5,
            channel or 0,
            supervisions=[said],
            recording=recording,
            custom={"mono": mono},
        )
        assert list(CutSet.from_file(made)) == [theirs]
        assert json.loads(gzip.decompress(made.read_bytes())) == theirs.to_dict()
        assert manifest.Utterance.of_cut(theirs) == u


def test_a_stereo_line_of_before_is_refused_for_it_may_mean_either(tmp_path, path):
    u = manifest.Utterance("u", str(path), RATE, 8000, 2, 0.0, 0.5, "GO")
    before = {name: value for name, value in u.line().items() if name != "custom"}
    said = refusal(tmp_path, before)
    assert "run asr-prepare again" in said and '"mono": "mean"' in said
    mono = replace(u, channels=1)
    assert "custom" not in mono.line() and manifest.Utterance.of_line(mono.line()) == mono


def test_a_table_says_the_channel_of_each_and_a_file_without_it_is_a_bad_one(
    tmp_path, path, capsys
):
    soundfile.write(tmp_path / "mono.wav", LEFT, RATE, subtype="FLOAT")
    rows = [
        "id\tpath\ttext\tchannel",
        "a\tcall.wav\tA\t1",
        "b\tcall.wav\tB\t0",
        "c\tmono.wav\tC\t",
        "d\tmono.wav\tD\t1",
    ]
    (tmp_path / "x.tsv").write_text("\n".join(rows) + "\n")
    with pytest.raises(SystemExit) as end:
        command.main(["tsv", str(tmp_path / "x.tsv"), str(tmp_path / "out")])
    assert end.value.code == 3
    assert "has 1 channel, counted from 0; channel 1 was requested" in capsys.readouterr().err
    found = {u.id: heard(u)[0] for u in manifest.read(tmp_path / "out/x.jsonl.gz")}
    assert found == pytest.approx({"a": -0.25, "b": 0.5, "c": 0.5})
    (tmp_path / "x.tsv").write_text(f"{rows[0]}\na\tcall.wav\tA\tleft\n")
    with pytest.raises(
        UserError, match=r"x.tsv:2: channel: got 'left', expected a number from 0 on"
    ):
        prepare("tsv", tmp_path / "x.tsv", tmp_path / "out")
    for wish in ("-1", "left", "1.5", "99999999999999999999"):
        with pytest.raises(SystemExit) as end:
            command.main(["tsv", str(tmp_path / "x.tsv"), str(tmp_path / "out"), "--channel", wish])
        assert end.value.code == 2


def test_channels_that_cancel_each_other_out_are_noted(tmp_path):
    wave = np.sin(np.arange(8000))
    soundfile.write(tmp_path / "phase.wav", np.stack([wave, -wave], 1), RATE)
    (tmp_path / "x.tsv").write_text("id\tpath\ttext\nu\tphase.wav\tGO\n")
    notes = prepare("tsv", tmp_path / "x.tsv", tmp_path / "mean").notes
    assert any(
        "cancel each other out" in note and "phase.wav" in note and "--channel 0" in note
        for note in notes
    )
    assert prepare("tsv", tmp_path / "x.tsv", tmp_path / "one", channel=0).notes == []
