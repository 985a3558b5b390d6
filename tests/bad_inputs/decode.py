"""asr-decode: recordings, model folders, manifests, numbers, language models, hotwords, outputs."""

import gzip
import json
import os
import struct

from bad_inputs.case import SOME, both, case, named
from bad_inputs.material import damaged, encoded, wav

DECODE = "asr-decode --model $model --mode ctc-greedy"
BEAM = "asr-decode --model $model --beam 2"
MADE = ("o.txt", ".o.txt*", "*failed.tsv", "o.json")
EITHER = (2, 3)
GOOD = "$wav"
SPHERE = b"""NIST_1A
   1024
channel_count -i 1
sample_rate -i 8000
sample_n_bytes -i 2
sample_count -i 1000000000000
sample_coding -s3 pcm
end_head
"""


def good_is_done(room, done):
    """The good recording's line stands in the output, and no other."""
    lines = (room / "o.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t")[0] for line in lines] == [str(room.ready["wav"])]


def sound(name, content, *says, file="bad.wav", given=None, **more):
    """A row of a bad recording before a good one: it is named and listed, the good one is done."""
    made = given or (lambda r: r.write(file, content))
    return case(
        name,
        f"{DECODE} {file} {GOOD} --out o.txt",
        file,
        *says,
        given=made,
        status=SOME,
        leaves=MADE,
        then=both(good_is_done, named("*failed.tsv", file)),
        **more,
    )


def model(name, *says, change, **more):
    """A row of a broken copy of the model, m."""
    return case(
        name,
        f"asr-decode --model m --mode ctc-greedy {GOOD}",
        *says,
        given=lambda r: [r.copy("model", "m"), change(r)],
        **more,
    )


def weights(change):
    """Rewrite the weights: header and bytes → header and bytes."""

    def given(r):
        path = r / "m/model.safetensors"
        data = path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header, tensors = change(json.loads(data[8 : 8 + size]), data[8 + size :])
        head = header if isinstance(header, bytes) else json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(head)) + head + tensors)

    return given


def as_integers(header, tensors):
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            entry["dtype"] = "I32"
    return header, tensors


def as_bf16(header, tensors):
    entry = next(
        e
        for n, e in header.items()
        if n != "__metadata__" and e["dtype"] == "F32" and len(e["shape"]) == 2
    )
    begin, end = entry["data_offsets"]
    entry["dtype"], entry["shape"] = "BF16", [entry["shape"][0], 2 * entry["shape"][1]]
    return header, tensors[:begin] + tensors[begin:end] + tensors[end:]


def stranger(header, tensors):
    return header | {
        "stranger": {"dtype": "F32", "shape": [1], "data_offsets": [len(tensors)] * 2}
    }, tensors


def one_more(header, tensors):
    more = {
        "stranger": {"dtype": "F32", "shape": [1], "data_offsets": [len(tensors), len(tensors) + 4]}
    }
    return header | more, tensors + b"\0\0\0\0"


def twice(header, tensors):
    text = json.dumps(header)
    name = next(name for name in header if name != "__metadata__")
    return f'{text[:-1]}, "{name}": {json.dumps(header[name])}}}'.encode(), tensors


def manifest(name, change, *says, what="dev", good=3, **more):
    """A row of a manifest whose second line is changed."""
    given = lambda r: r.manifest("m.jsonl.gz", lambda lines: change(lines[1]), what)  # noqa: E731
    return case(
        name, f"{DECODE} --manifest m.jsonl.gz --out o.txt", *says, given=given, leaves=MADE, **more
    )


def others_are_done(room, done):
    """Three of the four lines of dev."""
    lines = (room / "o.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t")[0] for line in lines] == ["dev000", "dev002", "dev003"]


def arpa(name, change, *says, **more):
    """A row of a changed copy of the n-gram model; `change` of its text."""
    given = lambda r: r.write("lm.arpa", change(r.ready["arpa"].read_text(encoding="utf-8")))  # noqa: E731
    return case(name, f"{BEAM} --lm lm.arpa {GOOD}", "lm.arpa", *says, given=given, **more)


def line_of(text, n, number=2):
    """The number-th line of the n-grams, and the text around it."""
    head, rest = text.split(f"\\{n}-grams:\n")
    lines = rest.split("\n")
    return (
        f"{head}\\{n}-grams:\n" + "\n".join(lines[:number]),
        lines[number],
        "\n".join(lines[number + 1 :]),
    )


def with_line(n, change):
    def edit(text):
        head, line, rest = line_of(text, n)
        return f"{head}\n{change(line)}\n{rest}"

    return edit


def hotwords(name, content, *says, **more):
    """A row of a file of hotwords."""
    return case(
        name,
        f"{BEAM} --hotwords h.txt {GOOD}",
        "h.txt",
        *says,
        given=lambda r: r.write("h.txt", content),
        **more,
    )


def start(line, **changes):
    line.update(changes)


CASES = [
    # recordings: one bad, one good
    sound("a recording without samples", wav(0)),
    sound(
        "a recording of no channels",
        wav().replace(struct.pack("<HHI", 1, 1, 8000), struct.pack("<HHI", 1, 0, 8000)),
    ),
    sound("a recording of one sample a second", wav(rate=1), ("1 Hz", "rate")),
    sound("a recording of ten samples", wav(10), ("short", "10 samples")),
    sound(
        "a recording that is but a tag",
        b"ID3\x04\0\0\0\0\0\x21" + b"TIT2" + b"\0" * 40,
        file="bad.mp3",
    ),
    sound("a recording within gzip", gzip.compress(wav())),
    sound("a picture in the same kind of chunks", b"RIFF\x24\0\0\0WEBPVP8 \x18\0\0\0" + b"\0" * 28),
    sound(
        "notes to play",
        b"MThd\0\0\0\x06\0\x01\0\x02\0\x60MTrk\0\0\0\x04\0\xff\x2f\0",
        file="song.mid",
    ),
    sound("a flac damaged in its middle", damaged(encoded("FLAC")), file="bad.flac"),
    sound(
        "an ogg of no known codec",
        b"OggS\0\x02" + b"\0" * 20 + b"\x01\x10" + b"Nonsense\0\0\0\0\0\0\0\0",
        file="bad.ogg",
    ),
    sound(
        "a NIST header that promises too much",
        SPHERE.ljust(1024) + wav()[44:],
        file="bad.sph",
    ),
    sound("a broken link", None, given=lambda r: r.link("bad.wav", "gone.wav")),
    sound("a link to itself", None, given=lambda r: r.link("bad.wav", "bad.wav")),
    sound("a source of zeros without an end", None, given=lambda r: r.link("bad.wav", "/dev/zero")),
    sound("a named pipe", None, given=lambda r: r.pipe("bad.wav")),
    sound(
        "a file closed to this user",
        wav(),
        "Permission denied",
        given=lambda r: r.write("bad.wav", wav()).chmod(0),
        user=True,
    ),
    case(
        "a name with a terminal's commands",
        ["asr-decode", "--model", "$model", "--mode", "ctc-greedy", "\x1b[2Jx.wav"],
        "\\x1b",
        given=lambda r: r.write("\x1b[2Jx.wav", wav()),
        status=EITHER,
    ),
    case("a name of nothing", ["asr-decode", "--model", "$model", ""], ("empty", "''")),
    case(
        "all recordings are bad",
        f"{DECODE} a.wav b.wav --out o.txt",
        "a.wav",
        "b.wav",
        status=EITHER,
        leaves=MADE,
        given=lambda r: [r.write("a.wav", "no"), r.write("b.wav", "no, either")],
    ),
    # model folders
    case("the model is an empty name", ["asr-decode", "--model", "", "$wav"], "--model"),
    case(
        "the model is its configuration",
        f"asr-decode --model $model/config.yaml {GOOD}",
        "config.yaml",
        "folder",
    ),
    case(
        "the model is a tokenizer",
        f"asr-decode --model $tokenizer {GOOD}",
        "tokenizer",
        "config.yaml",
    ),
    case("the model is a language model", f"asr-decode --model $lm {GOOD}", "language model"),
    model(
        "the weights are a folder",
        "m/model.safetensors",
        change=lambda r: [(r / "m/model.safetensors").unlink(), r.folder("m/model.safetensors")],
    ),
    model(
        "the weights lack their last byte",
        "m/model.safetensors",
        change=lambda r: r.write(
            "m/model.safetensors", (r / "m/model.safetensors").read_bytes()[:-1]
        ),
    ),
    model(
        "the weights have a tensor of their own", "m/model.safetensors", change=weights(one_more)
    ),
    model("the weights have a tensor of no bytes", "m/model.safetensors", change=weights(stranger)),
    model("the weights have a tensor twice", "m/model.safetensors", change=weights(twice)),
    model("the weights are whole numbers", "m/model.safetensors", change=weights(as_integers)),
    model(
        "the weights have a matrix of half the bits", "m/model.safetensors", change=weights(as_bf16)
    ),
    model(
        "the settings have no model",
        "m/config.yaml",
        "model",
        change=lambda r: r.write(
            "m/config.yaml", "features: {fbank: {sample_rate: 8000}}\nmodel:\n"
        ),
    ),
    model(
        "the settings have another rate than the weights were made for",
        "m/config.yaml",
        change=lambda r: r.edit("m/config.yaml", "sample_rate: 8000", "sample_rate: 16000"),
    ),
    model(
        "the tokenizer is one of another size",
        "tokenizer",
        change=lambda r: r.write("m/tokenizer.json", '{"kind": "characters", "characters": ["A"]}'),
    ),
    model(
        "the facts of its making are damaged, which doesn't matter",
        status=0,
        change=lambda r: r.write("m/versions.json", '{"longest_seconds": [1e999]}'),
    ),
    # manifests
    case("the manifest is a recording", f"{DECODE} --manifest $wav", "train000.wav"),
    manifest(
        "a channel that the recording doesn't have",
        lambda line: start(line, channel=5),
        ("dev001", "m.jsonl.gz:2"),
        "channel",
        status=EITHER,
    ),
    manifest(
        "a part behind the recording's end",
        lambda line: start(line, start=100.0),
        "dev001",
        status=SOME,
        then=both(others_are_done, named("*failed.tsv", "dev001")),
    ),
    manifest(
        "a part longer than all of time",
        lambda line: start(line, duration=1e300),
        ("m.jsonl.gz:2", "dev001"),
        status=EITHER,
    ),
    manifest("an id of nothing", lambda line: start(line, id=""), "m.jsonl.gz:2", status=EITHER),
    manifest(
        "a recording of a manifest that has gone",
        lambda line: line["recording"]["sources"][0].update(source="/gone/a.wav"),
        "/gone/a.wav",
        status=SOME,
        then=both(others_are_done, named("*failed.tsv", "dev001")),
    ),
    # numbers
    case(
        "a beam of twenty digits",
        f"asr-decode --model $model --beam 99999999999999999999 {GOOD}",
        "beam",
        "99999999999999999999",
    ),
    case(
        "a beam of a thousand million",
        f"asr-decode --model $model --beam 1000000000 {GOOD}",
        ("beam", "memory"),
        memory=3 << 30,
    ),
    case("a weight that is no number", f"{BEAM} --ctc-weight nan {GOOD}", "ctc-weight", "nan"),
    case(
        "a length bonus near the largest number",
        f"{BEAM} --length-bonus 1e308 {GOOD}",
        "length-bonus",
        "1e",
    ),
    case(
        "batches of seconds without an end",
        f"{DECODE} --batch-seconds inf {GOOD}",
        "--batch-seconds",
        "inf",
        status=(0, 2),
    ),
    case(
        "a setting to tune without values",
        f"{BEAM} --manifest $dev --tune ctc-weight=",
        "ctc-weight",
    ),
    case(
        "a manifest to tune on without texts",
        f"{BEAM} --manifest m.jsonl --tune beam=1,2",
        "dev000",
        given=lambda r: r.manifest(
            "m.jsonl", lambda lines: [line.pop("supervisions") for line in lines] and None, "dev"
        ),
    ),
    # language models
    case(
        "the language model is an empty name",
        ["asr-decode", "--model", "$model", "--lm", "", "$wav"],
        "--lm",
    ),
    case("the language model is a recognizer", f"{BEAM} --lm $model {GOOD}", "recogni"),
    case("the language model is a recording", f"{BEAM} --lm $wav {GOOD}", "train000.wav", "ARPA"),
    arpa(
        "a probability above one",
        with_line(1, lambda line: "0.5" + line[line.index("\t") :]),
        "lm.arpa:",
    ),
    arpa(
        "a probability that is no number",
        with_line(1, lambda line: "nan" + line[line.index("\t") :]),
        "lm.arpa:",
    ),
    arpa(
        "a back-off without bounds",
        with_line(1, lambda line: line.rsplit("\t", 1)[0] + "\tinf"),
        "lm.arpa:",
    ),
    arpa(
        "an n-gram twice",
        lambda text: with_line(2, lambda line: line_of(text, 2, 1)[1])(text),
        ("twice", "second time", "again"),
    ),
    arpa(
        "fewer n-grams than the header says",
        lambda text: line_of(text, 2)[0] + "\n" + line_of(text, 2)[2],
        "2-gram",
    ),
    arpa(
        "the lengths have a gap",
        lambda text: text.replace("ngram 2=", "ngram 3=").replace("\\2-grams:", "\\3-grams:"),
    ),
    arpa("the end is absent", lambda text: text.replace("\\end\\", ""), "\\end\\"),
    arpa(
        "nothing but the word unknown",
        lambda text: "\\data\\\nngram 1=3\n\n\\1-grams:\n-1\t<unk>\n-1\t<s>\n-1\t</s>\n\n\\end\\\n",
    ),
    # hotwords
    hotwords("hotwords: an empty file", ""),
    hotwords("hotwords: a recording", wav()),
    hotwords("hotwords: in UTF-16", "LOW\n".encode("utf-16"), ("UTF-16", "UTF-8")),
    hotwords("hotwords: a weight that is no number", "LOW\tnan\n", "h.txt:1", "nan"),
    hotwords("hotwords: a weight below nothing", "LOW\t-5\n", "h.txt:1", "-5"),
    hotwords("hotwords: too many columns", "LOW\t2\tMID\n", "h.txt:1"),
    hotwords("hotwords: a word twice with two weights", "LOW\t2\nMID\nLOW\t5\n", "h.txt:3", "LOW"),
    case("hotwords: a folder", f"{BEAM} --hotwords $tokenizer {GOOD}", "tokenizer", "directory"),
    # outputs
    case(
        "the output is the file of hotwords",
        f"{BEAM} --hotwords h.txt --out h.txt {GOOD}",
        "h.txt",
        given=lambda r: r.write("h.txt", "LOW\n"),
    ),
    case(
        "the output is the model's configuration",
        f"asr-decode --model m --mode ctc-greedy --out m/config.yaml {GOOD}",
        "m/config.yaml",
        given=lambda r: r.copy("model", "m"),
    ),
    case(
        "the JSON lines go to the manifest",
        f"{DECODE} --manifest d.jsonl.gz --json d.jsonl.gz",
        "d.jsonl.gz",
        given=lambda r: r.copy("dev", "d.jsonl.gz"),
    ),
    case(
        "the JSON lines go to the stamp",
        f"{DECODE} {GOOD} --out o.txt --json .o.txt.stamp.json",
        ".o.txt.stamp.json",
    ),
    case(
        "the JSON lines replace somebody's file",
        f"{DECODE} {GOOD} --json thesis.tex",
        "thesis.tex",
        "--force",
        given=lambda r: r.write("thesis.tex", "\\section{}"),
    ),
    case(
        "the output is a link to the recording, which stays",
        f"{DECODE} a.wav --out o.txt",
        status=(0, 2),
        leaves=MADE,
        changes=("o.txt",),
        given=lambda r: [r.copy("wav", "a.wav"), r.link("o.txt", "a.wav")],
    ),
    case(
        "the output is a named pipe",
        f"{DECODE} {GOOD} --out o.txt",
        "o.txt",
        given=lambda r: r.pipe("o.txt"),
    ),
    case(
        "the output is an empty name",
        ["asr-decode", "--model", "$model", "--out", "", "$wav"],
        ("--out", "empty", "''"),
    ),
    case(
        "the output's name is longer than a disk allows",
        f"{DECODE} {GOOD} --out {'x' * 300}",
        "too long",
    ),
    case(
        "the output's folder is closed to this user",
        f"{DECODE} {GOOD} --out locked/o.txt",
        "locked",
        "Permission denied",
        given=lambda r: r.folder("locked").chmod(0o555),
        user=True,
    ),
    case(
        "the disk is full",
        f"{DECODE} --manifest $dev --out o.txt",
        "o.txt",
        "too large",
        leaves=(".o.txt.journal",),
        file_bytes=10,
    ),
    case(
        "a recording whose name isn't UTF-8",
        [
            b"asr-decode",
            b"--model",
            b"$model",
            b"--mode",
            b"ctc-greedy",
            b"caf\xe9.wav",
            b"$wav",
            b"--out",
            b"o.txt",
        ],
        "caf",
        status=EITHER,
        leaves=MADE,
        given=lambda r: r.write(os.fsdecode(b"caf\xe9.wav"), wav()),
    ),
]
