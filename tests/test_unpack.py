"""Prove that archives write nothing but files and folders, within their folder, and no more than a corpus has.

What is right is what Python's zipfile and the system's tar make of archives without tricks. Archives with
tricks are made by hand, header by header, and each is refused, with nothing written outside and nothing left.
"""

import gzip
import io
import os
import random
import stat
import struct
import subprocess
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import yaml
from refusals import refused
from small import each

from asr.download import archives
from asr.download.archives import Budget, Damaged, Refused, unpack

SOUND = random.Random(1).randbytes(3000)


def raw(name, content=b"", kind=b"0", size=b"", prefix=b"", magic=b"ustar\x0000", checksum=b""):
    """A member of a .tar, made by hand: its header, and its content in whole blocks."""
    size = size or b"%011o" % len(content)
    header = struct.pack(
        "100s8s8s8s12s12s8sc100s8s80s155s12x",
        *(name, b"0006777", b"0000000", b"0000000", size, b"00000000000", b" " * 8, kind),
        *(b"", magic, b"", prefix),
    )
    checksum = checksum or b"%06o\0 " % sum(header)
    return header[:148] + checksum + header[156:] + content + bytes(-len(content) % 512)


def pax(kind=b"x", **values):
    """A header with pax's records: a length of six digits, key and value."""
    records = b""
    for key, value in values.items():
        records += b"%06d %s=%s\n" % (len(key) + len(value) + 9, key.encode(), value)
    return raw(b"PaxHeader", records, kind)


def packed(*members, end=bytes(1024)):
    return gzip.compress(b"".join(members) + end, 1)


RECORDS = {"local": b"PK\3\4", "central": b"PK\1\2", "end": b"PK\5\6"}


def zipped(*names, method=zipfile.ZIP_STORED, at=(), **changes):
    """A .zip of members that have SOUND.

    at:       bytes written over: a record, their place in it, and what they become
    changes:  made in what its list says of the members
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            content = b"" if name.endswith("/") else SOUND
            archive.writestr(zipfile.ZipInfo(name), content, method)
        for info in archive.infolist():
            for change in changes.items():
                setattr(info, *change)
    data = buffer.getvalue()
    for record, place, value in at:
        start = data.rindex(RECORDS[record]) + place
        data = data[:start] + text(value) + data[start + len(text(value)) :]
    return data


def get(tmp_path, data, bytes=1 << 20, members=100):
    """Unpack an archive; return name → content, None for a folder."""
    archive = tmp_path / ("x.zip" if b"PK\5\6" in data else "x.tar.gz")
    archive.write_bytes(data)
    unpack(archive, tmp_path / "out", Budget(bytes, members))
    return contents(tmp_path / "out")


def contents(folder):
    """Path → content, None for a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


# --- what has no tricks


LONG = "/".join(f"{letter * 60}" for letter in "abcd")
FILES = {
    "README": b"x",
    "wav/empty.sph": b"",
    "wav/block.sph": SOUND[:512],
    "wav/two.sph": SOUND[:1024],
    "wav/odd.sph": SOUND,
    "etc/übung 一.txt": b"y",
    f"{LONG}.sph": SOUND[:7],
}


@each("form", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_what_the_systems_tar_packs_is_unpacked(tmp_path, form):
    folder, made = tmp_path / "in/an4", tmp_path / "made.tar.gz"
    (folder / "void").mkdir(parents=True)
    for name, data in FILES.items():
        if LONG not in name or form not in ("ustar", "v7"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    command = ["tar", f"--format={form}", "-czf", made, "-C", folder.parent, "."]
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        pytest.skip(f"this tar has no {form}: {done.stderr.decode()}")
    found = get(tmp_path, made.read_bytes())
    assert found == contents(folder.parent) and len(found) >= 10


@each("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_what_zipfile_packs_is_unpacked(tmp_path, method):
    names = "RIRS/", "RIRS/a.wav", "RIRS/real/b.wav", "RIRS/c ü.wav"
    found = get(tmp_path, zipped(*names, method=method))
    assert found == dict.fromkeys(names[1:], SOUND) | {"RIRS": None, "RIRS/real": None}


def test_modes_are_those_of_the_umask(tmp_path):
    """The archive says 6777: setuid, setgid, everybody's."""
    before = os.umask(0o027)
    try:
        get(tmp_path, packed(raw(b"a/", kind=b"5"), raw(b"a/b", SOUND), raw(b"c/d")))
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "out").rglob("*")}
    assert modes == {"a": 0o750, "b": 0o640, "c": 0o750, "d": 0o640}


def test_gzip_members_one_after_another_are_one(tmp_path):
    whole = raw(b"a", SOUND) + bytes(1024)
    assert get(tmp_path, gzip.compress(whole[:700]) + gzip.compress(whole[700:])) == {"a": SOUND}


# --- tricks


def text(value):
    """A string of archives.yaml as bytes."""
    before, times, count = ("", value, 1) if isinstance(value, str) else value
    return (before + times * count).encode("latin-1")


def member(given):
    """A member of a .tar of archives.yaml."""
    given = {"name": given, "content": "x"} if isinstance(given, str) else given
    values = given.pop("pax", {}) | given
    make = raw if "name" in given else pax
    return make(**{key: text(value) for key, value in values.items()})


def archive(kind, given):
    """An archive of archives.yaml."""
    if kind == "tar":
        return packed(*map(member, given))
    return zipped(*given.pop("names", "a"), **given)


YAML = Path(__file__).with_name("archives.yaml")
SOUND_TAR = packed(raw(b"a", SOUND))
TRICKS = [
    pytest.param(archive(kind, given), getattr(archives, error), why, id=trick)
    for kind, errors in yaml.safe_load(YAML.read_text()).items()
    for error, whys in errors.items()
    for why, tricks in whys.items()
    for trick, given in tricks.items()
]
DAMAGES = [
    (packed(raw(b"a", b"x")[:400], end=b""), "within a header"),
    (packed(raw(b"a", SOUND)[:1024], end=b""), "within a member"),
    (gzip.compress(b"<html>log in first</html>" * 40), "number"),
    (b"<html>log in first</html>", "gzip"),
    (b"", "empty"),
    (SOUND_TAR[:-20], "ended before"),
    (SOUND_TAR[:-8] + bytes(8), "CRC"),
    (SOUND_TAR + b"#!/bin/sh", "gzip"),
    (zipped("a")[:-22] + b"PK\5\6", "not a zip"),
]


TRICKS += [pytest.param(data, Damaged, why, id=why) for data, why in DAMAGES]


@each("data, error, why", TRICKS)
def test_tricks_are_refused(tmp_path, data, error, why):
    with pytest.raises(error) as caught:
        get(tmp_path, data)
    assert why in str(caught.value) and str(caught.value).isprintable()
    assert len(list(tmp_path.iterdir())) == 1  # the archive


def test_names_that_a_disk_takes_for_one_are_refused(tmp_path, monkeypatch):
    """A disk that doesn't tell A from a, as macOS has it, says that the file is there."""

    def without_case(path, mode):
        return open(str(path).lower(), mode)

    monkeypatch.setattr(archives, "open", without_case, raising=False)
    with pytest.raises(Refused, match="twice"):
        get(tmp_path, packed(raw(b"readme", b"x"), raw(b"README", b"y")))


# --- sizes


BOMBS = {  # 3 MB in each place where bytes can stand
    "a member": packed(raw(b"a", bytes(3 << 20))),
    "members": packed(*(raw(b"%d" % n, bytes(40_000)) for n in range(80))),
    "headers": packed(*(pax(comment=bytes(50_000)) for _ in range(60)), raw(b"a")),
    "behind the end": packed(raw(b"a", b"x"), end=bytes(3 << 20)),
}


@each("bomb", BOMBS)
def test_all_that_is_decompressed_counts(tmp_path, bomb):
    with pytest.raises(Refused, match="more than the corpus"):
        get(tmp_path, BOMBS[bomb], bytes=1 << 20)
    assert not (tmp_path / "out").exists()
    assert get(tmp_path, BOMBS[bomb], bytes=4 << 20)


MANY = {
    "files": packed(*(raw(b"%d" % n) for n in range(101))),
    "folders on the way": packed(*(raw(b"a/%d/b/c/d/e" % n) for n in range(20))),
    "folders": zipped(*(f"{n}/" for n in range(101))),
}


@each("name", MANY)
def test_files_and_folders_are_counted(tmp_path, name):
    with pytest.raises(Refused, match="more files and folders"):
        get(tmp_path, MANY[name], members=100)
    assert not (tmp_path / "out").exists()


HOSTILE = {  # headers of 20 MB that are really there, and very many
    "pax": lambda: packed(raw(b"x", bytes(20 << 20), b"x"), raw(b"a")),
    "GNU": lambda: packed(raw(b"x", b"a" * (20 << 20), b"L"), raw(b"a")),
    "many of pax": lambda: packed(*[pax(comment=b"x")] * 2000, raw(b"../a")),
    "many of GNU": lambda: packed(*[raw(b"L", b"a", b"L")] * 2000, raw(b"a", kind=b"2")),
    "zip": lambda: zipped("a", at=[["end", 12, "\0\0\x40\x01"]]) + bytes(20 << 20),
}


@each("header", HOSTILE)
def test_hostile_headers_take_no_memory_and_no_recursion(tmp_path, header):
    data = HOSTILE[header]()
    tracemalloc.start()
    with pytest.raises((Refused, Damaged)):
        get(tmp_path, data, bytes=1 << 30)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_zip_with_a_long_list_of_members_is_refused(tmp_path):
    """Each of 4000 members takes memory before the first is looked at; the list is bounded as read."""
    data = zipped(*(f"{n:05}" * 60 for n in range(4000)))
    with pytest.raises(Refused, match="list of members"):
        get(tmp_path, data, bytes=1 << 30, members=10)


PIECES = raw(b"a/b", SOUND), pax(path=b"a/long", size=b"5"), raw(b"x", b"12345")
WHOLE = {
    "x.tar.gz": b"".join([*PIECES, raw(b"L", b"q\0", b"L"), raw(b"y", b"z"), bytes(1024)]),
    "x.zip": zipped("a/b", "c", "d/", method=zipfile.ZIP_DEFLATED),
}


@each("name", WHOLE)
def test_damage_anywhere_is_damage_or_refused(tmp_path, name):
    """Random bytes of sound archives are others: never another exception, never a file outside."""
    draw, failed = random.Random(5), 0
    for _ in range(200):
        data = bytearray(WHOLE[name])
        for _ in range(draw.choice([1, 1, 3])):
            byte = draw.choice(b"\0\1/.5\x80\xff" + draw.randbytes(1))
            data[draw.randrange(len(data))] = byte
        (tmp_path / name).write_bytes(gzip.compress(data, 1) if name == "x.tar.gz" else data)
        try:
            unpack(tmp_path / name, tmp_path / "out", Budget(1 << 20, 100))
        except (Refused, Damaged) as error:
            failed += 1
            assert str(error).isprintable() and not (tmp_path / "out").exists()
        assert {path.name for path in tmp_path.iterdir()} <= {"out", name}
    assert failed > 75


def test_an_error_of_the_disk_is_a_line(tmp_path):
    refused("No such file", unpack, tmp_path / "absent.tar.gz", tmp_path / "out", Budget(1, 1))
    assert not (tmp_path / "out").exists()
