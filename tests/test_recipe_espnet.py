"""Prove our side of scripts/bench/recipe_espnet.py, without ESPnet: what it is handed, and what is refused."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from asr import config
from asr.data import manifest
from asr.data.manifest import Utterance
from asr.errors import UserError
from asr.tasks import Experiment
from asr.text import tokenizer

ROOT = Path(__file__).parents[1]


@pytest.fixture
def script(monkeypatch, tmp_path):
    """The script, in a folder with a recipe's tokenizers."""
    monkeypatch.chdir(tmp_path)
    tokenizer.train("characters", ["A B", "C"]).save(tmp_path / "characters")
    tokenizer.train("bpe", ["ONE TWO", "TWO THREE"], 16).save(tmp_path / "bpe")
    return importlib.import_module("scripts.bench.recipe_espnet")


@pytest.mark.parametrize("kind, space", [("characters", "<space>"), ("bpe", "▁TWO")])
def test_espnet_has_our_sizes_tokens_and_batches(script, tmp_path, kind, space):
    ours = config.load(Experiment, ROOT / "conf/an4.yaml", [f"tokenizer={tmp_path / kind}"])
    made = script.settings(ours, tmp_path / "tokens.txt")
    tokens = (tmp_path / "tokens.txt").read_text(encoding="utf-8").split()
    assert tokens[:2] == ["<blank>", "<unk>"] and tokens[-1] == "<sos/eos>" and space in tokens
    assert len(tokens) == tokenizer.load(tmp_path / kind).vocabulary + 1 == len(set(tokens))
    assert made["token_type"] == ("char" if kind == "characters" else "bpe")
    assert made["encoder_conf"]["output_size"] == 192 and made["encoder_conf"]["num_blocks"] == 6
    assert made["encoder_conf"]["linear_units"] == made["decoder_conf"]["linear_units"] == 768
    assert (
        made["batch_bins"] == 20 * 16000 and made["accum_grad"] == 2
    )  # samples a batch, batches a step
    assert made["scheduler_conf"] == {"warmup_steps": 1000}
    assert yaml.safe_load(yaml.safe_dump(made)) == made


def test_sound_files_at_each_speed(script, tmp_path):
    waveform = np.sin(np.arange(16000) / 10).astype(np.float32) / 2
    soundfile.write(tmp_path / "a.wav", waveform, 16000)
    whole = Utterance("a", str(tmp_path / "a.wav"), 16000, 16000, 1, 0.0, 1.0, "ONE TWO")
    manifest.write(tmp_path / "x.jsonl.gz", [whole])
    out = Path("train")
    script.dump(tmp_path / "x.jsonl.gz", out, 16000, (0.9, 1.0, 1.1))
    files = dict(line.split() for line in (out / "wav.scp").read_text().splitlines())
    assert list(files) == ["sp0.9-a", "sp1.0-a", "sp1.1-a"]
    assert [soundfile.info(f).frames for f in files.values()] == pytest.approx(
        [16000 / 0.9, 16000, 16000 / 1.1], abs=2
    )
    np.testing.assert_allclose(soundfile.read(files["sp1.0-a"])[0], waveform, atol=1e-4)
    assert (out / "text").read_text() == "sp0.9-a ONE TWO\nsp1.0-a ONE TWO\nsp1.1-a ONE TWO\n"
    written = (out / "wav.scp").stat().st_mtime_ns
    script.dump(tmp_path / "x.jsonl.gz", out, 16000, (0.9, 1.0, 1.1))
    assert (out / "wav.scp").stat().st_mtime_ns == written


def test_a_training_is_what_fits_in_its_minutes(script, tmp_path, monkeypatch):
    """With a Python in ESPnet's place that finishes two epochs and goes on, and takes the mean when told to end."""
    stand_in = tmp_path / "python"
    stand_in.write_text(
        "#!/bin/sh\necho called $*; case $* in\n"
        "*collect_stats*) mkdir -p out/stats/train out/stats/valid\n"
        "    : >out/stats/train/feats_stats.npz; : >out/stats/valid/feats_stats.npz\n"
        "    printf 'a 900\\nb 1200\\n' >out/stats/train/speech_shape;;\n"
        "*'--max_epoch 100000') echo 1epoch results; echo 2epoch results; exec sleep 60;;\n"
        "*'--max_epoch 2') if mkdir out/run/exp; then exit 1; else : >out/run/exp/valid.acc.ave.pth; fi;;\n"
        "*) echo no such thing; exit 3;;\nesac\n"
    )
    stand_in.chmod(0o755)
    monkeypatch.setattr(script, "PYTHON", stand_in)
    out = Path("out")
    out.mkdir()
    (out / "config.yaml").write_text("batch_bins: 70\n")
    with pytest.raises(
        UserError, match="out/run/train.log: ESPnet ended with status 1:"
    ):  # it can't take the mean
        script.train(out, out / "run", 1 / 60, 1)
    for _ in range(2):  # the mean alone is left to take, then nothing
        script.train(out, out / "run", 1 / 60, 1)
    said = (out / "run/train.log").read_text()
    assert said.count("called") == 3 and (out / "stats.log").read_text().count("called") == 1
    assert said.count("--num_iters_per_epoch 3 ") == 3  # a tenth of 2100 / 70 batches
    assert "--train_shape_file out/stats/train/speech_shape" in said
    assert "--valid_data_path_and_name_and_type out/dev/wav.scp,speech,sound" in said
    with pytest.raises(UserError, match="x.log: ESPnet ended with status 3:\n.*\nno such thing"):
        script.espnet("asr_inference", tmp_path / "x.log", 1)


def test_mistakes(script, tmp_path, monkeypatch, capsys):
    def said(name):
        with pytest.raises(SystemExit) as ended:
            script.main([name, "test"])
        assert ended.value.code == 2
        return capsys.readouterr().err

    assert (
        ".bench/espnet/bin/python: no ESPnet here; bash scripts/bench/environments.sh espnet makes it"
        in said("an4")
    )
    python = tmp_path / "python"
    python.touch()
    monkeypatch.setattr(script, "PYTHON", python)
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    refused = said("aishell-mini")
    assert (
        "conf/aishell-mini.yaml: its encoder is no Conformer, whose sizes ESPnet's would take"
        in refused
    )
    assert not (tmp_path / "exp").exists()
