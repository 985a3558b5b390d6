"""Prove that a corpus arrives whole whatever servers, disk and person do to it on the way.

The servers are of this machine and misbehave as told (servers.py); what they were asked for and sent is counted. The
content is random bytes, so whatever arrives is right only if it is the same to the byte.
"""

import gzip
import hashlib
import importlib
import io
import itertools
import random
import re
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from refusals import refused
from runs import status_of
from servers import Reply, Server
from small import each, rows

from asr.cli import download as cli
from asr.download import archives, check, disk, fetch
from asr.download import download as whole
from asr.download.download import download
from asr.download.sources import SOURCES, CorpusPart, Source


def tar(files):
    """A .tar.gz of name → content, or kind and aim of a link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            if isinstance(data, bytes):
                member.size = len(data)
            else:
                member.type, member.linkname = data
            archive.addfile(member, io.BytesIO(data) if member.size else None)
    return buffer.getvalue()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


SOUND = random.Random(1).randbytes(300_000)
FILES = {"Toy/SPEAKERS.TXT": b"1 M", "Toy/train/1/2/1-2-3.flac": SOUND}
ARCHIVE = tar(FILES)
PART = CorpusPart("train", (), "9/train.tar.gz", 0, "Toy/train", unpacked=400_000, members=20)
EVIL = tar({"Toy/train/../../../evil": b""})


class Toy:
    """A corpus of one part, which two servers have, and the folder to which it goes."""

    def __init__(self, servers, folder, monkeypatch, stderr):
        self.server, self.second = servers
        self.folder, self.monkeypatch, self.stderr = folder, monkeypatch, stderr
        self.kept, self.work = folder / "train.tar.gz", folder / ".download"
        folder.mkdir()
        self.make()

    def make(self, data=ARCHIVE, **changes):
        """Have the servers give this archive."""
        part = {"servers": (self.server.url, self.second.url), "bytes": len(data)}
        part["digest"] = f"sha256:{sha256(data)}"
        self.part = replace(PART, **part | changes)
        source = Source("toy", (self.part,), "run.sh --corpus DIR")
        self.monkeypatch.setitem(SOURCES, "toy", source)
        self.serve(Reply(data))
        self.second.serve(self.part.path, Reply(data))

    def serve(self, *replies):
        """Have the first server answer so, and forget what it was asked."""
        self.server.serve(self.part.path, *replies)

    def run(self, *more, status=0):
        """Run the command; return what it says."""
        assert status_of(cli.main, "toy", self.folder, *more) == status
        return self.stderr()

    def refused(self, *more):
        """Run the command, which must fail; return its one line."""
        line = self.run(*more, status=2).splitlines()[-1].partition(": ")[2]
        assert line.isprintable()
        return line

    def files(self):
        """Name → content of all files."""
        paths = filter(Path.is_file, self.folder.rglob("*"))
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}

    def untouched(self):
        """Whether nothing was asked for, and nothing written."""
        return not self.server.requests and not list(self.folder.iterdir())


@pytest.fixture
def toy(server, second, waits, tmp_path, monkeypatch, stderr):
    return Toy((server, second), tmp_path / "corpora", monkeypatch, stderr)


def test_a_corpus_arrives_and_is_recognized(toy):
    room = "disk: about 700 kB more at its fullest, 400 kB when done; "
    toy.folder.rmdir()
    assert room in toy.run("--dry-run") and not toy.server.requests and not toy.folder.exists()
    assert room in toy.run() and toy.files() == FILES
    assert "there already" in toy.run()
    assert toy.files() == FILES and len(toy.server.requests) == 1


def test_wrong_content_leads_to_the_next_server(toy):
    wrong = tar({"Toy/train/x": b"other"})
    toy.serve(Reply(wrong))
    said = toy.run()
    assert toy.files() == FILES and len(toy.second.requests) == 1
    why = f"its sha256 is {sha256(wrong)}, expected {sha256(ARCHIVE)}"
    assert f"{toy.server.url}/9/train.tar.gz: {why}\n" in said


def test_a_named_mirror_is_asked_first(toy):
    toy.run("--mirror", f"{toy.second.url}/")
    assert toy.files() == FILES and not toy.server.requests


MIRRORS = rows(r"""
    mirror.org/x                   | got 'mirror.org/x'
    file:///etc                    | put a local file into FOLDER
    ftp://mirror.org               | expected the URL of a server
    http://                        | expected the URL of a server
    http:///x                      | expected the URL of a server
    http://:80/x                   | expected the URL of a server
    http://mirror.org:port/        | expected the URL of a server
    http://mirror.org:99999/       | expected the URL of a server
    http://[::1/                   | expected the URL of a server
    \x20http://mirror.org          | expected the URL of a server
    http://mirror.org/a\x20b       | without spaces
    http://mirror.org/a\nHost:evil | expected the URL of a server
    http://mirror.org/\x1b[2J      | expected the URL of a server
    http://b\xfccher.org/          | ASCII
    http://mirror.org/?a=b         | without spaces, ?
    http://mirror.org/#a           | without spaces, ?
    http://user:secret@mirror.org/ | leave that out
""")


@each("mirror, why", MIRRORS)
def test_a_mirror_that_is_no_server_is_refused(toy, mirror, why):
    line = toy.refused("--mirror", mirror.encode().decode("unicode_escape"))
    assert line.startswith("--mirror: ") and why in line
    assert "secret" not in line and toy.untouched()


def test_all_reasons_are_told_where_no_server_has_it(toy, waits):
    page = b"<html>log in first</html>"
    toy.serve(Reply(status=404))
    toy.second.serve(toy.part.path, Reply(page))
    line = toy.refused()
    assert "404 Not Found; " in line and f"its sha256 is {sha256(page)}, expected" in line
    assert str(toy.folder) in line and "run.sh --corpus DIR" in line
    with Server() as gone:
        toy.make(servers=(gone.url,))
    line = toy.refused()
    assert f"is there a network? (127.0.0.1:{gone.server_port}: Connection refused); " in line
    assert waits == [1, 2] and toy.untouched()


def test_what_is_misspelled_is_named(toy):
    assert "did you mean 'train'?" in toy.refused("--parts", "trane")
    refused("got 'tox', expected a corpus: .*did you mean 'toy'", download, "tox", toy.folder)


# --- the disk


def test_a_small_disk_is_told_before_anything_starts(toy, monkeypatch):
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: SimpleNamespace(free=500_000))
    for more in ([], ["--dry-run"]):
        line = toy.refused(*more)
        assert line.startswith(f"{toy.folder}: needs 700 kB of disk space, but 500 kB are free; ")
        assert "200 kB more" in line and "--parts" in line and toy.untouched()


class FullAfter(io.FileIO):
    """A file on a disk that has room for 100 kB more."""

    def write(self, block):
        if self.tell() + len(block) > 100_000:
            raise OSError(28, "No space left on device")
        return super().write(block)


@each("work, place, kept", [
    (fetch, "train.tar.gz", "kB of 300 kB are here"),
    (archives, "train", "train.tar.gz stays"),
])  # fmt: skip
def test_a_disk_that_fills_keeps_what_is_here(toy, monkeypatch, work, place, kept):
    toy.make(servers=(toy.server.url,))
    monkeypatch.setattr(fetch, "BLOCK", 10_000)
    with monkeypatch.context() as patch:
        patch.setattr(work, "open", FullAfter, raising=False)
        line = toy.refused()
    assert line.startswith(f"{toy.work}/{place}: can't be written (No space left on device)")
    assert kept in line and (toy.work / "train.tar.gz.json").exists()
    here = (toy.work / "train.tar.gz").stat().st_size
    assert here == len(ARCHIVE) or 90_000 < here <= 100_000
    toy.run()
    ranges = [r.range for r in toy.server.requests]
    assert toy.files() == FILES and ranges == [None, f"bytes={here}-"][: 1 + (here < len(ARCHIVE))]


@each("keep", [False, True])
def test_the_need_is_the_fullest_moment_of_a_walk_through_the_work(keep):
    numbers = random.Random(3)
    for _ in range(50):
        parts = [(numbers.randint(0, 9), numbers.choice([0, 5, 20])) for _ in range(4)]
        steps = [(new, size, 0 if keep or not size else -new) for new, size in parts]
        levels = list(itertools.accumulate(itertools.chain(*steps)))
        assert disk.need(parts, keep) == disk.Need(max(levels), levels[-1])


def test_sizes_are_said_in_words():
    sizes = [0, 999, 1200, 337_926_286, 999_999_999, 23_049_477_885, 1_234_567_890_123, None]
    said = "0 bytes, 999 bytes, 1.20 kB, 338 MB, 1000 MB, 23.0 GB, 1235 GB, an unknown length"
    assert ", ".join(map(disk.readable, sizes)) == said


# --- interruptions


def interrupted(toy, place, name):
    """Run the command until it calls a function."""
    with toy.monkeypatch.context() as patch:
        patch.setattr(place, name, mock.Mock(side_effect=KeyboardInterrupt))
        said = toy.run(status=130)
    assert said.endswith("stopped; run the same command again to go on\n")
    toy.server.requests.clear()


def test_an_interrupted_fetch_goes_on(toy):
    toy.serve(Reply(ARCHIVE, cut=200_000), Reply(ARCHIVE))
    interrupted(toy, fetch.time, "sleep")  # between its tries
    assert " left) → " in toy.run() and toy.files() == FILES
    assert [r.range for r in toy.server.requests] == ["bytes=200000-"]


@each("work", ["install", "remove"])
def test_an_interrupted_unpacking_is_redone(toy, work):
    """Before the corpus is in its place, and before the archive is removed."""
    interrupted(toy, whole, work)
    assert (toy.work / "train.tar.gz").exists()
    assert (toy.folder / "Toy").exists() == (work == "remove")
    if work == "install":
        (toy.work / "train/Toy/train/1/2/1-2-3.flac").write_bytes(b"half")
        (toy.work / "train/Toy/train/more").touch()
    toy.run()
    assert toy.files() == FILES and not toy.server.requests


def test_two_processes_do_not_share_a_folder(toy, monkeypatch):
    """That a lock keeps other processes out, test_bad_input.py proves."""
    monkeypatch.setattr("fcntl.lockf", mock.Mock(side_effect=BlockingIOError))
    assert toy.refused().startswith(f"{toy.work}: another process is at work in it")


# --- archives within the archive


@pytest.fixture
def aishell(toy):
    """Make the corpus one of AISHELL's layout: archives within the archive; the folder of these."""

    def make(speakers, **changes):
        part = SOURCES["aishell"].parts[0]
        inner = {f"data_aishell/wav/{name}.tar.gz": data for name, data in speakers.items()}
        toy.make(tar(inner), target=part.target, nested=part.nested, **changes)
        return toy.folder / "data_aishell/wav"

    return make


def test_a_copy_whose_inner_archives_are_left_is_completed(toy, aishell):
    """As unpacking by hand, or an interrupted call, leaves it."""
    inner = aishell({}, bytes=100_000) / "S2.tar.gz"
    inner.parent.mkdir(parents=True)
    archive = tar({"test/S2/a2.wav": SOUND})
    inner.write_bytes(archive[:-8] + bytes(8))
    assert toy.refused().startswith(f"{inner}: damaged (CRC check failed")
    inner.write_bytes(archive)
    said = toy.run()
    assert "with archives still to unpack" in said and "disk: about 1.20 MB more" in said
    assert toy.files() == {"data_aishell/wav/test/S2/a2.wav": SOUND} and not toy.server.requests


def test_archives_within_the_archive_are_bounded_together(toy, aishell):
    wav = aishell({f"S{n}": tar({f"train/S{n}/a.wav": bytes(300_000)}) for n in range(4)})
    line = toy.refused()
    assert line.startswith(f"{wav}/S2.tar.gz: refused, ") and "more than the corpus" in line
    assert {path.name for path in wav.iterdir()} == {"S2.tar.gz", "S3.tar.gz", "train"}


def test_archives_within_the_archive_are_unpacked_though_it_was_stopped(toy, aishell):
    speaker = tar({"train/S0/a.wav": SOUND, "train/S0/b.wav": b"b"})
    wav = aishell({"S0": speaker, "S1": tar({"dev/S1/c.wav": b"c"})})
    interrupted(toy, archives, "merge")
    (wav / "train/S0").mkdir(parents=True)
    (wav / "train/S0/a.wav").write_bytes(b"half")  # as if between two files
    toy.run()
    found = {"train/S0/a.wav": SOUND, "train/S0/b.wav": b"b", "dev/S1/c.wav": b"c"}
    assert toy.files() == {f"data_aishell/wav/{name}": data for name, data in found.items()}


# --- files that stay


def test_a_file_that_is_read_as_it_is_stays_as_it_is(toy):
    text = gzip.compress(b"A SENTENCE\n")
    toy.make(text, path="11/lm.txt.gz", target="lm.txt.gz", unpacked=0)
    assert download("toy", toy.folder) == [toy.folder / "lm.txt.gz"]
    assert toy.files() == {"lm.txt.gz": text}


def test_archives_are_kept_when_asked(toy):
    said = toy.run("--keep-archives", "--parts", "train", "train")
    assert said.count("train: done") == 1
    assert toy.files() == FILES | {"train.tar.gz": ARCHIVE}


def test_an_archive_at_hand_is_taken_checked_and_left(toy):
    toy.kept.write_bytes(ARCHIVE[:-1])
    why = f"its sha256 is {sha256(ARCHIVE[:-1])}, expected {sha256(ARCHIVE)}"
    assert toy.refused().startswith(f"{toy.kept}: {why}; remove it")
    toy.kept.write_bytes(ARCHIVE)
    assert "disk: about 400 kB more" in toy.run()
    assert toy.files() == FILES | {"train.tar.gz": ARCHIVE} and not toy.server.requests


# --- archives that mean harm


def escape(target):
    """A .tar.gz that makes tarfile's filter="data" write outside, on Pythons before June 2025 (CVE-2025-4517).

    Links of one letter lead to folders of 247; what they lead to together is longer than PATH_MAX, so realpath gives up
    and takes the rest for what it seems. A link there leads sixteen folders up, to where the archive is unpacked, and
    sixteen more lead out of it. On Python 3.11.7 tarfile writes target/evil.
    """
    files, path, letters = {}, "", "abcdefghijklmnop"
    for letter in letters:
        files[path + "d" * 247] = tarfile.DIRTYPE, ""
        files[path + letter] = tarfile.SYMTYPE, "d" * 247
        path += "d" * 247 + "/"
    far = "/".join(letters) + "/" + "l" * 254
    files[far] = tarfile.SYMTYPE, "../" * len(letters)
    files["escape"] = tarfile.SYMTYPE, far + "/.." * len(letters) + str(target)
    return tar(files | {"escape/evil": b"evil", "Toy/train/x": b"x"})


def test_links_through_a_path_that_is_too_long_write_nothing_outside(toy, tmp_path):
    """The whole way, from a server; the archive even has the digest that is published."""
    (tmp_path / "home").mkdir()
    toy.make(escape(tmp_path / "home"))
    line = toy.refused()
    assert "refused" in line and "symbolic link" in line
    assert not list((tmp_path / "home").iterdir()) and not toy.files()


HARM = {
    "leads out": EVIL,
    "more than the corpus": tar({f"Toy/train/{n}": bytes(100_000) for n in range(20)}),
    "more files and folders": tar({f"Toy/train/{n}": b"" for n in range(50)}),
    "holds no Toy/train": tar({"Toy/train": b"y"}),
    "damaged": gzip.compress(b"text" * 1000),
}


@each("why", HARM)
def test_an_archive_that_is_no_corpus_is_refused_and_the_disk_is_as_before(toy, why):
    toy.make(HARM[why])
    line = toy.refused()
    assert line.startswith(f"{toy.work}/train.tar.gz: ") and why in line
    assert not list(toy.folder.iterdir())


def test_a_bad_archive_at_hand_is_named_and_left(toy):
    """It is the person's; only they may remove it."""
    toy.make(EVIL)
    toy.kept.write_bytes(EVIL)
    assert "remove it" in toy.refused() and toy.files() == {"train.tar.gz": EVIL}


def test_files_beside_the_corpus_do_not_come_among_the_persons(toy):
    """FOLDER may be anybody's home, and .bashrc a name like others."""
    (toy.folder / ".bashrc").write_bytes(b"mine")
    inside = {".bashrc": b"evil", "toy.zip": b"evil", "Toy/x": SOUND, "Other/y": b"z"}
    toy.make(tar(inside), target="Toy")
    toy.run()
    assert toy.files() == {".bashrc": b"mine", "Toy/x": SOUND}


# --- where nothing is published of the archive: the files in it


LISTED = {"toy/README": b"read me", "toy/etc/x": b"a text"}
LISTED |= {"toy/wav/a.sph": SOUND, "toy/wav/b.sph": SOUND[:9]}


@pytest.fixture
def listed(toy, monkeypatch):
    """Make the toy corpus one of a list of SHA-256."""
    digests = {name: sha256(data) for name, data in LISTED.items()}
    for module in (check, whole):
        monkeypatch.setattr(module, "read_list", lambda _: digests)
    toy.make(tar(LISTED), target="toy", digest="", files="toy.sha256")
    return toy


def test_listed_files_arrive_and_no_others(listed):
    others = {"toy/etc/more": b"1", ".bashrc": b"2", "toy/README": b"another"}
    listed.serve(Reply(tar(LISTED | others)))
    [said] = [line for line in listed.run().splitlines() if "left out" in line]
    assert all(name in said for name in others)
    assert listed.files() == {n: data for n, data in LISTED.items() if n not in others}


MISSING = {name: data for name, data in LISTED.items() if name != "toy/wav/b.sph"}
DIFFERS, OTHER = "SHA-256 differs from the published one: ", "not the archive: "
ALTERED = {
    "sound": (tar(LISTED | {"toy/wav/a.sph": SOUND[:-1] + b"!"}), f"{DIFFERS}toy/wav/a.sph\n"),
    "text": (tar(LISTED | {"toy/etc/x": b""}), f"{DIFFERS}toy/etc/x\n"),
    "missing": (tar(MISSING), "missing: toy/wav/b.sph\n"),
    "cut off": (ARCHIVE[:-20], OTHER),
    "wrong sum": (ARCHIVE[:-8] + bytes(8), OTHER),
    "a page": (b"<html>log in first</html>", OTHER),
    "a trick": (EVIL, OTHER),
}


@each("data, why", ALTERED.values(), ids=ALTERED)
def test_an_altered_file_leads_to_the_next_server(listed, data, why):
    listed.serve(Reply(data))
    assert f"{listed.server.url}/9/train.tar.gz: {why}" in listed.run()
    assert listed.files() == LISTED and len(listed.second.requests) == 1


def test_files_are_checked_after_unpacking(listed, monkeypatch):
    """A disk that gives other bytes than it was given: what is found is what was unpacked, not what was checked."""

    def flip(archive, folder, budget):
        archives.unpack(archive, folder, budget)
        (folder / "toy/wav/a.sph").write_bytes(b"!")

    monkeypatch.setattr(whole, "unpack", flip)
    assert f"{DIFFERS}toy/wav/a.sph" in listed.refused()
    assert not list(listed.folder.iterdir())


def test_an4_arrives(shared_data, tmp_path, stderr):
    """The copy at hand, packed; with a dictionary as in the published archive, and without the license."""
    if not (shared_data / "an4").is_dir():
        pytest.skip("no AN4")
    with tarfile.open(tmp_path / "an4_sphere.tar.gz", "w:gz", compresslevel=0) as archive:
        published = lambda m: None if m.name.endswith("LICENSE") else m  # noqa: E731
        archive.add(shared_data / "an4", "an4", filter=published)
        archive.addfile(tarfile.TarInfo("an4/etc/an4.dic"))
    cli.main(["an4", str(tmp_path)])
    assert "an4/etc/an4.dic" in stderr()
    assert {path.name for path in tmp_path.iterdir()} == {"an4", "an4_sphere.tar.gz"}
    assert sum(1 for _ in tmp_path.glob("an4/**/*.sph")) == 948 + 130


def test_the_list_of_an4_is_what_sha256sum_reads():
    root = Path(__file__).parents[1]
    lines = (root / "asr/download/an4.sha256").read_text().splitlines()
    assert all(re.fullmatch("[0-9a-f]{64}  an4/[A-Za-z0-9_./-]+", line) for line in lines)
    assert len(lines) == len(check.read_list("an4.sha256")) == 1084
    assert sum(line.endswith(".sph") for line in lines) == 948 + 130
    assert '"asr.download" = ["*.sha256"]' in (root / "pyproject.toml").read_text()  # of a wheel


# --- folders


@each("name", ["file/x", "a" * 300, "a\0b"])
def test_a_folder_that_cannot_be_one_is_refused(tmp_path, monkeypatch, name):
    """More of them in bad_inputs/download.yaml."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    refused("choose another|expected a folder's name", download, "yesno", name, dry_run=True)


def test_a_folder_that_is_not_ours_to_write_is_refused(toy, monkeypatch):
    monkeypatch.setattr(whole.os, "access", lambda path, _: path != toy.folder)
    for more in ([], ["--dry-run"]):
        assert f"can't write into {toy.folder} (" in toy.refused(*more) and toy.untouched()
    (toy.folder / "Toy/train/1").mkdir(parents=True)
    toy.run()  # all is there; nothing is to be written


WORKED_ON = "Toy/train", "train.tar.gz", ".download", ".download/train.tar.gz", ".download/train"


@each("name", WORKED_ON)
def test_a_name_that_leads_elsewhere_is_not_followed(toy, tmp_path, name):
    (tmp_path / "mine").write_bytes(b"precious")
    link = toy.folder / name
    link.parent.mkdir(exist_ok=True)
    for aim in ("mine", "absent"):
        link.symlink_to(tmp_path / aim)
        assert str(link) in toy.refused()
        link.unlink()
    assert (tmp_path / "mine").read_bytes() == b"precious" and not (tmp_path / "absent").exists()
    assert not toy.server.requests


def test_an_error_of_the_disk_is_one_line(toy):
    (toy.folder / "Toy").write_bytes(b"a file where LibriSpeech/ would be")
    line = toy.refused()
    assert "can't be written" in line and str(toy.folder) in line


# --- what is known of the corpora


def test_checksums_are_those_that_torchaudio_ships():
    try:
        librispeech = importlib.import_module("torchaudio.datasets.librispeech")
    except (ImportError, RuntimeError, OSError) as error:  # as beside a PyTorch of another CUDA
        pytest.skip(f"torchaudio can't be loaded: {error}")
    theirs = {url.rpartition("/")[2]: digest for url, digest in librispeech._CHECKSUMS.items()}
    ours = {part.file: part.digest for part in SOURCES["librispeech"].parts}
    assert ours == {name: f"sha256:{digest}" for name, digest in theirs.items()}
    yesno = importlib.import_module("torchaudio.datasets.yesno")._RELEASE_CONFIGS["release1"]
    [part] = SOURCES["yesno"].parts
    assert part.digest == f"sha256:{yesno['checksum']}"
    assert part.urls()[0].endswith(yesno["url"].partition("//")[2])


def test_every_source_is_whole():
    for name, source in SOURCES.items():
        assert source.name == name and len({p.name for p in source.parts}) == len(source.parts)
        for part in source.parts:
            assert re.fullmatch("(sha256:.{64}|md5:.{32})?", part.digest)
            assert bool(part.digest) != bool(part.files)
            assert part.unpacked >= part.bytes or (part.unpacked == 0 and part.target == part.file)
            assert (part.members > 0) == (part.unpacked > 0)
            *first, _ = part.urls()  # http is the last resort
            assert all(url.startswith("https://") for url in first)


def test_help_imports_nothing_that_takes_long():
    heavy = "{'urllib.request', 'tarfile', 'tqdm', 'torch'}"
    script = f"import sys, asr.cli.download; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
