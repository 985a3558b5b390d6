"""One optimizer step: what doesn't fit in memory is split with the same gradient, what isn't finite is left out."""

import math
import signal
from dataclasses import dataclass, replace
from types import SimpleNamespace

import forked
import pytest
import torch
from pytest import approx
from refusals import refused
from runs import assert_same, history, train
from small import each, rows
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.testing import assert_close

from asr.memory import is_oom
from asr.tasks.recognizer import RecognizerTask
from asr.training.distributed.group import Group
from asr.training.distributed.replicas import WholeModel
from asr.training.optim.schedule import ConstantSettings
from asr.training.settings import LoopSettings
from asr.training.totals import Requests
from asr.training.trainer import MicroBatch, Trainer

ALONE = Group()


@dataclass
class Numbers:
    """A batch of rows."""

    rows: Tensor

    def __len__(self):
        return len(self.rows)

    @property
    def elements(self):
        return self.rows.numel()

    def to(self, device):
        return self

    def halves(self):
        return list(map(Numbers, self.rows.tensor_split(2)))


def no_memory(*_):
    raise torch.OutOfMemoryError("tried to allocate 9 EiB")


@dataclass
class NumbersTask:
    """`fits` rows fit in memory, and what doesn't fit shows in the forward or in the backward pass."""

    model: nn.Module
    fits: int = 99
    where: str = "forward"
    sums, unit = ("nll", "tokens"), "rows"

    def amount(self, batch):
        return float(len(batch))

    def loss(self, model, batch, stage):
        X = batch.rows.clone()
        if len(batch) > self.fits:
            if self.where == "forward":
                no_memory()
            X.requires_grad_().register_hook(no_memory)  # after the last layer's gradient was added
        Z = model(X).square().sum()
        sums = {"nll": Z.detach(), "tokens": torch.tensor(len(batch))}
        return SimpleNamespace(total=Z, sums=sums)

    def name(self, batches):
        return str(batches)


def make(fits=99, where="forward", clip=1e9, group=ALONE, warmup=1):
    torch.manual_seed(0)
    model, said = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 2)), []
    groups = [{"params": list(model.parameters()), "initial_lr": 0.1}]
    replicas = WholeModel(model, lambda *_: torch.optim.SGD(groups, lr=0.1), group)
    settings = LoopSettings(epochs=1, accumulate=3, clip=clip)
    task, schedule = (
        NumbersTask(model, fits, where),
        ConstantSettings(kind="constant", warmup=warmup),
    )
    trainer = Trainer(task, replicas, schedule, settings, 1, group, said.append)
    trainer.said = said
    return trainer


def batches(*sizes, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return [
        MicroBatch((n,), Numbers(torch.randn(size, 3, generator=generator)))
        for n, size in enumerate(sizes)
    ]


def weights(trainer):
    return parameters_to_vector(trainer.replicas.model.parameters()).detach()


def gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@each("where", ["forward", "backward"])
@each("fits", [1, 3, 5])
def test_a_batch_that_does_not_fit_is_split_with_the_same_gradient(where, fits):
    whole, trainer = make(), make(fits, where)
    expected, result = (one.train_step(batches(4, 9, 2), 3) for one in (whole, trainer))
    assert result.totals.sums == approx(expected.totals.sums, rel=1e-6)
    assert result.totals.amount == 15 and result.norm == approx(expected.norm, rel=1e-5)
    assert_close(weights(trainer), weights(whole), rtol=1e-5, atol=1e-7)
    first, *told = trainer.said
    assert first.startswith("step 1: a batch of ") and "computed in halves" in first
    trainer.train_step(batches(4, 9, 2), 3)  # it has learned what fits
    assert trainer.said == [first, *told]


@pytest.mark.slow
def test_one_process_splits_a_batch_and_the_other_does_not_wait(tmp_path):
    """Two processes of which the second has the memory for a row, and one batch where the first has two."""
    whole = make()
    result = whole.train_step(batches(4, 9, 2), 3)
    forked.run(step_with_little_memory, 2, tmp_path)
    for rank in (0, 1):
        got, sums, told = torch.load(tmp_path / f"{rank}")
        assert_close(got, weights(whole), rtol=1e-5, atol=1e-7)
        assert sums == approx(result.totals.sums, rel=1e-6) and bool(told) == rank


def step_with_little_memory(group, folder):
    trainer = make(fits=1 if group.rank else 99, where="backward", group=group)
    share = [batch for batch in batches(4, 9, 2) if batch.path[0] % 2 == group.rank]
    result = trainer.train_step(share, 3, requests=Requests(save=group.rank))
    assert result.totals.requests == Requests(save=1)
    torch.save((weights(trainer), result.totals.sums, trainer.said), folder / f"{group.rank}")


def test_a_single_example_that_does_not_fit_is_told():
    trainer = make(fits=0)
    trainer.progress.step = 2
    says = "step 3: a batch of 1 examples, 1 rows, doesn't fit"
    refused(says, trainer.train_step, batches(2), 1)


def test_other_errors_are_not_taken_for_it():
    trainer = make()
    trainer.task.loss = lambda model, batch, epoch: batch.rows @ batch.rows
    with pytest.raises(RuntimeError, match="shapes"):
        trainer.train_step(batches(4), 1)
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_oom(caught.value)  # a CPU's words
    for said, what in rows("""
        CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)` | memory
        CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasCreate(handle)` | other
        CUDA error: out of memory | memory, by torch.AcceleratorError
        cuFFT error: CUFFT_ALLOC_FAILED | memory
    """):
        assert is_oom(RuntimeError(said)) == what.startswith("memory")


@each("fault", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_placed_and_changes_no_weight(fault):
    trainer = make()
    share, before = batches(2, 3, 4), weights(trainer)
    share[1].batch.rows[0, 0] = fault
    result = trainer.train_step(share, 3)
    assert result.totals.faulty == [1] and not result.applied
    assert_same(weights(trainer), before)
    assert trainer.train_step(batches(2, 3, 4), 3).applied


def test_the_gradient_is_that_of_the_mean_per_token_and_its_norm_is_clipped():
    trainer, reference = make(clip=0.5, warmup=2), make()  # half the rate at first
    before, share, model = weights(trainer), batches(2, 3), reference.replicas.model
    (model(torch.cat([batch.rows for _, batch, _ in share])).square().sum() / 5).backward()
    norm, wanted = gradient(model).norm(), Requests(save=1, terminate=1)
    result = trainer.train_step(share, 2, requests=wanted)
    assert result.norm == approx(float(norm), rel=1e-5) and norm > 0.5
    requests = result.totals.requests
    assert requests == wanted and requests.end == signal.SIGTERM
    moved = gradient(model) * (0.5 / norm) * 0.1 * 0.5  # clip, lr, factor
    assert_close(before - weights(trainer), moved, rtol=1e-4, atol=1e-7)


def test_each_batch_of_each_step_draws_its_own_random_numbers_and_the_same_again():
    trainer = make()
    drawn, loss = [], trainer.task.loss
    trainer.task.loss = lambda *arguments: (drawn.append(float(torch.rand(1))), loss(*arguments))[1]
    for trainer.seed, trainer.progress.step in ((1, 0), (1, 1), (1, 0), (2, 0)):
        trainer.train_step(batches(2, 2), 2)
    assert drawn[:2] == drawn[4:6] and len({*drawn}) == 6


def test_gradients_lie_in_one_tensor_in_their_parameters_layout():
    model = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    replicas = WholeModel(model, lambda m, _: torch.optim.SGD(m.parameters(), lr=0.1), ALONE)
    model(torch.randn(1, 2, 5, 5)).sum().backward()
    assert_close(replicas.gradient.norm(), gradient(model).norm(), rtol=1e-6, atol=0)
    assert [p.grad.stride() for p in model.parameters()] == [p.stride() for p in model.parameters()]


def test_faulty_utterances_are_named_and_left_out(root, tmp_path, monkeypatch, stderr):
    """How many may follow each other, test_monitor.py proves."""
    loss = RecognizerTask.loss

    def poisoned(self, model, batch, stage):
        made = loss(self, model, batch, stage)
        return replace(made, total=made.total * (math.nan if part in " ".join(batch.ids) else 1.0))

    part, how = "train007", ["training.epochs=1", "training.processes=1"]
    monkeypatch.setattr(RecognizerTask, "loss", poisoned)
    train(root, tmp_path / "x", *how, "training.accumulate=2")
    assert "left out: its loss isn't finite; utterances " in stderr()
    for line in history(tmp_path / "x"):
        assert 0.0 <= line["accuracy"] <= 1.0 and line["loss"] > 0
    part = "train"  # of all, too few for MOST_SKIPPED
    for _ in range(2):
        refused("all 5 steps were left out", train, root, tmp_path / "y", *how)
