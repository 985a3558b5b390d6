"""Prove that settings are read as written, and that every mistake in them is one line that names its place and fix.

Expected messages are constructed: a complete experiment with one thing wrong in it. What is right is held by the law
load(dump(settings)) == settings, and numbers by Python's own float().
"""

import json
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import Field

from asr.config import Settings, dump, load, schema
from asr.errors import UserError, did_you_mean
from asr.tasks import Experiment
from asr.yaml_tree import parse, write

COMPLETE = """\
out: exp/x
seed: 1
tokenizer: exp/tokenizer
data: {train: train.jsonl.gz, dev: dev.jsonl.gz, batch_seconds: 60}
features: {fbank: {sample_rate: 16000}, specaugment: {time_masks: 3}}
model:
  kind: hybrid
  encoder: {kind: transformer, d_model: 256, layers: 6, heads: 4, ff: 1024, dropout: 0.1}
  decoder: {kind: transformer, d_model: 192, layers: 2, heads: 3, ff: 768, dropout: 0.2}
optimizer: {kind: adam, lr: 5e-4}
schedule: {kind: noam, warmup: 1000}
training: {epochs: 10}
"""
CONFIGURATIONS = sorted((Path(__file__).parents[1] / "conf").glob("*.yaml"))


@pytest.fixture
def read(tmp_path):
    """Read the complete experiment with one passage replaced, and overrides."""

    def read(old="", new="", *overrides, text=COMPLETE):
        assert old in text
        path = tmp_path / "x.yaml"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        return load(Experiment, path, overrides)

    return read


@pytest.fixture
def mistake(read):
    """The message that reading ends in."""

    def mistake(*args, **kwargs):
        with pytest.raises(UserError) as caught:
            read(*args, **kwargs)
        message = str(caught.value)
        assert len(message.splitlines()) == 1
        return message

    return mistake


def test_a_complete_experiment(read):
    experiment = read()
    assert (experiment.seed, experiment.optimizer.lr, experiment.model.encoder.heads) == (
        1,
        5e-4,
        4,
    )
    assert experiment.optimizer.kind == "adam" and experiment.schedule.warmup == 1000
    assert (
        experiment.features.specaugment.time_masks == 3
        and experiment.features.specaugment.freq_masks == 2
    )


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.name)
def test_every_configuration_of_the_repository_loads(path):
    experiment = load(Experiment, path)
    assert path.read_text(encoding="utf-8").startswith("#"), (
        "open it with its command, time and result"
    )
    assert experiment.out


@pytest.mark.parametrize(
    "text", ["5e-4", "1e3", "1E+3", "1.5e-3", ".5", "2.", "1.e2", "-1e-3", "+2e0", "3", "1_000.0"]
)
def test_numbers(text):
    value = parse(f"x: {text}", "x.yaml")["x"]
    assert value == float(text) and isinstance(value, (int, float))


@pytest.mark.parametrize(
    "text", ["'5e-4'", '"1e3"', "e5", "1e", "1e-", "5e-4x", "v1.0", "1.2.3", "."]
)
def test_texts_that_are_no_numbers(text):
    assert parse(f"x: {text}", "x.yaml")["x"] == text.strip("'\"")


def test_numbers_without_quotes_are_settings(read):
    assert read("lr: 5e-4", "lr: 1e-3").optimizer.lr == 1e-3
    assert read("seconds: 60", "seconds: 1e3").data.batch_seconds == 1000
    assert read("", "", "optimizer.lr=2e-3").optimizer.lr == 2e-3


WRONG = {  # what is replaced, by what, and what the message says after the file's name
    "unknown key": (
        "heads: 4",
        "haeds: 4",
        "model.encoder.haeds: no such setting; did you mean 'heads'?; known: d_model",
    ),
    "unknown key at the top": (
        "seed: 1",
        "sede: 1",
        "sede: no such setting; did you mean 'seed'?; known: out, seed",
    ),
    "unknown key of a choice": (
        "warmup: 1",
        "wramup: 1",
        "schedule.wramup: no such setting; did you mean 'warmup'?",
    ),
    "unknown key of an optional part": (
        "time_masks",
        "time_mask",
        "features.specaugment.time_mask: no such setting; did ",
    ),
    "unknown key like nothing": (
        "seed: 1",
        "seed: 1\nqqq: 1",
        "qqq: no such setting; known: out, seed",
    ),
    "text for a number": ("5e-4", "fast", "optimizer.lr: got 'fast', expected: number"),
    "quoted number": (
        "5e-4",
        "'5e-4'",
        "optimizer.lr: got '5e-4', expected: number; that is text: write the number with",
    ),
    "float for an integer": (
        "heads: 4",
        "heads: 4.0",
        "model.encoder.heads: got 4.0, expected: integer",
    ),
    "truth for a number": ("5e-4", "true", "optimizer.lr: got True, expected: number"),
    "number for a truth": (
        "dropout: 0.2",
        "dropout: 0.2, tied: 1",
        "model.decoder.tied: got 1, expected: true or",
    ),
    "two types": (
        "seconds: 60",
        "seconds: 0",
        "data.batch_seconds: got 0, expected: greater than or equal to 0.001 or 'auto'",
    ),
    "two other types": (
        "seconds: 60",
        "seconds: [x]",
        "data.batch_seconds: got ['x'], expected: number or 'auto'",
    ),
    "seed beyond 64 bits": (
        "seed: 1",
        "seed: 9" + 22 * "0",
        "seed: got 90000000000000000000000, expected a number of",
    ),
    "number beyond 64 bits in a list": (
        "seconds: 60",
        "seconds: 60, speeds: [1, -9223372036854775809]",
        "data.speeds.1: got -9223372036854775809, expected a number of 64 bits",
    ),
    "negative seed": ("seed: 1", "seed: -1", "seed: got -1, expected: greater than or equal to 0"),
    "NUL": ("exp/tokenizer", '"a\\0b"', "tokenizer: got 'a\\x00b', expected a text without NUL"),
    "NUL in a list": (
        "seed: 1",
        'seed: 1\nfreeze: [a, "\\0"]',
        "freeze.1: got '\\x00', expected a text without NUL",
    ),
    "half a pair": (
        "exp/tokenizer",
        '"\\ud800"',
        "tokenizer: got '\\ud800', expected a text without",
    ),
    "root as output": (
        "out: exp/x",
        "out: /",
        "out: got '/', expected a folder of the training's own",
    ),
    "root otherwise": (
        "out: exp/x",
        "out: ///..//",
        "out: got '///..//', expected a folder of the training's own",
    ),
    "this folder": (
        "out: exp/x",
        "out: .",
        "out: got '.', expected a folder of the training's own",
    ),
    "a folder above": (
        "out: exp/x",
        "out: x/../..",
        "out: got 'x/../..', expected a folder of the training's own",
    ),
    "no name": ("out: exp/x", "out: ''", "out: got '', expected a folder of the training's own"),
    "home": ("out: exp/x", f"out: {Path.home()}/", "out: got '"),
    "long value": (
        "5e-4",
        "x" * 9999,
        "optimizer.lr: got 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx ..., exp",
    ),
    "number for a text": ("exp/x", "5", "out: got 5, expected: string"),
    "text in a list": (
        "seconds: 60",
        "seconds: 60, speeds: [1.0, x]",
        "data.speeds.1: got 'x', expected: number",
    ),
    "value for a mapping": (
        "{kind: adam, lr: 5e-4}",
        "5",
        "optimizer: got 5, expected: a mapping of settings",
    ),
    "nothing for a mapping": (
        "{epochs: 10}",
        "",
        "training: got None, expected: a mapping of settings",
    ),
    "not a number": ("5e-4", ".nan", "optimizer.lr: got nan, expected: finite number"),
    "infinite": ("5e-4", ".inf", "optimizer.lr: got inf, expected: finite number"),
    "heads that don't divide": (
        "heads: 4",
        "heads: 5",
        "model.encoder.heads: got 5, expected a divisor of d_model = 256",
    ),
    "negative dropout": (
        "dropout: 0.1",
        "dropout: -0.1",
        "model.encoder.dropout: got -0.1, expected: greater than or eq",
    ),
    "dropout of all": (
        "dropout: 0.2",
        "dropout: 1.0",
        "model.decoder.dropout: got 1.0, expected: less than 1",
    ),
    "negative rate": ("5e-4", "-5e-4", "optimizer.lr: got -0.0005, expected: greater than 0"),
    "no layers": (
        "layers: 6",
        "layers: 0",
        "model.encoder.layers: got 0, expected: greater than 0",
    ),
    "subsampling": (
        "0.1}",
        "0.1, subsampling: 5}",
        "model.encoder.subsampling: got 5, expected: 4, 6 or 8",
    ),
    "word": (
        "0.1}",
        "0.1, norm: Pre}",
        "model.encoder.norm: got 'Pre', expected: 'pre' or 'post'; did you mean 'pre'?",
    ),
    "unknown encoder": (
        "kind: transformer, d_model: 256",
        "kind: confromer, d_model: 256",
        "model.encoder.kind: got 'confromer', expected one of 'transformer', 'conformer', 'e_branchformer'; ",
    ),
    "setting of another encoder": (
        "heads: 4",
        "heads: 4, kernel: 31",
        "model.encoder.kernel: no such setting; known: d_model",
    ),
    "setting that an encoder lacks": (
        "{kind: transformer, d_model: 256",
        "{kind: conformer, kernel: 31, norm: pre, d_model: 256",
        "model.encoder.norm: no such setting; known: d_model",
    ),
    "missing in a kind": (
        "kind: transformer, d_model: 256",
        "kind: conformer, d_model: 256",
        "model.encoder.kernel: missing; a complete experiment states it",
    ),
    "positions of another kind": (
        "0.1}",
        "0.1, positions: relative}",
        "model.encoder.positions: got 'relative', expected: 'sinusoidal' or 'rotary'",
    ),
    "no pairs to rotate": (
        "0.1}",
        "0.1, positions: rotary, d_k: 5}",
        "model.encoder.positions: got 'rotary' with d_k = 5, expected an even d_k: it rotates pairs",
    ),
    "even kernel": (
        "{kind: transformer, d_model: 256",
        "{kind: conformer, kernel: 30, d_model: 256",
        "model.encoder.kernel: got 30, expected an odd number of frames",
    ),
    "even merging kernel": (
        "{kind: transformer, d_model: 256",
        "{kind: e_branchformer, cgmlp: 64, kernel: 31, merge_kernel: 4, d_model: 256",
        "model.encoder.merge_kernel: got 4, expected an odd number of frames",
    ),
    "halves of the cgMLP": (
        "{kind: transformer, d_model: 256",
        "{kind: e_branchformer, cgmlp: 63, kernel: 31, merge_kernel: 3, d_model: 256",
        "model.encoder.cgmlp: got 63, expected: multiple of 2",
    ),
    "empty chunk": (
        "0.1}",
        "0.1, chunk: {frames: 0, left: 1}}",
        "model.encoder.chunk.frames: got 0, expected: greater than 0",
    ),
    "half a chunk": (
        "0.1}",
        "0.1, chunk: {frames: 8}}",
        "model.encoder.chunk.left: missing; a complete experiment",
    ),
    "number for a chunk": (
        "0.1}",
        "0.1, chunk: 16}",
        "model.encoder.chunk: got 16, expected: a mapping of settings",
    ),
    "all layers dropped": (
        "0.1}",
        "0.1, layer_dropout: 1.0}",
        "model.encoder.layer_dropout: got 1.0, expected: less than 1",
    ),
    "speed": (
        "seconds: 60",
        "seconds: 60, speeds: [9.0]",
        "data.speeds: got [9.0], expected factors from 0.5 to 2.0",
    ),
    "no manifest in a list": (
        "train.jsonl.gz",
        "[]",
        "data.train: got [], expected the path of a manifest, or a list of paths",
    ),
    "sample rate": (
        "16000",
        "-1",
        "features.fbank.sample_rate: got -1, expected: greater than or equal to 1000",
    ),
    "mel edges": (
        "16000",
        "16000, high_hz: 9000",
        "features.fbank: mel edges: got 20.0 to 9000.0 Hz, expected 0 <= low ",
    ),
    "no mels": ("16000", "16000, mels: 0", "features.fbank.mels: got 0, expected: greater than 0"),
    "masks": (
        "time_masks: 3",
        "time_masks: -3",
        "features.specaugment.time_masks: got -3, expected: greater than or eq",
    ),
    "unknown kind": (
        "kind: adam",
        "kind: adamx",
        "optimizer.kind: got 'adamx', expected one of 'adam', 'adamw', 'muon'; did you",
    ),
    "unknown kind of the whole": (
        "hybrid",
        "hybird",
        "model.kind: got 'hybird', expected one of 'hybrid', 'lm'; did you mean 'hybrid'?",
    ),
    "no kind": (
        "kind: adam, ",
        "",
        "optimizer.kind: missing, expected one of 'adam', 'adamw', 'muon'",
    ),
    "no kind of the whole": (
        "kind: hybrid",
        "kind:",
        "model.kind: missing, expected one of 'hybrid', 'lm'",
    ),
    "another kind of the whole": (
        "hybrid",
        "lm",
        "data.batch_seconds: no such setting; did you mean 'batch_tokens'?",
    ),
    "misspelled name of the whole's kind": (
        "model:",
        "modle:",
        "modle: no such setting; did you mean 'model'?; known: ",
    ),
    "value for the whole's kind": (
        "model:\n",
        "model: 5\nx:\n",
        "model: got 5, expected: a mapping of settings",
    ),
    "missing": ("seed: 1\n", "", "seed: missing; a complete experiment states it"),
    "missing below": (
        "d_model: 256, ",
        "",
        "model.encoder.d_model: missing; a complete experiment states it",
    ),
    "key that is no name": ("seed: 1", "seed: 1\n7: 1", "7: got 7, expected: a name as key"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_in_the_file(mistake, tmp_path, case):
    old, new, expected = WRONG[case]
    assert mistake(old, new).startswith(f"{tmp_path / 'x.yaml'}: {expected}"), mistake(old, new)


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_shards_and_layers_left_out_exclude_each_other(mistake, part):
    said = mistake("", "", f"model.{part}.layer_dropout=0.1", "training.shard=true")
    assert (
        f"training: shard: can't be had with model.{part}.layer_dropout, by which each process leaves out"
        in said
    )


def test_further_mistakes_are_counted(mistake):
    assert "(and 2 more mistakes)" in mistake(
        text=COMPLETE.replace("seed: 1\n", "").replace("0.1}", "-1}").replace("10}", "0}")
    )


YAML = {
    "repeated key": (
        "seed: 1\n",
        "seed: 1\nseed: 2\n",
        ":3: key 'seed' stands here a second time; keep one of the two",
    ),
    "repeated key within": (
        "lr: 5e-4",
        "lr: 5e-4, lr: 1e-3",
        ":10: key 'lr' stands here a second time",
    ),
    "a list as key": ("seed: 1", "? [a]\n: 1", ":2: got the key ['a'], expected a name"),
    "colons": ("seed: 1", "seed: 1: 2", ":2: not valid YAML: mapping values are not allowed here"),
    "open bracket": ("{epochs: 10}", "{epochs: 10", ":13: not valid YAML: "),
    "tab": (
        "seed: 1",
        "\tseed: 1",
        ":2: not valid YAML: found character '\\t' that cannot start any token",
    ),
    "control character": ("seed: 1", "seed: \0", ": not valid YAML: unacceptable character #x0000"),
    "code": (
        "seed: 1",
        "seed: !!python/object/apply:os.getpid []",
        ":2: not valid YAML: could not determine a constructor",
    ),
    "tag with a wrong value": (
        "seed: 1",
        "seed: !!int abc",
        ":2: got the tag !!int, expected a value without one",
    ),
    "tag of a date": (
        "seed: 1",
        "seed: !!timestamp abc",
        ":2: got the tag !!timestamp, expected a value without",
    ),
    "alias": (
        "seed: 1",
        "seed: &a 1\nfreeze: *a",
        ":3: got an alias (*), expected the value itself; write it out",
    ),
    "merge": (
        "{kind: adam, lr",
        "{<<: {kind: adam}, lr",
        ":10: got the key <<, by which YAML 1.1 merges; write",
    ),
    "depth of lists": ("seed: 1", "seed: " + "[" * 20_000, ":2: nested deeper than 32 levels"),
    "depth of mappings": ("seed: 1", "seed: " + "{" * 20_000, ":2: nested deeper than 32 levels"),
    "depth of blocks": ("seed: 1", "seed:\n  " + "- " * 20_000, ":3: nested deeper than 32 levels"),
    "depth of keys": ("seed: 1", "? " * 20_000 + "x", ":2: nested deeper than 32 levels"),
    "digits": (
        "seed: 1",
        "seed: 1" + "0" * 5000,
        ":2: seed: got a number of 5001 digits, expected 100 at most",
    ),
    "size": ("seed: 1", f"{'x' * 20_000_000}: 1", ": larger than 200 kB"),
}


@pytest.mark.parametrize("case", YAML)
def test_a_file_that_is_no_yaml(mistake, tmp_path, case):
    old, new, expected = YAML[case]
    assert mistake(old, new).startswith(f"{tmp_path / 'x.yaml'}{expected}"), mistake(old, new)


READ_DIFFERENTLY = [
    "yes",
    "No",
    "ON",
    "off",
    "010",
    "-010",
    "00",
    "0b11",
    "0o17",
    "+0x1F",
    "1:30",
    "1:30.5",
    "-190:20:30",
]


@pytest.mark.parametrize("text", READ_DIFFERENTLY)
def test_what_versions_of_yaml_read_differently_is_refused(mistake, tmp_path, text):
    for said, place in (
        (mistake("seed: 1", f"seed: {text}"), f"{tmp_path / 'x.yaml'}:2: seed"),
        (mistake("seed: 1", f"freeze: [{text}]"), f"{tmp_path / 'x.yaml'}:2"),
        (mistake("", "", f"out={text}"), "command line: out:1"),
        (mistake("seed: 1", f"seed: 1\n{text}: 1"), f"{tmp_path / 'x.yaml'}:3"),
    ):
        assert said.startswith(
            f"{place}: got {text}, which versions of YAML read differently; write "
        )


@pytest.mark.parametrize("text", [*READ_DIFFERENTLY, "y", "n", "=", "1__0x"])
def test_what_is_quoted_or_like_nothing_else_is_text(text):
    assert parse(f"x: '{text}'", "x.yaml") == {"x": text} == parse(write({"x": text}), "x.yaml")
    if text not in READ_DIFFERENTLY:
        assert parse(f"x: {text}", "x.yaml") == {"x": text}


def test_a_path_with_a_nul(tmp_path):
    with pytest.raises(UserError, match="x.yaml.*no path of a configuration file"):
        load(Experiment, f"{tmp_path}/\0x.yaml")


@pytest.mark.parametrize(
    "text, got", [("[1]", "list"), ("", "NoneType"), ("5", "int"), ("word", "str")]
)
def test_a_file_that_is_no_mapping(mistake, tmp_path, text, got):
    assert (
        mistake(text=text)
        == f"{tmp_path / 'x.yaml'}: got {got}, expected a mapping of settings (key: value)"
    )


def test_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / "latin1.yaml").write_bytes("out: d\u00fcrr".encode("latin-1"))
    for name, expected in {
        "no.yaml": "can't read this configuration file (No such file or directory)",
        ".": "can't read this configuration file (Is a directory)",
        "latin1.yaml": "not UTF-8 text (byte 6); is this a YAML file?",
    }.items():
        with pytest.raises(UserError) as caught:
            load(Experiment, tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name}: {expected}"


def test_overrides(read):
    experiment = read(
        "",
        "",
        "optimizer.lr=1e-3",
        "optimizer.kind=adamw",
        "features.specaugment=null",
        "out='5e-4'",
    )
    assert (experiment.optimizer.kind, experiment.optimizer.lr) == ("adamw", 1e-3)
    assert experiment.features.specaugment is None and experiment.out == "5e-4"
    assert (
        read(
            ", specaugment: {time_masks: 3}", "", "features.specaugment.freq_masks=4"
        ).features.specaugment.freq_masks
        == 4
    )
    assert read("", "", "data.speeds=[0.9, 1.1]", "seed=2", "seed=3").seed == 3


OVERRIDES = {
    "lr": "got 'lr', expected key.path=value, as in optimizer.lr=1e-3",
    "=3": "got '=3', expected key.path=value",
    "a..b=1": "got 'a..b=1', expected key.path=value",
    "optimizer.rl=1e-3": "optimizer.rl: no such setting; did you mean 'lr'?; known: lr",
    "optimzer.lr=1e-3": "optimzer: no such setting; did you mean 'optimizer'?",
    "optimizer.lr='1e-3'": "optimizer.lr: got '1e-3', expected: number; that is text: write the number without quotes",
    "optimizer.lr=": "optimizer.lr: got None, expected: number",
    "optimizer.lr=[1": "optimizer.lr:1: not valid YAML: ",
    "optimizer.lr=\0": "optimizer.lr: not valid YAML: ",
    "optimizer.lr.x=1": "optimizer.lr is a value, it has no x",
    "optimizer.kind=adamx": "optimizer.kind: got 'adamx', expected one of 'adam', 'adamw', 'muon'; "
    "did you mean 'adam'?",
    "model.encoder.heads=7": "model.encoder.heads: got 7, expected a divisor of d_model = 256, or d_k given",
    "optimizer={kind: adam, lr: 1, lr: 2}": "optimizer:1: key 'lr' stands here a second time",
}


@pytest.mark.parametrize("assignment", OVERRIDES)
def test_a_mistake_in_an_override_says_command_line(mistake, assignment):
    message = mistake("", "", assignment)
    assert message.startswith(f"command line: {OVERRIDES[assignment]}"), message


def test_a_mistake_of_the_file_is_not_blamed_on_the_command_line(mistake, tmp_path):
    assert mistake("lr: 5e-4", "lr: x", "optimizer.beta1=0.8").startswith(
        f"{tmp_path / 'x.yaml'}: optimizer.lr: got 'x'"
    )


def test_settings_are_frozen(read):
    with pytest.raises(ValueError, match="frozen"):
        read().seed = 2


def test_dump_and_load(read, tmp_path):
    changed = [
        "out='5e-4'",
        "tokenizer='yes'",
        "features.specaugment=null",
        "optimizer.eps=1e-9",
        "data.train=数据 ü.gz",
    ]
    for experiment in (read(), read("", "", *changed)):
        path = tmp_path / "dumped.yaml"
        path.write_text(dump(experiment), encoding="utf-8")
        assert load(Experiment, path) == experiment


WORDS = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=5
)  # PyYAML alters line breaks
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS
LEAVES |= st.sampled_from(
    ["5e-4", "1e3", "no", "null", "~", "0x10", "1_0", "1:30", "2024-01-01", "<<", "=", "."]
)
LEAVES |= st.sampled_from(
    ["010", "0o17", "0b1", "+0x1F", "089", "-0", "ON", "1:99", "1_000.5", "+.inf", "0x_1"]
)


@hypothesis_settings(deadline=None, max_examples=100, derandomize=True)
@given(st.dictionaries(WORDS, LEAVES | st.lists(LEAVES, max_size=2), max_size=4))
def test_write_and_parse(tree):
    assert parse(write(tree), "x.yaml") == tree


def test_the_schema_is_json_and_knows_the_kinds():
    definitions = json.loads(schema(Experiment))["$defs"]
    kinds = {
        d["properties"]["kind"]["const"]
        for d in definitions.values()
        if "kind" in d.get("properties", {})
    }
    parts = {
        "adam",
        "adamw",
        "muon",
        "noam",
        "cosine",
        "wsd",
        "constant",
        "transformer",
        "conformer",
        "e_branchformer",
    }
    assert kinds == parts | {"hybrid", "lm"}
    assert all(d["additionalProperties"] is False for d in definitions.values())


class Leaf(Settings):
    """A part without kind."""

    size: int


class Left(Settings):
    """One of two parts."""

    kind: Literal["left"]
    leaves: list[Leaf] = []


class Right(Settings):
    """The other."""

    kind: Literal["right"]
    leaf: Leaf | None = None


Side = Annotated[Left | Right, Field(discriminator="kind")]


class Tree(Settings):
    """Choices in lists and choices that may be absent, which the experiment's tree has not (yet)."""

    parts: list[Side] = []
    maybe: Side | None = None


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "parts: [{kind: left, leaves: [{size: 1}, {sise: 2}]}]",
            "parts.0.leaves.1.sise: no such setting; did you mean 'size'?",
        ),
        (
            "parts: [{kind: left}, {kind: right, leaves: []}]",
            "parts.1.leaves: no such setting; did you mean 'leaf'?",
        ),
        (
            "parts: [{kind: rigth}]",
            "parts.0.kind: got 'rigth', expected one of 'left', 'right'; did you mean 'right'?",
        ),
        ("maybe: {kind: right, leaf: {size: x}}", "maybe.leaf.size: got 'x', expected: integer"),
        (
            "maybe: {kind: right, leaf: {seize: 1}}",
            "maybe.leaf.seize: no such setting; did you mean 'size'?",
        ),
        ("maybe: {}", "maybe.kind: missing, expected one of 'left', 'right'"),
    ],
)
def test_mistakes_deep_in_lists_and_choices(tmp_path, text, expected):
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        load(Tree, tmp_path / "t.yaml")
    assert str(caught.value).startswith(f"{tmp_path / 't.yaml'}: {expected}"), caught.value


def test_did_you_mean_names_near_names_only():
    assert did_you_mean("dmi", ["dim", "heads"]) == "; did you mean 'dim'?"
    assert did_you_mean("qqq", ["dim", "heads"]) == did_you_mean(None, []) == ""
