"""Stamps notice what changed, and only that; files that can't be read are no traceback. The answers are constructed."""

import os

from asr.stamp import Stamp, fingerprint


def stamp(folder, beam=10):
    return Stamp(folder / "out.txt", "test", {"beam": beam}, [folder / "in.txt", folder / "sounds"])


def finished(folder):
    """An output and its inputs, stamped."""
    (folder / "sounds").mkdir()
    for name in ("out.txt", "in.txt", "sounds/a.wav"):
        (folder / name).write_text(name)
    stamp(folder).write(seconds=1.0)


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
