"""No command writes over an input, a device, or somebody else's file: each is tried, and the bytes are compared."""

import json
import os
import socket
import stat
import subprocess
import sys
from functools import partial

import pytest
from refusals import refused
from runs import status_of

from asr.cli import ngram, score, tokenizer
from asr.errors import UserError
from asr.files import HOST, replacing, write_text
from asr.outputs import check_folder, check_inputs, check_output
from asr.stamp import Stamp

OTHERS = "is there already, and asr-test did not make it.*--force"


check = partial(check_output, "--out", command="asr-test")


def made(path, command="asr-test"):
    """A file that a command has made."""
    path.write_text("made")
    Stamp(path, command, {}, []).write()
    return path


def test_an_output_is_new_or_its_command_s_own(tmp_path):
    check(tmp_path / "new.txt")
    check(made(tmp_path / "own.txt"))
    (tmp_path / "foreign.txt").write_text("a letter")
    for path in (tmp_path / "foreign.txt", made(tmp_path / "other.txt", "asr-else")):
        refused(f"{path}: {OTHERS}", check, path)
        check(path, force=True)


def test_work_that_was_begun_and_stopped_is_its_command_s_own(tmp_path):
    stamp = Stamp(tmp_path / "x", "asr-test", {}, [])
    stamp.begin()
    (tmp_path / "x").write_text("half")
    assert not stamp.is_current()
    check(tmp_path / "x")


@pytest.mark.parametrize("force", [False, True])
def test_an_input_is_never_an_output_by_whatever_name(tmp_path, force):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("in.wav", "folder/a.wav", "s.tar"):
        (tmp_path / name).write_bytes(b"sound")
    os.link(tmp_path / "in.wav", tmp_path / "hard")
    (tmp_path / "soft").symlink_to("in.wav")
    wav, packed = tmp_path / "in.wav", f"{tmp_path}/s.tar:512+3"
    names = dict.fromkeys(("in.wav", "hard", "soft", "folder/../in.wav"), wav)
    for name, given in (names | {"folder/a.wav": folder, "s.tar": packed}).items():
        refused("is an input", check, tmp_path / name, inputs=[given], force=force)
    check(folder / "new.txt", inputs=[folder], force=force)
    check(made(folder / "own.txt"), inputs=[folder], force=force)  # a second time


def test_devices_pipes_sockets_and_folders_are_no_files(tmp_path):
    pipe, bound = str(tmp_path / "pipe"), str(tmp_path / "socket")
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(bound)
    for path in ("/dev/null", "/dev/full", "/dev/stdout", pipe, bound):
        refused("is a device or a pipe; .*- for standard output", check, path, force=True)
        refused("is a device or a pipe", write_text, path, "x")
    for path in (tmp_path, "", f"{tmp_path}/new/", ".", "a\0b"):
        refused("expected the name of a file", write_text, path, "x")
    assert not stat.S_ISREG(os.stat("/dev/null").st_mode)


def test_a_folder_s_files_are_those_of_the_command_that_stamped_it(tmp_path):
    folder = tmp_path / "tokens"
    given = "OUT", folder, ["tokenizer.json"], "asr-test"
    check_folder(*given)
    folder.mkdir()
    (folder / "letters.txt").write_text("not touched")
    check_folder(*given)
    (folder / "tokenizer.json").write_text("{}")
    refused(f"tokenizer.json: {OTHERS}", check_folder, *given)
    Stamp(folder, "asr-train", {}, []).write()
    refused(OTHERS, check_folder, *given)
    Stamp(folder, "asr-test", {}, []).write()
    check_folder(*given)
    refused("is a file; expected a folder", check_folder, "OUT", folder / "letters.txt", [], "x")


def test_an_input_that_is_not_there_is_told_before_anything_is_imported(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    facts = {tmp_path / "no": "no such file", tmp_path / "pipe": "a pipe", "": "''", "a\0b": "x00"}
    for path, fact in facts.items():
        refused(fact, check_inputs, [path])


# --- how files are written


def test_a_file_has_the_rights_that_the_umask_gives(tmp_path):
    path = tmp_path / "text"
    for mask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        before = os.umask(mask)
        try:
            write_text(path, "")
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_link_is_followed_and_stays(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "x").symlink_to("far/x")
    for text in ("old", "new"):
        write_text(tmp_path / "x", text)
        assert (tmp_path / "x").is_symlink() and (tmp_path / "far/x").read_text() == text


def test_what_a_killed_process_left_is_removed_and_a_living_one_s_is_not(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    places = f"{HOST}-{gone.pid}-x", f"{HOST}-{os.getppid()}-x", f"elsewhere-{gone.pid}-x"
    names = [f".partial-{place}" for place in (*places, f"{HOST}-{gone.pid}-y")]
    for name in names:
        (tmp_path / name).write_text("half")
    write_text(tmp_path / "x", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {*names[1:], "x"}


def test_a_long_name_is_told(tmp_path):
    with pytest.raises(UserError, match="File name too long"), replacing(tmp_path / ("x" * 250)):
        pass


# --- the commands


def test_ngram_replaces_a_stranger_s_file_by_force_and_its_own_without(tmp_path):
    """What the commands refuse to replace stands in bad_inputs/."""
    text, tokens, letter = (tmp_path / name for name in ("e.txt", "tokens", "letter"))
    text.write_text("HIGH LOW\nLOW MID\nMID HIGH\n" * 4)
    letter.write_text("dear")
    status_of(tokenizer.main, text, tokens, "--kind", "characters")
    for out, *how in ([text, 2, "--force"], [letter, 2, "--force"], [letter, 3]):  # now its own
        assert status_of(ngram.main, text, tokens, out, "--order", *how) == 2 * (out == text)
    assert "\\data\\" in letter.read_text() and text.read_text().startswith("HIGH")


def test_score_replaces_its_own_counts(tmp_path, capsys):
    ref, own, other = (tmp_path / name for name in ("ref", "own.json", "other.json"))
    ref.write_text("a\tLOW\n")
    other.write_text('{"wer": 3}')
    for out, *force in ([own], [own], [other, "--force"]):
        assert status_of(score.main, ref, ref, "--json", out, *force) == 0
    capsys.readouterr()
    status_of(score.main, ref, ref, "--json", "-")
    assert json.loads(capsys.readouterr().out) == json.loads(other.read_text())
