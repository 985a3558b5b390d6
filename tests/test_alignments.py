"""Prove the alignments: they are the decoder's own maps, of the head that brute force over all paths finds, and an
utterance has the same alone as in a batch.
"""

import itertools

import numpy as np
import pytest
import soundfile
import torch
from torch.testing import assert_close

from asr.data.columns import Ragged, Table
from asr.data.dataset import collate
from asr.data.manifest import Utterance
from asr.features.frontend import FrontendSettings
from asr.models.hybrid import HybridSettings
from asr.models.recognizer import Recognizer
from asr.tasks.recognizer import ALIGNED, RecognizerTask, Split
from asr.tasks.validation import alignments, middle, most_aligned
from asr.text.tokenizer import train
from asr.training.plots import alignment, pixels

LABELS = [[1, 3, 2, 4], [2], [4, 1, 3]]
SECONDS = (0.9, 0.4, 0.7)


@pytest.fixture
def recognizer():
    part = {"kind": "transformer", "d_model": 12, "layers": 2, "heads": 3, "ff": 16, "dropout": 0.4}
    settings = HybridSettings(kind="hybrid", encoder=dict(part, channels=4), decoder=part)
    features = FrontendSettings(
        fbank={"sample_rate": 8000, "mels": 20}, specaugment={"time_masks": 2}
    )
    torch.manual_seed(1)
    made = Recognizer(features, settings, train("characters", ["A BC", "D'E"])).train()
    with torch.no_grad():  # queries and keys large enough that the heads differ
        for layer in made.model.decoder.layers:
            layer.cross.query.weight.mul_(6)
    return made


@pytest.fixture
def batch():
    rng = np.random.default_rng(1)
    waveforms = [rng.standard_normal(round(8000 * s)).astype(np.float32) * 0.1 for s in SECONDS]
    return collate(["x", "y", "z"], waveforms, LABELS, torch.arange(3), multiples=(2560, 4))


def test_they_are_the_decoder_s_maps(recognizer, batch):
    made = alignments(recognizer, batch, 3)
    assert list(made) == batch.ids
    recognizer.eval()
    with torch.no_grad():
        H, H_lens = recognizer.encode(batch.waveforms, batch.wave_lens)
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
    for n, id in enumerate(batch.ids):
        waveform = batch.waveforms[n, : batch.wave_lens[n]].numpy()
        alone = alignments(
            recognizer, collate([id], [waveform], LABELS[n : n + 1], torch.arange(1)), 1
        )
        assert list(alone) == [id]
        assert_close(alone[id], made[id], rtol=1e-4, atol=1e-5)


def best_of(heads):
    """By trying all paths of increasing frames."""
    U, T = heads.shape[1:]
    sums = [
        max(
            sum(float(head[u, t]) for u, t in enumerate(p))
            for p in itertools.combinations(range(T), U)
        )
        for head in heads
    ]
    return heads[sums.index(max(sums))]


def test_the_head_that_aligns_is_found_by_brute_force():
    generator = torch.Generator().manual_seed(3)
    for _ in range(50):
        heads = torch.rand(4, 3, 6, generator=generator).softmax(-1)
        assert_close(most_aligned(heads), best_of(heads), rtol=0, atol=0)


def test_a_head_that_stares_at_one_frame_does_not_align():
    stares = torch.zeros(4, 6)
    stares[:, 5] = 1.0
    backwards = torch.eye(4, 6).flip(0)
    diagonal = 0.5 * torch.eye(4, 6) + 0.5 / 6
    assert_close(most_aligned(torch.stack([stares, backwards, diagonal])), diagonal)
    assert most_aligned(torch.rand(2, 5, 3)).shape == (5, 3)  # more labels than frames


def test_utterances_of_median_length_whatever_their_order():
    ids, durations = list("abcdefg"), [7.0, 1.0, 4.0, 4.0, 2.0, 9.0, 3.0]
    assert [ids[n] for n in middle(durations, ids, 3)] == ["g", "c", "d"]
    turned = [ids[::-1][n] for n in middle(durations[::-1], ids[::-1], 3)]
    assert turned == ["g", "c", "d"]
    assert [ids[n] for n in middle(durations, ids, 9)] == ["b", "e", "g", "c", "d", "a", "f"]


def test_the_task_reads_its_own_dev_utterances(recognizer, batch, tmp_path):
    utterances = []
    for n in range(9):
        path = tmp_path / f"{n}.wav"
        soundfile.write(path, np.full(4000 + 400 * n, 0.01 * n, dtype=np.float32), 8000)
        samples = 4000 + 400 * n
        utterances.append(
            Utterance(f"u{n}", str(path), 8000, samples, 1, 0.0, samples / 8000, "ab")
        )
    dev = Split(Table.of(utterances), Ragged.of_ids([[1, 2]] * 9, 9))
    task = RecognizerTask(recognizer, None, None, dev, seed=1)
    made = task.alignments()
    assert list(made) == ["u2", "u3", "u4", "u5"] and len(made) == ALIGNED
    assert {weights.size(0) for weights in made.values()} == {3}
    again = task.alignments()
    assert all(torch.equal(made[id], again[id]) for id in made)


def test_the_picture_is_the_weights():
    weights = torch.rand(4, 9)
    figure = alignment("an id of $math$", weights)
    assert_close(torch.tensor(figure.axes[0].images[0].get_array().data), weights)
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("encoder frame", "label")
    assert pixels(figure).shape == (400, 800, 3) and pixels(figure).std() > 1
