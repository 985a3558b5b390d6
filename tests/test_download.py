"""Prove that a corpus arrives whole whatever servers, disk and person do to it on the way.

The servers are of this machine and misbehave as told (servers.py); what they were asked for and sent is counted. The
content is random bytes, so whatever arrives is right only if it is the same to the byte.
"""

import errno
import gzip
import hashlib
import importlib
import io
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from servers import Reply, Server

from asr.cli import download as cli
from asr.download import archives, check, disk, fetch, sources
from asr.download import check as listed_files
from asr.download import download as whole
from asr.download.download import download
from asr.download.sources import Part, Source
from asr.errors import UserError
from asr.files import lock

CONTENT = random.Random(1).randbytes(1_000_000)


def tar(files):
    """A .tar.gz of name → bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def sha256(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


SOUND = CONTENT[:300_000]
ARCHIVE = tar({"Toy/SPEAKERS.TXT": b"1 M", "Toy/train/1/2/1-2-3.flac": SOUND})


@pytest.fixture
def toy(server, second, waits, monkeypatch):
    """Make `toy` a corpus of one part, ARCHIVE, which two servers have."""

    def make(data=ARCHIVE, **changes):
        part = {
            "name": "train",
            "servers": (server.url, second.url),
            "path": "9/train.tar.gz",
            "bytes": len(data),
            "target": "Toy/train",
            "unpacked": 400_000,
            "members": 20,
            "digest": sha256(data),
        }
        part = Part(**part | changes)
        monkeypatch.setitem(
            sources.SOURCES, "toy", Source("toy", (part,), "recipes/toy/run.sh --corpus DIR")
        )
        server.serve(part.path, Reply(data))
        second.serve(part.path, Reply(data))
        return part

    make()
    return make


def contents(folder):
    """Name → bytes of all files."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def whole_toy(folder):
    """Whether the toy corpus is there, whole, and nothing else."""
    return contents(folder) == {"Toy/SPEAKERS.TXT": b"1 M", "Toy/train/1/2/1-2-3.flac": SOUND}


def refused(capsys, *arguments):
    """Run the command, which must fail; return its one line."""
    with pytest.raises(SystemExit) as caught:
        cli.main([str(a) for a in arguments])
    assert caught.value.code == 2
    return capsys.readouterr().err.strip().splitlines()[-1].partition(": ")[2]


def test_a_corpus_arrives_and_is_recognized(server, toy, tmp_path, capsys):
    cli.main(["toy", str(tmp_path)])
    assert whole_toy(tmp_path)
    said = capsys.readouterr().err.splitlines()
    room = said.pop(1)
    assert said == [
        f"train: {server.url}/9/train.tar.gz (300 kB) → {tmp_path}/Toy/train",
        f"train: done, {tmp_path}/Toy/train",
    ]
    assert room.startswith(
        "disk: about 700 kB more at its fullest, 400 kB when done; "
    ) and room.endswith("free")
    server.requests.clear()
    cli.main(["toy", str(tmp_path)])
    assert capsys.readouterr().err == f"train: there already, {tmp_path}/Toy/train\n"
    assert whole_toy(tmp_path) and not server.requests


def test_a_dry_run_touches_nothing(server, toy, tmp_path, capsys):
    cli.main(["toy", str(tmp_path / "new/corpora"), "--dry-run"])
    assert "disk: about 700 kB more at its fullest" in capsys.readouterr().err
    assert not (tmp_path / "new").exists() and not server.requests


def test_wrong_content_leads_to_the_next_server(server, second, toy, tmp_path, capsys):
    wrong = tar({"Toy/train/x": b"other"})
    server.serve("9/train.tar.gz", Reply(wrong))
    cli.main(["toy", str(tmp_path)])
    assert whole_toy(tmp_path) and len(second.requests) == 1
    why = f"its sha256 is {sha256(wrong)[7:]}, expected {sha256(ARCHIVE)[7:]}"
    assert f"{server.url}/9/train.tar.gz: {why}" in capsys.readouterr().err.splitlines()


def test_a_missing_file_leads_to_the_next_server(server, second, toy, tmp_path):
    server.serve("9/train.tar.gz", Reply(status=404))
    cli.main(["toy", str(tmp_path)])
    assert whole_toy(tmp_path) and (len(server.requests), len(second.requests)) == (1, 1)


def test_a_named_mirror_is_asked_first(server, second, toy, tmp_path, capsys):
    cli.main(["toy", str(tmp_path / "a"), "--mirror", f"{second.url}/"])
    assert whole_toy(tmp_path / "a") and (len(server.requests), len(second.requests)) == (0, 1)


MIRRORS = r"""
mirror.org/x                   got 'mirror.org/x'
file:///etc                    put a local file into FOLDER
ftp://mirror.org               expected the URL of a server
http://                        expected the URL of a server
http:///x                      expected the URL of a server
http://:80/x                   expected the URL of a server
http://mirror.org:port/        expected the URL of a server
http://mirror.org:99999/       expected the URL of a server
http://[::1/                   expected the URL of a server
\x20http://mirror.org          expected the URL of a server
http://mirror.org/a\x20b       without spaces
http://mirror.org/a\nHost:evil expected the URL of a server
http://mirror.org/\x1b[2J      expected the URL of a server
http://b\xfccher.org/          ASCII
http://mirror.org/?a=b         without spaces, ?
http://mirror.org/#a           without spaces, ?
http://user:secret@mirror.org/ leave that out
"""


@pytest.mark.parametrize("row", MIRRORS.strip().splitlines())
def test_a_mirror_that_is_no_server_is_refused(server, toy, tmp_path, capsys, row):
    mirror, why = row.split(maxsplit=1)
    mirror = mirror.encode().decode("unicode_escape")
    line = refused(capsys, "toy", tmp_path / "b", "--mirror", mirror)
    assert line.startswith("--mirror: ") and why in line
    assert line.isprintable() and "secret" not in line
    assert not server.requests and not (tmp_path / "b").exists()


def test_all_reasons_are_told_where_no_server_has_it(server, second, toy, tmp_path, capsys):
    server.serve("9/train.tar.gz", Reply(status=404))
    second.serve("9/train.tar.gz", Reply(b"<html>log in first</html>"))
    wrong = sha256(b"<html>log in first</html>")[7:]
    assert refused(capsys, "toy", tmp_path) == (
        f"train.tar.gz: no server has all of it (127.0.0.1:{server.server_port}: 404 Not Found; "
        f"127.0.0.1:{second.server_port}: its sha256 is {wrong}, expected {sha256(ARCHIVE)[7:]}); try again later, or "
        f"without a network, put it into {tmp_path} yourself, or use a local copy: recipes/toy/run.sh --corpus DIR"
    )
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_one_sentence_names_the_other_ways(toy, waits, tmp_path, capsys):
    with Server() as gone:
        pass
    toy(servers=(gone.url,))
    assert refused(capsys, "toy", tmp_path) == (
        f"train.tar.gz: no server answers; is there a network? (127.0.0.1:{gone.server_port}: Connection refused); "
        f"without a network, put it into {tmp_path} yourself, or use a local copy: recipes/toy/run.sh --corpus DIR"
    )
    assert waits == [1, 2] and list(tmp_path.iterdir()) == []


def test_what_is_misspelled_is_named(toy, tmp_path, capsys):
    line = refused(capsys, "librispech", tmp_path)
    assert (
        line
        == f"got 'librispech', expected a corpus: {', '.join(sources.SOURCES)}; did you mean 'librispeech'?"
    )
    line = refused(capsys, "toy", tmp_path, "--parts", "trane")
    assert line == "--parts: got 'trane', expected parts of toy: train; did you mean 'train'?"


# --- the disk


def test_a_small_disk_is_told_before_anything_starts(server, toy, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        disk.shutil, "disk_usage", lambda _: disk.shutil._ntuple_diskusage(10**9, 0, 500_000)
    )
    said = f"{tmp_path}: needs 700 kB of disk space, but 500 kB are free; free 200 kB more, "
    said += "choose another folder, or fewer --parts"
    assert refused(capsys, "toy", tmp_path) == said
    assert refused(capsys, "toy", tmp_path, "--dry-run") == said
    assert not server.requests and list(tmp_path.iterdir()) == []


class FullAfter(io.FileIO):
    """A file on a disk that has room for 100 kB more."""

    def write(self, block):
        if self.tell() + len(block) > 100_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(block)


@pytest.mark.parametrize("work", [fetch, archives])
def test_a_disk_that_fills_keeps_what_is_here(server, toy, tmp_path, capsys, monkeypatch, work):
    toy(servers=(server.url,))
    monkeypatch.setattr(fetch, "BLOCK", 10_000)
    with monkeypatch.context() as patch:
        patch.setattr(work, "open", FullAfter, raising=False)
        line = refused(capsys, "toy", tmp_path)
    folder = tmp_path / ".download"
    here = (folder / "train.tar.gz").stat().st_size
    kept = f"{disk.readable(here)} of 300 kB" if work is fetch else f"{folder}/train.tar.gz stays"
    place = folder / ("train.tar.gz" if work is fetch else "train")
    assert line.startswith(f"{place}: can't be written (No space left on device)")
    assert kept in line and line.endswith("run the same command again")
    assert {p.name for p in folder.iterdir()} == {".lock", "train.tar.gz", "train.tar.gz.json"}
    server.requests.clear()
    cli.main(["toy", str(tmp_path)])
    assert whole_toy(tmp_path)
    assert 90_000 < here <= 100_000 or work is archives
    assert [r.range for r in server.requests] == [f"bytes={here}-"] * (work is fetch)


def test_the_need_is_the_fullest_moment_of_a_walk_through_the_work():
    numbers = random.Random(3)
    for keep, _ in itertools.product((False, True), range(50)):
        parts = [(numbers.randint(0, 9), numbers.choice([0, 5, 20])) for _ in range(4)]
        levels = [0]
        for fetched, unpacked in parts:
            levels += [levels[-1] + fetched, levels[-1] + fetched + unpacked]
            if unpacked and not keep:
                levels.append(levels[-1] - fetched)
        assert disk.need(parts, keep) == disk.Need(max(levels), levels[-1])


def test_sizes_are_said_in_words():
    sizes = [0, 999, 1200, 337_926_286, 999_999_999, 23_049_477_885, 1_234_567_890_123, None]
    said = "0 bytes, 999 bytes, 1.20 kB, 338 MB, 1000 MB, 23.0 GB, 1235 GB, an unknown length"
    assert ", ".join(map(disk.readable, sizes)) == said


# --- interruptions


def test_an_interrupted_fetch_goes_on(server, toy, tmp_path, monkeypatch, capsys):
    receive, blocks = fetch.receive, itertools.count()

    def interrupted(answer):
        if next(blocks) == 2:
            raise KeyboardInterrupt
        return receive(answer)

    monkeypatch.setattr(fetch, "BLOCK", 50_000)
    with monkeypatch.context() as patch:
        patch.setattr(fetch, "receive", interrupted)
        with pytest.raises(SystemExit) as caught:
            cli.main(["toy", str(tmp_path)])
    assert caught.value.code == 130
    assert capsys.readouterr().err.endswith("stopped; run the same command again to go on\n")
    here = (tmp_path / ".download/train.tar.gz").stat().st_size
    server.requests.clear()
    cli.main(["toy", str(tmp_path)])
    assert f"left) → {tmp_path}/Toy/train" in capsys.readouterr().err
    assert whole_toy(tmp_path) and [r.range for r in server.requests] == [f"bytes={here}-"] and here


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("work", ["install", "remove"])
def test_an_interrupted_unpacking_is_redone(server, toy, tmp_path, monkeypatch, work):
    """Before the corpus is in its place, and before the archive is removed."""
    with monkeypatch.context() as patch:
        patch.setattr(whole, work, interrupt)
        with pytest.raises(KeyboardInterrupt):
            download("toy", tmp_path)
    assert (tmp_path / ".download/train.tar.gz").exists()
    assert (tmp_path / "Toy").exists() == (work == "remove")
    if work == "install":
        (tmp_path / ".download/train/Toy/train/1/2/1-2-3.flac").write_bytes(b"half")
        (tmp_path / ".download/train/Toy/train/more").write_bytes(b"")
    server.requests.clear()
    download("toy", tmp_path)
    assert whole_toy(tmp_path) and not server.requests


COMMAND = """
import sys
from asr.cli import download
from asr.download import sources
part = sources.Part(**eval(sys.argv.pop(1)))
sources.SOURCES["toy"] = sources.Source("toy", (part,), "")
download.main()
"""


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize(
    "number, status", [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_signal_stops_the_command_and_it_goes_on(server, toy, tmp_path, number, status):
    """The command itself, in a process that is stopped while it waits."""
    part = toy()
    server.serve(part.path, Reply(ARCHIVE, cut=200_000), Reply(status=503))
    command = [sys.executable, "-c", COMMAND, repr(vars(part)), "toy", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while (
            len(server.requests) < 2 and process.poll() is None
        ):  # then it waits between its tries
            time.sleep(0.01)
        process.send_signal(number)
        said = process.communicate()[1]
    assert process.returncode in (status, 128 + number)
    assert number != signal.SIGINT or "stopped; run the same command again to go on" in said
    server.serve(part.path, Reply(ARCHIVE))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert whole_toy(tmp_path) and [r.range for r in server.requests] == ["bytes=200000-"]


def test_two_processes_do_not_share_a_folder(toy, tmp_path, capsys, monkeypatch):
    (tmp_path / ".download").mkdir()
    script = "from asr.files import lock; import sys; _ = lock(sys.argv[1]); print(); input()"
    command = [sys.executable, "-c", script, tmp_path / ".download"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        line = refused(capsys, "toy", tmp_path)
        other.communicate(b"\n")
    assert line.startswith(f"{tmp_path}/.download: another process is at work in it")
    lock(tmp_path / ".download").close()


# --- archives


def test_archives_within_the_archive_are_unpacked_and_removed(server, toy, tmp_path, capsys):
    """AISHELL's layout, as its reader wants it."""
    speakers = {
        f"data_aishell/wav/S{n}.tar.gz": tar({f"{s}/S{n}/a{n}.wav": SOUND})
        for n, s in enumerate(("train", "dev"))
    }
    transcripts = {"data_aishell/transcript/aishell_transcript_v0.8.txt": "a0 一\na1 二\n".encode()}
    data = tar(speakers | transcripts)
    toy(data, target="data_aishell", nested="wav/*.tar.gz", path="33/data_aishell.tgz")
    cli.main(["toy", str(tmp_path)])
    assert set(contents(tmp_path / "data_aishell")) == {
        "wav/train/S0/a0.wav",
        "wav/dev/S1/a1.wav",
        "transcript/aishell_transcript_v0.8.txt",
    }
    corpus = importlib.import_module("asr.data.corpora.aishell").read(tmp_path)
    assert {split: [item.text for item in items] for split, items in corpus.splits.items()} == {
        "train": ["一"],
        "dev": ["二"],
    }


def test_a_copy_whose_inner_archives_are_left_is_completed(server, toy, tmp_path, capsys):
    """As unpacking by hand, or an interrupted call, leaves it."""
    toy(target="data_aishell", nested="wav/*.tar.gz", bytes=100_000)
    inner = tmp_path / "data_aishell/wav/S2.tar.gz"
    inner.parent.mkdir(parents=True)
    whole = tar({"test/S2/a2.wav": SOUND})
    inner.write_bytes(whole[:-8] + bytes(8))
    assert refused(capsys, "toy", tmp_path).startswith(f"{inner}: damaged (CRC check failed")
    inner.write_bytes(whole)
    cli.main(["toy", str(tmp_path)])
    said = capsys.readouterr().err
    there = f"train: {tmp_path}/data_aishell is there, with archives still to unpack or remove"
    assert f"{there}\ndisk: about 1.20 MB more" in said
    assert (inner.parent / "test/S2/a2.wav").read_bytes() == SOUND and not inner.exists()
    assert not server.requests


def test_a_file_that_is_read_as_it_is_stays_as_it_is(toy, tmp_path):
    text = gzip.compress(b"A SENTENCE\n")
    toy(text, path="11/lm.txt.gz", target="lm.txt.gz", unpacked=0)
    assert download("toy", tmp_path) == [tmp_path / "lm.txt.gz"]
    assert [p.name for p in tmp_path.iterdir()] == ["lm.txt.gz"] and (
        tmp_path / "lm.txt.gz"
    ).read_bytes() == text


def test_archives_are_kept_when_asked(toy, tmp_path):
    cli.main(["toy", str(tmp_path), "--keep-archives"])
    assert (tmp_path / "train.tar.gz").read_bytes() == ARCHIVE
    (tmp_path / "train.tar.gz").unlink()
    assert whole_toy(tmp_path)


def test_an_archive_at_hand_is_taken_checked_and_left(server, toy, tmp_path, capsys):
    (tmp_path / "train.tar.gz").write_bytes(ARCHIVE[:-1])
    line = refused(capsys, "toy", tmp_path)
    why = f"its sha256 is {sha256(ARCHIVE[:-1])[7:]}, expected {sha256(ARCHIVE)[7:]}"
    assert line == f"{tmp_path}/train.tar.gz: {why}; remove it to fetch it again"
    (tmp_path / "train.tar.gz").write_bytes(ARCHIVE)
    cli.main(["toy", str(tmp_path)])
    assert (tmp_path / "train.tar.gz").read_bytes() == ARCHIVE and not server.requests
    (tmp_path / "train.tar.gz").unlink()
    assert whole_toy(tmp_path)


# --- archives that mean harm


def escape(target):
    """A .tar.gz that makes tarfile's filter="data" write outside, on Pythons before June 2025 (CVE-2025-4517).

    Links of one letter lead to folders of 247; what they lead to together is longer than PATH_MAX, so realpath gives up
    and takes the rest for what it seems. A link there leads sixteen folders up, to where the archive is unpacked, and
    sixteen more lead out of it. On Python 3.11.7 tarfile writes target/evil.
    """
    buffer, folder, short = io.BytesIO(), "d" * 247, "abcdefghijklmnop"
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:

        def add(name, kind, link="", data=b""):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, link, len(data)
            archive.addfile(member, io.BytesIO(data))

        path = ""
        for letter in short:
            add(os.path.join(path, folder), tarfile.DIRTYPE)
            add(os.path.join(path, letter), tarfile.SYMTYPE, folder)
            path = os.path.join(path, folder)
        far = "/".join(short) + "/" + "l" * 254
        add(far, tarfile.SYMTYPE, "../" * len(short))
        add("escape", tarfile.SYMTYPE, far + "/.." * len(short) + str(target))
        add("escape/evil", tarfile.REGTYPE, data=b"evil")
        add("Toy/train/x", tarfile.REGTYPE, data=b"x")
    return buffer.getvalue()


def whatever_is_there(folder):
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


def test_links_through_a_path_that_is_too_long_write_nothing_outside(toy, tmp_path, capsys):
    """The whole way, from a server; the archive even has the digest that is published."""
    (tmp_path / "home").mkdir()
    before = whatever_is_there(tmp_path / "home")
    toy(escape(tmp_path / "home"))
    line = refused(capsys, "toy", tmp_path / "corpora")
    assert "refused" in line and "symbolic link" in line
    assert whatever_is_there(tmp_path / "home") == before
    assert list((tmp_path / "corpora").iterdir()) == []


def evil_tar(**changes):
    """An archive with a member that leads out of its folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("Toy/train/../../../evil")
        for name, value in changes.items():
            setattr(member, name, value)
        archive.addfile(member)
    return buffer.getvalue()


def evil_zip(name):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, b"")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data, why",
    [
        (evil_tar(), "leads out"),
        (
            evil_tar(name="Toy/train/link", type=tarfile.SYMTYPE, linkname="../../../evil"),
            "symbolic link",
        ),
        (
            evil_tar(name="Toy/train/link", type=tarfile.LNKTYPE, linkname="../../../evil"),
            "hard link",
        ),
        (evil_tar(name="Toy/train/device", type=tarfile.CHRTYPE), "device"),
        (evil_tar(name="Toy/" + "a" * 5000), "too long"),
        (tar({f"Toy/train/{n}": bytes(100_000) for n in range(20)}), "more than the corpus"),
        (tar({f"Toy/train/{n}": b"" for n in range(50)}), "more files and folders"),
        (tar({"Other/x": b"y"}), "holds no Toy/train"),
        (tar({"Toy/train": b"y"}), "holds no Toy/train"),
        (gzip.compress(b"text" * 1000), "damaged"),
        (evil_zip("Toy/train/../../../evil"), "leads out"),
        (evil_zip("/evil"), "leads out"),
    ],
    ids=[
        "up",
        "link",
        "hard link",
        "device",
        "long name",
        "bytes",
        "members",
        "other",
        "file",
        "text",
        "zip up",
        "zip /",
    ],
)
def test_an_archive_that_is_no_corpus_is_refused_and_the_disk_is_as_before(
    toy, tmp_path, capsys, data, why
):
    name = "train.zip" if data[:2] == b"PK" else "train.tar.gz"
    toy(data, path=f"9/{name}")
    line = refused(capsys, "toy", tmp_path / "corpora")
    assert (
        line.startswith(f"{tmp_path}/corpora/.download/{name}: ")
        and why in line
        and line.isprintable()
    )
    assert [p.name for p in tmp_path.iterdir()] == ["corpora"] and not list(
        (tmp_path / "corpora").iterdir()
    )


def test_a_bad_archive_at_hand_is_named_and_left(toy, tmp_path, capsys):
    """It is the person's; only they may remove it."""
    data = evil_tar()
    toy(data)
    (tmp_path / "train.tar.gz").write_bytes(data)
    assert "remove it; run the same command to fetch it again" in refused(capsys, "toy", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["train.tar.gz"]


def test_files_beside_the_corpus_do_not_come_among_the_persons(toy, tmp_path):
    """FOLDER may be anybody's home, and .bashrc a name like others."""
    (tmp_path / ".bashrc").write_bytes(b"mine")
    data = tar({".bashrc": b"evil", "toy.zip": b"evil", "Toy/x": SOUND, "Other/y": b"z"})
    toy(data, target="Toy")
    cli.main(["toy", str(tmp_path)])
    assert contents(tmp_path) == {".bashrc": b"mine", "Toy/x": SOUND}


def test_archives_within_the_archive_are_bounded_together(toy, tmp_path, capsys):
    inner = {
        f"data_aishell/wav/S{n}.tar.gz": tar({f"train/S{n}/a.wav": bytes(300_000)})
        for n in range(4)
    }
    toy(tar(inner), target="data_aishell", nested="wav/*.tar.gz")
    line = refused(capsys, "toy", tmp_path)
    assert (
        line.startswith(f"{tmp_path}/data_aishell/wav/S2.tar.gz: refused, ")
        and "more than the corpus" in line
    )
    assert sorted(p.name for p in (tmp_path / "data_aishell/wav").iterdir()) == [
        "S2.tar.gz",
        "S3.tar.gz",
        "train",
    ]
    (tmp_path / "data_aishell/wav/S2.tar.gz").write_bytes(evil_tar())
    assert "leads out" in refused(capsys, "toy", tmp_path)


def test_a_stopped_unpacking_of_an_archive_within_is_redone(toy, tmp_path, monkeypatch):
    data = tar(
        {"data_aishell/wav/S0.tar.gz": tar({"train/S0/a.wav": SOUND, "train/S0/b.wav": b"b"})}
    )
    toy(data, target="data_aishell", nested="wav/*.tar.gz")
    with monkeypatch.context() as patch:
        patch.setattr(archives, "merge", interrupt)
        with pytest.raises(KeyboardInterrupt):
            download("toy", tmp_path)
    wav = tmp_path / "data_aishell/wav"
    (wav / "train/S0").mkdir(parents=True)
    (wav / "train/S0/a.wav").write_bytes(b"half")  # as if stopped between two files
    download("toy", tmp_path)
    assert contents(wav) == {"train/S0/a.wav": SOUND, "train/S0/b.wav": b"b"}
    assert {p.name for p in wav.iterdir()} == {"train"}


# --- where nothing is published of the archive: the files in it


LISTED = {
    "toy/README": b"read me",
    "toy/etc/x": b"a text",
    "toy/wav/a.sph": SOUND,
    "toy/wav/b.sph": SOUND[:9],
}


@pytest.fixture
def listed(toy, monkeypatch):
    """Make the toy corpus one of a list of SHA-256."""
    monkeypatch.setattr(
        listed_files, "read_list", lambda _: {n: sha256(d)[7:] for n, d in LISTED.items()}
    )
    monkeypatch.setattr(check, "read_list", listed_files.read_list)
    monkeypatch.setattr(whole, "read_list", listed_files.read_list)
    return lambda files: toy(tar(files), target="toy", digest="", files="toy.sha256")


def test_listed_files_arrive_and_no_others(listed, tmp_path, capsys):
    listed(LISTED | {"toy/etc/more": b"1", ".bashrc": b"2"} | {"toy/README": b"another"})
    cli.main(["toy", str(tmp_path)])
    assert contents(tmp_path) == {
        name: data for name, data in LISTED.items() if name != "toy/README"
    }
    said = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert len(said) == 1 and all(
        name in said[0] for name in (".bashrc", "toy/README", "toy/etc/more")
    )


@pytest.mark.parametrize(
    "changes, why",
    [
        (
            {"toy/wav/a.sph": SOUND[:-1] + b"!"},
            "SHA-256 differs from the published one: toy/wav/a.sph",
        ),
        ({"toy/etc/x": b""}, "SHA-256 differs from the published one: toy/etc/x"),
        ({"toy/wav/b.sph": None}, "missing: toy/wav/b.sph"),
    ],
)
def test_an_altered_file_leads_to_the_next_server(
    listed, server, second, tmp_path, capsys, changes, why
):
    part = listed(LISTED)
    wrong = tar({name: data for name, data in (LISTED | changes).items() if data is not None})
    server.serve(part.path, Reply(wrong))
    cli.main(["toy", str(tmp_path)])
    assert (tmp_path / "toy/wav/a.sph").read_bytes() == SOUND and len(second.requests) == 1
    assert f"{server.url}/9/train.tar.gz: {why}" in capsys.readouterr().err.splitlines()
    (tmp_path / "b").mkdir()
    (tmp_path / "b/train.tar.gz").write_bytes(wrong)
    assert (
        refused(capsys, "toy", tmp_path / "b")
        == f"{tmp_path}/b/train.tar.gz: {why}; remove it to fetch it again"
    )


@pytest.mark.parametrize(
    "data",
    [ARCHIVE[:-20], ARCHIVE[:-8] + bytes(8), b"<html>log in first</html>", evil_tar()],
    ids=["cut off", "wrong sum", "a page", "a trick"],
)
def test_what_is_no_archive_leads_to_the_next_server(listed, server, second, tmp_path, data):
    part = listed(LISTED)
    server.serve(part.path, Reply(data))
    cli.main(["toy", str(tmp_path)])
    assert (tmp_path / "toy/wav/a.sph").read_bytes() == SOUND and len(second.requests) == 1


def test_files_are_checked_after_unpacking(listed, tmp_path, capsys, monkeypatch):
    """A disk that gives other bytes than it was given: what is found is what was unpacked, not what was checked."""

    def flip(archive, folder, budget):
        archives.unpack(archive, folder, budget)
        (folder / "toy/wav/a.sph").write_bytes(SOUND[:-1] + b"!")

    listed(LISTED)
    monkeypatch.setattr(whole, "unpack", flip)
    assert "SHA-256 differs from the published one: toy/wav/a.sph" in refused(
        capsys, "toy", tmp_path
    )
    assert list(tmp_path.iterdir()) == []


def test_the_copy_of_an4_is_as_listed_and_one_other_bit_is_found(shared_data, tmp_path):
    if not (shared_data / "an4").is_dir():
        pytest.skip("no AN4")
    listed = listed_files.read_list("an4.sha256")
    shutil.copytree(shared_data / "an4", tmp_path / "an4", copy_function=shutil.copyfile)
    for path in (tmp_path / "an4").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert listed_files.retain(listed, tmp_path) == []
    sound = tmp_path / "an4/wav/an4_clstk/fash/an251-fash-b.sph"
    data = bytearray(sound.read_bytes())
    data[2000] ^= 1
    sound.write_bytes(data)
    with pytest.raises(fetch.DownloadError, match="an4/wav/an4_clstk/fash/an251-fash-b.sph"):
        listed_files.retain(listed, tmp_path)


def test_an4_arrives(shared_data, tmp_path, capsys):
    """The copy at hand, packed; with a dictionary as in the published archive, and without the license."""
    if not (shared_data / "an4").is_dir():
        pytest.skip("no AN4")
    with tarfile.open(tmp_path / "an4_sphere.tar.gz", "w:gz", compresslevel=0) as archive:
        archive.add(
            shared_data / "an4", "an4", filter=lambda m: None if m.name.endswith("LICENSE") else m
        )
        archive.addfile(tarfile.TarInfo("an4/etc/an4.dic"))
    cli.main(["an4", str(tmp_path)])
    assert "an4/etc/an4.dic" in capsys.readouterr().err
    files = [path for path in (tmp_path / "an4").rglob("*") if path.is_file()]
    assert len(files) == 1083 and {p.name for p in tmp_path.iterdir()} == {
        "an4",
        "an4_sphere.tar.gz",
    }
    corpus = importlib.import_module("asr.data.corpora.an4").read(tmp_path)
    assert {name: len(items) for name, items in corpus.splits.items()} == {
        "train": 948,
        "test": 130,
    }


def test_the_list_of_an4_is_what_sha256sum_reads():
    listed = listed_files.read_list("an4.sha256")
    sounds = [name for name in listed if name.endswith(".sph")]
    assert len(sounds) == 948 + 130 and len(listed) == 1084
    assert all(
        name.startswith("an4/") and len(digest) == 64 and int(digest, 16)
        for name, digest in listed.items()
    )
    root = Path(__file__).parents[1]
    assert (
        '"asr.download" = ["*.sha256"]' in (root / "pyproject.toml").read_text()
    )  # it comes with a wheel
    for line in (root / "asr/download/an4.sha256").read_text().splitlines():
        assert re.fullmatch("[0-9a-f]{64}  an4/[A-Za-z0-9_./-]+", line)


# --- folders


def test_a_folder_that_cannot_be_one_is_refused(server, toy, tmp_path, capsys):
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("absent")
    names = ["file", "file/x", "loop", "loop/x", "nowhere", "a" * 300, "a/" * 3000]
    for folder in ["", *(tmp_path / name for name in names)]:
        for more in ([], ["--dry-run"]):
            said = refused(capsys, "toy", folder, *more)
            assert (
                said.startswith(f"{folder}: ")
                if folder
                else "FOLDER: got '', an empty name" in said
            )
    assert not server.requests and (tmp_path / "file").read_bytes() == b"mine"
    with pytest.raises(UserError):
        download("toy", "a\0b")


def test_a_folder_that_is_not_ours_to_write_is_refused(server, toy, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(whole.os, "access", lambda path, _: path != tmp_path)
    for more in ([], ["--dry-run"]):
        assert f"can't write into {tmp_path} (" in refused(capsys, "toy", tmp_path / "a/b", *more)
    assert not server.requests and list(tmp_path.iterdir()) == []
    (tmp_path / "Toy/train/1").mkdir(parents=True)
    cli.main(["toy", str(tmp_path)])  # all is there; nothing is to be written


@pytest.mark.parametrize(
    "name", ["Toy/train", "train.tar.gz", ".download", ".download/train.tar.gz", ".download/train"]
)
def test_a_name_that_leads_elsewhere_is_not_followed(server, toy, tmp_path, capsys, name):
    (tmp_path / "mine").write_bytes(b"precious")
    link = tmp_path / "corpora" / name
    link.parent.mkdir(parents=True)
    for aim in (tmp_path / "mine", tmp_path / "absent"):
        link.symlink_to(aim)
        if name == "train.tar.gz" and aim.exists():
            assert "its sha256 is" in refused(
                capsys, "toy", tmp_path / "corpora"
            )  # a person's link to an archive
        else:
            assert str(link) in refused(capsys, "toy", tmp_path / "corpora")
        link.unlink()
    assert (tmp_path / "mine").read_bytes() == b"precious" and not (tmp_path / "absent").exists()
    assert not server.requests


def test_an_error_of_the_disk_is_one_line(toy, tmp_path, capsys, monkeypatch):
    (tmp_path / "Toy").write_bytes(b"a file where LibriSpeech/ would be")
    line = refused(capsys, "toy", tmp_path)
    assert "can't be written" in line and str(tmp_path) in line


def test_parts_given_twice_are_one(toy, tmp_path, capsys):
    cli.main(["toy", str(tmp_path), "--parts", "train", "train"])
    assert capsys.readouterr().err.count("done") == 2  # the disk's line, and the part's


# --- formats


def test_a_zip_is_unpacked(toy, tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Toy/SPEAKERS.TXT", b"1 M")
        archive.writestr("Toy/train/1/2/1-2-3.flac", SOUND)
    toy(buffer.getvalue(), path="28/toy.zip")
    cli.main(["toy", str(tmp_path)])
    assert whole_toy(tmp_path)


# --- what is known of the corpora


def test_checksums_are_those_that_torchaudio_ships():
    try:
        librispeech = importlib.import_module("torchaudio.datasets.librispeech")
    except (ImportError, RuntimeError, OSError) as error:  # as beside a PyTorch of another CUDA
        pytest.skip(f"torchaudio can't be loaded: {error}")
    theirs = {
        url.rpartition("/")[2]: f"sha256:{digest}" for url, digest in librispeech._CHECKSUMS.items()
    }
    assert {part.file: part.digest for part in sources.SOURCES["librispeech"].parts} == theirs
    yesno = importlib.import_module("torchaudio.datasets.yesno")._RELEASE_CONFIGS["release1"]
    (part,) = sources.SOURCES["yesno"].parts
    assert part.digest == f"sha256:{yesno['checksum']}" and part.urls()[0].endswith(
        yesno["url"].partition("//")[2]
    )


def test_every_source_is_whole():
    for name, source in sources.SOURCES.items():
        assert source.name == name and len({part.name for part in source.parts}) == len(
            source.parts
        )
        for part in source.parts:
            algorithm, _, digest = part.digest.partition(":")
            assert len(digest) == {"sha256": 64, "md5": 32, "": 0}[algorithm]
            assert part.unpacked >= part.bytes or (part.unpacked == 0 and part.target == part.file)
            assert bool(digest) != bool(part.files) and (part.members > 0) == (part.unpacked > 0)
            assert all(url.startswith("https://") for url in part.urls()[:-1]), (
                "http is the last resort"
            )


def test_help_imports_nothing_that_takes_long():
    heavy = "{'urllib.request', 'tarfile', 'tqdm', 'torch'}"
    script = f"import sys, asr.cli.download; print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout
        == "[]\n"
    )
