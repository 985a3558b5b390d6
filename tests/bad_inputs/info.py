"""asr-info: whatever a stranger calls a model, a tokenizer, a manifest, a language model, a recording or a text."""

import gzip
import json
import os
import socket
import struct

from bad_inputs.case import SOME, case
from bad_inputs.material import wav

INFO = "asr-info x"


def file(content, name="x"):
    return lambda r: r.write(name, content)


def model(change):
    """A copy of the model, m, and a change of it."""
    return lambda r: [r.copy("model", "m"), change(r)]


def header(head, tail=b"", size=None):
    """A copy of the model whose weights begin with this."""
    length = struct.pack("<Q", len(head) if size is None else size)
    return model(lambda r: r.write("m/model.safetensors", length + head + tail))


def bound(r):
    """A socket."""
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(r.path)
        made.bind("x")


def plain(room, done):
    """No command of a terminal goes there."""
    assert "\x1b" not in done.out + done.err


def says(*facts):
    """Each stands in what is printed."""

    def check(room, done):
        assert all(fact in done.out for fact in facts), done.out

    return check


CASES = [
    # names
    case("nothing is asked about", "asr-info", "PATH"),
    case("an empty name", ["asr-info", ""], "empty"),
    case(
        "a name that isn't there, but for a letter",
        "asr-info modle",
        "modle",
        "'model'",
        given=lambda r: r.folder("model"),
    ),
    case("a broken link", INFO, "x", given=lambda r: r.link("x", "gone")),
    case("a link to itself", INFO, "x", given=lambda r: r.link("x", "x")),
    case("a name of 5000 letters", f"asr-info {'x' * 5000}", "too long"),
    case("a name below a file", "asr-info x/y", "x/y", given=file("a")),
    case("an option that it doesn't have", "asr-info --yaml x", "--yaml", given=file("a")),
    # what is no file, or closed
    case("a named pipe isn't waited for", INFO, "x", "pipe", given=lambda r: r.pipe("x")),
    case("a socket", INFO, "x", "socket", given=bound),
    case("a device without an end", "asr-info /dev/zero", "/dev/zero", "device"),
    case(
        "a file closed to this user",
        INFO,
        "x",
        "Permission denied",
        given=lambda r: file("LOW\n")(r).chmod(0),
        user=True,
    ),
    case(
        "a folder closed to this user",
        INFO,
        "x",
        "Permission denied",
        given=lambda r: r.folder("x").chmod(0),
        user=True,
    ),
    case(
        "a model's weights closed to this user",
        "asr-info m",
        "m/model.safetensors",
        "Permission denied",
        user=True,
        given=model(lambda r: (r / "m/model.safetensors").chmod(0)),
    ),
    # what is nothing that it knows
    case("an empty file", INFO, "x", "empty", given=file("")),
    case("an empty folder", INFO, "x", "empty", given=lambda r: r.folder("x")),
    case(
        "a folder of other things",
        INFO,
        "x",
        "notes.txt",
        given=lambda r: r.write("x/notes.txt", "a"),
    ),
    case("an archive", INFO, "x", given=file(b"PK\x03\x04" + b"\0" * 60)),
    case(
        "a sound to be converted",
        "asr-info x.m4a",
        "x.m4a",
        "ffmpeg",
        given=file(b"\0\0\0\x18ftypM4A " + b"\0" * 64, "x.m4a"),
    ),
    case(
        "a text in UTF-16",
        "asr-info x.txt",
        "x.txt",
        "UTF-16",
        given=file("LOW\n".encode("utf-16"), "x.txt"),
    ),
    case(
        "a pickle",
        "asr-info x.pt",
        "x.pt",
        given=file(b"\x80\x02cos\nsystem\nX\x04\0\0\0exit\x85R.", "x.pt"),
    ),
    # models
    case(
        "a header of the weights as long as a disk",
        "asr-info m",
        "m/model.safetensors",
        given=header(b"{}", size=1 << 62),
    ),
    case(
        "a header of the weights that the file doesn't hold",
        "asr-info m",
        "m/model.safetensors",
        given=header(b"{}", size=90_000_000),
    ),
    case(
        "a header of the weights that is no JSON",
        "asr-info m",
        "m/model.safetensors",
        given=header(b"not at all"),
    ),
    case(
        "a header of the weights that is nested deeply",
        "asr-info m",
        "m/model.safetensors",
        given=header(b"[" * 200_000),
    ),
    case(
        "a header of the weights with a size of 5000 digits",
        "asr-info m",
        "m/model.safetensors",
        given=header(
            b'{"a":{"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,4]}}', b"\0" * 4
        ),
    ),
    case(
        "weights that end early",
        "asr-info m",
        "m/model.safetensors",
        "truncated",
        given=model(
            lambda r: r.write("m/model.safetensors", (r / "m/model.safetensors").read_bytes()[:-64])
        ),
    ),
    case(
        "weights with a shape below nothing",
        "asr-info m",
        "m/model.safetensors",
        given=header(b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', b"\0" * 4),
    ),
    case(
        "settings that run code",
        "asr-info m",
        "m/config.yaml",
        given=model(
            lambda r: r.write("m/config.yaml", "model: !!python/object/apply:os.mkdir [was_here]\n")
        ),
    ),
    case(
        "settings with a bomb of aliases",
        "asr-info m",
        "m/config.yaml",
        memory=1 << 30,
        given=model(
            lambda r: r.write(
                "m/config.yaml",
                "a: &a [x,x,x,x,x,x,x,x,x]\n"
                + "".join(
                    f"{c}: &{c} [{','.join([f'*{b}'] * 9)}]\n"
                    for b, c in zip("abcdefgh", "bcdefghi", strict=True)
                )
                + "model: *i\n",
            )
        ),
    ),
    case(
        "settings whose model is a list",
        "asr-info m",
        "m/config.yaml",
        "model",
        given=model(lambda r: r.write("m/config.yaml", "model: [1]\n")),
    ),
    case(
        "settings of a model that nobody knows",
        "asr-info m",
        "m/config.yaml",
        "diffusion",
        given=model(lambda r: r.write("m/config.yaml", "model: {kind: diffusion}\n")),
    ),
    case(
        "facts of the making that are damaged are left out",
        "asr-info m",
        status=0,
        then=says("parameters"),
        given=model(
            lambda r: r.write(
                "m/versions.json", '{"longest_seconds": {"a": []}, "commit": ["\x1b[2J"'
            )
        ),
    ),
    case(
        "figures that are damaged are left out",
        "asr-info m",
        status=0,
        then=says("parameters"),
        given=model(
            lambda r: r.write(
                "m/metrics.jsonl",
                b'\xff{"kind": "dev"}\n[]\n{"kind": "dev", "step": "x", "wer": {}}\n',
            )
        ),
    ),
    # tokenizers, manifests, language models
    case(
        "a tokenizer of another toolkit",
        "asr-info t",
        "t/tokenizer.json",
        given=lambda r: r.write("t/tokenizer.json", '{"model": {"type": "BPE"}}'),
    ),
    case(
        "merges that are no merges",
        "asr-info t",
        "t/bpe.model",
        given=lambda r: [
            r.write("t/tokenizer.json", '{"kind": "bpe"}'),
            r.write("t/bpe.model", b"\x0a\xff\xff\xff\xff\x0f"),
        ],
    ),
    case(
        "a manifest that is cut",
        "asr-info x.jsonl.gz",
        "x.jsonl.gz",
        "damaged",
        given=lambda r: r.write("x.jsonl.gz", r.ready["train"].read_bytes()[:-30]),
    ),
    case(
        "a manifest whose speakers command the terminal",
        "asr-info x.jsonl",
        status=(0, 2),
        then=plain,
        given=lambda r: r.manifest(
            "x.jsonl",
            lambda lines: (
                [line["supervisions"][0].update(speaker="\x1b[2J") for line in lines] and None
            ),
        ),
    ),
    case(
        "a manifest of one line of a gigabyte",
        "asr-info x.jsonl.gz",
        "x.jsonl.gz",
        memory=300 << 20,
        given=lambda r: r.write("x.jsonl.gz", gzip.compress(b" " * (1 << 25), 1) * 32),
    ),
    case(
        "a manifest with a line of another kind",
        "asr-info x.jsonl",
        "x.jsonl:2",
        given=lambda r: r.manifest(
            "x.jsonl",
            lambda lines: [lines[0], {"audio_filepath": "a.wav", "text": "LOW", "duration": 1.0}],
        ),
    ),
    case(
        "an n-gram model with a count of 5000 digits",
        "asr-info x.arpa",
        "x.arpa",
        given=file(f"\\data\\\nngram 1={'9' * 5000}\n\n\\1-grams:\n", "x.arpa"),
    ),
    case(
        "an n-gram model of a header alone",
        "asr-info x.arpa",
        "x.arpa",
        given=file("\\data\\\n", "x.arpa"),
    ),
    case(
        "a stamp that is damaged",
        "asr-info .x.stamp.json",
        ".x.stamp.json",
        given=file('{"command": 5', ".x.stamp.json"),
    ),
    # recordings
    case(
        "a recording cut short",
        "asr-info x.wav",
        "x.wav",
        "truncated",
        given=file(wav()[:3000], "x.wav"),
    ),
    case(
        "a recording of no known kind",
        "asr-info x.wav",
        "x.wav",
        given=file(b"\x00\x01\x02\x03" * 50, "x.wav"),
    ),
    # several, and where it is said
    case(
        "one of several is bad: the others are told",
        "asr-info $wav gone $tokenizer",
        "gone",
        status=SOME,
        then=says("8000", "characters"),
    ),
    case(
        "the same as JSON",
        "asr-info --json $wav gone",
        "gone",
        status=SOME,
        then=lambda room, done: [json.loads(line) for line in done.out.splitlines()],
    ),
    case("nobody can be told", "asr-info $wav", "space", stdout="/dev/full"),
    case(
        "a name that isn't UTF-8 is shown",
        [b"asr-info", b"caf\xe9.wav"],
        "caf",
        status=(0, 2),
        given=lambda r: r.write(os.fsdecode(b"caf\xe9.wav"), wav()),
    ),
]
