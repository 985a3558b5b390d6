"""Prove our side of scripts/bench/recipe_espnet.py, without ESPnet: what it is handed, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml
from checkouts import ROOT, write_program

from asr import config
from asr.data import manifest
from asr.data.manifest import Utterance
from asr.errors import UserError
from asr.tasks import Experiment
from asr.text import tokenizer
from scripts.bench import recipe_espnet


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """A recipe's tokenizers."""
    monkeypatch.chdir(tmp_path)
    tokenizer.train("characters", ["A B", "C"]).save(tmp_path / "characters")
    tokenizer.train("bpe", ["ONE TWO", "TWO THREE"], 16).save(tmp_path / "bpe")


@pytest.mark.parametrize(
    "kind, theirs, space", [("characters", "char", "<space>"), ("bpe", "bpe", "▁TWO")]
)
def test_espnet_has_our_sizes_tokens_and_batches(tmp_path, kind, theirs, space):
    """Of samples a batch and batches a step; every setting is plain YAML."""
    ours = config.load(Experiment, ROOT / "conf/an4.yaml", [f"tokenizer={tmp_path / kind}"])
    made = recipe_espnet.settings(ours, tmp_path / "tokens.txt", "librispeech_100", 2e-3, 1000)
    tokens = (tmp_path / "tokens.txt").read_text(encoding="utf-8").split()
    assert tokens[:2] == ["<blank>", "<unk>"] and tokens[-1] == "<sos/eos>" and space in tokens
    assert len(tokens) == tokenizer.load(tmp_path / kind).vocabulary + 1 == len(set(tokens))
    encoder, decoder = made["encoder_conf"], made["decoder_conf"]
    assert (encoder["output_size"], encoder["num_blocks"], encoder["linear_units"]) == (192, 6, 768)
    found = {"linear_units": decoder["linear_units"], "warmup": made["scheduler_conf"]}
    assert found == {"linear_units": 768, "warmup": {"warmup_steps": 1000}}
    assert (made["token_type"], made["batch_bins"], made["accum_grad"]) == (theirs, 20 * 16000, 2)
    assert yaml.safe_load(yaml.safe_dump(made)) == made


def test_the_recipe_for_small_corpora_differs_in_what_it_says(tmp_path):
    """Against the other: no masks, another initialization, no weight decay, and rate and warm-up as given."""
    ours = config.load(Experiment, ROOT / "conf/an4.yaml", [f"tokenizer={tmp_path / 'bpe'}"])
    tokens = tmp_path / "tokens.txt"
    large = recipe_espnet.settings(ours, tokens, "librispeech_100", 2e-3, 1000)
    small = recipe_espnet.settings(ours, tokens, "an4", 5e-4, 2300)
    differing = {name for name in {*large, *small} if large.get(name) != small.get(name)}
    assert differing == {"init", "specaug", "specaug_conf", "optim_conf", "scheduler_conf"}
    assert small["init"] == "xavier_uniform" and "specaug" not in small
    assert (small["optim_conf"], small["scheduler_conf"]) == ({"lr": 5e-4}, {"warmup_steps": 2300})


def test_the_recipe_for_small_corpora_has_no_schedule_of_its_own(capsys):
    for given in ([], ["--rate", "1e-3"], ["--warmup", "4000"]):
        with pytest.raises(SystemExit) as ended:
            recipe_espnet.main(["english", "test", "--like", "an4", *given])
        assert ended.value.code == 2 and "give --rate and --warmup" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        recipe_espnet.main(["english", "test", "--warmup", "0"])
    assert ended.value.code == 2


def test_sound_files_at_each_speed(tmp_path):
    waveform = np.sin(np.arange(16000) / 10).astype(np.float32) / 2
    soundfile.write(tmp_path / "a.wav", waveform, 16000)
    source, out = tmp_path / "x.jsonl.gz", Path("train")
    spoken = Utterance("a", str(tmp_path / "a.wav"), 16000, 16000, 1, 0.0, 1.0, "ONE TWO")
    manifest.write(source, [spoken])
    recipe_espnet.dump(source, out, 16000, (0.9, 1.0, 1.1))
    files = dict(line.split() for line in (out / "wav.scp").read_text().splitlines())
    assert list(files) == ["sp0.9-a", "sp1.0-a", "sp1.1-a"]
    lengths = [soundfile.info(f).frames for f in files.values()]
    assert lengths == pytest.approx([16000 / 0.9, 16000, 16000 / 1.1], abs=2)
    np.testing.assert_allclose(soundfile.read(files["sp1.0-a"])[0], waveform, atol=1e-4)
    assert (out / "text").read_text() == "sp0.9-a ONE TWO\nsp1.0-a ONE TWO\nsp1.1-a ONE TWO\n"
    written = (out / "wav.scp").stat().st_mtime_ns
    recipe_espnet.dump(source, out, 16000, (0.9, 1.0, 1.1))
    assert (out / "wav.scp").stat().st_mtime_ns == written


STAND_IN = """#!/bin/sh
echo called $*; case $* in
*collect_stats*) mkdir -p out/stats/train out/stats/valid
    : >out/stats/train/feats_stats.npz; : >out/stats/valid/feats_stats.npz
    printf 'a 900\\nb 1200\\n' >out/stats/train/speech_shape;;
*'--max_epoch 100000') echo 1epoch results; echo 2epoch results; exec sleep 60;;
*'--max_epoch 2') if mkdir out/run/exp; then exit 1; else : >out/run/exp/valid.acc.ave.pth; fi;;
*) echo no such thing; exit 3;;
esac
"""


def test_a_training_is_what_fits_in_its_minutes(tmp_path, monkeypatch):
    """With a Python in ESPnet's place that finishes two epochs and goes on, and takes the mean when told to end."""
    write_program(tmp_path / "python", STAND_IN)
    monkeypatch.setattr(recipe_espnet, "PYTHON", tmp_path / "python")
    out = Path("out")
    out.mkdir()
    (out / "run.yaml").write_text("batch_bins: 70\n")
    expected = "out/run/train.log: ESPnet ended with status 1:"  # it can't take the mean
    with pytest.raises(UserError, match=expected):
        recipe_espnet.train(out / "run", 1 / 60, 1)
    for _ in range(2):  # the mean alone is left to take, then nothing
        recipe_espnet.train(out / "run", 1 / 60, 1)
    said = (out / "run/train.log").read_text()
    assert said.count("called") == 3 and (out / "stats.log").read_text().count("called") == 1
    assert said.count("--num_iters_per_epoch 3 ") == 3  # a tenth of 2100 / 70 batches
    assert said.count("--config out/run.yaml ") == 3
    assert "--train_shape_file out/stats/train/speech_shape" in said
    assert "--valid_data_path_and_name_and_type out/dev/wav.scp,speech,sound" in said
    with pytest.raises(UserError, match="x.log: ESPnet ended with status 3:\n.*\nno such thing"):
        recipe_espnet.espnet("asr_inference", tmp_path / "x.log", 1)


@pytest.mark.parametrize(
    "name, python, message",
    [
        ("an4", "none", "none: no ESPnet here; bash scripts/bench/environments.sh espnet makes it"),
        ("aishell-mini", "bpe", "conf/aishell-mini.yaml: its encoder is no Conformer"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, capsys, name, python, message):
    monkeypatch.setattr(recipe_espnet, "PYTHON", tmp_path / python)
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    with pytest.raises(SystemExit) as ended:
        recipe_espnet.main([name, "test"])
    assert ended.value.code == 2 and message in capsys.readouterr().err
    assert not (tmp_path / "exp").exists()
