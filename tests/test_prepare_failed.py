"""A sound file that can't be used is left out, named and listed, and the others are prepared.

Each damage is made here; what a wrong folder is, is decided by counting.
"""

import os

import pytest
from layouts import sound, tsv

from asr.audio import headers
from asr.cli import prepare as command
from asr.data import manifest
from asr.data.prepare import prepare
from asr.errors import UserError
from asr.failures import HEADER
from asr.stamp import Stamp

GOOD = [f"g{n}" for n in range(12)]


@pytest.fixture
def corpus(tmp_path):
    """Twelve good recordings, and one of each damage; what is said of these."""
    bad = {
        "gone": "no such file",
        "text": "is text, not sound",
        "empty": "is empty",
        "folder": "is a folder",
        "pipe": "a pipe",
        "cut": "truncated",
        "rate": "1 Hz",
        "samples": "has no samples",
    }
    table = tsv(
        tmp_path,
        "mine.tsv",
        [f"{n}\tclips/{n}.wav\tA" for n in [*GOOD, *bad]],
        sounds=[*GOOD, "cut", "rate"],
    )
    clips = tmp_path / "clips"
    (clips / "text.wav").write_text("these are words\n" * 9)
    (clips / "empty.wav").touch()
    (clips / "folder.wav").mkdir()
    os.mkfifo(clips / "pipe.wav")
    (clips / "cut.wav").write_bytes((clips / "cut.wav").read_bytes()[:1000])
    content = bytearray((clips / "rate.wav").read_bytes())
    content[24:28] = (1).to_bytes(4, "little")
    (clips / "rate.wav").write_bytes(content)
    sound(clips / "samples.wav", 0)
    return table, bad


def run(table, out, *more):
    """The command's exit status."""
    try:
        command.main(["tsv", str(table), str(out), *more])
    except SystemExit as end:
        return end.code
    return 0


def prepared(out, split="mine"):
    return sorted(u.id for u in manifest.read(out / f"{split}.jsonl.gz"))


def test_the_others_are_prepared_and_each_bad_one_is_named_and_listed(tmp_path, corpus, capsys):
    table, bad = corpus
    assert run(table, tmp_path / "out") == 3
    told = capsys.readouterr().err
    assert prepared(tmp_path / "out") == sorted(GOOD)
    head, *lines = (tmp_path / "out/failed.tsv").read_text().splitlines(keepends=True)
    assert head == HEADER == "id\tpath\treason\n"
    listed = {line.split("\t")[0]: line.rstrip("\n").split("\t") for line in lines}
    assert listed.keys() == bad.keys()
    for name, reason in bad.items():
        assert listed[name][1] == str(tmp_path / f"clips/{name}.wav") and reason in listed[name][2]
        assert any(line.startswith(f"{name}: ") and reason in line for line in told.splitlines())
    assert f"left out: {len(bad)} sound files" in told and "failed.tsv" in told


def test_again_says_the_same_opens_what_was_left_out_and_takes_a_mended_file(
    tmp_path, corpus, capsys, monkeypatch
):
    table, bad = corpus
    run(table, tmp_path / "out")
    first = capsys.readouterr().err.splitlines()
    with monkeypatch.context() as patch:
        opened, verify = [], headers.verify
        patch.setattr(headers, "verify", lambda path: (opened.append(path.stem), verify(path))[1])
        assert run(table, tmp_path / "out") == 3
        assert set(opened) == set(bad)
    again = capsys.readouterr().err.splitlines()
    assert again == [f"{tmp_path}/out is up to date", *first[-len(bad) - 1 :]]
    sound(tmp_path / "clips/gone.wav")
    assert run(table, tmp_path / "out") == 3
    assert prepared(tmp_path / "out") == sorted([*GOOD, "gone"])
    assert "gone" not in (tmp_path / "out/failed.tsv").read_text()
    (tmp_path / "out/failed.tsv").unlink()
    assert run(table, tmp_path / "out") == 3 and (tmp_path / "out/failed.tsv").exists()
    for name in bad.keys() - {"gone"}:
        path = tmp_path / f"clips/{name}.wav"
        path.rmdir() if path.is_dir() else path.unlink()
        sound(path)
    assert run(table, tmp_path / "out") == 0
    assert (
        prepared(tmp_path / "out") == sorted([*GOOD, *bad])
        and not (tmp_path / "out/failed.tsv").exists()
    )
    assert run(table, tmp_path / "out") == 0


def test_a_mended_file_changes_no_split_of_the_others(tmp_path, corpus):
    table, bad = corpus
    run(table, tmp_path / "out", "--dev", "0.3")
    before = {split: prepared(tmp_path / "out", split) for split in ("train", "dev")}
    sound(tmp_path / "clips/gone.wav")
    run(table, tmp_path / "out", "--dev", "0.3")
    after = {split: prepared(tmp_path / "out", split) for split in ("train", "dev")}
    assert {split: set(after[split]) - {"gone"} for split in after} == {
        split: set(before[split]) for split in before
    }


def test_more_than_half_or_a_whole_split_is_rather_a_wrong_folder(tmp_path, capsys):
    table = tsv(tmp_path, "train.tsv", [f"u{n}\tclips/{n}.wav\tA" for n in range(4)], sounds="01")
    assert run(table, tmp_path / "half") == 3
    (tmp_path / "clips/1.wav").unlink()
    assert run(table, tmp_path / "most") == 2
    assert (
        "faulty sound files of 4, too many to continue without them (3): u1 ("
        in capsys.readouterr().err
    )
    tsv(tmp_path, "dev.tsv", ["v\tclips/no.wav\tA"], sounds="0123")
    assert run(tmp_path, tmp_path / "split") == 2
    assert not (tmp_path / "most").exists() and not (tmp_path / "split").exists()


def test_a_list_of_somebody_else_is_not_overwritten(tmp_path, corpus, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/failed.tsv").write_text("mine\n")
    assert run(corpus[0], tmp_path / "out") == 2
    assert (
        "failed.tsv: is there already, and asr-prepare did not make it" in capsys.readouterr().err
    )
    assert (tmp_path / "out/failed.tsv").read_text() == "mine\n" and not (
        tmp_path / "out/mine.jsonl.gz"
    ).exists()


def test_where_the_output_is_the_corpus_the_list_is_no_split(tmp_path, corpus):
    folder = tmp_path / "only"
    folder.mkdir()
    (folder / "mine.tsv").write_text(corpus[0].read_text().replace("clips/", f"{tmp_path}/clips/"))
    assert [run(folder, folder) for _ in range(2)] == [3, 3]
    assert [path.name for path in folder.glob("*.jsonl.gz")] == ["mine.jsonl.gz"]


def test_a_name_that_no_line_holds_is_left_out_of_a_folder(tmp_path):
    for name in ("a.wav", "b.wav", "evil\x1b[2J\n.wav"):
        sound(tmp_path / "noise" / name)
    made = prepare("folder", tmp_path / "noise", tmp_path / "out")
    assert prepared(tmp_path / "out", "recordings") == ["a.wav", "b.wav"]
    assert "control character" in made.failed[0].reason
    assert "\x1b" not in (tmp_path / "out/failed.tsv").read_text()
    assert prepare("folder", tmp_path / "noise", tmp_path / "out").current


def test_a_path_with_a_nul_is_a_bad_file(tmp_path):
    table = tsv(tmp_path, "x.tsv", ["a\tclips/a.wav\tA", "b\tclips/b\0.wav\tB"])
    assert [f.id for f in prepare("tsv", table, tmp_path / "out").failed] == ["b"]


def test_a_table_that_is_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.tsv")
    with pytest.raises(UserError, match="is a device or a pipe"):
        prepare("tsv", tmp_path / "x.tsv", tmp_path / "out")


def test_a_changed_list_is_made_anew(tmp_path, corpus):
    run(corpus[0], tmp_path / "out")
    whole = (tmp_path / "out/failed.tsv").read_text()
    (tmp_path / "out/failed.tsv").write_text(whole[: len(whole) // 2])
    assert Stamp(tmp_path / "out", "", {}, []).path.exists()
    run(corpus[0], tmp_path / "out")
    assert (tmp_path / "out/failed.tsv").read_text() == whole


def test_a_file_that_can_be_read_again_gets_in_though_it_is_the_same(tmp_path, corpus, monkeypatch):
    """As after chmod: neither its size nor its time has changed."""
    verify = headers.verify

    def denied(path):
        if path.name.endswith("0.wav"):
            raise UserError(f"{path}: can't be read (Permission denied)")
        return verify(path)

    with monkeypatch.context() as patched:
        patched.setattr(headers, "verify", denied)
        assert run(corpus[0], tmp_path / "out") == 3
    lost = set(map(str, GOOD)) - set(prepared(tmp_path / "out"))
    assert lost
    assert run(corpus[0], tmp_path / "out") == 3 and prepared(tmp_path / "out") == sorted(
        map(str, GOOD)
    )
