"""One optimizer step: what doesn't fit in memory is split with the same gradient, what isn't finite is left out."""

import signal
from dataclasses import dataclass, replace

import pytest
import torch
from runs import history, make_root, train
from torch import Tensor, nn

from asr.errors import UserError
from asr.memory import is_oom
from asr.training.distributed import launch
from asr.training.distributed.group import Group
from asr.training.distributed.replicas import WholeModel
from asr.training.optim.schedule import ConstantSettings
from asr.training.settings import LoopSettings
from asr.training.totals import Requests
from asr.training.trainer import MicroBatch, Trainer

ALONE = Group()


@dataclass
class Numbers:
    """A batch of rows; `memory` rows fit, and what doesn't fit shows in the forward or in the backward pass."""

    rows: Tensor

    def __len__(self):
        return len(self.rows)

    @property
    def elements(self):
        return self.rows.numel()

    def to(self, device):
        return self

    def halves(self):
        return [Numbers(part) for part in self.rows.tensor_split(2)]


class OutOfMemory(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise torch.OutOfMemoryError("tried to allocate 9 EiB")


@dataclass
class Totals:
    total: Tensor
    sums: dict[str, Tensor]


class NumbersTask:
    sums, unit = ("nll", "tokens"), "rows"

    def __init__(self, model, fits=99, where="forward"):
        self.model, self.fits, self.where = model, fits, where

    def amount(self, batch):
        return float(len(batch))

    def loss(self, model, batch, epoch):
        X = batch.rows
        if len(batch) > self.fits and self.where == "forward":
            raise torch.OutOfMemoryError("tried to allocate 9 EiB")
        if (
            len(batch) > self.fits and self.where == "backward"
        ):  # after the last layer's gradient was added
            X = OutOfMemory.apply(X.clone().requires_grad_())
        Z = model(X).square().sum()
        return Totals(Z, {"nll": Z.detach(), "tokens": torch.tensor(len(batch))})

    def name(self, batches):
        return str(batches)


def make(fits=99, where="forward", clip=1e9, group=ALONE):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 2))
    groups = [{"params": list(model.parameters()), "initial_lr": 0.1}]
    replicas = WholeModel(model, lambda *_: torch.optim.SGD(groups, lr=0.1), group)
    said = []
    settings = LoopSettings(epochs=1, accumulate=3, clip=clip)
    schedule = ConstantSettings(kind="constant", warmup=1)
    return Trainer(
        NumbersTask(model, fits, where), replicas, schedule, settings, 1, group, said.append
    ), said


def batches(*sizes, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return [
        MicroBatch((n,), Numbers(torch.randn(size, 3, generator=generator)))
        for n, size in enumerate(sizes)
    ]


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.replicas.model.parameters()])


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("fits", [1, 3, 5])
def test_a_batch_that_does_not_fit_is_split_with_the_same_gradient(where, fits):
    (whole, _), (trainer, said) = make(), make(fits, where)
    expected, result = (one.train_step(batches(4, 9, 2), 3) for one in (whole, trainer))
    assert (
        result.totals.sums == pytest.approx(expected.totals.sums, rel=1e-6)
        and result.totals.amount == 15
    )
    assert result.norm == pytest.approx(expected.norm, rel=1e-5)
    torch.testing.assert_close(weights(trainer), weights(whole), rtol=1e-5, atol=1e-7)
    assert said[0].startswith("step 1: a batch of ") and "computed in halves" in said[0]
    told = len(said)
    trainer.train_step(batches(4, 9, 2), 3)  # it has learned what fits
    assert len(said) == told


def test_one_process_splits_a_batch_and_the_other_does_not_wait(tmp_path):
    """Two processes of which the second has the memory for a row, and one batch where the first has two."""
    whole, _ = make()
    result = whole.train_step(batches(4, 9, 2), 3)
    launch.spawn(step_with_little_memory, 2, tmp_path)
    for rank in (0, 1):
        got, sums, told = torch.load(tmp_path / f"{rank}")
        torch.testing.assert_close(got, weights(whole), rtol=1e-5, atol=1e-7)
        assert sums == pytest.approx(result.totals.sums, rel=1e-6) and bool(told) == rank


def step_with_little_memory(group, folder):
    trainer, said = make(fits=1 if group.rank else 99, where="backward", group=group)
    share = [batch for batch in batches(4, 9, 2) if batch.path[0] % 2 == group.rank]
    result = trainer.train_step(share, 3, requests=Requests(save=group.rank))
    assert result.totals.requests == Requests(save=1)
    torch.save((weights(trainer), result.totals.sums, said), folder / f"{group.rank}")


def test_a_single_example_that_does_not_fit_is_told():
    trainer, _ = make(fits=0)
    trainer.progress.step = 2
    with pytest.raises(
        UserError, match="step 3: a batch of 1 examples, 1 rows, doesn't fit in memory; set a sm"
    ):
        trainer.train_step(batches(2), 1)


def test_other_errors_are_not_taken_for_it():
    trainer, _ = make()
    trainer.task.loss = lambda *_: (_ for _ in ()).throw(RuntimeError("shapes don't fit"))
    with pytest.raises(RuntimeError, match="shapes"):
        trainer.train_step(batches(4), 1)
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_oom(caught.value)  # a CPU's words
    assert is_oom(
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    )
    assert is_oom(RuntimeError("CUDA error: out of memory"))  # torch.AcceleratorError
    assert is_oom(RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"))
    assert not is_oom(RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"))


@pytest.mark.parametrize("fault", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_placed_and_changes_no_weight(fault):
    trainer, _ = make()
    share, before = batches(2, 3, 4), weights(trainer)
    share[1].batch.rows[0, 0] = fault
    result = trainer.train_step(share, len(share))
    assert result.totals.faulty == [1] and not result.applied
    assert torch.equal(weights(trainer), before)
    assert trainer.train_step(batches(2, 3, 4), 3).applied


def test_the_gradient_is_that_of_the_mean_per_token_and_its_norm_is_clipped():
    trainer, _ = make(clip=0.5)
    trainer.schedule = ConstantSettings(
        kind="constant", warmup=2
    )  # whose first step has half the rate
    before, share = weights(trainer), batches(2, 3)
    expected = make()[0].replicas.model
    (expected(torch.cat([batch.rows for _, batch, _ in share])).square().sum() / 5).backward()
    norm = torch.cat([p.grad.flatten() for p in expected.parameters()]).norm()
    result = trainer.train_step(share, len(share), requests=Requests(save=1, terminate=1))
    assert result.norm == pytest.approx(float(norm), rel=1e-5) and norm > 0.5
    assert (
        result.totals.requests == Requests(save=1, terminate=1)
        and result.totals.requests.end == signal.SIGTERM
    )
    moved = (
        torch.cat([p.grad.flatten() for p in expected.parameters()]) * (0.5 / norm) * 0.1 * 0.5
    )  # clip, lr, factor
    torch.testing.assert_close(before - weights(trainer), moved, rtol=1e-4, atol=1e-7)


def test_each_batch_of_each_step_draws_its_own_random_numbers_and_the_same_again():
    trainer, _ = make()
    drawn, loss = [], trainer.task.loss
    trainer.task.loss = lambda *arguments: (drawn.append(float(torch.rand(1))), loss(*arguments))[1]
    for before in (0, 1, 0):
        trainer.progress.step = before
        trainer.train_step(batches(2, 2), 2)
    trainer.seed, trainer.progress.step = 2, 0
    trainer.train_step(batches(2, 2), 2)
    first, second, again, seeded = (drawn[n : n + 2] for n in range(0, 8, 2))
    assert first == again and len({*first, *second, *seeded}) == 6


def test_gradients_lie_in_one_tensor_in_their_parameters_layout():
    model = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    replicas = WholeModel(model, lambda m, _: torch.optim.SGD(m.parameters(), lr=0.1), Group())
    model(torch.randn(1, 2, 5, 5)).sum().backward()
    assert replicas.gradient.norm() == pytest.approx(
        float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm()), rel=1e-6
    )
    assert [p.grad.stride() for p in model.parameters()] == [p.stride() for p in model.parameters()]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_root(tmp_path_factory.mktemp("step"))


def test_faulty_utterances_are_named_and_too_many_end_the_training(
    root, tmp_path, monkeypatch, capsys
):
    from asr.tasks.recognizer import RecognizerTask

    loss, faulty = RecognizerTask.loss, ["train007"]

    def poisoned(self, model, batch, epoch):
        made = loss(self, model, batch, epoch)
        factor = float("nan") if set(faulty) & set(batch.ids) else 1.0
        return replace(made, total=made.total * factor)

    monkeypatch.setattr(RecognizerTask, "loss", poisoned)
    train(
        root, tmp_path / "x", "training.epochs=1", "training.accumulate=2", "training.processes=1"
    )
    said = next(line for line in capsys.readouterr().err.splitlines() if "left out" in line)
    assert "its loss isn't finite; utterances " in said
    assert all(
        0.0 <= line["accuracy"] <= 1.0 and line["loss"] > 0 for line in history(tmp_path / "x")
    )
    faulty += [f"train{n:03d}" for n in range(40)]
    with pytest.raises(
        UserError, match="10 steps in a row were left out, the last because its loss isn't fin"
    ):
        train(root, tmp_path / "y", "training.epochs=9")
