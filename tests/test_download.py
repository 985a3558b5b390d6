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
import signal
import subprocess
import sys
import tarfile
import time
import zipfile

import pytest
from servers import Reply, Server

from asr.cli import download as cli
from asr.download import disk, fetch, sources
from asr.download import download as whole
from asr.download.download import download
from asr.download.sources import Part, Source
from asr.files import hold

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
            "digest": sha256(data),
        }
        part = Part(**part | changes)
        monkeypatch.setitem(sources.SOURCES, "toy", Source("toy", (part,), "recipes/toy/run.sh --corpus DIR"))
        server.serve(part.path, Reply(data))
        second.serve(part.path, Reply(data))
        return part

    make()
    return make


def whole_toy(folder):
    """Whether the toy corpus is there, whole, and nothing else."""
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return files == {"Toy/SPEAKERS.TXT": b"1 M", "Toy/train/1/2/1-2-3.flac": SOUND}


def refused(capsys, *arguments):
    """Run the command, which must fail; return its one line."""
    with pytest.raises(SystemExit) as caught:
        cli.main([str(a) for a in arguments])
    assert caught.value.code == 2
    return capsys.readouterr().err.strip().splitlines()[-1].partition(": ")[2]


def test_a_corpus_arrives_and_is_recognised(server, toy, tmp_path, capsys):
    cli.main(["toy", str(tmp_path)])
    assert whole_toy(tmp_path)
    said = capsys.readouterr().err.splitlines()
    room = said.pop(1)
    assert said == [
        f"train: {server.url}/9/train.tar.gz (300 kB) → {tmp_path}/Toy/train",
        f"train: done, {tmp_path}/Toy/train",
    ]
    assert room.startswith("disk: about 700 kB more at its fullest, 400 kB when done; ") and room.endswith("are free")
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
    line = refused(capsys, "toy", tmp_path / "b", "--mirror", "mirror.org/x")
    assert line == "--mirror: got 'mirror.org/x', expected a server's URL, http://... or https://..."


def test_all_reasons_are_told_where_no_server_has_it(server, second, toy, tmp_path, capsys):
    server.serve("9/train.tar.gz", Reply(status=404))
    second.serve("9/train.tar.gz", Reply(b"<html>log in first</html>"))
    wrong = sha256(b"<html>log in first</html>")[7:]
    assert refused(capsys, "toy", tmp_path) == (
        f"train.tar.gz: no server has it whole (127.0.0.1:{server.server_port}: 404 Not Found; "
        f"127.0.0.1:{second.server_port}: its sha256 is {wrong}, expected {sha256(ARCHIVE)[7:]}); try again later, or "
        f"without a network, put it into {tmp_path} yourself, or use a copy at hand: recipes/toy/run.sh --corpus DIR"
    )
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_one_sentence_names_the_other_ways(toy, waits, tmp_path, capsys):
    with Server() as gone:
        pass
    toy(servers=(gone.url,))
    assert refused(capsys, "toy", tmp_path) == (
        f"train.tar.gz: no server answers, is there a network? (127.0.0.1:{gone.server_port}: Connection refused); "
        f"without a network, put it into {tmp_path} yourself, or use a copy at hand: recipes/toy/run.sh --corpus DIR"
    )
    assert waits == [1, 2] and list(tmp_path.iterdir()) == []


def test_what_is_misspelt_is_named(toy, tmp_path, capsys):
    line = refused(capsys, "librispech", tmp_path)
    assert line == f"got 'librispech', expected a corpus: {', '.join(sources.SOURCES)}; did you mean 'librispeech'?"
    line = refused(capsys, "toy", tmp_path, "--parts", "trane")
    assert line == "--parts: got 'trane', expected parts of toy: train; did you mean 'train'?"


# --- the disk


def test_a_small_disk_is_told_before_anything_starts(server, toy, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: disk.shutil._ntuple_diskusage(10**9, 0, 500_000))
    said = f"{tmp_path}: needs 700 kB of disk, has 500 kB free; free 200 kB, choose another folder, or fewer --parts"
    assert refused(capsys, "toy", tmp_path) == said
    assert not server.requests and list(tmp_path.iterdir()) == []


class FullAfter(io.FileIO):
    """A file on a disk that has room for 100 kB more."""

    def write(self, block):
        if self.tell() + len(block) > 100_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(block)


def test_a_disk_that_fills_while_fetching_keeps_what_is_here(server, toy, tmp_path, capsys, monkeypatch):
    toy(servers=(server.url,))
    monkeypatch.setattr(fetch, "BLOCK", 10_000)
    with monkeypatch.context() as patch:
        patch.setattr(fetch, "open", FullAfter, raising=False)
        line = refused(capsys, "toy", tmp_path)
    partial = tmp_path / ".download/train.tar.gz"
    here = partial.stat().st_size
    assert 90_000 < here <= 100_000
    assert line == (
        f"{partial}: can't be written (No space left on device); {disk.readable(here)} of 300 kB are here, and stay; "
        "mend that and run the same command again"
    )
    server.requests.clear()
    cli.main(["toy", str(tmp_path)])
    assert whole_toy(tmp_path) and [r.range for r in server.requests] == [f"bytes={here}-"]


def test_a_disk_that_fills_while_unpacking_keeps_the_archive(server, toy, tmp_path, capsys, monkeypatch):
    def extract(self, path, **_):
        (path / "half").mkdir(parents=True)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "extractall", extract)
        line = refused(capsys, "toy", tmp_path)
    work = tmp_path / ".download"
    assert line == (
        f"{work}/train: can't be written (No space left on device); the archive {work}/train.tar.gz stays; "
        "mend that and run the same command again"
    )
    assert {p.name for p in work.iterdir()} == {".held", "train.tar.gz", "train.tar.gz.json"}
    server.requests.clear()
    cli.main(["toy", str(tmp_path)])
    assert whole_toy(tmp_path) and not server.requests


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
    said = ["0 bytes", "999 bytes", "1.20 kB", "338 MB", "1000 MB", "23.0 GB", "1235 GB", "an unknown length"]
    assert [disk.readable(size) for size in sizes] == said


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
    assert f"are left) → {tmp_path}/Toy/train" in capsys.readouterr().err
    assert whole_toy(tmp_path) and [r.range for r in server.requests] == [f"bytes={here}-"] and here


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_half_unpacked_archive_is_redone(server, toy, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(whole, "install", interrupt)
        with pytest.raises(KeyboardInterrupt):
            download("toy", tmp_path)
    assert (tmp_path / ".download/train").exists() and not (tmp_path / "Toy").exists()
    (tmp_path / ".download/train/Toy/train/1/2/1-2-3.flac").write_bytes(b"half")
    (tmp_path / ".download/train/Toy/train/more").write_bytes(b"")
    server.requests.clear()
    download("toy", tmp_path)
    assert whole_toy(tmp_path) and not server.requests


def test_an_archive_that_was_not_yet_removed_is(server, toy, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(whole, "remove", interrupt)
        with pytest.raises(KeyboardInterrupt):
            download("toy", tmp_path)
    assert (tmp_path / "Toy/train").exists() and (tmp_path / ".download/train.tar.gz").exists()
    server.requests.clear()
    download("toy", tmp_path)
    assert whole_toy(tmp_path) and not server.requests


@pytest.mark.usefixtures("heeded")
def test_a_signal_stops_the_command_and_it_goes_on(server, tmp_path):
    """The command itself, on AN4 in miniature: a process is stopped while it waits."""
    archive = tar({"an4/etc/x": CONTENT})
    server.serve("an4_sphere.tar.gz", Reply(archive, cut=500_000), Reply(status=503))
    command = [sys.executable, "-m", "asr.cli.download", "an4", str(tmp_path), "--mirror", server.url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while len(server.requests) < 2 and process.poll() is None:  # then it waits between its tries
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert "stopped; run the same command again to go on" in process.communicate()[1]
    assert process.returncode == 130
    server.serve("an4_sphere.tar.gz", Reply(archive))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "an4/etc/x").read_bytes() == CONTENT
    assert [r.range for r in server.requests] == ["bytes=500000-"]


def test_two_processes_do_not_share_a_folder(toy, tmp_path, capsys, monkeypatch):
    (tmp_path / ".download").mkdir()
    script = "from asr.files import hold; import sys; _ = hold(sys.argv[1]); print(); input()"
    command = [sys.executable, "-c", script, tmp_path / ".download"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        line = refused(capsys, "toy", tmp_path)
        other.communicate(b"\n")
    assert line.startswith(f"{tmp_path}/.download: another process is at work in it")
    hold(tmp_path / ".download").close()


# --- archives


def test_archives_within_the_archive_are_unpacked_and_removed(server, toy, tmp_path, capsys):
    """AISHELL's layout, as its reader wants it."""
    speakers = {
        f"data_aishell/wav/S{n}.tar.gz": tar({f"{s}/S{n}/a{n}.wav": SOUND}) for n, s in enumerate(("train", "dev"))
    }
    transcripts = {"data_aishell/transcript/aishell_transcript_v0.8.txt": "a0 一\na1 二\n".encode()}
    data = tar(speakers | transcripts)
    toy(data, target="data_aishell", nested="wav/*.tar.gz", path="33/data_aishell.tgz")
    cli.main(["toy", str(tmp_path)])
    files = {str(p.relative_to(tmp_path / "data_aishell")) for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {"wav/train/S0/a0.wav", "wav/dev/S1/a1.wav", "transcript/aishell_transcript_v0.8.txt"}
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
    there = f"train: {tmp_path}/data_aishell is there, archives are left to unpack or to remove"
    assert f"{there}\ndisk: about 1.20 MB more" in said
    assert (inner.parent / "test/S2/a2.wav").read_bytes() == SOUND and not inner.exists()
    assert not server.requests


def test_a_file_that_is_read_as_it_is_stays_as_it_is(toy, tmp_path):
    text = gzip.compress(b"A SENTENCE\n")
    toy(text, path="11/lm.txt.gz", target="lm.txt.gz", unpacked=0)
    assert download("toy", tmp_path) == [tmp_path / "lm.txt.gz"]
    assert [p.name for p in tmp_path.iterdir()] == ["lm.txt.gz"] and (tmp_path / "lm.txt.gz").read_bytes() == text


def test_archives_are_kept_when_asked(toy, tmp_path):
    cli.main(["toy", str(tmp_path), "--keep-archives"])
    assert (tmp_path / "train.tar.gz").read_bytes() == ARCHIVE
    (tmp_path / "train.tar.gz").unlink()
    assert whole_toy(tmp_path)


def test_an_archive_at_hand_is_taken_checked_and_left(server, toy, tmp_path, capsys):
    (tmp_path / "train.tar.gz").write_bytes(ARCHIVE[:-1])
    line = refused(capsys, "toy", tmp_path)
    why = f"its sha256 is {sha256(ARCHIVE[:-1])[7:]}, expected {sha256(ARCHIVE)[7:]}"
    assert line == f"{tmp_path}/train.tar.gz: {why}; remove it, and it is fetched"
    (tmp_path / "train.tar.gz").write_bytes(ARCHIVE)
    cli.main(["toy", str(tmp_path)])
    assert (tmp_path / "train.tar.gz").read_bytes() == ARCHIVE and not server.requests
    (tmp_path / "train.tar.gz").unlink()
    assert whole_toy(tmp_path)


@pytest.mark.parametrize(
    "data, why",
    [
        (ARCHIVE[:-20], "Compressed file ended before the end-of-stream marker was reached"),
        (ARCHIVE[:-8] + bytes(8), "CRC check failed"),
        (b"<html>log in first</html>", "Not a gzipped file (b'<h')"),
    ],
)
def test_without_a_checksum_gzip_is_read_to_its_end(server, toy, tmp_path, capsys, data, why):
    toy(data, digest="", servers=(server.url,))
    assert f": not a whole gzip file ({why}" in refused(capsys, "toy", tmp_path)
    assert list(tmp_path.iterdir()) == []
    toy(ARCHIVE, digest="")
    cli.main(["toy", str(tmp_path)])
    assert whole_toy(tmp_path)


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
        (evil_tar(), "'Toy/train/../../../evil' would be extracted to"),
        (
            evil_tar(name="Toy/train/link", type=tarfile.SYMTYPE, linkname="../../../evil"),
            "'Toy/train/link' would link to",
        ),
        (evil_tar(name="Toy/train/device", type=tarfile.CHRTYPE), "'Toy/train/device' is a special file"),
        (evil_zip("Toy/train/../../../evil"), "'Toy/train/../../../evil'"),
        (evil_zip("/evil"), "'/evil'"),
    ],
)
def test_an_archive_that_leads_out_of_its_folder_is_refused(toy, tmp_path, capsys, data, why):
    name = "train.zip" if data[:2] == b"PK" else "train.tar.gz"
    toy(data, path=f"9/{name}")
    line = refused(capsys, "toy", tmp_path / "corpora")
    begin = f"{tmp_path}/corpora/.download/{name}: refused, it would write outside of its folder ({why}"
    assert line.startswith(begin)
    assert [p.name for p in tmp_path.iterdir()] == ["corpora"]
    assert {p.name for p in (tmp_path / "corpora/.download").iterdir()} == {".held", name, f"{name}.json"}


def test_a_zip_is_unpacked(toy, tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Toy/SPEAKERS.TXT", b"1 M")
        archive.writestr("Toy/train/1/2/1-2-3.flac", SOUND)
    toy(buffer.getvalue(), path="28/toy.zip")
    cli.main(["toy", str(tmp_path)])
    assert whole_toy(tmp_path)


def test_an_archive_of_something_else_is_refused(toy, tmp_path, capsys):
    toy(tar({"Other/x": b"y"}))
    line = refused(capsys, "toy", tmp_path)
    assert line == f"{tmp_path}/.download/train: the archive holds no Toy/train; it isn't the one expected"
    assert not (tmp_path / "Toy").exists()


def test_a_python_that_cannot_unpack_safely_is_refused(server, toy, tmp_path, capsys, monkeypatch):
    monkeypatch.delattr(tarfile, "data_filter")
    line = refused(capsys, "toy", tmp_path)
    assert line == "this Python can't unpack archives safely; it takes 3.10.12, 3.11.4, 3.12 or newer"
    assert not server.requests


# --- what is known of the corpora


def test_checksums_are_those_that_torchaudio_ships():
    librispeech = pytest.importorskip("torchaudio.datasets.librispeech")
    theirs = {url.rpartition("/")[2]: f"sha256:{digest}" for url, digest in librispeech._CHECKSUMS.items()}
    assert {part.file: part.digest for part in sources.SOURCES["librispeech"].parts} == theirs
    yesno = importlib.import_module("torchaudio.datasets.yesno")._RELEASE_CONFIGS["release1"]
    (part,) = sources.SOURCES["yesno"].parts
    assert part.digest == f"sha256:{yesno['checksum']}" and part.urls()[0].endswith(yesno["url"].partition("//")[2])


def test_every_source_is_whole():
    for name, source in sources.SOURCES.items():
        assert source.name == name and len({part.name for part in source.parts}) == len(source.parts)
        for part in source.parts:
            algorithm, _, digest = part.digest.partition(":")
            assert len(digest) == {"sha256": 64, "md5": 32, "": 0}[algorithm]
            assert part.unpacked >= part.bytes or (part.unpacked == 0 and part.target == part.file)
            assert digest or part.file.endswith(".tar.gz")


def test_help_imports_nothing_that_takes_long():
    script = (
        "import sys, asr.cli.download; print(sorted({'urllib.request', 'tarfile', 'tqdm', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"
