"""Somebody's own corpus: tables joined, settings scaled by hours, the recipe from a table to an error rate.

What a tier must be is the file of conf/ that it names; sizes of BPE are judged by sentencepiece, which refuses one that
doesn't fit; the corpus of the recipe is made of tones.
"""

import functools
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tones import write_corpus

from asr import config, yaml_tree
from asr.data import manifest
from asr.models.hybrid import Hybrid, HybridSettings
from asr.tasks import Experiment
from asr.text import tokenizer

ROOT = Path(__file__).parents[1]
HOURS = [0.05, 0.63, 1.9, 2.1, 6.4, 24, 26, 290, 310, 5000]


@pytest.fixture
def scaled(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "recipes/own")
    return importlib.import_module("scaled")


@pytest.fixture
def shares(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "recipes/own")
    return importlib.import_module("shares")


@pytest.fixture
def tables():
    return importlib.import_module("scripts.tables")


# settings by hours


def experiment(scaled, hours):
    return config.check(
        Experiment, scaled.settings(hours, "data/x", "exp/x"), yaml_tree.Origins("scaled")
    )


def parameters(made):
    return count(config.dump(made.model), made.features.fbank.mels)


@functools.cache
def count(model, mels):
    """Parameters of a model with 500 tokens."""
    with torch.device("meta"):
        made = Hybrid(
            config.check(
                HybridSettings, yaml_tree.parse(model, "model"), yaml_tree.Origins("model")
            ),
            mels,
            500,
        )
    return sum(p.numel() for p in made.parameters())


def test_more_hours_never_make_a_smaller_model_or_more_epochs(scaled):
    made = [experiment(scaled, hours) for hours in HOURS]
    sizes = [parameters(one) for one in made]
    assert sizes == sorted(sizes) and len(set(sizes)) == len(scaled.TIERS)
    for tier in scaled.TIERS:
        epochs = [
            one.training.epochs
            for one, hours in zip(made, HOURS, strict=True)
            if scaled.tier_of(hours) == tier
        ]
        assert epochs == sorted(epochs, reverse=True) and len(epochs) >= 2


def test_a_tier_at_its_own_hours_is_the_file_in_conf(scaled):
    for tier in scaled.TIERS:
        made = experiment(scaled, tier.hours)
        base = config.load(Experiment, ROOT / f"conf/{tier.name}.yaml")
        data = made.data.model_copy(update={"train": base.data.train, "dev": base.data.dev})
        assert (
            made.model_copy(update={"out": base.out, "tokenizer": base.tokenizer, "data": data})
            == base
        )
        assert (made.out, made.tokenizer) == ("exp/x/model", "exp/x/tokenizer")
        assert (made.data.train, made.data.dev) == ("data/x/train.jsonl.gz", "data/x/dev.jsonl.gz")


def test_what_counts_in_epochs_and_steps_keeps_its_share(scaled):
    """conf/an4.yaml: 0.63 h, 40 epochs, a flat start in one, validated every 4, 200 steps of warm-up."""

    def counts(hours):
        made = scaled.settings(hours, "d", "e")
        t = made["training"]
        return (
            t["epochs"],
            made["model"]["flat_start_epochs"],
            t["validate_every"],
            made["schedule"]["warmup"],
        )

    assert counts(0.63) == (40, 1, 4, 200)
    assert counts(1.26) == (20, 1, 2, 200)  # as many steps in all
    assert counts(0.063) == (80, 2, 8, 40)  # twice the epochs at most: a fifth of the steps


def test_the_epochs_without_specaugment_keep_their_share(scaled):
    """conf/english.yaml: 6.4 h, 16 epochs, 7 of them unmasked."""
    made = [scaled.settings(hours, "d", "e") for hours in (6.4, 3.2, 12.8)]
    epochs = [
        (tree["training"]["epochs"], tree["features"]["specaugment"]["from_epoch"]) for tree in made
    ]
    assert epochs == [(16, 7), (32, 14), (8, 4)]


SPOKEN = ["TURN THE LIGHT ON", "TURN IT OFF", "PLAY SOME MUSIC", "DON'T STOP", "ROOM 12 B", "A"]


@pytest.mark.parametrize("repeats", [1, 2, 30, 2000])
@pytest.mark.parametrize(
    "texts", [SPOKEN, SPOKEN[-1:], ["ON", "OFF"], ["안녕 세상", "여보세요"], ["ÉTÉ ÇA ΑΒΓ АБВ 3"]]
)
def test_the_size_of_bpe_fits_the_texts(scaled, texts, repeats):
    kind, size = scaled.tokens(texts * repeats)
    assert kind == "bpe" and tokenizer.train("bpe", texts * repeats, size).vocabulary == size


def test_the_size_of_bpe_grows_with_the_text(scaled, monkeypatch):
    """1.8 · √words, to two digits: AN4 has 110 tokens for 3700 words, LibriSpeech's 960 h 5000 for 9.4 million."""
    words = [f"{a}{b}{c}" for a in "BCDFGHJKLM" for b in "AEIOU" for c in "NPRSTV"]
    sizes = [scaled.tokens([" ".join(words)] * n)[1] for n in (1, 10, 100)]
    assert sizes == [31, 99, 310]
    monkeypatch.setattr(scaled, "MOST_TOKENS", 200)
    assert scaled.tokens([" ".join(words)] * 100)[1] == 200


def test_scripts_without_spaces_have_characters(scaled):
    assert scaled.tokens(["我用 IPHONE 打电话"]) == ("characters", None)


def test_the_size_of_bpe_fits_the_texts_of_dev_too(scaled):
    """In few texts dev has letters that training lacks."""
    train, dev = ["ON", "OFF"], ["QUICK BROWN FOXES JUMP"]
    kind, size = scaled.tokens(train, dev)
    assert kind == "bpe" and tokenizer.train("bpe", train + dev, size).vocabulary == size
    assert scaled.tokens(SPOKEN * 50, SPOKEN) == scaled.tokens(SPOKEN * 50)


def test_the_readme_tells_the_tiers(scaled):
    text = (ROOT / "recipes/own/README.md").read_text()
    for tier in scaled.TIERS:
        millions = parameters(config.load(Experiment, ROOT / f"conf/{tier.name}.yaml")) / 1e6
        limit = "more" if tier.below == float("inf") else f"less than {tier.below:g}"
        assert f"| {limit} | `conf/{tier.name}.yaml` | {millions:.0f} M |" in text


# shares


@pytest.mark.parametrize(
    "count, expected", [(3, "0.1 0.05"), (20_000, "0.1 0.05"), (50_000, "0.04 0.02")]
)
def test_a_tenth_and_a_twentieth_are_carved_but_no_more_than_are_worth_it(
    shares, tmp_path, capsys, count, expected
):
    """2000 of 50,000 are 0.04, 1000 of them 0.02."""
    (tmp_path / "train.tsv").write_text("id\tpath\ttext\n" + "é\t高\tc\n" * count, encoding="utf-8")
    shares.main([str(tmp_path)])
    assert [f"{float(share):g}" for share in capsys.readouterr().out.split()] == expected.split()


def test_too_few_recordings_for_all_sets_are_refused(shares, tmp_path, capsys):
    (tmp_path / "train.tsv").write_text("id\tpath\ttext\na\tb\tc\nd\te\tf\n")
    with pytest.raises(SystemExit):
        shares.main([str(tmp_path)])
    assert "got 2 recordings, expected 3 at least: train, dev, test" in capsys.readouterr().err
    (tmp_path / "test.tsv").touch()
    shares.main([str(tmp_path)])


# tables


def test_tables_are_joined_and_a_corpus_taken_in_its_own_layout(tables, tmp_path):
    write_corpus(tmp_path / "a", {"train": 3})
    write_corpus(tmp_path / "b", {"other": 2})
    (tmp_path / "an4/etc").mkdir(parents=True)
    (tmp_path / "an4/wav").mkdir()
    for split in ("train", "test"):
        (tmp_path / f"an4/etc/an4_{split}.fileids").write_text(f"x/{split}1\n")
        (tmp_path / f"an4/etc/an4_{split}.transcription").write_text(f"<s> GO </s> ({split}1)\n")
        (tmp_path / "an4/wav/x").mkdir(exist_ok=True)
        (tmp_path / f"an4/wav/x/{split}1.sph").touch()
    sources = [
        f"train={tmp_path}/a/train.tsv",
        f"train={tmp_path}/b/other.tsv",
        f"test=an4:{tmp_path}/an4",
    ]
    for _ in range(2):  # again: its own tables may be replaced
        tables.main([str(tmp_path / "out"), *sources, "--without", "train001", "nobody"])
    rows = [line.split("\t") for line in (tmp_path / "out/train.tsv").read_text().splitlines()]
    assert [row[0] for row in rows] == ["id", "train000", "train002", "other000", "other001"]
    assert [Path(row[1]).is_file() for row in rows[1:]] == [True] * 4 and rows[1][3] == "train0"
    assert (tmp_path / "out/test.tsv").read_text().splitlines()[
        1
    ] == f"test1\t{tmp_path}/an4/wav/x/test1.sph\tGO\tx"
    tables.main([str(tmp_path / "out"), sources[0]])
    assert [path.name for path in (tmp_path / "out").glob("*.tsv")] == ["train.tsv"]


def test_tables_whose_writing_was_stopped_are_written_again(tables, tmp_path, monkeypatch):
    write_corpus(tmp_path / "a", {"train": 3, "test": 2})
    arguments = [
        str(tmp_path / "out"),
        f"train={tmp_path}/a/train.tsv",
        f"test={tmp_path}/a/test.tsv",
    ]
    write = tables.write_text

    def stop(path, text):
        if path.name == "test.tsv":
            raise KeyboardInterrupt
        write(path, text)

    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(tables, "write_text", stop)
        tables.main(arguments)
    assert [path.name for path in (tmp_path / "out").glob("*.tsv")] == ["train.tsv"]
    tables.main(arguments)
    assert sorted(path.name for path in (tmp_path / "out").glob("*.tsv")) == [
        "test.tsv",
        "train.tsv",
    ]


def test_mistakes_of_tables(tables, tmp_path, capsys):
    write_corpus(tmp_path / "a", {"train": 2})
    table = f"train={tmp_path}/a/train.tsv"
    expected = "expected a .tsv of `id path text [speaker]`, or CORPUS:FOLDER"
    cases = {
        (f"train={tmp_path}/none.tsv",): f"{tmp_path}/none.tsv: no such table; {expected}",
        ("recordings.tsv",): "recordings.tsv: expected SPLIT=SOURCE, as train=recordings.tsv",
        (f"dev=tsv:{tmp_path}/a",): f"tsv:{tmp_path}/a: has no split 'dev'; it has train",
        (
            table,
            f"test={tmp_path}/a/train.tsv",
        ): "utterances that share an id with another (4): train000 "
        f"({tmp_path}/a/train.tsv:2), train001 ({tmp_path}/a/train.tsv:3), train000 ({tmp_path}/a/train.tsv:2), "
        f"train001 ({tmp_path}/a/train.tsv:3); give each its own id across all splits",
    }
    for arguments, message in cases.items():
        with pytest.raises(SystemExit) as stopped:
            tables.main([str(tmp_path / "out"), *arguments])
        assert (
            stopped.value.code == 2 and capsys.readouterr().err.partition(": ")[2] == message + "\n"
        )
    assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit):
        tables.main([str(tmp_path / "a"), table])
    message = (
        f"{tmp_path}/a: holds train.tsv, which this script hasn't written; choose another folder\n"
    )
    assert capsys.readouterr().err.partition(": ")[2] == message


# the recipe

TINY = [
    "training.epochs=1",
    "training.average=1",
    "training.processes=1",
    "training.device=cpu",
    "training.precision=fp32",
    "features.fbank.sample_rate=8000",
    "features.fbank.mels=24",
    "features.specaugment=null",
    "model.encoder.layers=1",
    "model.intermediate_ctc=null",
    "model.consistency=null",
    "model.encoder.d_model=16",
    "model.encoder.ff=16",
    "model.encoder.channels=4",
    "model.decoder.layers=1",
    "model.decoder.d_model=16",
    "model.decoder.ff=16",
    "model.encoder.subsampling=4",
]


def recipe(root, *arguments):
    """Run the recipe in a checkout at `root`."""
    command = ["bash", str(root / "recipes/own/run.sh"), *arguments]
    paths = {
        "PYTHONPATH": str(ROOT),
        "PATH": f"{root / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    environment = {**os.environ, "VIRTUAL_ENV": str(Path(sys.executable).parents[1]), **paths}
    return subprocess.run(
        command, cwd=root / "elsewhere", env=environment, capture_output=True, text=True
    )


@pytest.fixture
def checkout(tmp_path):
    """A checkout without the library, beside a folder with a table of tones."""
    if not (Path(sys.executable).parent / "asr-train").exists():
        pytest.skip("the toolkit's commands are not beside this Python")
    for folder in ("conf", "recipes", "scripts"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("data", "exp")
        )
    write_corpus(tmp_path / "elsewhere", {"recorded": 60})
    return tmp_path


def test_the_recipe_goes_from_a_table_to_an_error_rate(checkout):
    done = recipe(checkout, "recorded.tsv", "--name", "mine", "--dev", "15", "--test", "15", *TINY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(
        r"result recipe=mine set=test mode=joint wer=[\d.]+ lo=[\d.]+ hi=[\d.]+ words=\d+ rtf=[\d.]+ seconds=\d+",
        done.stdout.splitlines()[-1],
    )
    assert "30 usable" in done.stdout  # of the check
    splits = {
        name: list(manifest.read(checkout / f"data/mine/{name}.jsonl.gz"))
        for name in ("train", "dev", "test")
    }
    assert [len(split) for split in splits.values()] == [30, 15, 15]
    assert len({u.speaker for split in splits.values() for u in split}) == 4
    assert (
        len({(name, u.speaker) for name, split in splits.items() for u in split}) == 4
    )  # each in one split
    made = config.load(Experiment, checkout / "exp/mine/config.yaml")
    assert made.training.epochs == 80 and made.out == "exp/mine/model"


def test_three_recordings_are_enough_and_none_but_sets_are_given(checkout):
    """A table without a header, in sets of sizes that the recipe chooses, as far as training, which is a stand-in."""
    table = checkout / "elsewhere/recorded.tsv"
    table.write_text("".join(line + "\n" for line in table.read_text().splitlines()[1:4]))
    (checkout / "bin").mkdir()
    (checkout / "bin/asr-train").write_text("#!/bin/sh\nexit 9\n")
    (checkout / "bin/asr-train").chmod(0o755)
    done = recipe(checkout, "recorded.tsv", "--name", "few.1")
    assert done.returncode == 9 and (checkout / "exp/few.1/tokenizer/bpe.model").is_file(), (
        done.stderr
    )
    names = ("train", "dev", "test")
    assert [
        len(list(manifest.read(checkout / f"data/few.1/{name}.jsonl.gz"))) for name in names
    ] == [1, 1, 1]


def test_mistakes_of_the_recipe(checkout):
    cases = {
        (): "run.sh: got nothing, expected TABLE.tsv; see --help",
        ("--nmae", "x", "recorded.tsv"): "run.sh: no such option --nmae; --help lists them",
        ("recorded.tsv", "--test"): "run.sh: --test: expected a value",
        (
            "a.tsv",
            "b.tsv",
        ): f"run.sh: got {checkout}/elsewhere/a.tsv {checkout}/elsewhere/b.tsv, expected TABLE.tsv",
        ("none.tsv",): f"tables.py: {checkout}/elsewhere/none.tsv: no such table; expected a .tsv",
        (".",): f"tables.py: {checkout}/elsewhere/.: is a folder; expected a .tsv",
        (
            "recorded.tsv",
            "--config",
            "none.yaml",
        ): "asr-train: none.yaml: can't read this configuration file",
        (
            "recorded.tsv",
            "--test",
            "typo.tsv",
        ): f"tables.py: {checkout}/elsewhere/typo.tsv: no such table",
    }
    for arguments, message in cases.items():
        done = recipe(checkout, *arguments)
        assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith(message), (
            done.stderr
        )
