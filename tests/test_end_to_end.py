"""The whole way by the commands: recordings in, a trained model and a word error rate out.

The expected texts are constructed: words are tones, which a model of 30,000 weights learns within seconds.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from tones import CONFIG, write_corpus

from asr import stamp
from asr.cli import decode, ngram, prepare, score, tokenizer, train
from asr.data import manifest as manifests
from asr.models import lm
from asr.transcription import pipeline
from asr.transcription.decoding import warn_untrained
from asr.transcription.options import MODES, SearchOptions

EPOCHS = 40
LM = """
out: {root}/lm
seed: 1
tokenizer: {root}/tokenizer
data: {{train: {train}, dev: {dev}, batch_tokens: 300}}
model: {{kind: lm, d_model: 16, layers: 1, heads: 2, ff: 32, dropout: 0.0}}
optimizer: {{kind: adamw, lr: 1e-2}}
schedule: {{kind: constant, warmup: 10}}
training: {{epochs: 2, device: cpu}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a finished run: corpus/, data/, tokenizer/, model/, x.yaml."""
    root = tmp_path_factory.mktemp("run")
    write_corpus(root / "corpus", {"train": 200, "dev": 20, "test": 30})
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    prepare.main(["tsv", str(root / "corpus"), str(root / "data")])
    tokenizer.main(tokenizing(root))
    train.main(training(root))
    return root


def tokenizing(root):
    files = [root / "data/train.jsonl.gz", root / "tokenizer"]
    return [*map(str, files), "--kind", "bpe", "--size", "20"]


def training(root):
    settings = f"training.epochs={EPOCHS} training.validate_every=5 features.specaugment=null"
    return ["--config", str(root / "x.yaml"), *settings.split()]


def decoding(root, *more):
    model = ["--model", root / "model", "--device", "cpu", "--batch-seconds", "10"]
    return [*map(str, [*model, *more])]


def on_test(root, *more):
    return decoding(root, "--manifest", root / "data/test.jsonl.gz", *more)


def nbests(root, *more):
    """What the JSON lines say of the test set."""
    out = root / "nbest.json"
    out.unlink(missing_ok=True)
    decode.main(on_test(root, "--json", out, *more))
    return [json.loads(line)["nbest"] for line in out.read_text().splitlines()]


def test_the_tones_are_recognized(run, capsys):
    for mode in MODES:
        out = run / f"{mode}.txt"
        decode.main(on_test(run, "--mode", mode, "--out", out))
        closing = capsys.readouterr().err.strip().splitlines()[-1]
        assert re.fullmatch(r"30 utterances, [\d.]+ s of audio in [\d.]+ s, RTF [\d.]+", closing)
        score.main([str(run / "data/test.jsonl.gz"), str(out), "--unit", "word"])
        wer = float(re.match(r"WER ([\d.]+) %", capsys.readouterr().out).group(1))
        assert wer <= 5.0, (mode, wer)


def test_finished_work_is_not_redone(run, capsys):
    before = (run / "model/model.safetensors").stat().st_mtime_ns
    train.main(training(run))
    tokenizer.main(tokenizing(run))
    prepare.main(["tsv", str(run / "corpus"), str(run / "data")])
    for _ in range(2):
        decode.main(on_test(run, "--out", run / "again.txt"))
    assert (run / "model/model.safetensors").stat().st_mtime_ns == before
    said, names = capsys.readouterr().err, ("model", "tokenizer", "data", "again.txt")
    assert [name for name in names if f"{run / name} is up to date" not in said] == []


def test_text_is_the_same_alone_and_in_any_batch_and_in_input_order(run, capsys, monkeypatch):
    """In whatever windows, too, of which a long list is sorted one by one."""
    files, texts = sorted((run / "corpus").glob("test*.wav"), reverse=True)[:12], set()
    for seconds, window in (("0.01", 3600), ("4", 2), ("1000", 3600)):
        monkeypatch.setattr(pipeline, "WINDOW_SECONDS", window)
        decode.main(decoding(run, "--batch-seconds", seconds, *files))
        texts.add(capsys.readouterr().out)
    [text] = texts
    assert [line.split("\t")[0] for line in text.splitlines()] == [*map(str, files)]


@pytest.mark.parametrize("mode", MODES)
def test_scores_are_the_same_in_any_batch(run, mode):
    alone, *batches = (
        [h for [h] in nbests(run, "--mode", mode, "--batch-seconds", seconds)]
        for seconds in (0.01, 4, 1000)
    )
    for batch in batches:
        for h, expected in zip(batch, alone, strict=True):
            assert h["tokens"] == expected["tokens"]
            for figure in ("score", "confidences"):
                assert h[figure] == pytest.approx(expected[figure], abs=1e-4)


def test_a_mistake_leaves_finished_work_finished(run, tmp_path):
    given = decoding(run, run / "corpus/test000.wav", "--out", tmp_path / "x.txt")
    decode.main(given)
    before = stamp.read(tmp_path / "x.txt")
    for wrong in (["--lm", str(tmp_path / "no.arpa")], ["--json", str(tmp_path)]):
        with pytest.raises(SystemExit):
            decode.main([*given, *wrong])
        assert stamp.read(tmp_path / "x.txt") == before


def facts(run, *more):
    """What tells finished work from other work."""
    args = decode.arguments().parse_args(decoding(run, "--out", "x.txt", *more))
    return json.dumps(decode.outputs(args)[0].stamp.facts)


def test_another_order_or_changed_file_of_the_search_is_other_work(run, tmp_path):
    """The lines of --out are in the order of the input."""
    sounds = [run / f"corpus/test00{n}.wav" for n in (0, 1)]
    files = {"--hotwords": tmp_path / "words.txt", "--lm": tmp_path / "lm.arpa"}
    options, seen = [x for pair in files.items() for x in pair], set()
    for changed in (None, *files):
        for option, file in files.items():
            file.write_text(f"{option} {option == changed}")
        seen |= {facts(run, *options, *sounds), facts(run, *options, *sounds[::-1])}
    assert len(seen) == 6


UNTRAINED = """
1.0 joint      decoder
1.0 rescoring  decoder
0.0 joint      CTC
0.0 ctc-greedy CTC
0.0 rescoring  CTC
1.0 ctc        -
0.0 attention  -
0.5 joint      -
"""


@pytest.mark.parametrize("case", UNTRAINED.strip().splitlines())
def test_a_part_that_was_never_trained_is_told(capsys, case):
    weight, mode, part = case.split()
    warn_untrained(float(weight), SearchOptions(mode=mode))
    told = capsys.readouterr().err
    assert (f"{part} was not trained" in told) if part != "-" else not told


def test_parts_of_a_recording_are_found_where_the_manifest_says(run, tmp_path, capsys):
    """Two recordings in one file."""
    files = [run / f"corpus/test00{n}.wav" for n in (1, 2)]
    waves = [soundfile.read(file)[0] for file in files]
    soundfile.write(tmp_path / "both.wav", np.concatenate(waves), 8000)
    whole = {"path": str(tmp_path / "both.wav"), "samples": sum(map(len, waves))}
    common = whole | {"rate": 8000, "channels": 1, "text": "", "speaker": None}
    starts, parts = (0.0, len(waves[0]) / 8000), []
    for file, wave, start in zip(files, waves, starts, strict=True):
        span = {"start": start, "duration": len(wave) / 8000}
        parts.append(manifests.Utterance(id=file.name, **common, **span))
    manifests.write(tmp_path / "parts.jsonl.gz", parts)
    texts = []
    for sources in (["--manifest", tmp_path / "parts.jsonl.gz"], files):
        decode.main(decoding(run, *sources))
        texts.append([line.split("\t")[1] for line in capsys.readouterr().out.splitlines()])
    assert texts[0] == texts[1] and texts[0][0] != texts[0][1]


def test_the_real_time_factor_is_seconds_a_second():
    assert pipeline.Clock(audio=10.0, wall=2.0).rtf == 0.2


def test_json_lines_hold_scores_that_add_up_confidences_and_reasons(run):
    for nbest in nbests(run, "--nbest", 3, "--length-bonus", 0.1):
        assert 1 <= len(nbest) <= 3
        assert nbest == sorted(nbest, key=lambda h: -h["score"])
        for h in nbest:
            parts, length = h["scores"], len(h["tokens"])
            assert parts["length"] == pytest.approx(0.1 * length) and h["reason"] == "end"
            total = 0.7 * parts["attention"] + 0.3 * parts["ctc"] + parts["length"]
            assert h["score"] == pytest.approx(total, abs=1e-6)
            assert len(h["confidences"]) == length and 0 < h["confidence"] <= 1
            assert all(0 <= c <= 1 for c in h["confidences"])


@pytest.fixture(scope="module")
def arpa(run):
    """A trigram model of the training texts, by asr-ngram."""
    files = [run / name for name in ("data/train.jsonl.gz", "tokenizer", "lm.arpa.gz")]
    ngram.main([*map(str, files), "--order", "3"])
    return files[-1]


@pytest.mark.parametrize("mode", ["joint", "attention", "ctc", "rescoring"])
def test_language_model_and_hotwords_have_their_say_in_every_beam(run, arpa, mode):
    """A weight of 0 changes nothing; scores are reported; a hotword with a huge weight comes to stand everywhere."""
    word = next(iter(manifests.read(run / "data/test.jsonl.gz"))).text.split()[0]
    (run / "hotwords.txt").write_text(f"{word}\n")
    files = ["--mode", mode, "--lm", arpa, "--hotwords", run / "hotwords.txt"]
    weights = {"plain": files[:2], "silent": [*files, "--lm-weight", 0, "--hotword-weight", 0]}
    weights["loud"] = [*files, "--lm-weight", 0.1, "--hotword-weight", 40]
    plain, silent, loud = ([h for [h] in nbests(run, *more)] for more in weights.values())
    assert [h["text"] for h in silent] == [h["text"] for h in plain]
    assert all(h["scores"]["lm"] < 0 for h in silent)
    there, before = ([h for h in some if word in h["text"].split()] for some in (loud, plain))
    assert len(there) > len(before) and all(h["scores"]["hotwords"] > 0 for h in there)


def test_a_transformer_language_model_scores_whole_hypotheses(run):
    """Trained on the manifest's texts; its part of a score is ln P of the hypothesis by the model at once."""
    text = LM.format(root=run, train=run / "data/train.jsonl.gz", dev=run / "data/dev.jsonl.gz")
    (run / "lm.yaml").write_text(text)
    train.main(["--config", str(run / "lm.yaml")])
    model = lm.load(run / "lm").model
    for [h] in nbests(run, "--lm", run / "lm", "--lm-weight", 0.2):
        tokens, parts = torch.tensor([h["tokens"]], dtype=torch.long), h["scores"]
        with torch.no_grad():
            nll = float(model.loss(tokens, torch.tensor([tokens.size(1)])).total)
        assert parts["lm"] == pytest.approx(-nll, abs=1e-3)
        total = 0.7 * parts["attention"] + 0.3 * parts["ctc"] + 0.2 * parts["lm"]
        assert h["score"] == pytest.approx(total, abs=1e-6)


def test_tuning_prints_the_wer_of_each_setting_as_decoding_with_it_has(run, capsys):
    manifest = run / "data/dev.jsonl.gz"
    grid = ["--tune", "ctc-weight=0.2,1", "--tune", "length-bonus=0,-9,9"]
    decode.main(decoding(run, "--manifest", manifest, *grid))
    said = capsys.readouterr()
    rates = dict(line.split("\t")[::-1] for line in said.out.splitlines())
    last = said.err.splitlines()[-1]
    best, rate = re.fullmatch(r"best: (--ctc-weight .*) \(WER (.*) %\)", last).groups()
    assert len(rates) == 6 and rates[best] == rate == min(rates.values(), key=float)
    assert len(set(rates.values())) > 1
    for options in ("--ctc-weight 0.2 --length-bonus 0.0", "--ctc-weight 1.0 --length-bonus -9.0"):
        out = run / f"{options}.txt"
        decode.main(decoding(run, "--manifest", manifest, "--out", out, *options.split()))
        score.main([str(manifest), str(out), "--unit", "word"])
        assert capsys.readouterr().out.startswith(f"WER {rates[options]} %")


def test_any_file_is_decoded(run, tmp_path, capsys):
    signal, rate = soundfile.read(run / "corpus/test000.wav", dtype="float32")
    stereo = torch.tensor(signal).unsqueeze(1).expand(-1, 2).numpy()
    soundfile.write(tmp_path / "a.flac", stereo, 44100)
    soundfile.write(tmp_path / "b.ogg", signal, rate, format="OGG", subtype="OPUS")
    soundfile.write(tmp_path / "c.mp3", signal, rate)
    soundfile.write(tmp_path / "short.wav", signal[:40], rate)
    with pytest.raises(SystemExit) as caught:
        decode.main(decoding(run, tmp_path))
    out, err = capsys.readouterr()
    assert [line.split("\t")[0] for line in out.splitlines()] == [
        str(tmp_path / n) for n in ("a.flac", "b.ogg", "c.mp3")
    ]
    assert (
        caught.value.code == 3 and "short.wav: too short: has 40 samples" in err
    )  # less than a frame


def test_librispeech_is_decoded(run, shared_data, capsys):
    decode.main(decoding(run, shared_data / "librispeech"))
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 20
    assert said.err.splitlines()[-1].startswith("20 utterances, ")


def test_result_line_of_a_recipe(run):
    out = run / "result.txt"
    decode.main(on_test(run, "--out", out))
    script = Path(__file__).parents[1] / "scripts/result.py"
    outputs = [run / "data", run / "tokenizer", run / "model"]
    words = ["tones", "test", "joint", run / "data/test.jsonl.gz", out, *outputs]

    def result():
        command = [sys.executable, script, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    line = result()
    number = r"\d+\.\d+"
    assert re.fullmatch(
        rf"result recipe=tones set=test mode=joint wer={number} lo={number} hi={number} words=\d+ "
        rf"rtf={number} seconds=\d+\n",
        line,
    ), line
    (run / "corpus/VERSION").write_text("tones-1\nseed 1\n")  # a corpus with a version is named
    assert result() == line.replace("\n", " corpus=tones-1\n")


def test_the_run_keeps_its_settings_versions_and_curves(run):
    assert "epochs: 40" in (run / "model/config.yaml").read_text()
    assert json.loads((run / "model/versions.json").read_text())["seed"] == 3
    history = [json.loads(line) for line in (run / "model/metrics.jsonl").read_text().splitlines()]
    assert [h["epoch"] for h in history if h["kind"] == "dev"] == list(range(5, EPOCHS + 1, 5))
    assert list((run / "model/tensorboard").iterdir())
    assert (run / "model/curves.png").stat().st_size > 1000 and len(
        list((run / "model/alignments").iterdir())
    ) == 4


def test_changed_work_is_redone_and_the_old_kept(run, tmp_path, capsys):
    (tmp_path / "x.yaml").write_text((run / "x.yaml").read_text())
    arguments = ["--config", str(tmp_path / "x.yaml"), f"out={tmp_path}/model", "training.epochs=1"]
    train.main(arguments)
    train.main([*arguments, "seed=4"])
    assert f"it is kept as {tmp_path}/model.before-1" in capsys.readouterr().err
    weights = [
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("model", "model.before-1")
    ]
    assert weights[0] != weights[1]


@pytest.mark.parametrize("name", ["prepare", "tokenizer", "ngram", "train", "decode", "score"])
def test_help_is_quick_and_imports_nothing_heavy(name):
    code = (
        f"import sys; from asr.cli import {name}\n"
        f"try: {name}.main(['--help'])\n"
        "except SystemExit as e: assert e.code == 0\n"
        "assert not {'torch', 'numpy', 'pydantic', 'yaml', 'soundfile'} & set(sys.modules), sys.modules.keys()"
    )
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"usage: asr-{name}" in done.stdout
    assert (
        time.perf_counter() - started < 5
    )  # a guard against hanging; the import check is what holds it under 0.5 s
