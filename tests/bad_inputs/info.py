"""asr-info: whatever a stranger calls a model, a tokenizer, a manifest, a language model, a recording or a text."""

import gzip
import json
import os
import socket
import struct

from bad_inputs.case import SOME, case
from bad_inputs.material import wav
from bad_inputs.tables import rows

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


CASES = rows("info", globals()) + [
    case("a name of 5000 letters", f"asr-info {'x' * 5000}", "too long"),
    case("a socket", INFO, "x", "socket", given=bound),
    case(
        "a sound to be converted",
        "asr-info x.m4a",
        "x.m4a",
        "ffmpeg",
        given=file(b"\0\0\0\x18ftypM4A " + b"\0" * 64, "x.m4a"),
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
        "a recording of no known kind",
        "asr-info x.wav",
        "x.wav",
        given=file(b"\x00\x01\x02\x03" * 50, "x.wav"),
    ),
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
    case(
        "a name that isn't UTF-8 is shown",
        [b"asr-info", b"caf\xe9.wav"],
        "caf",
        status=(0, 2),
        given=lambda r: r.write(os.fsdecode(b"caf\xe9.wav"), wav()),
    ),
]
