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
    tokenizer.main(
        [
            str(root / "data/train.jsonl.gz"),
            str(root / "tokenizer"),
            "--kind",
            "bpe",
            "--size",
            "20",
        ]
    )
    train.main(training(root))
    return root


def training(root):
    return [
        "--config",
        str(root / "x.yaml"),
        f"training.epochs={EPOCHS}",
        "training.validate_every=5",
        "features.specaugment=null",
    ]


def decoding(root, *more):
    return [
        "--model",
        str(root / "model"),
        "--device",
        "cpu",
        "--batch-seconds",
        "10",
        *map(str, more),
    ]


def test_the_tones_are_recognized(run, capsys):
    for mode in MODES:
        out = run / f"{mode}.txt"
        decode.main(
            decoding(run, "--manifest", run / "data/test.jsonl.gz", "--mode", mode, "--out", out)
        )
        closing = capsys.readouterr().err.strip().splitlines()[-1]
        assert re.fullmatch(r"30 utterances, [\d.]+ s of audio in [\d.]+ s, RTF [\d.]+", closing)
        score.main([str(run / "data/test.jsonl.gz"), str(out), "--unit", "word"])
        wer = float(re.match(r"WER ([\d.]+) %", capsys.readouterr().out).group(1))
        assert wer <= 5.0, (mode, wer)


def test_finished_work_is_not_redone(run, capsys):
    before = (run / "model/model.safetensors").stat().st_mtime_ns
    train.main(training(run))
    tokenizer.main(
        [str(run / "data/train.jsonl.gz"), str(run / "tokenizer"), "--kind", "bpe", "--size", "20"]
    )
    prepare.main(["tsv", str(run / "corpus"), str(run / "data")])
    out = run / "again.txt"
    for _ in range(2):
        decode.main(decoding(run, "--manifest", run / "data/test.jsonl.gz", "--out", out))
    assert (run / "model/model.safetensors").stat().st_mtime_ns == before
    said = capsys.readouterr().err
    assert [
        f"{run / name} is up to date" in said
        for name in ("model", "tokenizer", "data", "again.txt")
    ] == [True] * 4


def test_text_is_the_same_alone_and_in_any_batch_and_in_input_order(run, capsys, monkeypatch):
    """In whatever windows, too, of which a long list is sorted one by one."""
    files = sorted(str(p) for p in (run / "corpus").glob("test*.wav"))[:12][::-1]
    texts = []
    for seconds, window in (("0.01", 3600), ("4", 2), ("1000", 3600)):
        monkeypatch.setattr(pipeline, "WINDOW_SECONDS", window)
        decode.main(
            ["--model", str(run / "model"), "--device", "cpu", "--batch-seconds", seconds, *files]
        )
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] == texts[2]
    assert [line.split("\t")[0] for line in texts[0].splitlines()] == files


@pytest.mark.parametrize("mode", MODES)
def test_scores_are_the_same_in_any_batch(run, mode):
    found = []
    for seconds in ("0.01", "4", "1000"):
        more = [
            "--mode",
            mode,
            "--out",
            run / "n.txt",
            "--json",
            run / "n.json",
            "--batch-seconds",
            seconds,
        ]
        decode.main(decoding(run, "--manifest", run / "data/test.jsonl.gz", *more))
        found.append(
            [json.loads(line)["nbest"][0] for line in (run / "n.json").read_text().splitlines()]
        )
    for batch in found[1:]:
        for h, alone in zip(batch, found[0], strict=True):
            assert h["tokens"] == alone["tokens"]
            assert h["score"] == pytest.approx(alone["score"], abs=1e-4)
            assert h["confidences"] == pytest.approx(alone["confidences"], abs=1e-4)


def test_a_mistake_leaves_finished_work_finished(run, tmp_path):
    sound, out = run / "corpus/test000.wav", tmp_path / "x.txt"
    decode.main(decoding(run, sound, "--out", out))
    before = stamp.read(out)
    for wrong in (["--lm", tmp_path / "no.arpa"], ["--json", tmp_path]):
        with pytest.raises(SystemExit):
            decode.main(decoding(run, sound, "--out", out, *wrong))
        assert stamp.read(out) == before


def test_another_order_is_other_work(run):
    """The lines of --out are in that of the input."""
    a, b = (str(run / f"corpus/test00{n}.wav") for n in (0, 1))
    given = [
        decode.arguments().parse_args(decoding(run, "--out", "x.txt", *files))
        for files in ((a, b), (b, a))
    ]
    assert decode.outputs(given[0])[0].stamp.facts != decode.outputs(given[1])[0].stamp.facts


@pytest.mark.parametrize(
    "weight, mode, said",
    [
        (1.0, "joint", "decoder"),
        (1.0, "rescoring", "decoder"),
        (0.0, "joint", "CTC"),
        (0.0, "ctc-greedy", "CTC"),
    ]
    + [
        (0.0, "rescoring", "CTC"),
        (1.0, "ctc", None),
        (0.0, "attention", None),
        (0.5, "joint", None),
    ],
)
def test_a_part_that_was_never_trained_is_told(capsys, weight, mode, said):
    warn_untrained(weight, SearchOptions(mode=mode))
    told = capsys.readouterr().err
    assert (f"{said} was not trained" in told) if said else not told


def test_parts_of_a_recording_are_found_where_the_manifest_says(run, tmp_path, capsys):
    """Two recordings in one file."""
    files = [run / f"corpus/test00{n}.wav" for n in (1, 2)]
    waves = [soundfile.read(file)[0] for file in files]
    soundfile.write(tmp_path / "both.wav", np.concatenate(waves), 8000)
    size = {
        "path": str(tmp_path / "both.wav"),
        "rate": 8000,
        "samples": sum(map(len, waves)),
        "channels": 1,
    }
    starts = (0.0, len(waves[0]) / 8000)
    manifests.write(
        tmp_path / "parts.jsonl.gz",
        [
            manifests.Utterance(
                id=file.name, start=start, duration=len(wave) / 8000, text="", speaker=None, **size
            )
            for file, wave, start in zip(files, waves, starts, strict=True)
        ],
    )
    texts = []
    for sources in (["--manifest", tmp_path / "parts.jsonl.gz"], files):
        decode.main(decoding(run, *sources))
        texts.append([line.split("\t")[1] for line in capsys.readouterr().out.splitlines()])
    assert texts[0] == texts[1] and texts[0][0] != texts[0][1]


def test_the_real_time_factor_is_seconds_a_second():
    assert pipeline.Clock(audio=10.0, wall=2.0).rtf == 0.2


def test_a_changed_file_of_the_search_is_seen(run, tmp_path):
    files = {"--hotwords": tmp_path / "words.txt", "--lm": tmp_path / "lm.arpa"}
    seen = []
    for changed in (None, *files):
        for option, file in files.items():
            file.write_text(f"{option} {option == changed}")
        words = [
            "--model",
            str(run / "model"),
            "--out",
            str(tmp_path / "x.txt"),
            str(run / "corpus/test000.wav"),
        ]
        options = [str(word) for pair in files.items() for word in pair]
        seen.append(
            json.dumps(
                decode.outputs(decode.arguments().parse_args([*words, *options]))[0].stamp.facts
            )
        )
    assert len(set(seen)) == 3


def test_json_lines_hold_scores_that_add_up(run):
    out = run / "nbest.json"
    decode.main(
        decoding(
            run,
            "--manifest",
            run / "data/test.jsonl.gz",
            "--nbest",
            3,
            "--json",
            out,
            "--out",
            run / "n.txt",
        )
    )
    for line in out.read_text().splitlines():
        nbest = json.loads(line)["nbest"]
        assert 1 <= len(nbest) <= 3
        assert [h["score"] for h in nbest] == sorted((h["score"] for h in nbest), reverse=True)
        for h in nbest:
            assert h["score"] == pytest.approx(
                0.7 * h["scores"]["attention"] + 0.3 * h["scores"]["ctc"], abs=1e-6
            )


def test_confidence_reason_and_length_bonus_reach_the_json_lines(run):
    out = run / "confident.json"
    decode.main(
        decoding(
            run, "--manifest", run / "data/test.jsonl.gz", "--length-bonus", 0.1, "--json", out
        )
    )
    for line in out.read_text().splitlines():
        [h] = json.loads(line)["nbest"]
        assert (
            h["scores"]["length"] == pytest.approx(0.1 * len(h["tokens"])) and h["reason"] == "end"
        )
        assert len(h["confidences"]) == len(h["tokens"]) and all(
            0 <= c <= 1 for c in h["confidences"]
        )
        assert 0 < h["confidence"] <= 1


@pytest.fixture(scope="module")
def arpa(run):
    """A trigram model of the training texts, by asr-ngram."""
    path = run / "lm.arpa.gz"
    ngram.main(
        [str(run / "data/train.jsonl.gz"), str(run / "tokenizer"), str(path), "--order", "3"]
    )
    return path


@pytest.mark.parametrize("mode", ["joint", "attention", "ctc", "rescoring"])
def test_language_model_and_hotwords_have_their_say_in_every_beam(run, arpa, mode):
    """A weight of 0 changes nothing; scores are reported; a hotword with a huge weight comes to stand everywhere."""
    manifest, out = run / "data/test.jsonl.gz", run / "weighted.json"
    (run / "hotwords.txt").write_text(first_word(run) + "\n")

    def nbests(*options):
        out.unlink(missing_ok=True)
        decode.main(decoding(run, "--manifest", manifest, "--mode", mode, "--json", out, *options))
        return [json.loads(line)["nbest"][0] for line in out.read_text().splitlines()]

    files = ["--lm", arpa, "--hotwords", run / "hotwords.txt"]
    plain, silent = nbests(), nbests(*files, "--lm-weight", 0, "--hotword-weight", 0)
    assert [h["text"] for h in silent] == [h["text"] for h in plain]
    assert all(h["scores"]["lm"] < 0 for h in silent)
    loud = nbests(*files, "--lm-weight", 0.1, "--hotword-weight", 40)
    word = first_word(run)
    assert sum(word in h["text"].split() for h in loud) > sum(
        word in h["text"].split() for h in plain
    )
    assert all(h["scores"]["hotwords"] > 0 for h in loud if word in h["text"].split())


def test_a_transformer_language_model_scores_whole_hypotheses(run):
    """Trained on the manifest's texts; its part of a score is ln P of the hypothesis by the model at once."""
    text = LM.format(root=run, train=run / "data/train.jsonl.gz", dev=run / "data/dev.jsonl.gz")
    (run / "lm.yaml").write_text(text)
    train.main(["--config", str(run / "lm.yaml")])
    out = run / "lm.json"
    options = ["--lm", run / "lm", "--lm-weight", 0.2, "--json", out]
    decode.main(decoding(run, "--manifest", run / "data/test.jsonl.gz", *options))
    model = lm.load(run / "lm").model
    for line in out.read_text().splitlines():
        [h] = json.loads(line)["nbest"]
        with torch.no_grad():
            nll = model.loss(
                torch.tensor([h["tokens"]], dtype=torch.long), torch.tensor([len(h["tokens"])])
            ).total
        assert h["scores"]["lm"] == pytest.approx(-float(nll), abs=1e-3)
        parts = h["scores"]
        assert h["score"] == pytest.approx(
            0.7 * parts["attention"] + 0.3 * parts["ctc"] + 0.2 * parts["lm"], abs=1e-6
        )


def first_word(run):
    """A word of the corpus."""
    return next(iter(manifests.read(run / "data/test.jsonl.gz"))).text.split()[0]


def test_tuning_prints_the_wer_of_each_setting_as_decoding_with_it_has(run, capsys):
    manifest = run / "data/dev.jsonl.gz"
    grid = ["--tune", "ctc-weight=0.2,1", "--tune", "length-bonus=0,-9,9"]
    decode.main(decoding(run, "--manifest", manifest, *grid))
    said = capsys.readouterr()
    rates = {
        options: rate for rate, options in (line.split("\t") for line in said.out.splitlines())
    }
    best, rate = re.fullmatch(
        r"best: (--ctc-weight .*) \(WER (.*) %\)", said.err.splitlines()[-1]
    ).groups()
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
    decode.main(decoding(run, "--manifest", run / "data/test.jsonl.gz", "--out", out))
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
