"""Weights worth keeping: which are kept, their averages, and the running average, against loops."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from asr.training.checkpoint import RunningAverage, Validated


def set_to(model, value):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)


def values(model):
    return {float(x) for parameter in model.parameters() for x in parameter.detach().flatten()}


@pytest.mark.parametrize("higher, best", [(True, [3, 6]), (False, [2, 5])])
def test_the_best_and_the_last_are_kept_and_averaged(tmp_path, higher, best):
    """Of equals the earlier is the better."""
    figures = {1: 0.5, 2: 0.1, 3: 0.9, 4: 0.5, 5: 0.3, 6: 0.7, 7: 0.4, 8: 0.4}
    validated, model = Validated(tmp_path / "c", 2, higher), nn.Linear(2, 3)
    for epoch, value in figures.items():
        set_to(model, epoch)
        seen = list(figures.values())[:epoch]
        first = seen.index(max(seen) if higher else min(seen)) + 1
        assert validated.add(model, epoch, value) == (epoch == first)
    assert sorted(validated.best) == best and validated.last == [7, 8]
    files = [path.name for path in sorted((tmp_path / "c").glob("*.safetensors"))]
    assert files == [f"epoch-{epoch:04d}.safetensors" for epoch in (*best, 7, 8)]
    for epochs in (validated.best, validated.last, validated.best[:1]):
        validated.load(model, epochs)
        assert values(model) == {sum(epochs) / len(epochs)}


@pytest.mark.parametrize("higher", [True, False])
def test_a_value_that_is_no_number_is_never_best(tmp_path, higher):
    validated = Validated(tmp_path / "c", 2, higher)
    for epoch, value in ((1, math.nan), (2, 0.5), (3, math.nan), (4, 0.4)):
        validated.add(nn.Linear(1, 1), epoch, value)
    assert set(validated.best) == {2, 4}


def test_a_continued_run_comes_to_an_epoch_again(tmp_path):
    validated, model = Validated(tmp_path / "c", 2, True), nn.Linear(1, 1)
    for epoch, value in ((1, 0.1), (2, 0.9), (3, 0.5), (2, 0.2), (3, 0.3)):
        set_to(model, value)
        validated.add(model, epoch, value)
    assert validated.values == {1: 0.1, 2: 0.2, 3: 0.3} or validated.values == {2: 0.2, 3: 0.3}
    validated.load(model, validated.best[:1])
    assert values(model) == {torch.tensor(0.3).item()}


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # of a weight
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [Path.unlink, flip_a_bit, lambda path: path.write_bytes(b"")])
def test_a_lost_file_is_said_and_left_out(tmp_path, harm):
    """Of three the best is lost; the table has gone through a training state."""
    written, model, said = Validated(tmp_path / "c", 3, True), nn.Linear(1, 1), []
    for epoch, value in ((1, 0.5), (2, 0.9), (3, 0.7)):
        set_to(model, epoch)
        written.add(model, epoch, value)
    harm(tmp_path / "c/epoch-0002.safetensors")
    validated = Validated(tmp_path / "c", 3, True)
    validated.state = json.loads(json.dumps(written.state))
    validated.drop_lost(said.append)
    [line] = said
    assert (
        line.startswith(f"{tmp_path / 'c/epoch-0002.safetensors'}: ")
        and "epoch 2 is left out" in line
    )
    assert validated.best == [3, 1] and validated.last == [1, 3]
    validated.load(model, validated.best)
    assert values(model) == {2.0}


def test_the_running_average_by_its_formula(tmp_path):
    model, generator = nn.Linear(3, 2), torch.Generator().manual_seed(0)
    average = RunningAverage(model, decay=0.9)
    expected = [p.detach().clone().double() for p in model.parameters()]
    for step in range(1, 151):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = [
            decay * a + (1 - decay) * w.double()
            for a, w in zip(expected, model.parameters(), strict=True)
        ]
    average.put()
    for parameter, a in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.detach().double(), a, rtol=1e-5, atol=1e-6)


def test_weights_that_an_earlier_version_listed_in_a_file_are_taken_in(tmp_path):
    validated, model = Validated(tmp_path, 2, False), nn.Linear(2, 3)
    for epoch in (1, 2, 3):
        validated.add(model, epoch, float(epoch != 2))
    (tmp_path / "validated.json").write_text(
        json.dumps([[1, 1.0], [2, 0.0], [3, 1.0], [9, 0.5]])
    )  # 9 is lost
    later = Validated(tmp_path, 2, False)
    later.adopt()
    assert later.state == validated.state and later.best[0] == 2
    (tmp_path / "validated.json").write_text("{")
    later = Validated(tmp_path, 2, False)
    later.adopt()
    assert later.state == []
