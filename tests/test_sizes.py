"""Prove the sizes of the configurations in conf/: published counts of parameters, the papers' formulas, the headers.

And that what published results were trained with is what their configurations have.
"""

import functools
import re

import pytest
import torch
from checkouts import ROOT
from pytest import approx
from small import options

from asr.config import load
from asr.models.hybrid import Hybrid
from asr.nn.attention import MultiHeadAttention
from asr.nn.layers import Dropout
from asr.tasks import Experiment

each = pytest.mark.parametrize
CONF = ROOT / "conf"
# ESPnet's READMEs: configuration → tokens, millions of parameters
PUBLISHED = options("""
    librispeech100-e_branchformer: [5000, 38.47], librispeech100-conformer: [5000, 34.23],
    librispeech960-e_branchformer: [5000, 148.9], librispeech960-conformer: [5000, 116.2],
    aishell-conformer: [4233, 46.25], aishell-e_branchformer: [4233, 37.88]
""")
# ESPnet's YAMLs: heads, rate, warm-up, decay, epochs; dropout of attention, and of layers
TRAINED = options("""
    librispeech100: [4, 0.002, 15000, 1.0e-6, 70, [0.1, 0.1], [0, 0]],
    librispeech100-conformer: [4, 0.002, 15000, 1.0e-6, 70, [0.1, 0.1], [0, 0]],
    librispeech100-e_branchformer: [4, 0.002, 15000, 1.0e-6, 70, [0.1, 0.1], [0, 0]],
    librispeech960-conformer: [8, 0.0025, 40000, 1.0e-6, 50, [0.1, 0.1], [0, 0]],
    librispeech960-e_branchformer: [8, 0.002, 40000, 1.0e-6, 80, [0.1, 0.1], [0.1, 0.2]],
    aishell-conformer: [4, 0.001, 35000, 1.0e-6, 60, [0.1, 0], [0, 0]],
    aishell-e_branchformer: [4, 0.001, 35000, 1.0e-6, 60, [0.1, 0], [0, 0]],
    aishell-transformer: [4, 0.0005, 30000, 0, 50, [0, 0], [0, 0]]
""")
# ESPnet's YAMLs: masks of frequency and their width, of time and theirs, in frames and of the utterance; seconds a step
MASKS = options("""
    librispeech100: [2, 27, 5, 150, 0.05, 1680], librispeech960: [2, 27, 10, 150, 0.05, 3600],
    aishell: [2, 27, 10, 150, 0.05, 760], aishell-transformer: [2, 30, 2, 40, 1, 520]
""")
# what a pretrained encoder is made of stands in its source
KINDS = {
    path.stem: re.findall("kind: (hybrid|pretrained)", path.read_text("utf-8"))
    for path in CONF.glob("*.yaml")
}
HYBRIDS = sorted(name for name, kinds in KINDS.items() if kinds == ["hybrid"])
TOKENS = {"librispeech": 5000, "aishell": 4233, "an4": 110}  # by how the name begins


@functools.cache
def settings(name):
    return load(Experiment, CONF / f"{name}.yaml")


def shown(name):
    """Millions of parameters in a configuration's opening comment, as written there; None = it names none."""
    header = re.match("(#.*\n)*", (CONF / f"{name}.yaml").read_text("utf-8"))[0]
    found = re.search(r"([\d.]+) M parameters", header)
    return found and found[1]


SHOWN = [name for name in HYBRIDS if shown(name)]


@functools.cache
def build(name, tokens=1000):
    """A configuration's model, without its weights."""
    experiment = settings(name)
    with torch.device("meta"):
        return Hybrid(experiment.model, experiment.features.fbank.mels, tokens)


def count(module):
    return sum(p.numel() for p in module.parameters())


@each("name", PUBLISHED)
def test_published_sizes(name):
    """To a thousandth, the rounding of what is published. A LayerNorm has as many weights as the BatchNorm that it
    stands for; ESPnet has one LayerNorm more, behind the last block's own."""
    tokens, published = PUBLISHED[name]
    assert count(build(name, tokens)) / 1e6 == approx(published, rel=1e-3)


@each("name", TRAINED)
def test_published_hyper_parameters(name):
    """What the count of parameters doesn't show. ESPnet's YAMLs leave Adam's constants to PyTorch, whose are these;
    its epochs are of three copies of the training set, one a speed."""
    e = settings(name)
    adam, training = e.optimizer, e.training
    heads, lr, warmup, decay, epochs, attention_dropout, layer_dropout = TRAINED[name]
    tokens = 45 if name.startswith("librispeech") else 15  # of an utterance, whose sum is its loss
    for n, part in enumerate((e.model.encoder, e.model.decoder)):
        made = part.heads, part.dropout, part.attention_dropout, part.layer_dropout
        assert made == (heads, 0.1, attention_dropout[n], layer_dropout[n])
    assert (e.model.ctc_weight, e.model.label_smoothing) == (0.3, 0.1)
    assert (adam.kind, adam.lr, adam.beta2) == ("adam", lr, 0.999)
    ours = [training.clip, adam.eps, adam.weight_decay]  # large as the gradient, ours of one token
    assert ours == approx([5 / tokens, 1e-8 / tokens, decay / tokens], rel=0.02, abs=0)
    assert (e.schedule.kind, e.schedule.warmup) == ("noam", warmup)
    assert (training.epochs, training.average, e.data.speeds) == (3 * epochs, 10, [0.9, 1.0, 1.1])


@each("name", TRAINED)
def test_published_masks_and_batches(name):
    """Steps hold about as much as ESPnet's, whose batches count tokens, too (conf/)."""
    e = settings(name)
    m, step = e.features.specaugment, e.data.batch_seconds * e.training.accumulate
    made = [m.freq_masks, m.freq_width, m.time_masks, m.time_width, m.time_ratio, step]
    assert m.time_warp == 5 and made == MASKS.get(name, MASKS.get(name.partition("-")[0]))


@each("name", SHOWN)
def test_a_header_shows_the_size(name):
    """To the last digit shown; also of the Transformers, whose sizes ESPnet's READMEs don't name."""
    (tokens,) = (size for corpus, size in TOKENS.items() if name.startswith(corpus))
    digits = len(shown(name).partition(".")[2])
    assert shown(name) == f"{count(build(name, tokens)) / 1e6:.{digits}f}"


def test_every_published_configuration_shows_its_size():
    assert {*PUBLISHED, "librispeech100", "aishell-transformer"} <= set(SHOWN)


@each("name", HYBRIDS)
def test_dropout_is_as_set(name):
    model, as_set = build(name), settings(name).model
    for part, s in (model.encoder, as_set.encoder), (model.decoder, as_set.decoder):
        modules = list(part.modules())
        assert {m.p for m in modules if isinstance(m, Dropout)} == {s.dropout}
        attention = {m.dropout for m in modules if isinstance(m, MultiHeadAttention)}
        assert attention == {s.attention_dropout} and part.layer_dropout == s.layer_dropout


@each("name", HYBRIDS)
def test_the_size_of_every_configuration(name):
    """Encoders of one width and depth: what each kind adds to a Transformer of the same `ff`, by its formulas."""
    e = settings(name).model.encoder
    D, M = e.d_model, e.ff
    norm, attention, feedforward = 2 * D, 4 * (D * D + D), 2 * D * M + D + M
    relative = 0 if e.positions != "relative" else D * D + 2 * D
    if e.kind == "transformer":
        layer = attention + feedforward + 2 * norm
    elif e.kind == "conformer":
        convolution = 2 * (D * D + D) + D * (e.kernel + 1) + norm + D * D + D
        layer = attention + relative + 2 * feedforward + convolution + 5 * norm
    else:
        C = e.cgmlp
        local = D * C + C + C + C // 2 * (e.kernel + 1) + C // 2 * D + D
        merge = 2 * D * (e.merge_kernel + 1) + 2 * D * D + D
        layer = attention + relative + 2 * feedforward + local + merge + 5 * norm
    assert count(build(name).encoder.layers) == e.layers * layer
