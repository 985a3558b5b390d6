"""Prove the sizes of the configurations in conf/: published counts of parameters, the papers' formulas, the headers."""

import re
from itertools import takewhile
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from asr.config import load
from asr.experiment import Experiment
from asr.models.hybrid import Hybrid

CONF = Path(__file__).parents[1] / "conf"
PUBLISHED = {  # configuration → tokens, millions of parameters in ESPnet's README of the recipe
    "librispeech100-e_branchformer": (5000, 38.47),
    "librispeech100-conformer": (5000, 34.23),
    "librispeech960-e_branchformer": (5000, 148.9),
    "librispeech960-conformer": (5000, 116.2),
    "aishell-conformer": (4233, 46.25),
    "aishell-e_branchformer": (4233, 37.88),
}
HYBRIDS = sorted(path.stem for path in CONF.glob("*.yaml") if not path.stem.endswith("lm"))
TOKENS = {"librispeech": 5000, "aishell": 4233, "an4": 110}  # by how the configuration's name begins


def shown(name):
    """Millions of parameters in a configuration's opening comment, as written there; None = it names none."""
    header = takewhile(lambda line: line.startswith("#"), (CONF / f"{name}.yaml").read_text("utf-8").splitlines())
    found = re.search(r"([\d.]+) M parameters", "\n".join(header))
    return found and found[1]


SHOWN = [name for name in HYBRIDS if shown(name)]


def parameters(name, tokens):
    """Count a configuration's parameters, in millions, without making them."""
    experiment = load(Experiment, CONF / f"{name}.yaml")
    with torch.device("meta"):
        model = Hybrid(experiment.model, experiment.features.fbank.mels, tokens)
    return sum(p.numel() for p in model.parameters()) / 1e6


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name):
    """To a thousandth, the rounding of what is published. A LayerNorm has as many weights as the BatchNorm that it
    stands for; ESPnet has one LayerNorm more, behind the last block's own."""
    tokens, published = PUBLISHED[name]
    assert_close(parameters(name, tokens), published, rtol=1e-3, atol=0)


@pytest.mark.parametrize("name", SHOWN)
def test_a_header_shows_the_size(name):
    """To the last digit shown; also of the Transformers, whose sizes ESPnet's READMEs don't name."""
    (tokens,) = (size for corpus, size in TOKENS.items() if name.startswith(corpus))
    digits = len(shown(name).partition(".")[2])
    assert shown(name) == f"{parameters(name, tokens):.{digits}f}"


def test_every_published_configuration_shows_its_size():
    assert {*PUBLISHED, "librispeech100", "aishell-transformer"} <= set(SHOWN)


@pytest.mark.parametrize("name", HYBRIDS)
def test_the_size_of_every_configuration(name):
    """Encoders of one width and depth: what each kind adds to a Transformer of the same `ff`, by its formulas."""
    experiment = load(Experiment, CONF / f"{name}.yaml")
    e = experiment.model.encoder
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
    with torch.device("meta"):
        model = Hybrid(experiment.model, experiment.features.fbank.mels, 1000)
    assert sum(p.numel() for p in model.encoder.layers.parameters()) == e.layers * layer
