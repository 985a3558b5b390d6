"""No command writes over an input, a device, or somebody else's file: each is tried, and the bytes are compared."""

import json
import os
import socket
import stat
import subprocess
import sys

import pytest

from asr.cli import ngram, score, tokenizer
from asr.errors import UserError
from asr.files import HOST, replacing, write_text
from asr.outputs import check_folder, check_inputs, check_output
from asr.stamp import Stamp


def check(path, inputs=(), force=False):
    check_output("--out", path, "asr-test", inputs, force)


def made(path, command="asr-test"):
    """A file that a command has made."""
    path.write_text("made")
    Stamp(path, command, {}, []).write()
    return path


def test_an_output_is_new_or_its_command_s_own(tmp_path):
    check(tmp_path / "new.txt")
    check(made(tmp_path / "own.txt"))
    foreign = tmp_path / "foreign.txt"
    foreign.write_text("a letter")
    for path in (foreign, made(tmp_path / "other.txt", "asr-else")):
        with pytest.raises(UserError, match=rf"{path}: is there already.*--force"):
            check(path)
        check(path, force=True)


def test_work_that_was_begun_and_stopped_is_its_command_s_own(tmp_path):
    stamp = Stamp(tmp_path / "x", "asr-test", {}, [])
    stamp.begin()
    (tmp_path / "x").write_text("half")
    assert not stamp.is_current()
    check(tmp_path / "x")


@pytest.mark.parametrize("force", [False, True])
def test_an_input_is_never_an_output_by_whatever_name(tmp_path, force):
    given = tmp_path / "in.wav"
    given.write_bytes(b"sound")
    os.link(given, tmp_path / "hard")
    (tmp_path / "soft").symlink_to(given)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.wav").write_bytes(b"sound")
    for path in ("in.wav", "hard", "soft", "folder/../in.wav"):
        with pytest.raises(UserError, match="is an input"):
            check(tmp_path / path, [given], force)
    with pytest.raises(UserError, match="is an input"):
        check(tmp_path / "folder/a.wav", [tmp_path / "folder"], force)
    (tmp_path / "shard.tar").write_bytes(b"sounds")
    with pytest.raises(UserError, match="is an input"):
        check(tmp_path / "shard.tar", [f"{tmp_path}/shard.tar:512+3"], force)
    check(tmp_path / "folder/new.txt", [tmp_path / "folder"], force)
    check(made(tmp_path / "folder/own.txt"), [tmp_path / "folder"], force)  # a second time


def test_devices_pipes_sockets_and_folders_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    for path in ("/dev/null", "/dev/full", "/dev/stdout", tmp_path / "pipe", tmp_path / "socket"):
        with pytest.raises(
            UserError,
            match="is a device or a pipe; expected a file's name, or - for standard output",
        ):
            check(path, force=True)
        with pytest.raises(UserError, match="is a device or a pipe"):
            write_text(path, "x")
    for path in (tmp_path, "", f"{tmp_path}/new/", ".", "a\0b"):
        with pytest.raises(UserError, match="expected the name of a file"):
            write_text(path, "x")
    assert not stat.S_ISREG(os.stat("/dev/null").st_mode)


def test_a_folder_s_files_are_those_of_the_command_that_stamped_it(tmp_path):
    folder = tmp_path / "tokens"
    check_folder("OUT", folder, ["tokenizer.json"], "asr-tokenizer")
    folder.mkdir()
    (folder / "letters.txt").write_text("not touched")
    check_folder("OUT", folder, ["tokenizer.json"], "asr-tokenizer")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(
        UserError, match="tokenizer.json: is there already, and asr-tokenizer did not make it"
    ):
        check_folder("OUT", folder, ["tokenizer.json"], "asr-tokenizer")
    Stamp(folder, "asr-train", {}, []).write()
    with pytest.raises(UserError, match="did not make it"):
        check_folder("OUT", folder, ["tokenizer.json"], "asr-tokenizer")
    Stamp(folder, "asr-tokenizer", {}, []).write()
    check_folder("OUT", folder, ["tokenizer.json"], "asr-tokenizer")
    with pytest.raises(UserError, match="is a file; expected a folder"):
        check_folder("OUT", folder / "letters.txt", [], "asr-tokenizer")


def test_an_input_that_is_not_there_is_told_before_anything_is_imported(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, fact in (
        (tmp_path / "no", "no such file"),
        (tmp_path / "pipe", "a pipe"),
        ("", "''"),
        ("a\0b", "x00"),
    ):
        with pytest.raises(UserError, match=fact):
            check_inputs([path])


# --- how files are written


def test_a_file_has_the_rights_that_the_umask_gives(tmp_path):
    script = (
        "import os, sys, torch; os.umask(int(sys.argv[1], 8)); from safetensors.torch import save_file\n"
        "from asr.files import replacing, write_text; from asr.models.folder import save_weights\n"
        "save_weights(torch.nn.Linear(2, 2), __import__('pathlib').Path('weights')); write_text('text', '')"
    )
    for mask, mode in (("022", 0o644), ("077", 0o600), ("002", 0o664)):
        subprocess.run([sys.executable, "-c", script, mask], cwd=tmp_path, check=True)
        assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("weights", "text")} == {
            mode
        }


def test_a_link_is_followed_and_stays(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far/x").write_text("old")
    (tmp_path / "x").symlink_to("far/x")
    write_text(tmp_path / "x", "new")
    assert (tmp_path / "x").is_symlink() and (tmp_path / "far/x").read_text() == "new"


def test_what_a_killed_process_left_is_removed_and_a_living_one_s_is_not(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = [
        f".partial-{HOST}-{gone.pid}-x",
        f".partial-{HOST}-{os.getppid()}-x",
        f".partial-elsewhere-{gone.pid}-x",
    ]
    names.append(f".partial-{HOST}-{gone.pid}-y")
    for name in names:
        (tmp_path / name).write_text("half")
    write_text(tmp_path / "x", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[1:], "x"])


def test_a_long_name_is_told(tmp_path):
    with pytest.raises(UserError, match="File name too long"), replacing(tmp_path / ("x" * 250)):
        pass


# --- the commands


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "e.txt").write_text("HIGH LOW\nLOW MID\nMID HIGH\n" * 4)
    tokenizer.main([str(tmp_path / "e.txt"), str(tmp_path / "tokens"), "--kind", "characters"])
    return tmp_path


def refused(capsys, main, *arguments):
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    assert caught.value.code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_ngram_and_tokenizer_leave_inputs_and_strangers_files_alone(texts, capsys):
    text, tokens, order = texts / "e.txt", texts / "tokens", ["--order", "2"]
    before = {path: path.read_bytes() for path in (text, tokens / "tokenizer.json")}
    assert "is an input" in refused(capsys, ngram.main, text, tokens, text, *order, "--force")
    assert "is an input" in refused(
        capsys, ngram.main, text, tokens, tokens / "tokenizer.json", *order, "--force"
    )
    (texts / "letter").write_text("dear")
    assert "--force" in refused(capsys, ngram.main, text, tokens, texts / "letter", *order)
    (texts / "mine").mkdir()
    (texts / "mine/tokenizer.json").write_text("{}")
    assert "--force" in refused(
        capsys, tokenizer.main, text, texts / "mine", "--kind", "characters"
    )
    assert "is a device" in refused(capsys, ngram.main, text, tokens, "/dev/null", *order)
    assert "no such file" in refused(capsys, ngram.main, texts / "no", tokens, texts / "x", *order)
    assert {path: path.read_bytes() for path in before} == before and (
        texts / "letter"
    ).read_text() == "dear"
    ngram.main([str(a) for a in (text, tokens, texts / "letter", *order, "--force")])
    ngram.main([str(a) for a in (text, tokens, texts / "letter", "--order", "3")])  # now its own
    assert "\\data\\" in (texts / "letter").read_text()


def test_score_writes_over_its_own_counts_alone(tmp_path, capsys):
    for name in ("ref", "hyp"):
        (tmp_path / name).write_text("a\tLOW\n")
    pair = [str(tmp_path / "ref"), str(tmp_path / "hyp"), "--json"]
    assert "is an input" in refused(capsys, score.main, *pair, tmp_path / "hyp", "--force")
    (tmp_path / "other.json").write_text('{"wer": 3}')
    assert "--force" in refused(capsys, score.main, *pair, tmp_path / "other.json")
    for _ in range(2):
        score.main([*pair, str(tmp_path / "own.json")])
    score.main([*pair, str(tmp_path / "other.json"), "--force"])
    capsys.readouterr()
    score.main([*pair, "-"])
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "other.json").read_text())


def test_a_missing_hypothesis_is_refused_or_counted_as_deletions_and_never_left_out(
    tmp_path, capsys
):
    (tmp_path / "ref").write_text("a\tLOW MID\nb\tHIGH\nc\tLOW\n")
    (tmp_path / "hyp").write_text("a\tLOW MID\nc\tLOW\n")
    pair = [str(tmp_path / "ref"), str(tmp_path / "hyp")]
    line = refused(capsys, score.main, *pair)
    assert "1 missing (b)" in line and "deletions for --missing" in line
    score.main([*pair, "--missing", "deletions", "--unit", "word"])
    out, err = capsys.readouterr()
    assert (
        "WER 25.00 %" in out
        and "del 1, ins 0 of 4 words" in out
        and "1 of 3 utterances wrong" in out
    )
    assert "1 missing, counted as deletions (b)" in err
    (tmp_path / "hyp").write_text("a\tLOW MID\nc\tLOW\nd\tLOW\n")
    assert "that" in refused(capsys, score.main, *pair, "--missing", "deletions")  # d is a stranger
