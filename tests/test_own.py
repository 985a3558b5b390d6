"""Somebody's own corpus: tables joined, settings scaled by hours, the recipe from a table to an error rate.

What a tier must be is the file of conf/ that it names, and what a fine-tuning must be the table of wav2vec 2.0's paper;
sizes of BPE are judged by sentencepiece, which refuses one that
doesn't fit; the corpus of the recipe is made of tones.
"""

import importlib
import os
import re
import shutil
from pathlib import Path

import miniatures
import pytest
import torch
from checkouts import PATH, ROOT, bash, copy, needs_commands, write_program
from partly import partly
from runs import status_of
from small import rows
from sources import write_source
from tones import write_corpus

from asr import config, yaml_tree
from asr.data import manifest
from asr.models.hybrid import Hybrid
from asr.tasks import Experiment
from asr.text import tokenizer
from scripts import tables

each = pytest.mark.parametrize

HOURS = [0.05, 0.63, 1.9, 2.1, 6.4, 24, 26, 290, 310, 5000]


@pytest.fixture
def scaled(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "recipes/own")
    return importlib.import_module("scaled")


# settings by hours


def experiment(scaled, hours):
    tree = scaled.settings(hours, "data/x", "exp/x")
    return config.check(Experiment, tree, yaml_tree.Origins("scaled"))


def parameters(made):
    """Of its model, with 500 tokens."""
    with torch.device("meta"):
        model = Hybrid(made.model, made.features.fbank.mels, 500)
    return sum(p.numel() for p in model.parameters())


def test_more_hours_never_make_a_smaller_model_or_more_epochs(scaled):
    made = [experiment(scaled, hours) for hours in HOURS]
    sizes, epochs = [parameters(one) for one in made], [one.training.epochs for one in made]
    assert sizes == sorted(sizes)
    tiers = [scaled.tier_of(hours).name for hours in HOURS]
    for tier in scaled.TIERS:
        own = [count for count, of in zip(epochs, tiers, strict=True) if of == tier.name]
        assert own == sorted(own, reverse=True) and len(own) >= 2


def test_a_tier_at_its_own_hours_is_the_file_in_conf_that_the_readme_names(scaled):
    page = (ROOT / "recipes/own/README.md").read_text()
    own = "out=exp/x/model tokenizer=exp/x/tokenizer data.train=data/x/train.jsonl.gz"
    own = [*own.split(), "data.dev=data/x/dev.jsonl.gz"]
    for tier in scaled.TIERS:
        base = config.load(Experiment, ROOT / f"conf/{tier.name}.yaml", own)
        assert experiment(scaled, tier.hours) == base
        limit = "more" if tier.below == float("inf") else f"less than {tier.below:g}"
        size = f"{parameters(base) / 1e6:.0f} M"
        assert f"| {limit} | `conf/{tier.name}.yaml` | {size} |" in page


@each(
    "hours, expected",
    [
        (0.63, (40, 1, 4, 200, 28)),  # conf/an4.yaml
        (1.26, (20, 1, 2, 200, 14)),  # as many steps in all
        (0.063, (80, 2, 8, 40, 56)),  # twice the epochs at most: a fifth of the steps
        (6.4, (24, 1, 2, 300, 16)),  # conf/english.yaml
        (3.2, (48, 2, 4, 300, 32)),
        (12.8, (12, 1, 1, 300, 8)),
    ],
)
def test_what_counts_in_epochs_and_steps_keeps_its_share(scaled, hours, expected):
    """Epochs; those of a flat start, from one validation to the next, steps of warm-up, epochs before joining."""
    made = scaled.settings(hours, "d", "e")
    training, joined = made["training"], made["data"].get("concatenate") or {}
    counted = training["epochs"], made["model"]["flat_start_epochs"], training["validate_every"]
    assert (*counted, made["schedule"]["warmup"], joined.get("from_epoch")) == expected


@each("hours, expected", [(6.4, (24, 5)), (3.2, (48, 10)), (12.8, (12, 2))])
def test_masks_begin_at_their_share_of_the_epochs(scaled, monkeypatch, hours, expected):
    placed = scaled.placed

    def masked(*where):
        made = placed(*where)
        made["features"]["specaugment"] = {"time_masks": 1, "from_epoch": 5}
        return made

    monkeypatch.setattr(scaled, "placed", masked)
    made = scaled.settings(hours, "d", "e")
    masks = made["features"]["specaugment"]
    assert (made["training"]["epochs"], masks["from_epoch"]) == expected


UPDATES = {  # Baevski et al. 2020, table 6: hours → updates, probabilities that masks of 10 frames, 64 features begin
    1 / 6: (12_000, 0.075, 0.008),
    1: (13_000, 0.075, 0.004),
    10: (20_000, 0.065, 0.004),
    100: (50_000, 0.05, 0.008),
}


def tuned(scaled, hours, source="facebook/w2v-bert-2.0"):
    tree = scaled.pretrained(hours, source, "data/x", "exp/x")
    return config.check(Experiment, tree, yaml_tree.Origins("scaled"))


def test_a_published_model_is_begun_with(scaled, root, whole, tmp_path, monkeypatch, stderr):
    """By its name; its encoder isn't new, so that it isn't frozen."""
    folder = shutil.copytree(whole[0], tmp_path / "m", ignore=shutil.ignore_patterns("checkpoints"))
    tree, _ = yaml_tree.read_tree(folder / "config.yaml")
    tree["model"]["fine_tuning"] = {"freeze_steps": 9, "rate": 0.5}
    (folder / "config.yaml").write_text(yaml_tree.write(tree))
    monkeypatch.setattr(scaled, "find_model", {"me/tones": str(folder)}.get)
    command = str(root / "data"), str(tmp_path / "exp"), "--init-from", "me/tones"
    assert status_of(scaled.main, *command) == 0
    made, _ = yaml_tree.read_tree(tmp_path / "exp/config.yaml")
    assert made["init_from"] == "me/tones"
    assert made["model"]["fine_tuning"] == {"freeze_steps": 0, "rate": 0.5}
    (folder / "config.yaml").write_text("model: {kind: lm}")
    assert status_of(scaled.main, *command) == 2
    assert "--init-from me/tones: is no recognizer" in stderr()


@each("hours", UPDATES)
def test_a_pretrained_encoder_has_the_steps_and_masks_of_the_paper(scaled, hours):
    made, (updates, time, feature) = tuned(scaled, hours), UPDATES[hours]
    training, mask = made.training, made.model.encoder.mask
    per_epoch = -(-3600 * hours // (made.data.batch_seconds * training.accumulate))
    assert 0 <= training.epochs * per_epoch - updates < per_epoch
    assert made.model.fine_tuning.freeze_steps == 10_000
    assert (made.schedule.warmup, made.schedule.decay) == (updates / 10, 0.5)
    assert (mask.time_ratio, mask.time_width) == (pytest.approx(10 * time), 10)
    assert (mask.feature_ratio, mask.feature_width) == (pytest.approx(64 * feature, abs=0.005), 64)
    assert 40 <= training.epochs / training.validate_every <= 60


@each(
    "hours, like",
    [(0.001, 1 / 6), (0.39, 1 / 6), (0.41, 1), (2.9, 1), (3.1, 10), (31, 100), (9e3, 100)],
)
def test_other_hours_have_the_masks_of_the_nearest(scaled, hours, like):
    made, near = tuned(scaled, hours), tuned(scaled, like)
    assert made.model.encoder == near.model.encoder and made.training.epochs >= 1
    assert made.model.fine_tuning == near.model.fine_tuning


def test_ten_hours_are_the_file_in_conf(scaled):
    own = "out=exp/x/model tokenizer=exp/x/tokenizer data.train=data/x/train.jsonl.gz"
    own = [*own.split(), "data.dev=data/x/dev.jsonl.gz"]
    assert tuned(scaled, 10) == config.load(Experiment, ROOT / "conf/pretrained.yaml", own)


def test_the_page_about_hours_shows_what_is_made(scaled):
    page = (ROOT / "docs/how-much-data.md").read_text()
    for hours, one in zip(UPDATES, scaled.FINE_TUNING, strict=True):
        limit = "more" if one.below == float("inf") else f"less than {one.below:g}"
        epochs = tuned(scaled, hours).training.epochs
        row = f"| {limit} | {one.hours} | {one.steps:,} | {epochs} | {epochs * hours:.0f} h |"
        assert row in page


SPOKEN = ["TURN THE LIGHT ON", "TURN IT OFF", "PLAY SOME MUSIC", "DON'T STOP", "ROOM 12 B", "A"]


@each("repeats", [1, 2, 30, 2000])
@each(
    "texts, others",
    [
        (SPOKEN, []),
        (SPOKEN[-1:], []),
        (["ON", "OFF"], ["QUICK BROWN FOXES JUMP"]),  # dev has letters that training lacks
        (["안녕 세상", "여보세요"], []),
        (["ÉTÉ ÇA ΑΒΓ АБВ 3"], []),
    ],
)
def test_the_size_of_bpe_fits_the_texts(scaled, texts, others, repeats):
    texts = texts * repeats
    kind, size = scaled.tokens(texts, others)
    assert kind == "bpe" and tokenizer.train("bpe", texts + others, size).vocabulary == size
    assert scaled.tokens(texts, [*others, *texts]) == (kind, size)


def test_the_size_of_bpe_grows_with_the_text(scaled, monkeypatch):
    """1.8 · √words, to two digits: AN4 has 110 tokens for 3700 words, LibriSpeech's 960 h 5000 for 9.4 million."""
    words = " ".join(f"{a}{b}{c}" for a in "BCDFGHJKLM" for b in "AEIOU" for c in "NPRSTV")
    assert [scaled.tokens([words] * n)[1] for n in (1, 10, 100)] == [31, 99, 310]
    monkeypatch.setattr(scaled, "MOST_TOKENS", 200)
    assert scaled.tokens([words] * 100)[1] == 200


def test_scripts_without_spaces_have_characters(scaled):
    assert scaled.tokens(["我用 IPHONE 打电话"]) == ("characters", None)


# shares


def test_a_tenth_and_a_twentieth_are_carved_but_no_more_than_are_worth_it(scaled, tmp_path, capsys):
    """2000 of 50,000 are 0.04, 1000 of them 0.02. Training, dev and test set need a recording each."""
    shares = importlib.import_module("shares")

    def run(count):
        table = "id\tpath\ttext\n" + "é\t高\tc\n" * count
        (tmp_path / "train.tsv").write_text(table, encoding="utf-8")
        shares.main([str(tmp_path)])
        return [float(share) for share in capsys.readouterr().out.split()]

    assert run(3) == run(20_000) == [0.1, 0.05] and run(50_000) == [0.04, 0.02]
    with pytest.raises(SystemExit):
        run(2)
    assert "got 2 recordings, expected 3 at least: train, dev, test" in capsys.readouterr().err
    (tmp_path / "test.tsv").touch()
    run(2)


# tables


def written(folder):
    return {path.stem: path.read_text().splitlines() for path in folder.glob("*.tsv")}


def test_tables_are_joined_and_a_corpus_taken_in_its_own_layout(tmp_path):
    write_corpus(tmp_path / "a", {"train": 3})
    write_corpus(tmp_path / "b", {"other": 2})
    miniatures.an4(tmp_path / "an4", {"train": 1, "test": 1})
    out, first = tmp_path / "out", f"train={tmp_path}/a/train.tsv"
    more = f"train={tmp_path}/b/other.tsv", f"test=an4:{tmp_path}/an4", "--without", "train001", "x"
    for _ in range(2):  # again: its own tables may be replaced
        tables.main([str(out), first, *more])
    _, *lines = [line.split("\t") for line in written(out)["train"]]
    assert [line[0] for line in lines] == ["train000", "train002", "other000", "other001"]
    assert all(Path(line[1]).is_file() for line in lines) and lines[0][3] == "train0"
    sound = f"{tmp_path}/an4/wav/test/test00/an0-test00-b.sph"
    assert written(out)["test"][1:] == [f"an0-test00-b\t{sound}\t{miniatures.ALPHABET}\ttest00"]
    tables.main([str(out), first])
    assert list(written(out)) == ["train"]


def test_tables_whose_writing_was_stopped_are_written_again(tmp_path, monkeypatch):
    write_corpus(tmp_path / "a", {"train": 3, "test": 2})
    sources = [f"{split}={tmp_path}/a/{split}.tsv" for split in ("train", "test")]
    write, out = tables.write_text, tmp_path / "out"

    def stop(path, text):
        if path.name == "test.tsv":
            raise KeyboardInterrupt
        write(path, text)

    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(tables, "write_text", stop)
        tables.main([str(out), *sources])
    assert list(written(out)) == ["train"]
    tables.main([str(out), *sources])
    assert set(written(out)) == {"train", "test"}


EXPECTED = "expected a .tsv of `id path text [speaker]`, or CORPUS:FOLDER"
TWICE = ", ".join(2 * [f"train00{n} (HERE/train.tsv:{n + 2})" for n in range(2)])


MISTAKES = f"""
train=HERE/none.tsv | HERE/none.tsv: no such table; {EXPECTED}
train=HERE          | HERE: is a folder; {EXPECTED}
recordings.tsv      | recordings.tsv: expected SPLIT=SOURCE, as train=recordings.tsv
dev=tsv:HERE        | tsv:HERE: has no split 'dev'; it has train
train=HERE/train.tsv test=HERE/train.tsv | utterances that share an id with another (4): {TWICE}
train=HERE/train.tsv | HERE: holds train.tsv, which this script hasn't written
"""


@each("sources, message", rows(MISTAKES))
def test_mistakes_of_tables(tmp_path, capsys, sources, message):
    folder = write_corpus(tmp_path / "a", {"train": 2})
    before = written(folder)
    with pytest.raises(SystemExit, match="^2$"):
        tables.main([str(folder), *sources.replace("HERE", str(folder)).split()])
    said = capsys.readouterr().err.partition(": ")[2]
    assert said.startswith(message.replace("HERE", str(folder)))
    assert said.count("\n") == 1 and written(folder) == before


# the recipe

TINY = """training.epochs=1 training.average=1 training.processes=1 training.device=cpu training.precision=fp32
features.fbank.sample_rate=8000 features.fbank.mels=24 features.specaugment=null model.intermediate_ctc=null
model.consistency=null model.encoder.layers=1 model.encoder.d_model=16 model.encoder.ff=16 model.encoder.channels=4
model.encoder.subsampling=4 model.decoder.layers=1 model.decoder.d_model=16 model.decoder.ff=16"""


RECIPE_MISTAKES = """
recorded.tsv --texts none.txt   | run.sh: --texts {here}/none.txt: no such file
none.tsv                        | tables.py: {here}/none.tsv: no such table; expected a .tsv
recorded.tsv --test typo.tsv    | tables.py: {here}/typo.tsv: no such table
recorded.tsv --config none.yaml | asr-train: none.yaml: can't read this configuration
recorded.tsv --pretrained none  | source.py: model.encoder.source: none: no such folder
recorded.tsv --pretrained none trainng.epochs=3 | source.py: command line: trainng: no such setting
recorded.tsv --pretrained none --config x.yaml | run.sh: --config and --pretrained: expected one of them
"""
TINY_DECODER = """training.epochs=2 training.average=1 training.processes=1 training.device=cpu training.precision=fp32
model.fine_tuning.freeze_steps=1 model.decoder.layers=1 model.decoder.d_model=16 model.decoder.ff=16 data.workers=0
data.batch_seconds=8 training.accumulate=1"""


WAVEFORMS = '{"sampling_rate": 16000, "do_normalize": true}'


@pytest.fixture
def checkout(tmp_path):
    """A checkout without the library, beside a folder with a table of tones."""
    write_corpus(tmp_path / "elsewhere", {"recorded": 60})
    return copy(tmp_path, "conf", "recipes", "scripts")


def recipe(root, *words, **environment):
    """Run the recipe in a checkout at `root`."""
    return bash(root / "elsewhere", root / "recipes/own/run.sh", *words, **environment)


def splits(folder):
    return [list(manifest.read(folder / f"{name}.jsonl.gz")) for name in ("train", "dev", "test")]


@pytest.mark.slow
@needs_commands
def test_the_recipe_goes_from_a_table_to_an_error_rate(checkout):
    words = "recorded.tsv", "--name", "mine", "--dev", "15", "--test", "15"
    status, out, err = recipe(checkout, *words, *TINY.split())
    assert status == 0, out + err
    rates = r"wer=[\d.]+ lo=[\d.]+ hi=[\d.]+ words=\d+ rtf=[\d.]+ seconds=\d+"
    for mode, end in (("joint", ""), ("joint[+]lm", "$")):  # the second in the last line
        assert re.search(f"\nresult recipe=mine set=test mode={mode} {rates}\n{end}", out), out
    assert "30 usable" in out  # of the check
    carved = splits(checkout / "data/mine")
    assert [len(split) for split in carved] == [30, 15, 15]
    speakers = [{utterance.speaker for utterance in split} for split in carved]
    assert sum(map(len, speakers)) == len(set.union(*speakers)) == 4  # each in one split
    made = config.load(Experiment, checkout / "exp/mine/config.yaml")
    assert made.training.epochs == 80 and made.out == "exp/mine/model"


@needs_commands
def test_three_recordings_are_enough_and_none_but_sets_are_given(checkout):
    """A table without a header, in sets of sizes that the recipe chooses, as far as training, which is a stand-in."""
    table = checkout / "elsewhere/recorded.tsv"
    table.write_text("".join(table.read_text().splitlines(True)[1:4]))
    write_program(checkout / "bin/asr-train", "#!/bin/sh\nexit 9\n")
    path = f"{checkout / 'bin'}{os.pathsep}{PATH}"
    status, _, err = recipe(checkout, "recorded.tsv", "--name", "few.1", PATH=path)
    assert status == 9 and (checkout / "exp/few.1/tokenizer/bpe.model").is_file(), err
    assert [len(split) for split in splits(checkout / "data/few.1")] == [1, 1, 1]


@pytest.mark.slow
@needs_commands
def test_the_recipe_fine_tunes_a_pretrained_encoder(checkout):
    """Its folder is found from where the recipe is called; a second run repeats nothing."""
    source = write_source(checkout / "elsewhere/tiny", "model_type: wav2vec2", 16000)
    words = "recorded.tsv", "--name", "mine", "--dev", "15", "--test", "15", "--pretrained", "tiny"
    status, out, err = recipe(checkout, *words, *TINY_DECODER.split())
    assert status == 0, out + err
    assert "tiny: wav2vec2, 3 layers of 32" in err and "result recipe=mine set=test" in out
    written = config.load(Experiment, checkout / "exp/mine/config.yaml")
    assert written.model.encoder.source == str(source) and written.training.epochs == 12000
    assert recipe(checkout, *words, *TINY_DECODER.split())[0] == 0


@pytest.mark.slow
@needs_commands
def test_a_pretrained_encoder_without_transformers_is_refused_first(checkout, tmp_path):
    for name, text in (
        ("config", '{"model_type": "wav2vec2"}'),
        ("preprocessor_config", WAVEFORMS),
    ):
        path = checkout / f"elsewhere/tiny/{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "none").mkdir()
    (tmp_path / "none/transformers.py").write_text("raise ImportError('none')")
    path = f"{tmp_path / 'none'}{os.pathsep}{ROOT}"
    status, out, err = recipe(checkout, "recorded.tsv", "--pretrained", "tiny", PYTHONPATH=path)
    assert (status, out) == (2, "") and not (checkout / "data").exists()
    assert err.startswith("source.py: transformers can't be imported") and "[pretrained]" in err


@needs_commands
@each("words, message", partly(rows(RECIPE_MISTAKES), 6))
def test_mistakes_of_the_recipe(checkout, words, message):
    status, out, err = recipe(checkout, *words.split())
    assert (status, out) == (2, "")
    assert err.startswith(message.format(here=checkout / "elsewhere")), err
