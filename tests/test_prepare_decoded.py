"""Recordings that only ffmpeg reads become FLAC files of the same samples, which training reads.

Expected samples are those of the files that ffmpeg made the containers from, without loss.
"""

import shutil
import subprocess

import numpy as np
import pytest
import soundfile
from layouts import sound, texts, tsv

from asr.audio import load as audio
from asr.data import decoded, manifest
from asr.data.prepare import prepare

pytestmark = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg isn't installed")
RATE = 22050
LOSSLESS = {"a.m4a": "alac", "b.MP4": "alac", "c.mkv": "flac", "d.webm": None}


@pytest.fixture
def table(tmp_path):
    """Four containers in stereo and a wav; d.webm is Opus."""
    clips, noise = tmp_path / "clips", np.random.default_rng(0)
    table = tsv(tmp_path, "mine.tsv", [f"{n[0]}\tclips/{n}\tA" for n in [*LOSSLESS, "e.wav"]], "e")
    for name, codec in LOSSLESS.items():
        samples = noise.integers(-9999, 9999, (RATE // 2, 2), np.int16)
        soundfile.write(clips / f"{name[0]}-theirs.wav", samples, RATE)
        how = ["-c:a", codec] if codec else []
        source = clips / f"{name[0]}-theirs.wav"
        command = ["ffmpeg", "-nostdin", "-v", "error", "-i", source, *how, clips / name]
        subprocess.run(command, check=True)
    return table


def prepared(table, **options):
    made = prepare("tsv", table, table.parent / "out", **options)
    return made, {u.id: u for u in manifest.read(made.manifests["mine"])}


def times(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_training_reads_the_samples_of_the_containers(tmp_path, table):
    made, found = prepared(table)
    assert [*found] == [*"abcde"] and not made.failed
    assert "4 recordings were decoded by ffmpeg" in made.notes[0]
    for name in "abc":
        u, expected = found[name], soundfile.read(tmp_path / f"clips/{name}-theirs.wav")[0]
        assert (u.rate, u.channels, u.samples) == (RATE, 2, len(expected))
        got = [audio.load(u.path, RATE, channel=n) for n in (0, 1)]
        np.testing.assert_array_equal(np.stack(got, 1), expected.astype(np.float32))
    assert found["d"].rate == 48000 and abs(found["d"].duration - 0.5) < 0.05
    assert found["e"].path == str(tmp_path / "clips/e.wav")
    assert len(list((tmp_path / "out/decoded").iterdir())) == 4


def test_what_is_decoded_stays_and_what_is_lost_or_changed_is_decoded_again(tmp_path, table):
    folder, first = tmp_path / "out/decoded", prepared(table)[1]
    before = times(folder)
    assert prepared(table)[0].current and times(folder) == before
    lost = next(folder.glob("a-*.flac"))
    lost.unlink()
    made, again = prepared(table)
    assert not made.current and again == first
    after = times(folder)
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {lost.name}
    shutil.copy(tmp_path / "clips/c.mkv", tmp_path / "clips/a.m4a")  # whatever its name is
    changed = prepared(table)[1]["a"]
    expected = audio.load(tmp_path / "clips/c-theirs.wav", RATE)
    np.testing.assert_array_equal(audio.load(changed.path, RATE), expected)


def test_a_damaged_container_is_left_out_and_a_missing_channel_named(tmp_path, table):
    path = tmp_path / "clips/c.mkv"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    (tmp_path / "clips/d.webm").write_bytes(b"\x1aE\xdf\xa3 and nothing more")
    made, found = prepared(table)
    assert [*found] == [*"abe"] and [failure.id for failure in made.failed] == [*"cd"]
    assert made.failed[0].path == str(path)
    assert made.failed[0].reason.startswith("truncated (ffmpeg: ")
    assert made.failed[1].reason.startswith("ffmpeg can't read it (exit status ")
    again = prepared(table)[0]
    assert again.current and again.failed == made.failed
    path.write_bytes(whole)
    assert [*prepared(table)[1]] == [*"abce"]
    [lost] = prepared(table, channel=1)[0].failed[1:]
    assert (lost.id, lost.path) == ("e", str(tmp_path / "clips/e.wav"))


def test_without_ffmpeg_the_fault_says_so_and_with_it_all_are_taken_up(
    tmp_path, table, monkeypatch
):
    for name in "fghi":
        sound(tmp_path / f"clips/{name}.wav")
    with open(table, "a") as file:
        file.writelines(f"{name}\tclips/{name}.wav\tB\n" for name in "fghi")
    with monkeypatch.context() as patch:
        patch.setattr("shutil.which", lambda name: None)
        made, found = prepared(table)
        assert [*found] == [*"efghi"] and len(made.failed) == 4
        assert all("install it (apt-get install ffmpeg" in f.reason for f in made.failed)
        assert prepared(table)[0].current
    made, found = prepared(table)
    assert [*found] == [*"abcdefghi"] and not made.failed and not made.current


def test_an_interrupted_preparation_keeps_what_is_decoded(tmp_path, table, monkeypatch):
    written, count = decoded.as_flac, []

    def interrupted(sound):
        count.append(sound)
        if len(count) == 3:
            raise KeyboardInterrupt
        return written(sound)

    with monkeypatch.context() as patch:
        patch.setattr(decoded, "as_flac", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepared(table)
    before = times(tmp_path / "out/decoded")
    assert before and all(name.endswith(".flac") for name in before)
    assert not (tmp_path / "out/mine.jsonl.gz").exists()
    made, found = prepared(table)
    assert [*found] == [*"abcde"] and before.items() <= times(tmp_path / "out/decoded").items()


def test_a_long_name_is_shortened(tmp_path, table):
    name = "语" * 83  # 249 bytes, 253 with the suffix
    (tmp_path / "clips/a.m4a").rename(tmp_path / f"clips/{name}.m4a")
    table.write_text(table.read_text().replace("clips/a.m4a", f"clips/{name}.m4a"))
    made, found = prepared(table)
    assert [*found] == [*"abcde"] and not made.failed


def test_a_shar_holds_what_was_decoded(tmp_path, table):
    made, found = prepared(table, shar=True)
    assert texts(made, "mine.shar") == texts(made, "mine")
    for u in manifest.read(made.manifests["mine.shar"]):
        expected = audio.load(found[u.id].path, RATE)
        np.testing.assert_array_equal(audio.load(u.path, RATE), expected)
