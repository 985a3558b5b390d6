"""Stamps notice what changed, and only that; files that can't be read are no traceback. The answers are constructed."""

import os
import re
import shutil
import subprocess

import pytest

from asr import __version__, provenance
from asr.cli import decode
from asr.errors import UserError
from asr.stamp import Planned, Stamp, fingerprint, planning, read
from asr.text import tokenizer as tokenizers
from asr.training.identity import stamp_of


def stamp(folder, beam=10):
    return Stamp(folder / "out.txt", "test", {"beam": beam}, [folder / "in.txt", folder / "sounds"])


def finished(folder):
    """An output and its inputs, stamped."""
    (folder / "sounds").mkdir()
    for name in ("out.txt", "in.txt", "sounds/a.wav"):
        (folder / name).write_text(name)
    stamp(folder).write(seconds=1.0)


def test_within_planning_the_question_ends_the_command_and_tells_its_answer(tmp_path):
    finished(tmp_path)
    for beam in (10, 20):
        asking = stamp(tmp_path, beam)
        with planning(), pytest.raises(Planned) as asked:
            asking.is_current()
        assert asked.value.stamp is asking and asked.value.current is (beam == 10)
        assert asking.is_current() is (beam == 10)


def test_a_stamp_is_current_until_an_argument_an_input_or_the_output_changes(tmp_path):
    finished(tmp_path)
    assert stamp(tmp_path).is_current() and not stamp(tmp_path, beam=20).is_current()
    (tmp_path / "sounds/.hidden").write_text("does not count")
    assert stamp(tmp_path).is_current()
    for name in ("in.txt", "sounds/a.wav", "sounds/b.wav"):
        (tmp_path / name).write_text("other content")
        assert not stamp(tmp_path).is_current(), name
        stamp(tmp_path).write()
    (tmp_path / "out.txt").unlink()
    assert not stamp(tmp_path).is_current()


def test_a_file_of_a_folder_that_is_written_anew_is_seen_by_its_time(tmp_path):
    finished(tmp_path)
    file, time = tmp_path / "sounds/a.wav", (tmp_path / "sounds/a.wav").stat().st_mtime_ns
    file.write_text(file.read_text()[::-1])  # as long as before
    os.utime(file, ns=(time, time + 1_000_000))
    assert not stamp(tmp_path).is_current()


def test_another_version_makes_all_anew(tmp_path, monkeypatch):
    finished(tmp_path)
    monkeypatch.setattr("asr.stamp.__version__", "0.0.0")
    assert not stamp(tmp_path).is_current()


def test_a_damaged_stamp_is_none(tmp_path):
    finished(tmp_path)
    for content in ("", "[]", "7", "{}", "no json"):
        stamp(tmp_path).path.write_text(content)
        assert not stamp(tmp_path).is_current(), content


def test_what_cannot_be_read_has_a_fingerprint_too(tmp_path):
    assert fingerprint(tmp_path / "no") == "absent"
    (tmp_path / "file").write_text("x")
    assert fingerprint(tmp_path / "file/below") == "unreadable"
    (tmp_path / "sounds").mkdir()
    os.symlink("nowhere", tmp_path / "sounds/broken.wav")
    assert len(fingerprint(tmp_path / "sounds")) == 32


def test_a_stamp_says_when_where_and_by_which_code_its_output_was_made(tmp_path):
    finished(tmp_path)
    made = read(tmp_path / "out.txt")["made"]
    assert made == {"seconds": 1.0, "commit": provenance.commit(), "hardware": provenance.cpu()}
    assert re.fullmatch(r"\d+ × .+", made["hardware"])
    stamp(tmp_path).write(hardware="4 × GPU", commit="older", rtf=0.1)
    made = read(tmp_path / "out.txt")["made"]
    assert (made["hardware"], made["commit"], made["rtf"]) == ("4 × GPU", "older", 0.1)
    assert stamp(tmp_path).is_current()  # none of that identifies it


@pytest.mark.parametrize("content", [None, "", "[]", "{}"])
def test_reading_no_stamp_is_an_error(tmp_path, content):
    finished(tmp_path)
    stamp(tmp_path).path.unlink()
    if content is not None:
        stamp(tmp_path).path.write_text(content)
    with pytest.raises(
        UserError,
        match=r"out.txt: not finished, its stamp .out.txt.stamp.json is absent or damaged",
    ):
        read(tmp_path / "out.txt")


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_the_commit_is_that_of_the_code_and_tells_if_the_code_was_changed(tmp_path):
    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        done = subprocess.run(
            ["git", "-C", tmp_path, *who, *words], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    assert provenance.commit(tmp_path) == f"version {__version__}"
    git("init", "-q")
    (tmp_path / "asr").mkdir()
    for name in ("asr/x.py", "README.md"):
        (tmp_path / name).write_text("x")
    git("add", ".")
    assert provenance.commit(tmp_path) == f"version {__version__}"  # no commit yet
    git("commit", "-qm", "x")
    head = git("rev-parse", "HEAD")[:7]
    assert provenance.commit(tmp_path) == head
    (tmp_path / "README.md").write_text("results")
    assert provenance.commit(tmp_path) == head
    (tmp_path / "asr/x.py").write_text("other")
    assert provenance.commit(tmp_path) == f"{head}+"


def test_the_files_of_a_tokenizer_are_those_that_it_names(tmp_path, monkeypatch):
    """Another kind of tokenizer, with files of its own: every stamp that depends on a tokenizer sees them change."""

    class Pairs:
        files = ("pairs.txt",)

    monkeypatch.setitem(tokenizers.KINDS, "pairs", f"{__name__}:Pairs")
    monkeypatch.setitem(globals(), "Pairs", Pairs)
    (tmp_path / "tokenizer.json").write_text('{"kind": "pairs"}')
    stamps = []
    for content in ("ab", "cd"):
        (tmp_path / "pairs.txt").write_text(content)
        how = decode.decoding(decode.parse(["--model", str(tmp_path), "a.wav"]))
        (tmp_path / "x.yaml").write_text(
            f"{{out: x, tokenizer: {tmp_path}, init_from: {tmp_path}, data: {{}}}}"
        )
        files = [str(path) for path in how.files()]
        stamps.append((Stamp("x", "y", {}, files).facts, stamp_of(tmp_path / "x.yaml", []).facts))
        assert str(tmp_path / "pairs.txt") in files
    assert stamps[0][0] != stamps[1][0] and stamps[0][1] != stamps[1][1]
    assert tokenizers.names_of_files("pairs") == ("tokenizer.json", "pairs.txt")
    assert set(tokenizers.names_of_files()) == {"tokenizer.json", "bpe.model", "pairs.txt"}
