"""A sound file that can't be used is left out, named and listed, and the others are prepared.

Each damage is made here; what a wrong folder is, is decided by counting.
"""

import os
import re
import shutil

import pytest
from layouts import sound, tsv

from asr.audio import headers
from asr.cli import prepare as command
from asr.data import manifest
from asr.data.prepare import prepare
from asr.errors import UserError

GOOD = sorted(f"g{n}" for n in range(12))
BAD = {
    "gone": "no such file",
    "text": "is text, not sound",
    "empty": "is empty",
    "folder": "is a folder",
    "pipe": "a pipe",
    "cut": "truncated",
    "rate": "1 Hz",
    "samples": "has no samples",
}


@pytest.fixture
def table(tmp_path):
    """Twelve good recordings, and one of each damage."""
    clips, lines = tmp_path / "clips", [f"{n}\tclips/{n}.wav\tA" for n in [*GOOD, *BAD]]
    table = tsv(tmp_path, "mine.tsv", lines, sounds=GOOD)
    content = (clips / "g0.wav").read_bytes()
    (clips / "text.wav").write_text("these are words\n" * 9)
    (clips / "empty.wav").touch()
    (clips / "folder.wav").mkdir()
    os.mkfifo(clips / "pipe.wav")
    (clips / "cut.wav").write_bytes(content[:1000])
    (clips / "rate.wav").write_bytes(content[:24] + b"\1\0\0\0" + content[28:])
    sound(clips / "samples.wav", 0)
    return table


@pytest.fixture
def run(tmp_path, capsys):
    """Run the command; its exit status, and what it says."""

    def run(table, *more, out=tmp_path / "out"):
        status = 0
        try:
            command.main(["tsv", str(table), str(out), *more])
        except SystemExit as end:
            status = end.code
        return status, capsys.readouterr().err

    return run


def prepared(out, split="mine"):
    return sorted(u.id for u in manifest.read(out / f"{split}.jsonl.gz"))


def test_the_others_are_prepared_and_each_bad_one_is_named_and_listed(tmp_path, table, run):
    status, told = run(table)
    assert status == 3 and prepared(tmp_path / "out") == GOOD
    listed = (tmp_path / "out/failed.tsv").read_text()
    assert listed.startswith("id\tpath\treason\n") and listed.count("\n") == 1 + len(BAD)
    for name, reason in BAD.items():
        path = f"{tmp_path}/clips/{name}.wav"
        assert re.search(f"^{name}\t{path}\t.*{reason}", listed, re.MULTILINE)
        assert re.search(f"^{name}: .*{reason}", told, re.MULTILINE)
    assert f"left out: {len(BAD)} sound files" in told and "failed.tsv" in told


def test_again_says_the_same_and_takes_a_mended_file(tmp_path, table, run):
    out, first = tmp_path / "out", run(table)[1].splitlines()
    status, again = run(table)
    same = [f"{out} is up to date", *first[-len(BAD) - 1 :]]
    assert status == 3 and again.splitlines() == same
    sound(tmp_path / "clips/gone.wav")
    assert run(table)[0] == 3 and prepared(out) == [*GOOD, "gone"]
    listed = (out / "failed.tsv").read_text()
    assert "gone" not in listed
    for damaged in ("", listed[:50]):
        (out / "failed.tsv").write_text(damaged)
        assert run(table)[0] == 3 and (out / "failed.tsv").read_text() == listed
    for name in BAD:
        path = tmp_path / f"clips/{name}.wav"
        path.rmdir() if path.is_dir() else path.unlink()
        sound(path)
    assert [run(table)[0] for _ in range(2)] == [0, 0]
    assert prepared(out) == sorted([*GOOD, *BAD]) and not (out / "failed.tsv").exists()


def test_a_mended_file_changes_no_split_of_the_others(tmp_path, table, run):
    def splits():
        run(table, "--dev", "0.3")
        return [set(prepared(tmp_path / "out", split)) - {"gone"} for split in ("train", "dev")]

    before = splits()
    sound(tmp_path / "clips/gone.wav")
    assert splits() == before


def test_more_than_half_or_a_whole_split_is_rather_a_wrong_folder(tmp_path, run):
    table = tsv(tmp_path, "train.tsv", [f"u{n}\tclips/{n}.wav\tA" for n in range(4)], sounds="01")
    assert run(table)[0] == 3
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "clips/1.wav").unlink()
    status, told = run(table)
    assert status == 2 and "faulty sound files of 4, " in told and " (3): u1 (" in told
    tsv(tmp_path, "dev.tsv", ["v\tclips/no.wav\tA"], sounds="0123")
    assert run(tmp_path)[0] == 2 and not (tmp_path / "out").exists()


def test_a_list_of_somebody_else_is_not_overwritten(tmp_path, table, run):
    mine = tmp_path / "out/failed.tsv"
    mine.parent.mkdir()
    mine.write_text("mine\n")
    status, told = run(table)
    assert status == 2 and f"{mine}: is there already" in told and mine.read_text() == "mine\n"
    assert list(mine.parent.iterdir()) == [mine]


def test_where_the_output_is_the_corpus_the_list_is_no_split(tmp_path, table, run):
    folder = tmp_path / "only"
    folder.mkdir()
    (folder / "mine.tsv").write_text(table.read_text().replace("clips/", f"{tmp_path}/clips/"))
    assert [run(folder, out=folder)[0] for _ in range(2)] == [3, 3]
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


def test_a_file_that_can_be_read_again_gets_in_though_it_is_the_same(
    tmp_path, table, run, monkeypatch
):
    """As after chmod: neither its size nor its time has changed."""
    verify = headers.verify

    def denied(path):
        if path.name == "g0.wav":
            raise UserError(f"{path}: can't be read (Permission denied)")
        return verify(path)

    monkeypatch.setattr(headers, "verify", denied)
    assert run(table)[0] == 3 and prepared(tmp_path / "out") == GOOD[1:]
    monkeypatch.undo()
    assert run(table)[0] == 3 and prepared(tmp_path / "out") == GOOD
