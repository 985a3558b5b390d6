"""Stamps notice what changed, and only that; files that can't be read are no traceback. The answers are constructed."""

import os
import re
import shutil
import subprocess

import pytest
from refusals import refused

from asr import __version__, provenance
from asr.cli import decode
from asr.stamp import Planned, Stamp, fingerprint, planning, read
from asr.text import tokenizer as tokenizers
from asr.training.identity import stamp_of


def stamp(folder, beam=10):
    return Stamp(folder / "out.txt", "test", {"beam": beam}, [folder / "in.txt", folder / "sounds"])


@pytest.fixture
def folder(tmp_path):
    """An output and its inputs, stamped."""
    (tmp_path / "sounds").mkdir()
    for name in ("out.txt", "in.txt", "sounds/a.wav"):
        (tmp_path / name).write_text(name)
    stamp(tmp_path).write(seconds=1.0)
    return tmp_path


@pytest.mark.parametrize("beam", [10, 20])
def test_within_planning_the_question_ends_the_command_and_tells_its_answer(folder, beam):
    asking = stamp(folder, beam)
    with planning(), pytest.raises(Planned) as asked:
        asking.is_current()
    assert asked.value.stamp is asking
    assert asked.value.current is asking.is_current() is (beam == 10)


def test_a_stamp_is_current_until_an_argument_an_input_or_the_output_changes(folder):
    assert stamp(folder).is_current() and not stamp(folder, beam=20).is_current()
    (folder / "sounds/.hidden").write_text("does not count")
    assert stamp(folder).is_current()
    for name in ("in.txt", "sounds/a.wav", "sounds/b.wav"):
        (folder / name).write_text("other content")
        assert not stamp(folder).is_current(), name
        stamp(folder).write()
    (folder / "out.txt").unlink()
    assert not stamp(folder).is_current()


def test_a_file_of_a_folder_that_is_written_anew_is_seen_by_its_time(folder):
    file = folder / "sounds/a.wav"
    time = file.stat().st_mtime_ns
    file.write_text(file.read_text()[::-1])  # as long as before
    os.utime(file, ns=(time, time + 1_000_000))
    assert not stamp(folder).is_current()


def test_another_version_makes_all_anew(folder, monkeypatch):
    monkeypatch.setattr("asr.stamp.__version__", "0.0.0")
    assert not stamp(folder).is_current()


@pytest.mark.parametrize("content", ["", "[]", "7", "{}", "no json", None])
def test_a_damaged_stamp_is_none_and_reading_it_an_error(folder, content):
    path = stamp(folder).path
    path.unlink() if content is None else path.write_text(content)
    assert not stamp(folder).is_current()
    said = r"out.txt: not finished, its stamp .out.txt.stamp.json is absent or damaged"
    refused(said, read, folder / "out.txt")


def test_what_cannot_be_read_has_a_fingerprint_too(folder):
    assert fingerprint(folder / "no") == "absent"
    assert fingerprint(folder / "out.txt/below") == "unreadable"
    (folder / "sounds/broken.wav").symlink_to("nowhere")
    assert len(fingerprint(folder / "sounds")) == 32


def test_a_stamp_says_when_where_and_by_which_code_its_output_was_made(folder):
    made = read(folder / "out.txt")["made"]
    assert made == {"seconds": 1.0, "commit": provenance.commit(), "hardware": provenance.cpu()}
    assert re.fullmatch(r"\d+ × .+", made["hardware"])
    given = {"hardware": "4 × GPU", "commit": "older", "rtf": 0.1}
    stamp(folder).write(**given)
    assert read(folder / "out.txt")["made"].items() >= given.items()
    assert stamp(folder).is_current()  # none of that identifies it


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_the_commit_is_that_of_the_code_and_tells_if_the_code_was_changed(tmp_path):
    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        return subprocess.check_output(["git", "-C", tmp_path, *who, *words], text=True).strip()

    def commit():
        return provenance.commit(tmp_path)

    none = f"version {__version__}"
    assert commit() == none
    git("init", "-q")
    (tmp_path / "asr").mkdir()
    for name in ("asr/x.py", "README.md"):
        (tmp_path / name).write_text("x")
    git("add", ".")
    assert commit() == none  # no commit yet
    git("commit", "-qm", "x")
    head = git("rev-parse", "HEAD")[:7]
    assert commit() == head
    (tmp_path / "README.md").write_text("results")
    assert commit() == head
    (tmp_path / "asr/x.py").write_text("other")
    assert commit() == f"{head}+"


def test_the_files_of_a_tokenizer_are_those_that_it_names(tmp_path, monkeypatch):
    """Another kind of tokenizer, with files of its own: every stamp that depends on a tokenizer sees them change."""

    class Pairs:
        files = ("pairs.txt",)

    monkeypatch.setitem(tokenizers.KINDS, "pairs", f"{__name__}:Pairs")
    monkeypatch.setitem(globals(), "Pairs", Pairs)
    (tmp_path / "tokenizer.json").write_text('{"kind": "pairs"}')
    settings, pairs, stamps = tmp_path / "x.yaml", tmp_path / "pairs.txt", []
    settings.write_text(f"{{out: x, tokenizer: {tmp_path}, init_from: {tmp_path}, data: {{}}}}")
    for content in ("ab", "cd"):
        pairs.write_text(content)
        how = decode.decoding(decode.parse(["--model", str(tmp_path), "a.wav"]))
        files = [*map(str, how.files())]
        stamps.append((Stamp("x", "y", {}, files).facts, stamp_of(settings, []).facts))
        assert str(pairs) in files
    assert all(before != after for before, after in zip(*stamps, strict=True))
    assert tokenizers.names_of_files("pairs") == ("tokenizer.json", "pairs.txt")
    assert set(tokenizers.names_of_files()) == {"tokenizer.json", "bpe.model", "pairs.txt"}
