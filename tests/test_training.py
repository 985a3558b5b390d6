"""Laws of training: same seed = same losses; stopped and continued = uninterrupted, to the bit; the model is the
best of the averages. The corpus is constructed (tests/tones.py). A stop is an exception raised in the middle of an
epoch; tests/test_signals.py has kills.
"""

import contextlib
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from partly import partly
from refusals import refused
from runs import (
    Stop,
    assert_same,
    assert_uninterrupted,
    dev_losses,
    history,
    stop,
    stopping,
    train,
    weights,
)
from safetensors.torch import load_file
from tones import write_corpus

from asr import config, tasks
from asr.data import manifest
from asr.data.prepare import prepare
from asr.device import choose
from asr.models.recognizer import load
from asr.stamp import fingerprint
from asr.stamp import read as read_stamp
from asr.tasks import utterances as examples
from asr.tasks.recognizer import RecognizerTask
from asr.training import run
from asr.training.build import build
from asr.training.checkpoint import Checkpoints
from asr.training.distributed.group import Group
from asr.training.identity import stamp_of
from asr.training.trainer import Trainer


@pytest.mark.slow
def test_a_run_is_of_all_the_commits_and_machines_of_its_sessions(root, tmp_path, monkeypatch):
    out, sessions = tmp_path / "x", []
    how = ["training.epochs=1", "training.save_steps=1", "training.processes=1"]
    for commit, stop_at in (("aaaaaaa", 1), ("bbbbbbb", 2), ("bbbbbbb", -1)):
        monkeypatch.setattr(run.provenance, "commit", lambda commit=commit: commit)
        with monkeypatch.context() as stopped, contextlib.suppress(Stop):
            stopping(stopped, stop_at)
            train(root, out, *how)
        sessions.append(json.loads((out / "versions.json").read_text())["commit"])
    assert sessions == ["aaaaaaa", *2 * ["aaaaaaa; bbbbbbb"]]
    made = read_stamp(out)["made"]
    assert made["commit"] == sessions[-1] and re.fullmatch(r"\d+ × .+", made["hardware"])


def test_same_seed_same_losses_whatever_the_workers(root, whole, tmp_path):
    assert_uninterrupted(root, tmp_path / "again", whole, "data.workers=2")


def test_parts_of_a_training_set_are_the_whole(root, tmp_path):
    def read(train):
        arguments = (root / "x.yaml", [f"data.train={json.dumps(train)}"])
        settings = config.load(tasks.Experiment, *arguments)
        split, inputs = settings.read(build(settings)).train, stamp_of(*arguments).facts["inputs"]
        return list(split.utterances), list(map(list, split.labels)), inputs

    path = str(root / "data/train.jsonl.gz")
    utterances = list(manifest.read(path))
    parts = [f"{tmp_path}/{name}.jsonl.gz" for name in "ab"]
    manifest.write(parts[0], utterances[:11])
    manifest.write(parts[1], utterances[11:])
    *got, inputs = read(parts)
    assert got == [*read(path)[:2]] and len(got[0]) == 40
    assert [inputs[part] for part in parts] == [fingerprint(Path(part)) for part in parts]
    manifest.write(parts[1], utterances[9:])
    refused(", ".join(parts) + r": 2 ids are repeated \(train009, train010\)", read, parts)


def test_another_seed_other_losses(root, whole, tmp_path):
    train(root, tmp_path / "other", "seed=8")
    assert history(tmp_path / "other") != history(whole[0])


@pytest.mark.parametrize("stop_at", partly([5, 2, 8], 3))
def test_continued_equals_uninterrupted(root, whole, tmp_path, stop_at):
    stop(root, tmp_path / "x", stop_at, "training.save_steps=1")
    states = Checkpoints(tmp_path / "x/checkpoints", 2, print)
    assert states.load()["progress"]["step"] == stop_at and len(states.paths()) == 2
    assert_uninterrupted(root, tmp_path / "x", whole)


def test_recomputed_activations_change_nothing(root, whole, tmp_path):
    assert_uninterrupted(root, tmp_path / "x", whole, "training.activation_checkpointing=true")


def test_sound_files_are_looked_at_when_a_run_begins_and_not_when_it_continues(
    root, tmp_path, monkeypatch
):
    looks, look = [], lambda cuts, path, progress: looks.append(len(cuts))
    monkeypatch.setattr(examples, "check_audio", look)
    for seed, expected in ((3, 1), (3, 1), (9, 2)):  # the last is another run, in the same place
        train(root, tmp_path / "x", "training.epochs=1", f"seed={seed}")
        assert looks == [40, 8] * expected


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_damaged_state_is_passed_over(root, whole, tmp_path, stderr):
    """Of two, of a run that was stopped in its second epoch."""
    stop(root, tmp_path / "x", 8, "training.save_steps=2")
    newest = max((tmp_path / "x/checkpoints").glob("state-*"))
    flip_a_bit(newest)
    assert_uninterrupted(root, tmp_path / "x", whole)
    assert re.search(rf"{newest}: damaged \(.*\), so it is passed over", stderr())


def test_the_model_is_the_best_of_the_averages_on_the_dev_set(root, tmp_path, stderr):
    """Each candidate but the running average is made here from the kept weights, and judged."""
    out = tmp_path / "x"
    train(root, out, "training.epochs=5", "training.ema=0.7", "training.best_by=loss")
    losses, last = dev_losses(out), [4, 5]
    best = sorted(range(1, 6), key=lambda epoch: losses[epoch - 1])[:2]
    files = {n: out / f"checkpoints/epoch-{n:04d}.safetensors" for n in {*best, *last}}
    assert {*files.values()} == {*(out / "checkpoints").glob("epoch-*")}
    model, settings = load(out), config.load(tasks.Experiment, out / "config.yaml")
    dev = examples.read_splits(settings.data, model)["dev"][0]
    task = RecognizerTask(model, settings.data, dev, dev, 0)
    chosen = task.validate("fp32", Group())["loss"]
    for epochs in (best[:1], best, last):
        kept = [load_file(files[n]) for n in epochs]
        means = {n: sum(each[n].double() for each in kept) / len(kept) for n in kept[0]}
        model.load_state_dict(means)
        assert chosen <= task.validate("fp32", Group())["loss"] + 1e-6
    said = stderr()
    for name in ("the best", "average of the 2 best", "running average"):
        assert name in said


@pytest.fixture(scope="module")
def unchosen(root, tmp_path_factory):
    """A run that was stopped when only the choice of weights was left."""
    out = tmp_path_factory.mktemp("unchosen") / "x"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        patch.setattr(Trainer, "choose_weights", lambda self: (_ for _ in ()).throw(Stop))
        train(root, out)
    return out


def test_the_choice_of_weights_is_told_when_it_is_left(root, whole, unchosen, tmp_path, stderr):
    out = shutil.copytree(unchosen, tmp_path / "x")
    assert_uninterrupted(root, out, whole)
    said = stderr()
    assert "only the choice of weights is left" in said and "continuing at" not in said


def test_lost_validated_weights_are_left_out_of_the_choice(root, unchosen, tmp_path, stderr):
    """One damaged, then the others missing, too: then it is the end of the training that is the model."""
    one, none = (shutil.copytree(unchosen, tmp_path / name) for name in ("one", "none"))
    first, *others = sorted(path.name for path in (one / "checkpoints").glob("epoch-*"))
    for out in (one, none):
        flip_a_bit(out / "checkpoints" / first)
    train(root, one)
    assert f"{first}: damaged" in stderr() and others
    judged = {line["name"] for line in history(one) if line["kind"] == "candidate"}
    assert judged and not any(str(len(others) + 1) in name for name in judged)
    for other in others:
        (none / "checkpoints" / other).unlink()
    made, said = weights(train(root, none)), stderr()
    for name in (first, *others, "no validated weights are left"):
        assert name in said
    assert_same(made, Checkpoints(none / "checkpoints", 2, print).load()["model"])


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_recording_that_vanishes_is_named_by_whichever_process_meets_it(
    root, tmp_path, monkeypatch, processes
):
    """By a data worker, whose end the failing process waits for."""
    lost = write_corpus(tmp_path / "corpus", {"train": 12, "dev": 4}) / "train003.wav"
    prepare("tsv", tmp_path / "corpus", tmp_path / "data")
    data = [f"data.{split}={tmp_path}/data/{split}.jsonl.gz" for split in ("train", "dev")]
    how = [f"training.processes={processes}", "data.workers=2", "training.accumulate=2"]
    monkeypatch.setattr("asr.tasks.recognizer.fit_cmvn", lambda *_: lost.unlink())
    told = r"^[^\n]*train003\.wav: no such file; there is no training state yet$"
    refused(told, train, root, tmp_path / "x", *data, *how)


def test_denormal_numbers_are_numbers_again_after_training(whole):
    assert torch.tensor(1e-40).mul(1.0).item() > 0.0


def test_device_is_said():
    said = f"computing on the CPU, {torch.get_num_threads()} threads (as asked)"
    assert choose("cpu") == (torch.device("cpu"), said)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="device cuda: .*choose the CPU, or fix the driver"):
        choose("cuda")
    assert "computing on the CPU" in choose("auto")[1]
