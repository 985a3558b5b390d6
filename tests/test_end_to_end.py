"""The whole way by the commands: recordings in, a trained model and a word error rate out.

The expected texts are constructed: words are tones, which a model of 30,000 weights learns within seconds.
"""

import itertools
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from pytest import approx
from runs import history
from small import each, rows
from tones import CONFIG, write_corpus

import asr
from asr import confidence, stamp
from asr.cli import decode, ngram, prepare, score, tokenizer, train
from asr.data import manifest as manifests
from asr.models import lm
from asr.transcription import pipeline
from asr.transcription.decoding import warn_untrained
from asr.transcription.options import MODES, SearchOptions

pytestmark = pytest.mark.slow  # what is recognized is trained first

EPOCHS = 40
LM = """
out: {root}/lm
seed: 1
tokenizer: {root}/tokenizer
data: {{train: {root}/data/train.jsonl.gz, dev: {root}/data/dev.jsonl.gz, batch_tokens: 300}}
model: {{kind: lm, d_model: 16, layers: 1, heads: 2, ff: 32, dropout: 0.0}}
optimizer: {{kind: adamw, lr: 1e-2}}
schedule: {{kind: constant, warmup: 10}}
training: {{epochs: 2, device: cpu}}
"""


def call(main, *arguments):
    main([str(argument) for argument in arguments])


def work(root):
    """From recordings to texts, by the commands."""
    data, settings = root / "data", f"training.epochs={EPOCHS} training.validate_every=5"
    call(prepare.main, "tsv", root / "corpus", data)
    kind = "--kind", "bpe", "--size", 20
    call(tokenizer.main, data / "train.jsonl.gz", root / "tokenizer", *kind)
    settings += " features.specaugment=null"
    call(train.main, "--config", root / "x.yaml", *settings.split())
    decoding(root, *on_test(root), "--out", root / "test.txt")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with finished work: corpus/, data/, tokenizer/, model/, x.yaml, test.txt."""
    root = tmp_path_factory.mktemp("run")
    write_corpus(root / "corpus", {"train": 200, "dev": 20, "test": 30})
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    work(root)
    return root


def decoding(root, *more):
    model = "--model", root / "model", "--device", "cpu", "--batch-seconds", 10
    call(decode.main, *model, *more)


def on_test(root):
    return "--manifest", root / "data/test.jsonl.gz"


def lines(root, *more):
    """The JSON lines of a decoding."""
    out = root / "nbest.json"
    out.unlink(missing_ok=True)
    decoding(root, "--json", out, *more)
    return [json.loads(line) for line in out.read_text().splitlines()]


def nbests(root, *more):
    """The hypotheses of the test set."""
    return [line["nbest"] for line in lines(root, *on_test(root), *more)]


def recorded(root):
    """Its recordings."""
    return sorted((root / "corpus").glob("test*.wav"))


def test_the_tones_are_recognized(run, capsys):
    for mode in MODES:
        out = run / f"{mode}.txt"
        decoding(run, *on_test(run), "--mode", mode, "--out", out)
        said = capsys.readouterr().err.replace(decode.BF16_IS_FASTER, "")  # where it would be
        closing = said.strip().splitlines()[-1]
        assert re.fullmatch(r"30 utterances, [\d.]+ s of audio in [\d.]+ s, RTF [\d.]+", closing)
        call(score.main, run / "data/test.jsonl.gz", out, "--unit", "word")
        wer = float(re.match(r"WER ([\d.]+) %", capsys.readouterr().out).group(1))
        assert wer <= 5.0, (mode, wer)


def test_finished_work_is_not_redone(run, stderr):
    weights = run / "model/model.safetensors"
    before = weights.stat().st_mtime_ns
    work(run)
    said, names = stderr(), ("model", "tokenizer", "data", "test.txt")
    assert [name for name in names if f"{run / name} is up to date" not in said] == []
    assert weights.stat().st_mtime_ns == before


@each("mode", MODES)
def test_results_are_the_same_alone_and_in_any_batch_and_in_input_order(run, mode, monkeypatch):
    """In whatever windows, too, of which a long list is sorted one by one."""
    files = recorded(run)[::-1]
    alone = lines(run, "--mode", mode, "--batch-seconds", 0.01, *files)
    assert [line["id"] for line in alone] == [*map(str, files)]
    for seconds, window in ((4, 2), (1000, 3600)):
        monkeypatch.setattr(pipeline, "WINDOW_SECONDS", window)
        batch = lines(run, "--mode", mode, "--batch-seconds", seconds, *files)
        for line, expected in zip(batch, alone, strict=True):
            [h], [h_alone] = line["nbest"], expected["nbest"]
            assert (line["id"], h["tokens"]) == (expected["id"], h_alone["tokens"])
            for figure in ("score", "confidences"):
                assert h[figure] == approx(h_alone[figure], abs=1e-4)


def test_a_long_recording_has_the_words_of_its_parts_and_their_times(run, tmp_path):
    """Thirty test recordings in one file; its pieces, of which `nonspeech` tells, are decoded alone, too."""
    rate, long, files = 8000, tmp_path / "long.wav", [tmp_path / f"{n:02}.wav" for n in range(30)]
    noise = 1e-3 * np.random.default_rng(0).standard_normal(3200)  # 0.4 s
    parts = [np.concatenate([noise, soundfile.read(file)[0], noise]) for file in recorded(run)]
    whole = np.concatenate(parts)
    soundfile.write(long, whole, rate)
    [line] = lines(run, long)
    segments, gaps = line["segments"], line["nonspeech"]
    pieces = [(a[1], b[0]) for a, b in itertools.pairwise(gaps)]
    assert len(segments) == len(pieces) == 30
    for file, (start, end) in zip(files, pieces, strict=True):
        soundfile.write(file, whole[round(start * rate) : round(end * rate)], rate)
    ends = np.cumsum([len(part) for part in parts]) / rate
    for segment, one, part, end, (begin, _) in zip(
        segments, lines(run, *files), parts, ends, pieces, strict=True
    ):
        assert segment["text"] == one["text"] == " ".join(w["text"] for w in segment["words"])
        assert end - len(part) / rate + 0.2 <= segment["start"] < segment["end"] <= end - 0.2
        for word, other in zip(segment["words"], one["segments"][0]["words"], strict=True):
            assert word["start"] - begin == approx(other["start"], abs=0.02)
    out = tmp_path / "out"
    decoding(run, long, files[0], "--format", "srt", "--out-dir", out)
    assert (out / "transcripts.jsonl").read_text().count("\n") == 2
    assert Path(f"{out}{long}.srt").read_text().count("-->") == 30


def test_a_mistake_leaves_finished_work_finished(run, tmp_path):
    before = stamp.read(run / "test.txt")
    for wrong in (["--lm", tmp_path / "no.arpa"], ["--json", tmp_path]):
        pytest.raises(SystemExit, decoding, run, *on_test(run), "--out", run / "test.txt", *wrong)
        assert stamp.read(run / "test.txt") == before


def test_another_order_or_changed_file_of_the_search_is_other_work(run, tmp_path):
    """The lines of --out are in the order of the input."""
    words, lm = files = tmp_path / "words.txt", tmp_path / "lm.arpa"
    how, seen = ["--model", run / "model", "--out", "x.txt", "--hotwords", words, "--lm", lm], set()
    for changed in (None, *files):
        for file in files:
            file.write_text(str(file == changed))
        for order in (recorded(run)[:2], recorded(run)[1::-1]):
            args = decode.parse(list(map(str, [*how, *order])))
            seen.add(json.dumps(decode.outputs(args)[0].stamp.facts))
    assert len(seen) == 6


UNTRAINED = """
1.0 | joint      | decoder
1.0 | rescoring  | decoder
0.0 | joint      | CTC
0.0 | ctc-greedy | CTC
0.0 | ctc-beam   | CTC
0.0 | rescoring  | CTC
1.0 | ctc        | -
1.0 | ctc-beam   | -
0.0 | attention  | -
0.5 | joint      | -
"""


@each("weight, mode, part", rows(UNTRAINED))
def test_a_part_that_was_never_trained_is_told(stderr, weight, mode, part):
    warn_untrained(float(weight), SearchOptions(mode=mode))
    told = stderr()
    assert not told if part == "-" else f"{part} was not trained" in told


def test_parts_of_a_recording_are_found_where_the_manifest_says(run, tmp_path):
    """Two recordings in one file."""
    _, one, other, *_ = manifests.read(run / "data/test.jsonl.gz")
    both, listed = tmp_path / "both.wav", tmp_path / "parts.jsonl.gz"
    soundfile.write(both, np.concatenate([soundfile.read(u.path)[0] for u in (one, other)]), 8000)
    within = {"path": str(both), "samples": one.samples + other.samples}
    later = replace(other, **within, start=one.duration)
    manifests.write(listed, [replace(one, **within), later])
    sources = ("--manifest", listed), (one.path, other.path)
    texts = [[line["text"] for line in lines(run, *some)] for some in sources]
    assert texts[0] == texts[1] and texts[0][0] != texts[0][1]


@pytest.fixture(scope="module")
def arpa(run):
    """A trigram model of the training texts, by asr-ngram."""
    out = run / "lm.arpa.gz"
    call(ngram.main, run / "data/train.jsonl.gz", run / "tokenizer", out, "--order", 3)
    return out


@each("mode", ["joint", "attention", "ctc", "rescoring"])
def test_language_model_and_hotwords_have_their_say_in_every_beam(run, arpa, mode):
    """A weight of 0 changes nothing; scores are reported; a hotword with a huge weight comes to stand everywhere."""
    word = next(iter(manifests.read(run / "data/test.jsonl.gz"))).text.split()[0]
    (run / "hotwords.txt").write_text(f"{word}\n")

    def best(*more):
        return [h for [h] in nbests(run, "--mode", mode, *more)]

    def weighted(lm, hotwords):
        files = "--lm", arpa, "--hotwords", run / "hotwords.txt"
        return best(*files, "--lm-weight", lm, "--hotword-weight", hotwords)

    plain, silent = best(), weighted(0, 0)
    assert [h["text"] for h in silent] == [h["text"] for h in plain]
    assert all(h["scores"]["lm"] < 0 for h in silent)
    there, before = (
        [h for h in x if word in h["text"].split()] for x in (weighted(0.1, 40), plain)
    )
    assert len(there) > len(before) and all(h["scores"]["hotwords"] > 0 for h in there)


def test_scores_add_up_and_a_transformer_language_model_scores_whole_hypotheses(run):
    """Trained on the manifest's texts; its part of a score is ln P of the hypothesis by the model at once."""
    (run / "lm.yaml").write_text(LM.format(root=run))
    call(train.main, "--config", run / "lm.yaml")
    model = lm.load(run / "lm").model
    options = "--nbest", 3, "--length-bonus", 0.1, "--lm", run / "lm", "--lm-weight", 0.2
    for nbest in nbests(run, *options):
        assert 1 <= len(nbest) <= 3
        for h in nbest:
            parts, length = h["scores"], len(h["tokens"])
            nll = model.loss(torch.tensor([h["tokens"]]).long(), torch.tensor([length])).total
            assert parts["lm"] == approx(-nll.item(), abs=1e-3)
            assert parts["length"] == approx(0.1 * length)
            total = 0.7 * parts["attention"] + 0.3 * parts["ctc"] + 0.2 * parts["lm"]
            assert h["score"] == approx(total + parts["length"], abs=1e-6)


def test_tuning_prints_the_wer_of_each_setting_as_decoding_with_it_has(run, capsys):
    manifest = run / "data/dev.jsonl.gz"
    grid = ["--tune", "ctc-weight=0.2,1", "--tune", "length-bonus=0,-9,9"]
    decoding(run, "--manifest", manifest, *grid)
    said = capsys.readouterr()
    rates = dict(line.split("\t")[::-1] for line in said.out.splitlines())
    last = said.err.splitlines()[-1]
    best, rate = re.fullmatch(r"best: (--ctc-weight .*) \(WER (.*) %\)", last).groups()
    assert len(rates) == 6 and rates[best] == rate == min(rates.values(), key=float)
    assert len(set(rates.values())) > 1
    for options in ("--ctc-weight 0.2 --length-bonus 0.0", "--ctc-weight 1.0 --length-bonus -9.0"):
        out = run / f"{options}.txt"
        decoding(run, "--manifest", manifest, "--out", out, *options.split())
        call(score.main, manifest, out, "--unit", "word")
        assert capsys.readouterr().out.startswith(f"WER {rates[options]} %")


def taken_confidences(line):
    """Take all confidences out of a line: those of the whole and its segments, those of words."""
    words = [word.pop("confidence") for part in line["segments"] for word in part["words"]]
    return [part.pop("confidence") for part in (line["nbest"][0], *line["segments"])], words


def test_calibration_changes_confidences_alone(run, tmp_path, capsys):
    """Each is the raw one's by the file's curves; work done before is done again; another search is named."""
    model, out = tmp_path / "model", ("--json", tmp_path / "t.json", "--out", tmp_path / "t")
    shutil.copytree(run / "model", model)

    def decode_with(split, *more):
        listed = "--manifest", run / f"data/{split}.jsonl.gz"
        call(decode.main, "--model", model, "--device", "cpu", *listed, *more)
        return capsys.readouterr()

    def decoded(*more):
        said = decode_with("test", *out, *more).err
        return [json.loads(line) for line in open(tmp_path / "t.json")], said

    def calibrate():
        return decode_with("dev", "--calibrate").out, (model / "calibration.yaml").read_text()

    raw, _ = decoded()
    assert "is up to date" in decoded()[1]
    printed, file = calibrate()
    assert re.fullmatch(r"words\t\d+(\t0\.\d{4}){2}\nutterances\t20(\t0\.\d{4}){2}\n", printed)
    assert calibrate() == (printed, file)  # by raw confidences again
    curves, (found, said) = confidence.load(model), decoded()
    assert "is up to date" not in said and "another search" not in said
    for line, before in zip(found, raw, strict=True):
        pairs = zip(taken_confidences(line), taken_confidences(before), strict=True)
        for curve, (own, old) in zip((curves.utterances, curves.words), pairs, strict=True):
            assert own == approx(list(map(curve, old)), abs=1e-3)
    assert found == raw
    another = "another search (mode joint, beam 10, ctc_weight 0.3)"
    assert another in decoded("--mode", "ctc-greedy")[1]
    mine, without = recognizers = asr.load(model), asr.load(run / "model")
    new, old = (m.transcribe(recorded(run)[0]).segments[0].words[0] for m in recognizers)
    assert new.confidence == approx(curves.words(old.confidence))
    for _ in range(2):
        mine.transcribe(recorded(run)[0], mode="ctc", beam=7)
    assert capsys.readouterr().err.count(another) == 1
    (model / "calibration.yaml").write_text("words: {a: 1}\n")
    with pytest.raises(SystemExit, match="2"):
        decoded()
    assert re.search(r"calibration.yaml: .*\(asr-decode --calibrate\)", capsys.readouterr().err)
    assert calibrate() == (printed, file)


def test_the_result_of_a_recipe_names_a_corpus_that_has_a_version(run):
    """Without one, and all figures: test_own.py."""
    names = ["data/test.jsonl.gz", "test.txt", "data", "tokenizer", "model"]
    command = [sys.executable, Path(__file__).parents[1] / "scripts/result.py", "tones", "test"]
    (run / "corpus/VERSION").write_text("tones-1\nseed 1\n")
    line = subprocess.check_output([*command, "joint", *(run / name for name in names)], text=True)
    assert line.startswith("result recipe=tones set=test mode=joint wer=")
    assert line.endswith(" corpus=tones-1\n")


def test_the_run_keeps_its_plots_and_validates_as_often_as_it_is_to(run):
    validated = [line["epoch"] for line in history(run / "model") if line["kind"] == "dev"]
    assert validated == list(range(5, EPOCHS + 1, 5))
    plots = ("tensorboard", "alignments")
    assert [len(list((run / "model" / name).iterdir())) for name in plots] == [1, 4]


def test_changed_work_is_redone_and_the_old_kept(run, tmp_path, stderr):
    arguments = "--config", run / "x.yaml", f"out={tmp_path}/model", "training.epochs=1"
    for seed in (3, 4):
        call(train.main, *arguments, f"seed={seed}")
    kept = f"{tmp_path}/model.before-1"
    assert f"it is kept as {kept}" in stderr()
    before, after = (Path(f, "model.safetensors").read_bytes() for f in (kept, tmp_path / "model"))
    assert before != after
