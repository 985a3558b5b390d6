"""asr-train: the YAML, overrides, manifests, tokenizers, models to begin from, folders of runs, texts."""

import json
import os

from bad_inputs.case import case
from bad_inputs.material import wav

TRAIN = "asr-train --config $config out=m training.epochs=1 training.processes=1"
LM = "asr-train --config $lmconfig out=m training.epochs=1 training.processes=1"
MANIFEST = f"{TRAIN} data.train=t.jsonl.gz"


def yaml(text):
    return lambda r: r.write("x.yaml", text)


def edited(old, new):
    """The ready configuration with a piece replaced, x.yaml."""
    return lambda r: [r.copy("config", "x.yaml"), r.edit("x.yaml", old, new)]


def overridden(name, *overrides_and_says, **more):
    """A row about one override."""
    override, *says = overrides_and_says
    return case(name, f"{TRAIN} '{override}'", *says, **more)


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


def stopped(then):
    """A run that isn't finished, m: the ready model without its stamp."""

    def given(r):
        r.copy("model", "m")
        (r / "m/.stamp.json").unlink()
        then(r)

    return given


CASES = [
    # the YAML
    case("the configuration is an empty name", ["asr-train", "--config", ""], "--config"),
    case(
        "the configuration is a folder",
        "asr-train --config here",
        "here",
        "directory",
        given=lambda r: r.folder("here"),
    ),
    case("the configuration is empty", "asr-train --config /dev/null", "/dev/null", "mapping"),
    case("the configuration is a recording", "asr-train --config $wav", "train000.wav", "YAML"),
    case(
        "the configuration is UTF-16",
        "asr-train --config x.yaml",
        "x.yaml",
        given=yaml("out: m\nseed: 1\n".encode("utf-16")),
    ),
    case(
        "the configuration has a tab",
        "asr-train --config x.yaml",
        "x.yaml:2",
        given=yaml("data:\n\ttrain: a\n"),
    ),
    case(
        "the configuration is two documents",
        "asr-train --config x.yaml",
        "x.yaml",
        given=yaml("out: m\n---\nout: n\n"),
    ),
    case(
        "the configuration holds itself",
        "asr-train --config x.yaml",
        "x.yaml",
        given=yaml("out: m\nmodel: &a {kind: hybrid, encoder: *a}\n"),
    ),
    case(
        "the configuration has a bomb of aliases",
        "asr-train --config x.yaml",
        "x.yaml",
        memory=1 << 30,
        given=yaml(
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{c}: &{c} [{','.join([f'*{b}'] * 9)}]\n"
                for b, c in zip("abcdefgh", "bcdefghi", strict=True)
            )
        ),
    ),
    case(
        "the configuration has a number of 5000 digits",
        "asr-train --config x.yaml",
        "x.yaml",
        "seed",
        given=edited("seed: 3", f"seed: {'1' * 5000}"),
    ),
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
    case(
        "a key is a word for true",
        "asr-train --config x.yaml out=m",
        "x.yaml",
        given=edited("seed: 3", "seed: 3\non: 1"),
    ),
    case(
        "a key with a letter of another alphabet",
        "asr-train --config x.yaml out=m",
        "x.yaml",
        "seed",
        given=edited("seed: 3", "s\u0435ed: 3"),
    ),
    case(
        "a path in the configuration has a NUL",
        "asr-train --config x.yaml out=m",
        "tokenizer",
        given=edited("tokenizer:", 'tokenizer: "tok\\0" #'),
    ),
    # overrides
    overridden("a rate beyond all numbers", "optimizer.lr=1e400", "optimizer.lr", "inf"),
    overridden("a rate that is no number", "optimizer.lr=.nan", "optimizer.lr", "nan"),
    overridden("epochs with a fraction", "training.epochs=1.5", "training.epochs", "1.5"),
    overridden("a seed below nothing", "seed=-1", "seed", "-1", status=(0, 2), leaves=("m/*",)),
    overridden("a seed that is a truth", "seed=true", "seed", "True"),
    overridden("a part of a list", "data.speeds.0=1.0", "data.speeds"),
    overridden("an override with dashes", "--seed=5", "--seed=5"),
    overridden("no manifest in the list", "data.train=[]", "data.train"),
    overridden("a manifest twice in the list", "data.train=[$train, $train]", "train000", "twice"),
    overridden(
        "filters that leave their band", "features.fbank.low_hz=5000", "features.fbank", "5000"
    ),
    overridden(
        "a shift as long as a recording",
        "features.fbank.shift_ms=100000",
        ("too short", "features.fbank.shift_ms"),
    ),
    overridden(
        "a hundred million filters",
        "features.fbank.mels=100000000",
        "features.fbank.mels",
        memory=2 << 30,
    ),
    overridden("freeze names nothing", 'freeze=["nothing.*"]', "freeze", "nothing.*"),
    overridden("freeze names all", 'freeze=["*"]', "freeze"),
    overridden(
        "batches shorter than any step of time",
        "data.batch_seconds=1e-320",
        "data.batch_seconds",
        status=(0, 2),
        leaves=("m/*",),
    ),
    case(
        "GPUs in other digits",
        "asr-train --config $config --gpus ٣",
        ("--gpus", "training.processes"),
    ),
    case("a test set that isn't looked at", "asr-train --config $config --test $dev", "--check"),
    case(
        "a test set that isn't there",
        "asr-train --config $config --check --test nowhere.jsonl.gz",
        "nowhere.jsonl.gz",
    ),
    # manifests
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
        "a manifest that is a table",
        lambda r: r.write("t.jsonl.gz", "id\tpath\ttext\n"),
        "t.jsonl.gz",
        "gzip",
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
    # tokenizers
    case(
        "a tokenizer without a character",
        f"{TRAIN} tokenizer=tok",
        ("tok/tokenizer.json", "vocabulary"),
        given=lambda r: r.write("tok/tokenizer.json", '{"kind": "characters", "characters": []}'),
    ),
    case("the tokenizer is a manifest", f"{TRAIN} tokenizer=$train", "train.jsonl.gz"),
    # models to begin from
    case("the beginning is a text", f"{TRAIN} init_from=$text", "text.txt"),
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
        "the beginning has no weights",
        f"{TRAIN} init_from=old",
        "old/model.safetensors",
        given=lambda r: [r.copy("model", "old"), (r / "old/model.safetensors").unlink()],
    ),
    # augmentation
    overridden(
        "a noise that is a recording",
        "data.augment={noise: {manifest: $wav, min_snr_db: 5, max_snr_db: 20, probability: 0.5}}",
        "train000.wav",
    ),
    overridden(
        "noise from more to less",
        "data.augment={noise: {manifest: $dev, min_snr_db: 20, max_snr_db: 5, probability: 0.5}}",
        "min_snr_db",
        "20",
    ),
    # the run's folder
    case(
        "the output is a file",
        f"{TRAIN} out=t.txt",
        "t.txt",
        given=lambda r: r.write("t.txt", "mine"),
    ),
    case(
        "the output is the tokenizer",
        f"{TRAIN} tokenizer=tok out=tok",
        "tok",
        given=lambda r: r.copy("tokenizer", "tok"),
    ),
    case(
        "the output holds somebody's own configuration",
        TRAIN,
        "m/config.yaml",
        given=lambda r: r.write("m/config.yaml", "mine: 1\n"),
    ),
    case("the output is an empty name", f"{TRAIN} out=", "out"),
    case(
        "the file that holds the output is a folder",
        TRAIN,
        "m/.lock",
        given=lambda r: r.folder("m/.lock"),
    ),
    case(
        "the folder of states is a file",
        TRAIN,
        "m/checkpoints",
        leaves=("m/*", "m/.*"),
        given=lambda r: r.write("m/checkpoints", "x"),
    ),
    case(
        "the run's beginning is a folder",
        TRAIN,
        "m/run.json",
        leaves=("m/.lock",),
        given=lambda r: r.folder("m/run.json"),
    ),
    case(
        "a stopped run's figures are damaged",
        "asr-train --config $config out=m training.epochs=1 training.processes=1",
        "m/metrics.jsonl",
        status=(0, 2),
        leaves=("m/*", "m/.*"),
        changes=("m/*", "m/.*"),
        given=stopped(lambda r: r.write("m/metrics.jsonl", b'\xff\xfe{"kind": "dev"\n{}}\n')),
    ),
    case(
        "a state with another name",
        TRAIN,
        status=(0, 2),
        leaves=("m/*", "m/.*"),
        changes=("m/*", "m/.*"),
        given=stopped(lambda r: r.write("m/checkpoints/state-new-of-mine.pt", b"x")),
    ),
    # texts
    case("a text is a recording", f"{LM} data.train=$wav", "train000.wav"),
    case(
        "a text of which nothing is short enough",
        f"{LM} data.max_tokens=1",
        "text.txt",
        "max_tokens",
        leaves=("m.tokens/*",),
    ),
    case(
        "the place for the tokens is somebody's folder",
        f"{LM} data.tokens=mine",
        "mine",
        given=lambda r: r.write("mine/thesis.txt", "x"),
    ),
    case(
        "a name that isn't UTF-8",
        [b"asr-train", b"--config", b"caf\xe9.yaml"],
        "caf",
        given=lambda r: r.write(os.fsdecode(b"caf\xe9.yaml"), "out: m\n"),
    ),
    case(
        "the disk is full as the run begins",
        TRAIN,
        "m/",
        "too large",
        file_bytes=300,
        leaves=("m/*", "m/.*", "m/*/*"),
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
