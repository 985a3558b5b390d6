"""Prove that settings are read as written, and that every mistake in them is one line that names its place and fix.

Expected messages are constructed: a complete experiment with one thing wrong in it. What is right is held by the law
load(dump(settings)) == settings, and numbers by Python's own float().
"""

import json
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from checkouts import ROOT
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from refusals import refused

from asr.config import Settings, dump, load, schema
from asr.errors import did_you_mean
from asr.tasks import Experiment
from asr.yaml_tree import parse, write

each = pytest.mark.parametrize
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
MISTAKES = yaml.safe_load((ROOT / "tests/mistakes.yaml").read_text("utf-8"))
CONFIGURATIONS = sorted((ROOT / "conf").glob("*.yaml"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.yaml"


@pytest.fixture
def read(path):
    """Read the complete experiment with one passage replaced, and overrides."""

    def read(old="", new="", *overrides, text=COMPLETE):
        assert old in text
        path.write_text(text.replace(old, new, 1), "utf-8")
        return load(Experiment, path, overrides)

    return read


@pytest.fixture
def mistake(read):
    """The message that reading ends in."""
    return partial(refused, "", read)


def test_settings_are_those_written_and_defaults_and_frozen(read):
    experiment = read()
    masks = experiment.features.specaugment
    assert (masks.time_masks, masks.freq_masks, experiment.optimizer.lr) == (3, 2, 5e-4)
    with pytest.raises(ValueError, match="frozen"):
        experiment.seed = 2


@each("path", CONFIGURATIONS, ids=lambda path: path.name)
def test_every_configuration_of_the_repository_loads_and_opens_with_its_command(path):
    assert load(Experiment, path).out and path.read_text("utf-8").startswith("#")


NUMBERS = "5e-4 1e3 1E+3 1.5e-3 .5 2. 1.e2 -1e-3 +2e0 3 1_000.0"


@each("text", NUMBERS.split())
def test_numbers(text):
    value = parse(f"x: {text}", "x.yaml")["x"]
    assert value == float(text) and isinstance(value, (int, float))


TEXTS = """'5e-4' "1e3" e5 1e 1e- 5e-4x v1.0 1.2.3 . y n = 1__0x"""


@each("text", TEXTS.split())
def test_texts_that_are_no_numbers(text):
    assert parse(f"x: {text}", "x.yaml")["x"] == text.strip("'\"")


WRONG = MISTAKES["wrong"] | {
    "home": ("out: exp/x", f"out: {Path.home()}/", "out: got '"),
    "long value": ("5e-4", "x" * 9999, f"optimizer.lr: got '{'x' * 51} ..., exp"),
}


@each("case", WRONG)
def test_a_mistake_in_the_file(mistake, path, case):
    old, new, expected = WRONG[case]
    assert mistake(old, new).startswith(f"{path}: {expected}")


@each("setting", ["model.encoder.layer_dropout", "model.decoder.layer_dropout"])
def test_shards_and_layers_left_out_exclude_each_other(mistake, setting):
    said = mistake("", "", f"{setting}=0.1", "training.shard=true")
    assert f"training: shard: can't be had with {setting}, " in said


def test_further_mistakes_are_counted(mistake):
    text = COMPLETE.replace("seed: 1\n", "").replace("0.1}", "-1}").replace("10}", "0}")
    assert "(and 2 more mistakes)" in mistake(text=text)


DEEP = "nested deeper than 32 levels"
YAML = MISTAKES["yaml"] | {
    name: ("seed: 1", *case)
    for name, case in {
        "depth of lists": ("seed: " + "[" * 20_000, f":2: {DEEP}"),
        "depth of mappings": ("seed: " + "{" * 20_000, f":2: {DEEP}"),
        "depth of blocks": ("seed:\n  " + "- " * 20_000, f":3: {DEEP}"),
        "depth of keys": ("? " * 20_000 + "x", f":2: {DEEP}"),
        "digits": (
            "seed: 1" + "0" * 5000,
            ":2: seed: got a number of 5001 digits, expected 100",
        ),
        "size": (f"{'x' * 20_000_000}: 1", ": larger than 200 kB"),
    }.items()
}


@each("case", YAML)
def test_a_file_that_is_no_yaml(mistake, path, case):
    old, new, expected = YAML[case]
    assert mistake(old, new).startswith(f"{path}{expected}")


READ_DIFFERENTLY = "yes No ON off 010 -010 00 0b11 0o17 +0x1F 1:30 1:30.5 -190:20:30"


@each("text", READ_DIFFERENTLY.split())
def test_what_versions_of_yaml_read_differently_is_refused(mistake, path, text):
    for said, place in (
        (mistake("seed: 1", f"seed: {text}"), f"{path}:2: seed"),
        (mistake("seed: 1", f"freeze: [{text}]"), f"{path}:2"),
        (mistake("", "", f"out={text}"), "command line: out:1"),
        (mistake("seed: 1", f"seed: 1\n{text}: 1"), f"{path}:3"),
    ):
        assert said.startswith(f"{place}: got {text}, which versions of YAML read differently; ")


def test_a_path_with_a_nul(tmp_path):
    refused("x.yaml.*no path of a configuration file", load, Experiment, f"{tmp_path}/\0x.yaml")


@each("text, got", {"[1]": "list", "": "NoneType", "5": "int", "a": "str"}.items())
def test_a_file_that_is_no_mapping(mistake, path, text, got):
    assert mistake(text=text).startswith(f"{path}: got {got}, expected a mapping of settings")


@each("name, expected", {
    "no.yaml": r"can't read this configuration file \(No such file or directory\)",
    ".": r"can't read this configuration file \(Is a directory\)",
    "x.yaml": r"not UTF-8 text \(byte 6\)",
}.items())  # fmt: skip
def test_a_file_that_cannot_be_read(tmp_path, path, name, expected):
    path.write_bytes(b"out: d\xfcrr")
    refused(f"^{tmp_path / name}: {expected}", load, Experiment, tmp_path / name)


def test_overrides(read):
    changes = ["optimizer.lr=1e-3", "optimizer.kind=adamw", "features.specaugment=null"]
    experiment = read("", "", *changes, "out='5e-4'")
    assert (experiment.optimizer.kind, experiment.optimizer.lr) == ("adamw", 1e-3)
    assert experiment.features.specaugment is None and experiment.out == "5e-4"
    masks = read(", specaugment: {time_masks: 3}", "", "features.specaugment.freq_masks=4")
    assert masks.features.specaugment.freq_masks == 4
    assert read("", "", "data.speeds=[0.9, 1.1]", "seed=2", "seed=3").seed == 3


OVERRIDES = MISTAKES["overrides"]


@each("assignment", OVERRIDES)
def test_a_mistake_in_an_override_says_command_line(mistake, assignment):
    assert mistake("", "", assignment).startswith(f"command line: {OVERRIDES[assignment]}")


def test_a_mistake_of_the_file_is_not_blamed_on_the_command_line(mistake, path):
    said = mistake("lr: 5e-4", "lr: x", "optimizer.beta2=0.8")
    assert said.startswith(f"{path}: optimizer.lr: got 'x'")


CHANGED = """out='5e-4' tokenizer='yes' features.specaugment=null optimizer.eps=1e-9
    data.train=数据ü.gz"""


@each("changed", ["", CHANGED])
def test_dump_and_load(read, changed):
    experiment = read("", "", *changed.split())
    assert read(text=dump(experiment)) == experiment


# PyYAML alters line breaks
WORDS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=5)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS
LIKE = "5e-4 1e3 null ~ 0x10 1_0 1:30 2024-01-01 << = . 089 -0 1:99 1_000.5 +.inf 0x_1"
LEAVES |= st.sampled_from(f"{LIKE} {READ_DIFFERENTLY}".split())


@given(st.dictionaries(WORDS, LEAVES | st.lists(LEAVES, max_size=2), max_size=4))
def test_write_and_parse(tree):
    assert parse(write(tree), "x.yaml") == tree


def test_the_schema_is_json_and_knows_the_kinds():
    definitions = json.loads(schema(Experiment))["$defs"].values()
    kinds = (d.get("properties", {}).get("kind") for d in definitions)
    parts = """adam adamw muon noam cosine wsd constant
        transformer conformer e_branchformer pretrained hybrid lm translator"""
    assert {kind["const"] for kind in kinds if kind} == {*parts.split()}
    assert all(d["additionalProperties"] is False for d in definitions)


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


@each("text, expected", MISTAKES["deep"].items())
def test_mistakes_deep_in_lists_and_choices(path, text, expected):
    path.write_text(text)
    refused(f"^{path}: {re.escape(expected)}", load, Tree, path)


def test_did_you_mean_names_near_names_only():
    assert did_you_mean("dmi", ["dim", "heads"]) == "; did you mean 'dim'?"
    assert did_you_mean("qqq", ["dim", "heads"]) == did_you_mean(None, []) == ""
