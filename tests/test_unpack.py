"""Prove that archives write nothing but files and folders, within their folder, and no more than a corpus has.

What is right is what Python's tarfile, zipfile and the system's tar make of archives without tricks. Archives with
tricks are made by hand, header by header, and each is refused, with nothing written outside and nothing left.
"""

import gzip
import io
import os
import random
import shutil
import stat
import struct
import subprocess
import tarfile
import tracemalloc
import zipfile

import pytest

from asr.download.disk import unwritten
from asr.download.members import Budget, Damaged, Refused
from asr.download.unpack import unpack
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
        line = b" %s=%s\n" % (key.replace("_", ".").encode(), value)
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
    return {
        str(path.relative_to(tmp_path / "out")): path.read_bytes() if path.is_file() else None
        for path in (tmp_path / "out").rglob("*")
    }


# --- what has no tricks


LONG = "/".join(f"{letter * 60}" for letter in "abcd")
FILES = {
    "an4/README": b"x",
    "an4/wav/empty.sph": b"",
    "an4/wav/block.sph": SOUND[:512],
    "an4/wav/two.sph": SOUND[:1024],
    "an4/wav/odd.sph": SOUND,
    "an4/etc/übung 一.txt": b"y",
    f"an4/{LONG}.sph": SOUND[:7],
}


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_what_tarfile_packs_is_unpacked(tmp_path, form):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=form, compresslevel=1) as archive:
        for name, data in ({"an4/void/": b""} | FILES).items():
            if form == tarfile.USTAR_FORMAT and LONG in name:
                continue
            member = tarfile.TarInfo(name)
            member.size, member.type = (
                len(data),
                tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE,
            )
            member.mtime = 0.5  # a pax header of its own
            archive.addfile(member, io.BytesIO(data))
    found = get(tmp_path, buffer.getvalue())
    expected = {
        name: data
        for name, data in FILES.items()
        if form != tarfile.USTAR_FORMAT or LONG not in name
    }
    assert {name: data for name, data in found.items() if data is not None} == expected
    assert found["an4/void"] is None


@pytest.mark.parametrize("form", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_what_the_systems_tar_packs_is_unpacked(tmp_path, form):
    if not shutil.which("tar"):
        pytest.skip("no tar on this system")
    for name, data in FILES.items():
        if LONG not in name or form in ("gnu", "oldgnu", "posix"):
            path = tmp_path / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    done = subprocess.run(
        ["tar", f"--format={form}", "-cz", "-C", tmp_path / "in", "."], capture_output=True
    )
    if done.returncode:
        pytest.skip(f"this tar has no {form}: {done.stderr.decode()}")
    found = get(tmp_path, done.stdout)
    there = {
        str(p.relative_to(tmp_path / "in")): p.read_bytes()
        for p in (tmp_path / "in").rglob("*")
        if p.is_file()
    }
    assert {name: data for name, data in found.items() if data is not None} == there and len(
        there
    ) >= 6


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

TARS = {
    "a name that goes up": (packed(raw(b"../evil", b"x")), Refused, "leads out"),
    "a name that goes down and up": (packed(raw(b"a/../../evil", b"x")), Refused, "leads out"),
    "an absolute name": (packed(raw(b"/tmp/evil", b"x")), Refused, "leads out"),
    "a prefix that goes up": (packed(raw(b"evil", b"x", prefix=b"../..")), Refused, "leads out"),
    "an absolute prefix": (packed(raw(b"evil", b"x", prefix=b"/tmp")), Refused, "leads out"),
    "a pax name that goes up": (
        packed(pax(path=b"../evil"), raw(b"good", b"x")),
        Refused,
        "leads out",
    ),
    "a GNU name that goes up": (
        packed(raw(b"L", b"../evil\0", b"L"), raw(b"good", b"x")),
        Refused,
        "leads out",
    ),
    "a folder that goes up": (packed(raw(b"../evil/", kind=b"5")), Refused, "leads out"),
    "a drive": (packed(raw(b"C:evil", b"x")), Refused, "leads out"),
    "a backslash": (packed(raw(b"..\\evil", b"x")), Refused, "backslash"),
    "a terminal's sequence": (packed(raw(b"\x1b[2Jevil", b"x")), Refused, "control character"),
    "a line's end": (packed(raw(b"a\nb", b"x")), Refused, "control character"),
    "a name written from right to left": (
        packed(raw("a\u202ehps.b".encode(), b"x")),
        Refused,
        "control character",
    ),
    "a pax name with a NUL": (
        packed(pax(path=b"a\0b"), raw(b"good", b"x")),
        Refused,
        "control character",
    ),
    "no name": (packed(raw(b"", b"x")), Refused, "empty"),
    "an empty pax name": (packed(pax(path=b""), raw(b"good", b"x")), Refused, "empty"),
    "a name that isn't UTF-8": (packed(raw(b"\xff\xfe", b"x")), Refused, "UTF-8"),
    "a lone surrogate": (packed(raw(b"\xed\xa0\x80", b"x")), Refused, "UTF-8"),
    "a name of 5000 letters": (
        packed(raw(b"L", b"a" * 5000, b"L"), raw(b"x", b"x")),
        Refused,
        "is too long",
    ),
    "a part of 300 letters": (
        packed(pax(path=b"a/" + b"b" * 300), raw(b"x", b"x")),
        Refused,
        "is too long",
    ),
    "300 folders": (
        packed(pax(path=b"a/" * 300), raw(b"x", kind=b"5")),
        Refused,
        "300 levels deep",
    ),
    "a file that is the folder": (packed(raw(b".", b"x")), Refused, "twice"),
    "a symbolic link": (packed(raw(b"a", kind=b"2")), Refused, "symbolic link"),
    "a hard link": (packed(raw(b"a", kind=b"1")), Refused, "hard link"),
    "a device": (packed(raw(b"a", kind=b"3")), Refused, "device"),
    "a block device": (packed(raw(b"a", kind=b"4")), Refused, "device"),
    "a fifo": (packed(raw(b"a", kind=b"6")), Refused, "fifo"),
    "a sparse file": (packed(raw(b"a", kind=b"S")), Refused, "sparse"),
    "a sparse file of pax": (
        packed(pax(GNU_sparse_major=b"1"), raw(b"a", b"x")),
        Refused,
        "sparse",
    ),
    "a kind of the future": (packed(raw(b"a", kind=b"Z")), Refused, "neither a file nor a folder"),
    "a name twice": (packed(raw(b"a", b"x"), raw(b"a", b"y")), Refused, "twice"),
    "a name twice, once with a dot": (
        packed(raw(b"a/b", b"x"), raw(b"./a//b", b"y")),
        Refused,
        "twice",
    ),
    "a file, then a folder": (packed(raw(b"a", b"x"), raw(b"a/b", b"y")), Refused, "twice"),
    "a folder, then a file": (packed(raw(b"a/", kind=b"5"), raw(b"a", b"y")), Refused, "twice"),
    "a size that is too large": (
        packed(raw(b"a", size=b"77777777777")),
        Refused,
        "more than the corpus",
    ),
    "a binary size": (
        packed(raw(b"a", size=b"\x80" + b"\xff" * 11)),
        Refused,
        "more than the corpus",
    ),
    "a negative size": (packed(raw(b"a", size=b"\xff" * 12)), Damaged, "number"),
    "a negative octal size": (packed(raw(b"a", size=b"-0000000512\0")), Damaged, "number"),
    "a pax size that is too large": (
        packed(pax(size=b"9" * 18), raw(b"a")),
        Refused,
        "more than the corpus",
    ),
    "a pax size of 5000 digits": (packed(pax(size=b"9" * 5000), raw(b"a")), Damaged, "number"),
    "a negative pax size": (packed(pax(size=b"-512"), raw(b"a")), Damaged, "number"),
    "a pax header that claims a gigabyte": (
        packed(raw(b"x", kind=b"x", size=b"%011o" % 2**30)),
        Refused,
        "header of",
    ),
    "a GNU name that claims a gigabyte": (
        packed(raw(b"x", kind=b"L", size=b"%011o" % 2**30)),
        Refused,
        "header of",
    ),
    "a pax record longer than its header": (
        packed(raw(b"x", b"99 path=a\n", b"x"), raw(b"a")),
        Damaged,
        "pax",
    ),
    "a pax record of no length": (
        packed(raw(b"x", b"0 path=a\n", b"x"), raw(b"a")),
        Damaged,
        "pax",
    ),
    "a pax record without its end": (
        packed(raw(b"x", b"9 path=ab", b"x"), raw(b"a")),
        Damaged,
        "pax",
    ),
    "one name for all": (
        packed(pax(b"g", path=b"a"), raw(b"b", b"x")),
        Refused,
        "one name or size",
    ),
    "a header without its member": (packed(pax(path=b"a")), Damaged, "no member"),
    "a wrong checksum": (packed(raw(b"a", b"x", checksum=b"000001\0 ")), Damaged, "checksum"),
    "a checksum that is no number": (
        packed(raw(b"a", b"x", checksum=b"........")),
        Damaged,
        "number",
    ),
    "an end within a header": (packed(raw(b"a", b"x")[:400], end=b""), Damaged, "within a header"),
    "an end within a member": (
        packed(raw(b"a", SOUND)[:1024], end=b""),
        Damaged,
        "within a member",
    ),
    "text": (gzip.compress(b"<html>log in first</html>" * 40), Damaged, "number"),
    "no gzip": (b"<html>log in first</html>", Damaged, "gzip"),
    "nothing": (b"", Damaged, "empty"),
    "gzip without its end": (packed(raw(b"a", SOUND))[:-20], Damaged, "ended before"),
    "a wrong checksum of gzip": (packed(raw(b"a", SOUND))[:-8] + bytes(8), Damaged, "CRC"),
    "something behind": (packed(raw(b"a", SOUND)) + b"#!/bin/sh", Damaged, "gzip"),
}
LOCAL, CENTRAL, END = b"PK\3\4", b"PK\1\2", b"PK\5\6"
ZIPS = {
    "a name that goes up": (zipped("a/../../evil"), Refused, "leads out"),
    "an absolute name": (zipped("/evil"), Refused, "leads out"),
    "a drive": (zipped("C:/evil"), Refused, "leads out"),
    "a backslash": (zipped("..\\evil"), Refused, "backslash"),
    "a terminal's sequence": (zipped("\x1b[2Jevil"), Refused, "control character"),
    "a NUL in a name": (zipped("ab").replace(b"ab", b"a\0"), Refused, "isn't a name"),
    "a name twice": (zipped("name1", "name2").replace(b"name2", b"name1"), Refused, "twice"),
    "a file, then a folder": (zipped("a", "a/b"), Refused, "twice"),
    "a long name": (zipped("a" * 5000), Refused, "is too long"),
    "a symbolic link": (zipped("a", external_attr=0o120777 << 16), Refused, "symbolic link"),
    "a device": (zipped("a", external_attr=0o020666 << 16), Refused, "neither"),
    "a size that is too large": (zipped("a", file_size=2**31), Refused, "more than the corpus"),
    "a size that is too small": (
        zipped("a", method=zipfile.ZIP_DEFLATED, file_size=10),
        Damaged,
        "CRC",
    ),
    "a size that is a little too large": (
        zipped("a", method=zipfile.ZIP_DEFLATED, file_size=4000),
        Damaged,
        "",
    ),
    "encryption": (patched(zipped("a"), CENTRAL, 8, b"\1\0"), Refused, "encrypted"),
    "bzip2": (zipped("a", method=zipfile.ZIP_BZIP2), Refused, "compressed in a way"),
    "an unknown method": (
        patched(zipped("a"), CENTRAL, 10, b"\x63\0"),
        Refused,
        "compressed in a way",
    ),
    "a version of the future": (patched(zipped("a"), CENTRAL, 6, b"\xff\0"), Damaged, "version"),
    "another name before the content": (patched(zipped("a"), LOCAL, 30, b"b"), Damaged, "differ"),
    "names that are said to be UTF-8": (
        patched(patched(zipped("a"), CENTRAL, 8, b"\0\x08"), CENTRAL, 46, b"\xff"),
        Damaged,
        "decode",
    ),
    "a wrong checksum": (zipped("a", CRC=1), Damaged, "CRC"),
    "a list that isn't where it is said": (
        patched(zipped("a"), END, 16, b"\xff\xff\xff\x0f"),
        Damaged,
        "",
    ),
    "a list longer than the file": (
        patched(zipped("a"), END, 12, b"\xff\xff\xff\x0f"),
        Damaged,
        "",
    ),
    "two members that share their bytes": (zipped("a", "b", header_offset=0), Refused, "overlap"),
    "no list": (zipped("a")[:-22] + b"PK\5\6", Damaged, "not a zip"),
}


@pytest.mark.parametrize(
    "kind, trick", [("tar", name) for name in TARS] + [("zip", name) for name in ZIPS]
)
def test_tricks_are_refused(tmp_path, kind, trick):
    data, error, why = (TARS if kind == "tar" else ZIPS)[trick]
    with pytest.raises(error) as caught:
        get(tmp_path, data)
    assert why in str(caught.value) and str(caught.value).isprintable()
    assert [path.name for path in tmp_path.iterdir()] == [
        f"x.{'zip' if kind == 'zip' else 'tar.gz'}"
    ]


def test_names_that_a_disk_takes_for_one_are_refused(tmp_path, monkeypatch):
    """A disk that doesn't tell A from a, as macOS has it, says that the file is there."""
    from asr.download import unpack as module

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
        patched(zipped("a"), END, 12, struct.pack("<I", 20 << 20)) + bytes(20 << 20),
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
