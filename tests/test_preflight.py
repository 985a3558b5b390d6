"""Prove that `asr-train --check` finds every planted fault, counts it exactly, and finds none where there is none; that
what it foretells is what the training does; and that it leaves no file behind. All data are constructed.
"""

import gzip
import json
import re
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import yaml
from runs import experiment, history, make_root, status_of, train
from small import each, rows
from test_lm import CONFIG as LM_CONFIG
from tones import CONFIG, RATE

from asr.cli import train as command
from asr.data import manifest
from asr.data.manifest import Utterance
from asr.errors import UserError
from asr.preflight import prediction, problems
from asr.preflight.check import check
from asr.preflight.prediction import Seconds, span
from asr.text import tokenizer
from asr.training import memory
from asr.training.build import build

LIMITS = ["data.min_seconds=0.2", "data.max_seconds=2.0", "data.max_tokens=10"]


def utterance(folder, name, text, seconds=1.0, speaker=None):
    """A recording of noise and its line of a manifest."""
    path, samples = folder / f"{name}.wav", int(seconds * RATE)
    soundfile.write(path, np.random.default_rng(0).uniform(-0.1, 0.1, samples), RATE)
    return Utterance(name, str(path), RATE, samples, 1, 0.0, seconds, text, speaker)


def look(root, *overrides, tests=(), name="x"):
    return check(experiment(root, *overrides, name=name), list(map(str, tests)))


def told(report):
    """Its problems, a line each."""
    kinds = "warning", "error"
    return [f"{kinds[p.stops]} {p.role} {p.count}/{p.of} {p.what}" for p in report.problems]


# name | text | seconds | speaker | what its line says else
BAD = """
    lost    | LOW     | 1   | bob
    text    | LOW     | 1   | bob
    rate    | LOW     | 1   | bob | rate: 16000
    samples | LOW     | 1   | bob | samples: 8100
    end     | LOW     | 1   | bob | duration: 1.5
    empty   | " "     | 1   | null
    strange | LÖW ßÖ  | 1   | ""
    foreign | Ö       | 1   | null
    twin    | LOW     | 1   | ann | {id: good0, path: CORPUS/good0.wav}
    short   | LOW     | 0.1 | null
    long    | LOW     | 2.5 | null
    wordy   | LOW MID HIGH | 1 | null
    dense   | LOW MID | 0.3 | null
"""
DEV = """
    dev0    | HIGH    | 1   | ann
    dev1    | LOW     | 1   | cleo
    good5   | MID     | 1   | cleo
    dev3    | MID HIGH | 1  | ann
"""
TEST = """
    test0   | GOAL    | 1   | dora
    test1   | HIGH    | 9   | cleo
"""


def utterances(folder, table):
    """Those of a table, written."""
    for name, text, seconds, speaker, *more in rows(table):
        said = [yaml.safe_load(value) for value in (text, seconds, speaker)]
        changes = yaml.safe_load("".join(more).replace("CORPUS", str(folder))) or {}
        yield replace(utterance(folder, name, *said), **changes)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """An experiment whose training set has each fault once or twice, among eight good utterances."""
    root = tmp_path_factory.mktemp("faults")
    folder, data = root / "corpus", root / "data"
    folder.mkdir()
    data.mkdir()
    good = [utterance(folder, f"good{n}", "LOW", speaker="ann") for n in range(8)]
    lines = [json.dumps(u.line()) for u in [*good, *utterances(folder, BAD)]]
    (folder / "lost.wav").unlink()
    (folder / "text.wav").write_text("no sound")
    lines[3:3] = ["", "{no JSON", '{"id": "x"}']  # an empty line counts as one, not as an utterance
    (data / "train.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    manifest.write(data / "dev.jsonl.gz", utterances(folder, DEV))
    manifest.write(data / "test.jsonl.gz", utterances(folder, TEST))
    tokenizer.train("characters", ["LOW MID HIGH"]).save(root / "tokenizer")
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    return root


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """A corpus without a fault whose sets share nothing, and a language model's texts alike."""
    root = make_root(tmp_path_factory.mktemp("clean"))
    dev, train = root / "data/dev.jsonl.gz", root / "data/train.jsonl.gz"
    manifest.write(dev, [replace(u, text="HIGH") for u in list(manifest.read(dev))])
    manifest.write(train, [u for u in list(manifest.read(train)) if u.text != "HIGH"])
    (root / "train.txt").write_text("LOW MID\nHIGH\nLOW LOW\n" * 20)
    (root / "dev.txt").write_text("MID LOW\n")
    (root / "lm.yaml").write_text(LM_CONFIG.format(root=root))
    return root


# ---- what is wrong


FOUND = """
error train 2/23 lines that are not utterances
error train 1/21 empty texts
error train 1/21 repeated ids
error train 2/21 texts with characters outside the vocabulary: 'Ö' (U+00D6) ×3, 'ß' (U+00DF) ×1
error train 2/18 missing or unreadable sound files
error train 3/18 other lengths or rates than their sound files
error train 1/18 too short for CTC to align
warning train 1/21 shorter than min_seconds=0.2
warning train 1/21 longer than max_seconds=2
warning train 1/21 more tokens than max_tokens=10
warning dev 1/4 ids shared with train
warning dev 1/2 speakers shared with train
warning dev 1/4 texts shared with train
warning test 1/2 texts with characters outside the vocabulary: 'A' (U+0041) ×1
warning test 1/2 speakers shared with dev
warning test 1/2 texts shared with dev
"""
EXAMPLES = r"""
lines that are not utterances:
    - 'TRAIN:5: expected a lhotse MonoCut with a recording (Expecting property name'
    - "TRAIN:6: expected a lhotse MonoCut with a recording (no 'recording')"
repeated ids: ['TRAIN:20: good0: appears earlier']
missing or unreadable sound files:
    - 'TRAIN:12: lost: ROOT/corpus/lost.wav: no such file'
    - 'TRAIN:13: text: ROOT/corpus/text.wav: is text, not sound'
other lengths or rates than their sound files:
    - 'TRAIN:14: rate: ROOT/corpus/rate.wav has 8000 Hz, the manifest says 16000 Hz'
    - 'TRAIN:15: samples: ROOT/corpus/samples.wav has 1.000 s, the manifest says 1.012 s'
    - 'TRAIN:16: end: ROOT/corpus/end.wav has 1.000 s, the manifest asks for 0.000 to 1.500 s'
too short for CTC to align: ['TRAIN:24: dense: 5 frames at speed 1.1, 7 needed for 7 tokens']
longer than max_seconds=2: ['TRAIN:22: long: 2.50 s, 3 tokens']
speakers shared with train: ["ROOT/data/dev.jsonl.gz:1: dev0: 'ann' is in TRAIN:1"]
texts shared with train: ["ROOT/data/dev.jsonl.gz:2: dev1: 'LOW' is in TRAIN:1"]
"""


def test_every_planted_fault_is_found_counted_and_shown_with_line_and_id(root):
    report = look(root, *LIMITS, tests=[root / "data/test.jsonl.gz"])
    assert sorted(told(report)) == sorted(FOUND.strip().splitlines()) and report.refused
    examples = {p.what: p.examples for p in report.problems}
    text = EXAMPLES.replace("TRAIN", f"{root}/data/train.jsonl.gz").replace("ROOT", str(root))
    for what, lines in yaml.safe_load(text).items():
        for got, line in zip(examples[what], lines, strict=True):
            assert got.startswith(line)


def planted(root):
    """Its utterances: eight good ones, then those with a fault."""
    lines = manifest.numbered(root / "data/train.jsonl.gz")
    return [one for _, one in lines if isinstance(one, Utterance)]


def test_the_faults_of_several_manifests_name_theirs(root, tmp_path):
    whole, parts = planted(root), [f"{tmp_path}/{name}.jsonl.gz" for name in "ab"]
    manifest.write(parts[0], [*whole[:8], *whole[17:]])  # good ones, and the last four
    manifest.write(parts[1], whole[8:17])  # lost, ..., foreign, twin
    report, one = look(root, *LIMITS, f"data.train={json.dumps(parts)}"), look(root, *LIMITS)
    assert report.sources[0].path == ", ".join(parts)
    assert report.sources[0].message == one.sources[0].message
    assert told(report) == [line for line in told(one) if "not utterances" not in line]
    assert vars(report.prediction) | {"batches": 0} == vars(one.prediction) | {"batches": 0}
    examples = {p.what: p.examples for p in report.problems}
    assert examples["repeated ids"] == (f"{parts[1]}:9: good0: appears earlier",)
    assert examples["longer than max_seconds=2"] == (f"{parts[0]}:10: long: 2.50 s, 3 tokens",)


def test_what_training_refuses_is_what_the_check_calls_an_error(root, tmp_path):
    """Each utterance with an error, alone among good ones, stops the training; each with a warning doesn't."""
    path, found = tmp_path / "one.jsonl.gz", planted(root)
    for one in found[8:]:
        manifest.write(path, [*found[:8], one])
        settings = experiment(root, *LIMITS, f"data.train={path}", f"data.dev={path}")
        stops = one.id not in ("short", "long", "wordy")
        with pytest.raises(UserError) if stops else nullcontext():
            settings.read(build(settings))
        assert check(settings).refused == stops, one


def test_settings_and_unreadable_data_are_told_together(root, tmp_path):
    no, cut = f"{tmp_path}/no", tmp_path / "cut.jsonl.gz"
    cut.write_bytes((root / "data/test.jsonl.gz").read_bytes()[:-20])
    noise = f"data.augment={{noise: {{manifest: {no}.gz}}}}"
    report = look(root, f"data.dev={no}.jsonl.gz", f"init_from={no}", noise, *LIMITS, tests=[cut])
    first, augment, dev, test = [p.what for p in report.problems if not p.of]
    assert first == f"init_from: {no}: no such model folder; asr-train makes one"
    assert augment.startswith(f"{no}.gz: no such manifest")
    assert dev == f"{no}.jsonl.gz: no such manifest; asr-prepare makes it"
    assert "cut.jsonl.gz: damaged after line" in test


def test_sets_without_a_usable_utterance(clean, tmp_path):
    empty = tmp_path / "none.jsonl.gz"
    empty.write_bytes(gzip.compress(b""))
    report = look(clean, f"data.train={empty}", "data.max_seconds=0.1")
    assert [p.what for p in report.problems if p.stops] == [
        f"{empty}: has no utterances; asr-prepare makes manifests",
        f"{clean}/data/dev.jsonl.gz: the length limits leave no utterance; widen them",
    ]
    assert report.prediction is report.measurement is None
    assert "asr-train would refuse this" in report.text()


def test_a_recording_that_only_reading_shows_to_be_bad(clean, tmp_path):
    path, samples = tmp_path / "x.jsonl.gz", np.full(RATE, 0.1)
    manifest.write(path, [utterance(tmp_path, "nan", "LOW")])
    samples[100] = np.nan
    soundfile.write(tmp_path / "nan.wav", samples, RATE, subtype="FLOAT")
    [problem] = look(clean, f"data.train={path}").problems
    said = f"{tmp_path}/nan.wav: has NaN or infinite samples, the first at 0.013 s"
    assert problem.what.startswith(said)


TEXTS = """\
error train 1/7 texts with characters outside the vocabulary: 'Ö' (U+00D6) ×1
warning train 2/7 empty lines
warning train 1/7 more tokens than max_tokens=10
warning dev 1/1 texts shared with train
{path}:5: 'Ö' (U+00D6) of 'LÖW\\n'
{path}:2: has no words
{path}:4: has no words
{path}:6: 14 tokens
{clean}/dev.txt:1: 'MID LOW' is in {path}:7"""


def test_texts_of_a_language_model(clean, tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("LOW\n\nMID\n \nLÖW\nHIGH HIGH HIGH\nMID  LOW\n")
    report = look(clean, f"data.train={path}", "data.max_tokens=10", name="lm")
    examples = "\n".join(line for p in report.problems for line in p.examples)
    assert "\n".join([*told(report), examples]) == TEXTS.format(path=path, clean=clean)
    assert (report.prediction.examples, report.prediction.size) == (3, 3 + 3 + 7 + 3)  # with ends
    path.write_bytes("LOW\nLÖW\n".encode("latin-1"))
    [problem] = look(clean, f"data.train={path}", name="lm").problems
    assert problem.what == f"{path}:2: not UTF-8 text (byte 2 of the line)"


def test_of_a_large_text_the_first_lines_are_looked_at(clean, monkeypatch):
    monkeypatch.setattr(problems, "LINES", 60)
    assert not look(clean, name="lm").problems
    monkeypatch.setattr(problems, "LINES", 59)
    report = look(clean, name="lm")
    [said] = told(report)
    assert said.endswith(f"only the first 59 lines of {clean}/train.txt were checked and counted")
    assert report.prediction.examples == 59 and not report.refused


# ---- what is right, and what it will take


@each("name", ["x", "lm"])
def test_clean_data_have_no_problem(clean, name):
    report = look(clean, name=name)
    assert not report.problems and not report.refused and "\nno problem found\n" in report.text()


@each("name, batch", {"x": "seconds=3", "lm": "tokens=47"}.items())
def test_the_plan_is_that_of_the_training(clean, tmp_path, name, batch):
    overrides = f"data.batch_{batch} training.epochs=2 training.accumulate=2 training.processes=1"
    overrides = overrides.split()
    settings = experiment(clean, *overrides, name=name)
    prediction = check(settings).prediction
    model = train(clean, tmp_path / "x", *overrides, name=name)
    steps = [line["step"] for line in history(tmp_path / "x") if line["kind"] == "dev"]
    assert prediction.steps == steps[0] > 2 and prediction.epochs == 2
    assert prediction.parameters == prediction.trained == sum(p.numel() for p in model.parameters())
    examples = settings.read(model).train
    plan = settings.task(model, examples, examples).plan(0, 2)
    spoken = name == "x"
    lens = [u.duration for u in examples.utterances] if spoken else [len(y) + 1 for y in examples]
    padded = sum(len(batch) * max(lens[n] for n in batch) for step in plan for batch in step)
    assert 0 < prediction.padding == pytest.approx(1 - sum(lens) / padded)
    assert prediction.size == pytest.approx(sum(lens)) and prediction.examples == len(lens)


def test_batches_that_memory_decides_are_measured(clean, monkeypatch, stderr):
    monkeypatch.setattr(memory, "free_bytes", lambda device, processes: 6e6)
    monkeypatch.setattr(memory, "later_bytes", lambda *_, **__: 0)
    monkeypatch.setattr(memory, "peak_bytes", lambda device, compute: (compute(), 2e6)[1])
    report = look(clean, "data.batch_seconds=auto", "training.processes=1")
    seconds = re.search("data.batch_seconds: auto: ([0-9.]+) s of audio fit", stderr())[1]
    expected = look(clean, f"data.batch_seconds={seconds}").prediction
    assert report.prediction.steps == expected.steps > 1


@each("frozen", ["", "model.encoder.*"])
def test_memory_of_weights_gradients_and_states(clean, frozen):
    report, model = look(clean, f"freeze=[{frozen}]"), build(experiment(clean))
    parts = model.model.encoder, model
    encoder, total = (sum(p.numel() for p in part.parameters()) for part in parts)
    trained, measured = total - encoder * bool(frozen), report.measurement
    assert (report.prediction.parameters, report.prediction.trained) == (total, trained)
    assert measured.weights == 4 * (total + 2 * 24)  # CMVN: mean, std
    assert measured.gradients == 4 * trained
    assert 8 < measured.states / trained < 8.1  # two moments, and each tensor's step
    assert (f"{encoder:,} of them frozen" in report.text()) == bool(frozen)
    assert measured.peak > measured.weights


def test_time_is_that_of_the_median_when_its_size_is_known(clean, monkeypatch):
    seconds = iter([Seconds(1.0, 9.0, 1.0), Seconds(9.0, 9.0, 9.0), Seconds(3.0, 1.0, 0.25)] * 3)
    monkeypatch.setattr(prediction, "step", lambda *_: next(seconds))
    alone, several = (
        look(clean, "training.accumulate=3", *more).measurement
        for more in (["training.processes=1"], ["training.processes=2", "data.workers=2"])
    )
    assert (alone.step, alone.processes) == (3 * 4.0 + 0.25, 1)  # nobody reads ahead
    assert (several.step, several.processes) == (2 * 1.5 + 0.25, 2)
    report = replace(look(clean, "training.epochs=100"), measurement=replace(alone, step=7.0))
    total = 100 * report.prediction.steps * 7.0
    assert f"7.00 s a step; {span(total / 100)} an epoch, {span(total)} in all" in report.text()


def test_spans():
    expected = ["2.0 seconds", "1.5 minutes", "1.5 hours", "1.5 days"]
    assert [span(s) for s in (2, 90, 5400, 129600)] == expected


# ---- the command


def test_the_command_prints_and_leaves_nothing_behind(clean, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before, dev = times(clean), f"{clean}/data/dev.jsonl.gz"
    command.main(["--config", f"{clean}/x.yaml", "--check", "--test", dev])
    printed = capsys.readouterr().out
    assert "warning  test  8 of 8 (100.0%)  ids shared with dev\n" in printed
    assert f"\n    {dev}:1: dev000: 'dev000' is in {dev}:1\n" in printed
    assert "\n    and 5 more\n    fix: give each recording to one set alone\n" in printed
    assert "asr-train would start (0 kinds of error, 3 of warning)" in printed
    assert times(clean) == before and not times(tmp_path)


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@each("more, said", rows("--check | asr-train would refuse this\n--test x | --test needs --check"))
def test_errors_end_in_exit_status_2(root, capsys, more, said):
    assert status_of(command.main, "--config", f"{root}/x.yaml", *more.split()) == 2
    assert said in "".join(capsys.readouterr()) and not (root / "model").exists()
