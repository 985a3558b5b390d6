"""Laws of training: same seed = same losses; stopped and continued = uninterrupted, to the bit; accumulation = one
batch. The corpus is constructed (tests/tones.py). A stop is an exception raised in the middle of an epoch.
"""

import json

import pytest
import torch
from tones import CONFIG, write_corpus

from asr import config, experiment
from asr.cli import train as command
from asr.data.prepare import prepare
from asr.errors import UserError
from asr.models.recognizer import load
from asr.text import tokenizer
from asr.training.device import choose
from asr.training.loop import Trainer
from asr.training.optimizer import AdamWSettings, optimizer
from asr.training.processes import Group
from asr.training.schedule import ConstantSettings, CosineSettings, NoamSettings


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("training")
    write_corpus(root / "corpus", {"train": 40, "dev": 8})
    prepare("tsv", root / "corpus", root / "data")
    tokenizer.train("characters", ["LOW MID HIGH"]).save(root / "tokenizer")
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    return root


def train(root, out, *overrides):
    arguments = (root / "x.yaml", [f"out={out}", "training.epochs=3", *overrides])
    return experiment.train(config.load(experiment.Experiment, *arguments), command.identity(*arguments))


def history(out):
    return [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]


def weights(recognizer):
    return {name: tensor.clone() for name, tensor in recognizer.state_dict().items()}


@pytest.fixture(scope="module")
def whole(root):
    return root / "whole", weights(train(root, root / "whole"))


def test_same_seed_same_losses_whatever_the_workers(root, whole, tmp_path):
    again = weights(train(root, tmp_path / "again", "data.workers=2"))
    assert history(tmp_path / "again") == history(whole[0])
    torch.testing.assert_close(again, whole[1], rtol=0, atol=0)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_number_of_processes_changes_nothing(root, tmp_path_factory, processes):
    """But for rounding, and for the keys' biases, which softmax ignores: their gradient is nothing but rounding."""
    out = tmp_path_factory.getbasetemp() / f"processes{processes}"
    made = weights(train(root, out, "training.accumulate=3", f"training.processes={processes}", "training.epochs=2"))
    first = tmp_path_factory.getbasetemp() / "processes1"
    losses = [[line["loss"] for line in history(folder)] for folder in (first, out)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    expected = weights(load(first))
    counted = [name for name in made if not name.endswith("key.bias")]
    torch.testing.assert_close({n: made[n] for n in counted}, {n: expected[n] for n in counted}, rtol=1e-3, atol=1e-4)


def test_another_seed_other_losses(root, whole, tmp_path):
    train(root, tmp_path / "other", "seed=8")
    assert history(tmp_path / "other") != history(whole[0])


class Stop(Exception):
    pass


@pytest.mark.parametrize("stop_at", [2, 5, 8])
def test_continued_equals_uninterrupted(root, whole, tmp_path, monkeypatch, stop_at):
    step = Trainer._step

    def stopping(self, *arguments):
        if self.progress.step == stop_at + 1:
            raise Stop
        step(self, *arguments)

    monkeypatch.setattr(Trainer, "_step", stopping)
    with pytest.raises(Stop):
        train(root, tmp_path / "stopped", "training.save_minutes=1e-9")
    assert torch.load(tmp_path / "stopped/checkpoints/last.pt", weights_only=True)["progress"]["step"] == stop_at
    monkeypatch.undo()
    with open(tmp_path / "stopped/history.jsonl", "a") as file:  # as if killed between a validation and its checkpoint
        file.write(json.dumps({"epoch": 3, "step": 99}) + "\n")
    continued = weights(train(root, tmp_path / "stopped", "training.save_minutes=1e-9"))
    torch.testing.assert_close(continued, whole[1], rtol=0, atol=0)
    assert history(tmp_path / "stopped") == history(whole[0])


def test_accumulated_batches_equal_one_batch(root):
    settings = config.load(experiment.Experiment, root / "x.yaml")
    gradients = []
    for sizes in ([6], [2, 4], [1, 2, 3]):
        torch.manual_seed(0)
        made = experiment.Recognizer(settings.features, settings.model, tokenizer.load(settings.tokenizer)).eval()
        split, _ = experiment.read_data(settings.data, made)["train"]
        dataset = experiment.SpeechDataset(split.utterances, split.labels, made.sample_rate)
        tokens, first = 0.0, 0
        for size in sizes:
            batch = dataset[list(range(first, first + size))]
            loss = made.loss(batch.waveforms, batch.wave_lens, batch.Y, batch.Y_lens)
            loss.total.backward()
            tokens += float(loss.tokens)
            first += size
        stand_in = type("T", (), {"model": made, "group": Group(), "settings": type("S", (), {"clip": 1e9})})
        Trainer._scale_and_clip(stand_in, tokens)
        gradients.append({name: p.grad for name, p in made.named_parameters()})
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], rtol=1e-4, atol=1e-6)


def test_the_model_folder_holds_the_average_of_the_best(root, whole):
    out, _ = whole
    best = json.loads((out / "checkpoints/best.json").read_text())
    files = sorted((out / "checkpoints").glob("epoch-*.safetensors"))
    assert len(best) == len(files) == 2
    from safetensors.torch import load_file

    parts = [load_file(file) for file in files]
    mean = {name: ((parts[0][name].double() + parts[1][name].double()) / 2).float() for name in parts[0]}
    torch.testing.assert_close(dict(load(out).state_dict()), mean, rtol=0, atol=0)


def test_damaged_checkpoint_is_said(root, tmp_path):
    train(root, tmp_path / "x", "training.epochs=1")
    (tmp_path / "x/checkpoints/last.pt").write_bytes(b"no checkpoint")
    with pytest.raises(UserError, match=r"last\.pt: damaged .*; remove it to begin this run anew"):
        train(root, tmp_path / "x", "training.epochs=1")


@pytest.mark.parametrize("how", [["training.processes=2"], ["training.processes=1", "data.workers=2"]])
def test_a_recording_that_vanishes_is_named_by_whichever_process_meets_it(root, tmp_path, monkeypatch, how):
    write_corpus(tmp_path / "corpus", {"train": 12, "dev": 4})
    prepare("tsv", tmp_path / "corpus", tmp_path / "data")
    data = [f"data.{split}={tmp_path}/data/{split}.jsonl.gz" for split in ("train", "dev")]
    monkeypatch.setattr(experiment, "fit_cmvn", lambda *_: (tmp_path / "corpus/train003.wav").unlink())
    with pytest.raises(UserError, match=r"^[^\n]*train003\.wav: no such file$"):
        train(root, tmp_path / "x", *data, *how, "training.accumulate=2")


def test_a_gradient_that_is_not_finite_is_named_and_left_out(root, tmp_path, monkeypatch, capsys):
    scale = Trainer._scale_and_clip
    monkeypatch.setattr(
        Trainer, "_scale_and_clip", lambda self, n: float("nan") if self.progress.step == 2 else scale(self, n)
    )
    train(root, tmp_path / "x", "training.epochs=1")
    assert "step 2 left out: its gradient isn't finite; utterances train" in capsys.readouterr().err
    monkeypatch.setattr(Trainer, "_scale_and_clip", lambda self, n: float("nan"))
    with pytest.raises(UserError, match="the gradient was not finite in 10 steps in a row; lower optimizer.lr"):
        train(root, tmp_path / "y", "training.epochs=9")


def test_schedules():
    noam = NoamSettings(kind="noam", warmup=100)
    assert [noam.factor(step, 0) for step in (1, 50, 100, 400)] == pytest.approx([0.01, 0.5, 1.0, 0.5])
    d_model, step = 512, 7000  # the paper's formula: d^-0.5 · min(step^-0.5, step · warmup^-1.5)
    peak = d_model**-0.5 * 4000**-0.5
    assert peak * NoamSettings(kind="noam", warmup=4000).factor(step, 0) == pytest.approx(d_model**-0.5 * step**-0.5)
    cosine = CosineSettings(kind="cosine", warmup=10, floor=0.1)
    assert [cosine.factor(s, p) for s, p in ((5, 0.0), (20, 0.5), (99, 1.0))] == pytest.approx([0.5, 0.55, 0.1])
    constant = ConstantSettings(kind="constant", warmup=4)
    assert [constant.factor(s, 0) for s in (1, 4, 900)] == [0.25, 1.0, 1.0]


def test_only_matrices_decay():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3))
    made = optimizer(AdamWSettings(kind="adamw", lr=1e-3, weight_decay=0.1), model)
    assert [(len(g["params"]), g["weight_decay"]) for g in made.param_groups] == [(1, 0.1), (3, 0.0)]


def test_denormal_numbers_are_numbers_again_after_training(root, tmp_path):
    train(root, tmp_path / "x", "training.epochs=1")
    assert torch.tensor(1e-40).mul(1.0).item() > 0.0


def test_device_is_said():
    assert choose("cpu") == (torch.device("cpu"), f"computing on the CPU, {torch.get_num_threads()} threads (as asked)")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device cuda: .*choose the CPU, or mend the driver"):
            choose("cuda")
        assert "computing on the CPU" in choose("auto")[1]
