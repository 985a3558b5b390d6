"""Training takes a GPU's branches on a pretended one: no CPU tensor meets it, losses are the CPU's, budgets are kept.

The budgets are of launches, which a GPU computes faster than the host makes them, and of waits for
the GPU. Widths don't matter to them, numbers of layers do.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from partly import partly
from pretended_gpu import gpu, pretended_gpu
from runs import assert_same, dev_losses, history, stop, train, weights
from small import hybrid, near, options, sizes

from asr.cli import train as command
from asr.data.batches import collate
from asr.features.frontend import FrontendSettings
from asr.models.recognizer import Recognizer
from asr.models.stage import LATE
from asr.tasks.recognizer import RecognizerTask
from asr.training.distributed.flat import FlatWeights
from asr.training.distributed.group import Group
from asr.training.distributed.replicas import WholeModel
from asr.training.optim.adam import AdamWSettings
from asr.training.optim.muon import Muon, MuonSettings
from asr.training.optim.schedule import ConstantSettings
from asr.training.settings import LoopSettings
from asr.training.trainer import MicroBatch, Trainer

each = pytest.mark.parametrize
pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument")
ENCODERS = [
    "kind: transformer",
    "kind: conformer, kernel: 3",
    "kind: conformer, kernel: 3, positions: rotary",
    "kind: e_branchformer, kernel: 3, merge_kernel: 3, cgmlp: 32",
]
GPU = "training.device=cuda"


@each(
    ("encoder", "more"),
    partly(
        [
            (ENCODERS[0], ["training.accumulate=2"]),
            (
                ENCODERS[1],
                [
                    "model.flat_start_epochs=1",
                    "model.intermediate_ctc={layers: [1]}",
                    "training.epochs=2",
                ],
            ),
            (
                ENCODERS[2],
                ["model.consistency={weight: 0.2}", "training.activation_checkpointing=true"],
            ),
            (ENCODERS[3], ["training.ema=0.9", "model.decoder.tied=true"]),
            (f"{ENCODERS[1]}, chunk: {{frames: 4, left: 1}}", ["features.cmvn=utterance"]),
        ],
        5,
    ),
)
def test_training_is_a_cpus(root, tmp_path, encoder, more):
    """Without dropout, whose masks a GPU draws in its own way; in fp32, up to the order of additions."""
    encoder = f"{{{encoder}, d_model: 32, layers: 2, heads: 2, ff: 64, dropout: 0, channels: 8}}"
    more = [f"model.encoder={encoder}", "model.decoder.dropout=0", "training.epochs=1", *more]
    one, other = tmp_path / "cpu", tmp_path / "gpu"
    train(root, one, *more, "training.processes=1")
    with pretended_gpu() as device, device.counting() as counts:
        train(root, other, *more, GPU)
    assert counts.launches.total() > 1000
    assert dev_losses(other) == pytest.approx(dev_losses(one), rel=1e-3)


@pytest.mark.slow
@each("optimizer", ["muon", "adam", "adamw"])
def test_what_was_stopped_goes_on_alike(root, tmp_path, optimizer):
    """In bf16, with dropout and layers left out."""
    more = [GPU, "training.precision=bf16", f"optimizer={{kind: {optimizer}, lr: 2e-3}}"]
    more += ["model.encoder.layer_dropout=0.3", "training.epochs=1"]
    with pretended_gpu():
        expected = weights(train(root, tmp_path / "whole", *more))
        stop(root, tmp_path / "x", 3, *more, "training.save_steps=1")
        assert_same(weights(train(root, tmp_path / "x", *more)), expected)
    assert history(tmp_path / "x") == history(tmp_path / "whole")


def make_trainer(encoder, optimizer="adamw", precision="bf16", bf16=None, p=0.1, layers=(12, 6)):
    """A trainer on the GPU, and a micro-batch; as many layers as the Conformer of LibriSpeech."""
    torch.manual_seed(0)
    features = FrontendSettings(
        fbank={"sample_rate": 8000, "mels": 24},
        specaugment=options("freq_masks: 2, freq_width: 4, time_masks: 2, time_width: 5"),
    )
    settings = sizes(
        f"""both: {{d_model: 16, heads: 2, ff: 24, dropout: {p}, attention_dropout: {p}}},
        encoder: {{layers: {layers[0]}, {encoder}}}, decoder: {{layers: {layers[1]}}}"""
    )
    model = Recognizer(features, settings, SimpleNamespace(vocabulary=30)).to("cuda").train()
    kind = {"adamw": AdamWSettings, "muon": MuonSettings}[optimizer](kind=optimizer, lr=1e-3)
    replicas = WholeModel(model, kind.build, Group(), precision == "bf16" if bf16 is None else bf16)
    data, schedule = SimpleNamespace(), ConstantSettings(kind="constant", warmup=1)
    settings = LoopSettings(epochs=1, accumulate=2, precision=precision)
    task = RecognizerTask(model, data, None, None, 1)
    waveforms = [0.1 * np.random.default_rng(n).normal(size=n).astype("f") for n in (8000, 6000)]
    batch = collate(["a", "b"], waveforms, [[1, 2, 3], [4, 5]], torch.tensor([1, 2]), (2560, 4))
    return Trainer(task, replicas, schedule, settings, 1), MicroBatch((0,), batch)


@each(
    ("encoder", "precision", "budget"),
    partly(
        [
            (ENCODERS[1], "bf16", 2200),
            (ENCODERS[0], "bf16", 1350),
            (ENCODERS[1], "fp32", 1900),
            (ENCODERS[3], "bf16", 2400),
        ],
        4,
    ),
)
def test_budgets_of_a_step(encoder, precision, budget):
    with pretended_gpu():
        trainer, batch = make_trainer(encoder, precision=precision)
        trainer.train_step([batch], 1)
        with gpu.counting() as micro:
            trainer.accumulate([batch], 1, LATE, 2)
        with gpu.counting() as step:
            trainer.train_step([batch, batch._replace(path=(1,))], 2)
    micro.within(launches=budget, synchronizations=0, copies=8)
    step.within(launches=2 * budget + 80, synchronizations=2)


def test_budget_of_muons_step():
    with pretended_gpu():
        trainer, batch = make_trainer(ENCODERS[1], "muon")
        trainer.train_step([batch], 1)
        with gpu.counting() as counts:
            trainer.replicas.optimizer.step()
    assert len(trainer.replicas.optimizer.parts[1].param_groups[0]["params"]) > 150
    counts.within(launches=250, synchronizations=0, copies=0)


def test_muon_by_shapes_is_muon_one_by_one(monkeypatch):
    """To the rounding of bf16, in which a step's directions are computed."""
    monkeypatch.setattr("asr.training.optim.muon.has_bf16", lambda: True)  # emulated if need be
    torch.manual_seed(1)
    shapes = [(24, 40), (40, 24), (24, 40), (16, 16), (24, 40)]
    start, gradients = ([torch.randn(*shape) for shape in shapes] for _ in range(2))
    gradients[2].zero_()  # a layer that was left out

    def after(matrices):
        muon = Muon(matrices, lr=0.1, momentum=0.9, weight_decay=0.1, group=Group())
        for matrix, gradient in zip(matrices, gradients, strict=True):
            matrix.grad = gradient.to(matrix.device)
        muon.step()
        return [matrix.detach().cpu() for matrix in matrices]

    expected = after([torch.nn.Parameter(matrix.clone()) for matrix in start])
    with pretended_gpu():
        got = after([torch.nn.Parameter(matrix.to("cuda")) for matrix in start])
    near(got, expected, 0.1 * 0.2 * 40**0.5 * 2**-7)
    assert torch.equal(got[2], start[2] * (1 - 0.1 * 0.1))


@each("encoder", ENCODERS)
def test_weights_cast_once_are_autocasts_to_the_bit(encoder):
    with pretended_gpu():
        made = []
        for bf16 in (True, False):
            trainer, batch = make_trainer(encoder, bf16=bf16, layers=(2, 1))
            for _ in range(2):
                result = trainer.train_step([batch], 1)
            made.append((result, weights(trainer.replicas.model)))
        (got, its), (expected, others) = made
        assert (got.totals.sums, got.norm) == (expected.totals.sums, pytest.approx(expected.norm))
        for name, weight in its.items():
            near(weight.cpu(), others[name].cpu(), 1e-7)


def test_flat_weights_are_the_models_with_gradients_in_their_layout():
    with pretended_gpu():
        plain, model = (hybrid("decoder: {tied: true}").to("cuda") for _ in range(2))
        flat = FlatWeights(model, bf16=True)
        assert_same(weights(model), weights(plain))
        for p, q in zip(model.parameters(), plain.parameters(), strict=True):
            assert p.stride() == p.grad.stride() and p.shape == q.shape
        with pytest.raises(KeyError), flat.computing():
            layer = model.encoder.layers[0]
            assert layer.ff.inner.weight.dtype == torch.bfloat16 != layer.norm_ff.weight.dtype
            assert model.decoder.out.weight.dtype == torch.float32  # an embedding isn't cast
            raise KeyError
        assert all(isinstance(p, torch.nn.Parameter) for p in model.parameters())
        with torch.no_grad():
            layer.ff.inner.bias.fill_(2.0)
        flat.begin()
        assert (flat.cast == 2).sum() == 16 and flat.gradient.sum() == 0


def test_memory_that_is_out_is_split_on_a_gpu(monkeypatch):
    with pretended_gpu():
        trainers = [make_trainer(ENCODERS[0], precision="fp32", p=0, layers=(1, 1)) for _ in "ab"]
        norms, loss = [], RecognizerTask.loss

        def without_memory(self, model, batch, stage):
            if len(batch) > 1 and norms:
                raise RuntimeError("CUDA error: out of memory")
            return loss(self, model, batch, stage)

        monkeypatch.setattr(RecognizerTask, "loss", without_memory)
        for trainer, batch in trainers:
            norms.append(trainer.train_step([batch], 1).norm)
        assert norms[1] == pytest.approx(norms[0], rel=0.2)


def test_the_check_names_the_same_step_in_larger_batches(root, capsys, monkeypatch):
    arguments = ["--config", str(root / "x.yaml"), "--check", GPU, "training.accumulate=6"]
    with pretended_gpu():
        more = "data.batch_seconds=48 training.accumulate=1"
        for taken, larger in ((5 << 30, more), (60 << 30, "")):
            monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda *_, n=taken: n)
            command.main(arguments)
            printed = capsys.readouterr().out
            assert (f"{larger} is the same step" in printed) == bool(larger), printed
