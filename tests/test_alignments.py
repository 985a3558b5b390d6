"""Prove the alignments: they are the decoder's own maps, of the head that brute force over all paths finds, and an
utterance has the same alone as in a batch.
"""

import itertools

import numpy as np
import pytest
import soundfile
import torch
from small import near, sizes
from torch.testing import assert_close

from asr.data.batches import collate
from asr.data.columns import Ragged, Table
from asr.data.manifest import Utterance
from asr.features.frontend import FrontendSettings
from asr.models.recognizer import Recognizer
from asr.tasks.recognizer import ALIGNED, RecognizerTask, Split
from asr.tasks.validation import alignments, middle, most_aligned
from asr.text.tokenizer import train
from asr.training.plots import alignment, pixels

LABELS = [[1, 3, 2, 4], [2], [4, 1, 3]]
SECONDS = (0.9, 0.4, 0.7)


@pytest.fixture
def recognizer():
    fbank, letters = {"sample_rate": 8000, "mels": 20}, train("characters", ["A BC", "D'E"])
    features = FrontendSettings(fbank=fbank, specaugment={"time_masks": 2})
    torch.manual_seed(1)
    made = Recognizer(features, sizes("both: {dropout: 0.4}"), letters).train()
    for layer in made.model.decoder.layers:
        layer.cross.query.weight.data.mul_(6)  # large enough that the heads differ
    return made


@pytest.fixture
def batch():
    rng = np.random.default_rng(1)
    waveforms = [rng.standard_normal(round(8000 * s)).astype(np.float32) * 0.1 for s in SECONDS]
    return collate(["x", "y", "z"], waveforms, LABELS, torch.arange(3), multiples=(2560, 4))


@torch.no_grad()
def test_they_are_the_decoder_s_maps(recognizer, batch):
    made = alignments(recognizer, batch, 3)
    assert list(made) == batch.ids
    H, H_lens = recognizer.eval().encode(batch.waveforms, batch.wave_lens)
    cross = recognizer.model.decode(H, H_lens, batch.Y, batch.Y_lens, attention=True).cross
    heads = torch.cat(cross, 1)
    assert heads.shape[1] == 6
    for n, (id, labels) in enumerate(zip(batch.ids, LABELS, strict=True)):
        U, T = len(labels) + 1, recognizer.encoder_frames(int(batch.wave_lens[n]))
        assert made[id].shape == (U, T) and made[id].dtype == torch.float32
        assert_close(made[id].sum(1), torch.ones(U))
        assert_close(made[id], best_of(heads[n, :, :U, :T]))


def test_alone_as_in_a_batch(recognizer, batch):
    made = alignments(recognizer, batch, 3)
    assert list(alignments(recognizer, batch, 2)) == ["x", "y"]
    for n, (id, labels) in enumerate(zip(batch.ids, LABELS, strict=True)):
        waveform = batch.waveforms[n, : batch.wave_lens[n]].numpy()
        one = collate([id], [waveform], [labels], torch.arange(1))
        assert_close(alignments(recognizer, one, 1), {id: made[id]}, rtol=1e-4, atol=1e-5)


def best_of(heads):
    """By trying all paths of increasing frames."""
    U, T = heads.shape[1:]
    paths = torch.tensor(list(itertools.combinations(range(T), U)))  # (N, U)
    return heads[heads[:, torch.arange(U), paths].sum(2).amax(1).argmax()]


def test_the_head_that_aligns_is_found_by_brute_force():
    generator = torch.Generator().manual_seed(3)
    for _ in range(50):
        heads = torch.rand(4, 3, 6, generator=generator).softmax(-1)
        near(most_aligned(heads), best_of(heads))
    assert most_aligned(torch.rand(2, 5, 3)).shape == (5, 3)  # more labels than frames


def test_utterances_of_median_length_whatever_their_order():
    ids, durations = list("abcdefg"), [7.0, 1.0, 4.0, 4.0, 2.0, 9.0, 3.0]
    for step in (1, -1):
        names, given = ids[::step], durations[::step]
        assert [names[n] for n in middle(given, names, 3)] == ["g", "c", "d"]
        assert [names[n] for n in middle(given, names, 9)] == list("begcdaf")


def test_the_task_reads_its_own_dev_utterances(recognizer, tmp_path):
    utterances = []
    for n in range(9):
        path, samples = f"{tmp_path}/{n}.wav", 4000 + 400 * n
        soundfile.write(path, np.full(samples, 0.01 * n), 8000)
        utterances.append(Utterance(f"u{n}", path, 8000, samples, 1, 0.0, samples / 8000, "ab"))
    dev = Split(Table.of(utterances), Ragged.of_ids([[1, 2]] * 9, 9))
    task = RecognizerTask(recognizer, None, None, dev, seed=1)
    made = task.alignments()
    assert list(made) == ["u2", "u3", "u4", "u5"] and len(made) == ALIGNED
    assert {weights.size(0) for weights in made.values()} == {3}
    near(task.alignments(), made)


def test_the_picture_is_the_weights():
    weights = torch.rand(4, 9)
    figure = alignment("an id of $math$", weights)
    assert_close(torch.tensor(figure.axes[0].images[0].get_array().data), weights)
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("encoder frame", "label")
    assert pixels(figure).shape == (400, 800, 3) and pixels(figure).std() > 1
