"""Corpora as others keep them: Kaldi's data folders, releases of Common Voice. The folders are constructed."""

import pytest
from layouts import assert_refused, sound, texts

from asr.data import manifest
from asr.data.prepare import prepare
from asr.errors import UserError


def kaldi(folder, name="train", **files):
    """A data folder like speechocean762's: paths are relative to the folder above."""
    files = {"wav.scp": "u1\tWAVE/u1.wav\nu2 WAVE/u2.wav\n", "text": "u2\tSO  IT IS\nu1 YES\n"} | {
        key.replace("_", "."): value for key, value in files.items()
    }
    (folder / name).mkdir(parents=True)
    for key, value in files.items():
        (folder / name / key).write_text(value)
    for stem in ("u1", "u2"):
        sound(folder / f"WAVE/{stem}.wav")
    return folder


def test_kaldi_data_folders(tmp_path, monkeypatch):
    source = kaldi(tmp_path / "c", utt2spk="u1 ann\nu2 bob\n")
    made = prepare("kaldi", source, tmp_path / "out")
    assert texts(made, "train") == {"u2": "SO IT IS", "u1": "YES"} and list(made.manifests) == [
        "train"
    ]
    assert [(u.speaker, u.path) for u in manifest.read(made.manifests["train"])] == [
        ("ann", f"{source}/WAVE/u1.wav"),
        ("bob", f"{source}/WAVE/u2.wav"),
    ]
    monkeypatch.chdir(
        source / "WAVE"
    )  # where the command runs; one folder by itself, utterances as their own speakers
    alone = (
        kaldi(tmp_path / "d", wav_scp="u1 u1.wav\nu2 u2.wav\n", utt2spk="u1 u1\nu2 u2\n") / "train"
    )
    found = list(manifest.read(prepare("kaldi", alone, tmp_path / "out2").manifests["train"]))
    assert {(u.path, u.speaker) for u in found} == {
        (f"{source}/WAVE/{name}.wav", None) for name in ("u1", "u2")
    }


@pytest.mark.parametrize(
    "files, message",
    [
        (
            {"segments": "u1 r1 0 1\n"},
            "{}/segments: got parts of recordings, expected complete ones; cut them",
        ),
        (
            {"wav_scp": "u1 a.wav\nu2 sph2pipe x.sph |\n"},
            "{}/wav.scp: commands instead of sound files (1): u2; run",
        ),
        (
            {"text": "u1 YES\n"},
            "{}/text: lacks utterances of wav.scp (1): u2; add their transcripts",
        ),
        (
            {"wav_scp": "u1 WAVE/u1.wav\n"},
            "{0}/wav.scp: lacks utterances of text (1): u2 ({0}/text:1); add their",
        ),
        (
            {"text": "u1 YES\nu1 NO\n"},
            "{0}/text:2: u1 occurs a second time, first in {0}/text:1; give each its own id",
        ),
        (
            {"wav_scp": "u1 no.wav\nu2 no.wav\n"},
            "faulty sound files of 2, too many to continue without them (2): u1 ({}/text:2): ",
        ),
    ],
)
def test_kaldi_data_folders_that_cannot_be_read(tmp_path, files, message):
    source = kaldi(tmp_path / "c", **files)
    with pytest.raises(UserError) as error:
        prepare("kaldi", source, tmp_path / "out")
    assert str(error.value).startswith(message.format(source / "train"))


def common_voice(folder, head="client_id\tpath\tsentence_id\tsentence\tup_votes", lines=None):
    for stem in ("a", "b"):
        sound(folder / f"clips/{stem}.mp3")
    lines = lines or ["ann\ta.mp3\t7\t “So it is,”  he said.\t2", "bob\tb.mp3\t8\tYes.\t2"]
    (folder / "train.tsv").write_text("\n".join([head, lines[0]]) + "\n")
    (folder / "test.tsv").write_text("\n".join([head, *lines[1:]]) + "\n")
    (folder / "validated.tsv").write_text("of all of these\n")
    return folder


def test_common_voice(tmp_path):
    source = common_voice(tmp_path / "c")
    made = prepare("common_voice", source, tmp_path / "out")
    assert texts(made, "train") == {"a": "“So it is,” he said."} and texts(made, "test") == {
        "b": "Yes."
    }
    [utterance] = manifest.read(made.manifests["test"])
    assert (utterance.speaker, utterance.path) == ("bob", f"{source}/clips/b.mp3")
    tables = common_voice(tmp_path / "d", head="id\tpath\ttext")
    message = f"{tables}/train.tsv:1: got columns id, path, text, expected also client_id, sentence, as in a release"
    assert_refused(message, "common_voice", tables, tmp_path / "no")
    short = common_voice(tmp_path / "e", lines=["ann\ta.mp3", "bob\tb.mp3\t8\tYes."])
    assert_refused(
        f"{short}/train.tsv:2: lacks its sentence; 2 columns, expected 5",
        "common_voice",
        short,
        tmp_path / "no",
    )
