"""asr-plot: what is drawn is what the model computes, read back from matplotlib's figures.

Of the model: its own posteriors, attention and transcript. What is refused stands in bad_inputs/plot.yaml.
"""

import numpy as np
import pytest
import torch
from refusals import refused
from small import options, sizes

from asr.cli.plot import differing
from asr.features.frontend import FrontendSettings
from asr.models.recognizer import Recognizer
from asr.text.tokenizer import train
from asr.training.plots import compared, is_plot, pixels, save
from asr.transcription import plots
from asr.transcription.options import SearchOptions
from asr.transcription.pipeline import transcribe_waveform

GREEDY = SearchOptions(mode="ctc-greedy")


@pytest.fixture(scope="module")
def recognizer():
    torch.manual_seed(1)
    features = FrontendSettings(fbank={"sample_rate": 8000, "mels": 20})
    made = Recognizer(features, sizes("ctc_weight: 0.3"), train("characters", ["A BC", "$E"]))
    with torch.no_grad():  # so that CTC hears something
        made.model.ctc_out.weight.mul_(30)
        made.model.ctc_out.bias[0] -= 1
    return made.eval()


@pytest.fixture(scope="module")
def waveform():
    rng = np.random.default_rng(1)
    return (rng.standard_normal(9600) * np.repeat(rng.random(12), 800)).astype(np.float32)


@pytest.fixture(scope="module")
def seen(recognizer, waveform):
    return plots.observe(recognizer, waveform, GREEDY)


def test_what_is_observed_is_the_models(recognizer, waveform, seen):
    found = transcribe_waveform(recognizer, waveform, GREEDY)
    assert seen.tokens == found.nbest[0].tokens and len(set(seen.tokens)) > 1
    assert seen.words == [word for segment in found.segments for word in segment.words]
    samples = torch.from_numpy(waveform)[None], torch.tensor([len(waveform)])
    Y = torch.tensor([seen.tokens]), torch.tensor([len(seen.tokens)])
    with torch.no_grad():
        X, _ = recognizer.frontend(*samples)
        H, H_lens = recognizer.encode(*samples)
        decoded = recognizer.model.decode(H, H_lens, *Y, attention=True)
        posteriors = recognizer.model.ctc_log_probs(H).exp()
    assert np.array_equal(seen.features, X[0]) and np.array_equal(seen.posteriors, posteriors[0])
    assert seen.attention.shape == (2, 3, len(seen.tokens) + 1, len(seen.posteriors))
    np.testing.assert_allclose(seen.attention, torch.cat(decoded.cross), atol=1e-6)
    # greedy text: each label stands where it is the most probable
    assert [int(seen.posteriors[peak].argmax()) for peak in seen.peaks] == seen.tokens


def test_the_picture_shows_features_posteriors_and_words(seen):
    top, middle, bottom = plots.utterance(seen, "a $b: A").axes
    assert np.array_equal(top.images[0].get_array(), seen.features.T)
    lines = [line for line in middle.lines if len(line.get_xdata()) == len(seen.posteriors)]
    for line, token in zip(lines, dict.fromkeys(seen.tokens), strict=True):
        assert np.array_equal(line.get_ydata(), seen.posteriors[:, token])
    places = [(text.get_text(), text.get_position()[0]) for text in middle.texts]
    times = [(peak + 0.5) * seen.frame for peak in seen.peaks]
    assert places == list(zip(seen.labels, times, strict=True))
    boxes = [(box.get_x(), box.get_x() + box.get_width()) for box in bottom.patches]
    assert boxes == [pytest.approx((word.start, word.end)) for word in seen.words] != []


def test_the_attention_of_every_layer_and_head_is_drawn(seen):
    figure = plots.attention(seen, "a")
    for axes, (layer, head) in zip(figure.axes, np.ndindex(2, 3), strict=True):
        assert axes.get_title(loc="left") == f"layer {layer + 1}, head {head + 1}"
        assert np.array_equal(axes.images[0].get_array(), seen.attention[layer, head])
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == [*seen.labels, "<eos>"]


def test_a_recording_without_words_can_be_drawn(recognizer):
    with torch.no_grad():
        recognizer.model.ctc_out.bias[0] += 1000
        silent = plots.observe(recognizer, np.zeros(100, np.float32), GREEDY)
        recognizer.model.ctc_out.bias[0] -= 1000
    assert silent.tokens == [] == silent.words
    for draw in (plots.utterance, plots.attention):
        assert pixels(draw(silent, "$ 一")).std() > 0


def metrics(*wers):
    train = options("kind: train, step: 1, epoch: 0.5, ctc: 2.0, wait: 0.1")
    lines = [{"kind": "dev", "step": n, "epoch": n, "wer": w} for n, w in enumerate(wers, 1)]
    return [train, *lines, options("kind: candidate, step: 9, wer: 0.0")]


def test_runs_are_compared_by_metric(tmp_path):
    figure = compared({"one": metrics(0.5, 0.2), "other": metrics(0.4)})
    assert {
        axes.get_title(loc="left"): {
            line.get_label(): line.get_xydata().tolist() for line in axes.lines
        }
        for axes in figure.axes
    } == {
        "train ctc: loss per token": {"one": [[0.5, 2]], "other": [[0.5, 2]]},
        "dev wer: error rate on dev [%]": {
            "one, best 20.00%": [[1, 50], [2, 20]],
            "other, best 40.00%": [[1, 40]],
        },
    }
    colors = [[line.get_color() for line in axes.lines] for axes in figure.axes]
    assert colors[0] == colors[1] and len(set(colors[0])) == 2
    save(pixels(figure), tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"\x89PNG\r\n another's")
    assert is_plot(tmp_path / "a.png") and not is_plot(tmp_path / "b.png")


NAMES = {"exp/a/model exp/b/model": "a b", "a/ b/c": "a b/c", "x/a x/a/a": "a a/a", "exp/a": "a"}


@pytest.mark.parametrize("paths, names", NAMES.items())
def test_runs_are_named_by_what_differs(paths, names):
    assert differing(paths.split()) == names.split()
    refused("twice", differing, ["a", "b", "./a/"])
