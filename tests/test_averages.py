"""Weights worth keeping: which are kept, their averages, and the running average, against loops."""

import json
import math
from pathlib import Path

import torch
from small import each
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.testing import assert_close

from asr.training.checkpoint import RunningAverage, Validated


def add(kept, epoch, value):
    """A validation of weights that are all the epoch's number."""
    model = nn.Linear(2, 3)
    vector_to_parameters(torch.full((9,), float(epoch)), model.parameters())
    return kept.add(model, epoch, value)


def filled(folder, values, count=2, higher=True):
    """After validations of these values."""
    kept = Validated(folder, count, higher)
    for epoch, value in enumerate(values, 1):
        add(kept, epoch, value)
    return kept


def mean(kept, epochs):
    """The one value that all averaged weights have."""
    model = nn.Linear(2, 3)
    kept.load(model, epochs)
    [value] = parameters_to_vector(model.parameters()).unique().tolist()
    return value


@each("higher, best", [(True, [3, 6]), (False, [2, 5])])
def test_the_best_and_the_last_are_kept_and_averaged(tmp_path, higher, best):
    """Of equals the earlier is the better."""
    figures, kept = [0.5, 0.1, 0.9, 0.5, 0.3, 0.7, 0.4, 0.4], Validated(tmp_path, 2, higher)
    for epoch, value in enumerate(figures, 1):
        seen = figures[:epoch]
        first = seen.index(max(seen) if higher else min(seen)) + 1
        assert add(kept, epoch, value) == (epoch == first)
    assert sorted(kept.best) == best and kept.last == [7, 8]
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == [f"epoch-{epoch:04d}.safetensors" for epoch in (*best, 7, 8)]
    for epochs in (kept.best, kept.last, kept.best[:1]):
        assert mean(kept, epochs) == sum(epochs) / len(epochs)


@each("higher", [True, False])
def test_a_value_that_is_no_number_is_never_best(tmp_path, higher):
    kept = filled(tmp_path, (math.nan, 0.5, math.nan, 0.4), higher=higher)
    assert set(kept.best) == {2, 4}


def test_a_continued_run_comes_to_an_epoch_again(tmp_path):
    kept = filled(tmp_path, (0.1, 0.9, 0.5))
    add(kept, 2, 0.2)
    assert kept.values == {2: 0.2}
    add(kept, 3, 0.3)
    assert kept.best[0] == 3 == mean(kept, [3])


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # of a weight
    path.write_bytes(data)


@each("harm", [Path.unlink, flip_a_bit, lambda path: path.write_bytes(b"")])
def test_a_lost_file_is_said_and_left_out(tmp_path, harm):
    """Of three the best is lost; the table has gone through a training state."""
    written, said = filled(tmp_path, (0.5, 0.9, 0.7), 3), []
    kept = Validated(tmp_path, 3, True)
    lost = tmp_path / "epoch-0002.safetensors"
    harm(lost)
    kept.state = json.loads(json.dumps(written.state))
    kept.drop_lost(said.append)
    [line] = said
    assert line.startswith(f"{lost}: ") and "epoch 2 is left out" in line
    assert kept.best == [3, 1] and kept.last == [1, 3] and mean(kept, kept.best) == 2.0


def test_the_running_average_by_its_formula():
    model, generator = nn.Linear(3, 2), torch.Generator().manual_seed(0)
    average = RunningAverage(model, decay=0.9)
    expected = parameters_to_vector(model.parameters()).double()
    for step in range(1, 151):
        weights = torch.randn(expected.shape, generator=generator)
        vector_to_parameters(weights.clone(), model.parameters())
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * weights
    average.put()
    got = parameters_to_vector(model.parameters()).double()
    assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_weights_that_an_earlier_version_listed_in_a_file_are_taken_in(tmp_path):
    written, listed = filled(tmp_path, (1.0, 0.0, 1.0), higher=False), tmp_path / "validated.json"
    for content, expected in (
        ("[[1, 1.0], [2, 0.0], [3, 1.0], [9, 0.5]]", written.state),  # 9 is lost
        ("{", []),
    ):
        listed.write_text(content)
        later = Validated(tmp_path, 2, False)
        later.adopt()
        assert later.state == expected
    assert written.best[0] == 2
