"""asr-train: the YAML, overrides, manifests, tokenizers, models to begin from, folders of runs, texts."""

import json
import os

from bad_inputs.case import case
from bad_inputs.material import wav
from bad_inputs.tables import rows

TRAIN = "asr-train --config $config out=m training.epochs=1 training.processes=1"
MANIFEST = f"{TRAIN} data.train=t.jsonl.gz"


def third(**changes):
    """The training manifest with something else in its third line; keys with __ go down."""

    def change(lines):
        for key, value in changes.items():
            *path, last = (int(step) if step.isdigit() else step for step in key.split("__"))
            place = lines[2]
            for step in path:
                place = place[step]
            place[last] = value

    return lambda r: r.manifest("t.jsonl.gz", change)


def manifest(name, made, *says, **more):
    """A row about the training manifest, which names file and line, or the utterance."""
    return case(name, MANIFEST, *(says or (("t.jsonl.gz:3", "train002"),)), given=made, **more)


CASES = rows("train", globals()) + [
    case(
        "the output is a date",
        "asr-train --config x.yaml",
        "x.yaml",
        "out",
        "2024",
        given=lambda r: r.write(
            "x.yaml", "out: 2024-01-31\n" + r.ready["config"].read_text().split("\n", 2)[2]
        ),
    ),
    manifest(
        "another rate than the recording's", third(recording__sampling_rate=16000), "16000 Hz"
    ),
    manifest("a recording longer than it is", third(recording__num_samples=99999), "train002"),
    manifest(
        "a letter without a token", third(supervisions__0__text="L\u00d6W"), "U+00D6", "train002"
    ),
    manifest("an id twice", third(id="train001"), "train001", "twice"),
    manifest("an empty text", third(supervisions__0__text=""), "empty text", "train002"),
    manifest(
        "a text too long for CTC", third(supervisions__0__text="LOW " * 40), "CTC", "train002"
    ),
    manifest("an utterance begins before its recording", third(start=-0.5)),
    manifest("an utterance begins behind its recording", third(start=60.0)),
    manifest("an utterance lasts no number of seconds", third(duration=float("nan"))),
    manifest("a recording's rate is nothing", third(recording__sampling_rate=0)),
    manifest("a recording's rate is a truth", third(recording__sampling_rate=True)),
    manifest("a recording has no source", third(recording__sources=[])),
    manifest("a recording is another tool's output", third(recording__sources__0__type="command")),
    manifest(
        "a recording beside the manifest is found, or the path named",
        third(recording__sources__0__source="gone/train002.wav"),
        "gone/train002.wav",
    ),
    manifest(
        "a place in a tar that is shorter",
        lambda r: [
            r.write("s.tar", b"x" * 100),
            third(
                recording__sources__0={"type": "shar", "channels": [0], "source": "s.tar:50+999999"}
            )(r),
        ],
        "s.tar",
        ("truncated", "999999"),
    ),
    manifest("an id that is a number", third(id=2)),
    manifest("an id of nothing", third(id="")),
    manifest("supervisions that are no list", third(supervisions={"text": "LOW"})),
    manifest(
        "a line that is a list",
        lambda r: r.manifest("t.jsonl.gz", lambda lines: [*lines[:2], "[1, 2]", *lines[3:]]),
    ),
    manifest(
        "a manifest without a line",
        lambda r: r.manifest("t.jsonl.gz", lambda lines: [""]),
        "t.jsonl.gz",
    ),
    case(
        "a dev set without a line",
        f"{TRAIN} data.dev=d.jsonl.gz",
        "d.jsonl.gz",
        given=lambda r: r.manifest("d.jsonl.gz", lambda lines: [""], "dev"),
    ),
    case(
        "the beginning's weights are cut",
        f"{TRAIN} init_from=old",
        "old/model.safetensors",
        given=lambda r: [
            r.copy("model", "old"),
            r.write("old/model.safetensors", (r / "old/model.safetensors").read_bytes()[:-100]),
        ],
    ),
    case(
        "a name that isn't UTF-8",
        [b"asr-train", b"--config", b"caf\xe9.yaml"],
        "caf",
        given=lambda r: r.write(os.fsdecode(b"caf\xe9.yaml"), "out: m\n"),
    ),
    case(
        "the folder of the recordings is a recording now",
        MANIFEST,
        "train002",
        given=lambda r: [
            r.write("sounds", wav()),
            third(recording__sources__0__source=f"{r / 'sounds'}/train002.wav")(r),
        ],
    ),
    case(
        "lines of JSON with a comma between them",
        MANIFEST.replace(".gz", ""),
        "t.jsonl:1",
        given=lambda r: r.write("t.jsonl", ",\n".join(map(json.dumps, r.lines()))),
    ),
]
