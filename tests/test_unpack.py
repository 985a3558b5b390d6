"""Prove that archives write nothing but files and folders, within their folder, and no more than a corpus has.

What is right is what Python's tarfile, zipfile and the system's tar make of archives without tricks. Archives with
tricks are made by hand, header by header, and each is refused, with nothing written outside and nothing left.
"""

import gzip
import io
import os
import random
import stat
import struct
import subprocess
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import yaml

from asr.download import archives
from asr.download.archives import Budget, Damaged, Refused, unpack
from asr.download.disk import unwritten
from asr.errors import UserError

SOUND = random.Random(1).randbytes(3000)


def raw(name, content=b"", kind=b"0", size=None, prefix=b"", magic=b"ustar\x0000", checksum=None):
    """A member of a .tar, made by hand: its header, and its content in whole blocks."""
    size = b"%011o" % len(content) if size is None else size
    header = (
        name.ljust(100, b"\0")
        + b"0006777\0"
        + b"0000000\0" * 2
        + size.ljust(12, b"\0")
        + b"00000000000\0"
    )
    header += (
        b" " * 8 + kind + bytes(100) + magic + bytes(80) + prefix.ljust(155, b"\0") + bytes(12)
    )
    header = header[:148] + (checksum or b"%06o\0 " % sum(header)) + header[156:]
    return header + content + bytes(-len(content) % 512)


def pax(kind=b"x", **values):
    """A header with pax's records."""
    lines = b""
    for key, value in values.items():
        line = b" %s=%s\n" % (key.encode(), value)
        length = len(line) + 1
        while len(b"%d" % length) + len(line) != length:
            length += 1
        lines += b"%d" % length + line
    return raw(b"PaxHeader", lines, kind)


def packed(*members, end=bytes(1024)):
    return gzip.compress(b"".join(members) + end, 1)


def zipped(*names, method=zipfile.ZIP_STORED, **changes):
    """A .zip of members that have SOUND; `changes` are made in what its list says of them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            archive.writestr(info, b"" if name.endswith("/") else SOUND)
        for info in archive.infolist():
            for key, value in changes.items():
                setattr(info, key, value)
    return buffer.getvalue()


def patched(data, signature, at, value):
    """A .zip, two bytes of whose record are others."""
    start = data.rindex(signature) + at
    return data[:start] + value + data[start + len(value) :]


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


@pytest.mark.parametrize(
    "form",
    [
        tarfile.GNU_FORMAT,
        tarfile.PAX_FORMAT,
        tarfile.USTAR_FORMAT,
        "v7",
        "oldgnu",
        "gnu",
        "ustar",
        "posix",
    ],
)
def test_what_tarfile_and_the_systems_tar_pack_is_unpacked(tmp_path, form):
    folder, made = tmp_path / "in/an4", tmp_path / "made.tar.gz"
    (folder / "void").mkdir(parents=True)
    for name, data in FILES.items():
        if LONG not in name or form not in (tarfile.USTAR_FORMAT, "ustar", "v7"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    if isinstance(form, int):
        with tarfile.open(made, "w:gz", format=form) as archive:
            archive.add(folder, "an4")
    else:
        done = subprocess.run(
            ["tar", f"--format={form}", "-czf", made, "-C", folder.parent, "."], capture_output=True
        )
        if done.returncode:
            pytest.skip(f"this tar has no {form}: {done.stderr.decode()}")
    found = get(tmp_path, made.read_bytes())
    assert found == contents(folder.parent) and len(found) >= 10


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_what_zipfile_packs_is_unpacked(tmp_path, method):
    found = get(
        tmp_path, zipped("RIRS/", "RIRS/a.wav", "RIRS/real/b.wav", "RIRS/c ü.wav", method=method)
    )
    assert found == {
        "RIRS": None,
        "RIRS/a.wav": SOUND,
        "RIRS/real": None,
        "RIRS/real/b.wav": SOUND,
        "RIRS/c ü.wav": SOUND,
    }


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
    kind = {"kind": text(given["kind"])} if "kind" in given else {}
    if "pax" in given:
        return pax(**kind, **{key: text(value) for key, value in given["pax"].items()})
    return raw(**{key: text(value) for key, value in given.items()})


def listed(given):
    """A .zip of archives.yaml."""
    given = {"names": ["a"], "at": [], **given}
    names, places = given.pop("names"), given.pop("at")
    data = zipped(*names, **given)
    for record, at, value in places:
        data = patched(data, RECORDS[record], at, text(value))
    return data


RECORDS = {"local": b"PK\3\4", "central": b"PK\1\2", "end": b"PK\5\6"}
SOUND_TAR = packed(raw(b"a", SOUND))
TRICKS = [  # a row each: what it is, its bytes, the error, what it says
    *(
        (trick, listed(given) if kind == "zip" else packed(*map(member, given)), error, why)
        for kind, errors in yaml.safe_load(
            Path(__file__).with_name("archives.yaml").read_text()
        ).items()
        for error, whys in errors.items()
        for why, tricks in whys.items()
        for trick, given in tricks.items()
    ),
    (
        "an end within a header",
        packed(raw(b"a", b"x")[:400], end=b""),
        "Damaged",
        "within a header",
    ),
    (
        "an end within a member",
        packed(raw(b"a", SOUND)[:1024], end=b""),
        "Damaged",
        "within a member",
    ),
    ("text", gzip.compress(b"<html>log in first</html>" * 40), "Damaged", "number"),
    ("no gzip", b"<html>log in first</html>", "Damaged", "gzip"),
    ("nothing", b"", "Damaged", "empty"),
    ("gzip without its end", SOUND_TAR[:-20], "Damaged", "ended before"),
    ("a wrong checksum of gzip", SOUND_TAR[:-8] + bytes(8), "Damaged", "CRC"),
    ("something behind", SOUND_TAR + b"#!/bin/sh", "Damaged", "gzip"),
    ("no list", zipped("a")[:-22] + b"PK\5\6", "Damaged", "not a zip"),
    ("a NUL in a name", zipped("ab").replace(b"ab", b"a\0"), "Refused", "isn't a name"),
    ("a name twice", zipped("name1", "name2").replace(b"name2", b"name1"), "Refused", "twice"),
    ("a long name", zipped("a" * 5000), "Refused", "is too long"),
]


@pytest.mark.parametrize("data, error, why", [pytest.param(*t, id=name) for name, *t in TRICKS])
def test_tricks_are_refused(tmp_path, data, error, why):
    with pytest.raises(getattr(archives, error)) as caught:
        get(tmp_path, data)
    assert why in str(caught.value) and str(caught.value).isprintable()
    assert len(list(tmp_path.iterdir())) == 1  # the archive


def test_names_that_a_disk_takes_for_one_are_refused(tmp_path, monkeypatch):
    """A disk that doesn't tell A from a, as macOS has it, says that the file is there."""
    from asr.download import archives as module

    def without_case(path, mode):
        return open(str(path).lower(), mode)

    monkeypatch.setattr(module, "open", without_case, raising=False)
    with pytest.raises(Refused, match="twice"):
        get(tmp_path, packed(raw(b"readme", b"x"), raw(b"README", b"y")))


# --- sizes


def test_all_that_is_decompressed_counts(tmp_path):
    """A bomb in each place where bytes can stand: a member, many, headers, behind the end; nothing stays."""
    bombs = {
        "a member": packed(raw(b"a", bytes(3 << 20))),
        "members": packed(*(raw(b"%d" % n, bytes(40_000)) for n in range(80))),
        "headers": packed(*(pax(comment=bytes(50_000)) for _ in range(60)), raw(b"a")),
        "behind the end": packed(raw(b"a", b"x"), end=bytes(3 << 20)),
    }
    for data in bombs.values():
        with pytest.raises(Refused, match="more than the corpus"):
            get(tmp_path, data, bytes=1 << 20)
        assert not (tmp_path / "out").exists()
    assert get(tmp_path, bombs["a member"], bytes=4 << 20) == {"a": bytes(3 << 20)}


def test_files_and_folders_are_counted(tmp_path):
    """Also those that are only made on the way to another."""
    for data in (
        packed(*(raw(b"%d" % n) for n in range(101))),
        packed(*(raw(b"a/%d/b/c/d/e" % n) for n in range(20))),
        zipped(*(f"{n}/" for n in range(101))),
    ):
        with pytest.raises(Refused, match="more files and folders"):
            get(tmp_path, data, members=100)
        assert not (tmp_path / "out").exists()


def test_hostile_headers_take_no_memory_and_no_recursion(tmp_path):
    archives = [
        packed(
            raw(b"x", bytes(20 << 20), b"x"), raw(b"a")
        ),  # a pax header of 20 MB that is really there
        packed(raw(b"x", b"a" * (20 << 20), b"L"), raw(b"a")),
        packed(*(pax(comment=b"x") for _ in range(2000)), raw(b"../a")),
        packed(*(raw(b"L", b"a", b"L") for _ in range(2000)), raw(b"a", kind=b"2")),
        patched(zipped("a"), RECORDS["end"], 12, struct.pack("<I", 20 << 20)) + bytes(20 << 20),
    ]
    for data in archives:
        (tmp_path / "x").write_bytes(data)
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


def test_damage_anywhere_is_damage_or_refused(tmp_path):
    """Random bytes of sound archives are others: never another exception, never a file outside."""
    whole = b"".join(
        [
            raw(b"a/b", SOUND),
            pax(path=b"a/long", size=b"5"),
            raw(b"x", b"12345"),
            raw(b"L", b"q\0", b"L"),
        ]
    )
    tars, zips = (
        whole + raw(b"y", b"z") + bytes(1024),
        zipped("a/b", "c", "d/", method=zipfile.ZIP_DEFLATED),
    )
    numbers, failed = random.Random(5), 0
    for n in range(400):
        data = bytearray(tars if n % 2 else zips)
        for _ in range(numbers.choice([1, 1, 3])):
            data[numbers.randrange(len(data))] = numbers.choice(
                [0, 1, 0x2F, 0x2E, 0x35, 0x80, 0xFF, numbers.randrange(256)]
            )
        try:
            archive = tmp_path / ("x.tar.gz" if n % 2 else "x.zip")
            archive.write_bytes(gzip.compress(data, 1) if n % 2 else data)
            unpack(archive, tmp_path / "out", Budget(1 << 20, 100))
        except (Refused, Damaged) as error:
            failed += 1
            assert str(error).isprintable() and not (tmp_path / "out").exists()
        assert {path.name for path in tmp_path.iterdir()} <= {"out", "x.tar.gz", "x.zip"}
    assert failed > 150


def test_an_error_of_the_disk_is_a_line(tmp_path):
    with pytest.raises(UserError) as caught:
        unpack(tmp_path / "absent.tar.gz", tmp_path / "out", Budget(1, 1))
    assert "No such file" in str(caught.value) and not (tmp_path / "out").exists()
    assert "why" in str(unwritten(OSError("why"), tmp_path, ""))
