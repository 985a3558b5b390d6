"""asr-decode: recordings, model folders, manifests, numbers, language models, hotwords, outputs."""

import json
import os
import struct

from bad_inputs.case import SOME, both, case, named
from bad_inputs.material import wav
from bad_inputs.tables import rows

DECODE = "asr-decode --model $model --mode ctc-greedy"
BEAM = "asr-decode --model $model --beam 2"
MADE = ("o.txt", ".o.txt*", "*failed.tsv", "o.json")
EITHER = (2, 3)
GOOD = "$wav"


def good_is_done(room, done):
    """The good recording's line stands in the output, and no other."""
    lines = (room / "o.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t")[0] for line in lines] == [str(room.ready["wav"])]


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


def start(line, **changes):
    line.update(changes)


CASES = rows("decode", globals()) + [
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
    case(
        "a manifest to tune on without texts",
        f"{BEAM} --manifest m.jsonl --tune beam=1,2",
        "dev000",
        given=lambda r: r.manifest(
            "m.jsonl", lambda lines: [line.pop("supervisions") for line in lines] and None, "dev"
        ),
    ),
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
    case(
        "the output's name is longer than a disk allows",
        f"{DECODE} {GOOD} --out {'x' * 300}",
        "too long",
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
