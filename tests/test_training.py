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
from runs import Stop, assert_same, dev_losses, history, make_root, stopping, train, weights
from safetensors.torch import load_file
from tones import write_corpus

from asr import config, tasks
from asr.data import manifest
from asr.data.prepare import prepare
from asr.device import choose
from asr.errors import UserError
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


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_root(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="module")
def whole(root):
    return root / "whole", weights(train(root, root / "whole"))


def test_a_run_is_of_all_the_commits_and_machines_of_its_sessions(root, tmp_path, monkeypatch):
    out, sessions = tmp_path / "x", []
    for commit in ("aaaaaaa", "bbbbbbb", "bbbbbbb"):
        monkeypatch.setattr(run.provenance, "commit", lambda commit=commit: commit)
        with monkeypatch.context() as stopped:
            stopping(stopped, len(sessions) + 1 if len(sessions) < 2 else -1)
            with contextlib.suppress(Stop):
                train(
                    root, out, "training.epochs=1", "training.save_steps=1", "training.processes=1"
                )
        sessions.append(json.loads((out / "versions.json").read_text())["commit"])
    assert sessions == ["aaaaaaa", *2 * ["aaaaaaa; bbbbbbb"]]
    made = read_stamp(out)["made"]
    assert made["commit"] == sessions[-1] and re.fullmatch(r"\d+ × .+", made["hardware"])


def test_same_seed_same_losses_whatever_the_workers(root, whole, tmp_path):
    again = weights(train(root, tmp_path / "again", "data.workers=2"))
    assert history(tmp_path / "again") == history(whole[0])
    assert_same(again, whole[1])


def test_parts_of_a_training_set_are_the_whole(root, tmp_path):
    def read(train):
        arguments = (root / "x.yaml", [f"data.train={json.dumps(train)}"])
        settings = config.load(tasks.Experiment, *arguments)
        split = settings.read(build(settings)).train
        return (
            list(split.utterances),
            list(map(list, split.labels)),
            stamp_of(*arguments).facts["inputs"],
        )

    utterances = list(manifest.read(root / "data/train.jsonl.gz"))
    parts = [str(tmp_path / f"{name}.jsonl.gz") for name in "ab"]
    manifest.write(parts[0], utterances[:11])
    manifest.write(parts[1], utterances[11:])
    *got, inputs = read(parts)
    *expected, _ = read(str(root / "data/train.jsonl.gz"))
    assert got == expected and len(got[0]) == 40
    assert [inputs[part] for part in parts] == [fingerprint(Path(part)) for part in parts]
    manifest.write(parts[1], utterances[9:])
    named = rf"{parts[0]}, {parts[1]}: 2 ids are repeated \(train009, train010\); give each its own"
    with pytest.raises(UserError, match=named):
        read(parts)


def test_another_seed_other_losses(root, whole, tmp_path):
    train(root, tmp_path / "other", "seed=8")
    assert history(tmp_path / "other") != history(whole[0])


@pytest.mark.parametrize("stop_at", [2, 5, 8])
def test_continued_equals_uninterrupted(root, whole, tmp_path, monkeypatch, stop_at):
    stopping(monkeypatch, stop_at)
    with pytest.raises(Stop):
        train(root, tmp_path / "x", "training.save_steps=1")
    states = Checkpoints(tmp_path / "x/checkpoints", 2, print)
    assert states.load()["progress"]["step"] == stop_at and len(states.paths()) == 2
    monkeypatch.undo()
    continued = weights(train(root, tmp_path / "x"))
    assert_same(continued, whole[1])
    assert history(tmp_path / "x") == history(whole[0])


def test_recomputed_activations_change_nothing(root, whole, tmp_path):
    assert_same(
        weights(train(root, tmp_path / "x", "training.activation_checkpointing=true")), whole[1]
    )


def test_sound_files_are_looked_at_when_a_run_begins_and_not_when_it_continues(
    root, tmp_path, monkeypatch
):
    looks = []
    monkeypatch.setattr(
        examples, "check_audio", lambda cuts, path, progress: looks.append(len(cuts))
    )
    for override, expected in (
        ("", 1),
        ("", 1),
        ("seed=9", 2),
    ):  # the last is another run, in the same place
        train(root, tmp_path / "x", "training.epochs=1", *[override] * bool(override))
        assert looks == [40, 8] * expected


@pytest.fixture(scope="module")
def stopped(root, tmp_path_factory):
    """A run that was stopped in its second epoch, and left two states."""
    out = tmp_path_factory.mktemp("stopped") / "x"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        stopping(patch, 8)
        train(root, out, "training.save_steps=2")
    return out


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_the_end(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("damage", [flip_a_bit, cut_the_end])
def test_a_damaged_state_is_passed_over(root, whole, stopped, tmp_path, capsys, damage):
    shutil.copytree(stopped, tmp_path / "x")
    newest, _ = sorted((tmp_path / "x/checkpoints").glob("state-*"), reverse=True)
    damage(newest)
    continued = weights(train(root, tmp_path / "x"))
    assert re.search(rf"{newest}: damaged \(.*\), so it is passed over", capsys.readouterr().err)
    assert_same(continued, whole[1])
    assert history(tmp_path / "x") == history(whole[0])


def test_where_all_states_are_damaged_it_is_said(root, stopped, tmp_path):
    shutil.copytree(stopped, tmp_path / "x")
    for state in (tmp_path / "x/checkpoints").glob("state-*"):
        flip_a_bit(state)
    with pytest.raises(
        UserError, match="x/checkpoints: every training state is damaged; remove them to begin this"
    ):
        train(root, tmp_path / "x")


def test_the_model_is_the_best_of_the_averages_on_the_dev_set(root, tmp_path, capsys):
    """Each candidate but the running average is made here from the kept weights, and judged."""
    out = tmp_path / "x"
    train(root, out, "training.epochs=5", "training.ema=0.7", "training.best_by=loss")
    losses = dev_losses(out)
    best, last = sorted(range(1, 6), key=lambda epoch: losses[epoch - 1])[:2], [4, 5]
    kept = {
        epoch: load_file(out / f"checkpoints/epoch-{epoch:04d}.safetensors")
        for epoch in {*best, *last}
    }
    assert len(kept) == len(list((out / "checkpoints").glob("epoch-*")))
    model, settings = load(out), config.load(tasks.Experiment, out / "config.yaml")
    dev = examples.read_splits(settings.data, model)["dev"][0]
    task = RecognizerTask(model, settings.data, dev, dev, 0)
    chosen = task.validate("fp32", Group())["loss"]
    others = []
    for epochs in (best[:1], best, last):
        mean = {
            name: sum(kept[e][name].double() for e in sorted(epochs)) / len(epochs)
            for name in kept[best[0]]
        }
        model.load_state_dict(mean)
        others.append(task.validate("fp32", Group())["loss"])
    assert chosen <= min(others) + 1e-6
    said = capsys.readouterr().err
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


def test_the_choice_of_weights_is_told_when_it_is_left(root, whole, unchosen, tmp_path, capsys):
    out = shutil.copytree(unchosen, tmp_path / "x")
    assert_same(weights(train(root, out)), whole[1])
    said = capsys.readouterr().err
    assert "only the choice of weights is left" in said and "continuing at" not in said


def test_lost_validated_weights_are_left_out_of_the_choice(root, unchosen, tmp_path, capsys):
    """One damaged, one missing, then all: then it is the end of the training that is the model."""
    files = sorted((unchosen / "checkpoints").glob("epoch-*"))
    assert len(files) >= 2
    one = shutil.copytree(unchosen, tmp_path / "one")
    flip_a_bit(one / "checkpoints" / files[0].name)
    train(root, one)
    said = capsys.readouterr().err
    assert f"{files[0].name}: damaged" in said and f"finished: {one}" in said
    judged = {line["name"] for line in history(one) if line["kind"] == "candidate"}
    assert judged and not any(str(len(files)) in name for name in judged)
    none = shutil.copytree(unchosen, tmp_path / "none")
    for n, file in enumerate(files):
        (none / "checkpoints" / file.name).unlink() if n else flip_a_bit(
            none / "checkpoints" / file.name
        )
    made = weights(train(root, none))
    said = capsys.readouterr().err
    assert (
        all(f"{file.name}: " in said for file in files) and "no validated weights are left" in said
    )
    assert_same(made, Checkpoints(none / "checkpoints", 2, print).load()["model"])


@pytest.mark.parametrize("processes", [1, 2])
def test_a_recording_that_vanishes_is_named_by_whichever_process_meets_it(
    root, tmp_path, monkeypatch, processes
):
    """By a data worker, whose end the failing process waits for."""
    write_corpus(tmp_path / "corpus", {"train": 12, "dev": 4})
    prepare("tsv", tmp_path / "corpus", tmp_path / "data")
    data = [f"data.{split}={tmp_path}/data/{split}.jsonl.gz" for split in ("train", "dev")]
    how = [f"training.processes={processes}", "data.workers=2", "training.accumulate=2"]
    monkeypatch.setattr(
        "asr.tasks.recognizer.fit_cmvn", lambda *_: (tmp_path / "corpus/train003.wav").unlink()
    )
    with pytest.raises(
        UserError, match=r"^[^\n]*train003\.wav: no such file; there is no training state yet$"
    ):
        train(root, tmp_path / "x", *data, *how)


def test_denormal_numbers_are_numbers_again_after_training(root, tmp_path):
    train(root, tmp_path / "x", "training.epochs=1")
    assert torch.tensor(1e-40).mul(1.0).item() > 0.0


def test_device_is_said():
    assert choose("cpu") == (
        torch.device("cpu"),
        f"computing on the CPU, {torch.get_num_threads()} threads (as asked)",
    )
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device cuda: .*choose the CPU, or fix the driver"):
            choose("cuda")
        assert "computing on the CPU" in choose("auto")[1]
