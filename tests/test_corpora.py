"""Corpora as others keep them: Kaldi's data folders, releases of Common Voice. The folders are constructed."""

import pytest
from layouts import refused, sound, texts

from asr.data import manifest
from asr.data.prepare import prepare


def kaldi(folder, **files):
    """A data folder like speechocean762's: paths are relative to the folder above."""
    files = {
        "wav_scp": "u1\tWAVE/u1.wav\nu2 WAVE/u2.wav\n",
        "text": "u2\tSO  IT IS\nu1 YES\n",
    } | files
    (folder / "train").mkdir(parents=True)
    for name, content in files.items():
        (folder / "train" / name.replace("_", ".")).write_text(content)
    for stem in ("u1", "u2"):
        sound(folder / f"WAVE/{stem}.wav")
    return folder


def listed(made):
    """Utterances of training."""
    return [(u.id, u.text, u.speaker, u.path) for u in manifest.read(made.manifests["train"])]


def test_kaldi_data_folders(tmp_path, monkeypatch):
    source = kaldi(tmp_path / "c", utt2spk="u1 ann\nu2 bob\n")
    made = prepare("kaldi", source, tmp_path / "out")
    wave = source / "WAVE"
    assert listed(made) == [
        ("u1", "YES", "ann", f"{wave}/u1.wav"),
        ("u2", "SO IT IS", "bob", f"{wave}/u2.wav"),
    ]
    # one folder by itself, utterances as their own speakers, and paths from where the command runs
    monkeypatch.chdir(wave)
    alone = kaldi(tmp_path / "d", wav_scp="u1 u1.wav\nu2 u2.wav\n", utt2spk="u1 u1\nu2 u2\n")
    made = prepare("kaldi", alone / "train", tmp_path / "out2")
    assert [u[2:] for u in listed(made)] == [(None, f"{wave}/u1.wav"), (None, f"{wave}/u2.wav")]


@pytest.mark.parametrize(
    "files, message",
    [
        ({"segments": "u1 r1 0 1\n"}, "/segments: got parts of recordings, expected complete ones"),
        (
            {"wav_scp": "u1 a.wav\nu2 sph2pipe x.sph |\n"},
            "/wav.scp: commands instead of sound files (1): u2; ",
        ),
        ({"text": "u1 YES\n"}, "/text: lacks utterances of wav.scp (1): u2; "),
        (
            {"wav_scp": "u1 WAVE/u1.wav\n"},
            "/wav.scp: lacks utterances of text (1): u2 ({}/text:1)",
        ),
        ({"text": "u1 YES\nu1 NO\n"}, "/text:2: u1 occurs a second time, first in {}/text:1; "),
        (
            {"wav_scp": "u1 no.wav\nu2 no.wav\n"},
            "of 2, too many to continue without them (2): u1 ({}/text:2): ",
        ),
    ],
)
def test_kaldi_data_folders_that_cannot_be_read(tmp_path, files, message):
    source = kaldi(tmp_path / "c", **files)
    train = source / "train"
    place = train if message.startswith("/") else ""
    refused("kaldi", source, f"{place}{message.format(train)}")


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
    assert listed(made) == [("a", "“So it is,” he said.", "ann", f"{source}/clips/a.mp3")]
    assert texts(made, "test") == {"b": "Yes."}
    tables = common_voice(tmp_path / "d", head="id\tpath\ttext")
    says = f"{tables}/train.tsv:1: got columns id, path, text, expected also client_id, sentence"
    refused("common_voice", tables, says)
    cut = common_voice(tmp_path / "e", lines=["ann\ta.mp3", "bob\tb.mp3\t8\tYes."])
    refused("common_voice", cut, f"{cut}/train.tsv:2: lacks its sentence; 2 columns, expected 5")
